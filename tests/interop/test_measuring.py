"""The loss of a loaded language model on a file is `transformers`' on the same windows, with nothing added."""

import json
import logging
import math

import pytest
import torch

pytest.importorskip("transformers")

from asking_transformers import HuggingFace
from tiny_folders import write

import regard
from regard.data.splits import TextDocument
from regard.tasks.task import Measuring

logging.getLogger("transformers").setLevel(logging.ERROR)
TEXT = "The roses by the river are low and wide.\n\nShe doesn't know; once upon a time\nthe river was low.\n" * 7
WINDOW = 17


@pytest.fixture(scope="module", params=["gpt", "llama"])
def folder(request, tmp_path_factory):
    found = write(request.param, tmp_path_factory.mktemp("measured"))
    (found / "text.txt").write_text(TEXT)
    return found


@torch.no_grad()
def peer_on(folder, window: int, stride: int) -> tuple[float, int]:
    """Their documentation's loop, one token further in each window: −Σ log p of what no window before predicted."""
    peer = HuggingFace(folder, "AutoModelForCausalLM")
    ids = peer.tokenizer(TEXT, return_tensors="pt").input_ids
    model, total, reached = peer.model.double(), 0.0, 0
    for first in range(0, ids.shape[1], stride):
        last = min(first + window, ids.shape[1] - 1)
        likely = model(ids[:, first:last]).logits[0].log_softmax(-1)
        wanted = ids[0, first + 1 : last + 1]
        found = likely.gather(1, wanted[:, None])[:, 0]
        total -= float(found[reached - first :].sum()) if reached > first else float(found.sum())
        reached = last
        if last == ids.shape[1] - 1:
            break
    return total / (ids.shape[1] - 1), ids.shape[1] - 1


@pytest.mark.parametrize("stride", [WINDOW, 5])
def test_the_loss_of_a_file_is_that_of_transformers_on_the_same_windows(call, folder, stride):
    model = regard.load(folder)
    model.module.double()
    documents = model.task.read([folder / "text.txt"], model.data)
    assert documents == [TextDocument(TEXT)], "a plain text file is one text"
    wanted, count = peer_on(folder, WINDOW, stride)
    found = model.evaluate(documents, Measuring(WINDOW, stride))
    near = 1e-10 if model.module.config.positions == "learned" else 1e-7  # their rotary turns are float32 always
    assert found["loss"] == pytest.approx(wanted, rel=near)
    assert found["perplexity"] == pytest.approx(math.exp(wanted), rel=10 * near)
    assert found["bits_per_byte"] == pytest.approx(wanted * count / math.log(2) / len(TEXT.encode()), rel=near)
    told = json.loads(
        call("evaluate", folder, folder / "text.txt", "--window", WINDOW, "--stride", stride, "--json").out
    )
    assert (told["examples"], told["window"], told["stride"]) == (1, WINDOW, stride)
    assert told["metrics"]["loss"] == pytest.approx(wanted, rel=1e-4)


def test_the_window_is_the_model_s_own_context_unless_another_is_asked_for(call, folder):
    own = regard.load(folder).module.config.max_positions
    assert call("evaluate", folder, folder / "text.txt").out.splitlines()[1] == f"windows of {own} tokens, stride {own}"
    wide = call("evaluate", folder, folder / "text.txt", "--window", own + 1)
    if regard.load(folder).module.config.positions == "learned":
        assert f"a window of {own + 1} tokens is wider than the {own} positions" in wide.err
    else:
        assert wide.code == 0
