"""The Transformer (Vaswani et al. 2017): encoder–decoder, encoder alone or decoder alone, from one config.

A forward pass over a whole text and a step of cached decoding are the same code: `forward` extends an empty state
by all tokens, `step` extends a state by one. So the model is its own Stepper (see `decoding/stepper.py`).
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention.mask import Causal, Document, Mask, Padding
from regard.attention.mechanism import LayerContext
from regard.axes import Hidden, Lengths, Logits, RowIds
from regard.blocks.decoder import Decoder, DecoderCache
from regard.blocks.encoder import Encoder
from regard.data.batching import Inputs, Padded
from regard.embedding.tokens import TokenEmbedding
from regard.errors import InputError
from regard.layers.dropout import Dropout
from regard.layers.linear import Linear
from regard.layers.norm import norm
from regard.models.config import TransformerConfig, TransformerShape
from regard.models.estimates import Estimates
from regard.models.heads import NgramLogits, Pooler, TokenOutput
from regard.models.in_place import CachedModel, InPlaceDecoder, unsupported
from regard.models.init import init_weights
from regard.models.network import register_network
from regard.models.positions import Positions
from regard.models.transformer_size import PARTS, transformer_estimates, transformer_part


@dataclass(frozen=True, eq=False)
class TransformerState:
    """What decoding has computed so far: the layers' keys and values, and where padding stands."""

    cache: DecoderCache
    padding: Int[Tensor, "rows"] | None = None
    memory_mask: Mask | None = None

    def copy(self) -> "TransformerState":
        """The same, which a step of this one leaves as it is."""
        return replace(self, cache=self.cache.copy())

    def trim(self, lengths: Lengths) -> "TransformerState":
        """After only so many tokens of each row; the shorter ones get padding on the left."""
        before = torch.zeros_like(lengths) if self.padding is None else self.padding
        most = int(lengths.max())
        if bool((lengths < 0).any()) or bool((lengths > self.cache.tokens - before).any()):
            raise InputError(
                f"rows of {(self.cache.tokens - before).tolist()} tokens cannot go back to {lengths.tolist()}",
                "give lengths within them",
            )
        padding = most - lengths
        columns = (torch.arange(most, device=lengths.device) + (before - padding)[:, None]).clamp(min=0)
        cache = self.cache.gather(columns)
        return replace(self, cache=cache, padding=padding if bool(padding.any()) else None)

    def select(self, rows: RowIds) -> "TransformerState":
        """These rows, in this order."""
        cache = self.cache.select(rows)
        mask = self.memory_mask
        if mask is not None and cache.memory is not self.cache.memory:
            mask = mask.select(self.cache.memories(rows))
        return TransformerState(cache, None if self.padding is None else self.padding[rows], mask)


class Transformer(CachedModel):
    """Ids in, logits out; `start`, `step` and `extend` for decoding."""

    config: TransformerConfig
    parts = PARTS

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        cross = config.architecture == "encoder_decoder"
        self.embedding = TokenEmbedding(config.vocabulary, config.width, scaled=config.scale_embeddings)
        self.segments = nn.Embedding(config.segments, config.width) if config.segments else None
        self.embedding_norm, self.target_norm = (
            norm(config.norm, config.width, config.epsilon) if there else None
            for there in (config.embedding_norm, config.embedding_norm and cross)
        )
        self.dropout = Dropout(config.dropout)
        if config.architecture != "decoder":
            self.encoder_positions = Positions(config, bidirectional=True)
            self.encoder = Encoder(config, config.encoder_layers or config.layers)
        if config.architecture != "encoder":
            self.decoder_positions = Positions(config, bidirectional=False)
            self.decoder = Decoder(config, config.layers, cross=cross)
        self.pooler = Pooler(config.width, config.pooler) if config.pooled or config.head == "labels" else None
        self.output: nn.Module | None = None
        if config.head in ("tokens", "masked"):
            self.output = TokenOutput(config)
        elif config.head != "none":
            self.output = Linear(config.width, len(config.labels) if config.head == "labels" else 2)
        self.ngrams = NgramLogits(config.ngram_buckets, len(config.labels)) if config.ngram_buckets else None
        init_weights(self, config)

    @property
    def device(self) -> torch.device:
        """Where its weights are."""
        return self.embedding.plain_weight().device

    @property
    def dtype(self) -> torch.dtype:
        """The type of its weights."""
        return self.embedding.plain_weight().dtype

    def forward(self, inputs: Inputs) -> Float[Tensor, "batch *places out"]:
        """What the head makes of the vectors (see heads.py).

        The logits of a token are those of the next one (decoder) or of its own place (encoder).
        """
        hidden = self.hidden(inputs)
        if self.pooler is not None and self.config.head == "labels":
            deep = self.logits(self.dropout(self.pool(hidden, inputs.tokens)[:, None]))[:, 0]
            return deep if self.ngrams is None else deep + self.ngrams(inputs.tokens)
        return hidden if self.output is None else self.logits(hidden)

    def hidden(self, inputs: Inputs) -> Hidden:
        """The last layer's vectors: of the encoder where there is nothing else, of the decoder where there is one."""
        if self.config.architecture == "encoder":
            return self.encode(inputs.tokens)
        if inputs.tokens.documents is not None:
            return self._read_packed(inputs.tokens.ids, inputs.tokens.documents)
        tokens = inputs.tokens
        behind = Padding(tokens.lengths) if tokens.ragged and tokens.side == "right" else None
        return self.advance(tokens.ids, self.begin(inputs, kept=False), behind)[0]

    def pool(self, hidden: Hidden, tokens: Padded) -> Float[Tensor, "batch width"]:
        """One vector for each text: its first token's or the mean of all, through the pooler where there is one."""
        padding = _padding(tokens)
        if self.config.pooling == "mean":
            real = tokens.real.to(hidden.device)[..., None]
            one = (hidden * real).sum(dim=1) / real.sum(dim=1).clamp(min=1)
        else:
            one = hidden[:, 0] if padding is None else hidden[torch.arange(len(hidden), device=hidden.device), padding]
        return one if self.pooler is None else self.pooler(one)

    def encode(self, source: Padded) -> Hidden:
        """The encoder's view of the source."""
        _require_one_text(source)
        positions = self.encoder_positions
        places = positions.count(0, source.ids.shape[1], _padding(source), source.ids.device)
        stream = self.enter(source.ids, positions, places, source.segments)
        turned, ids = positions.rotate(places), source.ids
        context = LayerContext(_mask(source), positions.bias, turned, places=places, ids=ids)
        out: Hidden = self.encoder(stream, context)
        return out

    def logits(self, hidden: Float[Tensor, "batch tokens width"]) -> Logits:
        """From the last layer's vectors to the vocabulary, or to whatever else the head gives for a vector."""
        if self.output is None:
            raise InputError("this model gives vectors and no logits", "use `hidden`, or a model with another head")
        given = (hidden, self.embedding) if isinstance(self.output, TokenOutput) else (hidden,)
        out: Logits = self.output(*given)
        return out

    def start(self, inputs: Inputs) -> TransformerState:
        """Consume the source and all of the prompt but its last token, which the first `step` gets."""
        if not self.config.decodes:
            raise InputError(
                "an encoder does not decode: it gives one output per input token",
                "use architecture 'decoder' or 'encoder_decoder' to generate text",
            )
        _require_one_text(inputs.tokens)
        if inputs.tokens.ragged and inputs.tokens.side == "right":
            tokens = Padded.of(inputs.tokens.rows(), side="left").to(inputs.tokens.ids.device)
            inputs = Inputs(tokens, inputs.source)
        state = self.begin(inputs)
        state = replace(state, cache=state.cache.settled())
        prompt = inputs.tokens.ids[:, :-1]
        return self.advance(prompt, state)[1] if prompt.shape[1] else state

    def extend(
        self, ids: Int[Tensor, "rows tokens"], state: TransformerState
    ) -> tuple[Float[Tensor, "rows tokens vocab"], TransformerState]:
        """Several tokens further at once, with the logits after each."""
        hidden, state = self.advance(ids, state)
        return self.logits(hidden), state

    def in_place_unsupported(self) -> str | None:
        """Layers that keep no keys and values."""
        return unsupported(self.decoder) if self.config.decodes else super().in_place_unsupported()

    def in_place(self) -> InPlaceDecoder:
        """Its decoder, writing into memory that never moves."""
        super().in_place()  # refuses where it cannot
        return InPlaceDecoder(self)

    def vectors(
        self, ids: Int[Tensor, "rows tokens"], state: TransformerState
    ) -> tuple[Float[Tensor, "rows tokens width"], TransformerState]:
        """The last layer's vectors in place of the logits."""
        return self.advance(ids, state)

    def part(self, parameter: str) -> str:
        """Of which part a parameter is, by its name."""
        return transformer_part(parameter)

    def estimates(self, context: int) -> Estimates:
        """What it takes for texts of this length."""
        return transformer_estimates(self, self.config, context)

    def enter(
        self,
        ids: Int[Tensor, "rows tokens"],
        positions: Positions,
        places: Int[Tensor, "#rows tokens"],
        segments: Int[Tensor, "rows tokens"] | None = None,
    ) -> Hidden:
        """What the first layer reads."""
        stream = positions.add(self.embedding(ids), places)
        if self.segments is not None:
            stream = stream + self.segments(torch.zeros_like(ids) if segments is None else segments)
        own = self.target_norm is None or positions is self.encoder_positions
        normalise = self.embedding_norm if own else self.target_norm
        if normalise is not None:
            stream = normalise(stream)
        out: Hidden = self.dropout(stream)
        return out

    def begin(self, inputs: Inputs, *, kept: bool = True) -> TransformerState:
        """The state before any token: the source read, the padding of the prompt known; `kept` where steps follow."""
        padding = _padding(inputs.tokens)
        if self.config.architecture == "decoder":
            return TransformerState(DecoderCache(kept=kept), padding)
        if inputs.source is None:
            raise InputError("an encoder–decoder needs a source", "give `Inputs(tokens, source)`")
        memory = self.encode(inputs.source)
        cache = self.decoder.precompute_cross(memory) if kept else DecoderCache(encoded=memory, kept=False)
        return TransformerState(cache, padding, _mask(inputs.source))

    def _read_packed(self, ids: Int[Tensor, "batch tokens"], documents: Int[Tensor, "batch tokens"]) -> Hidden:
        """The decoder's vectors of rows that hold several texts, each read as if it stood alone."""
        if self.config.architecture == "encoder_decoder":
            raise InputError(
                "packed rows hold several texts and an encoder–decoder reads one source for each row",
                "give one text in each row, or use architecture 'decoder'",
            )
        positions = self.decoder_positions
        places = positions.restart(documents)
        context = LayerContext(Causal() & Document(documents), positions.bias, positions.rotate(places), places=places)
        stream = self.enter(ids, positions, places)
        hidden: Hidden = self.decoder(stream, DecoderCache(kept=False), context)[0]
        return hidden

    def advance(
        self, ids: Int[Tensor, "rows tokens"], state: TransformerState, behind: Padding | None = None
    ) -> tuple[Float[Tensor, "rows tokens width"], TransformerState]:
        """The decoder's vectors of the next tokens, and the state with them in it; `behind` them may be padding."""
        past, tokens = state.cache.tokens, ids.shape[1]
        positions = self.decoder_positions
        places = positions.count(past, tokens, state.padding, ids.device)
        mask: Mask | None = Causal() if tokens > 1 else None  # a single new token sees all there is
        if state.padding is not None:
            real = Padding(past + tokens - state.padding, side="left")
            mask = real if mask is None else mask & real
        context = LayerContext(mask, positions.bias, positions.rotate(places), state.memory_mask, past, places, behind)
        stream = self.enter(ids, positions, places)
        hidden, cache = self.decoder(stream, state.cache, context)
        return hidden, replace(state, cache=cache)


def _require_one_text(padded: Padded) -> None:
    if padded.documents is not None:
        raise InputError(
            "packed rows hold several texts: only a decoder reads them, to be trained",
            "give one text in each row",
        )


def _mask(padded: Padded) -> Padding | None:
    """The padding mask of a batch, where it has padding."""
    return Padding(padded.lengths, padded.side) if padded.ragged else None


def _padding(padded: Padded) -> Int[Tensor, "batch"] | None:
    """How many columns on the left are padding, where some are. On the right a causal model never sees it."""
    return padded.ids.shape[1] - padded.lengths if padded.ragged and padded.side == "left" else None


register_network(TransformerShape, Transformer, TransformerConfig)
