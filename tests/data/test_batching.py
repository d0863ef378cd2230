"""Padding and objectives: a rectangle holds exactly its sequences, and what is trained is what decoding asks for."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.data.batching import IGNORED, Batch, Inputs, Padded
from regard.data.corpus import Pair
from regard.data.objectives import Continuation, Example, Objective, SourceToTarget
from regard.errors import InputError
from regard.text.tokenizer import Tokenizer

sequences = st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=7), min_size=1, max_size=5)
sides = pytest.mark.parametrize("side", ["left", "right"])
objectives = pytest.mark.parametrize("kind", [SourceToTarget, Continuation])

PAIRS = [Pair("de: 3 mars", "3. März"), Pair("a", "bcdefgh"), Pair("xyzxyzxyz", "q")]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train([text for pair in PAIRS * 2 for text in pair], 271)


# Padded


@sides
@given(rows=sequences, fill=st.sampled_from([0, 5, IGNORED]))
def test_a_rectangle_gives_its_sequences_back(side, rows, fill):
    padded = Padded.of(rows, fill=fill, side=side)
    assert padded.rows() == rows
    assert padded.lengths.tolist() == [len(row) for row in rows]
    assert padded.ragged == (len({len(row) for row in rows}) > 1)


@sides
@given(rows=sequences)
def test_every_place_is_real_or_filled_and_padding_is_on_its_side(side, rows):
    padded = Padded.of(rows, fill=1009, side=side)
    longest = max(map(len, rows))
    assert padded.ids.shape == padded.real.shape == (len(rows), longest)
    assert torch.equal(padded.ids == 1009, ~padded.real)
    for real, row in zip(padded.real.tolist(), rows, strict=True):
        gap = [False] * (longest - len(row))
        assert real == ([True] * len(row) + gap if side == "right" else gap + [True] * len(row))


def test_a_batch_of_nothing_is_refused():
    with pytest.raises(InputError, match="a batch of no sequences; give at least one"):
        Padded.of([])


def test_another_device_keeps_everything_else():
    padded = Padded.of([[2, 3], [5]], side="left")
    inputs = Inputs(padded, Padded.of([[7]] * 2))
    batch = Batch(inputs, torch.tensor([[1, IGNORED], [1, 1]])).to("meta")
    assert batch.inputs.tokens.ids.device == batch.inputs.source.ids.device == batch.targets.device
    assert batch.targets.device == torch.device("meta")
    assert (batch.inputs.tokens.side, batch.inputs.tokens.ragged) == ("left", True)
    assert Inputs(padded).to("cpu").source is None
    assert Batch(inputs, torch.tensor([[1, IGNORED], [1, 1]])).count == 3


# Objectives


def test_source_to_target_reads_the_source_and_predicts_the_target_one_ahead(tokenizer):
    batch = SourceToTarget(tokenizer).batch([Example([11, 12, 13], [21, 22]), Example([14], [23, 24, 25])])
    bos, eos, pad = tokenizer.bos_id, tokenizer.eos_id, tokenizer.pad_id
    assert batch.inputs.source.ids.tolist() == [[11, 12, 13, eos], [14, eos, pad, pad]]
    assert batch.inputs.tokens.ids.tolist() == [[bos, 21, 22, pad], [bos, 23, 24, 25]]
    assert batch.targets.tolist() == [[21, 22, eos, IGNORED], [23, 24, 25, eos]]
    assert batch.count == 7


def test_continuation_reads_both_in_one_row_and_never_predicts_the_source(tokenizer):
    batch = Continuation(tokenizer).batch([Example([11, 12, 13], [21, 22]), Example([14], [23])])
    bos, eos, pad = tokenizer.bos_id, tokenizer.eos_id, tokenizer.pad_id
    assert batch.inputs.source is None
    assert batch.inputs.tokens.ids.tolist() == [[11, 12, 13, bos, 21, 22], [14, bos, 23, pad, pad, pad]]
    assert batch.targets.tolist() == [[IGNORED] * 3 + [21, 22, eos], [IGNORED, 23, eos] + [IGNORED] * 3]
    assert batch.count == 5


@objectives
def test_targets_are_the_tokens_one_place_on(kind, tokenizer):
    objective: Objective = kind(tokenizer)
    batch = objective.batch(objective.encode(PAIRS))
    tokens, targets = batch.inputs.tokens, batch.targets
    follows = tokens.real[:, 1:] & (targets[:, :-1] != IGNORED)
    assert torch.equal(targets[:, :-1][follows], tokens.ids[:, 1:][follows])
    assert (targets[~tokens.real] == IGNORED).all()
    last = targets.gather(1, tokens.lengths[:, None] - 1).squeeze(1)
    assert (last == tokenizer.eos_id).all()
    assert batch.count == sum(len(tokenizer.encode(pair.target)) + 1 for pair in PAIRS)


@objectives
def test_what_follows_the_prompt_is_what_the_batch_trains(kind, tokenizer):
    """After its prompt, every row of a batch goes on with the target: the first prediction is the first target."""
    objective: Objective = kind(tokenizer)
    batch = objective.batch(objective.encode(PAIRS))
    prompt = objective.prompt([pair.source for pair in PAIRS])
    assert (prompt.source is None) == (batch.inputs.source is None)
    if prompt.source is not None:
        assert prompt.source.rows() == batch.inputs.source.rows()
    for row, (start, tokens, pair) in enumerate(
        zip(prompt.tokens.rows(), batch.inputs.tokens.rows(), PAIRS, strict=True)
    ):
        target = tokenizer.encode(pair.target)
        assert tokens == start + target
        trained = batch.targets[row, len(start) - 1 : len(tokens)].tolist()
        assert trained == [*target, tokenizer.eos_id]
        assert (batch.targets[row, : len(start) - 1] == IGNORED).all()


@objectives
def test_prompts_of_a_batch_all_end_in_the_last_column(kind, tokenizer):
    prompt = kind(tokenizer).prompt([pair.source for pair in PAIRS])
    assert not prompt.tokens.ragged or prompt.tokens.side == "left"
    assert (prompt.tokens.ids[:, -1] == tokenizer.bos_id).all()


@objectives
def test_the_cost_of_an_example_is_the_columns_it_fills(kind, tokenizer):
    objective: Objective = kind(tokenizer)
    for example in objective.encode(PAIRS):
        inputs = objective.batch([example]).inputs
        widths = [part.ids.shape[1] for part in (inputs.tokens, inputs.source) if part is not None]
        assert objective.cost(example) == max(widths)


@objectives
def test_encoding_together_is_encoding_one_by_one(kind, tokenizer):
    objective: Objective = kind(tokenizer)
    alone = [Example(tokenizer.encode(pair.source), tokenizer.encode(pair.target)) for pair in PAIRS]
    assert objective.encode(PAIRS) == alone
