"""`regard bench`: what it prints, keeps and refuses, with measurements that take no time."""

import json

import pytest
import torch
from typer.testing import CliRunner

from regard.bench import decoding, families, training, training_on_gpu
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
    monkeypatch.setattr(training, "rows", lambda: iter([ROW]))
    monkeypatch.setattr(training_on_gpu, "rows", lambda: iter([ROW | {"what": "training on a GPU"}]))
    found = ROW | {"what": "decoding on "}
    monkeypatch.setattr(
        decoding,
        "rows",
        lambda device, known, until, sentences: iter([*known, found | {"what": found["what"] + device}]),
    )


@pytest.mark.parametrize("subject", ["train", "decode"])
def test_figures_are_printed_and_kept_with_their_circumstances(subject, tmp_path):
    out = tmp_path / "figures.json"
    done = CliRunner().invoke(app, ["bench", subject, "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "peer, bfloat16" in done.output
    assert "1,234 tokens/s*" in done.output
    kept = json.loads(out.read_text())
    assert [row | {"what": "training"} for row in kept["rows"]] == [ROW]
    assert kept["device"].startswith("CPU, ")
    assert {"command", "commit", "torch", "python", "device"} <= kept.keys()


def test_what_was_measured_is_kept_where_the_rest_is_not(tmp_path, monkeypatch):
    def interrupted():
        yield ROW
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "rows", interrupted)
    CliRunner().invoke(app, ["bench", "train", "--out", str(tmp_path / "figures.json")])
    assert json.loads((tmp_path / "figures.json").read_text())["rows"] == [ROW]


def test_json_is_one_object_on_stdout():
    done = CliRunner().invoke(app, ["bench", "train", "--json"])
    assert json.loads(done.stdout)["rows"] == [ROW]


def test_quietly_figures_are_printed_and_nothing_is_on_stderr(monkeypatch):
    monkeypatch.setattr("regard.bench.timing.installed", lambda package: False)
    loud, quiet = (CliRunner().invoke(app, ["bench", "train", *more]) for more in ([], ["-q"]))
    assert "is not installed" in loud.stderr
    assert (quiet.stdout, quiet.stderr) == (loud.stdout, "")
    loud, quiet = (CliRunner().invoke(app, ["bench", "train", "--json", *more]) for more in ([], ["--quiet"]))
    assert "peer, bfloat16" in loud.stderr
    assert (json.loads(quiet.stdout)["rows"], quiet.stderr) == ([ROW], "")


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_a_gpu_is_measured_where_there_is_one_and_named(device, monkeypatch):
    monkeypatch.setattr("regard.devices.usable_device", lambda name: torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "A Fast One")
    for subject, what in (("train", "training on a GPU"), ("decode", "decoding on cuda")):
        found = json.loads(CliRunner().invoke(app, ["bench", subject, "--device", device, "--json"]).stdout)
        assert (found["device"], found["rows"][0]["what"]) == ("A Fast One", what)


def test_what_is_measured_on_a_cpu_says_so_where_there_is_a_gpu_too(monkeypatch):
    monkeypatch.setattr("regard.devices.usable_device", lambda name: torch.device("cuda"))
    monkeypatch.setattr(families, "rows", lambda: iter([ROW]))
    found = json.loads(CliRunner().invoke(app, ["bench", "families", "--json"]).stdout)
    assert found["device"].startswith("CPU, ")
    refused = CliRunner().invoke(app, ["bench", "families", "--device", "cuda"])
    assert "measures the CPU" in str(refused.exception)


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


def test_decoding_is_gone_on_with_where_it_was_left(tmp_path):
    out = tmp_path / "figures.json"
    for measured in (1, 2):
        done = CliRunner().invoke(app, ["bench", "decode", "--out", str(out), "--resume", "--minutes", "1"])
        assert done.exit_code == 0, done.output
        assert len(json.loads(out.read_text())["rows"]) == measured
    done = CliRunner().invoke(app, ["bench", "decode", "--length", "1024"])
    assert "`bench decode` measures no mechanisms" in str(done.exception)
    for asked in (("train", "--sentences", "9"), ("decode", "--sentences", "9", "--device", "cuda")):
        assert CliRunner().invoke(app, ["bench", *asked]).exit_code == 1


def test_so_many_sentences_are_translated_and_nothing_else_is_measured(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(decoding, "compete", lambda contestants, case: [case])
    monkeypatch.setattr(decoding, "compared", lambda what, results: [{"what": what, "case": results[0]}])
    monkeypatch.setattr(decoding, "installed", lambda package: True)
    [row] = decoding.rows(sentences=17)
    assert row["what"].startswith("17 sentences by a Transformer-base")
    assert len(row["case"].sources()) == 17


def test_known_rows_of_decoding_are_not_measured_again_and_nothing_begins_too_late(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(decoding, "compete", lambda contestants, case: [case])
    monkeypatch.setattr(decoding, "compared", lambda what, results: [{"what": what}])
    monkeypatch.setattr(decoding, "installed", lambda package: True)
    names = [*(case.name for case in decoding.CASES), decoding.TRANSLATION.name]
    assert [row["what"] for row in decoding.rows()] == names
    known = [{"what": names[2], "figure": figure} for figure in "ab"]
    assert list(decoding.rows("cpu", known, until=0.0)) == known
