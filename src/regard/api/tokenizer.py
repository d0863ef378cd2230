"""Tokenizers in Python: `regard.tokenizer.train(files, size)` learns one, `regard.tokenizer.load(path)` opens any.

tokenizer = regard.tokenizer.train("corpus.txt", 8000)
tokenizer.pieces(tokenizer.encode("lowest"))
tokenizer.save("tokenizer.json")
"""

from collections.abc import Sequence
from pathlib import Path

from regard.errors import InputError, choose
from regard.files import listed
from regard.text.compiling import announcing
from regard.text.counting import read_texts
from regard.text.pretrained import open_any
from regard.text.registry import KINDS
from regard.text.tokenizer import Tokenizer
from regard.training.progress import ReadingBar, console

__all__ = ["load", "train"]


def train(
    files: str | Path | Sequence[str | Path], size: int, kind: str = "bpe", *, progress: bool = True
) -> Tokenizer:
    """Learn a vocabulary of so many entries from text files, plain or gzip; the same text gives the same tokenizer.

    Kinds: `bpe` (bytes, as GPT-2), `bpe_words` (with an end mark), `wordpiece` (as BERT), `wordpiece_cased` and
    `characters`. The progress is a bar on a terminal, and elsewhere a line every ten seconds.
    """
    if kind not in KINDS:
        raise InputError(f"there is no kind {kind!r} of tokenizer", choose(kind, KINDS))
    paths = listed(files)
    said = console(quiet=not progress)
    with ReadingBar(paths, said) as bar, announcing(said.print):
        return KINDS[kind].train(bar.watch(read_texts(paths), "reading", "learning"), size)


def load(path: str | Path) -> Tokenizer:
    """The tokenizer of a tokenizer.json, a model folder, GPT-2's vocab.json beside its merges.txt, BERT's vocab.txt."""
    return open_any(Path(path))
