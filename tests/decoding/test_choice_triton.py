"""The end of a step by kernels for a GPU, and whole texts by all of them, run by Triton's interpreter."""

import os
import subprocess
import sys

import pytest

CHOICES = """
import torch
from regard.decoding import row_step
from regard.decoding.draw_triton import draws
from regard.decoding.hypothesis import Stop
from regard.decoding.requests import RowRequest, Rows, kinds_of
from regard.decoding.strategies import Greedy, Sample

torch.manual_seed(0)
MIXED = [Greedy(), Sample(0.8, top_k=5), Sample(top_k=17, top_p=0.8, seed=3), Sample(1.2, top_k=9, min_p=0.1), Greedy()]


class Logits:
    def __init__(self, logits):
        self.logits, self.lengths = logits, torch.arange(5) + 3

    def step(self, ids, state):
        return self.logits, self


def told(strategies, steps, fused):
    row_step.settles = lambda logits: fused
    asked = [RowRequest((1, 2, 3)[: 1 + n % 3], one, Stop(5, 3 + n % 3, (9,)), n) for n, one in enumerate(strategies)]
    rows = Rows.allocate(5, 12, 3, torch.device("cpu"))
    rows.put(asked, torch.arange(5))
    rows.going[4] = False
    stepper, kinds = Logits(steps[0]), kinds_of(asked)
    for logits in steps:
        stepper.logits = logits
        row_step.step_rows(stepper, stepper, rows, kinds)
    return {**vars(rows), "lengths": stepper.lengths}


for dtype, near in ((torch.float32, 2e-5), (torch.float64, 1e-12), (torch.float16, 2e-5)):
    for size in (11, 4096, 9001):
        for strategies in ([Greedy()] * 5, MIXED):
            steps = [(3 * torch.randn(5, size + 7)).round().to(dtype)[:, :size] for _ in range(3)]
            steps[0][0] = -torch.inf
            steps[0][0, 3] = 1
            steps[1][2, size // 2 :] = 40  # many equals
            fused, plain = told(strategies, steps, True), told(strategies, steps, False)
            for name, right in plain.items():
                own = fused[name].double()
                assert torch.allclose(own, right.double(), rtol=0, atol=near if name == "likely" else 0), (name, size)
    assert draws(steps[0], kinds_of([RowRequest((1,), MIXED[1], Stop(5, 1))])) == (dtype != torch.float64)
nothing = torch.full((5, 4099), torch.nan)
assert told([Greedy()] * 5, [nothing], True)["likely"].isnan().any(dim=1).all()
print("equal")
"""

TEXTS = """
import torch
from regard.data.batching import Inputs, Padded
from regard.decoding import paths, row_engine
from regard.decoding.engine import generate
from regard.decoding.hypothesis import Stop
from regard.decoding.strategies import Greedy, Sample
from regard.layers import triton_kernel
from regard.models import in_place
from regard.models.config import TransformerConfig

in_place.STACKED = {"cpu"}
SHAPES = (
    {"positions": "learned", "max_positions": 64, "feedforward": "gelu_tanh"},
    {"positions": "rotary", "key_value_heads": 2, "feedforward": "swiglu", "norm": "rms", "tie_embeddings": False},
)
for seed, shape in enumerate(SHAPES):
    torch.manual_seed(seed)
    sizes = {"architecture": "decoder", "vocabulary": 37, "width": 16, "heads": 4, "layers": 2, "norm_placement": "pre"}
    model = TransformerConfig(**sizes, **shape).build().double().eval()
    inputs = Inputs(Padded.of([[3, 1, 4, 1, 5, 9], [2], [7, 7, 7]]))
    for strategy in (Greedy(), Sample(1.3, top_k=4, seed=seed)):
        paths.DEVICES = set()
        plain = generate(model, inputs, strategy, Stop(2, 8))
        paths.DEVICES = {"cpu"}
        found = generate(model, inputs, strategy, Stop(2, 8))
        assert row_engine.KEPT.of[model].engine.stepper.lean is not None
        assert [one.ids for one in found] == [one.ids for one in plain]
        assert all(abs(own.score - one.score) < 1e-9 for own, one in zip(found, plain))
right = {name for (name, _, _), one in triton_kernel._right.items() if one}
assert right == {"attention", "norm", "gate", "choice"}
print("equal")
"""


@pytest.mark.parametrize("script", [CHOICES, TEXTS], ids=["choices", "texts"])
def test_kernels_write_what_the_plain_loop_writes(script):
    """In a process of its own: Triton decides when it is imported whether it interprets."""
    pytest.importorskip("triton")
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "equal\n", done.stderr
