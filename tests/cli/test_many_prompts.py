"""Thousands of lines on stdin: answered in order, as they come, in memory that does not grow."""

import json
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

import regard
from regard.decoding.strategies import Beam, Greedy, Sample
from regard.tasks import generation
from regard.tasks.generation import side_by_side

DAYS = ["de: 3 mars 2001", "iso: Wednesday, July 14, 1999", "it: 1 de mayo de 2010", "es: 4 March 2007"]
RUN = """
import resource, sys
from regard.cli.app import main
try:
    main()
finally:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
"""


@given(st.lists(st.integers(1, 40), max_size=50), st.integers(1, 9), st.integers(1, 90))
def test_groups_hold_every_text_once_and_no_more_than_they_may(sizes, rows, tokens):
    groups = list(side_by_side(sizes, rows, tokens))
    assert sorted(number for group in groups for number in group) == list(range(len(sizes)))
    for group in groups:
        longest = max(sizes[number] for number in group)
        assert len(group) <= rows
        assert len(group) == 1 or len(group) * longest <= tokens
    flat = [sizes[number] for group in groups for number in group]
    assert flat == sorted(flat, reverse=True)


@pytest.mark.parametrize("strategy", [Greedy(), Sample(seed=5), Beam(2)])
def test_sorted_and_grouped_texts_get_the_answers_they_get_alone(model, strategy, monkeypatch):
    loaded = regard.load(model, "cpu")
    loaded.module.double()
    texts = [DAYS[at * at % 4] for at in range(13)]
    sample = isinstance(strategy, Sample)
    alone = [
        loaded.run(text, strategy=Sample(seed=5, first=at) if sample else strategy) for at, text in enumerate(texts)
    ]
    monkeypatch.setattr(generation, "TOKENS", 50)
    monkeypatch.setattr(generation, "AHEAD", 5)
    assert loaded.run(texts, strategy=strategy) == alone


def started(model, *arguments):
    command = [sys.executable, "-c", RUN, "run", str(model), "--json", "--max-new-tokens", "2", *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env={**os.environ, "OMP_NUM_THREADS": "1"})


def test_a_line_is_answered_before_the_next_one_is_there(model):
    process = started(model)
    for text in DAYS[:3]:
        process.stdin.write(text.encode() + b"\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["input"] == text
    process.stdin.write(b"\xff\n" + DAYS[3].encode())  # the last without an end
    process.stdin.close()
    assert [json.loads(line).get("line") for line in process.stdout] == [4, None]
    assert process.wait() == 1


def peak(model, count):
    lines = "".join(f"{DAYS[at % 4]}\n" for at in range(count)).encode()
    out, err = started(model).communicate(lines)
    inputs = [json.loads(line)["input"] for line in out.splitlines()]
    assert inputs == [DAYS[at % 4] for at in range(count)]
    return int(err.splitlines()[-1])


@pytest.mark.slow
def test_memory_does_not_grow_with_the_lines(model):
    assert peak(model, 10_000) < peak(model, 1_000) + 30_000  # KiB, of some 400,000
