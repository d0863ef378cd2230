"""Models of each kind that were never trained: quick to make, and with answers to everything."""

from typing import Any

import regard
from regard.tasks.decoding_table import DecodingTable
from regard.tasks.task import TASKS
from regard.text.characters import CharacterTokenizer
from regard.text.tokenizer import Tokenizer

LETTERS = "the cat sat on a mat: 3 mars 2021"
KINDS: dict[str, dict[str, Any]] = {
    "translation": {"architecture": "encoder_decoder"},
    "language_modelling": {"architecture": "decoder"},
    "classification": {"architecture": "encoder", "head": "labels", "labels": ("good", "bad", "so-so")},
    "masked": {"architecture": "encoder"},
    "sentence_embedding": {"architecture": "encoder", "head": "none"},
}


def small_model(task: str, **shape: Any) -> regard.Model:
    """A model for a task, with random weights."""
    tokenizer = CharacterTokenizer.train([LETTERS], 60)
    tokenizer = tokenizer.with_specials([Tokenizer.mask]) if task == "masked" else tokenizer
    config = regard.TransformerConfig(
        **{"width": 12, "heads": 3, "layers": 2, "feedforward_width": 7, **KINDS[task], **shape},
        vocabulary=tokenizer.size,
    )
    module = regard.Transformer(config).eval()
    return regard.Model(module, tokenizer, TASKS[task](), DecodingTable(max_new_tokens=5))
