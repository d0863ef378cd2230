"""Folders of sentence-transformers: what stands for a text, made by hand of the vectors that `transformers` gives."""

import json
import logging
from pathlib import Path

import pytest
import torch

from rounding import assert_close

pytest.importorskip("transformers")

from asking_transformers import Theirs
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
    theirs, found = Theirs(folder, "AutoModel"), []
    for text in TEXTS:
        with torch.no_grad():
            rows = theirs.model(**theirs.read([text])).last_hidden_state[0]
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
