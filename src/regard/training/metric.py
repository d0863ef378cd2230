"""What "best" means to a run: a figure measured at every evaluation, and whether more of it is better."""

import math
from collections.abc import Callable
from dataclasses import dataclass

HIGHER_IS_BETTER = {
    "loss": False,
    "perplexity": False,
    "bits_per_byte": False,
    "accuracy": True,
    "exact_match": True,
    "conversation_match": True,
    "f1": True,
    "macro_f1": True,
    "bleu": True,
    "chrf": True,
    "rouge1": True,
    "rouge2": True,
    "rougeL": True,
}
"""Every figure a run can be judged by."""


@dataclass(frozen=True)
class Metric:
    """A figure by its name. The validation loss is measured by the run itself, any other by `measure`.

    The loop knows nothing of tasks: `measure` is a call without arguments that finds the module in evaluation mode.
    """

    name: str = "loss"
    measure: Callable[[], float] | None = None

    def better(self, value: float, best: float | None) -> bool:
        """Whether a value is a new best; an equal one is not."""
        if best is None:
            return not math.isnan(value)
        return value > best if HIGHER_IS_BETTER[self.name] else value < best
