"""FlexAttention, compiled, equals the reference; its table is the mask's, and a ragged last tile is never full.

On a CPU it computes and does not train; what it does on a GPU is in tests/gpu.
"""

import os

import pytest
import torch

from regard.attention.bias import ALiBi, RelativeBuckets
from regard.attention.core import attend, which_kernel
from regard.attention.flex import SIZE, lower
from regard.attention.mask import Block, Causal, Document, Global, Mask, Padding, Window
from regard.errors import InputError
from rounding import assert_close

assert os.environ.get("REGARD_SHAPES") == "off", "compiled code cannot run under the shape hook: set REGARD_SHAPES=off"

SHAPE = (2, 4, 300, 411)
IDS = torch.arange(411).div(97, rounding_mode="floor").expand(2, -1)
MASKS: dict[str, Mask] = {
    "causal window with a global token": (Causal() & Window(70)) | Global([0]),
    "packed documents": Causal() & Document(IDS),
    "left padding": Padding(torch.tensor([411, 203]), side="left") & Causal(),
    "a function": Window(70) & (lambda batch, head, query, key: (query + key + 2 * head + 3 * batch) % 5 != 0),
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS.keys())
def test_flex_equals_the_reference(mask):
    query = torch.randn(2, 4, 300, 16)
    key, value = torch.randn(2, 2, 411, 16), torch.randn(2, 2, 411, 16)
    with torch.no_grad():
        own = attend(query, key, value, mask=mask, kernel="flex")
        reference = attend(query, key, value, mask=mask, kernel="reference")
    assert_close(own, reference)


@pytest.mark.parametrize(
    "bias", [ALiBi(4), RelativeBuckets(4), torch.randn(4, 300, 411)], ids=["alibi", "t5", "tensor"]
)
def test_flex_adds_a_bias_as_the_reference_does(bias):
    query = torch.randn(2, 4, 300, 16)
    key, value = torch.randn(2, 2, 411, 16), torch.randn(2, 2, 411, 16)
    for mask in (None, Causal() & Window(70)):
        with torch.no_grad():
            own = attend(query, key, value, mask=mask, bias=bias, kernel="flex")
            reference = attend(query, key, value, mask=mask, bias=bias, kernel="reference")
        assert_close(own, reference)


@pytest.mark.parametrize(("positions", "bias"), [("shared", ALiBi(4)), ("each its own", torch.randn(4, 300, 411))])
def test_flex_follows_the_queries_where_they_stand(positions, bias):
    query = torch.randn(2, 4, 300, 16)
    key, value = torch.randn(2, 2, 411, 16), torch.randn(2, 2, 411, 16)
    at = torch.stack([torch.randperm(411)[:300] for _ in range(2)])
    at = at[0] if positions == "shared" else at
    mask = MASKS["causal window with a global token"]
    with torch.no_grad():
        own = attend(query, key, value, mask=mask, bias=bias, kernel="flex", query_positions=at)
        reference = attend(query, key, value, mask=mask, bias=bias, kernel="reference", query_positions=at)
    assert_close(own, reference)


@pytest.mark.parametrize("mask", [*MASKS.values(), Block(128)], ids=[*MASKS.keys(), "blocks"])
def test_the_table_of_tiles_is_the_masks_own(mask):
    table = mask.dense(SHAPE, torch.device("cpu")).expand(SHAPE).any(dim=1)
    padded = torch.nn.functional.pad(table, (0, -411 % SIZE, 0, -300 % SIZE))
    tiles = padded.view(2, -(-300 // SIZE), SIZE, -(-411 // SIZE), SIZE)
    lowered = lower(mask, SHAPE, torch.device("cpu"))
    live = lowered.to_dense()[:, 0].bool().expand(2, -1, -1)
    assert (live | ~tiles.any(dim=4).any(dim=2)).all()


def test_a_ragged_last_tile_is_never_called_full():
    lowered = lower(Window(10_000), SHAPE, torch.device("cpu"))
    full = lowered.full_kv_num_blocks[0, 0]
    assert full.tolist() == [411 // SIZE, 411 // SIZE, 0]
    for row in range(2):
        assert lowered.full_kv_indices[0, 0, row, : full[row]].tolist() == list(range(411 // SIZE))


def test_on_a_cpu_it_does_not_train_and_says_so():
    query = torch.randn(1, 2, 130, 16, requires_grad=True)
    with pytest.raises(InputError, match="on a CPU it does not train"):
        attend(query, query, query, mask=Causal() & Window(9), kernel="flex")
    assert which_kernel(query, query, query, mask=Causal() & Window(9)).name != "flex"
