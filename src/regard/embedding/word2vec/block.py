"""What Word2Vec's kernel works on: two tables, a block of centre words, and what chance and rate depend on."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Float64, Int8, Int32, Int64, UInt8, UInt32, UInt64

LANES = 16
"""Numbers of a row that are worked on at once."""
EIGHT = 8
"""Questions that are answered at once."""


class Tables(NamedTuple):
    """The vectors of words that are read, and of questions asked about them."""

    read: Float32[np.ndarray, "words width"]
    asked: Float32[np.ndarray, "questions width"]


class Handed(NamedTuple):
    """Steps that threads hand to the owners of rows, in the words' order: addresses, and how many times a step."""

    rows: Int64[np.ndarray, "askers owners room"]
    steps: Int64[np.ndarray, "askers owners room"]
    times: Float32[np.ndarray, "askers owners room"]
    counts: Int64[np.ndarray, "askers more"]


class CentreBlock(NamedTuple):
    """What is known of each centre word of a block: what is read, what is asked, and the steps that follow."""

    chances: UInt64[np.ndarray, "centres"]
    """What is drawn for a centre word depends on this."""
    inputs: Int32[np.ndarray, "centres inputs"]
    befores: Int32[np.ndarray, "centres"]
    """How many of the inputs stand before the centre word."""
    input_counts: Int32[np.ndarray, "centres"]
    questions: Int32[np.ndarray, "centres questions"]
    answers: Float32[np.ndarray, "centres questions"]
    question_counts: Int32[np.ndarray, "centres"]
    errors: Float32[np.ndarray, "centres reads questions"]
    """`reads` is 1 where the inputs are read as one (CBOW), else as many as there are inputs."""
    input_steps: Float32[np.ndarray, "runs places width"]
    """Of the words in a run and around it: neighbours read the same words, and their steps are one."""
    question_steps: Float32[np.ndarray, "centres asks width"]
    """`asks` is 1 where steps differ only in their length, the error (CBOW), else as many as there are questions."""
    shares: Float32[np.ndarray, "centres"]
    """Of each input in their mean (CBOW)."""
    losses: Float64[np.ndarray, "centres"]
    """The loss is this and the logarithm of …"""
    factors: Float64[np.ndarray, "centres"]
    run: int
    """Centre words that are neighbours in the text and taken together; a block is a number of runs."""
    handed: Handed


class Draws(NamedTuple):
    """What random choices depend on, and in how many parts the work is shared out, on which nothing depends."""

    parts: int
    seed: int
    window: int
    negatives: int
    keep: UInt32[np.ndarray, "words"]
    """How likely each word is to be kept, of 2³² − 1."""
    noise: UInt32[np.ndarray, "words 2"]
    """Walker's alias method: how likely a column is its own word, of 2³² − 1, and which word it is otherwise."""
    starts: Int64[np.ndarray, "ends"]
    """Ways to words in a Huffman tree (`huffman.py`); empty for negative sampling."""
    nodes: Int32[np.ndarray, "steps"]
    turns: Int8[np.ndarray, "steps"]


class Text(NamedTuple):
    """The words of a chunk that are kept this time."""

    kept: Int32[np.ndarray, "words"]
    before: UInt8[np.ndarray, "words"]
    """How many words of its line are before each, up to a window of them …"""
    behind: UInt8[np.ndarray, "words"]
    """… and how many are behind it."""
    places: Int64[np.ndarray, "words"]
    """How many words of the chunk stand before each, kept or not."""
    order: Int32[np.ndarray, "words"]
    """In which blocks take them."""
    first: int
    """The number of the chunk's first place, on which chance depends."""
    begin: int
    """From here on …"""
    end: int
    """… up to here in that order, whole blocks, it is learnt from now."""


class Schedule(NamedTuple):
    """The learning rate falls from `rate` in proportion to the words that are left, to a ten-thousandth."""

    rate: float
    done: int
    """Words before this chunk, of all epochs."""
    total: int


def zero_rows(*shape: int) -> Float32[np.ndarray, "..."]:
    """Zeros, every row of which begins at an address that is a multiple of its vectors' size."""
    *others, width = shape
    padded = -(-width // LANES) * LANES
    size = int(np.prod([*others, padded]))
    room = np.zeros(size + LANES, np.float32)
    begin = -room.ctypes.data % (4 * LANES) // 4
    return room[begin : begin + size].reshape(*others, padded)[..., :width]


def room_to_hand(parts: int, steps: int) -> Handed:
    """Room for so many steps of every thread, whoever takes them."""
    shape = parts, parts, steps
    counts = np.zeros((parts, parts + 16), np.int64)  # those of two threads are far apart
    return Handed(np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.zeros(shape, np.float32), counts)
