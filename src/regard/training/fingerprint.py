"""What a run was trained on, in a few digits: enough to notice that a data file changed before it is resumed."""

from hashlib import sha1
from itertools import chain
from pathlib import Path

from regard.data.corpus import Examples, Split
from regard.errors import FileError
from regard.files import read_json, write_json
from regard.text.tokenizer import Tokenizer

ALL = 1 << 17
"""Up to so many examples each is looked at; of more, as many evenly spaced ones with both ends: a tenth of a second."""

ENDLESS = 256
"""Examples looked at of a corpus that has no end: it is a function of its options, which are in the recipe."""


def fingerprint(corpus: Examples, tokenizer: Tokenizer, base: str | None = None) -> dict[str, str]:
    """The size and a digest of what is trained and validated on, of how it becomes ids, and of an adapter's base."""
    vocabulary = sha1(tokenizer.to_json().encode(), usedforsecurity=False).hexdigest()
    found = {"train": _digest(corpus, "train"), "valid": _digest(corpus, "valid"), "tokenizer": vocabulary}
    return found if base is None else found | {"base": base}


def compare(path: Path, now: dict[str, str], resume: bool) -> None:
    """Raise FileError, naming what changed, unless the run in the file's folder began with the same data."""
    if not resume or not path.is_file():
        return
    before = read_json(path, "remove it to go on without looking whether the data changed")
    for name, value in now.items():
        if before.get(name) != value:
            what = name if name in ("tokenizer", "base") else f"data.{name}"
            raise FileError(
                f"{what} is not what it was when the run in {path.parent.parent} began "
                f"({_short(before.get(name))}, now {_short(value)})",
                "put it back to go on, or train anew into another `out`",
            )


def write(path: Path, now: dict[str, str]) -> None:
    """Keep a fingerprint, unless it is kept already."""
    if not path.is_file():
        write_json(path, now)


def _digest(corpus: Examples, split: Split) -> str:
    size = corpus.size(split)
    if size is None:
        indices = chain(range(ENDLESS))
    else:
        step = max(1, -(-size // ALL))
        indices = chain(range(0, size, step), range(max(size - 1, 0), size))
    digest = sha1(usedforsecurity=False)
    for index in indices:
        for part in corpus.example(split, index):
            whole = (part if isinstance(part, str) else repr(part)).encode("utf-8", "surrogatepass")
            digest.update(len(whole).to_bytes(8, "big") + whole)
    return f"{'endless' if size is None else f'{size} examples'}, {digest.hexdigest()}"


def _short(value: object) -> str:
    """For a person: the size and the first digits."""
    *size, digits = str(value).split(", ")
    return ", ".join([*size, digits[:8]])
