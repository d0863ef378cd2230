"""What chance decides in Word2Vec's kernel: which words are kept, in which order, each window, and what is asked.

Everything depends on a word's place in the text and on the seed alone, so that whoever draws it draws the same.
"""

import math
from collections.abc import Callable
from typing import Any, no_type_check

import numpy as np
from jaxtyping import Int32

from regard.compiled import cached_njit
from regard.embedding.word2vec.block import CentreBlock, Draws, Text

GOLDEN = (math.sqrt(5) - 1) / 2


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """A part of the kernel, which makes no arrays, so that none need be counted, and is put where it is called.

    Numba counts who holds an array, one array after the other for every call with a tuple of them: numbers that all
    threads change at once, and that go from core to core. And it hands a tuple over number by number, more than a
    hundred for a block.
    """
    return cached_njit(function, {"error_model": "numpy", "_nrt": False, "forceinline": True})


def making(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same of what makes arrays."""
    return cached_njit(function, {"error_model": "numpy"})


@compiled
@no_type_check
def scramble(number: int) -> int:
    """A number whose bits have nothing to do with this one's (Steele et al. 2014, SplitMix64)."""
    number = np.uint64(number) + np.uint64(0x9E3779B97F4A7C15)
    number = (number ^ (number >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    number = (number ^ (number >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return number ^ (number >> np.uint64(31))


@making
@no_type_check
def thin(words: Int32[np.ndarray, "places"], draws: Draws, first: int) -> tuple[Any, Any, Any, Any]:
    """The first four of a `Text`: the words that are kept this time, with what is around them and where they stood.

    `first` numbers the chunk's first place. Behind the last word a window's width of others may be read.
    """
    kept, places = np.empty(words.size + draws.window, np.int32), np.empty(words.size + 1, np.int64)
    before, behind = np.empty(words.size + 1, np.uint8), np.empty(words.size + 1, np.uint8)
    count = begin = ends = 0
    for place in range(words.size + 1):
        if place == words.size or words[place] < 0:
            for at in range(begin, count):
                behind[at] = min(count - 1 - at, draws.window)
            begin, ends = count, ends + 1
            continue
        number = scramble(np.uint64(draws.seed) ^ scramble(np.uint64(2 * (first + place))))
        kept[count], places[count], before[count] = words[place], place - ends, min(count - begin, draws.window)
        count += np.uint32(number >> np.uint64(32)) <= draws.keep[words[place]]
    return kept[:count], before[:count], behind[:count], places[:count]


@making
@no_type_check
def spread(count: int, run: int) -> Int32[np.ndarray, "places"]:
    """The order in which blocks take words: short runs of neighbours, each far from the one before it.

    The words of one page repeat each other, and repeated steps from where a vector stood before the block overshoot.
    From run to run it goes on by the golden section of the text, so that at any time all parts of it were read evenly.
    What is left over at the end of the text comes last.
    """
    order, runs, found = np.arange(count).astype(np.int32), count // run, 0
    stride = max(1, int(runs * GOLDEN))
    while math.gcd(stride, runs) > 1:
        stride += 1
    for step in range(runs):
        begin = step * stride % runs * run
        for at in range(begin, begin + run):
            order[found] = at
            found += 1
    return order


@compiled
@no_type_check
def draw_window(centre: int, at: int, text: Text, draws: Draws, block: CentreBlock) -> int:
    """The words around a centre word; what else is drawn for it depends on the number that is returned."""
    chance = scramble(np.uint64(draws.seed) ^ scramble(np.uint64(2 * (text.first + at) + 1)))
    reach = 1 + np.int64(((chance >> np.uint64(32)) * np.uint64(draws.window)) >> np.uint64(32))
    before, behind = min(reach, np.int64(text.before[at])), min(reach, np.int64(text.behind[at]))
    for step in range(before):
        block.inputs[centre, step] = text.kept[at - before + step]
    for step in range(behind):
        block.inputs[centre, before + step] = text.kept[at + 1 + step]
    block.befores[centre], block.input_counts[centre] = before, before + behind
    block.questions[centre, 0] = text.kept[at]
    return chance


@compiled
@no_type_check
def draw_noise(centre: int, chance: int, draws: Draws, block: CentreBlock) -> None:
    """The questions of negative sampling: the word itself, and words from the noise."""
    size, word, asked = np.uint64(draws.noise.shape[0]), block.questions[centre, 0], 1
    for drawn in range(draws.negatives):
        number = scramble(chance + np.uint64(drawn))
        column = ((number & np.uint64(0xFFFFFFFF)) * size) >> np.uint64(32)
        own, other = draws.noise[column, 0], np.int32(draws.noise[column, 1])
        noise = np.int32(column) if np.uint32(number >> np.uint64(32)) <= own else other
        block.questions[centre, asked] = noise
        asked += noise != word  # the word itself is no wrong answer
    block.answers[centre, 0], block.question_counts[centre] = 1.0, asked


@compiled
@no_type_check
def draw_ways(centre: int, draws: Draws, block: CentreBlock) -> None:
    """The questions of hierarchical softmax: those on the way to the word."""
    word, asked = block.questions[centre, 0], 0
    for step in range(draws.starts[word], draws.starts[word + 1]):
        block.questions[centre, asked], block.answers[centre, asked] = draws.nodes[step], draws.turns[step]
        asked += 1
    block.question_counts[centre] = asked


def read_in(words: Int32[np.ndarray, "places"], first: int, draws: Draws, block: CentreBlock) -> Text:
    """A chunk of text, the first place of which has this number: what is kept of it, in the order of learning."""
    kept, before, behind, places = thin(words, draws, first)
    return Text(kept, before, behind, places, spread(kept.size, block.run), first)
