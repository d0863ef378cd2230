"""A sliding window with attention sinks (StreamingLLM, Xiao et al. 2023, §3.2): the last tokens, and the very first.

■ · · · · · ·     window 3, 1 sink: without the first tokens, on which every softmax puts what it need not put
■ ■ · · · · ·     anywhere else (§3.1), a window's outputs collapse as soon as they leave it
■ ■ ■ · · · ·
■ ■ ■ ■ · · ·     Decoding keeps the sinks and the window, however long the text: constant memory and time a token.
■ · ■ ■ ■ · ·
■ · · ■ ■ ■ ·     Positions are those of the text; the paper counts them within the cache, for models that were
■ · · · ■ ■ ■     trained on whole, short texts.
"""

from typing import Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor

from regard.attention.cache import AttentionState
from regard.attention.core import weights
from regard.attention.efficient.block_sparse import GlobalKeys, attend_sparse, once
from regard.attention.efficient.bounded import BoundedKeys, begins, places_in_text, require_causal
from regard.attention.mask import Causal, Window
from regard.attention.mask_algebra import Mask
from regard.attention.mechanism import Abilities, LayerContext, Mechanism, MechanismShape, register_mechanism
from regard.attention.projections import Projections
from regard.attention.slot import Slot
from regard.axes import Attended, Hidden, Key, Query, Value, Weights


def sinks_attention(
    query: Query,
    key: Key,
    value: Value,
    *,
    window: int,
    sinks: int,
    places: Int[Tensor, "#batch keys"] | None = None,
    mask: Mask | None = None,
    dropout: float = 0.0,
) -> Attended:
    """Every token reads the `window` last ones, itself included, and the first `sinks` of its text.

    `places` says where each key stands in its own text, counted from 0, below 0 in padding; from the first if absent.
    """
    pattern = sinks_mask(window, sinks, key.shape[2], query.device, places)
    whole = pattern if mask is None else pattern & mask
    return attend_sparse(query, key, value, mask=whole, dropout=dropout)


def sinks_mask(
    window: int, sinks: int, keys: int, device: torch.device, places: Int[Tensor, "#batch keys"] | None = None
) -> Mask:
    """`Causal() & (Window(window) | the first sinks)`."""
    if not sinks:
        return Causal() & Window(window)
    places = torch.arange(keys, device=device)[None] if places is None else places
    return Causal() & (Window(window) | GlobalKeys((places >= 0) & (places < sinks)))


class SinksShape(MechanismShape):
    """The last tokens and the very first ones (Xiao et al. 2023); decoding in constant memory."""

    name: Literal["sinks"] = Field("sinks", description="how a layer attends")
    window: int = Field(512, ge=1, le=2**27, description="last tokens that one sees, itself included")
    sinks: int = Field(4, ge=0, le=2**20, description="first tokens that all see")

    abilities = Abilities(causal=True, bidirectional=False, documents=True, masks=True, score_bias=True, dropout=True)

    samples = ({"window": 2, "sinks": 1}, {"window": 3, "sinks": 2}, {"window": 1, "sinks": 0})

    def make(self, slot: Slot) -> "Sinks":
        return Sinks(slot, self)


class Sinks(Projections, Mechanism):
    """The projections, the window and the sinks; its state holds `window + sinks` tokens."""

    def __init__(self, slot: Slot, shape: SinksShape) -> None:
        super().__init__(slot)
        self.window, self.sinks = shape.window, shape.sinks

    def forward(
        self, inputs: Hidden, state: AttentionState | None, context: LayerContext
    ) -> tuple[Hidden, BoundedKeys]:
        """A whole text tile by tile; a step over what is kept."""
        assert state is None or isinstance(state, BoundedKeys)
        require_causal(context, inputs.shape[1])
        query, newer = self.queries(inputs, context.rotate), self.keys_values(inputs, context.rotate)
        dropout = self.slot.dropout if self.training else 0.0
        past, total = context.past, context.past + inputs.shape[1]
        own = BoundedKeys.of(newer, past)
        parts = context.parts()
        first = begins(parts, total, inputs.device)[:, None] + torch.arange(
            min(self.sinks, total), device=inputs.device
        )
        if state is None:
            mask = self._mask(context, total, inputs.device)
            attended = attend_sparse(query, newer.keys, newer.values, mask=mask, bias=context.bias, dropout=dropout)
        else:
            own = state.append(own)
            new = torch.arange(past, total, device=inputs.device)[None]
            grid = own.grid(self.heads, new, total)
            sink = (own.columns[:, :, None] == first[:, None, :]).any(dim=-1)[:, None, None, :]
            allowed = (Window(self.window).allowed(grid) | sink) & Causal().allowed(grid)
            if context.mask is not None:
                allowed = allowed & context.mask.allowed(grid)
            attended = own.read(query, grid, allowed, context.bias, dropout)
        return self.joined(attended), own.bounded(self.window - 1, first, total)

    def _mask(self, context: LayerContext, total: int, device: torch.device) -> Mask:
        """Who sees whom in a whole text, made once for the layers that share a window."""

        def make() -> Mask:
            places = places_in_text(context.parts(), total, device)
            pattern = sinks_mask(self.window, self.sinks, total, device, places)
            return pattern if context.mask is None else pattern & context.mask

        return once(context, ("sinks", self.window, self.sinks), make, total, device)

    def dense_map(
        self, inputs: Hidden, context: LayerContext, memory: Float[Tensor, "batch keys width"] | None = None
    ) -> Weights:
        query, key = self.queries(inputs, context.rotate), self.keys_values(inputs, context.rotate).keys
        return weights(query, key, mask=self._mask(context, inputs.shape[1], inputs.device), bias=context.bias)


register_mechanism(SinksShape)
