"""Longformer as a layer's attention (Beltagy et al. 2020, §3): its options, its projections, its state.

Which tokens are global is said in the recipe: the first ones of every text (the one whose vector a head pools, §3.1
"classification"), those with given ids (such as a separator's), or all before the first of one id (a question before
its passage, "question answering").
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor

from regard.attention.cache import AttentionState, KeyValues
from regard.attention.core import weights
from regard.attention.efficient.block_sparse import GlobalKeys, once
from regard.attention.efficient.bounded import BoundedKeys, begins, places_in_text, require_causal
from regard.attention.efficient.longformer import (
    Chosen,
    GlobalTokens,
    local_masks,
    put_rows,
    read_all,
    read_near,
    rows_of,
    whole_masks,
)
from regard.attention.mask import Causal
from regard.attention.mask_algebra import Mask
from regard.attention.mechanism import Abilities, LayerContext, Mechanism, MechanismShape, register_mechanism
from regard.attention.projections import Projections
from regard.attention.rotary import Rotate
from regard.attention.slot import Slot
from regard.axes import Hidden, Key, Query, RowIds, Weights
from regard.errors import ConfigError, InputError
from regard.layers.linear import Linear

FURTHEST = 2**27
"""Tokens that a window can reach."""
TokenId = Annotated[int, Field(ge=0)]


class LongformerShape(MechanismShape):
    """A window of neighbours, and global tokens (Beltagy et al. 2020)."""

    name: Literal["longformer"] = Field("longformer", description="how a layer attends")
    window: int = Field(
        256, ge=1, le=FURTHEST, description="tokens seen on each side: half of Hugging Face's attention_window"
    )
    dilation: int | tuple[int, ...] = Field(1, description="distance between them, for all heads or for each")
    global_tokens: int = Field(1, ge=0, le=2**20, description="first tokens of a text that see all and are seen by all")
    global_ids: tuple[TokenId, ...] = Field((), description="ids of tokens that are global wherever they stand")
    global_before: int | None = Field(
        None, ge=0, description="id of a token before whose first place all are global, as a question is"
    )
    global_projections: bool = Field(
        True, description="global tokens read by projections of their own, there even where no token is global"
    )

    abilities = Abilities(causal=True, documents=True, masks=True, score_bias=True, dropout=True)
    borrowing: ClassVar[Mapping[str, object]] = {"global_projections": False}
    samples = (
        {"window": 1, "global_tokens": 2},
        {"window": 1, "dilation": 2, "global_tokens": 0},
        {"window": 2, "global_projections": False},
    )

    def check(self, slot: Slot) -> None:
        super().check(slot)
        steps = self.steps(slot.heads)
        if len(steps) != slot.heads or min(steps) < 1:
            raise ConfigError(
                f"dilation = {self.dilation} does not fit {slot.heads} heads",
                "give one number from 1, or one for each head",
            )
        if self.window * max(steps) > FURTHEST:
            raise ConfigError(
                f"window {self.window} at dilation {max(steps)} reaches further than {FURTHEST:,} tokens",
                "use a smaller window or dilation",
            )
        if slot.score_bias and len(set(steps)) > 1:
            raise ConfigError(
                f"dilation = {self.dilation} differs between heads and positions add to all of their scores",
                "use one dilation, or model.positions=rotary",
            )
        if slot.causal and self.reads_ids:
            raise ConfigError(
                "global_ids and global_before may choose any token of a text, and decoding keeps the first ones alone",
                "use global_tokens in a decoder",
            )

    def steps(self, heads: int) -> tuple[int, ...]:
        """The dilation of every head."""
        return self.dilation if isinstance(self.dilation, tuple) else (self.dilation,) * heads

    @property
    def named_ids(self) -> tuple[int, ...]:
        return self.global_ids if self.global_before is None else (*self.global_ids, self.global_before)

    @property
    def reads_ids(self) -> bool:
        """Whether a token is global by its id."""
        return bool(self.named_ids)

    def choose(self, context: LayerContext, total: int, device: torch.device) -> Chosen | None:
        """The global tokens of a batch; None where there are none."""
        parts = context.parts()
        if not self.reads_ids and parts.documents is None:
            first = Chosen.first(begins(parts, total, device), self.global_tokens, total)
            return first if self.global_tokens else None
        places = places_in_text(parts, total, device)
        table = (places >= 0) & (places < self.global_tokens)
        real = parts.real(total, total, device)
        if self.reads_ids:
            if context.ids is None:
                raise InputError("global_ids and global_before ask for ids that are not given", "give `context.ids`")
            table = table | torch.isin(context.ids, torch.tensor(self.global_ids, device=device))
            if self.global_before is not None:
                found = (context.ids == self.global_before).int()
                up_to = found.cumsum(dim=1)
                origin = torch.arange(total, device=device) - places  # of its own text, for every column
                before = (up_to - found).gather(1, origin.clamp(max=total - 1).expand_as(up_to))
                table = table | (up_to == before)
        chosen = Chosen.where(table if real is None else table & real)
        return chosen if chosen.positions.shape[1] else None

    def make(self, slot: Slot) -> "Longformer":
        return Longformer(slot, self)


@dataclass(frozen=True, eq=False)
class LongformerState(AttentionState):
    """What a decoder keeps: of its neighbours and the first tokens, and of the first tokens what they read with."""

    near: BoundedKeys
    everything: BoundedKeys

    def select(self, rows: RowIds) -> "LongformerState":
        return LongformerState(self.near.select(rows), self.everything.select(rows))


class Longformer(Projections, Mechanism):
    """Projections for neighbours, others for global tokens, and one output."""

    def __init__(self, slot: Slot, shape: LongformerShape) -> None:
        super().__init__(slot)
        self.shape = shape
        self.steps = shape.steps(slot.heads)
        self.local = local_masks(shape.window, self.steps)
        self.reach = shape.window * max(self.steps)
        if shape.global_projections:
            inner, shared = slot.heads * slot.head_width, slot.key_value_heads * slot.head_width
            self.global_query = Linear(slot.width, inner, bias=slot.bias)
            self.global_key = Linear(slot.width, shared, bias=slot.bias)
            self.global_value = Linear(slot.width, shared, bias=slot.bias)

    def forward(
        self, inputs: Hidden, state: AttentionState | None, context: LayerContext
    ) -> tuple[Hidden, LongformerState | None]:
        """A whole text tile by tile; a step over what is kept."""
        assert state is None or isinstance(state, LongformerState)
        if self.slot.causal:
            require_causal(context, inputs.shape[1])
        query, own = self.queries(inputs, context.rotate), self.keys_values(inputs, context.rotate)
        if state is not None:
            return self._step(inputs, query, own, state, context)
        total, dropout = inputs.shape[1], self.slot.dropout if self.training else 0.0
        chosen, masks = self._chosen(context, total, inputs.device)
        out = read_near(query, own.keys, own.values, masks, context.bias, dropout)
        all_keys = None
        if chosen is not None:
            all_keys = self._global_keys(inputs, own, context.rotate)
            asking = self._asking(inputs, query, chosen.positions, context.rotate)
            given = GlobalTokens(chosen.positions, asking, all_keys.keys, all_keys.values)
            out = put_rows(out, chosen.positions, read_all(given, context.mask, context.bias, dropout))
        if not self.slot.causal:
            return self.joined(out), None
        first = self._first(context, total, inputs.device)
        near, all_of_them = BoundedKeys.of(own, 0), BoundedKeys.of(all_keys or own, 0)
        kept = LongformerState(near.bounded(self.reach, first, total), all_of_them.bounded(0, first, total))
        return self.joined(out), kept

    def _step(
        self, inputs: Hidden, query: Query, own: KeyValues, state: LongformerState, context: LayerContext
    ) -> tuple[Hidden, LongformerState]:
        """New tokens of a decoder."""
        device, dropout = inputs.device, self.slot.dropout if self.training else 0.0
        past, total = context.past, context.past + inputs.shape[1]
        first = self._first(context, total, device)
        near, everything = state.near.append(BoundedKeys.of(own, past)), state.everything
        grid = near.grid(self.heads, torch.arange(past, total, device=device)[None], total)
        known = near.columns[:, :, None] == first[:, None, :]
        allowed = torch.cat([local.allowed(grid) for local in self._patterns()], dim=1)
        allowed = (allowed | known.any(dim=-1)[:, None, None, :]) & Causal().allowed(grid)
        if context.mask is not None:
            allowed = allowed & context.mask.allowed(grid)
        out = near.read(query, grid, allowed, context.bias, dropout)
        if past < self.shape.global_tokens or (self.shape.global_tokens and context.parts().padding is not None):
            everything = everything.append(BoundedKeys.of(self._global_keys(inputs, own, context.rotate), past))
            places = torch.where((first >= past) & (first < total), first - past, -1)
            rows = everything.grid(self.heads, first.clamp(max=total - 1), total)
            may = (
                Causal().allowed(rows) if context.mask is None else Causal().allowed(rows) & context.mask.allowed(rows)
            )
            asking = self._asking(inputs, query, places, context.rotate)
            out = put_rows(out, places, everything.read(asking, rows, may, context.bias, dropout))
            everything = everything.bounded(0, first, total)
        return self.joined(out), LongformerState(near.bounded(self.reach, first, total), everything)

    def _patterns(self) -> tuple[Mask, ...]:
        """One for all heads, or one for each."""
        return self.local if len(set(self.local)) > 1 else self.local[:1]

    def _first(self, context: LayerContext, total: int, device: torch.device) -> Int[Tensor, "#batch first"]:
        """The columns of a decoder's global tokens."""
        begin = begins(context.parts(), total, device)
        return begin[:, None] + torch.arange(min(self.shape.global_tokens, total), device=device)

    def _chosen(
        self, context: LayerContext, total: int, device: torch.device
    ) -> tuple[Chosen | None, tuple[Mask, ...]]:
        """The global tokens and every head's mask, made once for the layers that choose alike."""
        pattern = self.shape, self.heads

        def make() -> tuple[Chosen | None, tuple[Mask, ...]]:
            chosen = self.shape.choose(context, total, device)
            seen = None if chosen is None else GlobalKeys(chosen.table)
            return chosen, whole_masks(self.local, seen, context.mask)

        if self.shape.reads_ids:
            return context.once(pattern, make)
        return once(context, pattern, make, total, device)

    def _global_keys(self, inputs: Hidden, own: KeyValues, rotate: Rotate | None) -> KeyValues:
        """The keys and values that global tokens read."""
        if not self.shape.global_projections:
            return own
        key, value = (self._split(one(inputs), self.key_value_heads) for one in (self.global_key, self.global_value))
        return KeyValues(rotate(key) if rotate else key, value)

    def _asking(
        self, inputs: Hidden, query: Query, positions: Int[Tensor, "#batch globals"], rotate: Rotate | None
    ) -> Float[Tensor, "batch heads globals head_width"]:
        """The queries of global tokens at these places of the inputs."""
        at = positions.clamp(min=0).expand(len(inputs), -1)
        if self.shape.global_projections and rotate is None:  # of these tokens alone
            few = inputs.gather(1, at[:, :, None].expand(-1, -1, inputs.shape[2]))
            return self._split(self.global_query(few), self.heads)
        if self.shape.global_projections and rotate is not None:
            query = rotate(self._split(self.global_query(inputs), self.heads))
        return query.gather(2, at[:, None, :, None].expand(-1, self.heads, -1, query.shape[3]))

    def dense_map(
        self, inputs: Hidden, context: LayerContext, memory: Float[Tensor, "batch keys width"] | None = None
    ) -> Weights:
        query, own = self.queries(inputs, context.rotate), self.keys_values(inputs, context.rotate)
        chosen, masks = self._chosen(context, inputs.shape[1], inputs.device)
        maps = self._near_map(query, own.keys, masks, context)
        if chosen is None:
            return maps
        all_keys = self._global_keys(inputs, own, context.rotate)
        asking = self._asking(inputs, query, chosen.positions, context.rotate)
        mask, bias = rows_of(
            GlobalTokens(chosen.positions, asking, all_keys.keys, all_keys.values), context.mask, context.bias
        )
        return put_rows(maps, chosen.positions, weights(asking, all_keys.keys, mask=mask, bias=bias))

    def _near_map(self, query: Query, key: Key, masks: tuple[Mask, ...], context: LayerContext) -> Weights:
        """The weights of the local patterns, head by head where they differ."""
        if len(set(masks)) == 1:
            return weights(query, key, mask=masks[0], bias=context.bias)
        group = self.heads // self.key_value_heads
        heads = [
            weights(query[:, head : head + 1], key[:, head // group : head // group + 1], mask=mask)
            for head, mask in enumerate(masks)
        ]
        return torch.cat(heads, dim=1)


register_mechanism(LongformerShape)
