"""The ladder: five networks on one task and one budget, each at the learning rate that is best for it of three.

    rnn          Elman 1990                    a fixed vector of the whole source
    lstm         Hochreiter, Schmidhuber 1997  the same, behind three gates and a cell
    gru          Cho et al. 2014               the same, behind two gates
    attention    Bahdanau et al. 2014          the GRU, which looks at all of the source before each token
    transformer  Vaswani et al. 2017           attention alone

The task is `reverse`: the letters of a row, last first, one token each. All rungs take the same batches in the same
order: as many steps over as many tokens.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from regard.compare.climb import Entry
from regard.data.corpus import Pair, corpus
from regard.errors import InputError, choose
from regard.tasks.recipe import Recipe, change_recipe

CORPUS = "reverse"
LETTERS: Mapping[str, int] = MappingProxyType({"symbols": 26, "shortest": 2, "longest": 20, "held_out": 1500})
WIDTH, LETTER_WIDTH = 128, 32
"""Of hidden vectors, and of a letter's in the recurrent networks: the Transformer's letters are as wide as all else."""
TABLES: Mapping[str, Any] = MappingProxyType(
    {
        "task": "translation",
        "tokenizer": {"kind": "wordpiece", "size": 64},
        "training": {
            "steps": 1500,
            "batch_tokens": 2048,
            "warmup": 100,
            "schedule": "cosine",
            "label_smoothing": 0.0,
            "evaluate_every": 500,
            "save_every": 500,
            "compile": False,
        },
        "decoding": {"max_new_tokens": 64},
    }
)
MODELS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "rnn": {"name": "seq2seq", "cell": "rnn", "embedding_width": LETTER_WIDTH},
        "lstm": {"name": "seq2seq", "cell": "lstm", "embedding_width": LETTER_WIDTH},
        "gru": {"name": "seq2seq", "cell": "gru", "embedding_width": LETTER_WIDTH},
        "attention": {"name": "bahdanau", "cell": "gru", "embedding_width": LETTER_WIDTH},
        "transformer": {
            "name": "transformer",
            "layers": 2,
            "heads": 4,
            "feedforward_width": 8 * WIDTH,
            "norm_placement": "pre",
        },
    }
)
RATES = (1e-3, 2e-3, 4e-3)
"""What each rung was tried with: `regard compare rates`."""
BEST: Mapping[str, float] = MappingProxyType(
    {"rnn": 2e-3, "lstm": 4e-3, "gru": 4e-3, "attention": 2e-3, "transformer": 4e-3}
)
"""The best of them by exact match on validation data."""
NAMES: Mapping[str, str] = MappingProxyType(
    {"rnn": "RNN", "lstm": "LSTM", "gru": "GRU", "attention": "GRU + attention", "transformer": "Transformer"}
)
"""What people read."""


def rung(name: str, rate: float | None = None, changes: list[str] | None = None) -> Entry:
    """One rung, at its best rate or at another, with `changes` as `--set` writes them."""
    if name not in MODELS:
        raise InputError(f"there is no rung {name!r}", choose(name, MODELS))
    tables = {
        **TABLES,
        "data": {"corpus": CORPUS, "options": dict(LETTERS)},
        "model": {"width": WIDTH, "dropout": 0.0, **MODELS[name]},
        "training": {**TABLES["training"], "learning_rate": rate or BEST[name]},
    }
    return Entry(name, change_recipe(Recipe.model_validate(tables), changes))


def pairs_of(length: int, count: int, options: Mapping[str, int] = LETTERS) -> list[Pair]:
    """Pairs of the ladder's task whose rows have this many letters."""
    rows = corpus(CORPUS, {**options, "shortest": length, "longest": length, "held_out": 1})
    return [rows.example("train", index) for index in range(count)]


def needed(place: int, length: int) -> int:
    """Which letter of the source the letter at this place of the target is."""
    return length - 1 - place


def distance(place: int, length: int) -> int:
    """Tokens that are read and written from that letter of the source to this one of the target.

    The rest of the source and its end are read, then `<bos>` and the letters before this one.
    """
    return (length - needed(place, length)) + (place + 1)
