"""Which tokens may be chosen at all, whatever the strategy: what the makers of a model forbid and demand.

The rules see a row's scores before any strategy does: its logits where one token is chosen or drawn, the
log-probabilities in a beam, where a demanded token costs nothing. That is transformers' order too.
"""

from dataclasses import dataclass

import torch

from regard.axes import RowLogits
from regard.decoding.filters import without


@dataclass(frozen=True)
class Rules:
    """Left alone, anything may be chosen."""

    banned: tuple[int, ...] = ()
    """Never chosen, unless demanded."""
    first: int | None = None
    """What every answer begins with."""
    last: int | None = None
    """What stands at the limit of length, where nothing has ended the answer before."""
    renormalised: bool = False
    """The probabilities of a beam are shares of what may be chosen, not of everything."""

    def allowed(self, scores: RowLogits, place: int, limit: int) -> RowLogits:
        """The scores of what may be token `place` of at most `limit`, `-inf` elsewhere."""
        demanded = self.last if self.last is not None and place == limit - 1 else self.first if place == 0 else None
        if demanded is None:
            return without(scores, self.banned)
        only = torch.full_like(scores, -torch.inf)
        only[:, demanded] = 0
        return only

    def counted(self, likely: RowLogits, place: int, limit: int) -> RowLogits:
        """The same of log-probabilities, as a beam adds them up."""
        left = self.allowed(likely, place, limit)
        return left.log_softmax(dim=-1) if self.renormalised else left


FREE = Rules()
