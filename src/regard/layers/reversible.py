"""Reversible residual layers (Gomez et al. 2017, §3; Kitaev et al. 2020, §3): depth that keeps no activations.

    two streams, at first both the embeddings; every sublayer f reads one and adds to the other, in turn

        a, b   →   b, a + f(b)          and back again:   a = (a + f(b)) − f(b)

What leaves the stack is the mean of the two. The backward pass begins with the streams behind the last sublayer. When
it gets to a sublayer, f(b) is computed once more, with the random numbers and the precision of the first time: that
gives what autograd would have kept of it, and the streams before it. So a stack keeps as much as one sublayer, however
deep it is, and computes its forward pass twice. Nothing has to be known of a sublayer: whatever autograd keeps while it
runs is replaced by a number (`saved_tensors_hooks`), and found again by it.

The streams are float32 at least: what is added must come off again. Without gradients nothing is kept and nothing is
computed twice.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from regard.axes import Hidden
from regard.errors import InputError

Change = Callable[[Hidden], Hidden]
"""What a sublayer adds, made of the stream it reads."""

_again: ContextVar[bool] = ContextVar("again", default=False)


def computed_again() -> bool:
    """Whether this is a backward pass computing once more what was computed before: it changes nothing, nor is seen."""
    return _again.get()


class Reversible(nn.Module):
    """A stack of changes, taken back one after another in the backward pass."""

    def forward(self, changes: Sequence[Change], stream: Hidden) -> Hidden:
        """The mean of both streams behind the last."""
        dtype = stream.dtype
        first = second = stream if dtype == torch.float64 else stream.float()
        if not torch.is_grad_enabled():
            for change in changes:
                first, second = second, first + change(second.to(dtype))
            return ((first + second) / 2).to(dtype)
        if torch.compiler.is_compiling():
            raise InputError("a reversible stack is not compiled", "use training.compile=false")
        way = _Way([_Sublayer(change, index) for index, change in enumerate(changes)])
        for sublayer in way.sublayers:
            first, second = second, first + sublayer.run(way, second, dtype)
        way.end = way.streams = (first.detach(), second.detach())
        way.place = len(way.sublayers)
        return ((first + second) / 2).to(dtype)


@dataclass(eq=False)
class _Sublayer:
    """One change, how it was computed, and while its gradients are, what autograd asks for of it."""

    change: Change
    index: int
    kept: int = 0
    """How many tensors autograd wanted to keep."""
    saved: dict[int, Tensor] | None = None

    def run(self, way: "_Way", stream: Hidden, dtype: torch.dtype) -> Hidden:
        """The first time: a number is kept for each tensor."""
        self.dtype, self.learns = dtype, stream.requires_grad
        self.circumstances = _Circumstances(stream.device)

        def pack(tensor: Tensor) -> int:
            self.kept += 1
            return self.kept - 1

        def unpack(number: int) -> Tensor:
            if self.saved is None or number not in self.saved:
                way.back_to(self.index)
            assert self.saved is not None
            return self.saved.pop(number)

        with saved_tensors_hooks(pack, unpack):
            return self.change(stream.to(dtype))

    def undo(self, read: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
        """The streams before it; what autograd wanted to keep is there now."""
        found: dict[int, Tensor] = {}

        def pack(tensor: Tensor) -> int:
            found[len(found)] = tensor.detach()
            return len(found) - 1

        with self.circumstances.again(), saved_tensors_hooks(pack, found.__getitem__):
            made = self.change(read.requires_grad_(self.learns).to(self.dtype)).detach()
        if len(found) != self.kept:
            raise InputError(
                f"sublayer {self.index} of a reversible stack was another computation the second time "
                f"({len(found)} tensors kept, and {self.kept} the first time)",
                "let it depend on nothing but its input, its parameters and random numbers",
            )
        self.saved = found
        return (total - made).detach(), read.detach()


@dataclass(eq=False)
class _Way:
    """A stack once run: the streams behind its last sublayer, and those at the place the backward pass has got to."""

    sublayers: list[_Sublayer]
    end: tuple[Tensor, Tensor] | None = None
    streams: tuple[Tensor, Tensor] | None = None
    place: int = 0

    def back_to(self, index: int) -> None:
        """Take sublayers back until this one is; from the end on, where it was before."""
        if self.place <= index:
            self.place, self.streams = len(self.sublayers), self.end
        while self.place > index:
            assert self.streams is not None
            self.place -= 1
            before, read = self.sublayers[self.place].undo(self.streams[0].detach(), self.streams[1])
            self.streams = before, read
            for behind in self.sublayers[self.place + 2 : self.place + 3]:
                behind.saved = None


class _Circumstances:
    """What the result of a computation depends on, besides its inputs."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.random = torch.get_rng_state()
        self.device_random = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
        self.autocast = {
            kind: (torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in {"cpu", device.type}
        }
        self.cached = torch.is_autocast_cache_enabled()

    @contextmanager
    def again(self) -> Iterator[None]:
        """The same once more, with gradients; what comes after finds everything as it was."""
        devices = [] if self.device_random is None else [self.device]
        token = _again.set(True)
        try:
            with ExitStack() as stack:
                stack.enter_context(torch.random.fork_rng(devices))
                stack.enter_context(torch.enable_grad())
                for kind, (enabled, dtype) in self.autocast.items():
                    stack.enter_context(torch.autocast(kind, dtype, enabled, self.cached))
                torch.set_rng_state(self.random)
                if self.device_random is not None:
                    torch.cuda.set_rng_state(self.device_random, self.device)
                yield
        finally:
            _again.reset(token)
