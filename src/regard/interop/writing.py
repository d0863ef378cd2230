"""Regard's model as a folder that `transformers` and the engines that read its files load."""

import json
from pathlib import Path

import torch
from tokenizers.processors import TemplateProcessing

from regard.data.sentinels import SENTINELS
from regard.files import write_json, write_text
from regard.interop.generation_config import GENERATION, to_generation_config
from regard.interop.huggingface import fitting_family, write_model
from regard.interop.sentences import write_sentences
from regard.models.config import transformer_config
from regard.models.families import FAMILIES
from regard.models.lora import merged_state
from regard.models.network import Network
from regard.tasks.decoding_table import DecodingTable
from regard.tasks.generation import Generation
from regard.tasks.language_modelling import LanguageModellingTable
from regard.tasks.sentence_embedding import SentenceEmbeddingTable
from regard.tasks.task import Loaded
from regard.tasks.task_table import TaskTable
from regard.tasks.text_to_text import TextToTextTable
from regard.text.chat_template import source_of
from regard.text.kept_settings import write_kept_settings
from regard.text.pretrained import PretrainedTokenizer
from regard.text.tokenizer import Tokenizer, parse_engine

ENCODERS = ("masked", "classification", "question_answering", "sentence_embedding")
"""Tasks whose texts stand between two special tokens."""


def write_folder(folder: Path, model: Loaded) -> str:
    """Weights, config, tokenizer and generation config; returns the name of the family it now is."""
    module, tokenizer, task = with_segments(model.module), model.tokenizer, model.task.options
    family = fitting_family(module, transformer_config(module.config).family)
    special_tokens = _special_tokens(tokenizer, task)
    ids: dict[str, int | None] = {f"{role}_token_id": special_tokens.get(role) for role in ("pad", "bos", "eos")}
    if module.config.reads_source:
        ids["decoder_start_token_id"] = tokenizer.bos_id
    write_model(folder, module, family, ids)
    write_text(folder / "tokenizer.json", _tokenizer_json(tokenizer, task, reads_source=module.config.reads_source))
    names = {f"{role}_token": tokenizer.token_text(token) for role, token in special_tokens.items()}
    settings: dict[str, object] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        **names,
    }
    if module.config.context is not None:
        settings["model_max_length"] = module.config.context
    write_json(folder / "tokenizer_config.json", settings)
    kept = tokenizer.settings if isinstance(tokenizer, PretrainedTokenizer) else {}
    write_kept_settings(folder, {"chat_template": source_of(tokenizer), **kept})
    if module.config.outputs == "tokens":
        write_json(folder / GENERATION, to_generation_config(_decoding(model), ids))
    if isinstance(task, SentenceEmbeddingTable):
        write_sentences(folder, transformer_config(module.config).width, task)
    return family.name


def _decoding(model: Loaded) -> DecodingTable:
    """How it answers, with every token that ends an answer: of a chat also what its template has."""
    ends = model.task.endings(model) if isinstance(model.task, Generation) else ()
    return model.decoding.model_copy(update={"eos_ids": ends}) if len(ends) > 1 else model.decoding


def with_segments(module: Network) -> Network:
    """The same encoder with segments that add nothing, where it tells none apart: each BERT has some."""
    config = transformer_config(module.config)
    family = FAMILIES.get(config.family or "")
    if config.decodes or config.segments or (family is not None and not family.shape.get("segments")):
        return module
    with torch.device("meta"):
        wider = config.model_copy(update={"segments": 2}).build()
    tensors = merged_state(module)
    nothing = module.embedding.weight.new_zeros(wider.state_dict()["segments.weight"].shape)
    wider.load_state_dict({**tensors, "segments.weight": nothing}, assign=True)
    return wider.train(module.training)


def _special_tokens(tokenizer: Tokenizer, task: TaskTable) -> dict[str, int]:
    """The special ids there are, by what they are for."""
    if isinstance(tokenizer, PretrainedTokenizer):
        known = tokenizer.special_tokens.known()
        starts = isinstance(task, TextToTextTable) and known.get("bos") == known.get("pad")
        return {role: token for role, token in known.items() if not (role == "bos" and starts)}
    found = {role: getattr(tokenizer, f"{role}_id") for role in ("pad", "bos", "eos", "unk")}
    if tokenizer.mask in tokenizer.special_ids:
        found["mask"] = tokenizer.mask_id
    between = {"cls": tokenizer.bos_id, "sep": tokenizer.eos_id} if task.name in ENCODERS else {}
    return {**found, **between}


def _tokenizer_json(tokenizer: Tokenizer, task: TaskTable, *, reads_source: bool) -> str:
    """The tokenizer, with the template by which Hugging Face's puts the special tokens where Regard does."""
    text = tokenizer.to_json()
    if isinstance(tokenizer, PretrainedTokenizer):
        return text
    engine, _ = parse_engine(text)
    begin, end = (tokenizer.token_text(token) for token in (tokenizer.bos_id, tokenizer.eos_id))
    single, pair = "$A", None
    if task.name in ENCODERS:
        single, pair = f"{begin} $A {end}", f"{begin}:0 $A:0 {end}:0 $B:1 {end}:1"
    elif reads_source:
        single = f"$A {end}"
    elif isinstance(task, TextToTextTable):
        single = f"$A {begin}"
    elif isinstance(task, LanguageModellingTable) and task.begin == "bos":
        single = f"{begin} $A"
    if single != "$A":
        special_tokens = [(begin, tokenizer.bos_id), (end, tokenizer.eos_id)]
        engine.post_processor = TemplateProcessing(single=single, pair=pair, special_tokens=special_tokens)
    record = json.loads(engine.to_str())
    for token in record["added_tokens"]:  # blanks before what is hidden are part of it
        token["lstrip"] = token["content"] in (tokenizer.mask, *SENTINELS)
    return json.dumps(record, indent=2, ensure_ascii=False)
