"""The network's own numbers: its logits for a text, and how likely it finds one.

    language modelling   reads `<bos> text`, or the text alone where the model begins without a mark; scores the text,
                         but for a first token that stands before everything and is not predicted
    a translator         reads the source, and `<bos> target`; scores `target <eos>` given the source
    an encoder           reads the text with its special tokens; has logits, and scores no text

Nothing of decoding is in them: no temperature, no forced or suppressed tokens.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.data.batching import Inputs, Padded
from regard.data.questions import split_question
from regard.data.sentinels import with_gaps
from regard.errors import InputError
from regard.tasks.generation import Generation
from regard.tasks.task import Loaded, Task


@dataclass(frozen=True)
class Score:
    """How likely a model finds a text: the log-probability, in nats, of each of its tokens given those before."""

    tokens: tuple[str, ...]
    log_probabilities: tuple[float, ...]

    @property
    def total(self) -> float:
        """The log-probability of the whole."""
        return math.fsum(self.log_probabilities)

    @property
    def perplexity(self) -> float:
        """`exp` of the mean loss of a token."""
        loss = -self.total / len(self.tokens)
        return math.exp(loss) if loss < 700 else math.inf

    def __repr__(self) -> str:
        pairs = zip(self.tokens, self.log_probabilities, strict=True)
        listed = ", ".join(f"{token!r}: {value:.3f}" for token, value in pairs)
        return f"Score(total={self.total:.3f}, {{{listed}}})"


def inputs_of(model: Loaded, task: Task[Any], text: str, target: str | None) -> Inputs:
    """What the network reads."""
    token = model.tokenizer
    if isinstance(task, Generation):
        inputs = task.prompt(model, [text])
        if target is None:
            return inputs
        if task.before(model, text):
            raise InputError(f"task {task.name!r} has no target: it goes on with a text", "give the whole text as one")
        row = [*inputs.tokens.rows()[0], *with_gaps([target], token)[0]]
        return Inputs(Padded.of([row]), inputs.source)
    if target is not None:
        raise InputError(f"task {task.name!r} has no target: the model writes no text", "leave it out")
    pair = None
    if task.name == "question_answering":
        text, context = split_question(text)
        pair = token.encode(context)
    hidden = [token.mask] if token.mask in token.special_ids else []
    row, segments = token.apply_template(token.encode_naming(text, hidden) if hidden else token.encode(text), pair)
    return Inputs(Padded.of([row], segments=[segments] if model.module.config.segment_kinds else None))


@torch.no_grad()
def logits_of(model: Loaded, task: Task[Any], text: str, target: str | None = None) -> Float[Tensor, "*tokens out"]:
    """As the network gives them for `inputs_of`."""
    if model.module.config.outputs == "none":
        raise InputError("this model gives vectors and no logits", "ask for its vectors with `run`")
    inputs = inputs_of(model, task, text, target).to(model.module.device)
    found: Tensor = model.module(inputs)[0]
    return found


def score_of(model: Loaded, task: Task[Any], text: str, target: str | None = None) -> Score:
    """Of the text, or of the target where the model writes one."""
    if not isinstance(task, Generation):
        raise InputError(f"task {task.name!r} finds no text likely or unlikely: it writes none", "use `logits`")
    continues = bool(task.before(model, text))
    if target is None and not continues:
        raise InputError(f"task {task.name!r} scores a target given a source", "give both: score(source, target)")
    row = inputs_of(model, task, text, target).tokens.rows()[0]
    written = row[1:] if continues else [*with_gaps([str(target)], model.tokenizer)[0], task.end_id(model)]
    if not written:
        raise InputError("the text has one token, which nothing stands before", "give a longer one")
    logits = logits_of(model, task, text, target).double()
    likely = (logits[: len(written)] if continues else logits[-len(written) :]).log_softmax(dim=-1)
    values = likely.gather(1, torch.tensor(written, device=likely.device)[:, None])[:, 0]
    return Score(tuple(model.tokenizer.pieces(written)), tuple(values.tolist()))
