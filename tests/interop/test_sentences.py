"""Folders of sentence-transformers: what stands for a text, made by hand of the vectors that `transformers` gives."""

import json
import logging
from pathlib import Path

import pytest
import torch

from rounding import assert_close

pytest.importorskip("transformers")

from asking_transformers import HuggingFace
from tiny_folders import write

import regard
from regard.errors import FileError

logging.getLogger("transformers").setLevel(logging.ERROR)
TEXTS = ["The roses by the bank", "low", "She doesn't know; they don't either. What's that wide river?"]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return write("bert", tmp_path_factory.mktemp("encoder"))


def told(folder: Path, to: Path, modes: dict[str, object] | None, kinds: list[str]) -> Path:
    """A copy of the folder with the files that sentence-transformers writes."""
    (to / "1_Pooling").mkdir(parents=True)
    for file in folder.iterdir():
        (to / file.name).write_bytes(file.read_bytes())
    names = [{"idx": place, "type": f"sentence_transformers.models.{kind}"} for place, kind in enumerate(kinds)]
    (to / "modules.json").write_text(json.dumps(names))
    if modes is not None:
        (to / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 24, **modes}))
    return to


def by_hand(folder: Path, pooling: str) -> torch.Tensor:
    """Text by text, so that there is no padding."""
    peer, found = HuggingFace(folder, "AutoModel"), []
    for text in TEXTS:
        with torch.no_grad():
            rows = peer.model(**peer.read([text])).last_hidden_state[0]
        found.append({"mean": rows.mean(0), "cls": rows[0], "max": rows.max(0).values}[pooling])
    return torch.stack(found)


@pytest.mark.parametrize("kinds", [["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]])
@pytest.mark.parametrize(
    ("modes", "pooling"),
    [
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, "cls"),
        ({"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}, "mean"),
        ({"pooling_mode_mean_tokens": False, "pooling_mode_max_tokens": True, "include_prompt": True}, "max"),
        ({"pooling_mode": "max"}, "max"),
        ({"pooling_mode": "cls"}, "cls"),
    ],
)
def test_the_vector_of_a_text_is_the_one_its_folder_says(encoder, modes, pooling, kinds, tmp_path):
    found = torch.tensor(regard.load(told(encoder, tmp_path / "told", modes, kinds)).run(TEXTS))
    wanted = by_hand(encoder, pooling)
    if "Normalize" in kinds:
        wanted = wanted / wanted.norm(dim=-1, keepdim=True)
    assert_close(found, wanted)


def test_the_pooling_is_read_from_the_folder_that_modules_json_names(encoder, tmp_path):
    folder = told(encoder, tmp_path / "told", {"pooling_mode_max_tokens": True}, ["Transformer", "Pooling"])
    (folder / "1_Pooling").rename(folder / "pool")
    modules = json.loads((folder / "modules.json").read_text())
    modules[1]["path"] = "pool"
    (folder / "modules.json").write_text(json.dumps(modules))
    found = torch.tensor(regard.load(folder).run(TEXTS))
    assert_close(found, by_hand(encoder, "max"))


@pytest.mark.parametrize("where", ["nowhere", "..", "../told", "/etc"])
def test_a_pooling_that_is_not_there_is_refused(encoder, where, tmp_path):
    folder = told(encoder, tmp_path / "told", {"pooling_mode_max_tokens": True}, ["Transformer", "Pooling"])
    modules = json.loads((folder / "modules.json").read_text())
    modules[1]["path"] = where
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(FileError):
        regard.load(folder)


@pytest.mark.parametrize(
    ("modes", "kinds", "problem"),
    [
        ({"pooling_mode_mean_sqrt_len_tokens": True}, ["Transformer", "Pooling"], "by mean_sqrt_len_tokens"),
        ({"pooling_mode": "lasttoken"}, ["Transformer", "Pooling"], "by lasttoken"),
        ({"pooling_mode": ""}, ["Transformer", "Pooling"], "which is not known here"),
        ({"pooling_mode_cls_token": False}, ["Transformer", "Pooling"], "by nothing"),
        ({"pooling_mode_cls_token": True}, [], "through nothing"),
        (
            {"pooling_mode_cls_token": True, "pooling_mode_max_tokens": True},
            ["Transformer", "Pooling"],
            "by cls_token and max_tokens",
        ),
        ({"pooling_mode_cls_token": True}, ["Transformer", "Pooling", "Dense"], "Transformer and Pooling and Dense"),
    ],
)
def test_what_is_not_known_of_such_a_folder_is_refused(encoder, modes, kinds, problem, tmp_path):
    with pytest.raises(FileError) as refused:
        regard.load(told(encoder, tmp_path / "told", modes, kinds))
    assert problem in refused.value.problem
    assert "this version reads" in refused.value.remedy


def test_a_text_is_cut_and_made_small_as_its_folder_says_and_after_a_round_trip_too(encoder, call, tmp_path):
    folder = told(encoder, tmp_path / "told", {"pooling_mode_mean_tokens": True}, ["Transformer", "Pooling"])
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 7, "do_lower_case": True}))
    prompts = {"prompts": {"query": "What is WIDE? "}, "default_prompt_name": "query"}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    peer, wanted = HuggingFace(encoder, "AutoModel"), []
    for text in TEXTS:
        read = peer.tokenizer(f"What is WIDE? {text}".lower(), truncation=True, max_length=7, return_tensors="pt")
        with torch.no_grad():
            wanted.append(peer.model(**read).last_hidden_state[0].mean(0))
    assert call("convert", folder, tmp_path / "own").code == 0
    assert call("convert", tmp_path / "own", tmp_path / "again", "--to", "huggingface").code == 0
    for one in (folder, tmp_path / "own", tmp_path / "again"):
        assert_close(torch.tensor(regard.load(one).run(TEXTS)), torch.stack(wanted))


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("sentence_bert_config.json", {"max_seq_length": 0}),
        ("sentence_bert_config.json", {"max_seq_length": "many"}),
        ("sentence_bert_config.json", {"do_lower_case": "yes"}),
        ("config_sentence_transformers.json", {"prompts": {}, "default_prompt_name": "query"}),
    ],
)
def test_limits_and_prompts_that_cannot_be_used_are_refused_by_their_file(encoder, name, values, tmp_path):
    folder = told(encoder, tmp_path / "told", {"pooling_mode_mean_tokens": True}, ["Transformer", "Pooling"])
    (folder / name).write_text(json.dumps(values))
    with pytest.raises(FileError, match=name):
        regard.load(folder)


def test_a_prompt_that_is_left_out_of_the_vector_is_refused(encoder, tmp_path):
    modes = {"pooling_mode_mean_tokens": True, "include_prompt": False}
    folder = told(encoder, tmp_path / "told", modes, ["Transformer", "Pooling"])
    regard.load(folder)
    prompts = {"prompts": {"query": "What? "}, "default_prompt_name": "query"}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    with pytest.raises(FileError, match="leaves the prompt out"):
        regard.load(folder)
