"""BigBird (Zaheer et al. 2020, §2 and appendix D): blocks see their neighbours, some at random, and a few see all.

■ ■ ■ ■ ■ ■ ■     one square is a block of tokens: the first is global, the window is 3 blocks wide, and every block
■ ■ ■ · · ■ ·     draws one more among those it does not see yet
■ ■ ■ ■ · · ·
■ · ■ ■ ■ · ■     Which blocks a text draws depends on the seed, the block and how many blocks the text has: not on
■ · · ■ ■ ■ ·     padding, neighbours, device or call. All heads of a layer share them; the layers' seeds differ.
■ ■ · · ■ ■ ■
■ · · ■ · ■ ■     It is an encoder's: a decoder uses `sinks`, `longformer` or exact attention.
"""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field, model_validator
from torch import Tensor

from regard.attention.bias import Bias
from regard.attention.cache import AttentionState
from regard.attention.core import weights
from regard.attention.efficient.block_sparse import AttendSparse, attend_sparse, once
from regard.attention.mask import Padding
from regard.attention.mask_algebra import Bounds, Grid, Mask, Shape, Table, Tiles
from regard.attention.mechanism import Abilities, LayerContext, Mechanism, MechanismShape, register_mechanism
from regard.attention.multihead import HeadAttention
from regard.attention.slot import Slot
from regard.axes import Attended, Hidden, Key, Query, Value, Weights
from regard.errors import ConfigError, InputError

NONE = -(2**31)
"""In a table of draws: nothing left to draw."""
LAYERS = 10_000
"""Seeds stand so far apart that the layers of one are not those of the next."""


@dataclass(frozen=True)
class Pattern:
    """How BigBird's blocks see each other."""

    block: int = 64
    """Tokens of a block."""
    window: int = 3
    """Blocks that one sees around it, itself included: an odd number."""
    first: int = 1
    """First blocks of a text that see all and are seen by all."""
    random: int = 3
    """Blocks drawn for each."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.window % 2 == 0:
            raise InputError(f"a window of {self.window} blocks has no middle", "use an odd number, such as 3")
        if self.block < 1 or self.window < 1 or min(self.first, self.random) < 0:
            raise InputError(f"{self} has a negative number of blocks, or an empty one", "count blocks from 0")

    @property
    def aside(self) -> int:
        """Blocks of the window on one side."""
        return self.window // 2


def bigbird_attention(
    query: Query,
    key: Key,
    value: Value,
    *,
    pattern: Pattern,
    padding: Padding | None = None,
    bias: Bias | None = None,
    dropout: float = 0.0,
) -> Attended:
    """Every token reads the blocks that its block sees; blocks are counted from the first token of each text."""
    mask: Mask = Blocks.of(pattern, key.shape[2], query.device, padding)
    if padding is not None:
        mask = mask & padding
    return attend_sparse(query, key, value, mask=mask, bias=bias, dropout=dropout)


@dataclass(frozen=True, eq=False)
class Blocks(Mask):
    """The mask: near, global, or drawn. `draws[b, i]` are the blocks drawn for block i of sequence b."""

    pattern: Pattern
    draws: Int[Tensor, "#batch blocks random"]
    begin: Int[Tensor, "#batch"]
    """The column of each text's first token."""

    @classmethod
    def of(cls, pattern: Pattern, tokens: int, device: torch.device, padding: Padding | None = None) -> "Blocks":
        """For texts that fill so many columns, or for those that padding leaves."""
        most = -(-tokens // pattern.block)
        begin = torch.zeros(1, dtype=torch.long, device=device)
        blocks = torch.full((1,), most, device=device)
        if padding is not None:
            lengths = padding.lengths.to(device)
            blocks = -(-lengths // pattern.block)
            begin = tokens - lengths if padding.side == "left" else begin.expand(len(lengths))
        return cls(pattern, draw_blocks(pattern, most, blocks), begin)

    def allowed(self, at: Grid) -> Table:
        begin = self.begin.to(at.key.device)
        batch = at.batch if len(begin) > 1 else at.batch * 0
        size = self.pattern.block
        mine = torch.div(at.query - begin[batch], size, rounding_mode="floor")
        other = torch.div(at.key - begin[batch], size, rounding_mode="floor")
        found = (
            ((mine - other).abs() <= self.pattern.aside) | (mine < self.pattern.first) | (other < self.pattern.first)
        )
        draws = self.draws.to(at.key.device)
        row = mine.clamp(0, draws.shape[1] - 1)
        for draw in range(draws.shape[2]):
            found = found | (draws[batch, row, draw] == other)
        return found

    def bounds(self, tiles: Tiles) -> Bounds:
        """Near and global by the corners of a tile; drawn blocks where all their tokens are."""
        size, device = self.pattern.block, tiles.first_key.device
        begin = self.begin.to(device).view(-1, 1, 1, 1)

        def block(column: Tensor) -> Tensor:
            return torch.div(column - begin, size, rounding_mode="floor")

        first_row, last_row = block(tiles.first_query), block(tiles.last_query)
        first_column, last_column = block(tiles.first_key), block(tiles.last_key)
        after, before = first_column - last_row, first_row - last_column
        furthest = torch.maximum(last_row - first_column, last_column - first_row)
        aside, first = self.pattern.aside, self.pattern.first
        some = (torch.maximum(after, before) <= aside) | (first_row < first) | (first_column < first)
        every = (furthest <= aside) | (last_row < first) | (last_column < first)
        return Bounds(some | self._drawn(tiles), every)

    def _drawn(self, tiles: Tiles) -> Tensor:
        """The tiles in which a drawn block has tokens, marked one by one: as many marks as draws, not as tiles."""
        device, width, size = tiles.first_key.device, tiles.size, self.pattern.block
        draws, begin = self.draws.to(device), self.begin.to(device).view(-1, 1, 1)
        rows, columns = tiles.first_query.shape[2], tiles.first_key.shape[3]
        table = torch.zeros(len(draws), rows + 1, columns, dtype=torch.bool, device=device)
        mine = torch.arange(draws.shape[1], device=device).view(1, -1, 1) * size + begin
        steps = [*range(0, size - 1, width), size - 1]  # a block's tokens are in these tiles and no others
        shift = tiles.shape[3] - tiles.shape[2]
        last = tiles.shape[3] - 1
        sequence = torch.arange(len(draws), device=device).view(-1, 1, 1).expand_as(draws)
        for down in steps:
            row = torch.div((mine + down).clamp(max=last) - shift, width, rounding_mode="floor").expand_as(draws)
            for along in steps:
                column = (draws * size + begin + along).clamp(0, last) // width
                real = (draws != NONE) & (row >= 0)
                table[sequence, torch.where(real, row, rows), column] = True
        return table[:, None, :rows]

    def select(self, rows: Tensor) -> "Blocks":
        if len(self.begin) == 1:
            return self
        return replace(self, draws=self.draws[rows], begin=self.begin[rows])

    def fits(self, shape: Shape) -> None:
        if len(self.begin) not in (1, shape[0]):
            raise InputError(
                f"blocks drawn for {len(self.begin)} sequences do not fit {shape[0]}", "draw them for the batch"
            )


def draw_blocks(pattern: Pattern, most: int, blocks: Int[Tensor, "batch"]) -> Int[Tensor, "batch blocks random"]:
    """For every block of texts with so many blocks each, other blocks than those it sees anyway, all different.

    Floyd's sample without replacement (Bentley and Floyd 1987), with a hash for the dice: of `free` blocks left, the
    k-th draw is one of the first `free − random + k + 1`, or the last of these where that was drawn before.
    """
    device = blocks.device
    mine = torch.arange(most, device=device)[None]
    count = blocks[:, None]
    low = (mine - pattern.aside).clamp(min=pattern.first).minimum(count.clamp(min=pattern.first))
    high = torch.maximum((mine + pattern.aside + 1).minimum(count), low)
    free = (count - pattern.first - (high - low)).clamp(min=0)
    drawn: list[Tensor] = []
    random = min(pattern.random, most)  # no block has more to draw from
    for turn in range(random):
        limit = free - random + turn
        roll = _hash(_hash(mine * random + turn) ^ (pattern.seed & 0xFFFFFFFF))
        found = roll % (limit.clamp(min=0) + 1)
        taken = torch.zeros_like(found, dtype=torch.bool)
        for before in drawn:
            taken = taken | (before == found)
        found = torch.where(taken, limit, found)
        drawn.append(torch.where(free > random, found, torch.where(turn < free, turn, NONE)))
    table = torch.stack(drawn, dim=-1) if drawn else mine.new_zeros(len(blocks), most, 0)
    counted = table + pattern.first
    counted = torch.where(counted >= low[..., None], counted + (high - low)[..., None], counted)
    return torch.where(table == NONE, NONE, counted)


def _hash(values: Int[Tensor, "*shape"]) -> Int[Tensor, "*shape"]:
    """Whole numbers to whole numbers below 2³² without pattern, the same on every device."""
    for _ in range(2):
        values = ((values >> 16) ^ values) * 0x45D9F3B & 0xFFFFFFFF
    return (values >> 16) ^ values


class BigBirdShape(MechanismShape):
    """Neighbours, random and global blocks (Zaheer et al. 2020): an encoder's."""

    name: Literal["bigbird"] = Field("bigbird", description="how a layer attends")
    block: int = Field(64, ge=1, le=2**27, description="tokens of a block")
    window: int = Field(3, ge=1, le=2**27, description="blocks that one sees around it, itself included: an odd number")
    first: int = Field(1, ge=0, le=2**27, description="first blocks of a text that see all and are seen by all")
    random: int = Field(3, ge=0, le=2**20, description="blocks drawn for each")
    seed: int = Field(0, ge=0, le=2**31, description="of the draws; every layer draws its own")

    abilities = Abilities(masks=True, score_bias=True, dropout=True)
    samples = ({"block": 2, "random": 1}, {"block": 1, "window": 1, "random": 2}, {"block": 3, "first": 0})

    @model_validator(mode="after")
    def _window_has_a_middle(self) -> "BigBirdShape":
        if self.window % 2 == 0:
            raise ConfigError(f"a window of {self.window} blocks has no middle", "use an odd number, such as 3")
        return self

    def make(self, slot: Slot) -> "BigBird":
        return BigBird(slot, self)


class BigBird(HeadAttention, Mechanism):
    """The projections and the pattern, with draws of the layer's own."""

    def __init__(self, slot: Slot, shape: BigBirdShape) -> None:
        super().__init__(slot)
        self.attend = AttendSparse(self.attend.similarity, slot.dropout, slot.site)
        layer = 0 if slot.site is None else slot.site.index
        self.pattern = Pattern(shape.block, shape.window, shape.first, shape.random, shape.seed * LAYERS + layer)

    def forward(self, inputs: Hidden, state: AttentionState | None, context: LayerContext) -> tuple[Hidden, None]:
        query, own = self.queries(inputs, context.rotate), self.keys_values(inputs, context.rotate)
        return self.read(query, own, mask=self._mask(inputs, context), bias=context.bias), None

    def _mask(self, inputs: Hidden, context: LayerContext) -> Mask:
        tokens, device = inputs.shape[1], inputs.device

        def make() -> Mask:
            blocks = Blocks.of(self.pattern, tokens, device, context.parts().padding)
            return blocks if context.mask is None else blocks & context.mask

        return once(context, self.pattern, make, tokens, device)

    def dense_map(
        self, inputs: Hidden, context: LayerContext, memory: Float[Tensor, "batch keys width"] | None = None
    ) -> Weights:
        query, key = self.queries(inputs, context.rotate), self.keys_values(inputs, context.rotate).keys
        return weights(query, key, mask=self._mask(inputs, context), bias=context.bias)


register_mechanism(BigBirdShape)
