"""What a Transformer takes beyond its parameters, with n tokens read at once.

cache        2 × layers × key/value heads × head width numbers for a token: its keys and its values
activations  numbers kept for the backward pass, for a token of a layer: what enters and leaves the two norms (for
             RMS norm also what is between), the queries, keys, values and attended values, and the feed-forward's
             inside before and after its activation (after alone for ReLU, twice that where it is gated):
             4 or 6 width + 2 (heads + key/value heads) × head width + 1, 2 or 4 inner; for the output the logits and
             their probabilities. Attention weights are not kept, but for `t5` positions, which need them: heads × n.
             A reversible stack keeps its two streams, and at a time what one sublayer takes; of a feed-forward network
             that is gone through in pieces the inside of one is there at a time
work         a multiplication and an addition for every weight of a matrix that the token meets, the output's table
             among them, and 4 × heads × head width for every key it sees: n of them, or (n + 1) / 2 on average where
             it sees only those before it
"""

from torch import nn

from regard.attention.mechanism import AttentionCosts
from regard.attention.slot import Site
from regard.layers.feedforward import GATED
from regard.models.config import TransformerConfig
from regard.models.estimates import Estimates

PARTS = ("embedding", "attention", "feedforward", "norms", "output")
"""Embedding: of tokens, learnt positions and segments. Output: a table of its own, a bias, a pooler, the network before
a masked model's output, logits of n-grams."""


def transformer_part(parameter: str) -> str:
    """Where a parameter is, from its name."""
    path = parameter.split(".")
    if path[-2] in ("norm", "made_norm", "embedding_norm", "target_norm"):
        return "norms"
    if path[0] in ("output", "pooler", "ngrams"):
        return "output"
    if path[0] in ("encoder", "decoder"):
        return "feedforward" if "feedforward" in path else "attention"
    return "attention" if path[1] == "bias" else "embedding"  # `t5` positions are added to the scores


def transformer_estimates(model: nn.Module, config: TransformerConfig, context: int) -> Estimates:
    """For texts of `context` tokens."""
    encoder, decoder = _layers(config)
    costs = _costs(config, context)
    decoding = [one for site, one in costs if one is not None and site.stack == "decoder" and site.kind == "self"]
    return Estimates(
        work=_work(config, model) + sum(one.work for _, one in costs if one is not None),
        tied=_tied_table(config),
        cache=sum(one.cached for one in decoding),
        cached_texts=2 if encoder and decoder else 1,
        kept=_kept_numbers(config, context, [one for _, one in costs]),
        formulas=_formulas(config),
    )


def _costs(config: TransformerConfig, context: int) -> list[tuple[Site, AttentionCosts | None]]:
    """Of every attention, what it says it takes."""
    encoder, decoder = _layers(config)
    sites = [Site("encoder", index, "self") for index in range(encoder)]
    sites += [Site("decoder", index, "self") for index in range(decoder)]
    sites += [Site("decoder", index, "cross") for index in range(decoder) if encoder]
    return [(site, config.mechanism(site).costs(config.slot(site), context)) for site in sites]


def _tied_table(config: TransformerConfig) -> int:
    return config.vocabulary * config.width if config.tie_embeddings and config.head in ("tokens", "masked") else 0


def _layers(config: TransformerConfig) -> tuple[int, int]:
    """Of the encoder and of the decoder."""
    encoder = 0 if config.architecture == "decoder" else config.encoder_layers or config.layers
    return encoder, 0 if config.architecture == "encoder" else config.layers


def _kept_numbers(config: TransformerConfig, context: int, costs: list[AttentionCosts | None]) -> int | None:
    known = [one.kept for one in costs if one is not None and one.kept is not None]
    if len(known) < len(costs):
        return None
    inner = _inner_copies(config) * (config.feedforward_width or 4 * config.width)
    norm = _norm_copies(config) * config.width
    weights = config.heads * context if config.positions == "t5" else 0
    output = 2 * config.vocabulary if config.head in ("tokens", "masked") else 0
    layers = sum(_layers(config))
    if config.residual == "reversible":
        stacks = sum(1 for one in _layers(config) if one)
        largest = max(inner // config.feedforward_chunks, *(one + weights for one in known))
        return stacks * (2 * config.width + norm) + norm + largest + output
    if config.feedforward_chunks > 1:
        return sum(known) + len(costs) * norm + layers * (weights + norm) + inner // config.feedforward_chunks + output
    return sum(known) + len(costs) * norm + layers * (weights + norm + inner) + output


def _activations(config: TransformerConfig, weights: str) -> str:
    """How what a layer keeps comes about."""
    pieces = f" ÷ {config.feedforward_chunks} pieces" if config.feedforward_chunks > 1 else ""
    inner = {1: "", 2: "2 × ", 4: "4 × "}[_inner_copies(config)] + "inner width" + pieces
    norms, heads = f"{2 * _norm_copies(config)} × width", "2 × (heads + key/value heads) × head width"
    if config.residual == "reversible":
        return f"(2 + {2 * _norm_copies(config)}) × width for a stack, and the larger of {heads}{weights} and {inner}"
    if pieces:
        return f"{norms} + {heads}{weights} for each layer, and {inner}"
    return f"{norms} + {heads} + {inner}{weights} for each layer"


def _norm_copies(config: TransformerConfig) -> int:
    """How many times the width is kept around a norm."""
    kept = {"layer": 2, "rms": 3, "rms_offset": 3, "none": 1}[config.norm]
    return kept * (2 if config.norm_placement == "sandwich" else 1)


def _inner_copies(config: TransformerConfig) -> int:
    """How many times the inner width of the feed-forward is kept."""
    return 4 if config.feedforward in GATED else 1 if config.feedforward == "relu" else 2


def _work(config: TransformerConfig, model: nn.Module) -> float:
    """Of the matrices."""
    parts = ("encoder", "decoder") if config.head == "labels" else ("encoder", "decoder", "output")
    met = sum(one.numel() for name, one in model.named_parameters() if one.dim() == 2 and name.split(".")[0] in parts)
    return 2.0 * (met + _tied_table(config))


def _formulas(config: TransformerConfig) -> tuple[tuple[str, str], ...]:
    """How the numbers come about."""
    encoder, decoder = _layers(config)
    both = bool(encoder and decoder)
    lines = []
    if both:
        lines.append(("a token", "one of the source and one of the target; the cache has as much for either"))
    listed = {one.name for one in config.attending if one.name != "exact"}
    if listed:
        return (*lines, ("work", f"2 × the weights of matrices, and what {', '.join(sorted(listed))} says of itself"))
    if decoder:
        lines.append(("cache", "2 × layers × key/value heads × head width"))
    cross = " (more in a decoder, which attends twice)" if both else ""
    weights = " + heads × tokens" if config.positions == "t5" else ""
    table = "; 2 × vocabulary" if config.head in ("tokens", "masked") else ""
    lines.append(("activations", f"about {_activations(config, weights)}{cross}{table}"))
    half = ", half of a text's where it looks back" if decoder else ""
    seen = f"4 × heads × head width for each key it sees{half}"
    return (*lines, ("work", f"2 × the weights of matrices + {seen}"))
