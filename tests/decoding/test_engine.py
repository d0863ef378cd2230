"""One loop decodes Transformers and recurrent networks alike, and equals the model run over the whole text anew."""

from functools import cache

import pytest
import torch
from small_steppers import END, Case, Text, random_logits, recurrent_case, seq2seq_case, told_case, transformer_case

from regard.data.batching import Inputs, Padded
from regard.decoding.engine import generate, last_tokens, listeners, stream, watch_beam, watch_steps
from regard.decoding.hypothesis import Stop
from regard.decoding.requests import RowRequest
from regard.decoding.row_engine import Capacity, RowEngine
from regard.decoding.strategies import Beam, Greedy, Sample
from regard.decoding.trace import BeamWatch, StepWatch
from regard.errors import InputError

LIMIT = 9
STRATEGIES = (Greedy(), Sample(temperature=1.4, seed=2), Sample(top_k=3, top_p=0.9, seed=1), Beam(3, 0.7), Beam(1))
SCHEMES = ("sinusoidal", "learned", "rotary", "alibi", "t5", "none")
TRANSFORMERS = {
    f"{architecture}, {positions}": (architecture, positions)
    for architecture in ("encoder_decoder", "decoder")
    for positions in SCHEMES
}

SEQ2SEQ = {"seq2seq, gru": 3, "bahdanau, lstm": 5, "luong, rnn": 6}
"""Each with a seed that gives texts of unequal length."""


@cache
def make(name: str) -> Case:
    if name in SEQ2SEQ:
        return seq2seq_case(*name.split(", "), seed=SEQ2SEQ[name])
    return recurrent_case() if name == "recurrent" else transformer_case(*TRANSFORMERS[name])


def greedily(case: Case, row: int) -> Text:
    """Argmax after argmax, each by a pass over the whole text."""
    text: Text = ()
    while len(text) < LIMIT and text[-1:] != (END,):
        text = (*text, int(case.after(row, text).argmax()))
    return text


# Greedy is the argmax of the uncached model


@pytest.mark.parametrize("name", [*TRANSFORMERS, "recurrent", *SEQ2SEQ])
def test_greedy_equals_the_argmax_of_the_whole_text_run_anew(name):
    case = make(name)
    found = generate(case.stepper, case.inputs, Greedy(), Stop(END, LIMIT))
    assert [one.ids for one in found] == [greedily(case, row) for row in case.rows]


@pytest.mark.parametrize("name", ["encoder_decoder, rotary", "decoder, rotary", *SEQ2SEQ])
@pytest.mark.parametrize("strategy", STRATEGIES, ids=repr)
def test_ragged_prompts_are_continued_alike_from_either_side(name, strategy):
    case = make(name)
    prompts = case.inputs.tokens.rows()
    found = [
        generate(
            case.stepper,
            Inputs(Padded.of(prompts, side=side, fill=fill), case.inputs.source),
            strategy,
            Stop(END, LIMIT),
        )
        for side in ("left", "right")
        for fill in (0, 6)
    ]
    assert all([one.ids for one in other] == [one.ids for one in found[0]] for other in found[1:])


@pytest.mark.parametrize("side", ["left", "right"])
def test_the_first_step_gets_the_last_token_of_every_prompt(side):
    prompts = [[3, 1, 4], [1], [5, 9]]
    assert last_tokens(Inputs(Padded.of(prompts, side=side))).tolist() == [4, 1, 9]
    assert last_tokens(Inputs(Padded.of([[2, 7], [1, 8]], side=side))).tolist() == [7, 8]


# Every strategy, every kind of model

KINDS = ("encoder_decoder, rotary", "decoder, sinusoidal", "recurrent", *SEQ2SEQ)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("strategy", STRATEGIES, ids=repr)
def test_a_score_is_the_sum_of_its_tokens_log_probabilities(name, strategy):
    case = make(name)
    power = strategy.length_penalty if isinstance(strategy, Beam) else 0.0
    for row, one in zip(case.rows, generate(case.stepper, case.inputs, strategy, Stop(END, LIMIT)), strict=True):
        assert one.score == pytest.approx(case.score(row, one.ids) / len(one.ids) ** power, abs=1e-9)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("strategy", STRATEGIES, ids=repr)
def test_a_text_stops_at_its_end_or_at_the_limit_and_nowhere_else(name, strategy):
    case = make(name)
    lengths = set()
    for limit in (1, 2, 5, LIMIT):
        for one in generate(case.stepper, case.inputs, strategy, Stop(END, limit)):
            assert END not in one.ids[:-1]
            assert len(one.ids) == limit or one.ids[-1] == END
            assert len(one.ids) <= limit
            assert len(one.rows) == len(one.ids)
            lengths.add(len(one.ids))
    assert len(lengths) > 2


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("strategy", [Greedy(), Beam(3, 0.7)], ids=repr)
def test_rows_that_finish_leave_without_changing_the_others(name, strategy):
    case = make(name)
    together = generate(case.stepper, case.inputs, strategy, Stop(END, LIMIT))
    assert len({len(one.ids) for one in together}) > 1  # else nothing leaves early
    for row, one in zip(case.rows, together, strict=True):
        [alone] = generate(case.stepper, case.alone(row), strategy, Stop(END, LIMIT))
        assert alone.ids == one.ids
        assert alone.score == pytest.approx(one.score, abs=1e-9)


class Counting:
    """A stepper that notes how many rows every step had."""

    def __init__(self, inner) -> None:
        self.inner, self.sizes = inner, []

    def start(self, inputs):
        return self.inner.start(inputs)

    def step(self, ids, state):
        self.sizes.append(len(ids))
        return self.inner.step(ids, state)

    def extend(self, ids, state):
        return self.inner.extend(ids, state)


@pytest.mark.parametrize("strategy", [Greedy(), Sample(temperature=2.0, seed=3)], ids=repr)
def test_a_finished_row_costs_no_further_step(strategy):
    case = told_case(random_logits(5, seed=11), [(token,) for token in range(5)] * 3)
    counting = Counting(case.stepper)
    found = generate(counting, case.inputs, strategy, Stop(END, LIMIT))
    lengths = [len(one.ids) for one in found]
    assert counting.sizes == [sum(length > step for length in lengths) for step in range(max(lengths))]
    for one in found:
        assert all(row < size for row, size in zip(one.rows, counting.sizes, strict=False))


@pytest.mark.parametrize("strategy", STRATEGIES, ids=repr)
def test_the_rows_of_a_hypothesis_are_where_its_tokens_were_computed(strategy):
    case = told_case(random_logits(5, seed=7), [(token,) for token in range(4)])
    prompts, inputs_of_step = case.inputs.tokens.rows(), []

    class Watching(Counting):
        def step(self, ids, state):
            before = [(*text, token) for text, token in zip(state.texts, ids.tolist(), strict=True)]
            inputs_of_step.append(before)
            return self.inner.step(ids, state)

    found = generate(Watching(case.stepper), case.inputs, strategy, Stop(END, LIMIT))
    for prompt, one in zip(prompts, found, strict=True):
        for step, row in enumerate(one.rows):
            assert inputs_of_step[step][row] == (*prompt, *one.ids[:step])


def test_a_prompt_may_contain_the_end():
    case = told_case(random_logits(5, seed=3), [(END, 1), (1, END)])
    found = generate(case.stepper, case.inputs, Greedy(), Stop(END, LIMIT))
    assert [one.ids for one in found] == [greedily(case, row) for row in case.rows]


# Streaming


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("strategy", STRATEGIES[:3], ids=repr)
def test_a_stream_is_what_generate_finds(name, strategy):
    case = make(name)
    for row in case.rows:
        [whole] = generate(case.stepper, case.alone(row), strategy, Stop(END, LIMIT))
        assert tuple(stream(case.stepper, case.alone(row), strategy, Stop(END, LIMIT))) == whole.ids


def test_a_stream_gives_each_token_before_the_next_is_computed():
    case = told_case(random_logits(5, seed=1), [(1,)])
    counting = Counting(case.stepper)
    for count, _ in enumerate(stream(counting, case.inputs, Greedy(), Stop(-1, 6)), start=1):
        assert len(counting.sizes) == count


def test_several_sequences_cannot_share_a_stream():
    case = told_case(random_logits(5, seed=1), [(1,), (3,)])
    with pytest.raises(InputError, match="2 sequences cannot share one stream"):
        next(stream(case.stepper, case.inputs, Greedy(), Stop(END, 3)))


# Who listens


@pytest.mark.parametrize("streamed", [False, True])
def test_a_listener_is_told_what_was_given_and_found(streamed):
    case, told = told_case(random_logits(5, seed=1), [(1,)]), []

    class Heard:
        def opened(self, inputs):
            told.append("opened")

        def started(self):
            told.append("started")

        def finished(self, inputs, found):
            told.append((inputs, found))

        def closed(self):
            told.append("closed")

    token = listeners.set((Heard(),))
    try:
        if streamed:
            ids = tuple(stream(case.stepper, case.inputs, Greedy(), Stop(END, LIMIT)))
        else:
            ids = generate(case.stepper, case.inputs, Greedy(), Stop(END, LIMIT))[0].ids
    finally:
        listeners.reset(token)
    opened, started, (inputs, [one]), closed = told
    assert (opened, started, closed) == ("opened", "started", "closed")
    assert inputs is case.inputs
    assert one.ids == ids
    assert one.score == pytest.approx(case.score(0, ids), abs=1e-12)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=repr)
def test_decoding_keeps_no_gradients(strategy):
    case = make("recurrent")
    seen = []

    class Looking(Counting):
        def step(self, ids, state):
            logits, state = self.inner.step(ids, state)
            seen.append(logits.requires_grad)
            return logits, state

    generate(Looking(case.stepper), case.inputs, strategy, Stop(END, 3))
    assert seen
    assert not any(seen)
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("prompts", [[[]], [[1], []]])
def test_a_prompt_of_no_tokens_is_refused_whatever_decodes_it(prompts):
    case, said = transformer_case("decoder", "rotary"), "a prompt of no tokens has nothing to go on from"
    inputs = Inputs(Padded.of(prompts, side="left"))
    for strategy in (Greedy(), Sample(), Beam(2)):
        with pytest.raises(InputError, match=said):
            generate(case.stepper, inputs, strategy, Stop(END, 3))
    with pytest.raises(InputError, match=said):
        list(stream(case.stepper, inputs.select([len(prompts) - 1]), Greedy(), Stop(END, 3)))
    with pytest.raises(InputError, match=said):
        RowEngine(case.stepper.in_place(), Capacity(2, 20)).admit([RowRequest((), Greedy(), Stop(END, 5))])
    with pytest.raises(InputError, match=said):
        watch_steps(case.stepper, inputs, Greedy(), Stop(END, 3), (), StepWatch((), str))
    with pytest.raises(InputError, match=said):
        watch_beam(case.stepper, inputs, Beam(2), Stop(END, 3), (), BeamWatch(str, Beam(2)))
