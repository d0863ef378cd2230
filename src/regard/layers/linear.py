"""Linear maps, and the same from weights laid out once for decoding on a CPU.

A step of decoding multiplies a few rows by every weight of the model, so it takes as long as the weights take to
read. oneDNN reads them about twice as fast from a layout of its own. Inside `Layouts.used()` a linear map makes that
layout when first asked. A layout is kept for as long as its weights are the same: the same tensor in the same memory,
at the same version, with the same weighted sum of all its bits as whole numbers (a fused optimizer counts no versions).
That is asked once per `Layouts`, which lives as long as a text takes to generate. Nothing is stored on a module and
nothing but rounding changes; a model that has decoded holds its weights twice.

The operators are PyTorch's own but not public: where they are missing, `F.linear` does the work.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.weak import WeakIdKeyDictionary


class Packed(NamedTuple):
    """Weights and biases side by side, the weights in oneDNN's layout, and of what they are a copy."""

    layout: Tensor
    bias: Tensor | None
    state: tuple[tuple[int, int, int], ...]


class Layouts:
    """The layouts of the maps that were asked for; None of those that cannot have one."""

    def __init__(self) -> None:
        self.found: dict[tuple[int, int], tuple[Sequence[Tensor], Packed | None]] = {}  # the first's identity, how many

    @contextmanager
    def used(self) -> Iterator[None]:
        """Linear maps use them inside the block, in this thread."""
        before = _current.set(self)
        try:
            yield
        finally:
            _current.reset(before)

    def of(self, inputs: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor | None]) -> Packed | None:
        """The layout of these weights together, made or checked when first asked."""
        if inputs.dtype != weights[0].dtype or not all(isinstance(one, nn.Parameter) for one in weights):
            return None  # what is computed anew at every call would be kept for nothing
        key = id(weights[0]), len(weights)
        known = self.found.get(key)
        if known is None:
            packable = all(map(_packable, weights))
            known = self.found[key] = weights, _packed(weights, biases) if packable else None
        return known[1]


_current: ContextVar[Layouts | None] = ContextVar("layouts", default=None)
_kept: Any = WeakIdKeyDictionary()  # from the first of the weights to Packed by how many there are; forgotten with it


class Linear(nn.Linear):
    """`W x + b`."""

    def forward(self, inputs: Float[Tensor, "*axes width"]) -> Float[Tensor, "*axes out"]:
        """Of every vector."""
        return linear(inputs, self.weight, self.bias)


def linear(
    inputs: Float[Tensor, "*axes width"], weight: Float[Tensor, "out width"], bias: Tensor | None = None
) -> Float[Tensor, "*axes out"]:
    """`W x + b`, from packed weights where that is asked for and possible."""
    found = _together(inputs, (weight,), (bias,))
    return F.linear(inputs, weight, bias) if found is None else found


def linears(inputs: Float[Tensor, "*axes width"], maps: Sequence[nn.Module]) -> tuple[Tensor, ...]:
    """What several maps make of the same inputs; packed weights are read as one."""
    plain = [one for one in maps if isinstance(one, Linear) and _says_all(one)]
    found = None
    if len(plain) == len(maps) and len({one.bias is None for one in plain}) == 1:
        found = _together(inputs, [one.weight for one in plain], [one.bias for one in plain])
    if found is None:
        return tuple(one(inputs) for one in maps)
    return torch.split(found, [one.out_features for one in plain], dim=-1)


def _says_all(one: Linear) -> bool:
    """Whether its weights say all it does: nobody has derived from it, hooked into it or parametrised it."""
    return type(one) is Linear and not one._forward_hooks and not one._forward_pre_hooks


def _together(inputs: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor | None]) -> Tensor | None:
    """The outputs of these maps side by side from packed weights, or None where they are not used."""
    layouts = None if torch.compiler.is_compiling() else _current.get()
    if layouts is None or torch.is_grad_enabled() or torch.is_autocast_enabled("cpu"):
        return None
    packed = layouts.of(inputs, weights, biases)
    if packed is None:
        return None
    out: Tensor = torch.ops.mkldnn._linear_pointwise(inputs, packed.layout, packed.bias, "none", [], "")
    return out


def _packable(weight: Tensor) -> bool:
    """Whether oneDNN computes the same: on a CPU, in a type it knows, and with bits that can be read."""
    size = weight.element_size()
    return (
        weight.dtype in _TYPES
        and weight.device.type == "cpu"
        and not weight.is_inference()  # it counts no versions
        and weight.is_contiguous()
        and weight.shape[1] * size % 8 == weight.storage_offset() * size % 8 == 0  # its bits are whole numbers
    )


def _packed(weights: Sequence[Tensor], biases: Sequence[Tensor | None]) -> Packed:
    """The maps in oneDNN's layout, made anew if they are not what they were."""
    state = tuple((one.data_ptr(), one._version, _bits(one.detach())) for one in weights)
    known: dict[int, Packed] = _kept.setdefault(weights[0], {})
    found = known.get(len(weights))
    if found is None or found.state != state:
        whole = torch.cat([one.detach() for one in weights]) if len(weights) > 1 else weights[0].detach()
        found = known[len(weights)] = Packed(torch.ops.mkldnn._reorder_linear_weight(whole), None, state)
    given = [one for one in biases if one is not None]  # few numbers: put side by side anew
    return found._replace(bias=torch.cat(given) if len(given) > 1 else given[0] if given else None)


def _bits(weight: Tensor) -> int:
    """A number that changes with any one of the bits, and where rows or columns change places."""
    whole = weight.view(torch.int64)
    sums = whole.sum(dim=1), whole.sum(dim=0)
    return sum(int((one * torch.arange(1, 2 * len(one), 2)).sum()) for one in sums)


def _known_types() -> tuple[torch.dtype, ...]:
    known = hasattr(torch.ops.mkldnn, "_linear_pointwise") and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
    if not known or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return ()
    half = torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return (torch.float32, torch.bfloat16) if half else (torch.float32,)


_TYPES = _known_types()
