"""A layer's attention as a plain record with its tokens named, ready to be drawn or read."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool
from numpy.typing import NDArray

from regard.errors import InputError
from regard.inspection.capture import Recording
from regard.text.tokenizer import Tokenizer


@dataclass(frozen=True, eq=False)
class AttentionMap:
    """The weights of one layer, `[heads, rows, columns]`: how much each row attends to each column."""

    weights: NDArray[Any]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    title: str
    rows_axis: str = "attends from"
    columns_axis: str = "attends to"

    def __post_init__(self) -> None:
        shape = self.weights.shape
        if len(shape) != 3 or 0 in shape:
            raise InputError(
                f"attention weights of shape {list(shape)} are not [heads, rows, columns]",
                "pass three axes of at least one entry each; for a single head use weights[None]",
            )
        for name, size, labels in (("rows", shape[1], self.rows), ("columns", shape[2], self.columns)):
            if size != len(labels):
                raise InputError(
                    f"weights of shape {list(shape)} have {size} {name} and {len(labels)} labels for them",
                    f"pass one label for each of the {name}",
                )
        unusable = int(np.count_nonzero(~np.isfinite(self.weights)))
        if unusable:
            raise InputError(
                f"{unusable} of {self.weights.size} attention weights are not finite numbers",
                "a fully masked row has weights of exactly 0, not NaN",
            )


def labels(seen: Recording, layer: str, tokenizer: Tokenizer) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The tokens of a layer's rows and columns in the single text that was seen, generated ones included.

    A row of a decoder is a step of decoding. In cross-attention it carries the name of the token that step chose, so
    that an alignment reads as in the 2014 paper; in self-attention rows and columns are the tokens that stood there.
    """
    run, index = seen.find(None)
    if run.inputs is None:
        raise InputError("the run says nothing of its tokens", "watch `Model.run`, or ask `seen.weights` for numbers")
    tokens, source = run.inputs.tokens.rows()[index], run.inputs.source
    read = [] if source is None else tokenizer.pieces(source.rows()[index])
    chosen = tokenizer.pieces(run.outcome[index].ids) if run.outcome is not None else []
    stood = [*tokenizer.pieces(tokens), *chosen[:-1]]
    if seen.encodes(layer):
        return tuple(read or stood), tuple(read or stood)
    if seen.crosses(layer):
        return tuple([*stood[1 : len(tokens)], *chosen] if chosen else stood), tuple(read)
    return tuple(stood), tuple(stood)


def token_ids(seen: Recording, layer: str) -> tuple[list[int], list[int]]:
    """The ids of a layer's rows and columns in the single text that was seen; `labels` has their names."""
    run, index = seen.find(None)
    if run.inputs is None:
        raise InputError("the run says nothing of its tokens", "watch `Model.run`, or ask `seen.weights` for numbers")
    tokens, source = list(run.inputs.tokens.rows()[index]), run.inputs.source
    read = [] if source is None else list(source.rows()[index])
    chosen = list(run.outcome[index].ids) if run.outcome is not None else []
    rows = columns = [*tokens, *chosen[:-1]]
    if seen.encodes(layer):
        rows = columns = read or rows
    elif seen.crosses(layer):
        rows, columns = [*tokens[1:], *chosen] if chosen else rows, read
    return rows, columns


def special_tokens(
    seen: Recording, layer: str, tokenizer: Tokenizer
) -> tuple[Bool[np.ndarray, "rows"], Bool[np.ndarray, "columns"]]:
    """Which of a layer's rows and columns are special tokens, by their ids; `labels` has their names."""
    rows, columns = token_ids(seen, layer)
    special = {*tokenizer.special_ids.values()}
    return np.array([one in special for one in rows]), np.array([one in special for one in columns])


def attention_map(seen: Recording, layer: str, tokenizer: Tokenizer, head: int | None = None) -> AttentionMap:
    """One layer's map, all heads or one, with its tokens named."""
    maps = seen.weights(layer) if head is None else seen.weights(layer, head)[None]
    title = layer if head is None else f"{layer}, head {head}"
    if (name := seen.mechanism(layer)) is not None:
        title += f", effective weights of {name}"
    return AttentionMap(maps.float().cpu().numpy(), *labels(seen, layer, tokenizer), title)


def default_layer(seen: Recording) -> str:
    """The layer to show when none is named: of the cross-attentions, else of all, the one that points most clearly."""
    seen.find(None)  # says it where there is nothing to show
    candidates = [layer for layer in seen.layers if seen.crosses(layer)] or seen.layers

    def clarity(layer: str) -> float:
        return float(torch.cat([tile.mean(dim=0).amax(dim=-1) for tile in seen.trace(layer).tiles()]).mean())

    return max(candidates, key=clarity)
