"""`model.logits` and `model.score` of published folders equal what transformers computes for the same texts."""

from pathlib import Path

import pytest
import tiny_folders
import torch
from asking_transformers import HuggingFace

import regard

TEXT, TARGET = "the cat sat on the mat", "a dog"
NAMES = ["gpt", "llama", "bert masked", "bert labels", "t5", "marian"]


@pytest.fixture(scope="module", params=NAMES)
def pair(request, tmp_path_factory) -> tuple[str, regard.Model, HuggingFace]:
    folder: Path = tiny_folders.write(request.param, tmp_path_factory.mktemp("logits") / "model")
    return request.param, regard.load(folder), HuggingFace(folder, tiny_folders.FOLDERS[request.param].auto)


@torch.no_grad()
def test_logits_and_scores_equal_transformers(pair):
    name, model, peer = pair
    read = peer.read([TEXT])
    if name not in ("t5", "marian"):
        expected = peer.model(**read).logits[0]
        torch.testing.assert_close(model.logits(TEXT), expected, atol=1e-4, rtol=1e-4)
        if name in ("gpt", "llama"):
            ids = read["input_ids"][0]
            likely = expected[:-1].double().log_softmax(-1).gather(1, ids[1:, None])[:, 0]
            assert model.score(TEXT).log_probabilities == pytest.approx(likely.tolist(), abs=1e-4)
        return
    target = peer.tokenizer(text_target=TARGET, return_tensors="pt")["input_ids"]
    expected = peer.model(**read, labels=target).logits[0]
    torch.testing.assert_close(model.logits(TEXT, target=TARGET), expected, atol=1e-4, rtol=1e-4)
    likely = expected.double().log_softmax(-1).gather(1, target[0, :, None])[:, 0]
    found = model.score(TEXT, TARGET)
    assert found.log_probabilities == pytest.approx(likely.tolist(), abs=1e-4)
    assert found.total == pytest.approx(float(likely.sum()), abs=1e-3)
