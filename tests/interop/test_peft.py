"""Adapters as peft writes and reads them: outputs are equal both ways, for every family that has its own names."""

from pathlib import Path
from typing import Any

import peft
import pytest
import tiny_folders
import torch
import transformers
from test_training_on import recipe

import regard
from regard.data.batching import Inputs, Padded
from rounding import assert_close

IDS, SOURCE = [[5, 7, 11, 13, 17]], [[19, 23, 29, 31]]


def peer_of(kind: str, folder: Path, auto: str | None = None) -> Any:
    """The folder as transformers loads it."""
    name = auto or tiny_folders.FOLDERS[kind].auto
    return getattr(transformers, name).from_pretrained(folder, attn_implementation="eager").eval()


@torch.no_grad()
def of_peer(model: Any) -> torch.Tensor:
    """What transformers or peft computes of the texts."""
    if model.config.is_encoder_decoder:
        return model(input_ids=torch.tensor(SOURCE), decoder_input_ids=torch.tensor(IDS)).logits
    found = model(input_ids=torch.tensor(IDS))
    if hasattr(found, "start_logits"):
        return torch.stack((found.start_logits, found.end_logits), dim=-1)
    return found.logits if hasattr(found, "logits") else found.last_hidden_state


@torch.no_grad()
def of_model(model: regard.Model) -> torch.Tensor:
    source = Padded.of(SOURCE) if model.module.config.reads_source else None
    return model.module(Inputs(Padded.of(IDS), source))


def drawn(model: Any) -> Any:
    """The same with adapters that change something."""
    with torch.no_grad():
        for name, one in model.named_parameters():
            if "lora_B" in name or "modules_to_save" in name:
                one.normal_(std=0.3)
    return model.eval()


OF_PEFT = {
    "bert": {"target_modules": ["query", "value"], "task_type": "FEATURE_EXTRACTION"},
    "bert masked": {"target_modules": ["key", "dense"]},
    "bert labels": {"target_modules": "all-linear", "task_type": "SEQ_CLS"},
    "bert spans": {"target_modules": ["query"], "task_type": "QUESTION_ANS"},
    "roberta labels": {"target_modules": ["query", "value"], "task_type": "SEQ_CLS"},
    "gpt": {"target_modules": ["c_attn", "c_proj", "c_fc"], "task_type": "CAUSAL_LM", "fan_in_fan_out": True},
    "llama": {"target_modules": "all-linear", "task_type": "CAUSAL_LM", "use_rslora": True},
    "t5": {"target_modules": ["q", "v", "wo"], "task_type": "SEQ_2_SEQ_LM"},
    "marian": {"target_modules": ["q_proj", "fc1"], "rank_pattern": {"fc1": 4}, "alpha_pattern": {"fc1": 9}},
}


@pytest.mark.parametrize("kind", OF_PEFT)
def test_what_peft_wrote_is_read_with_equal_outputs(kind, tmp_path):
    base = tiny_folders.write(kind, tmp_path / "base")
    model = drawn(peft.get_peft_model(peer_of(kind, base), peft.LoraConfig(r=3, lora_alpha=7, **OF_PEFT[kind])))
    model.save_pretrained(tmp_path / "adapter")
    loaded = regard.load(base, adapters={"peft": tmp_path / "adapter"})
    before, found = of_model(loaded), of_model(loaded.adapters["peft"])
    assert_close(found, of_peer(model), 1e-5)
    assert float((found - before).abs().max()) > 1e-2
    alone = regard.load(tmp_path / "adapter")
    assert alone.task.name == loaded.task.name
    assert_close(of_model(alone), found, 1e-6)


def test_a_classifier_of_pefts_beside_a_plain_encoder_has_its_own_head(tmp_path):
    base = tiny_folders.write("bert", tmp_path / "base")
    plain = transformers.AutoModelForSequenceClassification.from_pretrained(base, num_labels=5)
    model = drawn(peft.get_peft_model(plain, peft.LoraConfig(r=2, target_modules=["query"], task_type="SEQ_CLS")))
    model.save_pretrained(tmp_path / "adapter")
    loaded = regard.load(tmp_path / "adapter")
    assert loaded.task.name == "classification"
    assert loaded.module.config.labels == tuple(f"LABEL_{place}" for place in range(5))
    assert_close(of_model(loaded), of_peer(model), 1e-5)


OF_REGARD = {
    ("bert", "classification"): (["query", "up"], "AutoModelForSequenceClassification"),
    ("bert masked", "masked"): (["value", "output"], None),
    ("gpt", "language_modelling"): (["query", "value", "down"], None),
    ("llama", "language_modelling"): (["query", "key", "gate"], None),
    ("t5", "translation"): (["encoder*.query", "cross_attention.value"], None),
    ("marian", "translation"): (["query", "down"], None),
}


@pytest.mark.parametrize(("kind", "task"), OF_REGARD)
def test_what_we_write_is_read_by_peft_with_equal_outputs(kind, task, tmp_path):
    targets, auto = OF_REGARD[kind, task]
    plan = recipe(tmp_path, task, kind, training={"steps": 2, "batch_tokens": 200, "warmup": 0, "learning_rate": 0.1})
    adapter = {"rank": 3, "alpha": 7.0, "targets": targets}
    plan = regard.Recipe.model_validate(
        plan.model_dump(mode="json", by_alias=True, exclude_none=True)
        | {"model": {"from": str(tmp_path / "begun"), "adapter": adapter}}
    )
    model = regard.train(plan, tmp_path / "out", progress=False)
    peer = peft.PeftModel.from_pretrained(peer_of(kind, tmp_path / "begun", auto), tmp_path / "out").eval()
    found = of_peer(peer)
    assert_close(found, of_model(model), 1e-5)
    assert_close(of_peer(peer.merge_and_unload()), of_model(model), 1e-5)
    loaded = regard.load(tmp_path / "begun", adapters={"mine": tmp_path / "out"}).adapters["mine"]
    assert_close(of_model(loaded), of_model(model), 1e-6)


def test_what_is_merged_and_converted_is_what_transformers_computes(call, tmp_path):
    base = tiny_folders.write("gpt", tmp_path / "base")
    model = drawn(peft.get_peft_model(peer_of("gpt", base), peft.LoraConfig(r=3, target_modules=["c_attn"])))
    model.save_pretrained(tmp_path / "adapter")
    done = call("convert", base, tmp_path / "whole", "--adapter", f"a={tmp_path / 'adapter'}", "--to", "huggingface")
    assert done.code == 0, done.err
    assert_close(of_peer(peer_of("gpt", tmp_path / "whole")), of_peer(model), 1e-5)
