"""`regard convert`: where it writes, what it says, and that what it wrote is asked like what it read."""

import json
import struct
from pathlib import Path

import numpy as np
import pytest

from regard.interop.huggingface import family_of

TEXT = "de: 3 mars 2001"


@pytest.fixture
def stories(tmp_path) -> Path:
    """A LLaMA of llama2.c with random weights, and a tokenizer of bytes."""
    width, inner, layers, heads, shared, vocabulary, longest = 24, 29, 2, 6, 2, 271, 67
    numbers = vocabulary * width + layers * (2 * width + 2 * width**2 + 2 * 8 * width + 3 * inner * width)
    numbers += width + 2 * longest * 2
    header = struct.pack("<7i", width, inner, layers, heads, shared, vocabulary, longest)
    weights = np.random.default_rng(5).normal(size=numbers).astype("<f4")
    (tmp_path / "model.bin").write_bytes(header + weights.tobytes())
    pieces = [
        "<unk>",
        "<s>",
        "</s>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        *"abcdefghijk ",
    ][:vocabulary]
    entries = (struct.pack("<fi", 0.0, len(one.encode())) + one.encode() for one in pieces)
    (tmp_path / "tokenizer.bin").write_bytes(struct.pack("<i", 7) + b"".join(entries))
    return tmp_path / "model.bin"


@pytest.mark.parametrize("to", ["regard", "huggingface"])
def test_what_was_converted_answers_as_what_it_came_from(stories, to, call):
    wanted = call("run", stories, "bad cafe", "--max-new-tokens", 13)
    assert (wanted.code, wanted.err) == (0, "")
    done = call("convert", stories, "out", "--to", to)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("out holds ")
    found = call("run", "out", "bad cafe", "--max-new-tokens", 13)
    assert (found.code, found.out) == (0, wanted.out)


def test_what_is_written_is_regards_unless_something_else_is_asked_for(stories, call):
    call("convert", stories, "out")
    assert json.loads(Path("out/config.json").read_text())["model_type"] == "regard-transformer"
    call("convert", "out", "huggingface", "--to", "huggingface")
    assert family_of(Path("huggingface")).name == "llama"
    call("convert", "huggingface", "again")
    assert Path("again/model.safetensors").read_bytes() == Path("out/model.safetensors").read_bytes()
    pieces, kept = (json.loads(Path(folder, "tokenizer.json").read_text()) for folder in ("out", "again"))
    assert kept["model"].pop("kept_settings") == {"model_max_length": 67}  # which the folder in between says
    assert kept == pieces
    before, after = (json.loads(Path(folder, "config.json").read_text()) for folder in ("out", "again"))
    assert {key for key, value in after.items() if value != before[key]} <= {
        "init",
        "head_width",
    }  # of training; settled


@pytest.mark.parametrize("to", ["regard", "huggingface"])
def test_nothing_that_is_there_is_written_over(model, to, call):
    Path("full").mkdir()
    Path("full/kept").write_text("kept")
    Path("file").write_text("kept")
    for place, said in (("full", "full is not empty"), ("file", "file"), (model, "is not empty")):
        answer = call("convert", model, place, "--to", to)
        assert (answer.code, answer.out) == (1, "")
        assert said in answer.err
        assert answer.err.count("\n") == 1
    assert Path("full/kept").read_text() == Path("file").read_text() == "kept"
    assert sorted(path.name for path in Path("full").iterdir()) == ["kept"]


def test_a_place_below_a_file_is_refused(model, call):
    Path("file").write_text("kept")
    answer = call("convert", model, "file/below")
    assert (answer.code, answer.out, answer.err.count("\n")) == (1, "", 1)
    assert "file/below" in answer.err


def test_the_translator_of_2017_is_refused_with_what_others_read(model, call):
    answer = call("convert", model, "out", "--to", "huggingface")
    assert (answer.code, answer.out, answer.err.count("\n")) == (1, "", 1)
    assert "no family that others read is made of these parts" in answer.err
    assert "marian: it has " in answer.err
    assert "bert" not in answer.err  # which is no translator
    assert not Path("out").exists()
    assert call("convert", model, "copy").code == 0
    assert call("run", "copy", TEXT).out == call("run", model, TEXT).out


def test_an_unknown_target_is_explained(model, call):
    assert call("convert", model, "out", "--to", "onnx").code == 2
