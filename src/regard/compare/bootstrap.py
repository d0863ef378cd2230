"""How far a mean may be off: the bootstrap of Efron (1979), percentiles of the means of resampled examples."""

from collections.abc import Sequence

import numpy as np

RESAMPLES = 4000
TOGETHER = 2**22
"""Draws held at once."""


def band(values: Sequence[int] | Sequence[float], *, share: float = 0.95, seed: int = 0) -> tuple[float, float]:
    """Between which two numbers the mean of so many examples lies in this share of resamples."""
    given = np.asarray(values, dtype=np.float64)
    random = np.random.default_rng(seed)
    at_once = max(1, TOGETHER // len(given))
    means = [
        given[random.integers(0, len(given), (min(at_once, RESAMPLES - first), len(given)))].mean(axis=1)
        for first in range(0, RESAMPLES, at_once)
    ]
    low, high = np.quantile(np.concatenate(means), ((1 - share) / 2, (1 + share) / 2))
    return float(low), float(high)
