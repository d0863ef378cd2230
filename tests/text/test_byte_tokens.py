"""Tokens that are single bytes, as LLaMA has them: they are text, however they were trained."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pretrained_kinds import ASKED, byte_fallback
from tokenizers import AddedToken
from tokenizers import Tokenizer as Engine

from regard.text.pretrained import PretrainedTokenizer

PLAIN, _ = byte_fallback()
PLAIN.encode_special_tokens = True  # no text can spell a special token


def trained_as_special() -> PretrainedTokenizer:
    engine = Engine.from_str(PLAIN.to_str())
    engine.add_special_tokens([AddedToken(f"<0x{byte:02X}>", special=True, normalized=False) for byte in range(256)])
    return PretrainedTokenizer.from_json(engine.to_str())


SPECIAL = trained_as_special()
WIDER = SPECIAL.of_size(SPECIAL.size + 5)


def streamed(tokenizer: PretrainedTokenizer, ids: list[int]) -> str:
    stream = tokenizer.stream()
    return "".join([*(stream.push(token) for token in ids), stream.end()])


@pytest.mark.parametrize("text", [*ASKED, "a\nb", "<0x0A> is a name", "the </s> end"])
def test_bytes_that_were_trained_as_special_tokens_are_text(text: str) -> None:
    expected = PLAIN.encode(text, add_special_tokens=False).ids
    assert SPECIAL.encode(text) == expected
    assert SPECIAL.encode_batch([text]) == [expected]
    assert SPECIAL.decode(expected) == PLAIN.decode(expected) == streamed(SPECIAL, expected)
    assert b"".join(map(SPECIAL.token_bytes, expected)).decode().removeprefix(" ") == SPECIAL.decode(expected)


def test_such_bytes_are_no_special_tokens_and_a_copy_knows_it() -> None:
    assert SPECIAL.special_ids.keys() == {"<unk>", "<s>", "</s>"}
    again = PretrainedTokenizer.from_json(SPECIAL.to_json())
    assert again.decode(SPECIAL.encode("a\nb")) == "a\nb"
    assert SPECIAL.encode_naming("a\n</s><0x0A>", ["</s>"]) == [
        *SPECIAL.encode("a\n"),
        SPECIAL.eos_id,
        *SPECIAL.encode("<0x0A>"),
    ]


@given(st.lists(st.integers(0, WIDER.size - 1)))
def test_ids_in_any_order_stream_to_what_decoding_gives(ids: list[int]) -> None:
    assert streamed(WIDER, ids) == WIDER.decode(ids)


def test_an_id_without_a_token_takes_no_blank_away() -> None:
    ids = SPECIAL.encode("the roses")
    assert streamed(WIDER, [*ids, SPECIAL.size + 3, *ids]) == "the roses the roses"
