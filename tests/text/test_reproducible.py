"""Training again gives the same file, in any process, with any number of threads; a smaller one is its beginning."""

import json
import os
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.text import training
from regard.text.bpe import train
from regard.text.bytelevel import SYMBOLS
from regard.text.counting import LONGEST_WORD
from regard.text.tokenizer import SPECIALS, Tokenizer
from regard.text.words import WordBpeTokenizer

TEXTS = [
    f"the rose number {number} by the river bank {number * 7919 % 1013}, naïve {chr(0x3040 + number % 53)}"
    for number in range(307)
]
KINDS = [(Tokenizer, 389, 421), (WordBpeTokenizer, 107, 139)]


@pytest.mark.parametrize(("kind", "small", "large"), KINDS)
def test_twenty_trainings_give_one_result(kind: type[Tokenizer], small: int, large: int) -> None:
    assert len({kind.train(iter(TEXTS), large).to_json() for _ in range(20)}) == 1


@pytest.mark.parametrize(("kind", "small", "large"), KINDS)
def test_a_smaller_vocabulary_is_the_first_part_of_a_larger_one(kind: type[Tokenizer], small: int, large: int) -> None:
    first, second = (json.loads(kind.train(TEXTS, size).to_json())["model"] for size in (small, large))
    assert len(first["vocab"]) == small < len(second["vocab"]) == large
    assert first["vocab"] == {token: place for token, place in second["vocab"].items() if place < small}
    assert first["merges"] == second["merges"][: len(first["merges"])]


def test_the_number_of_threads_and_the_order_of_hashing_change_nothing() -> None:
    code = (
        "import json, sys\n"
        "from regard.text.tokenizer import Tokenizer\n"
        "from regard.text.words import WordBpeTokenizer\n"
        "texts = json.load(sys.stdin)\n"
        "print(Tokenizer.train(texts, 421).to_json(), WordBpeTokenizer.train(texts, 139).to_json())"
    )
    settings = [("1", "true", "0"), ("2", "true", "1"), ("2", "false", "2")]
    found = set()
    for threads, parallel, seed in settings:
        environment = {"RAYON_NUM_THREADS": threads, "TOKENIZERS_PARALLELISM": parallel, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", code],
            input=json.dumps(TEXTS).encode(),
            capture_output=True,
            check=True,
            env=os.environ | environment,
        )
        found.add(done.stdout)
    assert len(found) == 1


def test_counting_words_first_changes_nothing(monkeypatch) -> None:
    direct = Tokenizer.train(TEXTS, 421)
    counted: list[str] = []
    count = training.count_words
    monkeypatch.setattr(training, "SMALL", 100)
    monkeypatch.setattr(training, "count_words", lambda *parts: counted.append("once") or count(*parts))
    assert Tokenizer.train(iter(TEXTS), 421) == direct
    assert counted == ["once"]


@given(st.dictionaries(st.text("ab", min_size=1, max_size=3), st.integers(1, 29)))
def test_the_engine_is_shown_every_word_as_often_as_it_was_counted(counts: dict[str, int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "_TOGETHER", 7)
        shown = list(training._shown(counts))
    assert Counter(" ".join(shown).split()) == counts
    assert all(len(text.split(" ")) <= 13 for text in shown)


def test_a_long_word_is_learnt_from_in_parts() -> None:
    word = "ab" * 5003
    parts = [word[start : start + LONGEST_WORD] for start in range(0, len(word), LONGEST_WORD)]
    expected = train(Counter(parts), 271, "engine", specials=SPECIALS, alphabet=SYMBOLS)
    assert Tokenizer.train([word], 271).merges == [merge.pair for merge in expected.merges]


@pytest.mark.parametrize("long", ["x" * 1025, " " * 1025, "a\n" + " " * 1025 + "b", "b\u3000" * 3 + "é" * 1025])
def test_what_would_be_a_long_word_is_never_given_to_the_engine_as_it_is(long: str) -> None:
    assert training._LONG_WORD.search(long)
    assert not training._LONG_WORD.search(long.replace("xx", "x y").replace("  ", " .").replace("éé", "é é"))


def test_the_order_of_texts_changes_nothing() -> None:
    assert Tokenizer.train(TEXTS[::-1], 421) == Tokenizer.train(TEXTS, 421)


def test_a_saved_tokenizer_says_which_rule_made_it() -> None:
    trained = Tokenizer.train(TEXTS, 389)
    assert trained.rule == "engine"
    assert json.loads(trained.to_json())["model"]["tie_rule"] == "engine"
    assert Tokenizer.from_json(trained.to_json()).rule == "engine"
    silent = json.loads(trained.to_json())
    del silent["model"]["tie_rule"]
    assert Tokenizer.from_json(json.dumps(silent)).rule is None
    assert "tie_rule" not in Tokenizer.from_json(json.dumps(silent)).to_json()


def test_transformers_reads_what_is_saved(tmp_path) -> None:
    transformers = pytest.importorskip("transformers")
    trained = Tokenizer.train(TEXTS, 389)
    (tmp_path / "tokenizer.json").write_text(trained.to_json(), encoding="utf-8")
    read = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    assert read(TEXTS[5], add_special_tokens=False)["input_ids"] == trained.encode(TEXTS[5])
