"""Training word vectors on a CPU: a corpus and a plan in, vectors and the true loss of every epoch out."""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module

import numpy as np
from jaxtyping import Float32, Float64, Int32, UInt32

from regard.embedding.vectors import Vectors
from regard.embedding.word2vec.block import CentreBlock, Draws, Schedule, Tables
from regard.embedding.word2vec.corpus import EncodedCorpus
from regard.embedding.word2vec.huffman import Paths, huffman_paths
from regard.embedding.word2vec.model import RATES, Word2VecPlan
from regard.errors import ConfigError, InputError
from regard.text.compiling import announce

TOGETHER = 16
"""Chunks of the text that are read at once."""
LARGEST_BLOCK = 512
RUN = 16
"""Neighbours in the text that a block takes together, at most; a sixteenth of a small block."""
MOST_STEPS = 192.0
"""How many steps of one row a block should hold on average at most: they are all taken from the same place."""
USUAL_WINDOW = 5
"""The steps of one centre word are the more alike the wider its window."""
ALL = 2**32 - 1


@dataclass(frozen=True)
class Word2VecProgress:
    """What is known after a chunk of the text."""

    epoch: int
    epochs: int
    words: int
    """Words read so far, in all epochs."""
    total: int
    loss: float
    """Per prediction, of this epoch so far."""
    words_per_second: float


@dataclass(frozen=True, eq=False)
class Trained:
    """The vectors, and the mean loss of a prediction in every epoch."""

    vectors: Vectors
    losses: tuple[float, ...]


def fit(
    corpus: EncodedCorpus,
    plan: Word2VecPlan,
    *,
    threads: int | None = None,
    listener: Callable[[Word2VecProgress], None] | None = None,
) -> Trained:
    """Train vectors of the corpus's words; the same for any number of threads."""
    _need_numba()
    from regard.embedding.word2vec.draws import read_in
    from regard.embedding.word2vec.kernel import ask, learn

    announce(ask, "the kernel of Word2Vec", 10)
    parts = (os.cpu_count() or 1) if threads is None else threads
    if not 1 <= parts <= 1024:
        raise ConfigError(f"threads = {parts} cannot be used", "use 1 to 1024")
    draws, tables, block = prepare(corpus, plan, parts)
    total, done, losses = corpus.size * plan.epochs, 0, []
    begun = time.perf_counter()
    for epoch in range(plan.epochs):
        first = epoch * sum(map(len, corpus.chunks))
        loss, predictions = 0.0, 0
        for chunk in far_apart(corpus.chunks, TOGETHER):
            text, schedule = read_in(chunk, first, draws, block), Schedule(plan.first_rate, done, total)
            more, count = learn(text, draws, tables, block, schedule)
            loss, predictions = loss + more, predictions + count
            first, done = first + len(chunk), done + int((chunk >= 0).sum())
            if listener is not None:
                speed = done / (time.perf_counter() - begun)
                listener(Word2VecProgress(epoch + 1, plan.epochs, done, total, loss / max(predictions, 1), speed))
        if not predictions:
            raise InputError(
                "no line of the corpus has two words that are kept", "lower min_count, raise sample, or join lines"
            )
        losses.append(loss / predictions)
    return Trained(Vectors(corpus.words, finite(tables.read, plan)), tuple(losses))


def far_apart(chunks: tuple[Int32[np.ndarray, "_"], ...], places: int) -> Iterator[Int32[np.ndarray, "_"]]:
    """The chunks, as many as there are places put together, from all over the text."""
    steps = -(-len(chunks) // places)
    for step in range(steps):
        yield np.concatenate(chunks[step::steps])


def prepare(corpus: EncodedCorpus, plan: Word2VecPlan, parts: int = 1) -> tuple[Draws, Tables, CentreBlock]:
    """What the kernel works on: where chance comes from, the two tables, and room for a block."""
    words, keep, noise = len(corpus.words), corpus.keep(plan.sample), corpus.noise
    stay, other = alias_table(noise)
    none = Paths(np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int8))
    paths = none if plan.loss == "negative-sampling" else huffman_paths(corpus.counts.tolist())
    questions = plan.drawn + 1 if plan.loss == "negative-sampling" else int(np.diff(paths.starts).max())
    start = np.random.default_rng(plan.seed).random((words, plan.width), dtype=np.float32)
    read = (start - np.float32(0.5)) / np.float32(plan.width)
    asked = np.zeros((words if plan.loss == "negative-sampling" else words - 1, plan.width), np.float32)
    kept = corpus.counts * keep / (corpus.counts * keep).sum()
    chances = kept + plan.drawn * noise if plan.loss == "negative-sampling" else np.ones(1)
    size = min(_block_size(float(chances.max()), float(kept.max()), plan), max(1, words // 4))
    run = max(1, min(RUN, size // 16))
    runs, places = size // run, run + 2 * plan.window
    size = runs * run
    draws = Draws(
        min(parts, max(1, runs // 2)),
        plan.seed,
        plan.window,
        plan.drawn,
        (keep * ALL).astype(np.uint32),
        np.stack((stay, other.astype(np.uint32)), axis=1),
        *paths,
    )
    inputs, together = 2 * plan.window, plan.kind == "cbow"
    block = CentreBlock(
        inputs=np.zeros((size, inputs), np.int32),
        befores=np.zeros(size, np.int32),
        input_counts=np.zeros(size, np.int32),
        questions=np.zeros((size, questions), np.int32),
        answers=np.zeros((size, questions), np.float32),
        question_counts=np.zeros(size, np.int32),
        errors=np.zeros((size, 1 if together else inputs, questions), np.float32),
        input_steps=np.zeros((runs, places, plan.width), np.float32),
        question_steps=np.zeros((size, 1 if together else questions, plan.width), np.float32),
        room=np.zeros((runs, 2, plan.width), np.float32),
        losses=np.zeros(size, np.float64),
        run=run,
    )
    return draws, Tables(read, asked), block


def _block_size(asked: float, read: float, plan: Word2VecPlan) -> int:
    """The most centre words whose steps can be taken at once: few where the vocabulary is small or the rate high.

    `asked` is how often the most frequent question comes up for a centre word, `read` how often a word is read.
    """
    window = plan.window + 1  # words read for a centre word, on average
    steps = window * max(asked if plan.kind == "skip-gram" else asked / window, read)
    steps *= plan.first_rate / RATES[plan.kind] * max(1.0, window / (USUAL_WINDOW + 1))
    return LARGEST_BLOCK if steps * LARGEST_BLOCK <= MOST_STEPS else max(1, int(MOST_STEPS / steps))


def alias_table(
    chances: Float64[np.ndarray, "words"],
) -> tuple[UInt32[np.ndarray, "words"], Int32[np.ndarray, "words"]]:
    """Walker's alias table (Vose 1991): a column drawn evenly, then itself or one other word, gives these chances."""
    heights = chances * len(chances)
    other = np.arange(len(chances), dtype=np.int32)
    low, high = np.flatnonzero(heights < 1).tolist(), np.flatnonzero(heights >= 1).tolist()
    while low and high:
        short, tall = low.pop(), high[-1]
        other[short] = tall
        heights[tall] -= 1 - heights[short]
        if heights[tall] < 1:
            low.append(high.pop())
    stay = np.where(other == np.arange(len(chances)), 1.0, heights)
    return (np.clip(stay, 0, 1) * ALL).astype(np.uint32), other


def finite(matrix: Float32[np.ndarray, "words width"], plan: Word2VecPlan) -> Float32[np.ndarray, "words width"]:
    """The vectors, if they are numbers."""
    if not np.isfinite(matrix).all():
        raise InputError(f"at a rate of {plan.first_rate} the vectors grew beyond all numbers", "use a lower rate")
    return matrix


def _need_numba() -> None:
    try:
        import_module("numba")
    except ImportError as error:
        raise InputError(
            "training vectors on a CPU needs Numba, which is not installed", "pip install 'regard[vectors]'"
        ) from error
    except Exception as error:
        raise InputError(f"Numba cannot be used here: {error}", "pip install --force-reinstall numba") from error
