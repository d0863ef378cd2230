"""Rows kept of a file are exact, the strongest are the strongest, and what is drawn comes from every tenth."""

import json
import re

import pytest
from small_model import Answer

import regard
from regard.errors import FileError
from regard.inspection.corpus_heads import BINS, heads_on_corpus, texts_of
from regard.inspection.heads import sized
from regard.inspection.maps import token_ids
from regard.views.corpus_page import corpus_page


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "dates.txt"
    days = [f"de: {day} mars {year}" for day in range(1, 8) for year in (1991, 2004)]
    path.write_text("\n".join(["", *days, "  "]) + "\n", encoding="utf-8")
    return path


def test_rows_are_exact_and_the_strongest_are_the_strongest(model, file):
    loaded, layer, head = regard.load(model), "encoder.0.self", 1
    texts = list(texts_of(file, loaded.tokenizer, 128))
    assert len(texts) == 14
    report = heads_on_corpus(texts, loaded.look, loaded.tokenizer, layer, head)
    [found] = report.heads
    special, best, rows = {*loaded.tokenizer.special_ids.values()}, [], 0
    for text in texts:
        seen = loaded.look(text)
        ids, _ = token_ids(seen, layer)
        maps = sized(seen.trace(layer).weights(None))[head]
        shown = [at for at in range(1, len(ids)) if ids[at] not in special]
        rows += len(shown)
        best.append(max(float(maps[row, key]) for row in shown for key in shown))
    assert found.rows == rows
    assert [one.strength for one in found.strongest] == pytest.approx(sorted(best, reverse=True)[:12])
    for one in [*found.strongest, *(row for part in found.deciles for row in part)]:
        maps = sized(loaded.look(texts[one.text]).trace(layer).weights(None))[head]
        assert one.weights.tolist() == pytest.approx(maps[one.row].tolist(), abs=1e-6)
        assert one.strength == pytest.approx(float(maps[one.row, one.key]))
    mean = [one.strength for part in found.deciles for one in part]
    assert mean == sorted(mean, key=lambda value: round(value * BINS)) or len(mean) >= 10


def test_long_lines_are_cut_and_bad_files_named(model, tmp_path):
    loaded = regard.load(model)
    (tmp_path / "long.txt").write_text("de: 3 mars 2011 " * 50 + "\n", encoding="utf-8")
    texts = list(texts_of(tmp_path / "long.txt", loaded.tokenizer, 9))
    assert all(len(loaded.tokenizer.encode(text)) <= 10 for text in texts)
    assert "".join(texts).replace(" ", "") == ("de: 3 mars 2011 " * 50).replace(" ", "")
    (tmp_path / "bad.txt").write_bytes(b"\xff\xfe")
    for name, said in (("bad.txt", "not UTF-8"), ("none.txt", "cannot be read")):
        with pytest.raises(FileError, match=said):
            list(texts_of(tmp_path / name, loaded.tokenizer, 9))


def test_the_page_stands_alone_and_tokens_cannot_end_it(call, model, file, tmp_path):
    answer: Answer = call("look", model, "--corpus", file, "--layer", "encoder.0.self")
    assert (answer.code, answer.err) == (0, "")
    assert "encoder.0.self, head 1" in answer.out
    page = (tmp_path / "corpus.html").read_text(encoding="utf-8")
    data = json.loads(re.search(r'id="data">(.*?)</script>', page).group(1))
    assert [one["name"] for one in data["heads"]] == ["encoder.0.self, head 0", "encoder.0.self, head 1"]
    assert "http" not in page
    assert page.count("tiny on dates.txt") == 2  # the title and the heading
    record = json.loads(call("look", model, "--corpus", file, "--json", "--to", "all.html").out)
    assert len(record["heads"]) == 5 * 2
    loaded = regard.load(model)
    report = loaded.on_corpus(file, layer="encoder.0.self", head=0)
    assert "</script><b>" not in corpus_page(report, "</script><b>")
    refused = call("look", model, "de: 3 mars 2011", "--corpus", file, "--force")
    assert (refused.code, "a text and a file" in refused.err) == (1, True)
