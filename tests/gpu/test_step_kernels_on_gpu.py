"""Every kernel of a step of decoding beside the operators that it stands for, on a GPU; no time is measured."""

import warnings
from inspect import unwrap

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from regard.attention import step_triton
from regard.attention.cache import StaticKeyValues
from regard.attention.rotary import Rotation
from regard.attention.step_triton import StepShape, attend_plain, attend_step, runs_here
from regard.data.batching import Inputs, Padded
from regard.decoding import choice_triton, draw_triton, paths, row_engine, row_step
from regard.decoding.engine import generate
from regard.decoding.hypothesis import Stop
from regard.decoding.requests import RowRequest, Rows, kinds_of
from regard.decoding.strategies import Greedy, Sample, Strategy
from regard.layers.few_rows_triton import LARGE, few_rows_times, suits
from regard.layers.linear import Linear, keep_int8
from regard.layers.norm_triton import added_norm, added_norm_plain, gated, gated_plain
from regard.layers.stacked import StackedMaps
from regard.models.config import TransformerConfig
from regard.models.lean_step import padded_rows
from regard.models.transformer import Transformer

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

NEAR = {torch.float64: 1e-13, torch.float32: 2e-5, torch.float16: 6e-3, torch.bfloat16: 4e-2}
"""Half precision: two roundings of what is at most about 4."""
TYPES = tuple(NEAR)
SHAPES = {
    "gpt2": StepShape(12, 12, 64, 0.125),
    "wide": StepShape(4, 4, 128, 0.09),
    "narrow": StepShape(3, 3, 5, 0.4),
    "grouped": StepShape(8, 2, 64, 0.125),
    "one key head, window": StepShape(6, 1, 24, 0.2, window=65),
}


@pytest.fixture(autouse=True)
def _told_of_nothing():
    """No kernel is left out for being wrong."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="the kernel")
        yield


def close(found: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype) -> None:
    assert found.dtype == expected.dtype == dtype
    largest = max(1.0, float(expected.abs().max()))
    assert float((found.double() - expected.double()).abs().max()) <= NEAR[dtype] * largest


@pytest.mark.parametrize("lengths", [[0], [1023], [0, 31, 32, 33, 64, 127, 200], list(range(300))], ids=len)
@pytest.mark.parametrize("turns", [False, True])
@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("dtype", TYPES)
def test_attention_of_one_token(dtype, name, turns, lengths):
    shape = SHAPES[name]
    rows, width, room = len(lengths), shape.head_width, max(lengths) + 1
    if turns and width % 2:
        return
    torch.manual_seed(0)
    where = torch.tensor(lengths, device="cuda")
    mixed = torch.randn(rows, (shape.heads + 2 * shape.key_value_heads) * width, device="cuda").to(dtype)
    memory = torch.randn(2, rows, shape.key_value_heads, room + 64, width, device="cuda").to(dtype)
    angles = (where[:, None] * torch.linspace(0.1, 1, max(1, width // 2), device="cuda")).view(rows, 1, 1, -1)
    rotation = Rotation(angles.cos().to(dtype), angles.sin().to(dtype)) if turns else None
    assert runs_here(mixed)
    found = []
    for attend in (attend_step, attend_plain):
        held = StaticKeyValues(*memory.clone()).part(rows, room)
        out = attend(mixed, held, where, rotation, shape)
        every = torch.arange(rows, device="cuda")
        found.append((out, held.keys[every, :, where], held.values[every, :, where]))
    for own, plain in zip(*found, strict=True):
        close(own, plain, dtype)


def test_a_long_row_is_read_in_parts(monkeypatch):
    monkeypatch.setattr(step_triton, "PART", 64)
    test_attention_of_one_token(torch.bfloat16, "wide", True, [1023])
    test_attention_of_one_token(torch.float64, "grouped", False, [700, 3])


@pytest.mark.parametrize("rows", [1, 3, 64])
@pytest.mark.parametrize("width", [48, 768, 769, 4096, 9000])
@pytest.mark.parametrize("dtype", TYPES)
@torch.no_grad()
def test_norms_and_gates(dtype, width, rows):
    torch.manual_seed(0)
    stream, made = (torch.randn(rows, width, device="cuda").to(dtype) for _ in range(2))
    for norm in (nn.LayerNorm(width), nn.LayerNorm(width, bias=False), nn.RMSNorm(width, eps=1e-6)):
        norm = norm.to("cuda", dtype)
        for added in (None, made):
            for own, plain in zip(added_norm(stream, added, norm), added_norm_plain(stream, added, norm), strict=True):
                close(own, plain, dtype)
    both = torch.randn(rows, 2 * width, device="cuda").to(dtype)
    close(gated(both, F.silu), gated_plain(both, F.silu), dtype)


@pytest.mark.parametrize(("width", "out"), [(768, 2304), (4096, 4096), (11008, 512), (75, 37), (2051, 17)])
@pytest.mark.parametrize("rows", [1, 2, 5, 16])
@pytest.mark.parametrize("dtype", TYPES[1:])
@torch.no_grad()
def test_products_of_few_rows(dtype, rows, width, out):
    torch.manual_seed(0)
    inputs, bias = torch.randn(rows, width, device="cuda").to(dtype), torch.randn(out, device="cuda").to(dtype)
    scales = torch.rand(out, device="cuda") / 64 / width**0.5
    numbers = torch.randint(-128, 128, (out, width), device="cuda").to(torch.int8)
    weight = (torch.randn(out, width, device="cuda") / width**0.5).to(dtype)
    assert suits(inputs, numbers) == (rows == 1 or dtype != torch.float32)
    assert suits(inputs, weight) == (rows == 1 and weight.numel() * weight.element_size() <= LARGE)
    for added in (None, bias):
        more = 0 if added is None else added.double()
        if suits(inputs, numbers):
            expected = inputs.double() @ (numbers * scales[:, None]).double().T + more
            close(few_rows_times(inputs, numbers, scales, added), expected.to(dtype), dtype)
        if suits(inputs, weight):
            expected = inputs.double() @ weight.double().T + more
            close(few_rows_times(inputs, weight, None, added), expected.to(dtype), dtype)


@torch.no_grad()
def test_maps_in_8_bits_are_stacked_and_stay_what_they_were():
    torch.manual_seed(0)
    maps = [Linear(256, out).to("cuda", torch.bfloat16) for out in (128, 64, 64)]
    for one in maps:
        keep_int8(one)
    inputs = torch.randn(2, 1, 256, device="cuda", dtype=torch.bfloat16)
    before = [one(inputs) for one in maps]
    stack = StackedMaps.of(maps)
    assert stack is not None
    for own, one, plain in zip(stack.times(inputs), maps, before, strict=True):
        close(own, plain, torch.bfloat16)
        assert torch.equal(one(inputs), plain)
        assert one.int8.numbers.untyped_storage().data_ptr() == stack.weight.untyped_storage().data_ptr()


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("size", [7, 4097, 50257])
@pytest.mark.parametrize("padded", [False, True])
@torch.no_grad()
def test_the_end_of_a_step(dtype, size, padded, monkeypatch):
    torch.manual_seed(0)
    mixed: list[Strategy] = [
        Greedy(),
        Sample(0.8, top_k=50),
        Sample(top_k=17, top_p=0.8),
        Sample(1.2, top_k=9, min_p=0.1),
    ]
    for strategies in ([Greedy()] * 64, mixed * 16, [Sample(top_p=0.9)] * 3):
        logits = (3 * torch.randn(len(strategies), -(-size // 64) * 64 if padded else size, device="cuda")).to(dtype)
        logits = logits[:, :size]
        asked = [RowRequest((1, 2), one, Stop(5, 3, (6,)), number) for number, one in enumerate(strategies)]
        assert choice_triton.settles(logits)
        assert draw_triton.draws(logits, kinds_of(asked)) == (
            strategies == mixed * 16 and size > 64 * 50 and dtype != torch.float64
        )
        told = []
        for fused in (True, False):
            monkeypatch.setattr(row_step, "settles", lambda logits, fused=fused: fused)
            rows = Rows.allocate(len(strategies), 12, 3, torch.device("cuda"))
            rows.put(asked, torch.arange(len(strategies), device="cuda"))
            rows.going[-1] = False
            stepper = _Logits(logits)
            for _ in range(3):
                unwrap(row_step.step_rows)(stepper, stepper, rows, kinds_of(asked))  # of what checks types
            told.append({**vars(rows), "lengths": stepper.lengths})
        for name, right in told[1].items():
            near = 1e-4 if name == "likely" else 0
            assert torch.allclose(told[0][name].double(), right.double(), rtol=0, atol=near), name


class _Logits:
    """A stepper and its state."""

    def __init__(self, logits: torch.Tensor) -> None:
        self.logits, self.lengths = logits, torch.arange(len(logits), device="cuda") + 3

    def step(self, ids, state):
        return self.logits, self


@pytest.mark.parametrize("rows", [1, 5, 37])
@pytest.mark.parametrize("shape", ["gpt2", "llama"])
def test_a_graph_of_kernels_writes_what_the_plain_loop_writes(shape, rows, monkeypatch):
    """In float32, with a vocabulary that is odd, and sampled among few of it."""
    torch.manual_seed(1)
    keys = {
        "gpt2": {"positions": "learned", "max_positions": 211, "feedforward": "gelu_tanh"},
        "llama": {"positions": "rotary", "key_value_heads": 2, "feedforward": "swiglu", "norm": "rms", "bias": False},
    }[shape]
    sizes = {"vocabulary": 5003, "width": 256, "heads": 4, "layers": 3, "norm_placement": "pre"}
    model = Transformer(TransformerConfig(architecture="decoder", **sizes, **keys)).cuda().eval()
    texts = [[(7 * row + place) % 5003 for place in range(1 + row % 5)] for row in range(rows)]
    inputs = Inputs(Padded.of(texts)).to("cuda")
    for strategy in (Greedy(), Sample(0.9, top_k=50, top_p=0.95, seed=1)):
        with monkeypatch.context() as nowhere:
            nowhere.setattr(paths, "DEVICES", set())
            plain = generate(model, inputs, strategy, Stop(2, 80))
        found = generate(model, inputs, strategy, Stop(2, 80))
        assert {one.path for one in found} == {"graph"}
        assert row_engine.KEPT.of[model].engine.stepper.lean is not None
        assert [one.ids for one in found] == [one.ids for one in plain]
        for own, other in zip(found, plain, strict=True):
            assert abs(own.score - other.score) < 1e-4 * len(own.ids)


@torch.no_grad()
def test_a_padded_table_gives_the_same_logits():
    table = nn.Parameter(torch.randn(4099, 128, device="cuda", dtype=torch.bfloat16))
    hidden = torch.randn(64, 128, device="cuda", dtype=torch.bfloat16)
    before = F.linear(hidden, table)
    close(F.linear(hidden, padded_rows(table))[:, :4099], before, torch.bfloat16)
    assert torch.equal(F.linear(hidden, table), before)
