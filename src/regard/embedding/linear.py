"""Linear maps, and the same from weights laid out once for decoding on a CPU.

A step of decoding multiplies a few rows by every weight of the model, so it takes as long as the weights take to
read. oneDNN reads them about twice as fast from a layout of its own. Inside `Layouts.used()` a linear map makes that
layout when first asked. A layout is kept for as long as its weights are the same: the same tensor in the same memory,
at the same version, with the same sum of all its bits as whole numbers (a fused optimizer counts no versions). That is
asked once per `Layouts`, which lives as long as a text takes to generate; the sum takes a fifteenth of a new layout.
Nothing is stored on a module and nothing but rounding changes.

The operators are PyTorch's own but not public: where they are missing, `F.linear` does the work.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.weak import WeakIdKeyDictionary


class Packed(NamedTuple):
    """Weights in oneDNN's layout, and of what they are a copy."""

    layout: Tensor
    state: tuple[int, int, int]


_kept: Any = WeakIdKeyDictionary()  # from the weights to Packed; forgotten with them


class Layouts:
    """The layouts of the weights that were asked for; None of those that cannot have one."""

    def __init__(self) -> None:
        self.found: dict[int, tuple[Tensor, Tensor | None]] = {}  # by identity, which is theirs while they are held

    @contextmanager
    def used(self) -> Iterator[None]:
        """Linear maps use them inside the block, in this thread."""
        before = _current.set(self)
        try:
            yield
        finally:
            _current.reset(before)

    def of(self, inputs: Tensor, weight: Tensor) -> Tensor | None:
        """The layout of these weights, made or checked when first asked."""
        known = self.found.get(id(weight))
        if known is None:
            known = self.found[id(weight)] = weight, _layout(weight) if _packable(inputs, weight) else None
        return known[1]


_current: ContextVar[Layouts | None] = ContextVar("layouts", default=None)


class Linear(nn.Linear):
    """`W x + b`."""

    def forward(self, inputs: Float[Tensor, "*axes width"]) -> Float[Tensor, "*axes out"]:
        """Of every vector."""
        return linear(inputs, self.weight, self.bias)


def linear(
    inputs: Float[Tensor, "*axes width"], weight: Float[Tensor, "out width"], bias: Tensor | None = None
) -> Float[Tensor, "*axes out"]:
    """`W x + b`, from packed weights where that is asked for and possible."""
    layouts = None if torch.compiler.is_compiling() else _current.get()
    layout = None if layouts is None else layouts.of(inputs, weight)
    if layout is None:
        return F.linear(inputs, weight, bias)
    out: Tensor = torch.ops.mkldnn._linear_pointwise(inputs, layout, bias, "none", [], "")
    return out


def _packable(inputs: Tensor, weight: Tensor) -> bool:
    """Whether oneDNN computes the same: on a CPU, in one type it knows, with no gradient to follow."""
    return (
        weight.dtype in _TYPES
        and weight.device.type == "cpu"
        and inputs.dtype == weight.dtype
        and not torch.is_grad_enabled()
        and not torch.is_autocast_enabled("cpu")
        and not weight.is_inference()  # it counts no versions
        and weight.is_contiguous()
        and weight.shape[1] * weight.element_size() % 8 == 0  # so that its bits are whole numbers
    )


def _layout(weight: Tensor) -> Tensor:
    """The weights in oneDNN's layout, made anew if they are not what they were."""
    state = weight.data_ptr(), weight._version, int(weight.detach().view(torch.int64).sum())
    found: Packed | None = _kept.get(weight)
    if found is None or found.state != state:
        found = _kept[weight] = Packed(torch.ops.mkldnn._reorder_linear_weight(weight.detach()), state)
    return found.layout


def _known_types() -> tuple[torch.dtype, ...]:
    known = hasattr(torch.ops.mkldnn, "_linear_pointwise") and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
    if not known or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return ()
    half = torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return (torch.float32, torch.bfloat16) if half else (torch.float32,)


_TYPES = _known_types()
