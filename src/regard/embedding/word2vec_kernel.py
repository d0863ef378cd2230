"""Word2Vec on a CPU, compiled by Numba: many words at once against weights that stand still, then one update of all.

A block of centre words is processed in two steps. First threads share out the words: each draws its window and its
questions, and writes down the step of every vector it touches. Then threads share out the rows of the tables, and the
owner of a row adds the steps that concern it, in the words' order. What is drawn depends on a word's place in the text
and on the seed, so the result is the same, bit for bit, for any number of threads. The questions of a centre word are
shared by its window: a block is SGD on the loss of `word2vec.py`, step for step.

Importing this file needs Numba; `word2vec_fit.py` does so when it is called. Compiled code is kept beside this file
like Python's own, or in the user's cache folder.
"""

import math
from collections.abc import Callable
from typing import Any, no_type_check

import numba
import numpy as np
from jaxtyping import Float64, Int32
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from regard.embedding.word2vec_block import Block, Draws, Schedule, Tables, Text
from regard.embedding.word2vec_threads import Meeting, meet, new_meeting, share_out

AHEAD = 4
"""Centre words whose rows are on their way while one is at work."""
PLACES = 16
"""Of the text at which a block reads."""
ROUNDING = {"reassoc", "contract", "nsz", "arcp"}  # sums may be vectorised; what is not a number stays so


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """A part of a kernel."""
    part: Callable[..., Any] = numba.njit(function, fastmath=ROUNDING, cache=True, nogil=True)
    return part


@intrinsic
@no_type_check
def fetch(typing: Any, address: Any) -> Any:
    """Have what is at an address brought near, without waiting for it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        function = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        builder.call(function, [builder.inttoptr(arguments[0], byte), number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(types.uintp), generate


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


@compiled
@no_type_check
def fetch_rows(rows: Any, count: int, table: Any) -> None:
    """Have these rows of a table brought near."""
    start, length = table.ctypes.data, table.shape[1] * 4
    for j in range(count):
        begin = start + rows[j] * length
        for line in range(0, length, 64):
            fetch(np.uintp(begin + line))


@compiled
@no_type_check
def answer(score: float, wanted: float) -> tuple[float, float, float]:
    """`wanted − σ(score)`; and the loss in two parts, `a + log b`, so that one logarithm serves many."""
    small = math.exp(-abs(score))
    likely = np.float32(1.0) / (np.float32(1.0) + small)  # σ(|score|)
    yes = likely if score >= 0 else np.float32(1.0) - likely
    away = abs(score) if (score >= 0) != (wanted > 0.5) else np.float32(0.0)
    return wanted - yes, away, np.float32(1.0) + small


@compiled
@no_type_check
def score(centre: int, i: int, tables: Tables, block: Block) -> None:
    """`u·v` of one input with every question, three at a time, so that each number is fetched once for three."""
    read, asked, questions, scores = tables.read, tables.asked, block.questions, block.errors
    width, count, row = read.shape[1], block.question_counts[centre], block.inputs[centre, i]
    j = 0
    while j + 3 <= count:
        one, two, three = questions[centre, j], questions[centre, j + 1], questions[centre, j + 2]
        first = second = third = np.float32(0.0)
        for k in range(width):
            number = read[row, k]
            first += number * asked[one, k]
            second += number * asked[two, k]
            third += number * asked[three, k]
        scores[centre, i, j], scores[centre, i, j + 1], scores[centre, i, j + 2] = first, second, third
        j += 3
    while j < count:
        one, first = questions[centre, j], np.float32(0.0)
        for k in range(width):
            first += read[row, k] * asked[one, k]
        scores[centre, i, j] = first
        j += 1


@compiled
@no_type_check
def mix(step: Any, weights: Any, rows: Any, count: int, table: Any) -> None:
    """The sum of these rows of a table, weighted, six at a time or three, so that it is seldom fetched and stored."""
    width, j = step.size, 0
    if count >= 6:
        one, two, three, four, five, six = rows[0], rows[1], rows[2], rows[3], rows[4], rows[5]
        first, second, third = weights[0], weights[1], weights[2]
        fourth, fifth, sixth = weights[3], weights[4], weights[5]
        for k in range(width):
            step[k] = (first * table[one, k] + second * table[two, k] + third * table[three, k]) + (
                fourth * table[four, k] + fifth * table[five, k] + sixth * table[six, k]
            )
        j = 6
    elif count >= 3:
        one, two, three = rows[0], rows[1], rows[2]
        first, second, third = weights[0], weights[1], weights[2]
        for k in range(width):
            step[k] = first * table[one, k] + second * table[two, k] + third * table[three, k]
        j = 3
    else:
        for k in range(width):
            step[k] = 0.0
    while j + 2 <= count:
        one, two, first, second = rows[j], rows[j + 1], weights[j], weights[j + 1]
        for k in range(width):
            step[k] += first * table[one, k] + second * table[two, k]
        j += 2
    if j < count:
        one, first = rows[j], weights[j]
        for k in range(width):
            step[k] += first * table[one, k]


@compiled
@no_type_check
def skip_gram(centre: int, rate: float, tables: Tables, block: Block) -> None:
    """Every input by itself answers every question: errors, steps and loss."""
    inputs, questions, errors = block.input_counts[centre], block.question_counts[centre], block.errors[centre]
    loss = 0.0
    for i in range(inputs):
        score(centre, i, tables, block)
        product = 1.0
        for j in range(questions):
            error, away, factor = answer(errors[i, j], block.answers[centre, j])
            errors[i, j] = rate * error
            loss += away
            product *= factor
        loss += math.log(product)
        mix(block.input_steps[centre, i], errors[i], block.questions[centre], questions, tables.asked)
    for j in range(questions):
        mix(block.question_steps[centre, j], errors[:, j], block.inputs[centre], inputs, tables.read)
    block.losses[centre] = loss


@compiled
@no_type_check
def cbow(centre: int, rate: float, tables: Tables, block: Block) -> None:
    """The mean of the inputs answers every question: errors, steps and loss."""
    read, asked = tables.read, tables.asked
    width, inputs, questions = read.shape[1], block.input_counts[centre], block.question_counts[centre]
    share = np.float32(1.0) / np.float32(max(inputs, 1))
    mean = block.question_steps[centre, 0]  # which a question's step is a multiple of
    for k in range(width):
        mean[k] = 0.0
        block.input_steps[centre, 0, k] = 0.0
    for i in range(inputs):
        row = block.inputs[centre, i]
        for k in range(width):
            mean[k] += share * read[row, k]
    loss, product = 0.0, 1.0
    for j in range(questions):
        other = block.questions[centre, j]
        score = np.float32(0.0)
        for k in range(width):
            score += mean[k] * asked[other, k]
        error, away, factor = answer(score, block.answers[centre, j])
        block.errors[centre, 0, j] = error = rate * error
        loss += away
        product *= factor
        passed = error * share
        for k in range(width):
            block.input_steps[centre, 0, k] += passed * asked[other, k]
    block.losses[centre] = loss + math.log(product)


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
    width, together = tables.read.shape[1], block.input_steps.shape[1] == 1
    for centre in range(centres):
        for i in range(block.input_counts[centre]):
            row, step = block.inputs[centre, i], 0 if together else i
            if owner(row, parts) == part:
                for k in range(width):
                    tables.read[row, k] += block.input_steps[centre, step, k]
        if block.input_counts[centre] == 0:
            continue
        for j in range(block.question_counts[centre]):
            row, step = block.questions[centre, j], 0 if together else j
            times = block.errors[centre, 0, j] if together else np.float32(1.0)
            if owner(row, parts) == part:
                for k in range(width):
                    tables.asked[row, k] += times * block.question_steps[centre, step, k]


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
            fetch_rows(block.questions[ahead], block.question_counts[ahead], tables.asked)
            fetch_rows(block.inputs[ahead], block.input_counts[ahead], tables.read)
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
