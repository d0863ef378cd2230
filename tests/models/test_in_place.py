"""What a decoder gives in place is what the whole text gives; a state's copies outlive it, and it can go back."""

import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data.batching import Inputs, Padded
from regard.decoding.sliding import Sliding
from regard.errors import InputError
from regard.models.config import TransformerConfig
from regard.models.network import NETWORKS, Network
from regard.models.unmasked import UnmaskedConfig, UnmaskedTransformer
from rounding import assert_close

sys.path.append(str(Path(__file__).parents[1] / "properties"))
from axes_of_models import (
    ATTENTIONAL,
    FIXED,
    TRANSFORMER,
    covering,
    mechanism,
    mechanism_choices,
    recurrent,
    transformer,
)

GIVEN, SOURCES, AHEAD = (4, 1, 3, 2), (3, 6, 4, 1), 6
"""Tokens of each prompt and of each source, and how many every row goes on for."""

CONFIGS = [
    *(transformer(choice) for choice in covering(TRANSFORMER, 14)),
    *(recurrent(axes, choice) for axes in (ATTENTIONAL, FIXED) for choice in covering(axes, 2)),
    *(config for choice in mechanism_choices(False) if (config := mechanism(choice)) is not None),
]
DECODING = [config for config in CONFIGS if config.decodes and config.outputs == "tokens"]


def built(config) -> Network:
    torch.manual_seed(3)
    return config.build().double().eval()


def steppers(model: Network) -> list:
    """The model itself, and its decoder in place where it has one."""
    return [model, model.in_place()] if model.in_place_unsupported() is None else [model]


def texts(model: Network) -> tuple[list[list[int]], list[list[int]]]:
    draw = torch.Generator().manual_seed(5)
    rows = [torch.randint(model.config.vocabulary, (count + AHEAD,), generator=draw).tolist() for count in GIVEN]
    sources = [torch.randint(model.config.vocabulary, (count,), generator=draw).tolist() for count in SOURCES]
    return rows, sources


def inputs(model: Network, rows: list[list[int]], sources: list[list[int]]) -> Inputs:
    prompts = Padded.of([row[:count] for row, count in zip(rows, GIVEN, strict=True)], side="left")
    return Inputs(prompts, Padded.of(sources) if model.config.reads_source else None)


def whole(model: Network, rows: list[list[int]], sources: list[list[int]]) -> list[torch.Tensor]:
    """The logits of every text, read at once and alone."""
    alone = zip(rows, sources, strict=True)
    reads = model.config.reads_source
    return [model(Inputs(Padded.of([row]), Padded.of([source]) if reads else None))[0] for row, source in alone]


def column(rows: list[list[int]], order: list[int], ahead: int) -> torch.Tensor:
    return torch.tensor([rows[row][GIVEN[row] - 1 + ahead] for row in order])


def check(found: torch.Tensor, expected: list[torch.Tensor], order: list[int], ahead: int) -> None:
    for at, row in enumerate(order):
        assert_close(found[at], expected[row][GIVEN[row] - 1 + ahead], 1e-6)


@pytest.mark.parametrize("config", DECODING, ids=lambda config: f"{config.name}-{config.words}")
@torch.no_grad()
def test_steps_pieces_and_rows_that_come_and_go_give_what_the_whole_text_gives(config):
    model = built(config)
    rows, sources = texts(model)
    expected = whole(model, rows, sources)
    for stepper in steppers(model):
        state, order = stepper.start(inputs(model, rows, sources)), [0, 1, 2, 3]
        for ahead in range(3):
            logits, state = stepper.step(column(rows, order, ahead), state)
            check(logits, expected, order, ahead)
            keep = torch.tensor([2, 0, 1, 3] if ahead else [3, 0, 2])  # first one row leaves, then they change places
            keep = keep[: len(order)] if ahead == 0 else keep[keep < len(order)]
            state, order = state.select(keep), [order[row] for row in keep.tolist()]
        kept = state.copy()
        piece = torch.stack([column(rows, order, ahead) for ahead in (3, 4, 5)], dim=1)
        for again in (state, kept):  # the first is spent; its copy goes on as it would have
            logits, _ = stepper.extend(piece, again)
            for ahead in range(3):
                check(logits[:, ahead], expected, order, 3 + ahead)


@pytest.mark.parametrize("config", DECODING, ids=lambda config: f"{config.name}-{config.words}")
@torch.no_grad()
def test_a_state_goes_back_by_rows_or_says_that_it_cannot(config):
    model = built(config)
    rows, sources = texts(model)
    expected = whole(model, rows, sources)
    for stepper in steppers(model):
        state, order = stepper.start(inputs(model, rows, sources)), [0, 1, 2, 3]
        for ahead in range(3):
            _, state = stepper.step(column(rows, order, ahead), state)
        back = [2, 0, 1, 3]  # of its three steps each row takes so many back
        lengths = torch.tensor([count + 2 - gone for count, gone in zip(GIVEN, back, strict=True)])
        try:
            state = state.trim(lengths)
        except InputError as error:
            assert str(error).endswith("read them again from the start")  # noqa: PT017
            assert stepper is model
            continue
        ids = torch.tensor([rows[row][GIVEN[row] + 2 - back[row]] for row in order])
        logits, _ = stepper.step(ids, state)
        for row in order:
            assert_close(logits[row], expected[row][GIVEN[row] + 2 - back[row]], 1e-6)


@settings(max_examples=12)
@given(st.data())
@torch.no_grad()
def test_rows_are_admitted_and_leave_between_any_two_steps(data):
    """Every row's logits are those of its own text, whoever stands beside it and stood there before."""
    config = TransformerConfig(
        architecture="decoder",
        vocabulary=13,
        width=12,
        heads=2,
        layers=2,
        positions=data.draw(st.sampled_from(SCHEMES)),
    )
    model = built(config)
    stepper = model.in_place()
    state, slots = stepper.allocate(4, 64), [None] * 4
    for _ in range(data.draw(st.integers(2, 6))):
        free = [slot for slot, held in enumerate(slots) if held is None]
        coming = data.draw(st.integers(0, len(free)))
        if coming:
            drawn = [data.draw(st.lists(st.integers(0, 12), min_size=1, max_size=7)) for _ in range(coming)]
            stepper.admit(Inputs(Padded.of(drawn)), state, torch.tensor(free[:coming]))
            for slot, prompt in zip(free, drawn, strict=False):
                slots[slot] = prompt
        ids = torch.tensor([0 if held is None else held[-1] for held in slots])
        logits, state = stepper.step(ids, state)
        for slot, held in enumerate(slots):
            if held is not None:
                assert_close(logits[slot], model(Inputs(Padded.of([held])))[0, -1], 1e-6)
                leaves = data.draw(st.booleans())
                slots[slot] = None if leaves else [*held, int(logits[slot].argmax())]


SCHEMES = ("sinusoidal", "learned", "rotary", "alibi", "t5", "none")


@torch.no_grad()
def test_a_cache_grows_and_its_rows_are_moved_in_place():
    model = built(TransformerConfig(architecture="decoder", vocabulary=13, width=12, heads=2, layers=2))
    stepper, ids = model.in_place(), torch.randint(13, (3, 150))
    state = stepper.start(Inputs(Padded.of(ids[:, :60].tolist())))
    assert state.room == 64
    address = state.layers[0].keys.data_ptr()
    state.move(torch.tensor([2]), torch.tensor([1]))
    state = state.part(2)
    assert state.layers[0].keys.data_ptr() == address
    logits, state = stepper.extend(ids[[0, 2], 59:], state)
    assert state.room >= 150
    assert_close(logits, model(Inputs(Padded.of(ids[[0, 2]].tolist())))[:, 59:], 1e-6)


def test_what_keeps_no_single_tokens_does_not_decode_in_place():
    shape = {"vocabulary": 13, "width": 12, "heads": 2, "layers": 2}
    model = TransformerConfig(architecture="decoder", attention="performer", **shape).build()
    with pytest.raises(InputError, match="keeps no keys and values of single tokens; decode with the model itself"):
        model.in_place()
    with pytest.raises(InputError, match="it does not decode"):
        TransformerConfig(architecture="encoder", **shape).build().in_place()
    unmasked = UnmaskedConfig(architecture="decoder", **shape)
    with pytest.raises(InputError, match="every token sees every other; decode with the model itself"):
        UnmaskedTransformer(unmasked).in_place()
    with pytest.raises(InputError, match="a seq2seq network has no decoder in place; decode with the model itself"):
        next(config for config in DECODING if config.name == "seq2seq").build().in_place()
    assert {config.name for config in DECODING} >= {"transformer", "seq2seq"} & set(NETWORKS)


@torch.no_grad()
def test_a_text_that_slides_goes_back_within_its_window():
    model = built(TransformerConfig(architecture="decoder", vocabulary=13, width=12, heads=2, layers=2))
    stepper = Sliding(model, 7)
    state = stepper.start(Inputs(Padded.of([[1, 2, 3], [4]])))
    for token in (5, 6):
        _, state = stepper.step(torch.tensor([token, token]), state)
    logits, _ = stepper.step(torch.tensor([9, 9]), state.trim(torch.tensor([3, 1])))
    for row, text in enumerate(([1, 2, 5, 9], [5, 9])):
        assert_close(logits[row], model(Inputs(Padded.of([text])))[0, -1], 1e-6)
