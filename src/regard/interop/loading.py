"""Somebody else's model as one of ours: the network, its tokenizer, and a recipe that says what it is for.

a folder    config.json, safetensors and a tokenizer, as Hugging Face's transformers writes them
a .bin      llama2.c's model, with its tokenizer.bin beside it or named like it
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from regard.errors import ConfigError, FileError
from regard.files import read_json
from regard.interop.huggingface import read_marks, read_model
from regard.interop.llama2c import read_llama2c, read_llama2c_tokenizer
from regard.models.config import TransformerConfig
from regard.models.transformer import Transformer
from regard.tasks.recipe import DecodingTable, ModelTable, Recipe, TaskTable, TokenizerTable
from regard.text.foreign import ForeignTokenizer, open_foreign

TASK_OF_HEAD = {"masked": "masked", "labels": "classification", "spans": "questions", "none": "vectors"}
"""What a model is for, where its head says so."""
FOREIGN = TokenizerTable(kind="foreign")

Loaded = tuple[Transformer, ForeignTokenizer, Recipe]


def open_folder(folder: Path) -> Loaded:
    """The model in a folder of Hugging Face's kind."""
    tokenizer = open_foreign(folder)  # first: it is small, and what is missing beside large weights is soon said
    module = read_model(folder)
    start = read_marks(folder).get("decoder_start_token_id")
    if module.config.architecture == "encoder-decoder":
        begin = tokenizer.marks.pad if start is None else start
        tokenizer = ForeignTokenizer(tokenizer._engine, tokenizer.rule, replace(tokenizer.marks, bos=begin))
    _check_size(tokenizer, module.config, folder)
    decoding = _decoding(folder / "generation_config.json")
    tokenizer = tokenizer.of_size(module.config.vocabulary)
    return module, tokenizer, _recipe(module.config, _task(module.config, tokenizer, folder), decoding)


def open_llama2c(path: Path) -> Loaded:
    """The model in a llama2.c `.bin`; `stories.bin` has its tokenizer in tokenizer.bin or stories.tokenizer.bin."""
    config, tensors = read_llama2c(path)
    beside = [path.with_name(f"{path.stem}.tokenizer.bin"), path.with_name("tokenizer.bin")]
    beside += sorted(path.parent.glob("tok*.bin"))
    found = next((one for one in beside if one.is_file()), None)
    if found is None:
        raise FileError(f"{path} has no tokenizer.bin beside it", "put llama2.c's tokenizer.bin of this model there")
    tokenizer = read_llama2c_tokenizer(found, config.vocabulary)
    with torch.device("meta"):
        module = Transformer(config)
    module.load_state_dict(tensors, assign=True)
    return module.eval(), tokenizer, _recipe(config, {"name": "language"}, DecodingTable())


def _check_size(tokenizer: ForeignTokenizer, config: TransformerConfig, folder: Path) -> None:
    if tokenizer.size > config.vocabulary:
        raise FileError(
            f"{folder} has a tokenizer of {tokenizer.size} entries and a model of {config.vocabulary}",
            "take both from the same place",
        )


def _task(config: TransformerConfig, tokenizer: ForeignTokenizer, folder: Path) -> dict[str, Any]:
    """The [task] table."""
    if config.head in TASK_OF_HEAD:
        return {"name": TASK_OF_HEAD[config.head], **(_pooling(folder) if config.head == "none" else {})}
    if config.architecture == "encoder-decoder":
        return {"name": "translation"}
    framed = tokenizer.framed([])[0]
    return {"name": "language", "begin": "bos" if framed and framed[0] == tokenizer.marks.bos else "none"}


def _pooling(folder: Path) -> dict[str, str]:
    """What stands for a whole text, as sentence-transformers writes it down; the mean if nothing does."""
    path = folder / "1_Pooling" / "config.json"
    said = read_json(path, "copy it again") if path.is_file() else {}
    return {"pooling": "first" if said.get("pooling_mode_cls_token") else "mean"}


def _decoding(path: Path) -> DecodingTable:
    """How the model answers, of what its generation_config.json says."""
    said = read_json(path, "copy it again") if path.is_file() else {}
    kept: dict[str, Any] = {}
    beams = said.get("num_beams")
    if said.get("do_sample"):
        kept = {"strategy": "sample", **{key: said.get(key) for key in ("temperature", "top_k", "top_p")}}
        kept["top_k"] = kept["top_k"] or None  # 0 is theirs for all
    elif beams not in (None, 1):
        kept = {"strategy": "beam", "beams": beams, "length_penalty": said.get("length_penalty")}
    if said.get("max_new_tokens"):
        kept["max_new_tokens"] = said["max_new_tokens"]
    try:
        return DecodingTable.model_validate(kept)
    except ConfigError as error:
        raise FileError(f"{path} cannot be used: {error.problem}", error.remedy) from error


def _recipe(config: TransformerConfig, task: dict[str, Any], decoding: DecodingTable) -> Recipe:
    shape = config.model_dump(exclude={"vocabulary", "labels"})
    return Recipe(
        task=TaskTable.model_validate(task),
        tokenizer=FOREIGN,
        model=ModelTable.model_validate(shape),
        decoding=decoding,
    )
