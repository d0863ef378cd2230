"""`regard bench`: what it prints, keeps and refuses, with measurements that take no time."""

import json

import pytest
from typer.testing import CliRunner

from regard.bench import decoding, training
from regard.cli import bench as command
from regard.cli.app import app

ROW = {
    "what": "training",
    "contestant": "peer",
    "precision": "bfloat16",
    "tokens_per_second": 1234.5,
    "milliseconds": 17.0,
    "ratio": 1.5,
    "faster": True,
    "parameters": 11,
    "rounds": [17.0],
}


@pytest.fixture(autouse=True)
def measured(monkeypatch):
    for subject in (training, decoding):
        monkeypatch.setattr(subject, "rows", lambda: iter([ROW]))


@pytest.mark.parametrize("subject", ["train", "decode"])
def test_figures_are_printed_and_kept_with_their_circumstances(subject, tmp_path):
    out = tmp_path / "figures.json"
    done = CliRunner().invoke(app, ["bench", subject, "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "peer, bfloat16" in done.output
    assert "1,234 tokens/s*" in done.output
    kept = json.loads(out.read_text())
    assert kept["rows"] == [ROW]
    assert {"command", "commit", "torch", "python", "device"} <= kept.keys()


def test_json_is_one_object_on_stdout():
    done = CliRunner().invoke(app, ["bench", "train", "--json"])
    assert json.loads(done.stdout)["rows"] == [ROW]


def test_a_peer_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setattr("regard.bench.timing.installed", lambda package: False)
    done = CliRunner().invoke(app, ["bench", "train"])
    assert done.exit_code == 0
    assert "x-transformers is not installed" in done.output


def test_the_rows_of_a_peer_that_is_not_installed_are_left_out(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(decoding, "installed", lambda package: False)
    assert list(decoding.rows()) == []


def test_subjects_are_the_ones_that_can_be_measured():
    known = ["attention", "train", "decode", "families", "tokenizer", "vectors"]
    assert [subject.value for subject in command.Subject] == known
    done = CliRunner().invoke(app, ["bench", "trains"])
    assert done.exit_code == 2
    assert "trains" in done.output
