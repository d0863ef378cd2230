"""Every kernel computes what the reference computes, says so before it runs, and is what then runs."""

import pytest
import torch
from calls import BIASES, Sizes, assert_same, by_turns, outcome, refused, similarity_of
from hypothesis import given
from hypothesis import strategies as st
from test_masks import DENSE4, EXAMPLES, LEFT, RIGHT, trees
from torch.autograd.profiler import profile
from torch.nn.attention import SDPBackend

from regard.attention import bmm, gathered
from regard.attention.bias import ALiBi, RelativeBuckets
from regard.attention.core import KERNELS, attend, which_kernel
from regard.attention.kernels import Call, Cudnn, Sdpa
from regard.attention.mask import Block, Causal, Dense, Dilated, Document, Global, Padding, Prefix, Window
from regard.attention.similarity import SIMILARITIES, Additive, ScaledDot
from regard.errors import InputError
from rounding import assert_close

NAMES = [kernel.name for kernel in KERNELS]
BFLOAT16 = 8 * 2.0**-8  # a few roundings of 2⁻⁸: in scores, weights and sum
GROUPS = {"own heads": (3, 1), "grouped": (2, 3), "multi-query": (1, 5)}


# FlexAttention is compiled, so its tests are in tests/compiled; cuDNN needs a GPU: tests/gpu.
HERE = ("gathered", "bmm", "sdpa", "reference")
ACCEPTED = [(kernel, name) for kernel in HERE for name in SIMILARITIES if kernel == "reference" or name != "additive"]
FAST = [(kernel, name) for kernel, name in ACCEPTED if kernel != "reference"]

every_fast_kernel = pytest.mark.parametrize(("kernel", "similarity"), FAST)


def test_every_similarity_but_the_additive_one_runs_fused():
    assert [name for kernel, name in FAST if kernel == "sdpa"] == [name for name in SIMILARITIES if name != "additive"]
    assert [name for kernel, name in ACCEPTED if kernel == "reference"] == list(SIMILARITIES)


MASKS = {"no mask": None} | {example.name: example for example in EXAMPLES}
COMPARED = [
    case
    for kernel in dict(FAST)
    for case in by_turns(
        [(kernel, mask) for mask in MASKS], [(name, bias) for fast, name in FAST if fast == kernel for bias in BIASES]
    )
]


@pytest.mark.parametrize(("kernel", "mask", "similarity", "bias"), COMPARED)
def test_a_kernel_equals_the_reference_forward_and_backward(kernel, mask, similarity, bias):
    for kv_heads, group in GROUPS.values():
        sizes = Sizes(kv_heads=kv_heads, group=group)
        given_tensors, added = sizes.draw(), BIASES[bias](sizes)
        learnt = similarity_of(similarity, sizes.head_width)
        allowed = MASKS[mask].mask(sizes.scores) if MASKS[mask] else None
        actual, reference = (outcome(given_tensors, learnt, allowed, added, name) for name in (kernel, "reference"))
        assert_same(actual, reference)


@every_fast_kernel
@given(
    bias=st.sampled_from(list(BIASES)),
    example=trees,
    group=st.sampled_from((1, 2, 3)),
    sizes=st.tuples(*[st.sampled_from((1, 2, 3, 5, 7, 11, 13, 17))] * 4),
    widths=st.tuples(*[st.sampled_from((2, 3, 5, 7, 11, 13))] * 2),
)
def test_a_kernel_equals_the_reference_at_any_size(kernel, similarity, bias, example, group, sizes, widths):
    torch.manual_seed(0)  # so that a case found can be run again
    batch, kv_heads, queries, keys = sizes
    drawn = Sizes(min(batch, 3), min(kv_heads, 5), group, queries, keys, *widths)
    learnt, mask, added = similarity_of(similarity, drawn.head_width), example.mask(drawn.scores), BIASES[bias](drawn)
    learnt, added = learnt.double(), added if added is None else added.double()
    given_tensors = drawn.draw(torch.float64)
    actual, reference = (outcome(given_tensors, learnt, mask, added, name) for name in (kernel, "reference"))
    assert_same(actual, reference, 1e-9)


@pytest.mark.parametrize("mask", [None, Causal(), Window(31)], ids=["no mask", "causal", "window"])
def test_the_explicit_kernel_equals_the_reference_where_it_works_in_parts(mask):
    sizes = Sizes(batch=5 * torch.get_num_threads(), kv_heads=7, queries=bmm.HALVED + 3, keys=bmm.HALVED + 3)
    assert sizes.batch * sizes.heads * sizes.queries * sizes.keys > 2 * bmm.CACHED * torch.get_num_threads()
    given_tensors, learnt = sizes.draw(), similarity_of("scaled_dot", sizes.head_width)
    actual, reference = (outcome(given_tensors, learnt, mask, None, name) for name in ("bmm", "reference"))
    assert_same(actual, reference)


@pytest.mark.parametrize(("kernel", "similarity"), ACCEPTED)
@pytest.mark.parametrize("bias", BIASES)
def test_bfloat16_is_right_to_its_own_rounding(kernel, similarity, bias):
    sizes = Sizes(group=2, head_width=16)
    given_tensors = sizes.draw(torch.bfloat16)
    learnt, added = similarity_of(similarity, sizes.head_width).bfloat16(), BIASES[bias](sizes)
    for example in EXAMPLES:
        mask = example.mask(sizes.scores)
        if refused(kernel, Call(*given_tensors, learnt, mask, added, 0.0)):
            continue
        actual = attend(*given_tensors, similarity=learnt, mask=mask, bias=added, kernel=kernel)
        wide = (one.double() for one in given_tensors)
        exact = attend(*wide, similarity=learnt.double(), mask=mask, bias=added, kernel="reference")
        learnt.bfloat16()
        assert actual.dtype == torch.bfloat16
        assert_close(actual.double(), exact, BFLOAT16)


# A row that may attend to nothing

DEAD = {
    "right padding of everything": RIGHT.mask,
    "left padding of everything": LEFT.mask,
    "what is not real where all is": lambda shape: ~Padding(torch.full(shape[:1], shape[3])),
    "the future of the last": lambda shape: ~Causal(),
    "patches": DENSE4.mask,
    "nothing at all": lambda shape: Dense(torch.zeros(shape, dtype=torch.bool)),
}


DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
SEEING_NOTHING = by_turns(
    [(*accepted, dead) for accepted in ACCEPTED for dead in DEAD],
    [(bias, dtype) for bias in BIASES for dtype in DTYPES],
)


@pytest.mark.parametrize(("kernel", "similarity", "dead", "bias", "dtype"), SEEING_NOTHING)
def test_rows_that_see_nothing_are_zero_and_move_nothing(kernel, similarity, dead, bias, dtype):
    sizes, mask, dtype = Sizes(batch=5, group=2, queries=7), DEAD[dead], DTYPES[dtype]
    query, key, value = sizes.draw(dtype, grad=True)
    allowed = mask(sizes.scores).dense(sizes.scores, query.device).expand(sizes.scores)
    dead = ~allowed.any(-1)
    assert dead.any()
    learnt, added = similarity_of(similarity, sizes.head_width).to(dtype), BIASES[bias](sizes)
    if refused(kernel, Call(query, key, value, learnt, mask(sizes.scores), added, 0.0)):
        return
    out = attend(query, key, value, similarity=learnt, mask=mask(sizes.scores), bias=added, kernel=kernel)
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


@pytest.mark.parametrize("kernel", ["bmm", "sdpa", "reference"])
def test_a_bias_of_minus_infinity_forbids_as_a_mask_does(kernel):
    sizes = Sizes(group=2)
    query, key, value = sizes.draw(grad=True)
    allowed = DENSE4.mask(sizes.scores).table
    bias = torch.zeros(sizes.scores).masked_fill(~allowed, -torch.inf)
    actual = attend(query, key, value, bias=bias, kernel=kernel)
    torch.testing.assert_close(actual, attend(query, key, value, mask=Dense(allowed), kernel="reference"))
    assert (actual[~allowed.any(-1)] == 0).all()
    assert all(one.isfinite().all() for one in torch.autograd.grad(actual.sum(), (query, key, value)))


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
    choice = which_kernel(query, key, value, **options)
    assert choice.name == "sdpa"
    assert words in choice.why
    assert set(choice.refused) == {"cudnn", "flex", "gathered", "bmm"}


def test_the_choice_says_why_not_the_others():
    choice = which_kernel(*Sizes().draw(), similarity=Additive(4))
    assert choice.name == "reference"
    assert list(choice.refused) == NAMES[:-1]
    assert choice.refused["sdpa"] == "Additive is not an inner product of queries and keys"


@pytest.mark.parametrize("kernel", HERE)
def test_a_kernel_can_be_forced_by_name(kernel):
    choice = which_kernel(*Sizes().draw(), mask=Causal(), kernel=kernel)
    assert (choice.name, choice.why) == (kernel, "forced by name")


@pytest.mark.parametrize("call", [attend, which_kernel])
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
    "bmm by name": {"kernel": "bmm", "mask": Causal()},
    "gathered by name": {"kernel": "gathered", "mask": Causal()},
}


@pytest.mark.parametrize("options", CALLS.values(), ids=CALLS.keys())
def test_the_kernel_that_was_named_is_the_one_that_runs(options):
    query, key, value = Sizes().draw()
    named = which_kernel(query, key, value, **options).name
    found = operations(lambda: attend(query, key, value, **options))
    fused = {name for name in found if "scaled_dot_product" in name}
    assert found
    assert (named in ("sdpa", "gathered")) == ("aten::scaled_dot_product_attention" in fused)
    assert (named == "gathered") == ("aten::index_select" in found)
    assert (named in ("reference", "bmm")) == (not fused)
    assert (named == "bmm") == ("aten::baddbmm" in found)
    assert named == ("reference" if "additive" in str(options).lower() else options.get("kernel", "sdpa"))


# What is chosen

WINDOWED = Causal() & Window(100)


@pytest.mark.parametrize(
    ("options", "tokens", "dtype", "name"),
    [
        ({"mask": WINDOWED}, 2048, torch.float32, "gathered"),
        ({"mask": WINDOWED, "bias": ALiBi(2)}, 2048, torch.float32, "gathered"),
        ({"mask": WINDOWED}, 512, torch.float32, "sdpa"),
        ({"mask": ~Window(100)}, 2048, torch.float32, "sdpa"),
        ({"mask": Causal()}, 2048, torch.float32, "sdpa"),
        ({"mask": Causal()}, 512, torch.bfloat16, "bmm"),
        ({}, 64, torch.bfloat16, "bmm"),
        ({"mask": Causal()}, 1024, torch.bfloat16, "sdpa"),
        ({"mask": Causal(), "bias": RelativeBuckets(2)}, 1024, torch.float32, "bmm"),
        ({"mask": Causal(), "bias": RelativeBuckets(2).requires_grad_(False)}, 64, torch.float32, "sdpa"),
        ({"bias": torch.ones(2, 64, 64, requires_grad=True)}, 64, torch.float32, "bmm"),
        ({"bias": torch.ones(2, 64, 64)}, 64, torch.float32, "sdpa"),
        ({"mask": WINDOWED, "bias": RelativeBuckets(2)}, 2048, torch.float32, "gathered"),
    ],
)
def test_on_a_cpu_the_kernel_that_pays_is_chosen(options, tokens, dtype, name):
    query, key, value = Sizes(1, 2, 1, tokens, tokens, 4, 4).draw(dtype)
    choice = which_kernel(query, key, value, **options)
    assert choice.name == name
    found = operations(lambda: attend(query, key, value, **options))
    assert ("aten::index_select" in found) == (name == "gathered")
    assert ("aten::scaled_dot_product_attention" in found) == (name != "bmm")


def test_without_gradients_a_learnt_bias_runs_fused():
    query, key, value = Sizes().draw()
    with torch.no_grad():
        assert which_kernel(query, key, value, bias=RelativeBuckets(Sizes().heads)).name == "sdpa"


LONG = {
    "window": Window(150),
    "causal window with globals": (Causal() & Window(150)) | Global([0, 700]),
    "dilated": Dilated(7, 5) & Causal(),
    "blocks": Block(192),
    "documents": Document(torch.arange(1097).div(173, rounding_mode="floor").expand(2, -1)) & Causal(),
    "padded window": Window(60) & Padding(torch.tensor([1003, 377])),
    "padded on the left": Window(60) & Padding(torch.tensor([1003, 377]), side="left"),
    "prefix": (Causal() & Window(40)) | Prefix(torch.tensor([5, 130])),
    "not near": Causal() & ~Window(700),
    "a function": Window(60) & (lambda batch, head, query, key: (query + key + 2 * head + 3 * batch) % 5 != 0),
}


@pytest.mark.parametrize("mask", LONG.values(), ids=LONG.keys())
@pytest.mark.parametrize("bias", ["no bias", "alibi"])
@pytest.mark.parametrize("queries", [1097, 411])
def test_many_tiles_equal_the_reference_forward_and_backward(mask, bias, queries):
    sizes = Sizes(kv_heads=1, group=2, queries=queries, keys=1097, head_width=4, value_width=3)
    given_tensors, added = sizes.draw(), BIASES[bias](sizes)
    learnt = similarity_of("scaled_dot", 4)
    actual, reference = (outcome(given_tensors, learnt, mask, added, name) for name in ("gathered", "reference"))
    assert actual is not None
    assert_same(actual, reference, 2e-5)


# What would go unnoticed otherwise


def broken(monkeypatch, owner, name, replacement) -> bool:
    """Whether a kernel of tiles, with one thing broken, departs from the reference."""
    sizes = Sizes(kv_heads=1, queries=301, keys=301, head_width=4, value_width=3)
    given_tensors, learnt = sizes.draw(), similarity_of("scaled_dot", 4)
    mask = (Causal() & Window(150)) | Global([0])
    reference = outcome(given_tensors, learnt, mask, None, "reference")
    assert_same(outcome(given_tensors, learnt, mask, None, "gathered"), reference)
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, replacement)
        actual = outcome(given_tensors, learnt, (Causal() & Window(150)) | Global([0]), None, "gathered")
        return not torch.allclose(actual["output"], reference["output"], atol=1e-4)


def test_a_window_off_by_one_is_caught(monkeypatch):
    assert broken(monkeypatch, Window, "allowed", lambda self, at: (at.query - at.key).abs() <= self.size)


def test_a_mask_the_other_way_round_is_caught(monkeypatch):
    assert broken(monkeypatch, Causal, "allowed", lambda self, at: at.key >= at.query)


def test_tiles_called_dead_that_are_not_are_caught(monkeypatch):
    bounds = Window.bounds
    assert broken(
        monkeypatch, Window, "bounds", lambda self, tiles: bounds(self, tiles)._replace(some=bounds(self, tiles).all)
    )


def test_a_ragged_last_tile_called_full_is_caught(monkeypatch):
    sizes = Sizes(kv_heads=1, queries=130, keys=130, head_width=4, value_width=3)
    given_tensors, learnt = sizes.draw(), similarity_of("scaled_dot", 4)
    mask = Window(1000)
    reference = outcome(given_tensors, learnt, mask, None, "reference")
    assert_same(outcome(given_tensors, learnt, mask, None, "gathered"), reference)
    monkeypatch.setattr(gathered._Tiled, "_added", lambda self, rows, columns: None)
    actual = outcome(given_tensors, learnt, mask, None, "gathered")
    assert not torch.allclose(actual["output"], reference["output"], atol=1e-4)


def test_queries_that_are_not_numbers_are_refused_in_a_sentence():
    query, key, value = Sizes().draw()
    query[1, 2, 3, 0] = torch.nan
    with pytest.raises(InputError, match="the queries hold NaN or infinity; look where they come from"):
        attend(query, key, value)


# cuDNN: what may reach it, told from shapes and from what the mask is, on a device that is said to be a GPU

CUDNN_MASKS = {
    "none": (None, (192, 192), False),
    "none, whole tiles": (None, (256, 128), True),
    "causal": (Causal(), (192, 192), True),
    "causal, cached": (Causal(), (128, 256), False),
    "causal, one query": (Causal(), (1, 192), False),
    "padding": (Padding(torch.tensor([256, 250])), (256, 256), False),
    "left padding": (Causal() & Padding(torch.tensor([256, 250]), "left"), (256, 256), False),
    "documents": (Causal() & Document(torch.arange(256).div(50).long().expand(2, -1)), (256, 256), False),
    "all allowed": (Dense(torch.ones(2, 256, 256, dtype=torch.bool)), (256, 256), False),
}


def on_a_gpu(monkeypatch, mask, sizes, bias=None) -> str | None:
    """Why cuDNN would not run such a call."""
    monkeypatch.setattr(Call, "device", torch.device("cuda"))
    query, key, value = (torch.zeros(2, 3, size, 64, dtype=torch.bfloat16) for size in (*sizes, sizes[1]))
    query.requires_grad_()
    return Cudnn().unsupported(Call(query, key, value, ScaledDot(), mask, bias, 0.0))


@pytest.mark.parametrize("name", CUDNN_MASKS)
def test_cudnn_trains_behind_the_causal_flag_or_in_whole_tiles_without_a_mask(monkeypatch, name):
    mask, sizes, expected = CUDNN_MASKS[name]
    assert (on_a_gpu(monkeypatch, mask, sizes) is None) == expected
    assert on_a_gpu(monkeypatch, mask, sizes, torch.zeros(sizes)) is not None
    assert on_a_gpu(monkeypatch, mask, sizes, ALiBi(3)) is not None


def test_cudnn_reads_any_length_where_nothing_learns(monkeypatch):
    with torch.no_grad():
        assert on_a_gpu(monkeypatch, None, (191, 193)) is None
    assert SDPBackend.CUDNN_ATTENTION not in Sdpa.backends
