"""Word vectors in Python: `regard.vectors.train(files)` by Word2Vec, `load` and `save` in word2vec's formats.

vectors = regard.vectors.train("corpus.txt", regard.vectors.Word2VecPlan(width=50, epochs=3))
vectors.neighbours("king", 5)
vectors.analogy("man", "king", "woman")
regard.vectors.save(vectors, "vectors.txt")
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from regard.embedding.vectors import Neighbour, Vectors
from regard.embedding.vectors_file import read_vectors, write_vectors
from regard.embedding.word2vec.corpus import EncodedCorpus, encode_corpus
from regard.embedding.word2vec.fit import Trained, Word2VecProgress
from regard.embedding.word2vec.model import Word2VecPlan
from regard.errors import InputError
from regard.files import listed, refuse_unwritable
from regard.text.counting import read_texts
from regard.training.progress import ReadingBar, console

__all__ = ["Neighbour", "Vectors", "Word2VecPlan", "load", "save", "train"]

MOST_THREADS = 1024


def train(
    files: str | Path | Sequence[str | Path],
    plan: Word2VecPlan | None = None,
    *,
    threads: int | None = None,
    device: str = "cpu",
    progress: bool = True,
) -> Vectors:
    """Vectors of the words between spaces in text files, plain or gzip, by Word2Vec as the plan says.

    The same text, plan and seed give the same vectors on any number of threads.
    """
    plan = plan or Word2VecPlan()
    return fit(read(files, plan, threads, device, progress=progress), plan, threads, device).vectors


def load(path: str | Path) -> Vectors:
    """The vectors in a file of word2vec's text or binary format, plain or gzip."""
    return read_vectors(Path(path))


def save(vectors: Vectors, path: str | Path) -> None:
    """Write vectors: binary if the name ends in .bin, packed if it ends in .gz, else text."""
    refuse_unwritable(Path(path))
    write_vectors(vectors, Path(path))


def read(
    files: str | Path | Sequence[str | Path],
    plan: Word2VecPlan,
    threads: int | None = None,
    device: str = "cpu",
    *,
    progress: bool = True,
) -> EncodedCorpus:
    """The text as numbers; what would be found out only after it was read is refused first."""
    paths = listed(files)
    _refuse(paths, device, threads)
    steps = iter([("counting words", "choosing words"), ("reading", "beginning")])
    with ReadingBar(paths, console(quiet=not progress)) as bar:
        return encode_corpus(lambda: bar.watch(read_texts(paths), *next(steps)), plan.min_count)


def fit(
    corpus: EncodedCorpus,
    plan: Word2VecPlan,
    threads: int | None = None,
    device: str = "cpu",
    listener: Callable[[Word2VecProgress], None] | None = None,
) -> Trained:
    """By the compiled kernel on a CPU, in large batches elsewhere."""
    if _on_cpu(device):
        from regard.embedding.word2vec.fit import fit as fit_on_cpu

        return fit_on_cpu(corpus, plan, threads=threads, listener=listener)
    from regard.embedding.word2vec.torch_fit import fit_in_batches

    return fit_in_batches(corpus, plan, device, listener=listener)


def _refuse(files: Sequence[Path], device: str, threads: int | None) -> None:
    for path in files:
        if path.is_fifo():
            raise InputError(f"{path} is a pipe, and the text is read twice", "write it to a file first")
    if threads is not None and not 1 <= threads <= MOST_THREADS:
        raise InputError(f"{threads} threads cannot train", f"use 1 to {MOST_THREADS}, or leave it out for all cores")
    if threads is not None and device not in ("auto", "cpu"):
        raise InputError(f"a number of threads has no effect on device {device!r}", "leave it out")
    _on_cpu(device)


def _on_cpu(device: str) -> bool:
    """Whether the device is the CPU; one that cannot be used is refused."""
    from regard.devices import usable_device

    return device == "cpu" or usable_device(device).type == "cpu"
