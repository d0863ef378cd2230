"""How much of a gradient reaches a source token from the output token that needs it, by the distance between them.

    ‖ ∂(v · h_t) / ∂e_i ‖     h_t the readout of the output token, e_i the embedding of the source token it needs,
                              v a unit direction; the mean over directions and examples

No loss is in it, so a network that knows its answer has no smaller one. The distance is the number of tokens that are
read and written from the one to the other: between the two lie so many steps of a recurrent network.
"""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.data.batching import Inputs
from regard.models.network import Network

DIRECTIONS = 4


def gradient_norms(
    module: Network, inputs: Inputs, pairs: Sequence[tuple[int, int]], *, directions: int = DIRECTIONS, seed: int = 0
) -> list[float]:
    """For each (place of an output token, place of the source token it needs).

    In float64: what has vanished is small, not zero; on the CPU, since cuDNN's layers have no gradient in evaluation.
    """
    exact = copy.deepcopy(module).cpu().double().eval()
    embedded: list[Tensor] = []
    assert inputs.source is not None
    source = inputs.source

    def keep(_: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        if args[0] is source.ids:
            embedded.append(output)

    handle = exact.embedding.register_forward_hook(keep)
    try:
        hidden = exact.hidden(inputs)
    finally:
        handle.remove()
    (vectors,) = embedded
    among = unit_directions(directions, hidden.shape[-1], seed).to(hidden)
    return [
        sum(_norm(hidden[:, output] @ direction, vectors, needed) for direction in among) / directions
        for output, needed in pairs
    ]


def unit_directions(count: int, width: int, seed: int) -> Float[Tensor, "count width"]:
    """Directions of length 1, all equally likely."""
    drawn = torch.randn(count, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return nn.functional.normalize(drawn, dim=1)


def _norm(readouts: Tensor, vectors: Tensor, place: int) -> float:
    """Of the gradient at one place, the mean over the rows, which know nothing of each other."""
    (gradient,) = torch.autograd.grad(readouts.sum(), vectors, retain_graph=True)
    return float(gradient[:, place].norm(dim=-1).mean())
