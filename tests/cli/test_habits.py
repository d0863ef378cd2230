"""What people try without reading: --version, -h, -q, completion; a picture of runs; files that are kept."""

import io
import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from rich.console import Console
from small_model import RECIPE, SMALL

import regard
from regard.cli import app
from regard.training import progress
from regard.training.progress import ReadingBar

DAY = "de: 3 mars 2001"


def test_the_version_is_printed(call):
    answer = call("--version")
    assert (answer.code, answer.out, answer.err) == (0, f"regard {regard.__version__}\n", "")


@pytest.mark.parametrize("command", [(), ("run",), ("tokenizer",), ("tokenizer", "train"), ("vectors", "train")])
def test_h_is_help(call, command):
    short, long = call(*command, "-h"), call(*command, "--help")
    assert (short.code, short.err) == (0, "")
    assert short == long
    assert f"Usage: regard {' '.join(command)}".rstrip() in short.out


def test_a_shell_is_told_how_to_complete(call, monkeypatch):
    monkeypatch.setenv("SHELL", "/bin/bash")
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    answer = call("--show-completion", "bash")
    assert answer.code == 0
    assert "complete -o default -F _regard_completion regard" in answer.out


def test_every_verb_that_has_a_bar_can_be_quiet():
    verbs = {command.callback.__name__: command.callback for command in app.app.registered_commands}
    groups = {
        group.name: {one.callback.__name__: one.callback for one in group.typer_instance.registered_commands}
        for group in app.app.registered_groups
    }
    bars = [verbs["train"], verbs["demo"], verbs["evaluate"], groups["tokenizer"]["train"], groups["vectors"]["train"]]
    assert all("quiet" in verb.__annotations__ for verb in bars)


def test_quiet_training_and_learning_say_nothing_but_their_result(call):
    changes = [part for change in SMALL for part in ("--set", change)]
    answer = call("train", RECIPE, *changes, "--out", "new", "-q")
    assert (answer.code, answer.out, answer.err) == (0, "new holds the model; ask it with: regard run new\n", "")
    Path("corpus.txt").write_text("the rose by the river bank\n" * 30)
    answer = call("vectors", "train", "corpus.txt", "--out", "v.txt", "--width", "4", "--epochs", "1", "-q", "--json")
    assert (answer.code, answer.err) == (0, "")
    assert json.loads(answer.out)["words"] == 5


def test_reading_for_long_outside_a_terminal_says_how_far_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "READING_SECONDS", -1.0)
    (tmp_path / "a.txt").write_bytes(b"x" * 2_000_000)
    said = io.StringIO()
    with ReadingBar([tmp_path / "a.txt"], Console(file=said)) as bar:
        list(bar.watch(["x" * 1_000_000] * 2, "reading", "learning"))
    assert said.getvalue().splitlines() == ["reading  1 of 2 MB", "reading  2 of 2 MB", "learning"]


# plot


def test_a_picture_of_runs_names_each_and_has_every_figure(call, model):
    again = Path("again")
    again.mkdir()
    metrics = [{"step": step, "loss": 3 / step, "rate": 0.1, "validation_bleu": 20.0 + step} for step in range(1, 900)]
    (again / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in metrics) + '{"step": 900, "lo')
    answer = call("plot", model, again, "--to", "p.svg")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == "p.svg shows tiny (3 steps), again (899 steps)\n"
    words = " ".join(" ".join(ET.parse("p.svg").getroot().itertext()).split())
    for name in ("tiny, validation", "again", "loss", "validation bleu", "learning rate", "tokens per second"):
        assert name in words
    record = json.loads(call("plot", model, again, "--to", "p.pdf", "--json").out)
    assert Path("p.pdf").read_bytes().startswith(b"%PDF")
    assert record["runs"]["again"] == {"step": 899, "loss": 3 / 899, "rate": 0.1, "validation_bleu": 919.0}
    assert record["runs"]["tiny"]["validation_loss"] > 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("empty",), "empty has no metrics.jsonl; give the folder of a run"),
        (("nowhere",), "nowhere does not exist"),
        (("cut",), "metrics.jsonl holds no step"),
        (("good", "--to", "p.gif"), "'.gif' is not a known format"),
        (("good", "--to", "there.png"), "there.png is there already; add --force"),
        (("good",) * 13, "13 runs cannot be told apart"),
    ],
)
def test_what_is_no_run_is_refused(call, arguments, said):
    for name, content in {"empty": None, "cut": '{"step": 1, "lo', "good": '{"step": 1, "loss": 2.0}\n'}.items():
        Path(name).mkdir()
        if content is not None:
            Path(name, "metrics.jsonl").write_text(content)
    Path("there.png").write_text("mine")
    answer = call("plot", *arguments)
    assert (answer.code, answer.out) == (1, "")
    assert said in answer.err
    assert not Path("training.png").exists()
    assert Path("there.png").read_text() == "mine"


# look


def test_a_file_that_is_there_is_kept_unless_force_is_said(call, model):
    Path("a.png").write_text("mine")
    answer = call("look", model, DAY, "--to", "a.png")
    assert (answer.code, answer.out) == (1, "")
    assert (
        answer.err == "regard: a.png is there already; add --force to write over it, or choose another name with --to\n"
    )
    assert Path("a.png").read_text() == "mine"
    assert call("look", model, DAY, "--to", "a.png", "--force").code == 0
    assert Path("a.png").read_bytes().startswith(b"\x89PNG")


def test_look_writes_a_pdf_the_same_bytes_each_time(call, model):
    for name in ("a.pdf", "b.pdf"):
        assert call("look", model, DAY, "--to", name, "--layer", "encoder.0.self").code == 0
    assert Path("a.pdf").read_bytes() == Path("b.pdf").read_bytes()
    assert Path("a.pdf").read_bytes().startswith(b"%PDF")
