"""`regard tokenizer`: what each command prints and writes."""

import json
from pathlib import Path

import pytest

from regard.text.registry import KINDS
from regard.text.tokenizer import Tokenizer

DERIVATION = """\
4 words, 4 different; ties go by the rule smallest

start   l o w _   l o w e r _   n e w e s t _   w i d e r _

1   e r → er   occurs 2 times
    tied    l o   o w   r _   w e
    pairs   e r 2   l o 2   o w 2   r _ 2   w e 2   d e 1   e s 1   e w 1   i d 1   n e 1   … and 4 more
    corpus  l o w _   l o w er _   n e w e s t _   w i d er _

2   er _ → er_   occurs 2 times
    tied    l o   o w
    pairs   er _ 2   l o 2   o w 2   d er 1   e s 1   e w 1   i d 1   n e 1   s t 1   t _ 1   … and 4 more
    corpus  l o w _   l o w er_   n e w e s t _   w i d er_

3   l o → lo   occurs 2 times
    tied    o w
    pairs   l o 2   o w 2   d er_ 1   e s 1   e w 1   i d 1   n e 1   s t 1   t _ 1   w _ 1   … and 3 more
    corpus  lo w _   lo w er_   n e w e s t _   w i d er_

4   lo w → low   occurs 2 times
    pairs   lo w 2   d er_ 1   e s 1   e w 1   i d 1   n e 1   s t 1   t _ 1   w _ 1   w e 1   … and 2 more
    corpus  low _   low er_   n e w e s t _   w i d er_

no pair occurs twice: 4 merges

vocabulary (15)  _ d e i l n o r s t w er er_ lo low
symbols in use (10)  _ d e er_ i low n s t w

word     pieces          shown as
low      low _           low
lower    low er_         low er_
newest   n e w e s t _   n e w e s t
wider    w i d er_       w i d er_
"""


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text("low lower newest wider\n", encoding="utf-8")
    return path


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    path = tmp_path / "made" / "tokenizer.json"
    path.parent.mkdir()
    path.write_text(Tokenizer.train(["the rose by the river bank"] * 3, 283).to_json(), encoding="utf-8")
    return path


def test_the_worked_example_is_printed_exactly(call, corpus) -> None:
    done = call("tokenizer", "explain", corpus)
    assert (done.code, done.err) == (0, "")
    assert done.out == DERIVATION


def test_a_text_is_built_below_the_derivation(call, corpus) -> None:
    done = call("tokenizer", "explain", corpus, "--text", "slow")
    assert done.out.startswith(DERIVATION)
    assert done.out.removeprefix(DERIVATION).splitlines() == [
        "",
        "slow   s l o w _",
        "    merge 3      l o   s lo w _",
        "    merge 4      lo w   s low _",
        "    pieces       s low",
    ]


def test_size_rule_and_kind_are_obeyed(call, corpus) -> None:
    assert "13 is full: 2 merges" in call("tokenizer", "explain", corpus, "--size", "13").out
    assert "1   w e → we" in call("tokenizer", "explain", corpus, "--rule", "greatest-bytes").out
    assert "1   e r → er" in call("tokenizer", "explain", corpus, "--kind", "bpe").out


def test_a_tokenizer_explains_a_text(call, trained) -> None:
    done = call("tokenizer", "explain", trained, "--text", "the bank")
    lines = done.out.splitlines()
    assert lines[0] == "'the'   t h e"
    assert lines[-1] == "    pieces       Ġbank"


def test_a_page_holds_every_merge_and_no_script(call, corpus, tmp_path) -> None:
    page = tmp_path / "page.html"
    done = call("tokenizer", "explain", corpus, "--text", "slower <b>", "--to", page)
    assert done.code == 0, done.err
    assert "4 merges and 2 words" in done.out
    content = page.read_text(encoding="utf-8")
    assert content.count("<li>") == 4
    assert "<script" not in content
    assert "&lt;" in content
    assert "<b></h3>" not in content


@pytest.mark.parametrize("kind", KINDS)
def test_trained_tokenizers_encode_and_decode(call, tmp_path, kind) -> None:
    text = tmp_path / "text.txt"
    text.write_text("the rose by the river bank\n" * 3 + "a second file\n" * 2, encoding="utf-8")
    done = call("tokenizer", "train", text, "--size", 293, "--kind", kind, "--out", tmp_path / "new" / "t.json")
    assert done.code == 0, done.err
    assert "t.json has" in done.out
    ids = call("tokenizer", "encode", tmp_path / "new" / "t.json", "the river")
    assert call("tokenizer", "decode", tmp_path / "new" / "t.json", *ids.out.split()).out == "the river\n"
    assert call("tokenizer", "decode", tmp_path / "new" / "t.json", stdin=ids.out.encode()).out == "the river\n"


def test_training_twice_writes_the_same_bytes(call, tmp_path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("the rose by the river bank " * 5, encoding="utf-8")
    for name in ("one.json", "two.json"):
        record = json.loads(call("tokenizer", "train", text, "--size", 270, "--out", name, "--json").out)
        assert record == {"tokenizer": name, "kind": "bpe", "size": 270, "tie_rule": "engine"}
    assert Path("one.json").read_bytes() == Path("two.json").read_bytes()


def test_a_corpus_with_too_few_pairs_says_so(call, tmp_path) -> None:
    (tmp_path / "text.txt").write_text("one", encoding="utf-8")
    done = call("tokenizer", "train", tmp_path / "text.txt", "--size", 300)
    assert "tokenizer.json has 260 entries of 300 asked for, since no other pair occurs twice" in done.out


def test_lines_of_stdin_are_encoded_one_by_one(call, trained) -> None:
    done = call("tokenizer", "encode", trained.parent, "--pieces", stdin="the bank\n\nx é\n".encode())
    assert done.out.splitlines() == ["the ␣bank", "", "x ␣ \\xc3 \\xa9"]


def test_json_has_ids_tokens_and_offsets(call, trained) -> None:
    record = json.loads(call("tokenizer", "encode", trained, "the bank", "--json").out)
    assert record["tokens"] == ["the", " bank"]
    assert record["offsets"] == [[0, 3], [3, 8]]
    assert record["ids"] == Tokenizer.load(trained).encode("the bank")
    back = json.loads(call("tokenizer", "decode", trained, ",".join(map(str, record["ids"])), "--json").out)
    assert back == {"ids": record["ids"], "text": "the bank"}


def test_a_model_folder_is_a_tokenizer(call, model) -> None:
    ids = call("tokenizer", "encode", model, "3 mars 2021").out
    assert call("tokenizer", "decode", model, ids.strip()).out == "3 mars 2021\n"


def test_an_explanation_is_one_object_where_a_program_reads_it(call, tmp_path):
    (tmp_path / "corpus").write_text("low lower newest wider", encoding="utf-8")
    found = json.loads(call("tokenizer", "explain", "corpus", "--text", "lower", "--json").out)
    assert [step["merge"]["pair"] for step in found["steps"]] == [["e", "r"], ["er", "_"], ["l", "o"], ["lo", "w"]]
    assert found["rule"] == "smallest"
    assert found["end"][1] == [["low", "er_"], 1]
    assert [word["pieces"] for word in found["words"]] == [["low", "er_"]]
    refused = call("tokenizer", "explain", "corpus", "--to", "x.html", "--json")
    assert (refused.code, json.loads(refused.err)["remedy"]) == (1, "use one of them")


@pytest.mark.parametrize("kind", ["bpe", "bpe_words"])
def test_no_verb_that_shows_tokens_lets_a_control_character_through(call, tmp_path, kind):
    nasty = "x\x1b[2Jy\x9b1m\x07 \u202eabc "
    (tmp_path / "corpus").write_text(nasty * 2, encoding="utf-8")
    explained = call("tokenizer", "explain", "corpus", "--kind", kind, "--text", nasty)
    call("tokenizer", "train", "corpus", "--size", 300, "--kind", kind, "--out", "t.json")
    pieces = call("tokenizer", "encode", "t.json", nasty, "--pieces")
    built = call("tokenizer", "explain", "t.json", "--text", nasty)
    page = call("tokenizer", "explain", "corpus", "--kind", kind, "--text", nasty, "--to", "page.html")
    shown = [explained.out, pieces.out, built.out, (tmp_path / "page.html").read_text(encoding="utf-8")]
    assert [one.code for one in (explained, pieces, built, page)] == [0] * 4
    for text in shown:
        assert all(line.isprintable() for line in text.splitlines())
    assert all(r"\x1b" in text for text in (explained.out, built.out))
