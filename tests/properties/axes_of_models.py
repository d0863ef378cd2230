"""Every value of every axis that networks are configured along, and small sets of configs that cover them."""

from collections.abc import Iterator
from itertools import chain, combinations, product
from random import Random
from typing import get_args

from regard.attention.similarity import SIMILARITIES
from regard.models.config import TransformerConfig
from regard.models.network import NETWORKS, Head, NetworkConfig
from regard.models.recurrent_config import RecurrentShape

MOST = 12
"""Configs of a network that the laws are measured of, outside of `make test-slow`."""


def values(shape: type[NetworkConfig] | type[RecurrentShape], field: str) -> tuple[str, ...]:
    return get_args(shape.model_fields[field].annotation)


ARCHITECTURES = values(TransformerConfig, "architecture")
HEADS: tuple[str, ...] = get_args(Head)
READERS = [("encoder", head) for head in HEADS if head not in ("tokens", "none")]
Axes = dict[str, tuple[object, ...]]
Choice = tuple[object, ...]

TRANSFORMER: Axes = {
    "similarity": tuple(SIMILARITIES),
    "norm_placement": values(TransformerConfig, "norm_placement"),
    "norm": values(TransformerConfig, "norm"),
    "residual": (True, False),
    "positions": values(TransformerConfig, "positions"),
    "feedforward": values(TransformerConfig, "feedforward"),
    "kind": (*product(ARCHITECTURES, ("tokens",)), *READERS, *product(ARCHITECTURES, ("none",))),
    "key_value_heads": (None, 1),
}
SHARED: Axes = {"cell": values(RecurrentShape, "cell"), "layers": (1, 2), "bidirectional": (True, False)}
TIED: Axes = {"tie_embeddings": (True, False)}
ATTENTIONAL: Axes = {"name": ("bahdanau", "luong"), **SHARED, "similarity": tuple(SIMILARITIES), **TIED}
FIXED: Axes = {"name": ("seq2seq",), **SHARED, **TIED}


def transformer(choice: Choice) -> NetworkConfig:
    """Small distinct sizes: 2 heads of width 6, vocabulary 13."""
    named = dict(zip(TRANSFORMER, choice, strict=True))
    named["architecture"], named["head"] = named.pop("kind")
    sizes = {"vocabulary": 13, "width": 12, "heads": 2, "layers": 2, "feedforward_width": 10, "max_positions": 23}
    labels = {"labels": ("a", "b", "c")} if named["head"] == "labels" else {}
    return TransformerConfig(dropout=0.1, **sizes, **labels, **named)


def recurrent(axes: Axes, choice: Choice) -> NetworkConfig:
    """Small distinct sizes: width 5, embeddings of 3, vocabulary 13."""
    named = dict(zip(axes, choice, strict=True))
    return NETWORKS[named["name"]].config(vocabulary=13, width=5, embedding_width=3, dropout=0.1, **named)


def covering(axes: Axes, most: int) -> list[Choice]:
    """The choices, of some drawn at a time, that add most pairs of values not seen together yet; then single values."""
    draw, columns = Random(0), list(axes.values())
    missing = all_pairs(axes)
    unseen = {(at, value) for at, column in enumerate(columns) for value in column}
    chosen: list[Choice] = []
    while missing and len(chosen) < most:
        some = [tuple(draw.choice(column) for column in columns) for _ in range(200)]
        best = max(some, key=lambda one: (len(unseen & set(enumerate(one))), len(missing & pairs_of(one))))
        unseen -= set(enumerate(best))
        missing -= pairs_of(best)
        chosen.append(best)
    return chosen


def all_pairs(axes: Axes) -> set[tuple[tuple[int, object], tuple[int, object]]]:
    return set(
        chain.from_iterable(
            product(((one, first) for first in firsts), ((other, second) for second in seconds))
            for (one, firsts), (other, seconds) in combinations(enumerate(axes.values()), 2)
        )
    )


def pairs_of(choice: Choice) -> set[tuple[tuple[int, object], tuple[int, object]]]:
    return set(combinations(enumerate(choice), 2))


COVERING: list[tuple[Axes, list[Choice]]] = [
    (TRANSFORMER, covering(TRANSFORMER, MOST)),
    (ATTENTIONAL, covering(ATTENTIONAL, 2 * MOST)),
    (FIXED, covering(FIXED, MOST)),
]


def config(axes: Axes, choice: Choice) -> NetworkConfig:
    return transformer(choice) if axes is TRANSFORMER else recurrent(axes, choice)


def whole_product() -> Iterator[tuple[Axes, Choice]]:
    """All of them; of Transformers all combinations of all axes but the last, key/value heads, which alternates."""
    *six, shared = TRANSFORMER.values()
    yield from ((TRANSFORMER, (*choice, shared[index % len(shared)])) for index, choice in enumerate(product(*six)))
    for axes in (ATTENTIONAL, FIXED):
        yield from ((axes, choice) for choice in product(*axes.values()))


def named(case: tuple[Axes, Choice]) -> str:
    parts = chain.from_iterable(part if isinstance(part, tuple) else (part,) for part in case[1])
    return "-".join("all" if part is None else str(part) for part in parts)
