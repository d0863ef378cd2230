"""Every value of every axis a Transformer is configured along, and small sets of configs that cover them."""

from collections.abc import Iterator
from itertools import combinations, product
from typing import get_args

from regard.attention.similarity import SIMILARITIES
from regard.models.config import TransformerConfig


def values(field: str) -> tuple[str, ...]:
    return get_args(TransformerConfig.model_fields[field].annotation)


AXES: dict[str, tuple[object, ...]] = {
    "similarity": tuple(SIMILARITIES),
    "norm_placement": values("norm_placement"),
    "norm": values("norm"),
    "residual": (True, False),
    "positions": values("positions"),
    "feedforward": values("feedforward"),
    "architecture": values("architecture"),
    "key_value_heads": (None, 1),
}

Choice = tuple[object, ...]


def product_of_all() -> Iterator[Choice]:
    return product(*AXES.values())


def product_of_the_six() -> Iterator[Choice]:
    """All combinations of all axes but the last, key/value heads, which alternates: half the number of models."""
    *six, heads = AXES.values()
    return ((*choice, heads[index % len(heads)]) for index, choice in enumerate(product(*six)))


def all_pairs() -> list[Choice]:
    """A greedy covering: every pair of values of two axes stands together in at least one config."""
    missing = {
        ((one, first), (other, second))
        for one, other in combinations(range(len(AXES)), 2)
        for first in list(AXES.values())[one]
        for second in list(AXES.values())[other]
    }
    everything = list(product_of_all())
    chosen: list[Choice] = []
    while missing:
        best = max(everything, key=lambda choice: len(missing & pairs_of(choice)))
        missing -= pairs_of(best)
        chosen.append(best)
    return chosen


def pairs_of(choice: Choice) -> set[tuple[tuple[int, object], tuple[int, object]]]:
    return set(combinations(enumerate(choice), 2))


def config(choice: Choice) -> TransformerConfig:
    """Small distinct sizes: 2 heads of width 6, vocabulary 13."""
    named = dict(zip(AXES, choice, strict=True))
    return TransformerConfig(
        vocabulary=13, width=12, heads=2, layers=2, feedforward_width=10, dropout=0.1, max_positions=23, **named
    )


def name(choice: Choice) -> str:
    return "-".join("all" if part is None else str(part) for part in choice)
