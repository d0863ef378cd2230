"""A weight rounded to 8 bits: whole numbers from −127 to 127 and a scale for each of its rows, `W ≈ s · N`.

A step of decoding takes as long as the weights take to read, and these are a quarter of float32's bytes. What is lost
is at most half a scale in every weight. On a CPU the inputs are rounded too, as they come, each row by its own largest
number (dynamic quantisation per token: Yao et al. 2022, §4.1; LLM.int8, Dettmers et al. 2022, §2.1), so the product is
one of whole numbers: it is exact, and a row's result is the same bit for bit alone and in any batch.

    inputs     0.3  -0.6   0.2        every row over its largest number: -1 … 1
               5.0   1.0  -2.0
    one more   1    -1     0          with it all calls have the same range, hence the same rounding
"""

from functools import lru_cache
from typing import NamedTuple

import torch
from jaxtyping import Float, Int8
from torch import Tensor
from torch.nn import functional as F

from regard.layers import few_rows_triton, private_ops

LARGEST = 127
TINY = 1e-30
"""In place of the largest number of a row of zeros."""


class Int8Weight:
    """A weight that is rounded when it is first used, or at once by `settle`. It cannot be trained."""

    def __init__(self, weight: Float[Tensor, "out width"]) -> None:
        self._plain: Tensor | None = weight
        self._numbers: Tensor | None = None
        self._scales: Tensor | None = None
        self._layout: object = None
        self.shape = weight.shape

    @classmethod
    def of(cls, numbers: Int8[Tensor, "out width"], scales: Float[Tensor, "out"]) -> "Int8Weight":
        """From what was rounded before."""
        made = cls(scales[:, None].expand(numbers.shape))
        made._plain, made._numbers, made._scales = None, numbers, scales
        return made

    @torch.no_grad()
    def settle(self) -> "Int8Weight":
        """Round, and let the plain weight go."""
        plain = self._plain  # another thread may be as far
        if plain is not None:
            weight = plain.detach().float()
            self._scales = weight.abs().amax(dim=1).clamp(min=TINY) / LARGEST
            self._numbers = (weight / self._scales[:, None]).round_().to(torch.int8)
            self._plain = None
        return self

    @property
    def scales(self) -> Float[Tensor, "out"]:
        """Of the rows, in float32."""
        self.settle()
        assert self._scales is not None
        return self._scales

    @property
    def numbers(self) -> Int8[Tensor, "out width"]:
        """The whole numbers."""
        numbers = self.settle()._numbers  # which another thread may let go
        return private_ops.int8_unpack(self._layout) if numbers is None else numbers

    def plain(self) -> Float[Tensor, "out width"]:
        """What stands for the weight, in float32."""
        return self.numbers * self.scales[:, None]

    def to(self, device: torch.device) -> "Int8Weight":
        """The same elsewhere."""
        return self if self._plain is not None else Int8Weight.of(self.numbers.to(device), self.scales.to(device))

    def times(self, inputs: Float[Tensor, "*axes width"], bias: Tensor | None) -> Float[Tensor, "*axes out"]:
        """`W x + b`, in the inputs' type; with gradients to the inputs where they are asked for."""
        if torch.compiler.is_compiling() or (torch.is_grad_enabled() and inputs.requires_grad):
            return F.linear(inputs, self.plain().to(inputs.dtype), bias)
        rows = inputs.reshape(-1, inputs.shape[-1])
        if inputs.device.type == "cpu" and private_ops.int8_packs() and len(rows) and rows.shape[1] > 1:
            found = self.rounded_times(rounded(rows.float())).to(inputs.dtype)
        elif few_rows_triton.suits(rows, self.numbers):
            found = few_rows_triton.few_rows_times(rows, self.numbers, self.scales)
        else:
            found = F.linear(rows, self.numbers.to(rows.dtype)) * self.scales.to(rows.dtype)
        found = found if bias is None else found.add_(bias)
        return found.view(*inputs.shape[:-1], self.shape[0])

    def rounded_times(self, inputs: "RoundedRows") -> Float[Tensor, "rows out"]:
        """`W x` in float32, of inputs that are made ready."""
        layout = self._layout
        if layout is None:
            self._layout = layout = private_ops.int8_pack(self.numbers, self.scales)
            self._numbers = None
        return private_ops.int8_packed_linear(inputs.shares, layout)[:-1].mul_(inputs.largest)


class RoundedRows(NamedTuple):
    """Inputs ready to be rounded: every row over its largest number, and the row that gives all calls one range."""

    shares: Float[Tensor, "more width"]
    largest: Float[Tensor, "rows 1"]


def rounded(rows: Float[Tensor, "rows width"]) -> RoundedRows:
    """Of rows of two numbers at least."""
    largest = torch.linalg.vector_norm(rows, torch.inf, dim=1, keepdim=True).clamp_(min=TINY)
    shares = (rows / largest).nan_to_num_()  # what is no number comes back with the largest
    return RoundedRows(torch.cat([shares, _ends(rows.shape[1])]), largest)


@lru_cache(maxsize=64)
def _ends(width: int) -> Float[Tensor, "1 width"]:
    """The row that gives all calls the same range."""
    with torch.inference_mode(False):
        ends = torch.zeros(1, width)
    ends[0, 0], ends[0, -1] = 1.0, -1.0
    return ends
