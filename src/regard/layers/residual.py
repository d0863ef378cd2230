"""The residual connection around a sublayer f, and where the normalisation stands.

    post       norm(x + f(x))             Vaswani et al. 2017, §3.1
    pre        x + f(norm(x))             Xiong et al. 2020; a stack of these ends with one norm more
    sandwich   x + norm'(f(norm(x)))      Ding et al. 2021, §2.4; likewise, and each norm has weights of its own

Without the connection, to see what it is there for, `x + f` is `f` alone.

A layer writes all of them as `stream = residual.add(stream, f(residual.enter(stream)))`; in a reversible stack
(reversible.py) what a sublayer adds is `residual.change(f(residual.enter(stream)))`.
"""

from collections.abc import Sequence
from typing import Literal

from torch import nn

from regard.axes import Hidden
from regard.layers.dropout import Dropout

Placement = Literal["post", "pre", "sandwich"]


class Residual(nn.Module):
    """Adds what a sublayer makes of the stream to the stream, with dropout and norms of its own.

    Unless it `adds`, what the sublayer makes takes the stream's place.
    """

    def __init__(self, norms: Sequence[nn.Module], placement: Placement, dropout: float, *, adds: bool = True) -> None:
        super().__init__()
        self.norm = norms[0]
        self.made_norm = norms[1] if placement == "sandwich" else None
        self.dropout = Dropout(dropout)
        self.placement = placement
        self.adds = adds

    def enter(self, stream: Hidden) -> Hidden:
        """What the sublayer reads."""
        out: Hidden = stream if self.placement == "post" else self.norm(stream)
        return out

    def change(self, made: Hidden) -> Hidden:
        """What the sublayer made, as it is added."""
        out: Hidden = self.dropout(made if self.made_norm is None else self.made_norm(made))
        return out

    def add(self, stream: Hidden, made: Hidden) -> Hidden:
        """The stream with what the sublayer made of it."""
        total = self.change(made)
        total = stream + total if self.adds else total
        out: Hidden = self.norm(total) if self.placement == "post" else total
        return out
