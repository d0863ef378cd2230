"""What a watch says a model attended to is what the formula gives, for every layer, head and row of any run."""

import copy
import gc
import math
import types
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import product
from threading import Barrier

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from regard.attention.bias import ALiBi
from regard.attention.mask import Causal, Padding
from regard.attention.multihead import Attend, HeadAttention, MultiHeadAttention
from regard.attention.similarity import SIMILARITIES
from regard.data.batching import Inputs, Padded
from regard.decoding.engine import generate, listeners, stream
from regard.decoding.hypothesis import Stop
from regard.decoding.strategies import Beam, Greedy, Sample
from regard.errors import InputError
from regard.inspection.capture import Recording, watch_module
from regard.inspection.formulas import FORMULAS
from regard.models.config import TransformerConfig
from regard.models.transformer import Transformer
from rounding import assert_close

VOCABULARY, END = 7, 2
SCHEMES = ("sinusoidal", "learned", "rotary", "alibi", "t5", "none")
ARCHITECTURES = ("encoder_decoder", "encoder", "decoder")
STRATEGIES = (Greedy(), Sample(temperature=1.5, seed=3), Beam(3, 0.7))
VARIANTS = {
    **{
        f"{architecture}, {scheme}": (architecture, {"positions": scheme})
        for architecture in ARCHITECTURES
        for scheme in SCHEMES
    },
    **{f"encoder_decoder, {name}": ("encoder_decoder", {"similarity": name}) for name in SIMILARITIES},
    "encoder_decoder, grouped heads": ("encoder_decoder", {"heads": 4, "key_value_heads": 2}),
    "decoder, one shared head": ("decoder", {"width": 16, "heads": 4, "key_value_heads": 1, "positions": "rotary"}),
    "decoder, pre-norm": ("decoder", {"norm_placement": "pre", "norm": "rms"}),
}


@cache
def make(name: str) -> Transformer:
    torch.manual_seed(6)
    architecture, options = VARIANTS[name]
    shape = {"width": 12, "heads": 2, "layers": 2, "tie_embeddings": False, "max_positions": 29} | options
    model = Transformer(TransformerConfig(architecture=architecture, vocabulary=VOCABULARY, **shape)).double().eval()
    with torch.no_grad():
        for path, parameter in model.named_parameters():
            parameter.mul_(4.0 if ".query." in path or ".key." in path else 1.0)  # far from uniform weights
    return model


def texts(lengths: tuple[int, ...], seed: int = 1) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(VOCABULARY, (length,), generator=generator).tolist() for length in lengths]


def inputs_of(model: Transformer, tokens: list[list[int]], source: list[list[int]], side: str = "right") -> Inputs:
    cross = model.config.architecture == "encoder_decoder"
    return Inputs(Padded.of(tokens, side=side), Padded.of(source, fill=3) if cross else None)


# The oracle: one unpadded text at a time, projections taken from the linear layers, everything else written out


def by_hand(model: Transformer, tokens: list[int], source: list[int]) -> dict[str, Tensor]:
    """`[heads, rows, keys]` of every layer."""
    projected: dict[str, Tensor] = {}

    def note(path: str):
        return lambda module, args, output: projected.__setitem__(path, output[0].double())

    attentions = {path: part for path, part in model.named_modules() if isinstance(part, HeadAttention)}
    linears = {f"{path}.{name}": getattr(part, name) for path, part in attentions.items() for name in ("query", "key")}
    handles = [linear.register_forward_hook(note(path)) for path, linear in linears.items()]
    with torch.no_grad():
        model(inputs_of(model, [tokens], [source]))
    for handle in handles:
        handle.remove()
    maps = {}
    for path, part in attentions.items():
        stack, _, index, kind = path.split(".")
        own = kind == "self_attention"
        queries = projected[f"{path}.query"].unflatten(-1, (part.heads, part.head_width))
        keys = projected[f"{path}.key"].unflatten(-1, (part.key_value_heads, part.head_width))
        heads = []
        for head in range(part.heads):
            query, key = queries[:, head], keys[:, head * part.key_value_heads // part.heads]
            if own and model.config.positions == "rotary":
                query, key = turned(query), turned(key)
            with torch.no_grad():
                scores = FORMULAS[type(part.attend.similarity)](part.attend.similarity, query, key)
            if own:
                scores = scores + added(model, stack, head, len(tokens) if stack == "decoder" else len(scores))
            if own and stack == "decoder":
                scores = scores.masked_fill(torch.ones_like(scores).triu(1) > 0, -math.inf)
            parts = scores.exp()
            heads.append(parts / parts.sum(-1, keepdim=True))
        maps[f"{stack}.{index}.{kind.removesuffix('_attention')}"] = torch.stack(heads)
    return maps


def turned(heads: Tensor) -> Tensor:
    """Su et al. 2021: pairs as complex numbers, turned by position times frequency."""
    tokens, width = heads.shape
    first, second = heads.chunk(2, dim=-1)
    frequency = 10_000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    moved = torch.complex(first, second) * torch.exp(1j * torch.outer(torch.arange(tokens).double(), frequency))
    return torch.cat((moved.real, moved.imag), dim=-1)


def added(model: Transformer, stack: str, head: int, tokens: int) -> Tensor:
    """The bias of a position scheme, pair by pair."""
    values = torch.zeros(tokens, tokens, dtype=torch.float64)
    for row in range(tokens):
        for column in range(tokens):
            if model.config.positions == "alibi":
                values[row, column] = -(2.0 ** (-8 * (head + 1) / model.config.heads)) * abs(row - column)
            if model.config.positions == "t5":
                positions = model.encoder_positions if stack == "encoder" else model.decoder_positions
                values[row, column] = positions.bias.terms.weight[bucket(column - row, stack == "encoder"), head]
    return values.detach()


def bucket(distance: int, both: bool) -> int:
    """Raffel et al. 2019, §2.1: 32 buckets, exact nearby, then logarithmic up to 128."""
    side, buckets = (16 if distance > 0 else 0, 16) if both else (0, 32)
    distance = abs(distance) if both else max(-distance, 0)
    if distance < buckets // 2:
        return side + distance
    far = math.log(distance / (buckets // 2)) / math.log(128 / (buckets // 2)) * (buckets // 2)
    return side + min(buckets // 2 + int(far), buckets - 1)


def assert_seen(seen: Recording, batch: int | None, expected: dict[str, Tensor], tolerance: float = 1e-9) -> None:
    assert seen.layers == list(expected)
    for layer, maps in expected.items():
        torch.testing.assert_close(seen.weights(layer, batch=batch).double(), maps, rtol=0, atol=tolerance)


# One pass


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("side", ["right", "left"])
def test_every_weight_of_a_padded_batch_equals_the_formula(name, side):
    model = make(name)
    tokens, source = texts((11, 4, 7, 1)), texts((3, 11, 1, 6), seed=2)  # both rectangles are 11 wide
    with watch_module(model) as seen:
        model(inputs_of(model, tokens, source, side))
    for row in range(4):
        assert_seen(seen, row, by_hand(model, tokens[row], source[row]))


@pytest.mark.parametrize("name", ["encoder_decoder, sinusoidal", "decoder, rotary", "encoder, t5"])
def test_in_float32_the_weights_are_equal_to_rounding(name):
    model = make(name)
    tokens, source = texts((9, 5)), texts((4, 8), seed=2)
    expected = [by_hand(model, *pair) for pair in zip(tokens, source, strict=True)]
    try:
        model.float()
        with watch_module(model) as seen:
            model(inputs_of(model, tokens, source))
        for row in range(2):
            assert_seen(seen, row, expected[row], 1e-4)  # a weight is rounded as its score is, and those are large
    finally:
        make.cache_clear()


@pytest.mark.parametrize("name", ["encoder_decoder, sinusoidal", "decoder, alibi", "encoder, rotary"])
def test_rows_sum_to_one_and_a_head_is_a_slice(name):
    model = make(name)
    with watch_module(model) as seen:
        model(inputs_of(model, texts((5, 8)), texts((7, 3), seed=2)))
    for layer in seen.layers:
        maps = seen.weights(layer, batch=1)
        torch.testing.assert_close(maps.sum(-1), torch.ones_like(maps[..., 0]), rtol=0, atol=1e-12)
        for head in range(2):
            assert torch.equal(seen.weights(layer, head, batch=1), maps[head])


@given(
    st.lists(st.integers(-7, 6), max_size=9), st.sampled_from(["encoder.1.self", "decoder.0.self", "decoder.1.cross"])
)
def test_rows_come_in_the_order_asked_for_repeats_and_negatives_included(rows, layer):
    seen, whole = a_pass()
    picked = seen.weights(layer, 1, rows=rows, batch=1)
    assert picked.shape == (len(rows), whole[layer].shape[-1])
    torch.testing.assert_close(picked, whole[layer][1][rows], rtol=0, atol=1e-9)


@cache
def a_pass() -> tuple[Recording, dict[str, Tensor]]:
    model = make("encoder_decoder, learned")
    tokens, source = texts((8, 7)), texts((9, 7), seed=2)
    with watch_module(model) as seen:
        model(inputs_of(model, tokens, source))
    return seen, by_hand(model, tokens[1], source[1])


def test_a_single_attention_layer_can_be_watched():
    torch.manual_seed(0)
    attention = MultiHeadAttention(12, 3).double()
    hidden = torch.randn(2, 5, 12, dtype=torch.float64)
    with watch_module(attention) as seen:
        attention(hidden, mask=Causal() & Padding(torch.tensor([5, 4])))
    assert seen.layers == ["attention"]
    maps = seen.weights("attention", batch=1)
    assert maps.shape == (3, 4, 4)
    assert torch.equal(maps.triu(1), torch.zeros_like(maps))


def test_the_padding_of_a_memory_is_not_that_of_its_readers():
    torch.manual_seed(0)
    attention = MultiHeadAttention(12, 3).double()
    hidden, memory = torch.randn(2, 5, 12, dtype=torch.float64), torch.randn(2, 7, 12, dtype=torch.float64)
    with watch_module(attention) as seen:
        attention(hidden, memory, mask=Padding(torch.tensor([7, 3])))
    assert seen.weights("attention", batch=0).shape == (3, 5, 7)
    assert seen.weights("attention", batch=1).shape == (3, 5, 3)


# Decoding


def run(model: Transformer, strategy, prompts, source, limit: int = 9):
    inputs = inputs_of(model, prompts, source)
    with watch_module(model) as seen:
        found = generate(model, inputs, strategy, Stop(END, limit))
    return seen, found


DECODED = [(name, STRATEGIES[2]) for name in VARIANTS if not name.startswith("encoder,")]
DECODED += [(name, strategy) for name in ("encoder_decoder, learned", "decoder, t5") for strategy in STRATEGIES[:2]]


@pytest.mark.parametrize(("name", "strategy"), DECODED, ids=repr)
def test_rows_of_decoding_are_those_of_the_text_read_at_once(name, strategy):
    model = make(name)
    prompts, source = texts((3, 1, 5, 2)), texts((4, 7, 1, 5), seed=2)
    seen, found = run(model, strategy, prompts, source)
    for row in range(4):
        assert_seen(seen, row, by_hand(model, [*prompts[row], *found[row].ids[:-1]], source[row]))


def test_those_runs_had_texts_of_unequal_length_and_beams_that_changed_places():
    model = make("encoder_decoder, learned")
    for strategy in STRATEGIES:
        _, found = run(model, strategy, texts((3, 1, 5, 2)), texts((4, 7, 1, 5), seed=2))
        assert len({len(one.ids) for one in found}) > 1
        assert any(len(set(one.rows)) > 1 for one in found)


@pytest.mark.parametrize("architecture", ["encoder_decoder", "decoder"])
@pytest.mark.parametrize("strategy", STRATEGIES, ids=repr)
@pytest.mark.parametrize("limit", [1, 2])
def test_short_runs_from_single_tokens(architecture, strategy, limit):
    model = make(f"{architecture}, rotary")
    for prompts, source in (([[4]], [[5]]), ([[4], [1]], [[5], [3]]), ([[4, 1]], [[5]]), ([[4]], [[5, 3]])):
        seen, found = run(model, strategy, prompts, source, limit)
        for row, one in enumerate(found):
            assert_seen(seen, row, by_hand(model, [*prompts[row], *one.ids[:-1]], source[row]))


@pytest.mark.parametrize("architecture", ["encoder_decoder", "decoder"])
def test_a_stream_is_watched_too(architecture):
    model = make(f"{architecture}, alibi")
    prompts, source = texts((3,)), texts((6,), seed=2)
    with watch_module(model) as seen:
        ids = list(stream(model, inputs_of(model, prompts, source), Greedy(), Stop(END, 7)))
    assert_seen(seen, None, by_hand(model, [*prompts[0], *ids[:-1]], source[0]))


def test_the_last_row_is_the_step_that_chose_the_last_token():
    model = make("decoder, t5")
    prompts = texts((3, 5))
    seen, found = run(model, Beam(3), prompts, [[], []])
    for row in range(2):
        expected = by_hand(model, [*prompts[row], *found[row].ids[:-1]], [])
        last = seen.weights("decoder.1.self", 1, rows=[-1], batch=row)
        torch.testing.assert_close(last, expected["decoder.1.self"][1, -1:], rtol=0, atol=1e-9)


def test_steps_taken_by_hand_append_rows():
    model = make("encoder_decoder, rotary")
    [tokens], source = texts((6,)), texts((4,), seed=2)
    with watch_module(model) as seen, torch.no_grad():
        model(inputs_of(model, [tokens[:3]], source))
        state = model.start(inputs_of(model, [tokens[:2]], source))
        _, state = model.step(torch.tensor(tokens[1:2]), state)
        _, state = model.extend(torch.tensor([tokens[2:5]]), state)
        model.step(torch.tensor(tokens[5:]), state)
    assert_seen(seen, 0, by_hand(model, tokens[:3], source[0]))
    assert_seen(seen, 1, by_hand(model, tokens, source[0]))


def test_going_on_from_an_earlier_state_is_a_run_of_its_own():
    model = make("decoder, rotary")
    [tokens] = texts((6,))
    with watch_module(model) as seen, torch.no_grad():
        _, state = model.extend(torch.tensor([tokens[:4]]), model.start(inputs_of(model, [tokens[:1]], [])))
        model.extend(torch.tensor([tokens[4:]]), state)
        model.extend(torch.tensor([tokens[:1:-1]]), state)
    assert_seen(seen, 0, by_hand(model, tokens, []))
    other = by_hand(model, [*tokens[:4], *tokens[:1:-1]], [])
    torch.testing.assert_close(
        seen.weights("decoder.0.self", batch=1), other["decoder.0.self"][:, 4:], rtol=0, atol=1e-9
    )


# Several runs in one watch


def test_sequences_count_through_the_runs():
    model = make("encoder_decoder, sinusoidal")
    tokens, source = texts((5, 3)), texts((4, 6), seed=2)
    prompts, sources = texts((1, 1, 1), seed=3), texts((3, 5, 2), seed=4)
    with watch_module(model) as seen:
        model(inputs_of(model, tokens, source))
        found = generate(model, inputs_of(model, prompts, sources), Beam(2), Stop(END, 5))
        model(inputs_of(model, tokens[:1], source[:1]))
    for row in range(2):
        assert_seen(seen, row, by_hand(model, tokens[row], source[row]))
    for row in range(3):
        assert_seen(seen, 2 + row, by_hand(model, [*prompts[row], *found[row].ids[:-1]], sources[row]))
    assert_seen(seen, 5, by_hand(model, tokens[0], source[0]))
    with pytest.raises(InputError, match="6 sequences were seen and none is batch=6; use 0 to 5"):
        seen.weights("encoder.0.self", batch=6)


def test_two_watches_at_once_each_see_everything():
    model = make("decoder, none")
    [tokens] = texts((5,))
    with watch_module(model) as outer:
        model(inputs_of(model, [tokens], []))
        with watch_module(model) as inner:
            model(inputs_of(model, [tokens[:3]], []))
    assert_seen(outer, 0, by_hand(model, tokens, []))
    assert_seen(outer, 1, by_hand(model, tokens[:3], []))
    assert_seen(inner, None, by_hand(model, tokens[:3], []))


# What it costs and what it leaves


def held(seen: Recording) -> dict[int, int]:
    """Bytes of every storage that can be reached from what was seen, by address."""
    storages: dict[int, int] = {}
    known, waiting = set(), [seen]
    while waiting:
        thing = waiting.pop()
        if id(thing) in known or isinstance(thing, type | types.ModuleType | types.FunctionType | nn.Module):
            continue
        known.add(id(thing))
        if isinstance(thing, Tensor):
            storages[thing.untyped_storage().data_ptr()] = thing.untyped_storage().nbytes()
        else:
            waiting += gc.get_referents(thing)
    return storages


@pytest.mark.parametrize(
    "name", ["encoder_decoder, rotary", "decoder, alibi", "encoder, t5", "encoder_decoder, additive"]
)
def test_a_pass_holds_nothing_of_the_square_of_its_length(name):
    model = make(name)
    total = {}
    for length in (101, 202, 303):
        with watch_module(model) as seen, torch.no_grad():
            model(inputs_of(model, texts((length,)), texts((length,), seed=2)))
        storages = held(seen)
        assert max(storages.values()) < length * length  # bytes, where a table of booleans would take that many
        total[length] = sum(storages.values())
    assert total[303] - total[202] == total[202] - total[101] > 0


@pytest.mark.parametrize("name", ["encoder_decoder, t5", "decoder, rotary"])
@pytest.mark.parametrize("strategy", [Greedy(), Beam(3)], ids=repr)
@pytest.mark.parametrize("prompts", [(1,), (4, 2)])
def test_while_decoding_memory_grows_with_the_text_not_with_its_square(name, strategy, prompts):
    model, total = make(name), {}
    for length in (6, 12, 18):
        with watch_module(model) as seen:
            inputs = inputs_of(model, texts(prompts), texts((3, 5)[: len(prompts)], seed=2))
            generate(model, inputs, strategy, Stop(-1, length))
        storages = held(seen)
        total[length] = sum(storages.values())
        rows = len(prompts) * (strategy.size if isinstance(strategy, Beam) else 1)
        assert max(storages.values()) <= 8 * 12 * rows * 8  # one step's queries of all rows, in float64, or the prompt
    assert total[18] - total[12] == total[12] - total[6] > 0


def hooks(model: nn.Module) -> int:
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_forward_hooks_with_kwargs", "_forward_pre_hooks_with_kwargs")
    kinds += ("_forward_hooks_always_called",)
    return sum(len(getattr(part, kind)) for part in model.modules() for kind in kinds)


def contents(model: nn.Module) -> dict[str, dict[str, int]]:
    """What every module has, by identity, hooks aside."""
    return {path: {name: id(value) for name, value in vars(part).items()} for path, part in model.named_modules()}


@pytest.mark.parametrize("name", ["encoder_decoder, t5", "decoder, rotary", "encoder, alibi"])
def test_nothing_is_stored_on_a_module(name):
    model = make(name)
    before, numbers = contents(model), {path: value.clone() for path, value in model.state_dict().items()}
    with watch_module(model):
        model(inputs_of(model, texts((5, 3)), texts((4, 6), seed=2)))
        if model.config.architecture != "encoder":
            generate(model, inputs_of(model, texts((2, 3)), texts((4, 6), seed=2)), Beam(2), Stop(END, 4))
        assert contents(model) == before
    assert contents(model) == before
    assert all(torch.equal(value, numbers[path]) for path, value in model.state_dict().items())


def test_hooks_and_listeners_are_gone_afterwards():
    model = make("encoder_decoder, t5")
    assert hooks(model) == 0
    with watch_module(model):
        assert hooks(model) > 0
        assert listeners.get()
    assert hooks(model) == 0
    assert not listeners.get()


class FailureError(Exception):
    pass


@pytest.mark.parametrize("where", ["decoder.layers.1.feedforward", "encoder.layers.0.self_attention.output"])
def test_after_a_failure_inside_the_model_hooks_are_gone_and_the_next_run_is_whole(where):
    model = make("encoder_decoder, sinusoidal")
    [tokens], [source] = texts((5,)), texts((7,), seed=2)

    def fail(*_):
        raise FailureError

    with watch_module(model) as seen:
        handle = model.get_submodule(where).register_forward_hook(fail)
        with pytest.raises(FailureError):
            model(inputs_of(model, [tokens], [source]))
        handle.remove()
        model(inputs_of(model, [tokens], [source]))
    assert_seen(seen, 1, by_hand(model, tokens, source))
    assert hooks(model) == 0
    with pytest.raises(FailureError), watch_module(model):
        raise FailureError
    assert hooks(model) == 0
    assert not listeners.get()


@pytest.mark.parametrize("name", ["encoder_decoder, rotary", "decoder, t5", "encoder, alibi"])
def test_being_watched_changes_no_bit_of_the_output(name):
    model = make(name)
    inputs = inputs_of(model, texts((5, 3)), texts((4, 6), seed=2))
    with torch.no_grad():
        alone = model(inputs)
        with watch_module(model):
            assert torch.equal(model(inputs), alone)


def test_inputs_may_be_given_by_name():
    model = make("decoder, none")
    tokens = texts((5, 3))
    with watch_module(model) as seen:
        model(inputs=inputs_of(model, tokens, []))
    for row in range(2):
        assert_seen(seen, row, by_hand(model, tokens[row], []))


def test_a_run_outside_the_block_is_not_seen():
    model = make("decoder, none")
    with watch_module(model) as seen:
        model(inputs_of(model, texts((3,)), []))
    model(inputs_of(model, texts((5,)), []))
    assert seen.weights("decoder.0.self").shape == (2, 3, 3)
    assert len(seen.forwards) == 1


def test_what_was_seen_has_no_gradient():
    model = make("decoder, none")
    with watch_module(model) as seen:
        model(inputs_of(model, texts((3,)), []))
    assert not any(
        call.query.requires_grad or call.new_keys.requires_grad for call in seen.forwards[0].layers["decoder.0.self"]
    )


# What is refused


def test_asking_before_anything_ran_is_refused():
    with watch_module(make("decoder, none")) as seen:
        assert seen.layers == []
        with pytest.raises(InputError, match="nothing was seen"):
            seen.weights("decoder.0.self")


def test_an_unknown_layer_names_the_nearest():
    seen, _ = a_pass()
    with pytest.raises(InputError, match=r"'decoder\.0\.crss'.*did you mean 'decoder\.0\.cross'\?.*encoder\.1\.self"):
        seen.weights("decoder.0.crss", batch=0)


@pytest.mark.parametrize("head", [2, -1])
def test_a_head_that_is_not_there_is_refused(head):
    seen, _ = a_pass()
    with pytest.raises(InputError, match=f"has 2 heads and no head {head}; use 0 to 1"):
        seen.weights("encoder.0.self", head, batch=0)


@pytest.mark.parametrize("batch", [2, -1])
def test_a_sequence_that_is_not_there_is_refused(batch):
    seen, _ = a_pass()
    with pytest.raises(InputError, match=f"2 sequences were seen and none is batch={batch}; use 0 to 1"):
        seen.weights("encoder.0.self", batch=batch)


def test_of_several_sequences_one_must_be_named():
    seen, _ = a_pass()
    with pytest.raises(InputError, match="2 sequences were seen; say which: batch=0 … 1"):
        seen.weights("encoder.0.self")


@pytest.mark.parametrize("row", [7, -8])
def test_a_row_that_is_not_there_is_refused(row):
    seen, _ = a_pass()
    with pytest.raises(InputError, match=f"the text has 7 rows and no row {row}"):
        seen.weights("decoder.0.self", rows=[0, row], batch=1)


def test_every_attention_of_a_model_is_watched():
    model = make("encoder_decoder, none")
    assert len(a_pass()[0].layers) == sum(isinstance(part, Attend) for part in model.modules()) == 6


def test_two_threads_that_watch_one_model_see_their_own_runs():
    config = TransformerConfig(vocabulary=11, width=8, heads=2, architecture="decoder", feedforward_width=8)
    model = Transformer(config).eval()
    texts = [[1, 2, 3], [4, 5, 6, 7, 8]]
    alone = []
    for text in texts:
        with watch_module(model) as seen, torch.no_grad():
            model(Inputs(Padded.of([text])))
        alone.append(seen.weights("decoder.1.self"))

    together = Barrier(2)

    def watched(text: list[int]) -> torch.Tensor:
        with watch_module(model) as seen, torch.no_grad():
            together.wait()  # both watch before either runs: PyTorch's hooks cannot be set while a module is called
            for _ in range(5):
                model(Inputs(Padded.of([text])))
            together.wait()
        assert len(seen.forwards) == 5
        return seen.weights("decoder.1.self", batch=4)

    with ThreadPoolExecutor(2) as pool:
        for expected, found in zip(alone, pool.map(watched, texts), strict=True):
            torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("similarity", ["additive", "general"])
def test_weights_carry_no_graph_of_what_is_learnt(similarity):
    config = TransformerConfig(vocabulary=11, width=8, heads=2, architecture="encoder", similarity=similarity)
    model = Transformer(config)
    with watch_module(model) as seen:
        model(Inputs(Padded.of([[1, 2, 3]])))
    assert not seen.weights("encoder.0.self").requires_grad
    assert not seen.top(2, "encoder.0.self").weights.requires_grad


@pytest.mark.parametrize("prompt", [1, 3])
@pytest.mark.parametrize("strategy", [Greedy(), Beam(3)], ids=["greedy", "beam"])
@pytest.mark.parametrize("variant", ["decoder, rotary", "encoder_decoder, sinusoidal", "encoder_decoder, general"])
def test_a_run_in_bfloat16_is_seen_as_one_pass_over_its_text_is(variant, strategy, prompt):
    model = copy.deepcopy(make(variant)).bfloat16()
    source = Padded.of(texts((5,))) if variant.startswith("encoder_decoder") else None
    start = Padded.of(texts((prompt,), seed=2))
    with watch_module(model) as seen:
        found = generate(model, Inputs(start, source), strategy, Stop(END, 6))[0]
    with torch.no_grad(), watch_module(model) as whole:
        read = [*start.ids[0].tolist(), *found.ids][:-1]
        model(Inputs(Padded.of([read]), source))
    for layer in (name for name in seen.layers if name.startswith("decoder")):
        actual, peer = seen.weights(layer, 0, batch=0), whole.weights(layer, 0, batch=0)
        torch.testing.assert_close(actual.double(), peer.double(), atol=0.12, rtol=0)  # sharp rows of rounded numbers
        assert seen.entropy(layer)[0].shape == whole.entropy(layer)[0].shape


def test_a_stream_that_began_before_the_watch_is_refused_in_words():
    model = make("decoder, rotary")
    stepping = stream(model, Inputs(Padded.of(texts((3,)))), Greedy(), Stop(-1, 6))
    next(stepping)
    with watch_module(model) as seen:
        list(stepping)
    with pytest.raises(InputError, match="began before it was watched"):
        seen.weights("decoder.0.self", 0)


# A cache with room behind its last token


@pytest.mark.parametrize("bias", ["none", "by distance"])
def test_rows_are_exact_where_it_is_said_where_the_queries_stand(bias):
    module = MultiHeadAttention(12, 4, key_value_heads=2).double().eval()
    room, at = torch.randn(3, 11, 12).double(), torch.tensor([[0, 1, 2], [4, 5, 6], [8, 9, 10]])
    inputs = room.gather(1, at[..., None].expand(-1, -1, 12))
    added = ALiBi(4) if bias == "by distance" else None
    memory = module.keys_values(room)
    with torch.no_grad(), watch_module(module) as seen:
        for _ in range(2):  # a cache is written in place: what was recorded stays what it was
            module(inputs, memory, mask=Causal(), bias=added, query_positions=at)
            memory.keys[:, :, 10] += 1.0
            at[2, 2] = 9
    assert [seen.crosses("attention"), seen.sequences] == [False, 6]
    again = module.keys_values(room).keys
    for batch, row in product(range(3), range(3)):
        place = 8 + row if batch == 2 else 4 * batch + row
        alone = room[batch : batch + 1, : place + 1]
        query, keys = module.queries(alone[:, -1:]), again[batch : batch + 1, :, : place + 1]
        scores = query @ keys.repeat_interleave(2, 1).transpose(2, 3) / math.sqrt(3)
        scores = scores if added is None else scores + added.dense((1, 4, 1, place + 1), room.device)
        found = seen.weights("attention", rows=[row], batch=batch)
        assert_close(found[:, 0, : place + 1], scores.softmax(-1)[0, :, 0])
        assert (found[:, 0, place + 1 :] == 0).all()
