"""Word2Vec on a CPU, compiled by Numba: many words at once against weights that stand still, then one update of all.

A block of centre words is processed in two steps. First threads share out its runs of neighbours: for each word the
window and the questions are drawn, and the step of every vector that is touched is written down, one for all words of a
run that read it. Then threads share out the rows of the tables, and the owner of a row adds the steps that concern it,
in the words' order. What is drawn depends on a word's place in the text and on the seed, so the result is the same, bit
for bit, for any number of threads. The questions of a centre word are shared by its window: a block is SGD on the loss
of `model.py`, step for step.

Importing this file needs Numba; `fit.py` does so when it is called. Compiled code is kept beside this file
like Python's own, or in the user's cache folder; Numba looks only at this file's time, so whoever changes
`block.py` or `draws.py` touches this one too.
"""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import no_type_check

import numpy as np
from jaxtyping import Float32, Int32

from regard.embedding.word2vec.block import CentreBlock, Draws, Schedule, Tables, Text
from regard.embedding.word2vec.draws import compiled, draw_noise, draw_ways, draw_window


@compiled
@no_type_check
def dot(
    first: Float32[np.ndarray, "width"], second: Float32[np.ndarray, "width"], room: Float32[np.ndarray, "width"]
) -> float:
    """`first · second`, added in a stated order: products of the four quarters, then four sums of those.

    The compiler may not choose an order, and only the first of these needs none: so it takes many numbers at a time.
    """
    width, quarter = first.shape[0], first.shape[0] // 4
    second_quarter, third, fourth = quarter, 2 * quarter, 3 * quarter
    for k in range(quarter):
        low = first[k] * second[k] + first[second_quarter + k] * second[second_quarter + k]
        room[k] = low + first[third + k] * second[third + k] + first[fourth + k] * second[fourth + k]
    a = b = c = d = np.float32(0.0)
    for k in range(0, quarter - 3, 4):
        a += room[k]
        b += room[k + 1]
        c += room[k + 2]
        d += room[k + 3]
    for k in range(quarter - quarter % 4, quarter):
        a += room[k]
    for k in range(4 * quarter, width):
        a += first[k] * second[k]
    return (a + b) + (c + d)


@compiled
@no_type_check
def add(row: Float32[np.ndarray, "width"], times: float, step: Float32[np.ndarray, "width"]) -> None:
    """Add so many times a step to a row."""
    for k in range(row.shape[0]):
        row[k] += times * step[k]


@compiled
@no_type_check
def answer(centre: int, read: int, rate: float, block: CentreBlock) -> None:
    """Turn scores into `rate · (answer − σ(score))`, and add their loss."""
    away, product = 0.0, 1.0  # Σ −log σ(±score) is the first and the logarithm of the second: one logarithm serves all
    for j in range(block.question_counts[centre]):
        score, wanted = block.errors[centre, read, j], block.answers[centre, j]
        small = math.exp(-abs(score))
        likely = 1.0 / (1.0 + small) if score >= 0 else small / (1.0 + small)
        away += abs(score) if (score >= 0) != (wanted > 0.5) else 0.0
        product *= 1.0 + small
        block.errors[centre, read, j] = rate * (wanted - likely)
    block.losses[centre] += away + math.log(product)


@compiled
@no_type_check
def skip_gram(centre: int, first: int, rate: float, tables: Tables, block: CentreBlock) -> None:
    """Every input by itself answers every question: errors, steps and loss. Those of inputs stand from `first` on."""
    room = block.room[centre // block.run, 0]
    for i in range(block.input_counts[centre]):
        row = tables.read[block.inputs[centre, i]]
        for j in range(block.question_counts[centre]):
            block.errors[centre, i, j] = dot(row, tables.asked[block.questions[centre, j]], room)
        answer(centre, i, rate, block)
        step = block.input_steps[centre // block.run, first + i + (i >= block.befores[centre])]
        for j in range(block.question_counts[centre]):
            error = block.errors[centre, i, j]
            add(step, error, tables.asked[block.questions[centre, j]])
            add(block.question_steps[centre, j], error, row)


@compiled
@no_type_check
def cbow(centre: int, first: int, rate: float, tables: Tables, block: CentreBlock) -> None:
    """The mean of the inputs answers every question: errors, steps and loss. Those of inputs stand from `first` on.

    Each input takes the whole step of the mean, as in word2vec; its gradient would be its share of that.
    """
    inputs, questions = block.input_counts[centre], block.question_counts[centre]
    run = centre // block.run
    room, step = block.room[run, 0], block.room[run, 1]
    mean = block.question_steps[centre, 0]  # which a question's step is a multiple of
    step[:] = 0.0
    for i in range(inputs):
        add(mean, np.float32(1.0) / np.float32(inputs), tables.read[block.inputs[centre, i]])
    for j in range(questions):
        block.errors[centre, 0, j] = dot(mean, tables.asked[block.questions[centre, j]], room)
    answer(centre, 0, rate, block)
    for j in range(questions):
        add(step, block.errors[centre, 0, j], tables.asked[block.questions[centre, j]])
    for i in range(inputs):
        add(block.input_steps[run, first + i + (i >= block.befores[centre])], np.float32(1.0), step)


@compiled
@no_type_check
def ask(
    words: Int32[np.ndarray, "centres"],
    rate: float,
    text: Text,
    draws: Draws,
    tables: Tables,
    block: CentreBlock,
    part: int,
) -> None:
    """The first step of a block, for a part of its runs: what is drawn, and the steps of all rows they touch."""
    run = block.run
    runs = (words.size + run - 1) // run
    for begin in range(part * runs // draws.parts * run, (part + 1) * runs // draws.parts * run, run):
        block.input_steps[begin // run] = 0.0
        for centre in range(begin, min(begin + run, words.size)):
            chance = draw_window(centre, words[centre], text, draws, block)
            if draws.starts.size:
                draw_ways(centre, draws, block)
            else:
                draw_noise(centre, chance, draws, block)
            block.losses[centre], block.question_steps[centre] = 0.0, 0.0
            if block.input_counts[centre] == 0:
                continue
            first = words[centre] - block.befores[centre] - (words[begin] - draws.window)
            if block.errors.shape[1] == 1:
                cbow(centre, first, rate, tables, block)
            else:
                skip_gram(centre, first, rate, tables, block)


@compiled
@no_type_check
def take(
    words: Int32[np.ndarray, "centres"], text: Text, draws: Draws, tables: Tables, block: CentreBlock, part: int
) -> None:
    """The second step of a block, for the rows that a part owns: their steps, in the words' order."""
    one, together = np.float32(1.0), block.errors.shape[1] == 1
    for begin in range(0, words.size, block.run):
        least, most = words[begin] + draws.window, words[begin] - draws.window
        for centre in range(begin, min(begin + block.run, words.size)):
            if block.input_counts[centre]:
                start = words[centre] - block.befores[centre]
                least, most = min(least, start), max(most, start + block.input_counts[centre] + 1)
                for j in range(block.question_counts[centre]):
                    row = block.questions[centre, j]
                    if row % draws.parts == part:
                        times = block.errors[centre, 0, j] if together else one
                        add(tables.asked[row], times, block.question_steps[centre, 0 if together else j])
        for at in range(least, most):
            row = text.kept[at]
            if row % draws.parts == part:
                add(tables.read[row], one, block.input_steps[begin // block.run, at - words[begin] + draws.window])


def share_out(pool: ThreadPoolExecutor, parts: int, work: Callable[[int], object]) -> None:
    """Do every part of the work at once, the first on this thread; none is left when this returns."""
    others = [pool.submit(work, part) for part in range(1, parts)]
    work(0)
    for other in others:
        other.result()


def learn(text: Text, draws: Draws, tables: Tables, block: CentreBlock, schedule: Schedule) -> tuple[float, int]:
    """Learn in place from a chunk of text; the summed loss, and of how many predictions it is."""
    size, loss, predictions = len(block.losses), 0.0, 0
    with ThreadPoolExecutor(draws.parts) as pool:
        for first in range(0, len(text.order), size):
            words = text.order[first : first + size]
            left = 1.0 - (schedule.done + text.places[first]) / schedule.total
            rate = np.float32(schedule.rate * max(left, 1e-4))
            share_out(pool, draws.parts, partial(ask, words, rate, text, draws, tables, block))
            share_out(pool, draws.parts, partial(take, words, text, draws, tables, block))
            counts = block.input_counts[: len(words)]
            loss += float(block.losses[: len(words)].sum())
            predictions += int(np.count_nonzero(counts) if block.errors.shape[1] == 1 else counts.sum())
    return loss, predictions
