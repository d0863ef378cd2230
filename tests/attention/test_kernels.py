"""Every kernel computes what the reference computes, says so before it runs, and is what then runs."""

import pytest
import torch
from calls import BIASES, Sizes, assert_same, outcome, similarity_of
from hypothesis import given
from hypothesis import strategies as st
from test_masks import DENSE4, EXAMPLES, LEFT, RIGHT, trees
from torch.autograd.profiler import profile

from regard.attention.bias import ALiBi
from regard.attention.core import KERNELS, attend, explain
from regard.attention.kernels import Call
from regard.attention.mask import Causal, Dense, Padding
from regard.attention.similarity import SIMILARITIES, Additive, similarity_module
from regard.errors import InputError

NAMES = [kernel.name for kernel in KERNELS]
BFLOAT16 = 8 * 2.0**-8  # a few roundings of 2⁻⁸: in scores, weights and sum
GROUPS = {"own heads": (3, 1), "grouped": (2, 3), "multi-query": (1, 5)}


def accepts(kernel, similarity: str) -> bool:
    query, key, value = Sizes().draw()
    return kernel.refuses(Call(query, key, value, similarity_module(similarity, 4), None, None, 0.0)) is None


ACCEPTED = [(kernel.name, name) for kernel in KERNELS for name in SIMILARITIES if accepts(kernel, name)]
FAST = [(kernel, name) for kernel, name in ACCEPTED if kernel != "reference"]

every_fast_kernel = pytest.mark.parametrize(("kernel", "similarity"), FAST)


def test_every_similarity_but_the_additive_one_runs_fused():
    assert [name for kernel, name in FAST if kernel == "sdpa"] == [name for name in SIMILARITIES if name != "additive"]
    assert [name for kernel, name in ACCEPTED if kernel == "reference"] == list(SIMILARITIES)


@every_fast_kernel
@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("example", [None, *EXAMPLES], ids=lambda example: example.name if example else "no mask")
def test_a_kernel_equals_the_reference_forward_and_backward(kernel, similarity, example, bias):
    for kv_heads, group in GROUPS.values():
        sizes = Sizes(kv_heads=kv_heads, group=group)
        given_tensors, added = sizes.draw(), BIASES[bias](sizes)
        learnt = similarity_of(similarity, sizes.head_width)
        mask = example.mask(sizes.scores) if example else None
        ours, reference = (outcome(given_tensors, learnt, mask, added, name) for name in (kernel, "reference"))
        assert_same(ours, reference)


@every_fast_kernel
@given(
    bias=st.sampled_from(list(BIASES)),
    example=trees,
    group=st.sampled_from((1, 2, 3)),
    sizes=st.tuples(*[st.sampled_from((1, 2, 3, 5, 7, 11, 13, 17))] * 4),
    widths=st.tuples(*[st.sampled_from((2, 3, 5, 7, 11, 13))] * 2),
)
def test_a_kernel_equals_the_reference_at_any_size(kernel, similarity, bias, example, group, sizes, widths):
    batch, kv_heads, queries, keys = sizes
    drawn = Sizes(min(batch, 3), min(kv_heads, 5), group, queries, keys, *widths)
    learnt, mask, added = similarity_of(similarity, drawn.head_width), example.mask(drawn.scores), BIASES[bias](drawn)
    given_tensors = drawn.draw()
    ours, reference = (outcome(given_tensors, learnt, mask, added, name) for name in (kernel, "reference"))
    assert_same(ours, reference)


@pytest.mark.parametrize(("kernel", "similarity"), ACCEPTED)
@pytest.mark.parametrize("bias", BIASES)
def test_bfloat16_is_right_to_its_own_rounding(kernel, similarity, bias):
    sizes = Sizes(group=2, head_width=16)
    given_tensors = sizes.draw(torch.bfloat16)
    learnt, added = similarity_of(similarity, sizes.head_width).bfloat16(), BIASES[bias](sizes)
    for example in EXAMPLES:
        mask = example.mask(sizes.scores)
        ours = attend(*given_tensors, similarity=learnt, mask=mask, bias=added, kernel=kernel)
        wide = (one.double() for one in given_tensors)
        exact = attend(*wide, similarity=learnt.double(), mask=mask, bias=added, kernel="reference")
        learnt.bfloat16()
        assert ours.dtype == torch.bfloat16
        torch.testing.assert_close(ours.double(), exact, atol=BFLOAT16, rtol=BFLOAT16)


# A row that may attend to nothing

DEAD = {
    "right padding of everything": RIGHT.mask,
    "left padding of everything": LEFT.mask,
    "what is not real where all is": lambda shape: ~Padding(torch.full(shape[:1], shape[3])),
    "the future of the last": lambda shape: ~Causal(),
    "patches": DENSE4.mask,
    "nothing at all": lambda shape: Dense(torch.zeros(shape, dtype=torch.bool)),
}


@pytest.mark.parametrize(("kernel", "similarity"), ACCEPTED)
@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("mask", DEAD.values(), ids=DEAD.keys())
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_rows_that_see_nothing_are_zero_and_move_nothing(kernel, similarity, bias, mask, dtype):
    sizes = Sizes(batch=5, group=2, queries=7)
    query, key, value = sizes.draw(dtype, grad=True)
    allowed = mask(sizes.scores).dense(sizes.scores, query.device).expand(sizes.scores)
    dead = ~allowed.any(-1)
    assert dead.any()
    learnt = similarity_of(similarity, sizes.head_width).to(dtype)
    out = attend(query, key, value, similarity=learnt, mask=mask(sizes.scores), bias=BIASES[bias](sizes), kernel=kernel)
    assert (out[dead] == 0).all()
    leaves = (query, key, value, *learnt.parameters())
    for gradient in torch.autograd.grad(out[dead].sum(), leaves, retain_graph=True):
        assert (gradient == 0).all()
    of_query, *others = torch.autograd.grad(out.sum(), leaves)
    assert (of_query[dead] == 0).all()
    assert all(one.isfinite().all() for one in (out, of_query, *others))
    unseen = ~allowed.unflatten(1, (sizes.kv_heads, sizes.group)).any(dim=(2, 3))  # keys no query of the group sees
    assert (others[0][unseen] == 0).all()
    assert (others[1][unseen] == 0).all()


@pytest.mark.parametrize("kernel", NAMES)
def test_a_bias_of_minus_infinity_forbids_as_a_mask_does(kernel):
    sizes = Sizes(group=2)
    query, key, value = sizes.draw(grad=True)
    allowed = DENSE4.mask(sizes.scores).table
    bias = torch.zeros(sizes.scores).masked_fill(~allowed, -torch.inf)
    ours = attend(query, key, value, bias=bias, kernel=kernel)
    torch.testing.assert_close(ours, attend(query, key, value, mask=Dense(allowed), kernel="reference"))
    assert (ours[~allowed.any(-1)] == 0).all()
    assert all(one.isfinite().all() for one in torch.autograd.grad(ours.sum(), (query, key, value)))


# What is said before

SAID = {
    "no mask is needed": [{}, {"mask": Causal(), "queries": 1}],
    "causal flag": [{"mask": Causal(), "queries": 7}],
    "dense boolean": [
        {"mask": Causal()},
        {"mask": Padding(torch.tensor([2, 7]))},
        {"mask": Causal() & Padding(torch.tensor([2, 7])), "queries": 7},
    ],
    "dense tensor of numbers": [{"bias": ALiBi(3)}, {"bias": ALiBi(3), "mask": Causal()}],
}


@pytest.mark.parametrize(("words", "options"), [(words, options) for words, some in SAID.items() for options in some])
def test_the_choice_says_how_the_mask_reaches_the_kernel(words, options):
    query, key, value = Sizes(queries=options.get("queries", 5)).draw()
    options = {name: option for name, option in options.items() if name != "queries"}
    choice = explain(query, key, value, **options)
    assert choice.name == "sdpa"
    assert words in choice.why
    assert choice.refused == {}


def test_the_choice_says_why_not_the_others():
    choice = explain(*Sizes().draw(), similarity=Additive(4))
    assert choice.name == "reference"
    assert choice.refused == {"sdpa": "Additive is not an inner product of queries and keys"}


@pytest.mark.parametrize("kernel", NAMES)
def test_a_kernel_can_be_forced_by_name(kernel):
    choice = explain(*Sizes().draw(), kernel=kernel)
    assert (choice.name, choice.why) == (kernel, "forced by name")


@pytest.mark.parametrize("call", [attend, explain])
def test_a_kernel_that_cannot_is_not_forced(call):
    with pytest.raises(InputError, match="'sdpa' cannot run this call: Additive is not an inner product"):
        call(*Sizes().draw(), similarity=Additive(4), kernel="sdpa")


# What then runs


def operations(function) -> set[str]:
    """The names of all PyTorch operations a call is made of."""
    with profile(use_kineto=False) as seen:  # no trace window for an operation to fall out of
        function()
    return {event.key for event in seen.key_averages()}


CALLS = {
    "plain": {},
    "causal": {"mask": Causal()},
    "padded": {"mask": Padding(torch.tensor([2, 7]))},
    "biased": {"bias": ALiBi(3)},
    "cosine": {"similarity": "cosine"},
    "additive": {"similarity": Additive(4)},
    "sdpa by name": {"kernel": "sdpa", "mask": Causal()},
    "reference by name": {"kernel": "reference", "mask": Causal()},
}


@pytest.mark.parametrize("options", CALLS.values(), ids=CALLS.keys())
def test_the_kernel_that_was_named_is_the_one_that_runs(options):
    query, key, value = Sizes().draw()
    named = explain(query, key, value, **options).name
    found = operations(lambda: attend(query, key, value, **options))
    fused = {name for name in found if "scaled_dot_product" in name}
    assert found
    assert (named == "sdpa") == ("aten::scaled_dot_product_attention" in fused)
    assert (named == "reference") == (not fused)
    assert named == ("reference" if "additive" in str(options).lower() else options.get("kernel", "sdpa"))
