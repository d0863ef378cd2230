"""Recurrent networks at the command line: every verb as for any network; what they cannot do in one sentence."""

import json
import math
import re
from pathlib import Path

import pytest
from small_model import RECIPE, SMALL

import regard

TEXT = "de: 3 mars 2011"
TRAINING = [one for one in SMALL if not one.startswith("model.")]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory, _quick: None) -> dict[str, Path]:
    """A model of each kind, with another cell each; they answer nonsense."""
    found = {}
    for name, cell in (("bahdanau", "gru"), ("luong", "lstm"), ("seq2seq", "rnn")):
        found[name] = tmp_path_factory.mktemp("recurrent") / name
        changes = [f"model={name}", f"model.cell={cell}", "model.layers=2", "model.width=8", *TRAINING]
        regard.train(RECIPE, found[name], changes=changes, progress=False)
    return found


@pytest.mark.parametrize("name", ["bahdanau", "luong", "seq2seq"])
def test_a_batch_of_lines_is_answered_as_each_alone(name, folders, call):
    lines = [TEXT, "fr: 2001-07-13", "iso: 9 May 1999"]
    together = call("run", folders[name], "--beams", "3", "--strategy", "beam", stdin="\n".join(lines).encode())
    alone = [call("run", folders[name], line, "--beams", "3", "--strategy", "beam").out for line in lines]
    assert (together.code, together.err) == (0, "")
    assert together.out == "".join(alone)


@pytest.mark.parametrize("name", ["bahdanau", "luong", "seq2seq"])
def test_a_blank_line_and_one_that_is_no_text_leave_the_others_their_answers(name, folders, call):
    answer = call("run", folders[name], "--json", stdin=f"{TEXT}\n\n\xff\n{TEXT}\n".encode("latin-1"))
    first, blank, broken, last = map(json.loads, answer.out.splitlines())
    assert (answer.code, first) == (1, last)
    assert (blank["line"], blank["error"]) == (2, "the text is empty")
    assert broken["error"].startswith("the text is not UTF-8")


@pytest.mark.parametrize("name", ["bahdanau", "luong"])
def test_an_alignment_is_drawn_in_every_form(name, folders, call, tmp_path):
    for file in ("a.png", "a.svg", "a.pdf", "a.html"):
        answer = call("look", folders[name], TEXT, "--to", file)
        assert (answer.code, answer.out, answer.err) == (0, f"{file} shows decoder.0.cross\n", "")
        assert (tmp_path / file).stat().st_size > 1000


@pytest.mark.parametrize(("name", "score"), [("bahdanau", "score"), ("luong", "q·k")])
def test_the_four_steps_of_an_alignment_follow_from_each_other(name, score, folders, call):
    answer = call("look", folders[name], TEXT, "--steps", "--json", "--to", "s.png")
    assert (answer.code, answer.err) == (0, "")
    keys = json.loads(answer.out)["keys"]
    total = sum(math.exp(key["scaled"]) for key in keys)
    assert [key["weight"] for key in keys] == pytest.approx([math.exp(key["scaled"]) / total for key in keys], rel=1e-4)
    table = call("look", folders[name], TEXT, "--steps", "--to", "s.png", "--force").out
    assert f"{score} " in table.splitlines()[2]


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("bahdanau", (TEXT, TEXT, "--meaning", "mars"), "bahdanau, 2 layers of gru.* has no layers of attention"),
        ("seq2seq", (TEXT, TEXT, "--meaning", "mars"), "seq2seq, 2 layers of rnn.* has no layers of attention"),
        ("luong", (TEXT, "--word", "mars"), "no self-attention was seen"),
        ("seq2seq", (TEXT,), "no attention that can be watched"),
        ("bahdanau", (TEXT, "--head", "3"), "has 1 head and no head 3; use 0\n"),
        ("luong", (TEXT, "--layer", "encoder.0.self"), "layer 'encoder.0.self' was not seen"),
    ],
)
def test_what_they_cannot_show_is_said_in_one_sentence(name, arguments, words, folders, call, tmp_path):
    answer = call("look", folders[name], *arguments, "--to", "x.png")
    assert (answer.code, answer.out) == (1, "")
    assert len(answer.err.splitlines()) == 1
    assert re.search(words, answer.err)
    assert not (tmp_path / "x.png").exists()


def test_a_task_they_cannot_do_names_a_network_that_can(call):
    for task, others in (("language_modelling", "decoder"), ("masked", "encoder and model.head='masked'")):
        answer = call("train", "dates", "--set", "model=bahdanau", "--set", f"task={task}", "--set", "decoding=")
        assert answer.code == 1
        assert f"use model=transformer with model.architecture={others}" in answer.err
