"""Word2Vec on a CPU, compiled by Numba: many words at once against weights that stand still, then one update of all.

A block of centre words is processed in two steps. First threads share out its runs of neighbours: for each word the
window and the questions are drawn, and the step of every vector that is touched is written down, one for all words of a
run that read it. Then threads share out the rows of the tables, and the owner of a row adds the steps that concern it,
in the words' order. What is drawn depends on a word's place in the text and on the seed, so the result is the same, bit
for bit, for any number of threads. The questions of a centre word are shared by its window: a block is SGD on the loss
of `word2vec.py`, step for step.

Importing this file needs Numba; `fit.py` does so when it is called. Compiled code is kept beside this file
like Python's own, or in the user's cache folder; Numba looks only at this file's time, so whoever changes
`block.py`, `draws.py`, `rows.py` or `threads.py` touches this one too.
"""

import math
from typing import Any, no_type_check

import numpy as np
from jaxtyping import Float64, Int32

from regard.embedding.word2vec.block import EIGHT, CentreBlock, Draws, Handed, Schedule, Tables, Text
from regard.embedding.word2vec.draws import address, compiled, draw_noise, draw_ways, draw_windows
from regard.embedding.word2vec.rows import add, answer_eight, clear, dots, fetch, fetch_to_change, mix, mix_into
from regard.embedding.word2vec.threads import Meeting, meet, new_meeting, share_out

SOON = 6
"""Rows that are on their way while one is added to."""
AHEAD = 8
"""Centre words whose rows are on their way while one is at work."""
LOST = np.float32(-math.inf)
"""The score of a question that is not asked: its answer is no, and there is no loss."""
LARGE = 1e100
"""A product of this size makes room for more by its logarithm."""


@compiled
@no_type_check
def numbers(block: CentreBlock) -> int:
    """How many there are in a row of vectors, with those that fill it up."""
    return block.input_steps.strides[1] // 4


@compiled
@no_type_check
def fetch_run(at: int, window: int, text: Text, tables: Tables, block: CentreBlock) -> None:
    """Have the rows brought near that a run reads which begins there."""
    for place in range(max(at - window, 0), min(at + block.run + window, text.kept.size)):
        fetch(address(tables.read, text.kept[place]), numbers(block))


@compiled
@no_type_check
def fetch_questions(centre: int, tables: Tables, block: CentreBlock) -> None:
    """Have the rows of a centre word's questions brought near."""
    for j in range(block.question_counts[centre]):
        fetch(address(tables.asked, block.questions[centre, j]), numbers(block))


@compiled
@no_type_check
def answer_all(centre: int, reads: int, rate: float, block: CentreBlock) -> None:
    """From scores to errors, eight at a time, for every input or all as one, and the loss."""
    errors, answers, count = block.errors, block.answers, block.question_counts[centre]
    loss, product = 0.0, 1.0
    for i in range(reads):
        for rest in range(count, errors.shape[2]):
            errors[centre, i, rest] = LOST
        for begin in range(0, count, EIGHT):
            scores = address(errors, centre) + 4 * (i * errors.shape[2] + begin)
            away, factors = answer_eight(scores, address(answers, centre) + 4 * begin, rate)
            loss += away
            product *= factors
        if product > LARGE:
            loss += math.log(product)
            product = 1.0
    block.losses[centre], block.factors[centre] = loss, product


@compiled
@no_type_check
def skip_gram(centre: int, first: int, rate: float, tables: Tables, block: CentreBlock) -> None:
    """Every input by itself answers every question: errors, steps and loss. Those of inputs stand from `first` on."""
    inputs, questions, width = np.int64(block.input_counts[centre]), block.question_counts[centre], numbers(block)
    read, asked = address(tables.read, 0), address(tables.asked, 0)
    rows, others = address(block.inputs, centre), address(block.questions, centre)
    errors, apart = address(block.errors, centre), block.errors.shape[2]
    for i in range(inputs):
        row = address(tables.read, block.inputs[centre, i])
        dots(errors + 4 * i * apart, row, others, questions, asked, width)
    answer_all(centre, inputs, rate, block)
    for i in range(inputs):
        place = i + (i >= block.befores[centre])
        mix_into(first + 4 * place * width, (1, 0), errors + 4 * i * apart, others, questions, asked, width)
    steps = address(block.question_steps, centre)
    for j in range(questions):
        mix(steps + 4 * j * width, errors + 4 * j, apart, rows, inputs, read, width)


@compiled
@no_type_check
def cbow(centre: int, first: int, rate: float, tables: Tables, block: CentreBlock) -> None:
    """The mean of the inputs answers every question: errors, steps and loss. Those of inputs stand from `first` on.

    Each input takes the whole step of the mean, as in word2vec; its gradient would be its share of that.
    """
    inputs, questions, width = block.input_counts[centre], block.question_counts[centre], numbers(block)
    read, asked = address(tables.read, 0), address(tables.asked, 0)
    rows, others = address(block.inputs, centre), address(block.questions, centre)
    errors, before = address(block.errors, centre), np.int64(block.befores[centre])
    mean = address(block.question_steps, centre)  # which a question's step is a multiple of
    block.shares[centre] = np.float32(1.0) / np.float32(inputs)
    mix(mean, address(block.shares, centre), 0, rows, inputs, read, width)
    dots(errors, mean, others, questions, asked, width)
    answer_all(centre, 1, rate, block)
    mix_into(first, (before, inputs - before), errors, others, questions, asked, width)


@compiled
@no_type_check
def owner(row: int, parts: int) -> int:
    """Which part a row belongs to: as even as the remainder (Knuth's multiplicative hashing), without a division."""
    return np.int64(
        ((np.uint64(row) * np.uint64(2654435761) & np.uint64(0xFFFFFFFF)) * np.uint64(parts)) >> np.uint64(32)
    )


@compiled
@no_type_check
def hand(part: int, row: int, table: Any, times: float, step: int, handed: Handed) -> None:
    """To the owner of a row, a step of it."""
    to = owner(row, handed.counts.shape[0])
    at = handed.counts[part, to]
    handed.rows[part, to, at], handed.steps[part, to, at] = address(table, row), step
    handed.times[part, to, at] = times
    handed.counts[part, to] = at + 1


@compiled
@no_type_check
def hand_questions(part: int, centre: int, tables: Tables, block: CentreBlock) -> None:
    """To the owners of the rows that a centre word is asked about, their steps."""
    step, apart, times = address(block.question_steps, centre), block.question_steps.strides[1], np.float32(1.0)
    together = block.errors.shape[1] == 1
    for j in range(block.question_counts[centre]):
        if together:
            hand(part, block.questions[centre, j], tables.asked, block.errors[centre, 0, j], step, block.handed)
        else:
            hand(part, block.questions[centre, j], tables.asked, times, step + j * apart, block.handed)


@compiled
@no_type_check
def ask_run(
    part: int,
    centres: tuple[int, int, int],
    words: Int32[np.ndarray, "centres"],
    rate: float,
    text: Text,
    draws: Draws,
    tables: Tables,
    block: CentreBlock,
) -> None:
    """Steps of all rows that a run of neighbours touches: from and up to these centres, with others to follow."""
    begin, end, last = centres
    steps, row = address(block.input_steps, begin // block.run), block.input_steps.strides[1]
    first, places = np.int64(words[begin]) - draws.window, block.input_steps.shape[1]
    least, most = places, 0
    clear(steps, places * numbers(block))
    for centre in range(begin, end):
        if centre + AHEAD < last:
            fetch_questions(centre + AHEAD, tables, block)
        if block.input_counts[centre] == 0:
            continue
        place = np.int64(words[centre]) - block.befores[centre] - first
        least, most = min(least, place), max(most, place + block.input_counts[centre] + 1)
        if block.errors.shape[1] == 1:
            cbow(centre, steps + place * row, rate, tables, block)
        else:
            skip_gram(centre, steps + place * row, rate, tables, block)
        hand_questions(part, centre, tables, block)
    for place in range(least, most):
        hand(part, text.kept[first + place], tables.read, np.float32(1.0), steps + place * row, block.handed)


@compiled
@no_type_check
def add_steps(part: int, width: int, handed: Handed) -> None:
    """Take the steps that this part was handed, in order."""
    for asker in range(handed.counts.shape[0]):
        count = handed.counts[asker, part]
        for at in range(count):
            if at + SOON < count:
                fetch_to_change(handed.rows[asker, part, at + SOON], width)
                if asker != part:
                    fetch(handed.steps[asker, part, at + SOON], width)
            add(handed.rows[asker, part, at], handed.times[asker, part, at], handed.steps[asker, part, at], width)


@compiled
@no_type_check
def ask_all(
    part: int,
    words: Int32[np.ndarray, "centres"],
    rate: float,
    text: Text,
    draws: Draws,
    tables: Tables,
    block: CentreBlock,
) -> None:
    """The first step of a block, for a part of its words."""
    run = block.run
    runs = (words.size + run - 1) // run
    start, end = part * runs // draws.parts * run, min((part + 1) * runs // draws.parts * run, words.size)
    block.handed.counts[part] = 0
    draw_windows(start, end, words, text, draws, block)
    if draws.starts.size:
        draw_ways(start, end, draws, block)
    else:
        draw_noise(start, end, draws, block)
    for begin in range(start, end, run):
        if begin + run < end:
            fetch_run(words[begin + run], draws.window, text, tables, block)
        ask_run(part, (begin, min(begin + run, end), end), words, rate, text, draws, tables, block)


@compiled
@no_type_check
def sum_up(centres: int, block: CentreBlock) -> tuple[float, int]:
    """The loss of a block, and how many predictions it is of."""
    loss, product, predictions, together = 0.0, 1.0, 0, block.errors.shape[1] == 1
    for centre in range(centres):
        inputs = block.input_counts[centre]
        if inputs:
            loss += block.losses[centre]
            product *= block.factors[centre]
            predictions += 1 if together else inputs
            if product > LARGE:
                loss += math.log(product)
                product = 1.0
    return loss + math.log(product), predictions


@compiled
@no_type_check
def learn_part(
    part: int,
    text: Text,
    draws: Draws,
    tables: Tables,
    block: CentreBlock,
    schedule: Schedule,
    meeting: Meeting,
    found: Float64[np.ndarray, "2"],
) -> None:
    """One thread's part of every block of a piece of text; the first also sums up what was `found`."""
    size, arrivals = block.losses.size, 0
    for first in range(text.begin, text.end, size):
        words = text.order[first : min(first + size, text.end)]
        left = 1.0 - (schedule.done + text.places[first]) / schedule.total
        rate = np.float32(schedule.rate * max(left, 1e-4))
        ask_all(part, words, rate, text, draws, tables, block)
        arrivals += draws.parts
        if not meet(meeting, arrivals):
            return
        add_steps(part, numbers(block), block.handed)
        if part == 0:
            loss, predictions = sum_up(words.size, block)
            found[0] += loss
            found[1] += predictions
        arrivals += draws.parts
        if not meet(meeting, arrivals):
            return


def learn(text: Text, draws: Draws, tables: Tables, block: CentreBlock, schedule: Schedule) -> tuple[float, int]:
    """Learn in place from a piece of text; the summed loss, and of how many predictions it is."""
    meeting, found = new_meeting(), np.zeros(2)

    def work(part: int) -> None:
        learn_part(part, text, draws, tables, block, schedule, meeting, found)

    share_out(work, draws.parts, meeting)
    return float(found[0]), int(found[1])
