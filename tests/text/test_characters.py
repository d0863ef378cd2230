"""One id for each character: known texts come back, unknown characters are `<unk>`, other libraries agree."""

import json
import pickle
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Engine

from regard.errors import ConfigError, FileError, InputError
from regard.text.characters import CharacterTokenizer
from regard.text.tokenizer import SPECIALS, Tokenizer

TEXTS = ["to be, or not to be:\n\tthat is the question", "<eos> é 日本 😀 ▁Ġ##"]
TOKENIZER = CharacterTokenizer.train(TEXTS, 97)
KNOWN = sorted(set("".join(TEXTS)))
tokenizers = pytest.mark.parametrize(
    "tokenizer",
    [TOKENIZER, CharacterTokenizer.from_json(TOKENIZER.to_json()), pickle.loads(pickle.dumps(TOKENIZER))],
    ids=["trained", "read", "sent"],
)


def test_ids_are_the_special_tokens_and_then_the_characters_in_order():
    assert TOKENIZER.pieces(range(TOKENIZER.size)) == [*SPECIALS, *KNOWN]
    assert [TOKENIZER.encode(character) for character in KNOWN] == [[4 + place] for place in range(len(KNOWN))]


@tokenizers
@given(text=st.text(KNOWN))
def test_a_text_of_known_characters_comes_back(tokenizer, text):
    ids = tokenizer.encode(text)
    assert len(ids) == len(text)
    assert tokenizer.decode(ids) == text
    assert not set(ids) & {0, 1, 2, 3}
    assert tokenizer.encode_batch([text, ""]) == [ids, []]


@given(text=st.text())
def test_the_engine_that_other_libraries_use_gives_the_same_ids_and_text(text):
    engine = Engine.from_str(TOKENIZER.to_json())
    engine.encode_special_tokens = True
    encoding = engine.encode(text)
    assert TOKENIZER.encode(text) == encoding.ids
    assert TOKENIZER.offsets(text) == encoding.offsets
    assert TOKENIZER.decode(encoding.ids) == "".join(one for one in text if one in KNOWN)


def test_an_unknown_character_is_one_unknown_token():
    assert TOKENIZER.encode("tXXo") == [*TOKENIZER.encode("t"), 3, 3, *TOKENIZER.encode("o")]
    assert TOKENIZER.pieces(TOKENIZER.encode("Z")) == ["<unk>"]
    assert TOKENIZER.decode(TOKENIZER.encode("tXXo")) == "to"


def test_of_too_many_characters_the_most_frequent_stay():
    small = CharacterTokenizer.train(TEXTS, 11)
    counts = Counter("".join(TEXTS))
    wanted = sorted(counts, key=lambda one: (-counts[one], one))[:7]
    assert sorted(small.pieces(range(4, small.size))) == sorted(wanted)
    with pytest.raises(
        ConfigError, match="a vocabulary of 4 cannot hold 4 special tokens and a character; use a size of 5 or more"
    ):
        CharacterTokenizer.train(TEXTS, 4)


def test_transformers_reads_the_file(tmp_path):
    transformers = pytest.importorskip("transformers")
    (tmp_path / "tokenizer.json").write_text(TOKENIZER.to_json(), encoding="utf-8")
    peer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    text = "not to be:\n日本 😀"
    assert peer(text)["input_ids"] == TOKENIZER.encode(text)
    assert peer.decode(TOKENIZER.encode(text), clean_up_tokenization_spaces=False) == text


def test_a_file_of_another_kind_is_refused(tmp_path: Path):
    path = tmp_path / "tokenizer.json"
    for content, said in (
        (Tokenizer.train(TEXTS, 271).to_json(), "a BPE of bare characters is expected"),
        (json.dumps(json.loads(TOKENIZER.to_json()) | {"normalizer": {"type": "Lowercase"}}), "no normalizer"),
        (with_a_long_token(), "'be' is more than a character"),
        ("{}", "not a tokenizer"),
    ):
        path.write_text(content, encoding="utf-8")
        with pytest.raises(FileError, match=said):
            CharacterTokenizer.load(path)


def with_a_long_token() -> str:
    record = json.loads(TOKENIZER.to_json())
    record["model"]["vocab"]["be"] = TOKENIZER.size
    record["model"]["merges"] = [["b", "e"]]
    return json.dumps(record)


@pytest.mark.parametrize("kind", [Tokenizer, CharacterTokenizer], ids=lambda kind: kind.kind)
def test_more_special_tokens_come_after_the_last_id_and_no_text_spells_them(kind):
    before = kind.train(["a <mask> b"], 300)
    after = before.with_specials(["<eos>", "<mask>", "<extra_id_0>"])
    assert after.size == before.size + 2
    assert (after.eos_id, after.mask_id) == (before.eos_id, before.size)
    assert after.special_ids == before.special_ids | {"<mask>": before.size, "<extra_id_0>": before.size + 1}
    again = kind.from_json(after.to_json())
    for text in ("a <mask> b", "<extra_id_0>"):
        assert again.encode(text) == after.encode(text) == before.encode(text)
    assert after.decode([after.mask_id, *after.encode("a b")]) == "a b"
    with pytest.raises(InputError, match="has no <mask>"):
        _ = before.mask_id
    with pytest.raises(InputError, match="a is an ordinary token here"):
        before.with_specials(["a"])
