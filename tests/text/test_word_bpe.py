"""BPE of words with an end mark, trained by the engine."""

import json
import pickle
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Engine

from regard.errors import ConfigError, InputError
from regard.text.bpe import train
from regard.text.tokenizer import SPECIALS, Tokenizer
from regard.text.word_bpe import MARK, WordBpeTokenizer, marked_words

TEXTS = ["low lower newest wider", "a snake_case name and <eos> <eos> <eos>", "der Bär　ist weiß"] * 3
TOKENIZER = WordBpeTokenizer.train(TEXTS, 83)
LETTERS = "lowernstid_aBä "


def test_merges_are_those_of_the_reference_with_the_engines_rule() -> None:
    counts = Counter(word for text in TEXTS for word in marked_words(text) if "<eos>" not in word)
    assert TOKENIZER.merges == [merge.pair for merge in train(counts, 83, "engine", specials=SPECIALS).merges]
    assert TOKENIZER.rule == "engine"


@given(st.text(LETTERS + "\t\n\x85\xa0\x1c"))
def test_words_come_back_with_one_space_between_them(text: str) -> None:
    known = text.replace("\x1c", "")
    assert TOKENIZER.decode(TOKENIZER.encode(known)) == " ".join(known.split())


@given(st.text())
def test_the_engine_cuts_words_where_the_reference_does(text: str) -> None:
    ranks = train(
        Counter(word for text in TEXTS for word in marked_words(text) if "<eos>" not in word),
        83,
        "engine",
        specials=SPECIALS,
    )
    expected = [piece for word in marked_words(text) for piece in ranks.encode(word)]
    known = [piece if piece in ranks.vocabulary else "<unk>" for piece in expected]
    assert TOKENIZER.pieces(TOKENIZER.encode(text)) == known


def test_a_mark_ends_a_word_and_an_underscore_does_not() -> None:
    assert TOKENIZER.pieces(TOKENIZER.encode("low")) == ["low", MARK] or TOKENIZER.pieces(TOKENIZER.encode("low")) == [
        "low_"
    ]
    assert TOKENIZER.decode(TOKENIZER.encode("snake_case  low")) == "snake_case low"


@given(st.text(LETTERS))
def test_offsets_show_what_each_token_says(text: str) -> None:
    ids, spans = TOKENIZER.encode(text), TOKENIZER.offsets(text)
    assert len(ids) == len(spans)
    for token, (start, end) in zip(ids, spans, strict=True):
        assert text[start:end] == TOKENIZER.token_bytes(token).decode().rstrip()
    assert [place for start, end in spans for place in range(start, end)] == [
        place for place, letter in enumerate(text) if not letter.isspace()
    ]


@given(st.text(LETTERS))
def test_bytes_of_tokens_joined_are_the_words(text: str) -> None:
    joined = b"".join(TOKENIZER.token_bytes(token) for token in TOKENIZER.encode(text))
    assert joined.decode().split() == text.split()


def test_no_text_spells_a_special_token_even_one_it_was_trained_on() -> None:
    ids = TOKENIZER.encode("<eos> a<pad> <unk>")
    assert not {TOKENIZER.pad_id, TOKENIZER.bos_id, TOKENIZER.eos_id} & set(ids)
    assert "<eos>" not in {left + right for left, right in TOKENIZER.merges}


def test_the_json_gives_an_equal_tokenizer_here_and_in_the_engine() -> None:
    text = TOKENIZER.to_json()
    assert WordBpeTokenizer.from_json(text) == TOKENIZER == pickle.loads(pickle.dumps(TOKENIZER))
    assert pickle.loads(pickle.dumps(TOKENIZER)).rule == "engine"
    assert json.loads(text)["model"]["tie_rule"] == "engine"
    assert Engine.from_str(text).encode("lower wider").ids == TOKENIZER.encode("lower wider")
    with pytest.raises(InputError, match="byte-level"):
        Tokenizer.from_json(text)
    with pytest.raises(InputError, match="normalizer, pre_tokenizer, decoder"):
        WordBpeTokenizer.from_json(Tokenizer.train(TEXTS, 263).to_json())


def test_a_vocabulary_smaller_than_the_alphabet_is_refused_with_both_sizes() -> None:
    with pytest.raises(ConfigError, match="5 cannot hold 4 special tokens and 5 characters"):
        WordBpeTokenizer.train(["low x"], 5)


def test_one_word_is_enough() -> None:
    assert WordBpeTokenizer.train(["low low"], 100).pieces([4, 5, 6, 7, 8]) == ["_", "l", "o", "w", "lo"]
