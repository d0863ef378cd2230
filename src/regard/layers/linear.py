"""Linear maps, and the same from weights laid out for a CPU, of a model that was loaded to be asked and not trained.

A step of decoding multiplies a few rows by every weight of the model, so it takes as long as the weights take to
read. oneDNN reads them about twice as fast from a layout of its own. `keep_packed(module)`, said of a model that has
just been loaded, lets every map have that layout from its first product without gradients. The plain weight is let go,
so that a model holds its weights once, and comes back bit for bit when anybody asks the module for it: to save it, to
move it, to train it, to look at it. From then on it stays, so nothing that was asked for can be out of date.

A table that is also looked up row by row stays as it is beside its layout. Where it is a file's pages, as those of a
loaded model are, only the rows in use take memory.

`keep_int8(module)` rounds the weights instead (int8.py), for good: the plain ones are gone.
"""

import ctypes
import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, SupportsIndex

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from regard.errors import InputError
from regard.layers import private_ops
from regard.layers.int8 import Int8Weight
from regard.layers.low_rank import LowRank

PART = 2**22
"""Numbers laid out at a time: a weight and its layout are never both whole in memory."""
DONT_NEED = 4
"""Linux's advice that pages are not needed: those of a file are read again when they are."""


class MapModule(nn.Module):
    """A module with a `weight` that inputs are multiplied by."""

    weight: Any
    packed = False
    """Whether `keep_packed` was said of it."""
    looked_up = False
    """Whether its weight is also read otherwise, row by row."""
    int8: Int8Weight | None = None
    """The weight in 8 bits, where `keep_int8` was said of it; the plain one is kept beside it if it is looked up."""

    def __getattr__(self, name: str) -> Any:
        """Of a weight that was let go, what stands for it."""
        if name == "weight" and self.int8 is not None and self.__dict__["_parameters"].get("weight") is None:
            return self.int8.plain()
        return super().__getattr__(name)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A copy has its weights as they are: packed is only what was told to be."""
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self.packed = isinstance(self.__dict__["_parameters"], PackedParameters)

    def train(self, mode: bool = True) -> Any:
        """Refused where the weight is in 8 bits."""
        if mode and self.int8 is not None:
            raise InputError("weights in int8 cannot be trained", "load the model in float32 or bfloat16")
        return super().train(mode)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """What is in 8 bits moves along; its type stays."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if self.int8 is not None:
            self.int8 = self.int8.to(fn(torch.empty(0)).device)
        return self

    def plain_weight(self) -> Tensor:
        """The weight for reading alone; of one that is kept packed, only where it is looked up too."""
        weight: Tensor = self.__dict__["_parameters"].peek() if self.packed else self.weight
        return weight

    def times(self, inputs: Float[Tensor, "*axes width"], bias: Tensor | None) -> Float[Tensor, "*axes out"]:
        """`W x + b`."""
        if self.int8 is not None:
            return self.int8.times(inputs, bias)
        if self.packed and not torch.compiler.is_compiling() and _reads_alone(inputs):
            layout = self.__dict__["_parameters"].layout_for(inputs)
            if layout:
                return _product(inputs, layout, bias)
        weight: Tensor = self.weight
        return F.linear(inputs, weight, bias)


class Linear(nn.Linear, MapModule):
    """`W x + b`, and what an adapter adds to it where there is one."""

    adapter: LowRank | None

    def __init__(self, width: int, out: int, bias: bool = True) -> None:
        super().__init__(width, out, bias)
        self.register_module("adapter", None)

    def forward(self, inputs: Float[Tensor, "*axes width"]) -> Float[Tensor, "*axes out"]:
        """Of every vector."""
        mapped = self.times(inputs, self.bias)
        return mapped if self.adapter is None else mapped + self.adapter(inputs)

    def whole_weight(self) -> Float[Tensor, "out width"]:
        """W with what the adapter adds to it: vectors are multiplied by this."""
        weight: Tensor = self.weight
        return weight if self.adapter is None else weight + self.adapter.change()


def keep_packed(module: nn.Module) -> None:
    """Let the maps of a model that has just been loaded keep their weights packed until they are asked for."""
    mapped = file_pages()
    for one in module.modules():
        weight = one._parameters.get("weight") if isinstance(one, MapModule) and not one.packed else None
        if isinstance(one, MapModule) and weight is not None:
            of_file = any(weight.data_ptr() in pages for pages in mapped)
            one.__dict__["_parameters"] = PackedParameters(one._parameters, keep=one.looked_up, of_file=of_file)
            one.packed = True


def keep_int8(module: nn.Module) -> None:
    """Let the maps of a model keep their weights in 8 bits from here on; tables that are looked up stay beside them."""
    mapped = file_pages()
    for one in module.modules():
        weight = one._parameters.get("weight") if isinstance(one, MapModule) and one.int8 is None else None
        if isinstance(one, MapModule) and weight is not None:
            one.int8 = Int8Weight(weight)
            if not one.looked_up:
                one.int8.settle()
                one._parameters["weight"] = None
                if any(weight.data_ptr() in pages for pages in mapped):
                    give_back_pages(weight)


def in_int8(module: nn.Module) -> bool:
    """Whether weights of a model are in 8 bits."""
    return any(isinstance(one, MapModule) and one.int8 is not None for one in module.modules())


def parameter_count(module: nn.Module) -> int:
    """How many numbers a model has, asked without taking them out of their layout."""
    tables = (one.__dict__["_parameters"] for one in module.modules())
    lists = (one.numbers() if isinstance(one, PackedParameters) else one.values() for one in tables)
    maps = (one for one in module.modules() if isinstance(one, MapModule) and not one.looked_up)
    rounded = sum(one.int8.shape.numel() for one in maps if one.int8 is not None)
    return rounded + sum(one.numel() for some in lists for one in some if one is not None)


class PackedParameters(dict[str, nn.Parameter | None]):
    """A module's own table of parameters, which puts the weight back before it tells of it."""

    def __init__(self, parameters: dict[str, nn.Parameter | None], *, keep: bool, of_file: bool) -> None:
        super().__init__(parameters)
        self.keep, self.of_file, self.learns = keep, of_file, True
        self.layout: list[Tensor] = []
        """The weight in oneDNN's layout, some rows at a time; nothing where it is not packed."""
        self.asked = False

    def peek(self) -> Tensor:
        """The plain weight, for who will not change or keep it."""
        weight = dict.__getitem__(self, "weight")
        assert weight is not None
        return weight

    def numbers(self) -> list[Tensor | None]:
        """Tensors that hold every number once."""
        return [*dict.values(self), *([] if self.keep else self.layout)]

    def layout_for(self, inputs: Tensor) -> list[Tensor]:
        """The layout to multiply these inputs by, made when first used; nothing where the plain weight must do."""
        if self.asked:
            return []
        if not self.layout:
            weight = self.peek().detach()
            if weight.dtype == inputs.dtype and private_ops.packs(weight):
                self.layout = list(self._laid_out(weight))
                if not self.keep:
                    self.learns = self.peek().requires_grad
                    dict.__setitem__(self, "weight", None)
        return self.layout if self.layout and self.layout[0].dtype == inputs.dtype else []

    def _laid_out(self, weight: Tensor) -> Iterator[Tensor]:
        for rows in torch.split(weight, max(1, PART // weight.shape[1])):
            yield private_ops.pack(rows)
            if self.of_file:
                give_back_pages(rows)

    def restore(self) -> None:
        """Put the plain weight back for good."""
        if self.layout and not self.keep:
            plain = torch.cat([private_ops.unpack(rows) for rows in self.layout])
            dict.__setitem__(self, "weight", nn.Parameter(plain, requires_grad=self.learns))
        self.asked, self.layout = True, []

    def __getitem__(self, name: str) -> nn.Parameter | None:
        if name == "weight":
            self.restore()
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        """As of any dictionary."""
        self.restore()
        return super().get(name, default)

    def __setitem__(self, name: str, value: nn.Parameter | None) -> None:
        self.restore()
        super().__setitem__(name, value)

    def __delitem__(self, name: str) -> None:
        self.restore()
        super().__delitem__(name)

    def __iter__(self) -> Iterator[str]:
        self.restore()
        return super().__iter__()

    def keys(self) -> Any:
        """As of any dictionary, like the rest of them."""
        self.restore()
        return super().keys()

    def values(self) -> Any:
        self.restore()
        return super().values()

    def items(self) -> Any:
        self.restore()
        return super().items()

    def pop(self, name: str, *default: Any) -> Any:
        self.restore()
        return super().pop(name, *default)

    def copy(self) -> dict[str, nn.Parameter | None]:
        return dict(self.items())

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return dict, (dict(self.items()),)


def _product(inputs: Tensor, layout: list[Tensor], bias: Tensor | None) -> Tensor:
    if len(layout) == 1:
        return private_ops.packed_linear(inputs, layout[0], bias)
    sizes = [len(rows) for rows in layout]
    biases = [None] * len(sizes) if bias is None else torch.split(bias, sizes)
    parts = [private_ops.packed_linear(inputs, rows, one) for rows, one in zip(layout, biases, strict=True)]
    return torch.cat(parts, dim=-1)


def _reads_alone(inputs: Tensor) -> bool:
    return inputs.device.type == "cpu" and not torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")


def give_back_pages(tensor: Tensor) -> None:
    """Let go of the memory of a tensor that is a file's unchanged pages: they are read again where they are needed."""
    first = -(-tensor.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
    last = (tensor.data_ptr() + tensor.numel() * tensor.element_size()) // mmap.PAGESIZE * mmap.PAGESIZE
    if first < last:
        ctypes.CDLL(None).madvise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), DONT_NEED)


def file_pages() -> list[range]:
    """Where files are mapped into memory, as far as the system tells."""
    try:
        lines = [line.split(maxsplit=5) for line in Path("/proc/self/maps").read_text().splitlines()]
    except OSError:
        return []
    return [range(*(int(end, 16) for end in line[0].split("-"))) for line in lines if line[4] != "0"]
