"""How far every mechanism is from exact attention on a user's own text, read by a trained model.

The model reads the text with its exact attention. In every layer, what its attention read there is given to each other
mechanism as well, which has the layer's own weights: `‖mechanism − exact‖ / ‖exact‖` of what comes out. Errors do not
add up from layer to layer. What a mechanism learns of its own, and the model never did, is drawn and named.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from regard.api.loading import load
from regard.api.model import Model
from regard.attention.exact import ExactAttention
from regard.attention.mechanism import MECHANISMS, LayerContext, attended
from regard.bench.growth import EXACT, Row, shaped
from regard.data.batching import Inputs, Padded
from regard.errors import ConfigError, InputError
from regard.text.counting import read_texts

LONGEST = 4096
"""Tokens of the text, where nobody says how many."""


@dataclass(frozen=True, eq=False)
class Seen:
    """What one attention read, and what it made of it."""

    module: ExactAttention
    inputs: Tensor
    context: LayerContext
    out: Tensor


def rows(
    folder: Path, text: Path, device: str, lengths: Sequence[int] | None = None, mechanisms: Sequence[str] | None = None
) -> Iterator[Row]:
    """A row for every length and mechanism; one that cannot be in such a layer says why."""
    model = load(folder, device)
    ids = model.tokenizer.encode("".join(read_texts([text])))
    names = [name for name in MECHANISMS if name != EXACT and (mechanisms is None or name in mechanisms)]
    for tokens in sorted(lengths or [_usual(model, len(ids))]):
        seen = watched(model, _inputs(model, ids, tokens, text))
        for name in names:
            what = f"error against exact attention, {tokens:,} tokens of {text.name} through {folder.name}"
            yield {"what": what, "contestant": name, "length": tokens} | _error(name, seen)


def _usual(model: Model, there: int) -> int:
    config = model.module.config
    return min(there, LONGEST, config.position_limit or LONGEST)


def _inputs(model: Model, ids: Sequence[int], tokens: int, text: Path) -> Inputs:
    """The beginning of the text, as the model reads it."""
    limit = model.module.config.position_limit
    if limit is not None and tokens > limit:
        raise InputError(f"the model has {limit:,} positions and {tokens:,} are asked for", f"use a length of {limit}")
    if not 1 <= tokens <= len(ids):
        raise InputError(f"{text} has {len(ids):,} tokens and {tokens:,} are asked for", "give a longer text")
    read = Padded.of([ids[:tokens]])
    reads_source = model.module.config.reads_source
    inputs = Inputs(Padded.of([[model.tokenizer.bos_id]]), read) if reads_source else Inputs(read)
    return inputs.to(model.module.device)


@torch.no_grad()
def watched(model: Model, inputs: Inputs) -> list[Seen]:
    """Every self-attention of the text's stack, with what it read."""
    found: list[Seen] = []

    def keep(module: Any, given: tuple[Any, ...], out: tuple[Any, ...]) -> None:
        read, _, context = given
        if not module.slot.cross and read.shape[1] > 1:
            found.append(Seen(module, read, context, out[0]))

    attentions = [module for module in model.module.modules() if isinstance(module, ExactAttention)]
    handles = [module.register_forward_hook(keep) for module in attentions]
    try:
        model.module.eval()(inputs)
    finally:
        for handle in handles:
            handle.remove()
    if not found:
        raise InputError("the model has no exact self-attention to compare with", "give one trained with exact")
    return found


@torch.no_grad()
def _error(name: str, seen: Sequence[Seen]) -> Row:
    errors: dict[str, float] = {}
    drawn: dict[str, None] = {}
    try:
        for number, one in enumerate(seen):
            torch.manual_seed(0)
            tokens = one.inputs.shape[1]
            twin = shaped(name, tokens, MECHANISMS[name].borrowing).build(
                replace(one.module.slot, dropout=0.0, max_tokens=tokens)
            )
            own = one.module.state_dict()
            shared = {key: own[key] for key, value in twin.state_dict().items() if _same(own.get(key), value)}
            twin.load_state_dict(shared, strict=False)
            drawn |= dict.fromkeys(key for key, _ in twin.named_parameters() if key not in shared)
            twin = twin.to(one.inputs.device, one.inputs.dtype).eval()
            out, _ = attended(twin, one.inputs, None, one.context)
            error = (out.double() - one.out.double()).norm() / one.out.double().norm()
            errors[str(one.module.slot.site or number)] = round(float(error), 6)
    except (ConfigError, InputError) as error:
        return {"figure": f"refused: {error.problem}", "failed": error.problem}
    mean, values = fmean(errors.values()), errors.values()
    words = f"{mean:.4f} ({min(values):.4f}–{max(values):.4f} over layers)"
    if drawn:
        words += f"; never learnt, so drawn: {', '.join(dict.fromkeys(key.split('.')[0] for key in drawn))}"
    return {"figure": words, "error": round(mean, 6), "layers": errors, "drawn": list(drawn)}


def _same(one: Tensor | None, other: Tensor) -> bool:
    return one is not None and one.shape == other.shape
