"""What attention is sometimes taken to mean, beside the raw weights: attention rollout and gradient × attention.

raw        how much a row reads of a key in this layer. Nothing of what the key carries by then, nor of its use.
rollout    the weights of all layers below multiplied, half of each the token itself (Abnar & Zuidema 2020, §3):
           how much of each *input* token could have come this far, if values, norms and feed-forward networks did
           nothing. It is the same whatever the model decides.
gradient   weight × ∂ log p(answer) / ∂ weight, summed over heads: by how much the answer's log-probability would
           rise with the weight, to first order, in proportion. It says something of the answer; for large changes
           a slope need not hold, and cutting the edge tells.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from regard.attention.core import share_heads, weights
from regard.attention.multihead import Attend
from regard.errors import InputError
from regard.inspection.capture import Recording, as_written, record_into
from regard.inspection.decisions import Decisions
from regard.inspection.intervention import attention_places, given_to_attend
from regard.models.network import Network

LARGEST = 2**24
"""Weights of one layer's map, all heads together, that are computed as a whole: 8 heads over 1,400 tokens."""


@dataclass(frozen=True, eq=False)
class Flow:
    """One layer's map in three ways, each `[rows, keys]`; of rollout, keys are the tokens at the stack's beginning."""

    layer: str
    answer: tuple[str, ...]
    raw: NDArray[Any]
    """The mean of the heads."""
    rollout: NDArray[Any]
    gradient: NDArray[Any]
    """Signed: below 0, the weight holds the answer back."""


def attention_flow(module: Network, decided: Decisions, layer: str) -> Flow:
    """Of one layer while the model decides."""
    with record_into(Recording(), module) as seen:
        decided.ask(module)
    seen.trace(layer)  # says which layers there are
    rolled = rollout(seen, layer)
    slopes = gradient_times_attention(module, decided, [layer])[layer].sum(dim=0)
    names = tuple(map(decided.name, decided.chosen))
    return Flow(layer, names, *(one.cpu().numpy() for one in (_mean(seen, layer), rolled, slopes)))


def rollout(seen: Recording, layer: str) -> Float[Tensor, "rows tokens"]:
    """From a layer's rows down to the tokens its stack reads; across, down to those of the encoder.

    Half of each self-attention is the residual stream: `Ã = (A + I) / 2`, A the mean over heads.
    """
    stack, index, kind = layer.split(".")
    if kind == "cross":
        last = [one for one in seen.layers if one.startswith("encoder.")]
        across = _mean(seen, layer)
        return across @ rollout(seen, last[-1]) if last else across
    below = [one for one in seen.layers if one.startswith(f"{stack}.") and one.endswith(".self")]
    product = None
    for one in below:
        mean = _mean(seen, one)
        mixed = (mean + torch.eye(len(mean), dtype=mean.dtype, device=mean.device)) / 2
        product = mixed if product is None else mixed @ product
        if int(one.split(".")[1]) == int(index):
            break
    assert product is not None
    return product


def _mean(seen: Recording, layer: str) -> Float[Tensor, "rows keys"]:
    trace = seen.trace(layer)
    size = trace.heads * len(trace.places()) * trace.calls[-1].keys
    _check_size(layer, size)
    return seen.weights(layer).double().mean(dim=0)


def _check_size(layer: str, size: int) -> None:
    if size > LARGEST:
        raise InputError(
            f"the whole map of {layer} has {size:,} numbers and at most {LARGEST:,} are computed", "give a shorter text"
        )


def gradient_times_attention(
    module: Network, decided: Decisions, layers: list[str]
) -> dict[str, Float[Tensor, "heads rows keys"]]:
    """`A ⊙ ∂ log p / ∂A` of exact layers, the answer's log-probability being that of all its decisions."""
    with _explicit(module, layers) as kept, torch.enable_grad():
        likely = decided.decisions(module(decided.inputs)).double().log_softmax(dim=-1)
        total = decided.of_chosen(likely).sum()
        slopes = torch.autograd.grad(total, [one for _, one in kept.values()])
    pairs = zip(kept.items(), slopes, strict=True)
    return {layer: (table.detach() * slope)[0].double() for (layer, (table, _)), slope in pairs}


@contextmanager
def _explicit(module: Network, layers: list[str]) -> Iterator[dict[str, tuple[Tensor, Tensor]]]:
    """Let these layers attend by weights that can be asked for their slope, which is that of a zero added to them."""
    kept: dict[str, tuple[Tensor, Tensor]] = {}
    places, handles = attention_places(module), []
    for layer in layers:
        attend = places[layer].attend
        if attend is None or layer in kept:
            raise InputError(f"{layer} does not attend by a softmax over keys", "name a layer of exact attention")

        def by_weights(
            module: Attend, args: tuple[Any, ...], options: dict[str, Any], out: Tensor, layer: str = layer
        ) -> Tensor:
            given = given_to_attend(args, options)
            query, memory = given["query"], given["memory"]
            _check_size(layer, query.shape[1] * query.shape[2] * memory.tokens)
            if layer in kept:
                raise InputError(f"{layer} attends step by step, not at once", "cut its edges instead")
            table = weights(query, memory.keys, similarity=module.similarity, mask=given["mask"], bias=given["bias"])
            added = torch.zeros_like(table, requires_grad=True)
            kept[layer] = (table, added)
            return share_heads(table + added, memory.values, torch.matmul).to(out.dtype)

        handles.append(attend.register_forward_hook(by_weights, with_kwargs=True))
    try:
        with as_written():
            yield kept
    finally:
        for handle in handles:
            handle.remove()
