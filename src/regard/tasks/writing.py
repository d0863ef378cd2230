"""Tasks whose answer is a text that the model writes token by token: what translation and language have in common."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace

from regard.data.batching import Inputs
from regard.decoding.engine import generate, stream
from regard.decoding.hypothesis import Hypothesis, Stop
from regard.decoding.strategies import Beam, Greedy, Sample, Strategy
from regard.errors import InputError
from regard.tasks.task import Answer, Asked, D, Task

TOGETHER = 64
"""Texts decoded side by side."""


class Writing(Task[D]):
    """A text in, a text out."""

    @abstractmethod
    def prompt(self, model: Asked, texts: Sequence[str]) -> Inputs:
        """What the model reads before it writes."""

    def answers(
        self, model: Asked, texts: Sequence[str], strategy: Strategy | None, max_new_tokens: int | None
    ) -> list[Answer]:
        """What the model writes, its score and how many tokens it took."""
        found = self.hypotheses(model, texts, strategy, max_new_tokens)
        outputs = [model.tokenizer.decode(one.ids) for one in found]
        return [
            Answer(output, output, {"output": output, "score": one.score, "tokens": len(one.ids)})
            for output, one in zip(outputs, found, strict=True)
        ]

    def hypotheses(
        self, model: Asked, texts: Sequence[str], strategy: Strategy | None, max_new_tokens: int | None
    ) -> list[Hypothesis]:
        """What decoding found for every text: ids, score, and the rows they were computed in."""
        if not isinstance(strategy, Greedy | Sample | Beam | None):
            raise InputError(f"{strategy!r} is not a strategy", "use regard.Greedy(), Sample(…) or Beam(…)")
        for text in texts:
            self.check(model.recipe, text)
        stop = _stop(model, max_new_tokens)
        device = next(model.module.parameters()).device
        found = []
        for first in range(0, len(texts), TOGETHER):
            inputs = self.prompt(model, texts[first : first + TOGETHER]).to(device)
            chosen = strategy or model.decoding.chosen()
            chosen = replace(chosen, first=chosen.first + first) if isinstance(chosen, Sample) else chosen
            found += generate(model.module, inputs, chosen, stop)
        return found

    def stream(self, model: Asked, text: str, strategy: Strategy | None, max_new_tokens: int | None) -> Iterator[str]:
        """Pieces of the answer as they are chosen."""
        chosen = strategy or model.decoding.chosen()
        if isinstance(chosen, Beam):
            raise InputError("a beam decides its tokens at the end and cannot stream", "use greedy or sample")
        self.check(model.recipe, text)
        inputs = self.prompt(model, [text]).to(next(model.module.parameters()).device)
        text_of = model.tokenizer.stream()  # a character may need the bytes of several tokens
        for token in stream(model.module, inputs, chosen, _stop(model, max_new_tokens)):
            if piece := text_of.push(token):
                yield piece
        if rest := text_of.end():
            yield rest


def _stop(model: Asked, max_new_tokens: int | None) -> Stop:
    limit = model.decoding.max_new_tokens if max_new_tokens is None else max_new_tokens
    return Stop(model.tokenizer.eos_id, limit)
