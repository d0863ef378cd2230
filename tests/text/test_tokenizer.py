import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Engine

from regard.errors import ConfigError, FileError, InputError
from regard.text.tokenizer import SPECIALS, Tokenizer

TEXTS = [
    "the rose by the river bank, the bank of monitors",
    "le 3 mars 2021 — 3. März 2021 — mercoledì 3 marzo",
    "<eos> is five letters here, and <eos> again <pad><pad>",
    "日本語 😀😀 naïve café",
] * 3
TOKENIZER = Tokenizer.train(TEXTS, 331)
LOADED = Tokenizer.from_json(TOKENIZER.to_json())
any_text = st.one_of(
    st.text(),
    st.lists(st.sampled_from([*SPECIALS, " ", "\n", "Ġ", "the", "é", "😀"])).map("".join),
)


@given(any_text)
def test_decoding_gives_every_text_back(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


@given(any_text)
@pytest.mark.parametrize("tokenizer", [TOKENIZER, LOADED, pickle.loads(pickle.dumps(TOKENIZER))])
def test_no_text_spells_a_special_token(tokenizer: Tokenizer, text: str) -> None:
    assert not set(tokenizer.encode(text)) & {0, 1, 2, 3}
    assert tokenizer.encode_batch([text]) == [tokenizer.encode(text)]


def test_the_literal_name_of_a_special_token_is_ordinary_text_after_training_and_loading() -> None:
    for tokenizer in (TOKENIZER, LOADED):
        ids = tokenizer.encode("a <eos> b<pad>")
        assert len(ids) > 4
        assert tokenizer.decode(ids) == "a <eos> b<pad>"


def test_special_tokens_are_the_first_ids_and_decode_to_nothing() -> None:
    assert (TOKENIZER.pad_id, TOKENIZER.bos_id, TOKENIZER.eos_id, TOKENIZER.unk_id) == (0, 1, 2, 3)
    assert TOKENIZER.pieces(range(4)) == list(SPECIALS)
    body = TOKENIZER.encode("the bank")
    assert TOKENIZER.decode([1, *body, 2, 0, 0]) == "the bank"


def test_training_is_deterministic_within_and_across_processes() -> None:
    code = (
        "from regard.text.tokenizer import Tokenizer; import sys, json; "
        "sys.stdout.buffer.write(Tokenizer.train(json.loads(sys.argv[1]), 331).to_json().encode())"
    )
    other = subprocess.run([sys.executable, "-c", code, json.dumps(TEXTS)], capture_output=True, check=True)
    assert TOKENIZER.to_json() == Tokenizer.train(iter(TEXTS), 331).to_json() == other.stdout.decode()


def test_a_frequent_word_is_one_token_and_an_unseen_word_has_pieces() -> None:
    assert TOKENIZER.pieces(TOKENIZER.encode("the bank")) == ["the", " bank"]
    assert len(TOKENIZER.encode("xylophone")) > 1


def test_merging_stops_when_no_pair_occurs_twice() -> None:
    assert Tokenizer.train(["ab"], 500).size == 260  # the pair occurs once
    assert Tokenizer.train(["ab ab"], 500).size == 261  # now twice; `Ġ` before `ab` once
    assert Tokenizer.train([], 260).size == 260


@given(any_text)
def test_offsets_cover_the_text_and_show_what_the_token_says(text: str) -> None:
    offsets = TOKENIZER.offsets(text)
    ids = TOKENIZER.encode(text)
    assert len(offsets) == len(ids)
    covered = set()
    for (start, end), piece in zip(offsets, TOKENIZER.pieces(ids), strict=True):
        assert 0 <= start < end <= len(text)
        covered |= set(range(start, end))
        assert "\\x" in piece or text[start:end] == piece
    assert covered == set(range(len(text)))
    assert offsets == sorted(offsets)


@given(any_text)
def test_pieces_joined_are_the_text_whenever_no_character_is_cut(text: str) -> None:
    pieces = TOKENIZER.pieces(TOKENIZER.encode(text))
    assert any("\\x" in piece for piece in pieces) or "".join(pieces) == text


def test_every_byte_has_a_token_shown_as_text_or_as_its_number() -> None:
    shown = set(TOKENIZER.pieces(range(4, 260)))
    assert shown == {bytes([byte]).decode("utf-8", "backslashreplace") for byte in range(256)}


def test_the_json_is_read_by_the_engine_and_gives_an_equal_tokenizer(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(TOKENIZER.to_json(), encoding="utf-8")
    assert Tokenizer.load(path) == TOKENIZER
    assert hash(Tokenizer.load(path)) == hash(TOKENIZER)
    assert Tokenizer.train(TEXTS, 307) != TOKENIZER
    assert Engine.from_file(str(path)).encode("the river bank").ids == TOKENIZER.encode("the river bank")


@pytest.mark.parametrize("damage", ["", "{", "null", "[1]", "{}", '{"model": {}}', "\ud800"])
def test_text_that_is_no_tokenizer_is_refused(damage: str) -> None:
    with pytest.raises(InputError, match="not a tokenizer"):
        Tokenizer.from_json(damage)


def edited(**changes: object) -> str:
    return json.dumps(json.loads(TOKENIZER.to_json()) | changes)


def with_vocabulary_hole() -> str:
    record = json.loads(TOKENIZER.to_json())
    vocabulary = record["model"]["vocab"]
    last = max(vocabulary, key=vocabulary.__getitem__)
    vocabulary[last] += 1
    return json.dumps(record)


def without_a_byte() -> str:
    record = json.loads(TOKENIZER.to_json())
    record["model"]["merges"] = []
    record["model"]["vocab"] = {t: i for t, i in record["model"]["vocab"].items() if i < 259}
    return json.dumps(record)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (edited(added_tokens=[]), "<pad> <bos> <eos> <unk>"),
        (edited(normalizer={"type": "Lowercase"}), "changes texts"),
        (edited(pre_tokenizer=None), "byte-level"),
        (edited(decoder=None), "byte-level"),
        (with_vocabulary_hole(), "ids are missing"),
        (without_a_byte(), "255 of the 256"),
        ("not json", "not a tokenizer"),
        (b"\xff\xfe", "UTF-8"),
    ],
)
def test_an_unusable_file_is_named_with_the_reason(tmp_path: Path, content: str | bytes, said: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(FileError, match=said) as caught:
        Tokenizer.load(path)
    assert str(path) in caught.value.problem
    assert caught.value.remedy


def test_a_missing_file_or_a_folder_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(FileError, match=str(path)):
            Tokenizer.load(path)


def test_a_vocabulary_too_small_for_the_bytes_is_refused_with_both_sizes() -> None:
    with pytest.raises(ConfigError, match=r"259 .*260"):
        Tokenizer.train(TEXTS, 259)


def test_half_a_surrogate_pair_is_refused_wherever_text_comes_in() -> None:
    broken = "ab\ud83dc"
    for use in (TOKENIZER.encode, TOKENIZER.offsets, lambda text: TOKENIZER.encode_batch(["fine", text])):
        with pytest.raises(InputError, match=r"character 2 \(U\+D83D\)"):
            use(broken)
    with pytest.raises(InputError, match=r"character 6 \(U\+D83D\)"):
        TOKENIZER.encode_naming(f"<a> {broken}", ["<a>"])  # counted from the text's beginning, not from the mark
    with pytest.raises(InputError, match="surrogate"):
        Tokenizer.train([broken], 300)


@pytest.mark.parametrize("token", [-1, TOKENIZER.size, 10**9])
def test_an_id_outside_the_vocabulary_is_refused_with_the_size(token: int) -> None:
    for use in (TOKENIZER.token_text, lambda token: TOKENIZER.decode([5, token])):
        with pytest.raises(InputError, match=f"{token} .*{TOKENIZER.size}"):
            use(token)
