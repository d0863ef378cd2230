"""How training looks: a bar on a terminal, few plain lines elsewhere, one JSON object where it is asked for."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console
from small_model import RECIPE, SMALL

from regard.training import progress
from regard.training.progress import ProgressBar
from regard.training.reports import Report


def settings(*changes: str) -> list[str]:
    return [part for change in (*SMALL, *changes) for part in ("--set", change)]


def shown(reports: list[Report], *, terminal: bool = False) -> str:
    console = Console(file=io.StringIO(), force_terminal=terminal, width=120, soft_wrap=True)
    with ProgressBar(Path("runs/x"), console) as bar:
        bar.say("a sentence with [brackets]")
        for report in reports:
            bar(report)
    return console.file.getvalue()


def reports(steps: int, validations: dict[int, tuple[float, float, int]]) -> list[Report]:
    """Steps 1 to `steps`; a validation is its loss, the best so far and how many have been worse in a row."""
    found = []
    for step in range(1, steps + 1):
        loss, best, worse = validations.get(step, (None, None, 0))
        known = None if loss is None else {"loss": loss}
        found.append(Report(step, steps, 3.25, 1e-3, 700, 1234, 1.0, known, best=best, worse=worse))
    return found


@pytest.mark.parametrize("steps", [1, 7, 20, 1000, 9973])
def test_outside_a_terminal_there_are_few_lines_however_long_the_run(steps, monkeypatch):
    monkeypatch.setattr(progress, "monotonic", lambda: 0.0)
    printed = shown(reports(steps, {})).splitlines()
    assert printed[:2] == ["a sentence with [brackets]", "runs/x keeps everything; Ctrl-C saves and stops"]
    lines = printed[2:]
    assert len(lines) <= progress.PARTS + 1
    assert lines[0].startswith(f"step      1 of {steps}  loss 3.250  1,234 tokens/s"), "the first step's own seconds"
    assert lines[-1].split()[:4] == ["step", str(steps), "of", str(steps)]
    assert lines[-1].endswith("0:00:00 left")
    assert steps == 1 or "left" not in lines[0], "nothing is known yet of how long a step takes"
    assert all("\r" not in line and "\x1b" not in line for line in printed)


def test_the_time_left_is_the_time_of_a_step_times_the_steps_left(monkeypatch):
    """A clock that goes on by 7 seconds a step; a line is printed after the 2nd of 20."""
    now = [0.0]
    monkeypatch.setattr(progress, "monotonic", lambda: now[0])
    console = Console(file=io.StringIO(), force_terminal=False, width=120)
    bar = ProgressBar(Path("runs/x"), console)
    for report in reports(20, {})[:2]:
        bar(report)
        now[0] += 7
    assert console.file.getvalue().splitlines()[-1].endswith("0:02:06 left")  # 18 × 7 s


def test_a_line_has_the_mean_loss_and_the_speed_since_the_line_before(monkeypatch):
    """Steps 2 and 3 of 400: 3 targets at loss 5 and 1 at loss 1; 30 + 70 tokens in 4 seconds of this clock."""
    now = [0.0]
    monkeypatch.setattr(progress, "monotonic", lambda: now[0])
    console = Console(file=io.StringIO(), force_terminal=False, width=120)
    bar = ProgressBar(Path("runs/x"), console)
    first = Report(1, 400, 9.0, 1e-3, 2, 10, 0.5)
    for report in (first, Report(2, 400, 5.0, 1e-3, 3, 30, 0.1), Report(3, 400, 1.0, 1e-3, 1, 70, 0.1, {"loss": 2.5})):
        bar(report)
        now[0] += 2
    bar(Report(4, 400, 7.0, 1e-3, 5, 20, 0.1, {"loss": 3.0}, best=2.5, worse=1))
    _, *lines = console.file.getvalue().splitlines()
    assert lines[0].startswith("step      1 of 400  loss 9.000  20 tokens/s")
    assert lines[1] == "step      3  training loss 4.0000  25 tokens/s  validation loss 2.5000  new best"
    assert lines[2].startswith("step      4  training loss 7.0000  10 tokens/s  validation loss 3.0000  best 2.5000")


def test_a_long_wait_is_broken_by_a_line(monkeypatch):
    """Every step takes two minutes by this clock: a line at least every six."""
    clock = map(float, range(0, 10**9, 60))
    monkeypatch.setattr(progress, "monotonic", lambda: next(clock))
    assert len(shown(reports(997, {})).splitlines()) > 997 / 10


@pytest.mark.parametrize("terminal", [False, True])
def test_validations_are_shown_with_the_best_so_far(terminal):
    printed = shown(reports(9, {3: (0.5, 0.5, 0), 6: (0.75, 0.5, 1), 9: (0.625, 0.5, 2)}), terminal=terminal)
    assert "validation loss 0.5000  new best" in printed
    assert "validation loss 0.7500  best 0.5000, no improvement for 1 evaluation\n" in printed.replace("\r", "")
    assert "validation loss 0.6250  best 0.5000, no improvement for 2 evaluations" in printed


def test_the_metric_stands_beside_the_loss_and_the_best_is_its_best():
    known = {"loss": 2.5, "bleu": 31.25}
    new, old = (
        Report(3, 9, 3.25, 1e-3, 7, 9, 1.0, known, "bleu", best, worse) for best, worse in ((31.25, 0), (33.0, 2))
    )
    assert "validation loss 2.5000  bleu 31.2500  new best bleu" in shown([new])
    assert "bleu 31.2500  best bleu 33.0000, no improvement for 2 evaluations" in shown([old])


@pytest.mark.parametrize("terminal", [False, True])
def test_measuring_has_a_bar_on_a_terminal_and_nothing_elsewhere(terminal):
    console = Console(file=io.StringIO(), force_terminal=terminal, width=80)
    with progress.MeasuringBar(console) as bar:
        bar(3, 17)
        bar(17, 17)
    assert ("17/17" in console.file.getvalue()) == terminal
    assert terminal or console.file.getvalue() == ""


def test_on_a_terminal_the_bar_has_loss_speed_and_time_left():
    printed = shown(reports(7, {}), terminal=True)
    assert "7/7" in printed
    assert "loss 3.250" in printed
    assert "tokens/s" in printed
    assert "0:00:00" in printed


def test_with_json_there_is_one_object_on_stdout(call):
    answer = call("train", RECIPE, *settings(), "--out", "new", "--json")
    assert answer.code == 0
    record = json.loads(answer.out)
    assert record.keys() == {"folder", "steps", "validation_loss", "seconds"}
    assert (record["folder"], record["steps"]) == ("new", 3)
    lines = [json.loads(line) for line in Path("new", "metrics.jsonl").read_text().splitlines()]
    assert record["validation_loss"] == lines[-1]["validation_loss"]
    assert record["seconds"] >= 0
    again = call("train", RECIPE, *settings(), "--out", "new", "--resume", "--json")
    assert json.loads(again.out) | {"seconds": 0} == record | {"seconds": 0}
    refused = call("train", RECIPE, *settings(), "--out", "new", "--json")
    assert (refused.code, refused.out) == (1, "")
    assert json.loads(refused.err).keys() == {"error", "remedy"}
