"""`regard run` with `--draft`, `--prompt-lookup` and `--precision int8`: the answers, and what is refused."""

import json
import shutil

import pytest

TEXT = "de: 3 mars 2001"


@pytest.mark.parametrize("how", [(), ("--strategy", "sample", "--seed", 3), ("--stream",)])
def test_a_draft_changes_no_answer(call, model, how):
    plain = call("run", model, TEXT, *how)
    assert plain.code == 0
    for draft in (("--draft", model), ("--prompt-lookup",)):
        found = call("run", model, TEXT, *how, *draft)
        assert (found.code, found.out) == (0, plain.out)


def test_every_line_of_stdin_is_answered_by_guesses(call, model):
    lines = "\n".join([TEXT, "", "de: 4. Mai 1999", TEXT]).encode()
    plain, found = (call("run", model, "--json", *more, stdin=lines) for more in ((), ("--prompt-lookup",)))
    assert plain.code == found.code == 1  # one line is empty
    one, other = ([json.loads(line) for line in answer.out.splitlines()] for answer in (plain, found))
    assert [record.get("output") for record in one] == [record.get("output") for record in other]
    assert {record["path"] for record in one if "path" in record} == {"plain"}
    assert {record["path"] for record in other if "path" in record} == {"speculative"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--beams", 2, "--prompt-lookup"), "a draft has no effect on Beam"),
        (("--explain", "--prompt-lookup"), "--prompt-lookup has no effect with --explain"),
        (("--draft", "nowhere"), "nowhere"),
        (("--draft", "nowhere", "--prompt-lookup"), "--draft and --prompt-lookup both guess"),
    ],
)
def test_what_takes_no_draft_says_so(call, model, given, said):
    found = call("run", model, TEXT, *given)
    assert found.code == 1
    assert said in found.err
    assert found.out == ""


def test_a_draft_with_another_tokenizer_is_refused(call, model, tmp_path):
    shutil.copytree(model, tmp_path / "other")
    file = tmp_path / "other" / "tokenizer.json"
    table = json.loads(file.read_text())
    table["model"]["merges"][:2] = table["model"]["merges"][1::-1]
    file.write_text(json.dumps(table))
    found = call("run", model, TEXT, "--draft", "other")
    assert found.code == 1
    assert "the draft cuts text by another vocabulary" in found.err


def test_int8_is_said_and_unknown_precisions_are_refused(call, model):
    found = call("run", model, TEXT, "--precision", "int8", "--json")
    assert json.loads(found.out)["precision"] == "int8"
    measured = call("evaluate", model, "--precision", "int8", "--examples", 3, "--json", "-q")
    assert json.loads(measured.out)["precision"] == "int8"
    found = call("run", model, TEXT, "--precision", "int4")
    assert (found.code, found.out) == (1, "")
    assert "precision 'int4' is unknown; did you mean 'int8'?" in found.err
