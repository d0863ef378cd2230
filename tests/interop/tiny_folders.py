"""Whole model folders as `transformers` writes them: a tiny model of each kind with a tokenizer trained for it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pretrained_kinds
from tiny_peers import BERT, GPT, LLAMA, LLAMA3, MARIAN, T5, Peer
from tokenizers import Tokenizer as Engine

SPARE = 3
"""Rows of the tables that no token has: tables are often rounded up."""


@dataclass(frozen=True)
class Kind:
    """A tiny model, the tokenizer that stands beside it, and what it is for."""

    peer: Peer
    tokenizer: str
    task: str
    auto: str
    """The class of transformers that loads whatever the folder holds."""


def _kind(config: str, model: str, values: Mapping[str, Any], tokenizer: str, task: str, auto: str) -> Kind:
    return Kind(Peer(f"{config}Config", f"{config}{model}", dict(values)), tokenizer, task, f"AutoModel{auto}")


POSITIONS = {"max_position_embeddings": 67}
FOLDERS = {
    "bert": _kind("Bert", "Model", BERT | POSITIONS, "wordpiece", "sentence_embedding", ""),
    "bert masked": _kind("Bert", "ForMaskedLM", BERT | POSITIONS, "wordpiece", "masked", "ForMaskedLM"),
    "roberta masked": _kind("Roberta", "ForMaskedLM", BERT | POSITIONS, "roberta", "masked", "ForMaskedLM"),
    "bert labels": _kind(
        "Bert",
        "ForSequenceClassification",
        BERT | POSITIONS | {"id2label": {"0": "good", "1": "bad", "2": "so-so"}},
        "wordpiece",
        "classification",
        "ForSequenceClassification",
    ),
    "roberta labels": _kind(
        "Roberta",
        "ForSequenceClassification",
        BERT | POSITIONS | {"num_labels": 5},
        "roberta",
        "classification",
        "ForSequenceClassification",
    ),
    "bert spans": _kind(
        "Bert", "ForQuestionAnswering", BERT | POSITIONS, "wordpiece", "question_answering", "ForQuestionAnswering"
    ),
    "roberta spans": _kind(
        "Roberta", "ForQuestionAnswering", BERT | POSITIONS, "roberta", "question_answering", "ForQuestionAnswering"
    ),
    "gpt": _kind("GPT2", "LMHeadModel", GPT, "byte-level", "language_modelling", "ForCausalLM"),
    "llama": _kind("Llama", "ForCausalLM", LLAMA, "byte-fallback", "language_modelling", "ForCausalLM"),
    "llama 3": _kind(
        "Llama", "ForCausalLM", LLAMA | {"rope_parameters": LLAMA3}, "split-bytes", "language_modelling", "ForCausalLM"
    ),
    "t5": _kind("T5", "ForConditionalGeneration", T5, "unigram", "translation", "ForSeq2SeqLM"),
    "marian": _kind("Marian", "MTModel", MARIAN, "unigram", "translation", "ForSeq2SeqLM"),
}


def write(name: str, folder: Path, **how: Any) -> Path:
    """The folder of that name, saved as people save one."""
    kind = FOLDERS[name]
    pretrained_kinds.write(kind.tokenizer, folder)
    vocabulary = Engine.from_file(str(folder / "tokenizer.json")).get_vocab()
    values = kind.peer.values | {"vocab_size": max(vocabulary.values()) + 1 + SPARE} | _ids(vocabulary)
    if kind.task == "translation":
        values |= {"decoder_start_token_id": vocabulary["<pad>"]}
    Peer(kind.peer.config, kind.peer.model, values).build().save_pretrained(folder, **how)
    return folder


def _ids(vocabulary: Mapping[str, int]) -> dict[str, int]:
    """What their config says of special tokens."""
    names = {
        "pad_token_id": ("<pad>", "[PAD]"),
        "bos_token_id": ("<s>", "<|begin_of_text|>", "<|endoftext|>"),
        "eos_token_id": ("</s>", "<|end_of_text|>", "<|endoftext|>"),
    }
    return {key: vocabulary[name] for key, known in names.items() for name in known if name in vocabulary}
