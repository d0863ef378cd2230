"""`regard data show`: counts, lengths, examples and what is cut, beside what is counted by hand."""

import json

import pytest

import regard
from regard.tasks.task import TASKS

FEW = ("--set", "tokenizer.kind=characters", "--set", "tokenizer.size=90")


def shown(call, *arguments):
    answer = call("data", "show", *arguments, *FEW, "--json")
    assert (answer.code, answer.err) == (0, "")
    return json.loads(answer.out)


def test_counts_lengths_and_what_is_cut_are_those_of_the_file(call, tmp_path):
    texts = ["a" * length for length in range(1, 41)]
    path = tmp_path / "labels.tsv"
    path.write_text("".join(f"{text}\t{'long' if len(text) > 9 else 'short'}\n" for text in texts))
    record = shown(call, "classify", "--data", path, "--set", "data.window=12", "--set", "data.valid=labels.tsv")
    assert [(one["split"], one["examples"]) for one in record["splits"]] == [("train", 40), ("valid", 40)]
    lengths = {one["part"]: one for one in record["splits"][0]["lengths"]}["text"]
    assert (lengths["shortest"], lengths["longest"], lengths["median"], lengths["most"]) == (1, 40, 21, 36)
    assert lengths["mean"] == pytest.approx(20.5)
    assert record["splits"][0]["cut"] == ["30 texts are longer than the window of 12 tokens, and are cut there"]
    assert record["examples"][0] == {"text": "a", "label": "short"}
    assert "2 labels: long (31), short (9)" in record["notes"]
    for_people = call("data", "show", "classify", "--data", path, *FEW).out
    assert "train: " in for_people
    assert "example 1\n  text: " in for_people


def test_conversations_that_lose_turns_are_counted(call, tmp_path):
    turn = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "oh"}]
    path = tmp_path / "chats.jsonl"
    path.write_text("".join(json.dumps({"messages": turn * count}) + "\n" for count in range(1, 13)))
    record = shown(call, "chat", "--data", path, "--set", "data.window=60", "--set", "data.valid=chats.jsonl")
    one = 2 * len("xuser\nhix\n") - len("user\nhi") + len("assistant\noh")  # a character for each special token
    fewer = sum(count * one > 61 for count in range(1, 13))
    assert record["splits"][0]["cut"][0].startswith(f"{fewer} are longer than the window of 60 tokens")
    assert record["examples"][0] == {"conversation": "user: hi assistant: oh", "learnt": "oh"}


def test_a_corpus_without_end_and_two_files_are_shown(call, tmp_path):
    (tmp_path / "en.txt").write_text("one two\n" * 12)
    (tmp_path / "fr.txt").write_text("un deux\n" * 12)
    record = shown(
        call,
        "translation",
        "--data",
        tmp_path / "en.txt",
        tmp_path / "fr.txt",
        "--set",
        'data.valid=["en.txt","fr.txt"]',
    )
    assert record["splits"][0]["examples"] == 12
    endless = shown(call, "copy", "--set", "tokenizer.sample=50")
    assert endless["splits"][0]["examples"] is None
    assert endless["task"] in TASKS
    assert regard.Recipe.model_validate({"data": {"corpus": "copy"}}).given.corpus == endless["source"]


def test_a_recipe_without_data_and_bad_files_are_one_sentence(call, tmp_path):
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 and no more")
    for arguments, said in (
        (("classify",), "the recipe has no data of its own"),
        (("classify", "--data", "none.csv"), "does not exist"),
        (("classify", "--data", tmp_path / "bad.parquet"), "is a damaged Parquet file"),
        (("clasify",), "there is no recipe 'clasify'"),
    ):
        answer = call("data", "show", *arguments)
        assert (answer.code, answer.out) == (1, "")
        assert said in answer.err
        assert len(answer.err.splitlines()) == 1
