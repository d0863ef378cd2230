"""Decoding as ids come: together it is `decode`, and on the way no half of a character is shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import InputError
from regard.text.incremental import TextStream
from regard.text.tokenizer import Tokenizer
from regard.text.word_bpe import WordBpeTokenizer

TEXTS = ["naïve café 日本語 😀😀 the the", "low lower"] * 3
BYTES = Tokenizer.train(TEXTS, 283)
WORDS = WordBpeTokenizer.train(TEXTS, 41)


def streamed(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    stream = tokenizer.stream()
    assert isinstance(stream, TextStream)
    return [*(stream.push(token) for token in ids), stream.end()]


@given(st.lists(st.integers(0, BYTES.size - 1)))
def test_bytes_in_any_order_stream_to_what_decoding_gives(ids: list[int]) -> None:
    assert "".join(streamed(BYTES, ids)) == BYTES.decode(ids)


@given(st.lists(st.integers(0, WORDS.size - 1)))
def test_words_in_any_order_stream_to_what_decoding_gives(ids: list[int]) -> None:
    assert "".join(streamed(WORDS, ids)) == WORDS.decode(ids)


@given(st.text())
def test_no_piece_of_a_text_holds_a_broken_character(text: str) -> None:
    ids = BYTES.encode(text)
    pieces = streamed(BYTES, ids)
    assert "".join(pieces) == text
    assert sum(piece.count("�") for piece in pieces) == text.count("�")


def test_a_character_comes_with_its_last_byte() -> None:
    ids = BYTES.encode("𝄞")
    assert len(ids) == 4
    assert streamed(BYTES, ids) == ["", "", "", "𝄞", ""]
    assert streamed(BYTES, ids[:3]) == ["", "", "", "�"]


def test_an_id_outside_the_vocabulary_is_refused() -> None:
    with pytest.raises(InputError, match=str(BYTES.size)):
        BYTES.stream().push(BYTES.size)
