"""Loaded encoders read as much of a long text as they have positions for, as `transformers` does when it cuts texts."""

import json
import logging
from dataclasses import replace

import pytest
import torch

pytest.importorskip("transformers")

from asking_transformers import HuggingFace
from tiny_folders import FOLDERS, Kind, write

import regard

logging.getLogger("transformers").setLevel(logging.ERROR)
LONGEST = 307
"""Positions: more than are read at once by a recipe that does not say."""


@pytest.fixture(scope="module", params=["bert labels", "roberta labels"])
def folder(request, tmp_path_factory):
    """A classifier of so many positions; two of a RoBERTa's are never used."""
    name = request.param
    rows = LONGEST + 2 * name.startswith("roberta")
    kind: Kind = FOLDERS[name]
    longer = replace(kind.peer, values=kind.peer.values | {"max_position_embeddings": rows, "initializer_range": 0.5})
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(FOLDERS, name, replace(kind, peer=longer))
        return write(name, tmp_path_factory.mktemp("long"))


@torch.no_grad()
@pytest.mark.parametrize("words", [3, 251, 283, 401])
def test_a_classifier_reads_a_long_text_as_far_as_transformers_does(folder, words):
    expected = HuggingFace(folder, "AutoModelForSequenceClassification")
    text = " ".join(("low", "river", "wide")[place * place % 7 % 3] for place in range(words))
    read = expected.tokenizer(text, truncation=True, max_length=LONGEST, return_tensors="pt")
    read.pop("token_type_ids", None)
    shares = expected.model(**read).logits[0].double().softmax(-1).tolist()
    wanted = {expected.model.config.id2label[place]: share for place, share in enumerate(shares)}
    assert regard.load(folder).run(text) == pytest.approx(wanted, abs=1e-5)


def test_what_fits_in_counts_and_what_does_not_is_cut(folder):
    model = regard.load(folder)
    before, first, last = ("low " * count for count in (260, 303, 307))
    assert model.run(before) != model.run(first)
    assert model.run(f"{last}river") == model.run(f"{last}wide")
    assert json.loads((folder / "config.json").read_text())["max_position_embeddings"] - LONGEST in (0, 2)
