"""Word2Vec in words per second, by Regard and by gensim, with how good the vectors are beside it.

Both train on the same file with the same numbers and two threads, in turns, once for every seed. The time is that of
training: counting words comes before it on either side, and gensim reads the file again in every epoch (its fastest
way) while Regard reads ids. Good means: the rank correlation with people's judgements of 353 pairs of words
(Finkelstein et al. 2002), and the share of analogies (Mikolov et al. 2013a) whose answer comes first among the 30,000
most frequent words. Their files are not part of the project; without them the speed alone is measured.
"""

import gzip
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
from jaxtyping import Float, Float64

from regard.bench.timing import installed
from regard.bench.wikipedia import plain_words
from regard.data.reading import read_lines
from regard.embedding.vectors import Vectors
from regard.embedding.word2vec.corpus import EncodedCorpus, encode_corpus
from regard.embedding.word2vec.fit import fit
from regard.embedding.word2vec.model import Kind, Word2VecPlan
from regard.errors import InputError
from regard.text.counting import read_texts

PEERS = {"gensim": "gensim"}
THREADS = 2
SEEDS = (1, 2, 3)
EPOCHS = 3
RESTRICTED = 30_000
Contestant = Callable[[Word2VecPlan], tuple[Vectors, int, float]]
JUDGED, ANALOGIES = "wordsim353.tsv", "questions-words.txt.gz"


@dataclass(frozen=True)
class Tried:
    """One training: seconds, and how good the vectors are where that can be asked."""

    words: int
    seconds: float
    correlation: float | None
    correct: float | None


def rows(data: Path | None, questions: Path | None = None) -> Iterator[dict[str, Any]]:
    """All figures; `questions` is the folder of the judged pairs and the analogies."""
    if data is None:
        raise InputError("`bench vectors` has no text to train on", "give a file as its data, such as enwik8.gz")
    with tempfile.TemporaryDirectory() as folder:
        text = _plain(data, Path(folder))
        corpus = encode_corpus(lambda: read_texts([text]), Word2VecPlan().min_count)
        contestants: dict[str, Contestant] = {"regard": partial(regard, corpus)}
        if installed("gensim"):
            contestants["gensim"] = partial(gensim, text)
        for kind in ("skip-gram", "cbow"):
            yield from _compared(kind, contestants, questions)


def _plain(data: Path, folder: Path) -> Path:
    """The file itself, or the words of a Wikipedia dump in one of their own."""
    lines = read_lines(data)
    path = folder / "words.txt"
    words = plain_words(lines) if lines[0].startswith("<mediawiki") else iter(lines)
    with path.open("w", encoding="utf-8") as stream:
        stream.writelines(f"{line}\n" for line in words)
    return path


def _compared(kind: Kind, contestants: dict[str, Contestant], questions: Path | None) -> Iterator[dict[str, Any]]:
    """Every contestant once per seed; speed, then quality."""
    warm_up = Word2VecPlan(kind=kind, min_count=1, sample=1.0)
    fit(encode_corpus(lambda: ["compile the kernel before the clock runs"], 1), warm_up, threads=THREADS)
    tried: dict[str, list[Tried]] = {name: [] for name in contestants}
    for seed in SEEDS:
        plan = Word2VecPlan(kind=kind, epochs=EPOCHS, seed=seed)
        for name, train in contestants.items():
            vectors, words, taken = train(plan)
            tried[name].append(Tried(words, taken, *quality(vectors, questions)))
    what = f"Word2Vec, {kind}, width 100, window 5, 5 negatives, {tried['regard'][0].words:,} words, {EPOCHS} epochs"
    own = median(one.seconds for one in tried["regard"])
    for name, found in tried.items():
        seconds = [one.seconds for one in found]
        speed = found[0].words * EPOCHS / median(seconds)
        record = {"what": what, "contestant": name, "figure": f"{speed:,.0f} words/s", "words_per_second": round(speed)}
        yield {**record, "ratio": round(median(seconds) / own, 3), "rounds": [round(one * 1000) for one in seconds]}
    for about, field in (("rank correlation, 353 pairs", "correlation"), ("share of analogies", "correct")):
        means = {name: [getattr(one, field) for one in found] for name, found in tried.items()}
        for name, values in means.items():
            if None not in values:
                figure = f"{fmean(values):.3f} ({min(values):.3f}–{max(values):.3f})"
                ratio = round(fmean(values) / (fmean(means["regard"]) or 1.0), 3)
                each = [round(value, 4) for value in values]
                yield {"what": f"{what}: {about}", "contestant": name, "figure": figure, "ratio": ratio, "each": each}


def regard(corpus: EncodedCorpus, plan: Word2VecPlan) -> tuple[Vectors, int, float]:
    """Vectors, words of the corpus, seconds."""
    begun = time.perf_counter()
    trained = fit(corpus, plan, threads=THREADS)
    return trained.vectors, corpus.size, time.perf_counter() - begun


def gensim(text: Path, plan: Word2VecPlan) -> tuple[Vectors, int, float]:
    """The same by gensim, as its users call it."""
    from gensim.models import Word2Vec

    model = Word2Vec(
        vector_size=plan.width,
        window=plan.window,
        min_count=plan.min_count,
        sg=int(plan.kind == "skip-gram"),
        alpha=plan.first_rate,
        negative=plan.drawn,
        sample=plan.sample,
        workers=THREADS,
        epochs=plan.epochs,
        seed=plan.seed,
    )
    model.build_vocab(corpus_file=str(text))
    begun = time.perf_counter()
    model.train(
        corpus_file=str(text),
        total_words=model.corpus_total_words,
        total_examples=model.corpus_count,
        epochs=plan.epochs,
    )
    seconds = time.perf_counter() - begun
    words = sum(model.wv.get_vecattr(word, "count") for word in model.wv.index_to_key)
    return Vectors(tuple(model.wv.index_to_key), model.wv.vectors), int(words), seconds


def quality(vectors: Vectors, questions: Path | None) -> tuple[float | None, float | None]:
    """The rank correlation with people's judgements, and the share of right analogies."""
    if questions is None or not (questions / JUDGED).is_file() or not (questions / ANALOGIES).is_file():
        return None, None
    lines = (questions / JUDGED).read_text(encoding="utf-8").splitlines()
    judged = [line.lower().split("\t")[:3] for line in lines if line and not line.startswith("#")]
    known = [(first, second, float(score)) for first, second, score in judged if first in vectors and second in vectors]
    correlation = spearman(
        np.array([vectors.similarity(first, second) for first, second, _ in known]),
        np.array([score for _, _, score in known]),
    )
    with gzip.open(questions / ANALOGIES, "rt", encoding="utf-8") as stream:
        asked = [line.lower().split() for line in stream if not line.startswith(":")]
    return correlation, right_analogies(vectors, asked)


def spearman(first: Float[np.ndarray, "pairs"], second: Float[np.ndarray, "pairs"]) -> float:
    """The correlation of ranks, equals sharing one rank."""
    return float(np.corrcoef(_ranks(first), _ranks(second))[0, 1])


def _ranks(values: Float[np.ndarray, "pairs"]) -> Float64[np.ndarray, "pairs"]:
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks: Float64[np.ndarray, "pairs"] = (ends - (counts - 1) / 2)[which]
    return ranks


def right_analogies(vectors: Vectors, asked: list[list[str]]) -> float:
    """Of the questions whose four words are among the most frequent, the share that 3CosAdd answers."""
    unit = vectors.unit[:RESTRICTED]
    known = [[vectors.index.get(word, RESTRICTED) for word in question] for question in asked if len(question) == 4]
    rows = np.array([question for question in known if max(question) < RESTRICTED], dtype=np.int64).reshape(-1, 4)
    right = 0
    for part in np.array_split(rows, len(rows) // 512 + 1):
        cosines = (unit[part[:, 1]] - unit[part[:, 0]] + unit[part[:, 2]]) @ unit.T
        np.put_along_axis(cosines, part[:, :3], -np.inf, axis=1)
        right += int((cosines.argmax(axis=1) == part[:, 3]).sum())
    return right / max(len(rows), 1)
