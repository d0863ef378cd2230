"""The comparison of tokenizers: the same text and merges on all sides, and no comparison of different ids."""

import json

import pytest
from typer.testing import CliRunner

from regard.bench import tokenizer as bench
from regard.cli.app import app
from regard.errors import InputError
from regard.text.tokenizer import Tokenizer

LINES = [f"def rose_{number % 7}(river): return {number}  # naïve\n" for number in range(97)]


def test_regard_and_tokenizers_learn_the_same_merges():
    case = bench.Case("lines", LINES, 293)
    actual, expected = (bench.trainers()[name](case)() for name in ("regard", "tokenizers"))
    model = json.loads(expected.to_str())["model"]
    assert [list(pair) for pair in actual.merges] == model["merges"]
    assert json.loads(actual.to_json())["model"]["vocab"] == model["vocab"]


def test_every_contestant_gives_the_same_ids():
    pytest.importorskip("tiktoken")
    found = {name: work() for name, work in bench.encoders(Tokenizer.train(LINES, 293), LINES).items()}
    assert len(found) == 5
    assert all(ids == found["regard"] for ids in found.values())
    bench.check_equal(found)
    with pytest.raises(InputError, match="peer and regard give text 1 different ids"):
        bench.check_equal({"regard": [[1], [2]], "peer": [[1], [3]]})


def test_rows_have_a_figure_and_a_ratio_to_regard(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("".join(LINES) * 3, encoding="utf-8")
    rows = list(bench.rows(path, most=10_000, size=290))
    assert {row["contestant"] for row in rows} >= {"regard", "tokenizers", "tiktoken, in threads"}
    for row in rows:
        actual = next(one for one in rows if one["what"] == row["what"] and one["contestant"] == "regard")
        assert row["ratio"] == pytest.approx(row["milliseconds"] / actual["milliseconds"], rel=0.02)
        assert row["figure"].endswith(" MB/s")


def test_without_a_file_the_text_is_pythons_own_source():
    case = bench.read_case(None, 50_000)
    assert sum(map(len, case.lines)) == 50_000
    assert any(line.startswith("import ") for line in case.lines)


def test_the_command_passes_the_file_on_and_other_subjects_refuse_it(tmp_path, monkeypatch):
    row = {"what": "training", "contestant": "regard", "figure": "3.00 MB/s", "ratio": 1.0}
    monkeypatch.setattr(bench, "rows", lambda data: iter([row | {"what": str(data)}]))
    done = CliRunner().invoke(app, ["bench", "tokenizer", "--data", "my.txt", "--json"])
    assert json.loads(done.stdout)["rows"][0]["what"] == "my.txt"
    done = CliRunner().invoke(app, ["bench", "decode", "--data", "my.txt"])
    assert "makes its own data" in str(done.exception)
