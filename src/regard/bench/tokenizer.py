"""Byte-pair encoding side by side: merges learnt per second against `tokenizers` and sentencepiece used directly, and
text encoded per second against `tokenizers` and tiktoken with the same merges, which must give the same ids.

The text is the standard library's own source, or a file of one's own. Contestants take turns in one process; all use
as many threads as there are processors.
"""

import io
import os
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.bench.timing import Timed, Work, installed, take_turns
from regard.errors import InputError
from regard.text.counting import read_texts
from regard.text.tokenizer import SPECIALS, Tokenizer

PEERS = {"sentencepiece": "sentencepiece"}
SIZE = 16_000
MOST_CHARACTERS = 20_000_000
"""Of the text, for training; encoding takes a quarter of it."""


@dataclass(frozen=True)
class Case:
    """Lines of text, and where they come from."""

    name: str
    lines: list[str]
    size: int = SIZE

    @property
    def megabytes(self) -> float:
        """Of all lines, in UTF-8."""
        return sum(len(line.encode()) for line in self.lines) / 1e6


def rows(data: Path | None = None, most: int = MOST_CHARACTERS, size: int = SIZE) -> Iterator[dict[str, Any]]:
    """All figures, of the peers that are installed."""
    case = read_case(data, most, size)
    trained = take_turns({name: work(case) for name, work in trainers().items()}, rounds=3, warm_up=0)
    yield from _compared(f"training {size} BPE", case, trained)
    tokenizer = Tokenizer.train(case.lines, size)
    part = case.lines[: len(case.lines) // 4]
    for unit, texts in {"lines": part, "documents of 20 kB": _joined(part, 20_000)}.items():
        shorter = Case(case.name, texts, size)
        contestants = encoders(tokenizer, texts)
        check_equal({name: encode() for name, encode in contestants.items()})
        yield from _compared(f"encoding {unit}, {size} BPE", shorter, take_turns(dict(contestants.items()), rounds=5))


def read_case(data: Path | None, most: int, size: int = SIZE) -> Case:
    """Lines of a file, or of the standard library's source, up to so many characters."""
    if data is None:
        sources = sorted(
            path for path in Path(sysconfig.get_path("stdlib")).rglob("*.py") if "site-packages" not in path.parts
        )
        texts: Iterator[str] = (path.read_text(encoding="utf-8", errors="ignore") for path in sources)
    else:
        texts = read_texts([data])
    found: list[str] = []
    length = 0
    for text in texts:
        found.append(text)
        length += len(text)
        if length >= most:
            break
    name = "Python's library" if data is None else data.name
    return Case(name, "".join(found)[:most].splitlines(keepends=True), size)


def _joined(lines: list[str], length: int) -> list[str]:
    """Lines joined to texts of about so many characters."""
    whole = "".join(lines)
    return [whole[first : first + length] for first in range(0, len(whole), length)]


def trainers() -> dict[str, Callable[[Case], Work]]:
    """How each contestant learns merges from the lines of a case."""
    found: dict[str, Callable[[Case], Work]] = {"regard": _regard, "tokenizers": _tokenizers}
    if installed("sentencepiece"):
        found["sentencepiece"] = _sentencepiece
    return found


def _regard(case: Case) -> Work:
    return lambda: Tokenizer.train(case.lines, case.size)


def _tokenizers(case: Case) -> Work:
    from tokenizers import Tokenizer as Engine
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import ByteLevel
    from tokenizers.trainers import BpeTrainer

    def work() -> object:
        engine = Engine(BPE())
        engine.pre_tokenizer = ByteLevel(add_prefix_space=False)
        trainer = BpeTrainer(
            vocab_size=case.size,
            min_frequency=2,
            show_progress=False,
            special_tokens=list(SPECIALS),
            initial_alphabet=ByteLevel.alphabet(),
        )
        engine.train_from_iterator(case.lines, trainer)
        return engine

    return work


def _sentencepiece(case: Case) -> Work:
    from sentencepiece import SentencePieceTrainer

    def work() -> object:
        written = io.BytesIO()
        SentencePieceTrainer.train(
            sentence_iterator=iter(case.lines),
            model_writer=written,
            model_type="bpe",
            vocab_size=case.size,
            max_sentence_length=1_000_000,
            num_threads=_processors(),
            hard_vocab_limit=False,
            minloglevel=2,
        )
        return written

    return work


def encoders(tokenizer: Tokenizer, texts: list[str]) -> dict[str, Callable[[], list[list[int]]]]:
    """How each contestant encodes the texts, all with the merges of one tokenizer."""
    from tiktoken import Encoding
    from tokenizers import Tokenizer as Engine

    engine = Engine.from_str(tokenizer.to_json())
    ranks = {tokenizer.token_bytes(token): token for token in range(len(SPECIALS), tokenizer.size)}
    pattern = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""  # tiktoken's own
    encoding = Encoding("peer", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    return {
        "regard": lambda: tokenizer.encode_batch(texts),
        "tokenizers, encode_batch": lambda: [one.ids for one in engine.encode_batch(texts, add_special_tokens=False)],
        "tokenizers, encode_batch_fast": lambda: [
            one.ids for one in engine.encode_batch_fast(texts, add_special_tokens=False)
        ],
        "tiktoken, in threads": lambda: encoding.encode_ordinary_batch(texts, num_threads=_processors()),
        "tiktoken, one by one": lambda: [encoding.encode_ordinary(text) for text in texts],
    }


def check_equal(found: dict[str, list[list[int]]]) -> None:
    """Refuse to compare the speed of encoders that do not agree."""
    for name, ids in found.items():
        if ids != found["regard"]:
            place = next(at for at, (one, two) in enumerate(zip(ids, found["regard"], strict=True)) if one != two)
            raise InputError(f"{name} and regard give text {place} different ids", "report this text")


def _compared(what: str, case: Case, timed: dict[str, Timed]) -> Iterator[dict[str, Any]]:
    """A row per contestant: megabytes per second, and how many times regard's time it takes."""
    for name, one in timed.items():
        yield {
            "what": f"{what}, {case.name}, {case.megabytes:.1f} MB",
            "contestant": name,
            "figure": f"{case.megabytes * 1000 / one.median:.2f} MB/s",
            "milliseconds": round(one.median, 3),
            "ratio": round(one.median / timed["regard"].median, 3),
            "rounds": [round(each, 3) for each in one.rounds],
        }


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
