"""What Word2Vec's kernel works on: two tables, a block of centre words, and what chance and rate depend on."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Float64, Int8, Int32, Int64, UInt8, UInt32


class Tables(NamedTuple):
    """The vectors of words that are read, and of questions asked about them."""

    read: Float32[np.ndarray, "words width"]
    asked: Float32[np.ndarray, "questions width"]


class CentreBlock(NamedTuple):
    """What is known of each centre word of a block: what is read, what is asked, and the steps that follow."""

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
    room: Float32[np.ndarray, "runs 2 width"]
    """For what is being added: products, and the step of the inputs together (CBOW)."""
    losses: Float64[np.ndarray, "centres"]
    run: int
    """Centre words that are neighbours in the text and taken together; a block is a number of runs."""


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


class Schedule(NamedTuple):
    """The learning rate falls from `rate` in proportion to the words that are left, to a ten-thousandth."""

    rate: float
    done: int
    """Words before this chunk, of all epochs."""
    total: int
