"""Folders of other people with something wrong in them: how each is made of a good one, and a part of what is said."""

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

Act = Callable[[Path], object]
CONFIG, WEIGHTS, TOKENS = "config.json", "model.safetensors", "tokenizer.json"
INDEX = "model.safetensors.index.json"


@dataclass(frozen=True)
class Wrong:
    """A good folder's name, what is done to a copy of it, what loading says, and what `size` says."""

    good: str
    act: Act
    said: str
    size: str | None = None
    """None: its size can be told all the same."""


def config(**changes: Any) -> Act:
    def act(folder: Path) -> None:
        values = json.loads((folder / CONFIG).read_text()) | changes
        (folder / CONFIG).write_text(json.dumps(values))

    return act


def without(name: str, *keys: str) -> Act:
    def act(folder: Path) -> None:
        values = json.loads((folder / name).read_text())
        for key in keys:
            del values[key]
        (folder / name).write_text(json.dumps(values))

    return act


def written(name: str, content: str | bytes) -> Act:
    return lambda folder: (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())


def cut(name: str, size: int = -9) -> Act:
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:size])


def removed(*names: str) -> Act:
    return lambda folder: [(folder / name).unlink() for name in names]


def renamed(name: str, other: str) -> Act:
    return lambda folder: (folder / name).rename(folder / other)


def both(*acts: Act) -> Act:
    return lambda folder: [act(folder) for act in acts]


def tensors(change: Callable[[dict[str, torch.Tensor]], object]) -> Act:
    def act(folder: Path) -> None:
        found = load_file(folder / WEIGHTS)
        change(found)
        save_file(found, folder / WEIGHTS)

    return act


def index(change: Callable[[dict[str, str]], object]) -> Act:
    def act(folder: Path) -> None:
        values = json.loads((folder / INDEX).read_text())
        change(values["weight_map"])
        (folder / INDEX).write_text(json.dumps(values))

    return act


def first_shard(folder: Path) -> Path:
    return min(folder.glob("model-*.safetensors"))


def wider_header(folder: Path) -> None:
    """A header that says it is longer than the file."""
    content = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(struct.pack("<Q", 2**62) + content[8:])


QUERY = "model.layers.0.self_attn.q_proj.weight"
WPE = "transformer.wpe.weight"
LAYER = "transformer.h.1.ln_1.bias"
DAMAGED = "config.json is damaged"
SHARDED = "llama shards"

CONFIGS = {
    "a list": Wrong("gpt", written(CONFIG, "[1, 2]"), "holds list, not an object", "holds list"),
    "not JSON": Wrong("gpt", cut(CONFIG), DAMAGED, DAMAGED),
    "not text": Wrong("gpt", written(CONFIG, b"\xff\xfe\x00"), DAMAGED, DAMAGED),
    "nested too deep": Wrong("gpt", written(CONFIG, "[" * 100_000), DAMAGED, DAMAGED),
    "no config": Wrong("gpt", removed(CONFIG), "config.json does not exist", "config.json does not exist"),
    "no model_type": Wrong("gpt", without(CONFIG, "model_type"), "does not say its model_type", "model_type"),
    "unknown model_type": Wrong("gpt", config(model_type="mamba"), "model_type = 'mamba'", "'mamba'"),
    "model_type that is a list": Wrong("gpt", config(model_type=["gpt2"]), "= ['gpt2']", "= ['gpt2']"),
    "an unknown architecture": Wrong(
        "bert masked", config(architectures=["BertForNextSentencePrediction"]), "BertForNext", "BertForNext"
    ),
    "architectures that are a string": Wrong("gpt", config(architectures="GPT2LMHeadModel"), "architectures", ""),
    "architectures that are a number": Wrong("gpt", config(architectures=3), "architectures", "architectures"),
    "architectures of numbers": Wrong("gpt", config(architectures=[3]), "architectures", "architectures"),
    "a string for a width": Wrong("gpt", config(n_embd="wide"), "n_embd", "n_embd"),
    "a width of nothing": Wrong("llama", config(hidden_size=None), "hidden_size", "hidden_size"),
    "a width of zero": Wrong("llama", config(hidden_size=0), "hidden_size", "hidden_size"),
    "no heads": Wrong("llama", config(num_attention_heads=0), "num_attention_heads", "num_attention_heads"),
    "negative layers": Wrong("bert masked", config(num_hidden_layers=-3), "num_hidden_layers", "num_hidden_layers"),
    "layers in letters": Wrong("bert masked", config(num_hidden_layers="12"), "num_hidden_layers", ""),
    "half a layer": Wrong("t5", config(num_layers=1.5), "num_layers", "num_layers"),
    "layers without end": Wrong("gpt", config(n_layer=10**30), "n_layer", "n_layer"),
    "too many layers": Wrong("gpt", config(n_layer=100), "lacks the tensor"),
    "far too many layers": Wrong("gpt", config(n_layer=10**9), "n_layer", "n_layer"),
    "far too wide": Wrong("gpt", config(n_embd=3 * 10**12), "n_embd", "n_embd"),
    "too wide": Wrong("gpt", config(n_embd=3 * 10**7), "shaped", ""),
    "a vocabulary of 10^18": Wrong("gpt", config(vocab_size=10**18), "vocab_size", "vocab_size"),
    "a vocabulary of minus one": Wrong("gpt", config(vocab_size=-1), "vocab_size", "vocab_size"),
    "an epsilon that is infinite": Wrong("gpt", config(layer_norm_epsilon=float("inf")), "epsilon", "epsilon"),
    "a number for an activation": Wrong("gpt", config(activation_function=7), "activation", "activation"),
    "a list for an activation": Wrong("gpt", config(activation_function=["relu"]), "activation", "activation"),
    "an unknown activation": Wrong("gpt", config(activation_function="mish"), "'mish'", "'mish'"),
    "labels in a list": Wrong("bert labels", config(id2label=["a", "b"]), "id2label", "id2label"),
    "labels by name": Wrong("bert labels", config(id2label={"a": "b"}), "id2label", "id2label"),
    "labels that are numbers": Wrong("bert labels", config(id2label={"0": 1, "1": 2}), "id2label", "id2label"),
    "labels without end": Wrong("bert labels", config(id2label={str(10**30): "a"}), "classifier", ""),
    "yarn": Wrong("llama", config(rope_parameters={"rope_type": "yarn", "rope_theta": 1e4}), "'yarn'", "'yarn'"),
    "rope that is a string": Wrong("llama", config(rope_parameters="default"), "rope_parameters", "rope_parameters"),
    "rope that is a list": Wrong("llama", config(rope_parameters=[1]), "rope_parameters", "rope_parameters"),
    "rope without its factors": Wrong(
        "llama", config(rope_parameters={"rope_type": "llama3", "factor": 8.0}), "low_freq_factor", "low_freq_factor"
    ),
    "rope by a factor of nothing": Wrong(
        "llama", config(rope_parameters={"rope_type": "linear", "factor": 0}), "factor", "factor"
    ),
    "a base that is no number": Wrong("llama", config(rope_parameters={"rope_theta": "x"}), "rope_theta", "rope_theta"),
    "a gate of another kind": Wrong("llama", config(hidden_act="relu"), "hidden_act", "hidden_act"),
    "a decoding BERT": Wrong("bert masked", config(is_decoder=True), "is_decoder", "is_decoder"),
    "sides of unequal heads": Wrong("marian", config(decoder_attention_heads=6), "attention_heads", "attention_heads"),
    "two tables": Wrong("marian", config(share_encoder_decoder_embeddings=False), "share_encoder", "share_encoder"),
    "a T5 of its own gate": Wrong(
        "t5", config(feed_forward_proj="gated-relu", is_gated_act=True), "'gated-relu'", "'gated-relu'"
    ),
    "a feed_forward_proj of a number": Wrong("t5", config(feed_forward_proj=[1]), "feed_forward_proj", "feed_forward"),
    "buckets of nothing": Wrong("t5", config(relative_attention_num_buckets=0), "relative_attention", "relative"),
    "d_kv in letters": Wrong("t5", config(d_kv="7"), "d_kv", "d_kv"),
    "no positions": Wrong("roberta masked", config(max_position_embeddings=1), "max_position", "max_position"),
    "positions in letters": Wrong("roberta masked", config(max_position_embeddings="many"), "max_position", "max_pos"),
    "RoBERTa's padding elsewhere": Wrong("roberta masked", config(pad_token_id=0), "pad_token_id", "pad_token_id"),
}

FILES = {
    "no weights": Wrong("gpt", removed(WEIGHTS), f"has no {WEIGHTS}"),
    "a pickle": Wrong("gpt", renamed(WEIGHTS, "pytorch_model.bin"), "pytorch_model.bin is a pickle"),
    "weights cut": Wrong("gpt", cut(WEIGHTS), f"{WEIGHTS} is damaged", f"{WEIGHTS} is damaged"),
    "weights cut in their header": Wrong("gpt", cut(WEIGHTS, 40), f"{WEIGHTS} is damaged", f"{WEIGHTS} is damaged"),
    "weights empty": Wrong("gpt", written(WEIGHTS, ""), f"{WEIGHTS} is damaged", f"{WEIGHTS} is damaged"),
    "weights that are text": Wrong("gpt", written(WEIGHTS, "x" * 99), f"{WEIGHTS} is damaged", f"{WEIGHTS} is damaged"),
    "a header without end": Wrong("gpt", wider_header, f"{WEIGHTS} is damaged", f"{WEIGHTS} is damaged"),
    "weights that are a folder": Wrong(
        "gpt", both(removed(WEIGHTS), lambda folder: (folder / WEIGHTS).mkdir()), WEIGHTS, WEIGHTS
    ),
    "a shard missing": Wrong(
        SHARDED, lambda folder: first_shard(folder).unlink(), "which its index names", "which its index names"
    ),
    "a shard cut": Wrong(
        SHARDED,
        lambda folder: cut(first_shard(folder).name)(folder),
        "-of-",
        "is damaged",
    ),
    "an index that leads outside": Wrong(
        SHARDED, index(lambda names: names.update({QUERY: "../x.safetensors"})), "outside its folder", "outside"
    ),
    "an index that leads to the root": Wrong(
        SHARDED, index(lambda names: names.update({QUERY: "/etc/hostname"})), "outside its folder", "outside"
    ),
    "an index that leads up": Wrong(SHARDED, index(lambda names: names.update({QUERY: ".."})), "lacks ..", "lacks .."),
    "an index of numbers": Wrong(SHARDED, index(lambda names: names.update({QUERY: 3})), "weight_map", "weight_map"),
    "an index without its map": Wrong(SHARDED, without(INDEX, "weight_map"), "weight_map", "weight_map"),
    "an empty index": Wrong(SHARDED, index(lambda names: names.clear()), "lacks the tensor"),
    "an index that is a list": Wrong(SHARDED, written(INDEX, "[]"), "not an object", "not an object"),
    "a tensor too many": Wrong("gpt", tensors(lambda all: all.update({"transformer.h.9.x": torch.ones(2)})), "h.9.x"),
    "a tensor too few": Wrong("gpt", tensors(lambda all: all.pop(LAYER)), f"lacks the tensor '{LAYER}'"),
    "no tensors": Wrong("gpt", tensors(lambda all: all.clear()), "lacks the tensor"),
    "a tensor of another shape": Wrong(
        "gpt", tensors(lambda all: all.update({LAYER: torch.ones(7)})), f"'{LAYER}' shaped [7]"
    ),
    "a tensor of another rank": Wrong(
        "gpt", tensors(lambda all: all.update({LAYER: torch.ones(1, 24)})), f"'{LAYER}' shaped [1, 24]"
    ),
    "a number for a tensor": Wrong("gpt", tensors(lambda all: all.update({LAYER: torch.tensor(1.0)})), "shaped []"),
    "a fused tensor that does not split": Wrong(
        "gpt", tensors(lambda all: all.update({"transformer.h.0.attn.c_attn.weight": torch.ones(24, 71)})), "[24, 71]"
    ),
    "a table transposed": Wrong("gpt", tensors(lambda all: all.update({WPE: all[WPE].T.contiguous()})), "[24, 64]"),
    "whole numbers": Wrong(
        "gpt", tensors(lambda all: all.update({LAYER: torch.ones(24, dtype=torch.int8)})), "torch.int8"
    ),
    "weights of eight bits": Wrong(
        "llama", tensors(lambda all: all.update({QUERY: all[QUERY].to(torch.float8_e4m3fn)})), "float8"
    ),
    "a config that says quantised": Wrong("llama", config(quantization_config={"bits": 4}), "quant", "quant"),
    "copies that differ": Wrong(
        "gpt",
        tensors(lambda all: all.update({"lm_head.weight": all["transformer.wte.weight"] + 1})),
        "tie_word_embeddings",
    ),
}

TOKENIZERS = {
    "a tokenizer larger than the model": Wrong(
        "gpt",
        both(
            config(vocab_size=299),
            tensors(lambda all: all.update({"transformer.wte.weight": all["transformer.wte.weight"][:299].clone()})),
        ),
        "entries and a model of 299",
    ),
    "no tokenizer": Wrong("gpt", removed(TOKENS), "holds no tokenizer"),
    "a tokenizer cut": Wrong("gpt", cut(TOKENS), f"{TOKENS}: this is not a tokenizer"),
    "a tokenizer that is empty": Wrong("gpt", written(TOKENS, ""), TOKENS),
    "a tokenizer that is a list": Wrong("gpt", written(TOKENS, "[]"), TOKENS),
    "a tokenizer of bytes": Wrong("gpt", written(TOKENS, b"\xff\xfe"), TOKENS),
    "damaged pieces alone": Wrong("t5", both(removed(TOKENS), written("spiece.model", "x")), "spiece.model is no"),
    "LLaMA's damaged pieces alone": Wrong(
        "llama", both(removed(TOKENS), written("tokenizer.model", "x")), "tokenizer.model is no"
    ),
    "Marian's pieces alone": Wrong(
        "marian", both(removed(TOKENS), written("source.spm", "x"), written("target.spm", "x")), "source.spm and target"
    ),
    "settings that are a list": Wrong("gpt", written("tokenizer_config.json", "[]"), "tokenizer_config.json"),
    "generation config that is a list": Wrong("gpt", written("generation_config.json", "[]"), "generation_config.json"),
    "beams in letters": Wrong(
        "t5", written("generation_config.json", '{"num_beams": "many"}'), "generation_config.json"
    ),
    "beams without end": Wrong("t5", written("generation_config.json", '{"num_beams": 1e9}'), "generation_config.json"),
    "a temperature of a list": Wrong(
        "gpt", written("generation_config.json", '{"do_sample": true, "temperature": []}'), "generation_config.json"
    ),
    "no end": Wrong(
        "gpt",
        both(
            config(bos_token_id=None, eos_token_id=None),
            written("generation_config.json", "{}"),
            written("tokenizer_config.json", '{"unk_token": "<|endoftext|>"}'),
        ),
        "no eos token",
    ),
}
EVERY = {**CONFIGS, **FILES, **TOKENIZERS}
