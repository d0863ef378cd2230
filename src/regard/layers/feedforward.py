"""The position-wise feed-forward network (Vaswani et al. 2017, §3.3) and its gated variants (Shazeer 2020).

relu        W₂ max(0, W₁ x)        geglu    W₂ (gelu(W₁ x) ⊙ V x)
gelu        W₂ gelu(W₁ x)          swiglu   W₂ (silu(W₁ x) ⊙ V x)
silu        W₂ silu(W₁ x)
gelu_tanh, geglu_tanh: gelu by its tanh approximation (Hendrycks & Gimpel 2016, §2), as in GPT-2 and T5 1.1

As it is the same at every position, a long text can go through it in pieces (Kitaev et al. 2020, §3, "chunking"): its
inside, the widest thing there is, is then that of one piece, and in training computed again when it is needed.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from regard.axes import Hidden
from regard.layers.dropout import Dropout
from regard.layers.linear import Linear

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
    "geglu": F.gelu,
    "geglu_tanh": partial(F.gelu, approximate="tanh"),
    "swiglu": F.silu,
}
GATED = {"geglu", "geglu_tanh", "swiglu"}


class FeedForward(nn.Module):
    """The same small network at every position."""

    def __init__(
        self, kind: str, width: int, inner: int, dropout: float, *, bias: bool = True, chunks: int = 1
    ) -> None:
        super().__init__()
        self.chunks = chunks
        self.activation = ACTIVATIONS[kind]
        self.up = Linear(width, inner, bias=bias)
        self.gate = Linear(width, inner, bias=bias) if kind in GATED else None
        self.down = Linear(inner, width, bias=bias)
        self.dropout = Dropout(dropout)

    def forward(self, hidden: Hidden) -> Hidden:
        """`down(act(up(x)))`, or where there is a gate `down(act(gate(x)) * up(x))`: all at once, or in pieces."""
        pieces = hidden.chunk(self.chunks, dim=1)
        if len(pieces) == 1:
            return self._all(hidden)
        if torch.is_grad_enabled():
            return torch.cat([checkpoint(self._all, piece, use_reentrant=False) for piece in pieces], dim=1)
        return torch.cat([self._all(piece) for piece in pieces], dim=1)

    def _all(self, hidden: Hidden) -> Hidden:
        if self.gate is None:
            inner = self.activation(self.up(hidden))
        else:
            inner = self.activation(self.gate(hidden)) * self.up(hidden)
        out: Hidden = self.down(self.dropout(inner))
        return out
