"""What a model would answer if it ended earlier, and where in it the answer is: logit lens and activation patching.

logit lens   the stream after each layer goes through the final norm and the head, as the last one does
             (nostalgebraist 2020). It shows what the head reads there, not what the layer knows: a layer that
             writes in directions of its own looks ignorant.
patching     of two texts of equal length, the second is read with one vector of the first (Meng et al. 2022, §2;
             Zhang & Nanda 2023): how much of the first one's answer comes back. It shows that the vector is enough
             to bring it back in this pair, not that nothing else would do.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.data.batching import Inputs
from regard.errors import InputError
from regard.inspection.decisions import Decisions, Option
from regard.inspection.intervention import StreamPatch, intervene, stream_places
from regard.inspection.what_if import TOGETHER
from regard.models.network import Network

CLEAR = 1e-6
"""A difference of logits below this is none to be brought back."""


@dataclass(frozen=True)
class LensCell:
    """What one layer's stream would decide."""

    likeliest: tuple[Option, ...]
    log_probability: float
    """Of what the whole model decided."""
    rank: int
    """Its place among all options; 1 is the likeliest."""


@dataclass(frozen=True)
class LogitLens:
    """Layer by layer, from the embedding on, every decision as it would be if the model ended there."""

    layers: tuple[str, ...]
    decided: tuple[str, ...]
    cells: tuple[tuple[LensCell, ...], ...]
    """`[layers][decisions]`."""


@dataclass(frozen=True, eq=False)
class PatchedStack:
    """One stack's map: how much of the difference comes back with each vector, 1 all of it."""

    layers: tuple[str, ...]
    tokens: tuple[int, ...]
    other_tokens: tuple[int, ...]
    recovered: NDArray[Any]
    """`[layers, tokens]`."""


@dataclass(frozen=True, eq=False)
class Patching:
    """Two texts and the first decision they do not share: its logit difference in each, and what each vector does."""

    chosen: str
    other: str
    decision: int
    """Which of the answer's decisions it is."""
    difference: float
    """The logit of `chosen` less that of `other`, of the first text."""
    other_difference: float
    """The same of the second text."""
    stacks: tuple[PatchedStack, ...]


def writing_stack(module: Network) -> dict[str, nn.Module]:
    """The layers that the head reads from: the decoder's where there is one."""
    places = stream_places(module)
    last = [name for name in places if name.startswith("decoder.")] or list(places)
    return {name: places[name] for name in last}


def logit_lens(module: Network, decided: Decisions) -> LogitLens:
    """Put each layer's stream in the place of the last one's, and ask."""
    layers = writing_stack(module)
    with _streams(layers) as streams:
        decided.ask(module)
    *_, last = layers.values()
    cells = []
    for stream in streams.values():
        with _ended(last, stream):
            [likely] = decided.ask(module)
        cells.append(tuple(_cell(decided, likely[at], one) for at, one in enumerate(decided.chosen)))
    names = tuple(map(decided.name, decided.chosen))
    return LogitLens(tuple(streams), names, tuple(cells))


def _cell(decided: Decisions, likely: Float[Tensor, "options"], chosen: int) -> LensCell:
    rank = 1 + int((likely > likely[chosen]).sum())
    return LensCell(decided.likeliest(likely), float(likely[chosen]), rank)


@contextmanager
def _streams(layers: dict[str, nn.Module]) -> Iterator[dict[str, Tensor]]:
    """What each layer gives, and before them what the first one reads, `embedding`."""
    found: dict[str, Tensor] = {}
    first = next(iter(layers.values()))
    handles = [first.register_forward_pre_hook(lambda _, args: found.update(embedding=args[0]))]
    for name, layer in layers.items():

        def keep(_: nn.Module, args: tuple[Any, ...], out: Any, name: str = name) -> None:
            found[name] = out[0] if isinstance(out, tuple) else out

        handles.append(layer.register_forward_hook(keep))
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def _ended(last: nn.Module, stream: Tensor) -> Iterator[None]:
    handle = last.register_forward_hook(lambda _, args, out: (stream, *out[1:]) if isinstance(out, tuple) else stream)
    try:
        yield
    finally:
        handle.remove()


def patching(module: Network, decided: Decisions, read: Inputs) -> Patching:
    """Read another text, as long as the one that was decided on, with each vector of that one in turn.

    What the answer's later tokens are decided by, the answer so far, is that of the first text.
    """
    clean = decided.inputs
    read = read if read.source is None else Inputs(clean.tokens, read.source)
    _check_lengths(clean, read)
    other, places = replace(decided, inputs=read), stream_places(module)
    with _streams(places) as streams:
        [expected] = decided.ask(module)
    [corrupt] = other.ask(module)
    differing = [at for at, one in enumerate(decided.chosen) if int(corrupt[at].argmax()) != one]
    if not differing:
        raise InputError("both texts lead to the same answer, and none can be brought back", "change the second more")
    at = differing[0]
    chosen, instead = decided.chosen[at], int(corrupt[at].argmax())

    def difference(likely: Float[Tensor, "*copies decisions options"]) -> Float[Tensor, "*copies"]:
        return likely[..., at, chosen] - likely[..., at, instead]

    whole, none = float(difference(expected)), float(difference(corrupt))
    if abs(whole - none) < CLEAR:
        raise InputError("the two texts differ by no logits", "choose texts that lead to different answers")
    maps = []
    for stack in ("encoder", "decoder"):
        layers = {name: streams[name] for name in places if name.startswith(stack)}
        if layers:
            changes = [StreamPatch(name, at, one[0, at]) for name, one in layers.items() for at in range(one.shape[1])]
            found = torch.cat([difference(likely) for likely in _patched(module, other, changes)])
            table = ((found - none) / (whole - none)).view(len(layers), -1)
            of = [one.source if stack == "encoder" and one.source is not None else one.tokens for one in (clean, read)]
            tokens, instead_of = (tuple(one.ids[0].tolist()) for one in of)
            maps.append(PatchedStack(tuple(layers), tokens, instead_of, table.cpu().numpy()))
    return Patching(decided.name(chosen), decided.name(instead), at, whole, none, tuple(maps))


def _patched(module: Network, other: Decisions, changes: Sequence[StreamPatch]) -> Iterator[Tensor]:
    """The other text with one vector changed in each of its copies."""
    for first in range(0, len(changes), TOGETHER):
        some = [replace(one, sequence=at) for at, one in enumerate(changes[first : first + TOGETHER])]
        with intervene(module, some):
            yield other.ask(module, copies=len(some))


def _check_lengths(clean: Inputs, other: Inputs) -> None:
    pairs = [(clean.tokens, other.tokens)]
    if clean.source is not None and other.source is not None:
        pairs.append((clean.source, other.source))
    for one, two in pairs:
        if one.ids.shape != two.ids.shape:
            raise InputError(
                f"texts of {one.ids.shape[1]} and {two.ids.shape[1]} tokens have no places in common",
                "give two texts of as many tokens",
            )
