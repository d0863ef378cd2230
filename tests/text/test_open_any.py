"""`regard tokenizer` with tokenizers that other libraries wrote: their ids, their texts, and how their merges build."""

import json
from itertools import pairwise
from pathlib import Path

import pytest

pytest.importorskip("transformers")

import pretrained_kinds
from tokenizers import Tokenizer as Engine

from regard.errors import FileError, InputError
from regard.text.explain_pretrained import build_foreign
from regard.text.pretrained import PretrainedTokenizer, open_any
from regard.text.registry import KINDS

TEXTS = ["The roses by the bank are red", "low lowest", "straße, 42 or 3.14", "", "She doesn't know;  what's that?"]


@pytest.fixture(scope="module", params=list(pretrained_kinds.KINDS))
def folder(request, tmp_path_factory):
    return request.param, pretrained_kinds.write(request.param, tmp_path_factory.mktemp("kind"))


def engine_of(folder: Path) -> Engine:
    engine = Engine.from_file(str(folder / "tokenizer.json"))
    engine.no_padding()
    engine.no_truncation()
    return engine


def test_any_file_encodes_and_decodes_as_its_engine_does(folder):
    _, path = folder
    engine = engine_of(path)
    renamed = path.parent / "renamed.json"
    renamed.write_bytes((path / "tokenizer.json").read_bytes())
    for given in (path, path / "tokenizer.json", renamed):
        found = open_any(given)
        for text in TEXTS:
            ids = engine.encode(text, add_special_tokens=False).ids
            assert found.encode(text) == ids
            if isinstance(found, PretrainedTokenizer):
                assert found.decode(ids) == engine.decode(ids)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_regards_is_still_opened_as_regards(kind, tmp_path):
    (tmp_path / "tokenizer.json").write_text(KINDS[kind].train(TEXTS * 3, 271).to_json(), encoding="utf-8")
    assert type(open_any(tmp_path)) is KINDS[kind]


def test_merges_build_the_pieces_their_engine_gives(folder):
    name, path = folder
    tokenizer, engine = PretrainedTokenizer.load(path / "tokenizer.json"), engine_of(path)
    if name in ("wordpiece", "unigram"):
        with pytest.raises(InputError, match="has no merges: it takes the"):
            build_foreign(tokenizer, TEXTS[0])
        return
    merges = [tuple(pair) for pair in json.loads((path / "tokenizer.json").read_text())["model"]["merges"]]
    for text in TEXTS:
        if name == "byte-fallback" and any(engine.token_to_id(one) is None for one in set(text) - {" "}):
            continue
        _, built = build_foreign(tokenizer, text)
        pieces = [piece for word in built for piece in word.pieces]
        assert pieces == engine.encode(text, add_special_tokens=False).tokens
        for word in built:
            for before, after in pairwise([word.start, *(symbols for _, _, symbols in word.steps)]):
                assert "".join(before) == "".join(after) == word.word
                assert len(after) < len(before)
            assert all(merges[number - 1] == pair for pair, number, _ in word.steps)


def test_a_text_that_is_not_cut_by_merges_alone_is_refused(tmp_path):
    tokenizer = PretrainedTokenizer.load(pretrained_kinds.write("byte-fallback", tmp_path) / "tokenizer.json")
    with pytest.raises(InputError, match="by its merges alone; look at the pieces"):
        build_foreign(tokenizer, "日本語")


@pytest.mark.parametrize("content", ["{", "", "[]", '{"model": {}}'])
def test_what_is_no_tokenizer_is_refused_by_its_name(content, tmp_path):
    for path in (tmp_path / "tokenizer.json", tmp_path / "other.json"):
        path.write_text(content, encoding="utf-8")
        with pytest.raises(FileError, match=path.name):
            open_any(path)
