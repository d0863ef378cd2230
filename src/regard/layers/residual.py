"""The residual connection around a sublayer f, and where the normalisation stands.

    post   norm(x + f(x))     Vaswani et al. 2017, §3.1
    pre    x + f(norm(x))     Xiong et al. 2020; a stack of these ends with one norm more

Without the connection, to see what it is there for, `x + f` is `f` alone.

A layer writes all of them as `stream = residual.add(stream, f(residual.enter(stream)))`; in a reversible stack
(reversible.py) what a sublayer adds is `residual.change(f(residual.enter(stream)))`.
"""

from torch import nn

from regard.axes import Hidden
from regard.layers.dropout import Dropout


class Residual(nn.Module):
    """Adds what a sublayer makes of the stream to the stream, with dropout and a norm of its own.

    Unless it `adds`, what the sublayer makes takes the stream's place.
    """

    def __init__(self, norm: nn.Module, placement: str, dropout: float, *, adds: bool = True) -> None:
        super().__init__()
        self.norm = norm
        self.dropout = Dropout(dropout)
        self.placement = placement
        self.adds = adds

    def enter(self, stream: Hidden) -> Hidden:
        """What the sublayer reads."""
        out: Hidden = self.norm(stream) if self.placement == "pre" else stream
        return out

    def change(self, made: Hidden) -> Hidden:
        """What the sublayer made, as it is added."""
        out: Hidden = self.dropout(made)
        return out

    def add(self, stream: Hidden, made: Hidden) -> Hidden:
        """The stream with what the sublayer made of it."""
        total = self.change(made)
        total = stream + total if self.adds else total
        out: Hidden = self.norm(total) if self.placement == "post" else total
        return out
