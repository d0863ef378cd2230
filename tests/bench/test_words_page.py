"""The page of words is what the kept figures give, and the command measures what it says."""

import importlib.util
import json
from pathlib import Path

import pytest

from regard.text.tokenizer import Tokenizer
from regard.text.wordpiece import WordPieceTokenizer

ROOT = Path(__file__).parents[2]
TEXTS = [
    f"def {name}s(rose, river): the {name} of a naive bank {place}\n" * 3 for place, name in enumerate("abcdefghijk")
]


@pytest.fixture(scope="module")
def words():
    spec = importlib.util.spec_from_file_location("words_page", ROOT / "docs" / "words.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def found(words):
    return words.measure(TEXTS, (293, 307), 307, ["rivr", "rose", "naïve", "薔"])


def test_the_page_is_what_the_kept_figures_give(words):
    kept = json.loads(words.FIGURES.read_text(encoding="utf-8"))
    remedy = "docs/words.md is older than docs/words.json: run `make docs`"
    assert words.PAGE.read_text(encoding="utf-8") == words.page(kept), remedy
    assert words.FIGURE.is_file()


def test_words_of_the_text_are_no_unseen_words_and_every_other_is_answered(found):
    assert list(found["unseen"]) == ["rivr", "naïve", "薔"]
    assert "nearest spellings that have one: river" in found["unseen"]["rivr"]["vectors"]
    assert "no vector" in found["unseen"]["薔"]["vectors"]
    for word, of in found["unseen"].items():
        letters = "".join(of["bpe"]).encode().decode("unicode_escape").encode("latin-1")
        assert letters.decode() == f" {word}"
    assert found["unseen"]["薔"]["wordpiece"] == ["[UNK]"]


def test_compression_is_bytes_and_words_of_the_text_held_out_over_its_tokens(found):
    held_out = TEXTS[0] + TEXTS[10]
    for kind, trainer in {"bpe": Tokenizer, "wordpiece": WordPieceTokenizer}.items():
        for size in (293, 307):
            row = next(row for row in found["rows"] if (row["kind"], row["asked"]) == (kind, size))
            tokens = len(trainer.train(TEXTS[1:10], size).encode(held_out))
            assert row["tokens"] == tokens
            assert row["bytes_per_token"] == pytest.approx(len(held_out) / tokens, abs=1e-3)
            assert row["tokens_per_word"] == pytest.approx(tokens / len(held_out.split()), abs=1e-3)


def test_the_length_of_an_entry_is_in_characters_without_blanks_marks_and_special_tokens(words):
    tokenizer = WordPieceTokenizer.of(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "rose", "##é"], cased=True)
    assert words.compression(tokenizer, "a roseé Zug")["entry_length"] == pytest.approx((1 + 4 + 1) / 3)
    assert words.compression(tokenizer, "a roseé Zug")["unknown"] == 1


def test_docstrings_are_read_and_code_and_tests_are_not(words, tmp_path):
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "one.py").write_text('"""never"""\n')
    (tmp_path / "two.py").write_text('"""A module."""\nname = "code"\n\n\ndef f():\n    """Its function."""\n')
    (tmp_path / "three.py").write_text("name = 1\n")
    assert words.docstrings(tmp_path) == ["A module.\nIts function.\n"]


def test_a_page_and_its_figure_come_from_figures_alone_and_are_the_same_every_time(words, found, tmp_path):
    page = words.page(json.loads(json.dumps(found)))
    assert "| BPE, bytes | 293 | 293 |" in page
    assert "| 薔 | `␣` · `\\xe8`" in page
    pictures = []
    for name in ("one.svg", "two.svg"):
        words.draw(found, tmp_path / name)
        pictures.append((tmp_path / name).read_bytes())
    assert pictures[0] == pictures[1]
