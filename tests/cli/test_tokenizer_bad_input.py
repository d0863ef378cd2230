"""`regard tokenizer` with what cannot be used: one sentence with the remedy, or a correct result."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from regard.text.registry import KINDS
from regard.text.tokenizer import Tokenizer


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    path = tmp_path / "tokenizer.json"
    path.write_text(Tokenizer.train(["the rose by the river bank"] * 3, 283).to_json(), encoding="utf-8")
    return path


def refused(done, *said: str) -> None:
    assert done.code == 1
    assert done.out == ""
    assert done.err.startswith("regard: ")
    assert len(done.err.splitlines()) == 1
    for part in said:
        assert part in done.err


@pytest.mark.parametrize("command", [("train", "--size", "300"), ("explain",)])
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (bytes(range(128)), "which no text has"),
        (bytes(range(256)), "not UTF-8"),
        (b"caf\xe9 \xff\xfe", "UTF-8"),
        (b"", "empty"),
        (b" \n\n", "empty"),
        (b"\x1f\x8b\x08\x00abc", "gzip"),
    ],
)
def test_what_is_no_text_is_refused(call, tmp_path, command, content, said) -> None:
    (tmp_path / "file").write_bytes(content)
    refused(call("tokenizer", command[0], tmp_path / "file", *command[1:]), said)
    assert not (tmp_path / "tokenizer.json").exists()


def test_a_missing_file_and_a_folder_are_named(call, tmp_path) -> None:
    refused(call("tokenizer", "train", tmp_path / "none.txt", "--size", 300), "none.txt does not exist")
    refused(call("tokenizer", "train", tmp_path, "--size", 300), "is a folder")
    refused(call("tokenizer", "encode", tmp_path / "none.json", "x"), "none.json does not exist")


@pytest.mark.parametrize(("kind", "smallest"), [("bpe", 260), ("bpe_words", 8)])
def test_a_vocabulary_smaller_than_the_alphabet_is_refused_with_both_sizes(call, tmp_path, kind, smallest) -> None:
    (tmp_path / "one").write_text("low", encoding="utf-8")
    command = ("tokenizer", "train", tmp_path / "one", "--kind", kind, "--size")
    refused(call(*command, smallest - 1), f"vocabulary of {smallest - 1}", f"{smallest} or more")
    assert call(*command, smallest).code == 0
    refused(call("tokenizer", "explain", tmp_path / "one", "--size", 3), "3 cannot hold 4")


def test_a_corpus_of_one_word_is_enough(call, tmp_path) -> None:
    (tmp_path / "one").write_text("low", encoding="utf-8")
    assert "no pair occurs twice: 0 merges" in call("tokenizer", "explain", tmp_path / "one").out
    for kind in ("bpe", "bpe_words"):
        assert call("tokenizer", "train", tmp_path / "one", "--size", 300, "--kind", kind).code == 0
        assert (
            call(
                "tokenizer",
                "decode",
                "tokenizer.json",
                stdin=call("tokenizer", "encode", "tokenizer.json", "low").out.encode(),
            ).out
            == "low\n"
        )


def test_half_a_surrogate_pair_is_refused(call, trained) -> None:
    refused(call("tokenizer", "encode", trained, "a\ud800b"), "U+D800", "surrogate")
    refused(call("tokenizer", "encode", trained, stdin=b"a\xed\xa0\x80b\n"), "UTF-8")


@pytest.mark.parametrize("ids", [["276"], ["-1"], ["5", "99999999999999999999"]])
def test_ids_outside_the_vocabulary_are_refused_with_its_size(call, trained, ids) -> None:
    refused(call("tokenizer", "decode", trained, "--", *ids), "vocabulary of 276")


def test_what_is_no_id_is_named(call, trained) -> None:
    refused(call("tokenizer", "decode", trained, "5 x"), "'x' is not an id")


def test_a_truncated_tokenizer_is_named(call, trained) -> None:
    trained.write_text(trained.read_text(encoding="utf-8")[:2000], encoding="utf-8")
    refused(call("tokenizer", "encode", trained, "x"), str(trained), "not a tokenizer")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--kind", "bpee"), "did you mean 'bpe'"),
        (("--out", "x.txt"), "end the name in .json"),
        (("--size", "0"), "cannot hold"),
        (("--out", "corpus/x.json"), "cannot be written"),
    ],
)
def test_options_that_cannot_be_obeyed_are_refused(call, tmp_path, options, said) -> None:
    (tmp_path / "corpus").write_text("low low", encoding="utf-8")
    refused(call("tokenizer", "train", "corpus", "--size", "300", *options), said)


def test_options_without_effect_are_refused(call, tmp_path, trained) -> None:
    refused(call("tokenizer", "explain", trained), "add --text")
    refused(call("tokenizer", "explain", trained, "--text", "x", "--rule", "engine"), "no effect")
    assert "no effect" in call("tokenizer", "encode", trained, "x", "--pieces", "--json").err
    (tmp_path / "corpus").write_text("low low", encoding="utf-8")
    refused(call("tokenizer", "explain", "corpus", "--rule", "first"), "known: engine, greatest-bytes, smallest")
    refused(call("tokenizer", "explain", "corpus", "--kind", "wordpiece"), "bpe_words")
    refused(call("tokenizer", "explain", "corpus", "--to", "page.png"), "end the name in .html")


@pytest.mark.parametrize("kind", ["bpe", "bpe_words", "wordpiece"])
def test_a_file_that_is_one_word_is_one_word(call, tmp_path, kind) -> None:
    (tmp_path / "corpus").write_text("wordword", encoding="utf-8")
    assert call("tokenizer", "train", "corpus", "--size", "300", "--kind", kind, "--out", "one.json").code == 0
    tokens = json.loads(call("tokenizer", "encode", "one.json", "wordword", "--json").out)["tokens"]
    assert "".join(tokens).replace("##", "").removesuffix("_") == "wordword"


@pytest.mark.parametrize("out", ["corpus/x.json", "x.json"])
def test_that_a_result_cannot_be_written_is_said_before_the_work(call, tmp_path, monkeypatch, out) -> None:
    (tmp_path / "corpus").write_text("low low", encoding="utf-8")
    (tmp_path / "x.json").mkdir()
    monkeypatch.setattr("regard.text.counting.read_texts", lambda *_: pytest.fail("the text was read"))
    said = "x.json is a folder" if out == "x.json" else "corpus is a file, not a folder"
    refused(call("tokenizer", "train", "corpus", "--size", "300", "--out", out), said)


@pytest.mark.parametrize("ids", ["1_0", "٣", "9" * 5000, "--", "1.0", "0x1"])
def test_what_only_looks_like_an_id_is_refused(call, trained, ids) -> None:
    refused(call("tokenizer", "decode", trained, "--", ids), "is not an id")


@pytest.mark.parametrize("kind", ["wordpiece", "wordpiece_cased", "characters"])
def test_a_tokenizer_without_merges_has_none_to_explain(call, tmp_path, kind) -> None:
    (tmp_path / "corpus").write_text("low lower Newest wider", encoding="utf-8")
    assert call("tokenizer", "train", "corpus", "--size", "300", "--kind", kind, "--out", "t.json").code == 0
    refused(call("tokenizer", "explain", "t.json", "--text", "lower"), "no merges", "encode it with --pieces")


def test_half_a_surrogate_pair_is_refused_by_explain_too(call, tmp_path, trained) -> None:
    (tmp_path / "corpus").write_text("low lower", encoding="utf-8")
    for file in ("corpus", trained):
        refused(call("tokenizer", "explain", file, "--text", "a\udcff"), "half of a surrogate pair")


LINES = {
    "letters": "'x' * 50_000_000",
    "blanks": "'a' + ' ' * 50_000_000 + 'b'",
    "words": "'lower ' * 8_333_334",
}


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of a process is read from /proc")
@pytest.mark.parametrize("line", LINES)
def test_a_single_line_of_fifty_megabytes_is_trained_on_in_little_memory(line: str, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from regard.text.counting import read_texts; from regard.text.tokenizer import Tokenizer\n"
        "trained = Tokenizer.train(read_texts([Path(sys.argv[1])]), 300)\n"
        "status = Path('/proc/self/status').read_text().split()\n"  # getrusage's peak is at least the parent's
        "print(trained.size, int(status[status.index('VmHWM:') + 1]) // 1024)"
    )
    path = tmp_path / "line.txt"
    path.write_text(eval(LINES[line]), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", code, path], capture_output=True, check=True, timeout=300, env=os.environ
    )
    size, megabytes = map(int, done.stdout.split())
    assert 260 < size <= 300
    assert megabytes < 1000


MODELS = [
    {"type": "BPE", "vocab": {}, "merges": []},
    {"type": "WordLevel", "vocab": {}, "unk_token": "x"},
    {"type": "Unigram", "vocab": []},
]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model["type"])
@pytest.mark.parametrize("command", [("encode", "rose"), ("decode", "0"), ("explain", "--text", "rose")])
def test_a_tokenizer_without_entries_is_called_that(call, tmp_path, model, command) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps({"version": "1.0", "model": model}), encoding="utf-8")
    refused(call("tokenizer", command[0], "tokenizer.json", *command[1:]), "tokenizer.json: ", "has no entries")


def test_a_text_that_a_tokenizer_of_another_cannot_cut_is_refused(call, tmp_path) -> None:
    model = {"type": "WordLevel", "vocab": {"rose": 0}, "unk_token": "x"}
    (tmp_path / "tokenizer.json").write_text(json.dumps({"version": "1.0", "model": model}), encoding="utf-8")
    assert call("tokenizer", "encode", "tokenizer.json", "rose").out == "0\n"
    refused(call("tokenizer", "encode", "tokenizer.json", "tulip"), "cannot cut the text")


def test_the_help_names_every_kind_that_can_be_trained(call) -> None:
    said = " ".join(call("tokenizer", "train", "--help").out.replace("│", " ").split())
    for kind in KINDS:
        assert re.search(rf"(?<![\w-]){kind}(?![\w-])", said.partition("--kind")[2].partition("[default")[0])
