"""The four steps of one row of one head, with the numbers that were actually there."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.attention.lowering import bias_values
from regard.attention.mask_algebra import Grid
from regard.errors import InputError
from regard.inspection.capture import Recording
from regard.inspection.wide import widened


class Pieces(NamedTuple):
    """A query, the keys and values it met, and every number in between; keys it could not have met are left out.

    Of a similarity that is a dot product of something else, such as the cosine, query and keys are what is multiplied.
    """

    query: Float[Tensor, "head_width"]
    key: Float[Tensor, "keys head_width"]
    raw: Float[Tensor, "keys"]
    scale: float
    bias: Float[Tensor, "keys"]
    allowed: Bool[Tensor, "keys"]
    weights: Float[Tensor, "keys"]
    values: Float[Tensor, "keys value_width"]
    output: Float[Tensor, "value_width"]
    dotted: bool
    """Whether `raw` is the dot product of query and key."""


@torch.no_grad()
def four_steps(seen: Recording, layer: str, head: int, row: int, batch: int | None = None) -> Pieces:
    """Scores, scale, softmax and weighted sum of one row; the model must have been watched with its values."""
    path = seen.trace(layer, head, batch)
    call, at, place = path.place(row)
    if call.new_values is None:
        raise InputError("the values were not kept", "watch with `values=True` to see the four steps")
    visible = path.real_keys().indices(call.keys)
    real = slice(visible[0], min(visible[1], call.keys))
    shared = head * call.new_keys.shape[1] // path.heads
    query = call.query[at, head, place]
    key, values = (path.joined(what)[0, shared, : call.keys] for what in ("new_keys", "new_values"))
    one, many = query.view(1, 1, 1, -1), key[None, None]
    dotted = call.similarity.as_dot(one, many)
    if dotted is None:
        raw, scale = widened(call.similarity.scores(one, many)).flatten(), 1.0
    else:
        one, many, scale = widened(dotted[0]), widened(dotted[1]), dotted[2]
        raw = (one @ many.transpose(-2, -1)).flatten()
    shape = (1, path.heads, call.query.shape[2], call.keys)
    grid = Grid.of(shape, query.device, torch.tensor([place], device=query.device), call.positions_of(at))
    bias, allowed = torch.zeros_like(raw), torch.ones_like(raw, dtype=torch.bool)
    if call.bias is not None:
        numbers = bias_values(
            call.bias, Grid.of(shape, query.device, positions=call.positions_of(at)), raw.dtype
        ).expand(shape)
        bias = numbers[0, head, place]
    if call.mask is not None:
        mask = call.mask.select(torch.tensor([at], device=query.device))
        allowed = mask.allowed(grid).expand(1, path.heads, 1, call.keys)[0, head, 0]
    values = widened(values)
    weights = seen.weights(layer, head, rows=[row], batch=batch)[0][: real.stop - real.start]
    return Pieces(
        one.flatten(),
        many[0, 0, real],
        raw[real],
        scale,
        bias[real],
        allowed[real],
        weights,
        values[real],
        output=weights @ values[real],
        dotted=dotted is not None,
    )
