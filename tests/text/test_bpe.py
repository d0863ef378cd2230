"""The plain reference: the worked example, exact published merges, and the engine's own on any corpus."""

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Engine
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Split
from tokenizers.trainers import BpeTrainer

from regard.errors import ConfigError, InputError
from regard.text import bpe
from regard.text.bpe import RULES, Bpe, Merge, joined, train
from regard.text.bytelevel import SYMBOLS, byte_words, bytes_of
from regard.text.tokenizer import SPECIALS, Tokenizer
from regard.text.word_bpe import marked_words, shown

FOLDER = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "bpe_reference"
EXAMPLE = Counter(marked_words("low lower newest wider"))
words = st.dictionaries(st.text("abc_", min_size=1, max_size=9), st.integers(1, 7), min_size=1, max_size=11)


def merges(learnt: Bpe) -> list[tuple[str, str]]:
    return [merge.pair for merge in learnt.merges]


def test_the_worked_example_has_four_merges_and_shows_its_ties() -> None:
    learnt = train(EXAMPLE)
    assert learnt.merges == (
        Merge(("e", "r"), 2, (("l", "o"), ("o", "w"), ("r", "_"), ("w", "e"))),
        Merge(("er", "_"), 2, (("l", "o"), ("o", "w"))),
        Merge(("l", "o"), 2, (("o", "w"),)),
        Merge(("lo", "w"), 2, ()),
    )
    assert learnt.vocabulary == (*"_deilnorstw", "er", "er_", "lo", "low")
    pieces = [learnt.encode(word) for word in EXAMPLE]
    assert [" ".join(found) for found in pieces] == ["low _", "low er_", "n e w e s t _", "w i d er_"]
    assert [" ".join(shown(found)) for found in pieces] == ["low", "low er_", "n e w e s t", "w i d er_"]


@pytest.mark.skipif(not FOLDER.is_dir(), reason=f"{FOLDER} is not there")
def test_the_reference_merges_and_vocabulary_come_out_exactly() -> None:
    counts = Counter(byte_words((FOLDER / "corpus.en").read_text(encoding="utf-8")))
    learnt = train(counts, 500, "greatest-bytes", specials=["<|endoftext|>"], alphabet=SYMBOLS, bytes_of=bytes_of)
    expected = (FOLDER / "train-bpe-reference-merges.txt").read_text(encoding="utf-8").splitlines()
    vocabulary = json.loads((FOLDER / "train-bpe-reference-vocab.json").read_text(encoding="utf-8"))
    assert len(expected) == 243
    assert [" ".join(pair) for pair in merges(learnt)] == expected
    assert {bytes_of(token): place for place, token in enumerate(learnt.vocabulary)} == {
        bytes_of(token): place for token, place in vocabulary.items()
    }


@pytest.mark.skipif(not FOLDER.is_dir(), reason=f"{FOLDER} is not there")
def test_the_engines_rule_gives_what_the_engine_gives_on_the_same_text() -> None:
    text = (FOLDER / "corpus.en").read_text(encoding="utf-8")
    learnt = train(Counter(byte_words(text)), 503, "engine", specials=SPECIALS, alphabet=SYMBOLS)
    peer = Engine(BPE())
    peer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    trainer = BpeTrainer(
        vocab_size=503,
        min_frequency=2,
        special_tokens=list(SPECIALS),
        initial_alphabet=list(SYMBOLS),
        show_progress=False,
    )
    peer.train_from_iterator([text], trainer)
    model = json.loads(peer.to_str())["model"]
    assert merges(learnt) == [tuple(pair) for pair in model["merges"]] == Tokenizer.train([text], 503).merges
    assert {token: place for place, token in enumerate(learnt.vocabulary)} == model["vocab"]


@given(words, st.integers(0, 23))
def test_the_engines_rule_is_that_of_tokenizers_on_any_counts(counts: dict[str, int], more: int) -> None:
    size = len(set("".join(counts))) + more
    peer = Engine(BPE())
    peer.pre_tokenizer = Split(" ", "removed")
    trainer = BpeTrainer(vocab_size=size, min_frequency=2, show_progress=False)
    peer.train_from_iterator([" ".join([word] * count) for word, count in counts.items()], trainer)
    model = json.loads(peer.to_str())["model"]
    learnt = train(counts, size, "engine")
    assert merges(learnt) == [tuple(pair) for pair in model["merges"]]
    assert {token: place for place, token in enumerate(learnt.vocabulary)} == model["vocab"]
    for word in counts:
        assert learnt.encode(word) == [token.value for token in peer.model.tokenize(word)]


@given(words, st.sampled_from(RULES))
def test_each_merge_is_of_the_most_frequent_pair_counted_anew(counts: dict[str, int], rule: str) -> None:
    corpus = [(list(word), count) for word, count in counts.items()]
    for merge in train(counts, rule=rule).merges:
        found: Counter[tuple[str, str]] = Counter()
        for symbols, count in corpus:
            for left, right in pairwise(symbols):
                found[left, right] += count
        assert found[merge.pair] == merge.count == max(found.values())
        assert {merge.pair, *merge.ties} == {pair for pair, count in found.items() if count == merge.count}
        corpus = [(joined(symbols, merge.pair), count) for symbols, count in corpus]
    assert all(pair_count < 2 for pair_count in _pairs(corpus).values())


def _pairs(corpus: list[tuple[list[str], int]]) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for symbols, count in corpus:
        for pair in pairwise(symbols):
            found[pair] += count
    return found


@given(words)
def test_the_corpus_is_encoded_as_training_left_it(counts: dict[str, int]) -> None:
    learnt = train(counts)
    for word in counts:
        symbols = list(word)
        for pair in merges(learnt):
            symbols = joined(symbols, pair)
        assert learnt.encode(word) == symbols
        assert "".join(symbols) == word


@given(words, st.sampled_from(RULES), st.integers(0, 11), st.integers(0, 11))
def test_a_smaller_vocabulary_is_the_beginning_of_a_larger_one(
    counts: dict[str, int], rule: str, less: int, more: int
) -> None:
    letters = len(set("".join(counts)))
    small, large = train(counts, letters + less, rule), train(counts, letters + less + more, rule)
    assert large.merges[: len(small.merges)] == small.merges
    assert large.vocabulary[: len(small.vocabulary)] == small.vocabulary


def test_rules_differ_where_pairs_tie() -> None:
    counts = {"ab": 2, "yz": 2, "Ba": 2}
    assert merges(train(counts, rule="smallest"))[0] == ("B", "a")
    assert merges(train(counts, rule="greatest-bytes"))[0] == ("y", "z")
    assert merges(train(counts, rule="engine", specials=["z", "y"]))[0] == ("y", "z")
    space = {"Ġa": 2, "ba": 2}  # as text `Ġ` is after `b`, as a byte before it
    assert merges(train(space, rule="greatest-bytes", bytes_of=bytes_of))[0] == ("b", "a")
    assert merges(train(space, rule="greatest-bytes"))[0] == ("Ġ", "a")


def test_a_run_of_one_letter_is_joined_from_the_left() -> None:
    assert joined("aaaaa", ("a", "a")) == ["aa", "aa", "a"]
    assert train({"aaaaa": 1}).merges == (Merge(("a", "a"), 4, ()),)


def test_one_word_that_occurs_once_has_no_merges() -> None:
    learnt = train({"low_": 1})
    assert learnt.merges == ()
    assert learnt.vocabulary == ("_", "l", "o", "w")
    assert merges(train({"low_": 2})) == [("l", "o"), ("lo", "w"), ("low", "_")]


def test_a_vocabulary_smaller_than_the_alphabet_is_refused_with_both_sizes() -> None:
    with pytest.raises(ConfigError, match="10 cannot hold 11"):
        train(EXAMPLE, 10)
    assert train(EXAMPLE, 11).merges == ()


def test_an_unknown_rule_names_the_known_ones() -> None:
    with pytest.raises(InputError, match="did you mean 'smallest'"):
        train(EXAMPLE, rule="smalest")


def test_the_reference_is_short_enough_to_read() -> None:
    source = Path(bpe.__file__).read_text(encoding="utf-8")
    assert len(source.splitlines()) < 100
