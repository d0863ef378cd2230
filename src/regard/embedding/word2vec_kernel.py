"""Word2Vec on a CPU, compiled by Numba: many words at once against weights that stand still, then one update of all.

A block of centre words is processed in two steps. First threads share out the words: each draws its window and its
questions, and writes down the step of every vector it touches. Then threads share out the rows of the tables, and the
owner of a row adds the steps that concern it, in the words' order. What is drawn depends on a word's place in the text
and on the seed, so the result is the same, bit for bit, for any number of threads. The questions of a centre word are
shared by its window: a block is SGD on the loss of `word2vec.py`, step for step.

Importing this file needs Numba; `word2vec_fit.py` does so when it is called. Compiled code is kept beside this file
like Python's own, or in the user's cache folder; Numba looks only at this file's time, so whoever changes
`word2vec_rows.py` or `word2vec_threads.py` touches this one too.
"""

import math
from collections.abc import Callable
from typing import Any, no_type_check

import numba
import numpy as np
from jaxtyping import Float64, Int32

from regard.embedding.word2vec_block import EIGHT, Block, Draws, Schedule, Tables, Text
from regard.embedding.word2vec_rows import add, answer_eight, dots, fetch, mix
from regard.embedding.word2vec_threads import Meeting, meet, new_meeting, share_out

AHEAD = 4
"""Centre words whose rows are on their way while one is at work."""
PLACES = 16
"""Of the text at which a block reads."""
LOST = np.float32(-math.inf)
"""The score of a question that is not asked: its answer is no, and there is no loss."""
LARGE = 1e200
"""A product of this size makes room for more by its logarithm."""
ROUNDING = {"reassoc", "contract", "nsz", "arcp"}  # sums may be vectorised; what is not a number stays so


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """A part of a kernel."""
    part: Callable[..., Any] = numba.njit(function, fastmath=ROUNDING, cache=True, nogil=True)
    return part


@compiled
@no_type_check
def scramble(number: int) -> int:
    """A number whose bits have nothing to do with this one's (Steele et al. 2014, SplitMix64)."""
    number = np.uint64(number) + np.uint64(0x9E3779B97F4A7C15)
    number = (number ^ (number >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    number = (number ^ (number >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return number ^ (number >> np.uint64(31))


@compiled
@no_type_check
def thin(words: Int32[np.ndarray, "places"], draws: Draws, first: int) -> tuple[Any, Any, Any]:
    """The words that are kept this time, the line and the place of each; `first` numbers the chunk's first place."""
    kept, lines = np.empty(words.size, np.int32), np.empty(words.size, np.int32)
    places = np.empty(words.size, np.int64)
    count = line = 0
    for place in range(words.size):
        word = words[place]
        if word < 0:
            line += 1
            continue
        number = scramble(np.uint64(draws.seed) ^ scramble(np.uint64(2 * (first + place))))
        if np.uint32(number >> np.uint64(32)) <= draws.keep[word]:
            kept[count], lines[count], places[count] = word, line, place
            count += 1
    return kept[:count], lines[:count], places[:count]


@compiled
@no_type_check
def spread(count: int, size: int) -> Int32[np.ndarray, "places"]:
    """The order in which blocks of `size` take words: short runs of neighbours from `PLACES` places far apart.

    The words of one page repeat each other, and repeated steps from where a vector stood before the block overshoot.
    """
    order = np.empty(count, np.int32)
    run, reach, found = max(1, size // PLACES), (count + PLACES - 1) // PLACES, 0
    for begin in range(0, reach, run):
        for place in range(PLACES):
            for at in range(place * reach + begin, min(place * reach + min(begin + run, reach), count)):
                order[found] = at
                found += 1
    return order


@compiled
@no_type_check
def draw(centre: int, at: int, text: Text, draws: Draws, block: Block) -> None:
    """The window and the questions of the word `at` in the text."""
    kept, lines = text.kept, text.lines
    number = scramble(np.uint64(draws.seed) ^ scramble(np.uint64(2 * (text.first + text.places[at]) + 1)))
    reach = 1 + np.int64((number >> np.uint64(32)) % np.uint64(draws.window))
    count = 0
    for near in range(max(0, at - reach), min(kept.size, at + reach + 1)):
        if near != at and lines[near] == lines[at]:
            block.inputs[centre, count] = kept[near]
            count += 1
    block.input_counts[centre] = count
    word, asked = kept[at], 0
    if draws.starts.size:
        for step in range(draws.starts[word], draws.starts[word + 1]):
            block.questions[centre, asked] = draws.nodes[step]
            block.answers[centre, asked] = draws.turns[step]
            asked += 1
    else:
        block.questions[centre, 0], block.answers[centre, 0], asked = word, 1.0, 1
        size = np.uint64(draws.stay.size)
        for _ in range(draws.negatives):
            number = scramble(number)
            column = ((number & np.uint64(0xFFFFFFFF)) * size) >> np.uint64(32)
            stays = np.uint32(number >> np.uint64(32)) <= draws.stay[column]
            noise = np.int32(column) if stays else draws.other[column]
            if noise != word:  # the word itself is no wrong answer
                block.questions[centre, asked], block.answers[centre, asked] = noise, 0.0
                asked += 1
    block.question_counts[centre] = asked
    for rest in range(asked, block.answers.shape[1]):
        block.answers[centre, rest] = 0.0


@compiled
@no_type_check
def address(array: Any, row: int) -> int:
    """Where a row of an array begins."""
    return array.ctypes.data + row * array.strides[0]


@compiled
@no_type_check
def fetch_rows(centre: int, tables: Tables, block: Block) -> None:
    """Have the rows that a centre word needs brought near."""
    width = block.input_steps.strides[1] // 4
    for i in range(block.input_counts[centre]):
        fetch(address(tables.read, block.inputs[centre, i]), width)
    for j in range(block.question_counts[centre]):
        fetch(address(tables.asked, block.questions[centre, j]), width)


@compiled
@no_type_check
def answer_all(centre: int, reads: int, rate: float, block: Block) -> float:
    """From scores to errors, eight at a time, for every input or all as one; the loss."""
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
    return loss + math.log(product)


@compiled
@no_type_check
def skip_gram(centre: int, rate: float, tables: Tables, block: Block) -> None:
    """Every input by itself answers every question: errors, steps and loss."""
    inputs, questions, width = (
        block.input_counts[centre],
        block.question_counts[centre],
        block.input_steps.strides[1] // 4,
    )
    read, asked = address(tables.read, 0), address(tables.asked, 0)
    rows, others = address(block.inputs, centre), address(block.questions, centre)
    errors, apart = address(block.errors, centre), block.errors.shape[2]
    steps = address(block.input_steps, centre)
    for i in range(inputs):
        row = address(tables.read, block.inputs[centre, i])
        dots(errors + 4 * i * apart, row, others, questions, asked, width)
    block.losses[centre] = answer_all(centre, inputs, rate, block)
    for i in range(inputs):
        mix(steps + 4 * i * width, errors + 4 * i * apart, 1, others, questions, asked, width)
    steps = address(block.question_steps, centre)
    for j in range(questions):
        mix(steps + 4 * j * width, errors + 4 * j, apart, rows, inputs, read, width)


@compiled
@no_type_check
def cbow(centre: int, rate: float, tables: Tables, block: Block) -> None:
    """The mean of the inputs answers every question: errors, steps and loss."""
    inputs, questions, width = (
        block.input_counts[centre],
        block.question_counts[centre],
        block.input_steps.strides[1] // 4,
    )
    read, asked = address(tables.read, 0), address(tables.asked, 0)
    rows, others, errors = (
        address(block.inputs, centre),
        address(block.questions, centre),
        address(block.errors, centre),
    )
    mean = address(block.question_steps, centre)  # which a question's step is a multiple of
    block.shares[centre] = np.float32(1.0) / np.float32(max(inputs, 1))
    mix(mean, address(block.shares, centre), 0, rows, inputs, read, width)
    dots(errors, mean, others, questions, asked, width)
    block.losses[centre] = answer_all(centre, 1, rate, block)
    mix(address(block.input_steps, centre), errors, 1, others, questions, asked, width)


@compiled
@no_type_check
def owner(row: int, parts: int) -> int:
    """Which part a row belongs to: as even as the remainder (Knuth's multiplicative hashing), without a division."""
    return np.int64(
        ((np.uint64(row) * np.uint64(2654435761) & np.uint64(0xFFFFFFFF)) * np.uint64(parts)) >> np.uint64(32)
    )


@compiled
@no_type_check
def add_steps(part: int, parts: int, centres: int, tables: Tables, block: Block) -> None:
    """Of the steps in the block, those of the rows that this part owns, in order."""
    width, together = block.input_steps.strides[1] // 4, block.input_steps.shape[1] == 1
    for centre in range(centres):
        if block.input_counts[centre] == 0:
            continue
        step, times = address(block.input_steps, centre), np.float32(1.0)
        for i in range(block.input_counts[centre]):
            row = block.inputs[centre, i]
            if owner(row, parts) == part:
                if together:
                    add(address(tables.read, row), block.shares[centre], step, width)
                else:
                    add(address(tables.read, row), times, step + 4 * i * width, width)
        step = address(block.question_steps, centre)
        for j in range(block.question_counts[centre]):
            row = block.questions[centre, j]
            if owner(row, parts) == part:
                if together:
                    add(address(tables.asked, row), block.errors[centre, 0, j], step, width)
                else:
                    add(address(tables.asked, row), times, step + 4 * j * width, width)


@compiled
@no_type_check
def ask_all(
    part: int, begin: int, centres: int, text: Text, draws: Draws, tables: Tables, block: Block, rate: float
) -> None:
    """The first step of a block, for a part of its words."""
    start, end = part * centres // draws.parts, (part + 1) * centres // draws.parts
    for ahead in range(start, end + AHEAD):
        if ahead < end:
            draw(ahead, text.order[begin + ahead], text, draws, block)
            fetch_rows(ahead, tables, block)
        centre = ahead - AHEAD
        if centre < start:
            continue
        if block.input_steps.shape[1] == 1:
            cbow(centre, rate, tables, block)
        else:
            skip_gram(centre, rate, tables, block)


@compiled
@no_type_check
def learn_part(
    part: int,
    text: Text,
    draws: Draws,
    tables: Tables,
    block: Block,
    schedule: Schedule,
    meeting: Meeting,
    found: Float64[np.ndarray, "2"],
) -> None:
    """One thread's part of every block of a chunk; the first also sums up what was `found`."""
    size, together, arrivals = block.losses.size, block.input_steps.shape[1] == 1, 0
    for begin in range(0, text.kept.size, size):
        centres = min(size, text.kept.size - begin)
        left = 1.0 - (schedule.done + text.places[begin]) / schedule.total
        rate = np.float32(schedule.rate * max(left, 1e-4))
        ask_all(part, begin, centres, text, draws, tables, block, rate)
        arrivals += draws.parts
        if not meet(meeting, arrivals):
            return
        add_steps(part, draws.parts, centres, tables, block)
        if part == 0:
            for centre in range(centres):
                inputs = block.input_counts[centre]
                if inputs:
                    found[0] += block.losses[centre]
                    found[1] += 1 if together else inputs
        arrivals += draws.parts
        if not meet(meeting, arrivals):
            return


def learn(
    words: Int32[np.ndarray, "places"], first: int, draws: Draws, tables: Tables, block: Block, schedule: Schedule
) -> tuple[float, int]:
    """Learn from a chunk of text, in place; the summed loss and how many predictions it is of."""
    kept, lines, places = thin(words, draws, first)
    text = Text(kept, lines, places, spread(kept.size, block.losses.size), first)
    meeting, found = new_meeting(), np.zeros(2)

    def work(part: int) -> None:
        learn_part(part, text, draws, tables, block, schedule, meeting, found)

    share_out(work, draws.parts, meeting)
    return float(found[0]), int(found[1])
