"""What a model takes: parameters, memory to run and to train it, work for a token. Nothing is allocated.

Parameters are those of the model itself, built without memory (`torch.device("meta")`), each counted once: a tied
output has none of its own. The rest follows from them and the config, with n tokens read at once:

cache        2 × layers × key/value heads × head width numbers for a token: its keys and its values
training     for each parameter itself, its gradient and AdamW's two moments, all in float32; in mixed precision the
             matrices once more in bfloat16, and activations in half the bytes
activations  numbers kept for the backward pass, for a token of a layer: what enters and leaves the two norms (for
             RMS norm also what is between), the queries, keys, values and attended values, and the feed-forward's
             inside before and after its activation (after alone for ReLU, twice that where it is gated):
             4 or 6 width + 2 (heads + key/value heads) × head width + 1, 2 or 4 inner; for the output the logits and
             their probabilities. Attention weights are not kept, but for `t5` positions, which need them: heads × n
work         a multiplication and an addition for every weight of a matrix that the token meets, the output's table
             among them, and 4 × heads × head width for every key it sees: n of them, or (n + 1) / 2 on average where
             it sees only those before it; training takes three times that, since the backward pass multiplies twice

An estimate, where it is one, leaves out what is small or comes and goes: dropout's masks, buffers of the kernels.
"""

from dataclasses import dataclass

import torch

from regard.blocks.config import head_width
from regard.layers.feedforward import GATED
from regard.models.config import TransformerConfig
from regard.models.transformer import Transformer

FLOAT32, BFLOAT16 = 4, 2
"""Bytes of a number."""


@dataclass(frozen=True)
class Parameters:
    """How many numbers are learnt, by where they are."""

    embedding: int
    """Of tokens, learnt positions and segments."""
    attention: int
    feedforward: int
    norms: int
    output: int
    """A table of its own, a bias, a pooler, the network before a masked model's output, logits of n-grams."""

    @property
    def total(self) -> int:
        """All of them."""
        return self.embedding + self.attention + self.feedforward + self.norms + self.output


@dataclass(frozen=True)
class Work:
    """Floating-point operations for a token; for one of the source and one of the target together, where there are
    two texts, equally long."""

    forward: float

    @property
    def training(self) -> float:
        """Forward, and backward twice that."""
        return 3 * self.forward


@dataclass(frozen=True)
class Memory:
    """Bytes, where numbers are float32 and where they are bfloat16 or mixed."""

    float32: int
    bfloat16: int


@dataclass(frozen=True)
class Size:
    """All of it, for texts of `context` tokens."""

    config: TransformerConfig
    context: int
    parameters: Parameters
    matrices: int
    """Parameters that vectors are multiplied by: what mixed precision has a second copy of."""
    work: Work

    @property
    def weights(self) -> Memory:
        """To run: the parameters."""
        return Memory(FLOAT32 * self.parameters.total, BFLOAT16 * self.parameters.total)

    @property
    def cache(self) -> Memory:
        """To write: the keys and values of one token; an encoder–decoder has as many for a token of the source."""
        numbers = 0 if self.config.architecture == "encoder" else 2 * self.config.layers * _shared(self.config)
        return Memory(FLOAT32 * numbers, BFLOAT16 * numbers)

    @property
    def whole_cache(self) -> Memory:
        """The keys and values of a whole context, of the source and of the target where there are two."""
        texts = 2 if self.config.architecture == "encoder_decoder" else 1
        tokens = texts * self.context
        return Memory(tokens * self.cache.float32, tokens * self.cache.bfloat16)

    @property
    def trained_weights(self) -> Memory:
        """To train: the parameters, in mixed precision the matrices once more."""
        return Memory(self.weights.float32, self.weights.float32 + BFLOAT16 * self.matrices)

    @property
    def gradients(self) -> Memory:
        """To train: a number for each parameter."""
        return Memory(self.weights.float32, self.weights.float32)

    @property
    def moments(self) -> Memory:
        """To train: AdamW's two numbers for each parameter."""
        return Memory(2 * self.weights.float32, 2 * self.weights.float32)

    @property
    def state(self) -> Memory:
        """To train: all of these."""
        parts = self.trained_weights, self.gradients, self.moments
        return Memory(sum(one.float32 for one in parts), sum(one.bfloat16 for one in parts))

    @property
    def activations(self) -> Memory:
        """To train: what a token leaves for the backward pass."""
        numbers = _kept_numbers(self.config, self.context)
        return Memory(FLOAT32 * numbers, BFLOAT16 * numbers)


def size_of(config: TransformerConfig, context: int | None = None) -> Size:
    """What the model of this config takes, for texts of `context` tokens; of its `max_positions` if absent."""
    context = config.max_positions if context is None else context
    with torch.device("meta"):
        model = Transformer(config)
    counts = dict.fromkeys(("embedding", "attention", "feedforward", "norms", "output"), 0)
    matrices = 0
    for name, parameter in model.named_parameters():
        kind = _kind(name)
        counts[kind] += parameter.numel()
        multiplied = kind in ("attention", "feedforward", "output") and not name.startswith("ngrams.")
        matrices += parameter.numel() if parameter.dim() == 2 and multiplied else 0
    matrices += _tied_table(config)
    return Size(config, context, Parameters(**counts), matrices, Work(_work(config, model, context)))


def _tied_table(config: TransformerConfig) -> int:
    """Numbers of the embedding table that the output multiplies by as well."""
    return config.vocabulary * config.width if config.tie_embeddings and config.head in ("tokens", "masked") else 0


def _kind(name: str) -> str:
    """Where a parameter is, from its name."""
    path = name.split(".")
    if path[-2] in ("norm", "embedding_norm"):
        return "norms"
    if path[0] in ("output", "pooler", "ngrams"):
        return "output"
    if path[0] in ("encoder", "decoder"):
        return "feedforward" if "feedforward" in path else "attention"
    return "attention" if path[1] == "bias" else "embedding"  # `t5` positions are added to the scores


def _shared(config: TransformerConfig) -> int:
    """Numbers of a token's keys in one layer."""
    return (config.key_value_heads or config.heads) * head_width(config)


def _kept_numbers(config: TransformerConfig, context: int) -> int:
    """Numbers kept for the backward pass, for a token; for one of the source and one of the target together."""
    inner = inner_copies(config) * (config.feedforward_width or 4 * config.width)
    norm = norm_copies(config) * config.width
    attention = norm + 2 * config.heads * head_width(config) + 2 * _shared(config)
    weights = config.heads * context if config.positions == "t5" else 0
    encoder, decoder = _layers(config)
    cross = decoder * attention if encoder and decoder else 0
    output = 2 * config.vocabulary if config.head in ("tokens", "masked") else 0
    return (encoder + decoder) * (attention + weights + norm + inner) + cross + output


def norm_copies(config: TransformerConfig) -> int:
    """How many times the width is kept around a norm."""
    return 3 if config.norm == "rms" else 2


def inner_copies(config: TransformerConfig) -> int:
    """How many times the inner width of the feed-forward is kept."""
    return 4 if config.feedforward in GATED else 1 if config.feedforward == "relu" else 2


def _layers(config: TransformerConfig) -> tuple[int, int]:
    """Of the encoder and of the decoder."""
    encoder = 0 if config.architecture == "decoder" else config.encoder_layers or config.layers
    return encoder, 0 if config.architecture == "encoder" else config.layers


def _work(config: TransformerConfig, model: Transformer, context: int) -> float:
    """Operations of the forward pass for a token."""
    parts = ("encoder", "decoder") if config.head == "labels" else ("encoder", "decoder", "output")
    met = sum(one.numel() for name, one in model.named_parameters() if one.dim() == 2 and name.split(".")[0] in parts)
    met += _tied_table(config)
    encoder, decoder = _layers(config)
    keys = encoder * context + decoder * (context + 1) / 2 + (decoder * context if encoder and decoder else 0)
    return 2 * met + 4 * config.heads * head_width(config) * keys
