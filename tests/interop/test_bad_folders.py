"""Whatever is wrong with other people's files: one sentence with the remedy, no traceback, nothing written."""

import shutil
import struct
from pathlib import Path

import pytest

pytest.importorskip("transformers")

from bad_folders import EVERY, SHARDED, Wrong
from tiny_folders import write

TEXT = {"bert masked": "the [MASK]", "roberta masked": "the <mask>"}


@pytest.fixture(scope="session")
def good(tmp_path_factory):
    """Good folders by name, each written once."""
    made: dict[str, Path] = {}

    def folder(name: str) -> Path:
        if name not in made:
            path = tmp_path_factory.mktemp("good")
            how = {"max_shard_size": "20KB"} if name == SHARDED else {}
            made[name] = write("llama" if name == SHARDED else name, path, **how)
        return made[name]

    return folder


def spoilt(wrong: Wrong, good, folder: Path) -> Path:
    shutil.copytree(good(wrong.good), folder)
    wrong.act(folder)
    return folder


def one_sentence(answer, said: str) -> None:
    assert (answer.code, answer.out) == (1, ""), answer
    assert answer.err.count("\n") == 1, answer.err
    assert answer.err.startswith("regard: "), answer.err
    assert "; " in answer.err, answer.err
    assert said in answer.err, answer.err
    assert "Traceback" not in answer.err, answer.err


@pytest.mark.parametrize("name", EVERY)
def test_running_says_what_is_wrong(name, good, call, tmp_path):
    wrong = EVERY[name]
    one_sentence(call("run", spoilt(wrong, good, tmp_path / "bad"), TEXT.get(wrong.good, "the low")), wrong.said)


@pytest.mark.parametrize("name", EVERY)
def test_size_says_what_is_wrong_or_the_size(name, good, call, tmp_path):
    wrong = EVERY[name]
    answer = call("size", spoilt(wrong, good, tmp_path / "bad"))
    if wrong.size is None:
        assert (answer.code, answer.err) == (0, ""), answer
    elif wrong.size or answer.code:
        one_sentence(answer, wrong.size)


@pytest.mark.parametrize("name", [name for name in EVERY if name != "no end"])  # which is said when it is asked
@pytest.mark.parametrize("to", ["regard", "huggingface"])
def test_nothing_is_written_of_what_cannot_be_read(name, to, good, call, tmp_path):
    wrong = EVERY[name]
    one_sentence(call("convert", spoilt(wrong, good, tmp_path / "bad"), tmp_path / "out", "--to", to), wrong.said)
    assert not (tmp_path / "out").exists()


LONG = {
    "gpt": " ".join(["low"] * 80),
    "bert": " ".join(["low"] * 80),
    "bert masked": " ".join(["low"] * 80) + " [MASK]",
    "bert labels": " ".join(["low"] * 80),
    "bert spans": "what?\t" + " ".join(["low"] * 80),
    "roberta masked": " ".join(["low"] * 80) + " <mask>",
}


@pytest.mark.parametrize("name", LONG)
def test_a_text_longer_than_the_positions_is_answered_or_refused_by_both_numbers(name, good, call, tmp_path):
    longest = {"gpt": 64, "roberta masked": 65}.get(name, 67)
    answer = call("run", good(name), LONG[name])
    if name in ("bert labels", "bert spans"):  # of a long text what fits in is read, and a passage in windows
        assert (answer.code, answer.err) == (0, "")
        return
    if name == "gpt":  # it goes on from the end of it; what is watched does not
        assert answer.code == 0
        assert answer.err == "regard: a text of 80 tokens is longer than the 64 this model reads at once: " + (
            "it goes on from the last 32\n"
        )
        answer = call("look", good(name), LONG[name], "--to", tmp_path / "y.png")
    for said in (answer, call("look", good(name), LONG[name], "--to", tmp_path / "x.png")):
        one_sentence(said, f"has learnt {longest}")


BINS = {
    "no file": (lambda path: None, "cannot be read"),
    "an empty one": (lambda path: path.write_bytes(b""), "0 bytes"),
    "text": (lambda path: path.write_bytes(b"x" * 99), "is no llama2.c model"),
    "a pickle": (lambda path: path.write_bytes(b"\x80\x02}q\x00." + b"\x00" * 99), "is no llama2.c model"),
    "a zip": (lambda path: path.write_bytes(b"PK\x03\x04" + b"\x01\x00\x00\x00" * 9), "is a zip"),
    "a folder": (lambda path: path.mkdir(), "config.json does not exist"),
    "one cut": (lambda path: path.write_bytes(struct.pack("<7i", 8, 8, 1, 2, 2, 300, 16)), "is too short"),
    "one without a tokenizer": (
        lambda path: path.write_bytes(struct.pack("<7i", 8, 8, 1, 2, 2, 300, 16) + bytes(4 * 2936)),
        "has no tokenizer.bin beside it",
    ),
}


@pytest.mark.parametrize("name", BINS)
@pytest.mark.parametrize("verb", ["run", "convert"])
def test_a_bin_that_is_no_model_of_llama2c_is_refused(name, verb, call, tmp_path):
    act, said = BINS[name]
    act(tmp_path / "model.bin")
    one_sentence(call(verb, tmp_path / "model.bin", tmp_path / "out" if verb == "convert" else "the low"), said)
    assert not (tmp_path / "out").exists()
