"""Somebody else's model as Regard's: the network, its tokenizer, what it is for and how it answers.

a folder    config.json, safetensors and a tokenizer, as Hugging Face's transformers writes them
a .bin      llama2.c's model, with its tokenizer.bin beside it or named like it
"""

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from regard.blocks.config import MOST
from regard.errors import FileError
from regard.files import read_json
from regard.interop.generation_config import read_generation_config, read_start
from regard.interop.huggingface import family_of, read_config, read_model
from regard.interop.llama2c import read_llama2c, read_llama2c_tokenizer
from regard.interop.sentences import read_sentences
from regard.models.config import TransformerConfig, transformer_config
from regard.models.network import Network
from regard.tasks.decoding_table import DecodingTable
from regard.tasks.task_table import TaskTable, read_task
from regard.text.pretrained import PretrainedTokenizer, open_pretrained

TASK_OF_HEAD = {
    "masked": "masked",
    "labels": "classification",
    "spans": "question_answering",
    "none": "sentence_embedding",
}
"""What a model is for, where its head says so."""


class Opened(NamedTuple):
    """What was found: the network, how it reads, what it is for and how it answers."""

    module: Network
    tokenizer: PretrainedTokenizer
    task: TaskTable
    decoding: DecodingTable


def open_folder(folder: Path) -> Opened:
    """The model in a folder of Hugging Face's kind."""
    family = family_of(folder).name
    read_config(folder)  # first: what no family has is the reason, whatever else is missing
    tokenizer = open_pretrained(folder)  # then: it is small, and what is missing beside large weights is soon said
    module = read_model(folder)
    stated = _of_stated_length(transformer_config(module.config), folder)
    module.config = config = stated.model_copy(update={"family": family})
    if config.reads_source:
        start = read_start(folder)
        if start is not None and start >= config.vocabulary:
            raise FileError(
                f"{folder} has its decoder begin with token {start}, and there are {config.vocabulary:,}",
                "copy its config.json and generation_config.json again",
            )
        begin = tokenizer.special_tokens.pad if start is None else start
        tokenizer = tokenizer.with_roles(replace(tokenizer.special_tokens, bos=begin))
    _check_size(tokenizer, config, folder)
    writes = config.outputs == "tokens"
    decoding = read_generation_config(folder, config, tokenizer.special_tokens.eos) if writes else DecodingTable()
    tokenizer = tokenizer.of_size(config.vocabulary)
    return Opened(module, tokenizer, read_task(_task(config, tokenizer, folder)), decoding)


def open_llama2c(path: Path) -> Opened:
    """The model in a llama2.c `.bin`; `stories.bin` has its tokenizer in tokenizer.bin or stories.tokenizer.bin."""
    config, tensors = read_llama2c(path)
    config = config.model_copy(update={"family": "llama"})
    beside = [path.with_name(f"{path.stem}.tokenizer.bin"), path.with_name("tokenizer.bin")]
    beside += sorted(path.parent.glob("tok*.bin"))
    found = next((one for one in beside if one.is_file()), None)
    if found is None:
        raise FileError(f"{path} has no tokenizer.bin beside it", "put llama2.c's tokenizer.bin of this model there")
    tokenizer = read_llama2c_tokenizer(found, config.vocabulary)
    with torch.device("meta"):
        module = config.build()
    module.load_state_dict(tensors, assign=True)
    return Opened(module.eval(), tokenizer, read_task({"name": "language_modelling"}), DecodingTable())


def _of_stated_length(config: TransformerConfig, folder: Path) -> TransformerConfig:
    """The same, trained on as many tokens at once as it has positions, and as its tokenizer_config.json lets in."""
    path = folder / "tokenizer_config.json"
    stated = [config.max_positions] if "max_positions" in family_of(folder).keys else []
    longest = read_json(path, "copy it again").get("model_max_length") if path.is_file() else None
    if isinstance(longest, int) and 1 <= longest <= MOST:  # 10³⁰ is written where nobody knows
        stated.append(longest)
    return config.model_copy(update={"trained_length": min(stated, default=None)})


def _check_size(tokenizer: PretrainedTokenizer, config: TransformerConfig, folder: Path) -> None:
    if tokenizer.size > config.vocabulary:
        raise FileError(
            f"{folder} has a tokenizer of {tokenizer.size} entries and a model of {config.vocabulary}",
            "take both from the same place",
        )


def _task(config: TransformerConfig, tokenizer: PretrainedTokenizer, folder: Path) -> dict[str, Any]:
    """The [task] table."""
    if config.head in TASK_OF_HEAD:
        more = read_sentences(folder, config.max_positions) if config.head == "none" else {}
        return {"name": TASK_OF_HEAD[config.head], **more}
    if config.reads_source:
        return {"name": "translation"}
    begun = tokenizer.apply_template([])[0][:1] == [tokenizer.special_tokens.bos]
    return {"name": "language_modelling", "begin": "bos" if begun else "none"}
