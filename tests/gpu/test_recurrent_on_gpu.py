"""Recurrent networks on a GPU give what they give on the CPU: logits, gradients and texts."""

import copy

import pytest
import torch

from regard.data.batching import Inputs, Padded
from regard.decoding.engine import generate
from regard.decoding.hypothesis import Stop
from regard.decoding.strategies import Beam, Greedy
from regard.models.network import NETWORKS

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

TARGETS, SOURCES = [[1, 2, 3, 4], [5, 6], [7, 8, 9]], [[3, 1], [2, 7, 1, 8, 2], [8]]


@pytest.fixture(autouse=True)
def _exact() -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False


@pytest.mark.parametrize("name", ["seq2seq", "bahdanau", "luong"])
@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_logits_gradients_and_texts_are_those_of_the_cpu(name, cell, side):
    torch.manual_seed(0)
    slow = NETWORKS[name].config(vocabulary=13, width=24, embedding_width=16, layers=2, cell=cell, dropout=0.0).build()
    fast = copy.deepcopy(slow).to("cuda")
    inputs = Inputs(Padded.of(TARGETS, side=side), Padded.of(SOURCES, side=side))
    real = inputs.tokens.real
    here, there = slow(inputs)[real], fast(inputs.to("cuda"))[real.to("cuda")]
    torch.testing.assert_close(there.cpu(), here, rtol=0, atol=1e-4)
    direction = torch.randn_like(here)
    (here * direction).sum().backward()
    (there * direction.to("cuda")).sum().backward()
    for (path, mine), other in zip(fast.named_parameters(), slow.parameters(), strict=True):
        torch.testing.assert_close(mine.grad.cpu(), other.grad, rtol=1e-3, atol=1e-4, msg=path)
    for strategy in (Greedy(), Beam(3)):
        found = generate(fast.eval(), inputs.to("cuda"), strategy, Stop(0, 7))
        assert [one.score for one in found] == pytest.approx(
            [one.score for one in generate(slow.eval(), inputs, strategy, Stop(0, 7))], abs=1e-3
        )


@pytest.mark.parametrize("name", ["seq2seq", "bahdanau", "luong"])
@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
def test_mixed_precision_trains_and_half_precision_writes(name, cell):
    model = NETWORKS[name].config(vocabulary=13, width=24, embedding_width=16, layers=2, cell=cell).build().to("cuda")
    inputs = Inputs(Padded.of(TARGETS), Padded.of(SOURCES)).to("cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(inputs).float().square().sum()
    loss.backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
    found = generate(model.to(torch.bfloat16).eval(), inputs, Beam(2), Stop(0, 5))
    assert all(found)
