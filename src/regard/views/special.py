"""Special tokens left out of a picture: their rows and columns go, all other weights stay what they are.

A head that has nothing to say looks at `<bos>` or `[SEP]` (Clark et al. 2019, section 3.2), which hides what the others
do. What is left of a row no longer sums to 1; the share that went to special tokens is said instead.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Int

from regard.errors import InputError
from regard.inspection.maps import AttentionMap
from regard.views.words import word_starts


def without_special(
    map: AttentionMap, rows: Bool[np.ndarray, "rows"], columns: Bool[np.ndarray, "columns"]
) -> tuple[AttentionMap, float]:
    """The map of the other tokens, and how much of their attention the special columns had, on average."""
    kept_rows, kept_columns = require_some(~rows, map.rows), require_some(~columns, map.columns)
    share = float(map.weights[:, kept_rows][:, :, columns].sum(axis=-1, dtype=np.float64).mean())
    names = tuple(map.rows[at] for at in kept_rows), tuple(map.columns[at] for at in kept_columns)
    weights = map.weights[:, kept_rows][:, :, kept_columns]
    return AttentionMap(weights, *names, map.title, map.rows_axis, map.columns_axis), share


def special_words(pieces: Sequence[str], special: Bool[np.ndarray, "pieces"]) -> Bool[np.ndarray, "words"]:
    """Which words, as `merge_words` makes them, are special tokens and nothing else."""
    return np.logical_and.reduceat(special, word_starts(pieces))


def left_out_in_words(share: float) -> str:
    """How much of the attention is not shown."""
    return f"Special tokens are left out: {100 * share:.0f} % of the attention."


def require_some(kept: Bool[np.ndarray, "tokens"], names: Sequence[str]) -> Int[np.ndarray, "kept"]:
    """The places that are kept, of which there must be one."""
    if not kept.any():
        raise InputError(
            f"the text is special tokens alone: {' '.join(names)[:80]}", "show them, or give a text with others"
        )
    return np.flatnonzero(kept)
