"""Adapters on the command line: trained, asked by name, several at once, merged, sized, and what is refused."""

import json
from pathlib import Path

import pytest

WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight"]
SMALL = ["training.steps=2", "training.batch_tokens=100", "training.warmup=1", "data.window=9"]
SHAPE = ["model.width=12", "model.heads=2", "model.layers=1", "tokenizer.size=80", "model.feedforward_width=7"]
ADAPTER = ["model.adapter=lora", "model.adapter.rank=2", "training.learning_rate=0.05"]


def settings(*changes: str) -> list[str]:
    return [part for change in changes for part in ("--set", change)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A masked model, and two classifiers that are adapters of it."""
    from regard import train

    found = tmp_path_factory.mktemp("adapters")
    (found / "labels.tsv").write_text("".join(f"{word} is good\tyes\n{word} is bad\tno\n" for word in WORDS))
    (found / "text.txt").write_text("".join(f"{word} is good and bad\n" for word in WORDS * 3))
    train("masked", found / "base", data=[found / "text.txt"], changes=[*SMALL, *SHAPE], progress=False)
    for name, seed in (("ann", 1), ("bob", 2)):
        changes = [f"model.from={found / 'base'}", *SMALL, *ADAPTER, f"training.seed={seed}"]
        train("classify", found / name, data=[found / "labels.tsv"], changes=changes, progress=False)
    return found


def test_a_model_is_asked_through_an_adapter_by_name(call, folder):
    direct = call("run", folder / "ann", "one is good", "--json")
    named = call("run", folder / "base", "one is good", "--adapter", f"a={folder / 'ann'}", "--json")
    assert named.code == direct.code == 0, named.err
    found, expected = (json.loads(one.out)["labels"] for one in (named, direct))
    for one, other in zip(found, expected, strict=True):
        assert one == {"label": other["label"], "probability": pytest.approx(other["probability"], abs=1e-6)}


def test_several_adapters_answer_each(call, folder):
    both = ["--adapter", f"ann={folder / 'ann'}", "--adapter", f"bob={folder / 'bob'}"]
    lines = call("run", folder / "base", "one is good", *both).out.splitlines()
    assert [line.split("\t")[0] for line in lines] == ["ann", "bob"]
    assert [line.partition("\t")[2] for line in lines] == [
        call("run", folder / name, "one is good").out.strip("\n") for name in ("ann", "bob")
    ]
    found = json.loads(call("run", folder / "base", "one is good", *both, "--json").out)
    assert set(found["adapters"]) == {"ann", "bob"}
    read = call("run", folder / "base", *both, "--json", stdin=b"one is good\ntwo is bad\n")
    assert [json.loads(line)["input"] for line in read.out.splitlines()] == ["one is good", "two is bad"]
    assert json.loads(read.out.splitlines()[0])["adapters"].keys() == found["adapters"].keys()


def test_an_adapter_is_merged_by_convert(call, folder, tmp_path):
    for name, source in (("one", [folder / "ann"]), ("two", [folder / "base", "--adapter", f"a={folder / 'ann'}"])):
        done = call("convert", source[0], tmp_path / name, *source[1:])
        assert done.code == 0, done.err
        assert (tmp_path / name / "model.safetensors").is_file()
        assert not (tmp_path / name / "adapter_config.json").exists()
    texts = [call("run", where, "one is good").out for where in (folder / "ann", tmp_path / "one", tmp_path / "two")]
    assert len(set(texts)) == 1


def test_size_counts_what_learns(call, folder):
    """By hand: width 12, rank 2 beside query and value of one layer, a pooler of 12 × 12 + 12, two labels."""
    found = json.loads(call("size", folder / "ann", "--json").out)
    adapters, head = 2 * 2 * (12 + 12), 12 * 12 + 12 + 2 * 12 + 2
    assert found["parameters"]["adapters"] == adapters
    assert found["parameters"]["learn"] == adapters + head
    assert found["bytes"]["gradients"]["float32"] == 4 * (adapters + head)
    assert found["bytes"]["moments"]["float32"] == 8 * (adapters + head)
    assert found["bytes"]["weights"]["float32"] == 4 * found["parameters"]["total"]
    assert "of these learn" in call("size", folder / "ann").out


def test_show_says_how_much_learns_and_what_it_holds(call, folder):
    given = settings(f"model.from={folder / 'base'}", *SMALL, *ADAPTER)
    shown = call("train", "classify", "--data", folder / "labels.tsv", *given, "--show")
    assert shown.code == 0, shown.err
    assert "[model.adapter]" in shown.out
    assert "parameters learn (" in shown.out
    record = json.loads(call("train", "classify", "--data", folder / "labels.tsv", *given, "--show", "--json").out)
    learnt = 2 * 2 * (12 + 12) + 12 * 12 + 12 + 2 * 12 + 2
    assert record["learnt"] == learnt
    steps = 4 * 8 * 1  # AdamW counts the steps of every tensor: four of the adapters, four of the head
    assert record["bytes_held"] == 4 * record["parameters"] + 4 * learnt + 8 * learnt + steps


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--adapter", "ann"], "--adapter ann does not name an adapter; write it as --adapter NAME=FOLDER"),
        (["--adapter", "a=x", "--adapter", "a=y"], "two adapters are named 'a'"),
        (["--adapter", "a={}/base"], "is no adapter; give a folder with adapter_config.json"),
        (["--adapter", "a={}/nowhere"], "is no adapter"),
        (["--adapter", "a={}/ann", "--adapter", "b={}/bob", "--stream"], "2 adapters give an answer each"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(call, folder, options, said):
    answer = call("run", folder / "base", "one is good", *(one.format(folder) for one in options))
    assert answer.code == 1
    assert said in answer.err
    assert len(answer.err.strip().splitlines()) == 1
