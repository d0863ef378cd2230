"""What tokenizer_config.json says of a lone vocab.txt is obeyed as transformers obeys it."""

import json
from pathlib import Path

import pytest

from regard.errors import FileError
from regard.text.pretrained import open_any, open_pretrained

PIECES = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", "a", "##b", "e", "é", "E", "É", "##e", "##é", "##\u0301"),
    *("cafe", "café", "Cafe", "Café", "日", "本", "##本", "日本", "日本語", "##日", "a日b"),
]
TEXTS = ["café Café cafe É é e\u0301", "日本 日本語 a日b", "CAFÉ.日本"]


def folder(path: Path, settings: dict[str, object]) -> Path:
    (path / "vocab.txt").write_text("\n".join(PIECES) + "\n", encoding="utf-8")
    (path / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return path


@pytest.mark.parametrize("lower", [{}, {"do_lower_case": True}, {"do_lower_case": False}])
@pytest.mark.parametrize("accents", [{}, *({"strip_accents": value} for value in (True, False, None))])
@pytest.mark.parametrize("chinese", [{}, {"tokenize_chinese_chars": True}, {"tokenize_chinese_chars": False}])
def test_accents_and_chinese_are_read_as_transformers_reads_them(tmp_path, lower, accents, chinese) -> None:
    transformers = pytest.importorskip("transformers")
    path = folder(tmp_path, lower | accents | chinese)
    peer = transformers.BertTokenizer.from_pretrained(path)
    expected = [peer.encode(text, add_special_tokens=False) for text in TEXTS]
    for own in (open_any(path), open_any(path / "vocab.txt"), open_pretrained(path)):
        assert [own.encode(text) for text in TEXTS] == expected


def test_null_is_what_is_done_where_nothing_is_said(tmp_path: Path) -> None:
    nothing = [open_any(folder(tmp_path, {})).encode(text) for text in TEXTS]
    for name in ("do_lower_case", "strip_accents", "tokenize_chinese_chars"):
        assert [open_any(folder(tmp_path, {name: None})).encode(text) for text in TEXTS] == nothing


def test_a_setting_that_is_neither_true_nor_false_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="'no' as strip_accents"):
        open_any(folder(tmp_path, {"strip_accents": "no"}))
