"""What a model is asked while something in it is changed: what it reads, and where in its numbers the answer stands.

    it writes a text     every token of the answer, given the source and the tokens before it: the model's own answer,
                         or one that is given
    it goes on with one  the likeliest next token, where nothing else is asked for
    it gives a label     the label
    it fills a text      every hidden place
    it finds a span      where the answer begins, and where it ends

Each of these is a decision between options, with a probability for every one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.data.batching import Inputs, Padded
from regard.data.sentinels import with_gaps
from regard.decoding.beam import check_likely
from regard.errors import InputError
from regard.tasks.generation import Generation
from regard.tasks.scoring import inputs_of
from regard.tasks.task import Loaded

LIKELIEST = 5
"""Options that are named of each decision."""


@dataclass(frozen=True)
class Option:
    """One thing a model can decide for, and how likely that is."""

    name: str
    probability: float


@dataclass(frozen=True, eq=False)
class Decisions:
    """What is read, and what was decided when nothing was changed: one option of every decision."""

    inputs: Inputs
    chosen: tuple[int, ...]
    name: Callable[[int], str]
    decisions: Callable[[Tensor], Tensor]
    """From the network's logits to `[batch, decisions, options]`."""

    def ask(self, module: Callable[[Inputs], Tensor], copies: int = 1) -> Float[Tensor, "copies decisions options"]:
        """The log-probabilities, in float64, of every option; with `copies` of the text side by side."""
        with torch.no_grad():
            logits = module(self.inputs if copies == 1 else repeated(self.inputs, copies))
        likely = self.decisions(logits).double().log_softmax(dim=-1)
        check_likely(likely)
        return likely

    def of_chosen(self, likely: Float[Tensor, "copies decisions options"]) -> Float[Tensor, "copies decisions"]:
        """Those of what was decided."""
        chosen = torch.tensor(self.chosen, device=likely.device)
        return likely.gather(2, chosen.expand(len(likely), -1)[..., None])[..., 0]

    def likeliest(self, likely: Float[Tensor, "options"], count: int = LIKELIEST) -> tuple[Option, ...]:
        """The best options of one decision, best first."""
        best = likely.exp().topk(min(count, len(likely)))
        pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        return tuple(Option(self.name(one), share) for one, share in pairs)


def repeated(inputs: Inputs, copies: int) -> Inputs:
    """The same text so many times."""

    def all_of(padded: Padded) -> Padded:
        segments = None if padded.segments is None else padded.segments.expand(copies, -1)
        return replace(
            padded, ids=padded.ids.expand(copies, -1), lengths=padded.lengths.expand(copies), segments=segments
        )

    return Inputs(all_of(inputs.tokens), None if inputs.source is None else all_of(inputs.source))


def decisions_of(
    model: Loaded, text: str, target: str | None = None, generate: bool = False, max_new_tokens: int | None = None
) -> Decisions:
    """What the model decides about a text; the target, where one is given, is what it is asked to have written."""
    model.task.check(model, text)
    if model.module.config.outputs == "none":
        raise InputError("this model gives vectors and decides nothing", "use a model that writes, labels or fills")
    generate = generate or max_new_tokens is not None
    if isinstance(model.task, Generation):
        return _written(model, model.task, text, target, generate, max_new_tokens)
    if generate or target is not None:
        raise InputError(f"task {model.task.name!r} writes no text", "leave the target and the length out")
    inputs = inputs_of(model, model.task, text, None).to(model.module.device)
    outputs, config = model.module.config.outputs, model.module.config
    if outputs == "labels":
        return _likeliest(model, inputs, config.labels.__getitem__, lambda logits: logits[:, None])
    if outputs == "spans":
        pieces = model.tokenizer.pieces(inputs.tokens.rows()[0])
        return _likeliest(model, inputs, lambda at: f"{at} {pieces[at]}", lambda logits: logits.transpose(1, 2))
    hidden = [at for at, one in enumerate(inputs.tokens.rows()[0]) if one == model.tokenizer.mask_id]
    if not hidden:
        name = model.tokenizer.token_text(model.tokenizer.mask_id)
        raise InputError(f"the text hides nothing: it has no {name}", f"write {name} in place of a word")
    return _likeliest(model, inputs, model.tokenizer.token_text, lambda logits: logits[:, hidden])


def _likeliest(
    model: Loaded, inputs: Inputs, name: Callable[[int], str], decisions: Callable[[Tensor], Tensor]
) -> Decisions:
    """With the likeliest option of every decision."""
    decided = Decisions(inputs, (), name, decisions)
    [likely] = decided.ask(model.module)
    return replace(decided, chosen=tuple(likely.argmax(dim=-1).tolist()))


def _written(
    model: Loaded, task: Generation[Any], text: str, target: str | None, generate: bool, limit: int | None
) -> Decisions:
    if generate and target is not None:
        raise InputError("a target is given, so nothing is generated", "leave the target or the limit out")
    inputs, name = task.begun(model, [text]).to(model.module.device), model.tokenizer.token_text
    if target is None and task.continues and not generate:
        return _likeliest(model, inputs, name, lambda logits: logits[:, -1:])
    if target is None:
        [found] = task.hypotheses(model, [text], None, limit)
        written: Sequence[int] = found.ids
    elif task.continues:
        written = model.tokenizer.encode(target)
    else:
        written = [*with_gaps([target], model.tokenizer)[0], model.tokenizer.eos_id]
    if not written:
        raise InputError("the target has no tokens", "give a text")
    row = [*inputs.tokens.rows()[0], *written[:-1]]
    read = Inputs(Padded.of([row]).to(model.module.device), inputs.source)
    return Decisions(read, tuple(written), name, lambda logits: logits[:, -len(written) :])
