"""What the command line's TOKENIZER may be."""

import gzip
import json
from pathlib import Path

import pytest

from regard.errors import FileError
from regard.text.registry import KINDS, open_tokenizer
from regard.text.tokenizer import Tokenizer
from regard.text.word_bpe import WordBpeTokenizer
from regard.text.wordpiece import WordPieceTokenizer

TEXTS = ["the rose by the river bank", "low lower lowest"] * 3


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_read_from_its_file_and_from_a_folder(kind: str, tmp_path: Path) -> None:
    trained = KINDS[kind].train(TEXTS, 271)
    (tmp_path / "tokenizer.json").write_text(trained.to_json(), encoding="utf-8")
    for path in (tmp_path, tmp_path / "tokenizer.json"):
        found = open_tokenizer(path)
        assert type(found) is KINDS[kind]
        assert found == trained
        assert found.encode(TEXTS[0]) == trained.encode(TEXTS[0])
        assert found.rule == trained.rule


def test_gpt2_files_are_read_plain_and_packed(tmp_path: Path) -> None:
    trained = Tokenizer.train(TEXTS, 271)
    model = json.loads(trained.to_json())["model"]
    merges = "#version: 0.2\n" + "".join(f"{left} {right}\n" for left, right in model["merges"])
    plain, packed = tmp_path / "plain", tmp_path / "packed"
    plain.mkdir()
    packed.mkdir()
    (plain / "vocab.json").write_text(json.dumps(model["vocab"]), encoding="utf-8")
    (plain / "merges.txt").write_text(merges, encoding="utf-8")
    (packed / "vocab.json.gz").write_bytes(gzip.compress(json.dumps(model["vocab"]).encode()))
    (packed / "merges.txt.gz").write_bytes(gzip.compress(merges.encode()))
    for path in (plain, packed, plain / "vocab.json"):
        assert open_tokenizer(path).encode(TEXTS[1]) == trained.encode(TEXTS[1])
    (plain / "merges.txt").unlink()
    with pytest.raises(FileError, match=r"no merges\.txt"):
        open_tokenizer(plain)


def test_berts_vocabulary_is_read_and_its_settings_say_whether_it_is_cased(tmp_path: Path) -> None:
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "rose", "Rose", "##s"]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    found = open_tokenizer(tmp_path)
    assert isinstance(found, WordPieceTokenizer)
    assert found.encode("Roses") == [5, 7]
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}', encoding="utf-8")
    assert open_tokenizer(tmp_path / "vocab.txt").encode("Roses") == [6, 7]


def test_a_tokenizer_without_our_special_tokens_is_good_enough_for_text(tmp_path: Path) -> None:
    record = json.loads(Tokenizer.train(TEXTS, 271).to_json()) | {"added_tokens": []}
    (tmp_path / "tokenizer.json").write_text(json.dumps(record), encoding="utf-8")
    found = open_tokenizer(tmp_path)
    assert found.decode(found.encode("rose")) == "rose"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "not a tokenizer"),
        ("", "empty"),
        (Tokenizer.train(TEXTS, 271).to_json()[:999], "not a tokenizer"),
        (WordBpeTokenizer.train(TEXTS, 60).to_json().replace("MergedWithPrevious", "Isolated"), "byte-level BPE is"),
    ],
)
def test_a_damaged_file_is_named_with_the_reason(content: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(FileError, match=said) as caught:
        open_tokenizer(path)
    assert str(path) in caught.value.problem


def test_merges_that_do_not_fit_the_vocabulary_are_refused(tmp_path: Path) -> None:
    record = json.loads(Tokenizer.train(TEXTS, 271).to_json())
    record["model"]["merges"].append(["t", "zz"])
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(record), encoding="utf-8")
    with pytest.raises(FileError, match=r"not a tokenizer \(.*zz"):
        open_tokenizer(path)


def test_a_place_without_a_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="holds no tokenizer"):
        open_tokenizer(tmp_path)
    with pytest.raises(FileError, match="does not exist"):
        open_tokenizer(tmp_path / "none.json")
