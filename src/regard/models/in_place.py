"""A Transformer's decoder as a Stepper that writes in place: every layer's keys and values in memory that never moves.

A row's text begins at column 0 and its next token stands at its length, which is a number on the device. A step writes
there and looks at what is not behind it, so rows that have got to different places stand side by side without padding,
rows come and go, and nothing in a step is asked of the host: a CUDA graph of it can be replayed. What it gives equals
the Transformer's own `start`, `step` and `extend`.
"""

import weakref
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.attention.cache import KeyValues, StaticKeyValues
from regard.attention.decode_step import StepTable
from regard.attention.exact import ExactAttention
from regard.attention.mask import Causal, Padding
from regard.attention.mechanism import LayerContext
from regard.attention.rotary import Rotate, Rotation
from regard.attention.similarity import InnerProduct
from regard.axes import Hidden, Lengths, Logits, RowIds, RowLogits
from regard.blocks.decoder import Decoder, DecoderCache, DecoderLayer
from regard.data.batching import Inputs, Padded
from regard.models.lean_step import LeanStep, StepHead
from regard.models.network import Network
from regard.models.positions import Positions
from regard.models.shared_head import first_alike, read_behind_head, shared_head

ROOM = 64
"""Tokens of room made at a time, and looked at: a step is made for a multiple of it."""

STACKED = frozenset({"cuda"})
"""Where queries, keys and values are one product: starting one more takes as long as a small one does."""


def rounded(tokens: int) -> int:
    """Up to the next multiple of ROOM."""
    return -(-tokens // ROOM) * ROOM


def reach_of(tokens: int) -> int:
    """How many keys a step looks at: a power of two or one and a half times it, from 64; 128 comes next."""
    size = ROOM
    while size < tokens:
        halfway = size & (size - 1) == 0 and size > ROOM
        size = size * 3 // 2 if halfway else size // 3 * 4 if size > ROOM else 2 * ROOM
    return size


@dataclass(eq=False)
class InPlaceState:
    """Every layer's keys and values, and of the memory where there is one; how many tokens each row has."""

    layers: tuple[StaticKeyValues, ...]
    lengths: Int[Tensor, "rows"]
    most: int = 0
    """No row has more: known without asking the device."""
    memory: tuple[StaticKeyValues, ...] = ()
    memory_lengths: Int[Tensor, "rows"] | None = None
    reach: int = 0
    """At least so many keys are looked at, where a step is made for any number of tokens up to that."""

    @property
    def room(self) -> int:
        """Tokens that every row has room for."""
        return self.layers[0].room

    def part(self, rows: int) -> "InPlaceState":
        """The first so many rows of this same memory, written in place for both."""
        layers, memory = (tuple(one.part(rows, one.room) for one in some) for some in (self.layers, self.memory))
        lengths = None if self.memory_lengths is None else self.memory_lengths[:rows]
        return InPlaceState(layers, self.lengths[:rows], self.most, memory, lengths)

    def move(self, rows: Sequence[int] | RowIds, places: Sequence[int] | RowIds) -> None:
        """Copy these rows into the places of others."""
        device = self.lengths.device
        read, to = torch.as_tensor(rows, device=device), torch.as_tensor(places, device=device)
        for one in (*self.layers, *self.memory):
            one.move(read, to)
        for lengths in (self.lengths, self.memory_lengths):
            if lengths is not None:
                lengths.index_copy_(0, to, lengths[read])

    def expect(self, left: Mapping[int, int]) -> None:
        """How many more tokens each row may read: those that are done stay where they are."""

    def forget(self, rows: Sequence[int]) -> None:
        """Zeros in these rows: a weight of 0 times what is no number would be none."""
        at = torch.as_tensor(rows, device=self.lengths.device)
        for one in (*self.layers, *self.memory):
            one.keys.index_fill_(0, at, 0)
            one.values.index_fill_(0, at, 0)

    def select(self, rows: RowIds) -> "InPlaceState":
        """Copies of these rows, in this order."""
        layers, memory = (tuple(one.select(rows) for one in some) for some in (self.layers, self.memory))
        lengths = None if self.memory_lengths is None else self.memory_lengths[rows]
        return InPlaceState(layers, self.lengths[rows], self.most, memory, lengths)

    def copy(self) -> "InPlaceState":
        """The same in memory of its own; what is kept of a source is never written over."""
        return replace(self, layers=tuple(one.copy() for one in self.layers), lengths=self.lengths.clone())

    def trim(self, lengths: Lengths) -> "InPlaceState":
        """After only so many tokens of each row: what stands behind them is written over in time."""
        return replace(self.copy(), lengths=lengths.to(self.lengths).clone())

    def with_room(self, tokens: int) -> "InPlaceState":
        """Itself where so many more have room, else one with twice as much."""
        if self.most + tokens <= self.room:
            return self
        room = rounded(max(2 * self.room, self.most + tokens))
        grown = tuple(_grown(one, room) for one in self.layers)
        return replace(self, layers=grown)


def _grown(held: StaticKeyValues, room: int) -> StaticKeyValues:
    def wider(one: Tensor) -> Tensor:
        grown = one.new_zeros(*one.shape[:2], room, one.shape[3])
        grown[:, :, : one.shape[2]] = one
        return grown

    return StaticKeyValues(wider(held.keys), wider(held.values), held.maps)


class CachedModel(Network):
    """What a Transformer is to its decoder in place."""

    decoder: Decoder
    decoder_positions: Positions
    output: nn.Module | None

    @abstractmethod
    def begin(self, inputs: Inputs) -> Any:
        """What has been read of the source, and nothing of the prompt."""

    @abstractmethod
    def enter(
        self, ids: Int[Tensor, "rows tokens"], positions: Positions, places: Int[Tensor, "#rows tokens"]
    ) -> Hidden:
        """What the first layer reads of these tokens at these places."""

    @abstractmethod
    def advance(self, ids: Int[Tensor, "rows tokens"], state: Any, behind: Padding | None) -> tuple[Hidden, Any]:
        """The last layer's vectors of these tokens behind the state's, and the state with them."""


class InPlaceDecoder:
    """The decoder of a Transformer, decoding in place. Everything it computes with is the Transformer's own.

    It does not keep the model alive: what is kept beside a model, as graphs are, goes with it.
    """

    def __init__(self, model: CachedModel) -> None:
        self._model = weakref.ref(model)
        self.lean: LeanStep | None = None
        """A shorter way through the layers for one token per row, where there is one and it pays."""
        self.head: StepHead | None = None

    @property
    def model(self) -> CachedModel:
        """Whose decoder it is."""
        found = self._model()
        assert found is not None, "the model is gone"
        return found

    def allocate(self, rows: int, room: int, memory_room: int = 0) -> InPlaceState:
        """Room for so many rows of so many tokens, and for sources of so many; nothing read yet."""
        model, layers = self.model, self._layers()
        like = torch.empty(0, dtype=model.dtype, device=model.device)
        lengths = torch.zeros(rows, dtype=torch.long, device=model.device)
        own = tuple(_allocate(layer.self_attention, rows, room, like) for layer in layers)
        if model.device.type in STACKED:
            self.lean = LeanStep.of(model.decoder, own) if model.decoder_positions.bias is None else None
            self.head = StepHead.of(model.output, model.embedding)
        if not memory_room:
            return InPlaceState(own, lengths)
        crossing = [layer.cross_attention for layer in layers if layer.cross_attention is not None]
        memory = tuple(_allocate(one, rows, memory_room, like) for one in crossing)
        return InPlaceState(own, lengths, 0, memory, torch.ones_like(lengths))

    def admit(self, inputs: Inputs, state: InPlaceState, rows: Sequence[int] | RowIds) -> None:
        """Let these rows begin with these sources and prompts, all but the last token of which is read.

        Rows that begin alike, as several answers to one text do, are read once; so is what all prompts begin with.
        """
        at = torch.as_tensor(rows, device=self.model.device)
        prompts = [row[:-1] for row in inputs.tokens.rows()]
        first, alone = first_alike(
            zip(prompts, prompts if inputs.source is None else inputs.source.rows(), strict=True)
        )
        source = inputs.source
        if len(alone) < len(first) and source is not None:
            source = source.select(alone)
        read, lengths = self._read(Inputs(Padded.of([prompts[row] for row in alone]).to(at.device), source))
        which = torch.tensor(first, device=at.device)
        for held, new in (*zip(state.layers, read.own, strict=False), *zip(state.memory, read.memory, strict=True)):
            if isinstance(new, KeyValues):
                held.put(at, new if len(alone) == len(first) else KeyValues(new.keys[which], new.values[which]))
        state.lengths.index_copy_(0, at, lengths[which])
        if state.memory_lengths is not None and inputs.source is not None:
            state.memory_lengths.index_copy_(0, at, inputs.source.lengths.to(at.device))
        state.most = max(state.most, *map(len, prompts))

    def start(self, inputs: Inputs) -> InPlaceState:
        """Consume the source and all of the prompt but its last token, which the first `step` gets."""
        rows, prompt = inputs.tokens.ids.shape
        memory_room = 0 if inputs.source is None else inputs.source.ids.shape[1]
        state = self.allocate(rows, rounded(prompt), memory_room)
        self.admit(inputs, state, torch.arange(rows, device=self.model.device))
        return state

    def step(self, ids: RowIds, state: InPlaceState) -> tuple[RowLogits, InPlaceState]:
        """One token further in every row; the state is spent."""
        logits, state = self.extend(ids[:, None], state)
        return logits[:, -1], state

    def extend(
        self, ids: Int[Tensor, "rows tokens"], state: InPlaceState
    ) -> tuple[Float[Tensor, "rows tokens vocab"], InPlaceState]:
        """Several tokens further, with the logits after each; the state is spent."""
        model, tokens = self.model, ids.shape[1]
        scheme = model.decoder_positions
        scheme.require_learnt(state.most + tokens)
        state = state.with_room(tokens)
        places = state.lengths[:, None] + torch.arange(tokens, device=ids.device)
        memory_mask = None if state.memory_lengths is None else Padding(state.memory_lengths)
        reach = min(max(rounded(state.most + tokens), state.reach), state.room)
        own = tuple(one.part(len(ids), reach) for one in state.layers)
        memory = tuple(KeyValues(one.keys, one.values) for one in state.memory)
        context = LayerContext(
            Causal(),
            scheme.bias,
            _narrowed(scheme.rotate(places), model.dtype),
            memory_mask,
            places=places,
            query_positions=places,
        )
        stream = model.enter(ids, scheme, places)
        if self.lean is not None and tokens == 1 and not torch.is_grad_enabled():
            hidden = self.lean.hidden(stream[:, 0], own, state.lengths, context)[:, None]
        else:
            hidden, _ = model.decoder(stream, DecoderCache(own, memory), context)
        state.lengths.add_(tokens)
        state.most += tokens
        return self._logits(hidden), state

    def branch(
        self,
        ids: Int[Tensor, "texts beams"],
        state: InPlaceState,
        positions: Int[Tensor, "texts beams"],
        columns: Int[Tensor, "texts beams"],
        seen: Bool[Tensor, "texts beams reach"],
    ) -> Float[Tensor, "texts beams vocab"]:
        """The logits after tokens of which several go on the same text, each seeing its own way to it alone.

        They stand at these positions and are kept in these columns; what each sees of the columns is said.
        """
        model, scheme, reach = self.model, self.model.decoder_positions, seen.shape[2]
        held = state.layers[0].keys
        table = StepTable(seen[:, None], held.new_zeros(1).where(seen[:, None], -torch.inf))
        own = tuple(one.part(len(ids), reach) for one in state.layers)
        memory = tuple(KeyValues(one.keys, one.values) for one in state.memory)
        memory_mask = None if state.memory_lengths is None else Padding(state.memory_lengths)
        rotate = _narrowed(scheme.rotate(positions), model.dtype)
        context = LayerContext(
            table, None, rotate, memory_mask, places=positions, query_positions=positions, columns=columns
        )
        hidden, _ = model.decoder(model.enter(ids, scheme, positions), DecoderCache(own, memory), context)
        return self._logits(hidden)

    def _logits(self, hidden: Float[Tensor, "rows tokens width"]) -> Logits:
        if self.head is None or torch.is_grad_enabled():
            return self.model.logits(hidden)
        return self.head.logits(hidden)

    def _read(self, inputs: Inputs) -> tuple[DecoderCache, Lengths]:
        """The prompts read at once, padding behind them: nothing a text's own tokens see."""
        model, tokens = self.model, inputs.tokens
        rows = tokens.rows() if inputs.source is None and len(tokens.ids) > 1 else []
        if head := shared_head(rows):
            return read_behind_head(model, rows, head).cache, tokens.lengths
        state = model.begin(inputs)
        if tokens.ids.shape[1]:
            behind = Padding(tokens.lengths) if tokens.ragged else None
            state = model.advance(tokens.ids, state, behind)[1]
        return state.cache, tokens.lengths

    def _layers(self) -> list[DecoderLayer]:
        return [layer for layer in self.model.decoder.layers if isinstance(layer, DecoderLayer)]


def unsupported(decoder: Decoder) -> str | None:
    """Why a decoder does not decode in place; None where it does."""
    for layer in decoder.layers:
        assert isinstance(layer, DecoderLayer)
        for one in (layer.self_attention, layer.cross_attention):
            if one is not None and not isinstance(one, ExactAttention):
                return f"{type(one).__name__} keeps no keys and values of single tokens"
    return None


def branches_unsupported(model: CachedModel) -> str | None:
    """Why the tokens of a tree cannot stand side by side in a decoder's cache; None where they can."""
    if model.decoder_positions.bias is not None:
        return "its positions are added to the scores"
    for layer in model.decoder.layers:
        own = layer.self_attention
        if isinstance(own, ExactAttention) and own.window is not None:
            return "a layer has a window"
        if isinstance(own, ExactAttention) and not isinstance(own.attend.similarity, InnerProduct):
            return f"{type(own.attend.similarity).__name__} is no inner product"
    return None


def _allocate(attention: object, rows: int, room: int, like: Tensor) -> StaticKeyValues:
    assert isinstance(attention, ExactAttention)
    widths = attention.head_width, attention.value_width
    maps = attention.stacked() if like.device.type in STACKED and not attention.slot.cross else None
    return StaticKeyValues.allocate(rows, attention.key_value_heads, room, widths, like, maps)


def _narrowed(rotate: Rotate | None, dtype: torch.dtype) -> Rotate | None:
    """In the model's own type, once for all layers."""
    if not isinstance(rotate, Rotation):
        return rotate
    return Rotation(rotate.cosine.to(dtype), rotate.sine.to(dtype))
