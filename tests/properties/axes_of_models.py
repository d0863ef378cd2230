"""Every value of every axis that networks are configured along, and small sets of configs that cover them."""

from collections.abc import Iterator
from itertools import chain, combinations, product
from random import Random
from typing import get_args

from regard.attention.mechanism import MECHANISMS
from regard.attention.similarity import SIMILARITIES
from regard.errors import ConfigError
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
    "residual": (
        *product((True, False), values(TransformerConfig, "norm_placement")),
        *(("reversible", "pre"), ("reversible", "sandwich")),
    ),
    "norm": values(TransformerConfig, "norm"),
    "positions": values(TransformerConfig, "positions"),
    "feedforward": values(TransformerConfig, "feedforward"),
    "kind": (*product(ARCHITECTURES, ("tokens",)), *READERS, *product(ARCHITECTURES, ("none",))),
    "key_value_heads": (None, 1),
}
SHARED: Axes = {"cell": values(RecurrentShape, "cell"), "layers": (1, 2), "bidirectional": (True, False)}
TIED: Axes = {"tie_embeddings": (True, False)}
ATTENTIONAL: Axes = {"name": ("bahdanau", "luong"), **SHARED, "similarity": tuple(SIMILARITIES), **TIED}
MECHANISM: Axes = {
    "attention": tuple({"name": name, **sample} for name, shape in MECHANISMS.items() for sample in shape.samples),
    "kind": ("encoder_decoder", "decoder", "encoder", "encoder in front of exact attention"),
    "cross": (False, True),
    "positions": ("sinusoidal", "rotary", "alibi"),
    "norm_placement": ("pre", "post"),
    "key_value_heads": (None, 1),
}
FIXED: Axes = {"name": ("seq2seq",), **SHARED, **TIED}


def transformer(choice: Choice) -> NetworkConfig:
    """Small distinct sizes: 2 heads of width 6, vocabulary 13."""
    named = dict(zip(TRANSFORMER, choice, strict=True))
    named["architecture"], named["head"] = named.pop("kind")
    named["residual"], named["norm_placement"] = named["residual"]
    if named["norm"] == "none":
        del named["norm_placement"]  # which it would have no effect on
    sizes = {"vocabulary": 13, "width": 12, "heads": 2, "layers": 2, "feedforward_width": 10, "max_positions": 23}
    labels = {"labels": ("a", "b", "c")} if named["head"] == "labels" else {}
    return TransformerConfig(dropout=0.1, **sizes, **labels, **named)


def recurrent(axes: Axes, choice: Choice) -> NetworkConfig:
    """Small distinct sizes: width 5, embeddings of 3, vocabulary 13."""
    named = dict(zip(axes, choice, strict=True))
    return NETWORKS[named["name"]].config(vocabulary=13, width=5, embedding_width=3, dropout=0.1, **named)


def mechanism(choice: Choice) -> NetworkConfig | None:
    """A Transformer that attends so, of 2 heads of width 6; None where it cannot be."""
    named = dict(zip(MECHANISM, choice, strict=True))
    attention, kind, cross = named.pop("attention"), named.pop("kind"), named.pop("cross")
    if kind == "encoder in front of exact attention":
        named |= {"architecture": "encoder_decoder", "encoder_attention": attention}
    else:
        named |= {"architecture": kind, "attention": attention}
    if cross:
        named["cross_attention"] = attention
    sizes = {"vocabulary": 13, "width": 12, "heads": 2, "layers": 2, "feedforward_width": 10, "dropout": 0.1}
    if cross and named["architecture"] != "encoder_decoder":
        return None
    try:
        return TransformerConfig(**sizes, **named)
    except ConfigError:
        return None


def mechanism_choices(whole: bool) -> list[Choice]:
    """Every mechanism in every place it can be; unless `whole`, each once, in the place that asks most of it."""
    found: list[Choice] = []
    firsts = [{"name": name, **shape.samples[0]} for name, shape in MECHANISMS.items()]
    for attention in MECHANISM["attention"] if whole else firsts:
        every = product([attention], *list(MECHANISM.values())[1:])
        able = [choice for choice in every if mechanism(choice) is not None]
        asked = sorted(able, key=lambda choice: (choice[1] != "encoder_decoder", not choice[2]))
        found += able if whole else asked[:1]
    return found


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
    if axes is MECHANISM:
        described = mechanism(choice)
        assert described is not None
        return described
    return transformer(choice) if axes is TRANSFORMER else recurrent(axes, choice)


def whole_product() -> Iterator[tuple[Axes, Choice]]:
    """All of them, mechanisms in every place they can be; of Transformers all combinations of all axes but the last,
    key/value heads, which alternates."""
    *most, shared = TRANSFORMER.values()
    yield from ((TRANSFORMER, (*choice, shared[index % len(shared)])) for index, choice in enumerate(product(*most)))
    for axes in (ATTENTIONAL, FIXED):
        yield from ((axes, choice) for choice in product(*axes.values()))
    yield from ((MECHANISM, choice) for choice in mechanism_choices(whole=True))


def named(case: tuple[Axes, Choice]) -> str:
    parts = chain.from_iterable(
        part if isinstance(part, tuple) else part.values() if isinstance(part, dict) else (part,) for part in case[1]
    )
    return "-".join("all" if part is None else str(part) for part in parts)
