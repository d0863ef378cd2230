"""Long reading and learning has a bar on a terminal, nothing elsewhere, and changes nothing of what is read."""

import gzip
import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from regard.cli.vectors import Lines
from regard.embedding.word2vec.fit import Word2VecProgress
from regard.training import progress
from regard.training.progress import ReadingBar

TEXTS = ["the rose by the river bank\n", "naïve 日本語\n", ""]


def console(terminal: bool) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=100, soft_wrap=True)


@pytest.mark.parametrize("terminal", [False, True])
def test_texts_pass_unchanged_and_only_a_terminal_sees_a_bar(tmp_path, terminal):
    file = tmp_path / "a.txt"
    file.write_text("".join(TEXTS), encoding="utf-8")
    seen = console(terminal)
    with ReadingBar([file], seen) as bar:
        assert bar.bytes == len("".join(TEXTS).encode())
        for _ in range(2):
            assert list(bar.watch(TEXTS, "reading", "learning")) == TEXTS
            assert [(task.description, task.completed) for task in bar.bar.tasks] == [("learning", bar.bytes)]
    assert ("learning" in seen.file.getvalue()) == terminal
    assert bool(seen.file.getvalue()) == terminal


@pytest.mark.parametrize("name", ["missing.txt", "packed.txt.gz", ".", "a" * 300, "nul\0.txt"])
def test_where_no_size_is_known_reading_has_no_end(tmp_path, name):
    (tmp_path / "packed.txt.gz").write_bytes(gzip.compress(b"some words"))
    assert ReadingBar([tmp_path / name], console(True)).bytes is None


def test_a_bar_that_stops_by_an_error_lets_it_pass(tmp_path):
    with pytest.raises(ZeroDivisionError), ReadingBar([], console(True)) as bar:
        list(bar.watch((1 / 0 for _ in TEXTS), "reading", "learning"))


@pytest.mark.parametrize(("terminal", "lines"), [(False, 10), (True, 2)])
def test_training_vectors_has_a_line_for_every_epoch_and_for_every_tenth_where_there_is_no_bar(terminal, lines):
    seen = console(terminal)
    with Lines(seen) as listener:
        for words in range(10, 1001, 10):
            listener(Word2VecProgress(1 + (words - 1) // 500, 2, words, 1000, 0.25, 12345.6))
    said = [line for line in seen.file.getvalue().splitlines() if "epoch" in line]
    assert len(said) == lines
    assert said[-1].endswith("epoch 2 of 2  100 %  loss 0.2500  12,346 words/s")
    assert ("\x1b" in seen.file.getvalue()) == terminal


@pytest.mark.parametrize("kind", ["bpe", "wordpiece"])
def test_training_a_tokenizer_in_a_pipe_says_nothing_but_its_result(call, kind):
    Path("a.txt").write_text("the rose by the river " * 7, encoding="utf-8")
    done = call("tokenizer", "train", "a.txt", "--size", 300, "--kind", kind, "--json")
    assert (done.code, done.err) == (0, "")
    assert json.loads(done.out)["tokenizer"] == "tokenizer.json"


def test_on_a_terminal_only_stderr_differs(call, monkeypatch):
    Path("a.txt").write_text("the rose by the river " * 7, encoding="utf-8")
    first = call("tokenizer", "train", "a.txt", "--size", 300)
    terminal = console(True)
    monkeypatch.setattr(progress, "Console", lambda **options: terminal)
    second = call("tokenizer", "train", "a.txt", "--size", 300)
    assert second.out == first.out
    assert "learning" in terminal.file.getvalue()
