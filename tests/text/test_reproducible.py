"""Training again gives the same file, in any process, with any number of threads; a smaller one is its beginning."""

import json
import os
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Engine
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer

from regard.text import training
from regard.text.bpe import train
from regard.text.bytelevel import SYMBOLS
from regard.text.counting import LONGEST_WORD
from regard.text.tokenizer import SPECIALS, Tokenizer
from regard.text.word_bpe import WordBpeTokenizer
from regard.text.wordpiece import WordPieceTokenizer

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
        "from regard.text.word_bpe import WordBpeTokenizer\n"
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


@pytest.mark.parametrize("texts", [TEXTS, [text.encode("ascii", "ignore").decode() for text in TEXTS]])
def test_counted_words_teach_what_the_engine_learns_from_the_text_itself(texts: list[str]) -> None:
    engine = Engine(BPE())
    engine.pre_tokenizer = ByteLevel(add_prefix_space=False)
    trainer = BpeTrainer(
        vocab_size=421,
        min_frequency=2,
        show_progress=False,
        special_tokens=list(SPECIALS),
        initial_alphabet=ByteLevel.alphabet(),
    )
    engine.train_from_iterator(texts, trainer)
    assert json.loads(Tokenizer.train(iter(texts), 421).to_json())["model"]["vocab"] == engine.get_vocab()


@given(st.dictionaries(st.text("ab", min_size=1, max_size=3), st.integers(1, 29)))
def test_the_engine_is_shown_every_pair_as_often_as_it_was_counted(counts: dict[str, int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "_TOGETHER", 7)
        shown = list(training._shown(counts))
    assert Counter(" ".join(shown).split()) == {word: n for word, n in counts.items() if len(word) > 1}
    assert all(len(text.split(" ")) <= 13 for text in shown)


def test_a_long_word_is_learnt_from_in_parts() -> None:
    word = "ab" * 5003
    parts = [word[start : start + LONGEST_WORD] for start in range(0, len(word), LONGEST_WORD)]
    expected = train(Counter(parts), 271, "engine", specials=SPECIALS, alphabet=SYMBOLS)
    assert Tokenizer.train([word], 271).merges == [merge.pair for merge in expected.merges]


@pytest.mark.parametrize("long", ["x" * 5003, " " * 5003, "a\n" + " " * 5003 + "b", "b\u3000" * 3 + "é" * 5003])
def test_what_would_be_a_long_word_is_never_given_to_the_engine_as_it_is(long: str, monkeypatch) -> None:
    given: dict[str, int] = {}
    learn = training.learn_merges
    monkeypatch.setattr(
        training, "learn_merges", lambda counts, *a, **b: given.update(counts) or learn(counts, *a, **b)
    )
    Tokenizer.train([long], 263)
    assert max(map(len, given)) <= (1 if long.isascii() else len("é".encode())) * LONGEST_WORD


@pytest.mark.parametrize("kind", [Tokenizer, WordBpeTokenizer, WordPieceTokenizer])
@pytest.mark.parametrize("size", [10**9, 2**32, 2**64, 10**30])
def test_a_size_beyond_everything_gives_all_there_is_and_takes_no_room(kind: type[Tokenizer], size: int) -> None:
    texts = ["low lower newest wider"]
    assert kind.train(texts, size) == kind.train(texts, 1009)


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
