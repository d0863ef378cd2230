"""GPT-2's own files: the ids of tiktoken and `tokenizers` with the same files, on text of every kind.

The files are not part of the project; without them the tests skip.
"""

import gzip
import json
import random
import sysconfig
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Engine
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from regard.errors import FileError, InputError
from regard.text.bytelevel import bytes_of
from regard.text.tokenizer import Tokenizer

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data"
FOLDER, WIKITEXT = SHARED / "gpt2_tokenizer", SHARED / "wikitext2" / "train.raw.gz"
OWN_PATTERN = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""
"""The pattern tiktoken itself has for GPT-2."""

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason=f"{FOLDER} is not there")


def unpacked(name: str) -> str:
    return gzip.decompress((FOLDER / f"{name}.gz").read_bytes()).decode("utf-8")


@pytest.fixture(scope="module")
def gpt2() -> Tokenizer:
    return Tokenizer.from_gpt2(FOLDER / "vocab.json.gz", FOLDER / "merges.txt.gz")


@pytest.fixture(scope="module")
def peer() -> Engine:
    merges = [tuple(line.split(" ")) for line in unpacked("merges.txt").splitlines()[1:] if line]
    engine = Engine(BPE(vocab=json.loads(unpacked("vocab.json")), merges=merges))
    engine.pre_tokenizer = ByteLevel(add_prefix_space=False)
    return engine


@pytest.fixture(scope="module")
def tiktoken():
    module = pytest.importorskip("tiktoken")
    ranks = {bytes_of(token): place for token, place in json.loads(unpacked("vocab.json")).items()}
    special = {"<|endoftext|>": ranks.pop(b"<|endoftext|>")}
    return module.Encoding("gpt2-files", pat_str=OWN_PATTERN, mergeable_ranks=ranks, special_tokens=special)


def python_lines() -> Iterator[str]:
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        yield from path.read_text(encoding="utf-8", errors="ignore").splitlines()


def wikitext_lines() -> Iterator[str]:
    with gzip.open(WIKITEXT, "rt", encoding="utf-8") as stream:
        yield from (line for line in stream if line.strip())


SCRIPTS = {
    "emoji": ["😀", "👩‍👩‍👧", "🇩🇪", "❤️", "✌🏽", " ", "ok", "\ufe0f", "\u200d"],
    "cjk": ["日本語", "中文字", "한국어", "、", "。", "　", "カタカナ", "ﾊﾝｶｸ", "123", "A"],
    "right to left": ["שלום", "العربية", "\u200f", " ", "٣٤", "،", "نص", "\u0651", "abc"],
    "control": ["\x00", "\x01", "\x1b[31m", "\t\t", "\r\n", "\x7f", "\x85", "\xa0", "\u2028", "\u200b", "x", "  "],
    "other": [
        "नमस्ते",
        "ไทย",
        "Ω",
        "ﬁ",
        "e\u0301",
        "½",
        "Ⅷ",
        "'ll",
        "'LL",
        "’s",
        "<|endoftext|>",
        "\ufffd",
        "\U0010ffff",
    ],
}


def made_lines() -> Iterator[str]:
    draw = random.Random(20190214)
    while True:
        for pieces in SCRIPTS.values():
            yield "".join(draw.choice(pieces) for _ in range(draw.randrange(1, 17)))


def mixed_lines(count: int) -> list[str]:
    wiki = wikitext_lines() if WIKITEXT.is_file() else iter(())
    found = [*islice(wiki, count // 4), *islice(python_lines(), count // 2)]
    return [*found, *islice(made_lines(), count - len(found))]


def agree(gpt2: Tokenizer, peer: Engine, tiktoken, lines: list[str]) -> None:
    ids = gpt2.encode_batch(lines)
    assert ids == [one.ids for one in peer.encode_batch_fast(lines)]
    assert ids == [tiktoken.encode_ordinary(line) for line in lines]
    assert [gpt2.decode(one) for one in ids] == lines


def test_mixed_lines_have_the_ids_of_tiktoken_and_tokenizers(gpt2, peer, tiktoken) -> None:
    agree(gpt2, peer, tiktoken, mixed_lines(2003))


@pytest.mark.slow
def test_a_hundred_thousand_lines_have_the_ids_of_tiktoken_and_tokenizers(gpt2, peer, tiktoken) -> None:
    lines = mixed_lines(100_000)
    assert len(lines) == 100_000
    agree(gpt2, peer, tiktoken, lines)


def test_any_text_has_the_same_ids_and_comes_back(gpt2, peer, tiktoken) -> None:
    @given(st.text())
    def check(text: str) -> None:
        agree(gpt2, peer, tiktoken, [text])

    check()


def test_known_ids(gpt2) -> None:
    assert gpt2.encode("hello world") == [31373, 995]  # from tiktoken's documentation
    assert gpt2.size == 50257
    assert gpt2.token_bytes(995) == b" world"
    assert gpt2.decode([31373, 50256, 995]) == "hello world"


def test_the_end_of_text_is_not_spelt_by_a_text_and_other_specials_are_missed(gpt2) -> None:
    assert 50256 not in gpt2.encode("a<|endoftext|>b")
    with pytest.raises(InputError, match=r"no <pad> .*<\|endoftext\|>"):
        _ = gpt2.pad_id


def test_the_fast_engine_is_used(gpt2) -> None:
    assert gpt2._encode != gpt2._encode_by_tokenizers


def test_files_that_do_not_fit_are_named(tmp_path: Path) -> None:
    vocabulary, merges = tmp_path / "vocab.json", tmp_path / "merges.txt"
    whole = json.loads(unpacked("vocab.json"))
    merges.write_text(unpacked("merges.txt"), encoding="utf-8")
    for damage, said in (
        (json.dumps({token: place for token, place in whole.items() if place < 300}), "merges.txt do not make"),
        (json.dumps(whole)[:1000], "do not make a tokenizer"),
        (json.dumps({"a": 0}), "do not make a tokenizer"),
        ("[1, 2]", "do not make a tokenizer"),
    ):
        vocabulary.write_text(damage, encoding="utf-8")
        with pytest.raises(FileError, match=said) as caught:
            Tokenizer.from_gpt2(vocabulary, merges)
        assert "same tokenizer" in caught.value.remedy
    vocabulary.write_text(json.dumps(whole), encoding="utf-8")
    merges.write_text("a b c\n", encoding="utf-8")
    with pytest.raises(FileError, match="do not make"):
        Tokenizer.from_gpt2(vocabulary, merges)
    with pytest.raises(FileError, match="does not exist"):
        Tokenizer.from_gpt2(vocabulary, tmp_path / "none.txt")
