"""metrics.jsonl: whole lines of valid JSON, whatever happens to the disk."""

import json
import math
import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tiny_runs import Ear, climb, lines

from regard.errors import FileError
from regard.training.journal import METRICS, Journal, rewound
from regard.training.reports import Report


def report(step: int, loss: float = 0.5) -> Report:
    return Report(step, 99, loss, 1e-3, 5, 13, 0.75)


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """No file may grow beyond this: for the writer the same as a full disk."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)


def test_a_line_is_what_the_report_says(tmp_path):
    with Journal(tmp_path, 0) as journal:
        journal.write(report(1))
        journal.write(Report(2, 99, 0.25, 1e-3, 5, 13, 0.75, {"loss": 0.75}))
    first = {"step": 1, "loss": 0.5, "rate": 1e-3, "tokens_per_second": 17.3}
    assert lines(tmp_path) == [first, first | {"step": 2, "loss": 0.25, "validation_loss": 0.75}]


def test_lines_beyond_the_state_a_run_goes_on_from_are_dropped(tmp_path):
    with Journal(tmp_path, 0) as journal:
        for step in (1, 2, 3, 4):
            journal.write(report(step))
    with Journal(tmp_path, 2) as journal:
        assert journal.last == 2
        journal.write(report(3, loss=0.25))
    assert [(line["step"], line["loss"]) for line in lines(tmp_path)] == [(1, 0.5), (2, 0.5), (3, 0.25)]


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_line_cut_anywhere_is_dropped(tmp_path, cut):
    whole = json.dumps(report(1).values()) + "\n"
    (tmp_path / METRICS).write_text(whole + whole.replace("1", "2", 1)[:cut])
    kept = rewound(tmp_path / METRICS, 9)
    assert kept[0] == whole.rstrip("\n")
    assert all(json.loads(line)["step"] for line in kept)


@pytest.mark.parametrize("room", [0, 1, 50, 73, 74, 75, 200, 290])
def test_on_a_full_disk_only_whole_lines_are_left_and_a_sentence_said(tmp_path, room):
    """Every place in a line is a place where the disk may be full."""

    def write_all(journal: Journal) -> None:
        for step in range(1, 9):
            journal.write(report(step))

    said = r"metrics\.jsonl cannot be written: File too large; choose a folder"
    with Journal(tmp_path, 0) as journal, room_for(room), pytest.raises(FileError, match=said):
        write_all(journal)
    text = (tmp_path / METRICS).read_text()
    assert len(text) <= room
    assert text == "".join(json.dumps(report(step).values()) + "\n" for step in range(1, text.count("\n") + 1))


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_what_is_not_a_number_in_json_is_never_written(tmp_path, number):
    with Journal(tmp_path, 0) as journal, pytest.raises(ValueError, match="JSON compliant"):
        journal.write(report(1, loss=number))
    assert (tmp_path / METRICS).read_text() == ""


def test_lines_that_are_lost_are_spoken_of(tmp_path):
    climb(tmp_path).fit(until=4)
    text = (tmp_path / METRICS).read_text().splitlines()
    (tmp_path / METRICS).write_text("\n".join([text[0], "{broken", *text[2:]]) + "\n")
    run = climb(tmp_path)
    run.fit()
    assert isinstance(run.listener, Ear)
    assert any("lines for the steps 2 to 4 are lost" in said for said in run.listener.said)
    assert [line["step"] for line in lines(tmp_path)] == [1, 5, 6, 7]
