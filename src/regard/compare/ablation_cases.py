"""What the ablations train: one small network on rows of letters, and the same with one part taken away.

The task is `reverse`, which needs to know where a letter stands; `sort` beside it does not. An encoder–decoder is the
network, a decoder alone where layers are stacked deep. Every letter is one token, so that a permuted text is a
permutation of tokens.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from regard.compare.climb import Entry
from regard.models.unmasked import NAME, unmasked_known
from regard.tasks.recipe import Recipe

WIDTH, HEADS = 32, 4
LETTERS = {"symbols": 10, "shortest": 3, "longest": 5}
DECODER: Mapping[str, Any] = MappingProxyType({"architecture": "decoder", "norm_placement": "pre"})
CONDITIONS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "complete": DECODER,
        "without residuals": {**DECODER, "residual": False},
        "without norms": {"architecture": "decoder", "norm": "none"},
        "without both": {"architecture": "decoder", "norm": "none", "residual": False},
    }
)
"""Of the deep decoders; the first is what the others are compared with."""
COMPLETE = next(iter(CONDITIONS))


@dataclass(frozen=True)
class Budget:
    """How much is trained."""

    steps: int = 300
    """Of an encoder–decoder."""
    deep_steps: int = 400
    """Of a decoder."""
    depths: tuple[int, ...] = (2, 4, 8, 16)
    heads: tuple[int, ...] = (1, 2, 4, 8)
    held_out: int = 200
    """Rows to measure on."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Of the layers with so many heads."""
    head_widths: tuple[int, ...] = (4, 16, 64, 256)
    """Of the scores that are drawn."""


def translator(name: str, budget: Budget, shape: Mapping[str, Any] | None = None, corpus: str = "reverse") -> Entry:
    """An encoder–decoder; `shape` has what differs."""
    return Entry(name, _recipe(corpus, {"heads": HEADS, **(shape or {})}, budget.steps, budget.held_out))


def deep(condition: str, layers: int, budget: Budget) -> Entry:
    """A decoder of so many layers in one of the conditions."""
    name = f"decoder-{layers}-{condition.replace(' ', '-')}"
    return Entry(
        name,
        _recipe(
            "reverse", {"heads": HEADS, "layers": layers, **CONDITIONS[condition]}, budget.deep_steps, budget.held_out
        ),
    )


def unordered_decoder(budget: Budget) -> Entry:
    """The decoder of the fewest layers, without positions."""
    shape = {"heads": HEADS, "layers": budget.depths[0], "positions": "none", **DECODER}
    return Entry(
        f"decoder-{budget.depths[0]}-without-positions", _recipe("reverse", shape, budget.deep_steps, budget.held_out)
    )


def one_head(budget: Budget) -> Entry:
    """The encoder–decoder with one head, as wide as all of them."""
    return translator("one-head", budget, {"heads": 1})


def shallow(heads: int, seed: int, budget: Budget) -> Entry:
    """One layer that sorts, with so many heads of the same width together."""
    case = translator(f"sort-1-layer-{heads}-heads-{seed}", budget, {"layers": 1, "heads": heads}, "sort")
    training = case.recipe.training.model_copy(update={"seed": seed})
    return Entry(case.name, case.recipe.model_copy(update={"training": training}))


def complete(budget: Budget) -> Entry:
    """The encoder–decoder with everything."""
    return translator("complete", budget)


def unscaled(budget: Budget) -> Entry:
    """One head, whose scores are not divided by √d_k."""
    return translator("one-head-unscaled", budget, {"heads": 1, "similarity": "dot"})


def unmasked(budget: Budget) -> Entry:
    """Every token of the decoder sees the next."""
    with unmasked_known():
        return translator("without-causal-mask", budget, {"name": NAME})


def _recipe(corpus: str, shape: Mapping[str, Any], steps: int, held_out: int) -> Recipe:
    return Recipe.model_validate(
        {
            "task": "translation",
            "data": {"corpus": corpus, "options": LETTERS | {"held_out": held_out}},
            "tokenizer": {"kind": "bpe_words", "size": 64, "sample": 1000},
            "model": {"layers": 2, "width": WIDTH, "dropout": 0.0, **shape},
            "training": {
                "steps": steps,
                "batch_tokens": 512,
                "learning_rate": 3e-3,
                "warmup": 50,
                "schedule": "cosine",
                "label_smoothing": 0.0,
                "evaluate_every": 100,
                "save_every": 100,
                "device": "cpu",
            },
            "decoding": {"max_new_tokens": 16},
        }
    )
