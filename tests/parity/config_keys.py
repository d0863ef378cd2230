"""Every key of a config.json that transformers reads, with other values for each, and what both sides make of them."""

import importlib
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import transformers
from tiny_peers import BERT, GEMMA, GEMMA3, GPT, LLAMA, LLAMA3, MARIAN, QWEN3, T5, TURNS, Peer, cross
from torch import Tensor, nn

from regard.data.batching import Inputs, Padded
from regard.errors import RegardError
from regard.interop.huggingface import read_model

BERT = BERT | {"max_position_embeddings": 64}
T5 = T5 | {
    "num_decoder_layers": 2,
    "decoder_start_token_id": 0,
}  # as many as the encoder's: transformers' cache is as deep as that
MARIAN = MARIAN | {"decoder_layers": 2}
GATED = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
SLIDING = {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 1}
PEERS = {
    "bert masked": Peer("BertConfig", "BertForMaskedLM", BERT),
    "bert labels": Peer("BertConfig", "BertForSequenceClassification", BERT),
    "roberta masked": Peer("RobertaConfig", "RobertaForMaskedLM", BERT),
    "roberta labels": Peer("RobertaConfig", "RobertaForSequenceClassification", BERT),
    "gpt": Peer("GPT2Config", "GPT2LMHeadModel", GPT),
    "t5": Peer("T5Config", "T5ForConditionalGeneration", T5),
    "t5 1.1": Peer("T5Config", "T5ForConditionalGeneration", T5 | GATED),
    "llama": Peer("LlamaConfig", "LlamaForCausalLM", LLAMA),
    "llama 3": Peer("LlamaConfig", "LlamaForCausalLM", LLAMA | {"rope_parameters": LLAMA3}),
    "mistral": Peer("MistralConfig", "MistralForCausalLM", LLAMA | {"sliding_window": 3}),
    "qwen2": Peer("Qwen2Config", "Qwen2ForCausalLM", LLAMA | SLIDING),
    "qwen3": Peer("Qwen3Config", "Qwen3ForCausalLM", QWEN3 | SLIDING),
    "gemma2": Peer("Gemma2Config", "Gemma2ForCausalLM", GEMMA),
    "gemma3": Peer("Gemma3TextConfig", "Gemma3ForCausalLM", GEMMA3 | {"rope_parameters": TURNS}),
    "marian": Peer("MarianConfig", "MarianMTModel", MARIAN),
}
READ = re.compile(r"""config\.([a-z][a-z_0-9]*)\b(?!\()|getattr\([a-z_.]*config[a-z_()]*, "([a-z_0-9]+)\"""")
"""How source code asks a config for a key."""
SHARED = ("masking_utils", "cache_utils", "modeling_layers", "modeling_rope_utils")
ALSO = ("rope_scaling", "rope_theta", "partial_rotary_factor", "position_embedding_type", "layer_types", "is_causal")
TOLD = ("architectures", "dtype", "torch_dtype", "model_type", "transformers_version", "id2label", "label2id")
"""What a model is called, its precision, and the names of classes: other tests'."""
WORDS = ("gelu", "relu", "silu", "swish", "gelu_new", "gelu_pytorch_tanh", "quick_gelu", "tanh", "relative_key")
WORDS += ("gated-relu", "gated-silu", "gated-gelu", "gated-gelu_new")
ROPES = (
    {"rope_type": "linear", "factor": 2.0},
    {"rope_type": "dynamic", "factor": 2.0},
    {"rope_type": "yarn", "factor": 2.0},
    {"rope_type": "default", "rope_theta": 77.0},
    {"rope_type": "default", "partial_rotary_factor": 0.5},
    {"type": "linear", "factor": 3.0},
)
PROMPT = [7, 11, 13, 17, 19, 23, 29, 31, 37, 41]
NEW = 4
"""Tokens that are generated, so that a cache that forgets is noticed."""


def keys(peer: Peer, values: dict[str, Any]) -> list[str]:
    """What transformers writes of a config, what its code asks one for, and other names of both."""
    config, model = getattr(transformers, peer.config), getattr(transformers, peer.model)
    modules = [inspect.getmodule(model), *(importlib.import_module(f"transformers.{name}") for name in SHARED)]
    asked = {key for one in modules for found in READ.findall(inspect.getsource(one)) for key in found if key}
    said = {*values, *asked, *ALSO, *config.attribute_map}
    return sorted(key for key in said - {*TOLD} if not _is_code(getattr(config, key, None)))


def _is_code(value: Any) -> bool:
    return callable(value) or isinstance(value, property)


def others(key: str, values: dict[str, Any]) -> Iterator[Any]:
    """Other values that a key may have, by the kind of the one it has."""
    value = values.get(key)
    if "rope" in key and not isinstance(value, float):
        yield from ROPES
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (value + 1, 1, 3)
    elif isinstance(value, float):
        yield from (0.5, 77.0)
    elif isinstance(value, str) or "act" in key:
        yield from (word for word in WORDS if word != value)
    else:
        yield from (True, False, 2, 6, 0.5, ["sliding_attention"] * 3, {"0": {"sliding_window": 2}})


def changed(folder: Path, into: Path, key: str, value: Any) -> Path:
    """The same folder with a key of another value."""
    into.mkdir(exist_ok=True)
    if not (into / "model.safetensors").exists():
        (into / "model.safetensors").symlink_to(folder / "model.safetensors")
    said = json.loads((folder / "config.json").read_text()) | {key: value}
    (into / "config.json").write_text(json.dumps(said))
    return into


@torch.no_grad()
def asked_transformers(peer: Peer, folder: Path) -> tuple[list[list[int]] | None, Tensor] | None:
    """What was generated, if anything, and the logits in float64; None where transformers cannot use the folder."""
    try:
        model, told = getattr(transformers, peer.model).from_pretrained(
            folder, dtype=torch.float64, attn_implementation="eager", output_loading_info=True
        )
        if told["missing_keys"] or told["mismatched_keys"] or told["error_msgs"]:
            return None  # weights drawn anew
        return _outputs(peer, model.eval())
    except Exception:  # whatever it raises of a config that it cannot use
        return None


def _outputs(peer: Peer, model: nn.Module) -> tuple[list[list[int]] | None, Tensor]:
    ids = torch.tensor([PROMPT])
    if peer.model.endswith(("MaskedLM", "Classification")):
        return None, model(ids).logits
    how = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False, "num_beams": 1}
    made = model.generate(
        ids, attention_mask=torch.ones_like(ids), **how, output_logits=True, return_dict_in_generate=True
    )
    return made.sequences.tolist(), torch.stack(made.logits, dim=1).double()  # kept in float32


@torch.no_grad()
def asked_regard(peer: Peer, folder: Path, written: list[list[int]] | None) -> Tensor | None:
    """The same logits; None where Regard refuses the folder."""
    try:
        model = read_model(folder).double()
    except RegardError:
        return None
    texts = Padded.of([PROMPT])
    if written is None:
        return model(Inputs(texts))
    tokens = Padded.of([row[:-1] for row in written])
    return model(Inputs(tokens, texts) if cross(peer) else Inputs(tokens))[:, -NEW:]
