"""Many texts on stdin: a bad one has a line of its own and spoils no other; several answers to each; seeds."""

import json
import random

import pytest

import regard
from regard.cli.output import to_json
from regard.decoding.strategies import Beam, Sample

GOOD = ["de: 3 mars 2001", "iso: Wednesday, July 14, 1999", "it: 1 de mayo de 2010"]
BAD = {
    b"": "the text is empty; give some",
    b" \t": "the text is empty; give some",
    b"nl: 3 mars 2001": "prefix 'nl:' is unknown",
    b"de: 3 m\xe4rz 2001": "the text is not UTF-8 (byte 0xe4)",
    b"de: 3 mars 1789": "year 1789 is outside 1990 to 2019",
}


def mixed() -> tuple[list[bytes], list[str | None]]:
    """More lines than go together, good and bad in any order; of each what it is answered, None where it is bad."""
    draw = random.Random(3)
    lines = [draw.choice([*(text.encode() for text in GOOD), *BAD]) for _ in range(101)]
    return lines, [None if line in BAD else line.decode() for line in lines]


def test_a_bad_line_is_empty_and_named_and_the_others_are_answered_in_order(call, model):
    lines, texts = mixed()
    answers = dict(zip(GOOD, regard.load(model).run(GOOD), strict=True))
    answer = call("run", model, stdin=b"\n".join(lines))
    assert answer.code == 1
    assert answer.out == "".join(("" if text is None else answers[text]) + "\n" for text in texts)
    said = answer.err.splitlines()
    wrong = [number for number, text in enumerate(texts, start=1) if text is None]
    assert len(said) == len(wrong) > 10
    for number, sentence in zip(wrong, said, strict=True):
        assert sentence.startswith(f"line {number}: ")
        assert BAD[lines[number - 1]] in sentence


def test_with_json_every_line_is_an_object(call, model):
    lines, texts = mixed()
    answer = call("run", model, "--json", stdin=b"\n".join(lines))
    assert (answer.code, answer.err) == (1, "")
    records = [json.loads(line) for line in answer.out.splitlines()]
    for number, (text, record) in enumerate(zip(texts, records, strict=True), start=1):
        if text is None:
            assert record.keys() == {"error", "remedy", "line"}
            assert record["line"] == number
            assert f"{record['error']}; {record['remedy']}".startswith(BAD[lines[number - 1]])
        else:
            assert record["input"] == text


def test_a_streamed_line_that_is_bad_spoils_no_other(call, model):
    answer = call("run", model, "--stream", stdin="\n".join([GOOD[0], "nl: x", GOOD[1]]).encode())
    assert answer.code == 1
    assert answer.out.splitlines() == [*regard.load(model).run(GOOD[:1]), "", *regard.load(model).run(GOOD[1:2])]
    assert answer.err.startswith("line 2: prefix 'nl:' is unknown")


def test_what_only_the_network_refuses_is_found_among_its_neighbours(call, tmp_path):
    """A text beyond the learnt positions is refused when it is read, together with those beside it."""
    (tmp_path / "pairs.tsv").write_text("a b\tb a\nc d\td c\n")
    values = {"data": {"train": "pairs.tsv", "valid": "pairs.tsv", "folder": str(tmp_path)}, "training": {"steps": 1}}
    values |= {"model": {"width": 8, "heads": 2, "layers": 1, "positions": "learned", "max_positions": 80}}
    values |= {"tokenizer": {"size": 264}, "decoding": {"max_new_tokens": 3}}
    loaded = regard.train(regard.Recipe.model_validate(values), tmp_path / "run")
    texts = ["a b", "c d e", "f g", "h i j k", "l m"]
    lines = [*texts[:3], "x " * 90, *texts[3:]]
    answer = call("run", tmp_path / "run", stdin="\n".join(lines).encode())
    assert answer.code == 1
    found = answer.out.splitlines()
    assert [found[at] for at in (0, 1, 2, 4, 5)] == loaded.run(texts)
    assert found[3] == ""
    refused = [line for line in answer.err.splitlines() if line.startswith("line ")]
    assert len(refused) == 1
    assert refused[0].startswith("line 4: the text reaches position")


def test_help_states_what_the_exit_status_means(call):
    assert "1 if one was not" in " ".join(call("run", "--help").out.replace("│", " ").split())


# Several answers


def test_samples_are_drawn_apart_and_each_text_has_its_own(call, model):
    options = ("--samples", "3", "--temperature", "3", "--seed", "5")
    answer = call("run", model, *options, stdin="\n".join(GOOD).encode())
    assert (answer.code, answer.err) == (0, "")
    repeated = [text for text in GOOD for _ in range(3)]
    drawn = regard.load(model).run(repeated, strategy=Sample(temperature=3.0, seed=5))
    assert answer.out == "".join(one + "\n" for one in drawn)
    assert len(set(drawn)) > 3
    as_json = call("run", model, *options, "--json", stdin="\n".join(GOOD).encode()).out
    records = [json.loads(line) for line in as_json.splitlines()]
    assert [one["output"] for record in records for one in record["samples"]] == drawn
    assert {record["seed"] for record in records} == {5}


def test_the_n_best_of_a_beam_come_best_first(call, model):
    loaded = regard.load(model)
    answer = call("run", model, GOOD[0], "--beams", "4", "--n-best", "3")
    assert (answer.code, answer.err) == (0, "")
    ranked = loaded.n_best([GOOD[0]], 3, Beam(4))[0]
    assert answer.out == "".join(one.text + "\n" for one in ranked)
    assert ranked[0].text == loaded.run(GOOD[0], strategy=Beam(4))
    record = json.loads(call("run", model, GOOD[0], "--beams", "4", "--n-best", "3", "--json").out)
    scores = [one["score"] for one in record["n_best"]]
    assert len(set(map(str, ranked))) == 3
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--n-best", "6"), "--n-best 6 is more than a beam of 5 holds; use --beams 6"),
        (("--n-best", "2", "--samples", "2"), "--samples draws answers and --n-best ranks those of a beam"),
        (("--samples", "2", "--strategy", "greedy"), "--samples has no effect with --strategy greedy; use sample"),
        (("--samples", "2", "--stream"), "--stream and --samples ask for two kinds of output"),
        (("--n-best", "2", "--stream"), "--stream and --n-best ask for two kinds of output"),
    ],
)
def test_what_does_not_go_together_is_refused(call, model, options, said):
    answer = call("run", model, GOOD[0], *options)
    assert (answer.code, answer.out) == (1, "")
    assert said in answer.err


# Seeds


def test_a_fresh_seed_is_printed_and_gives_the_same_again(call, model):
    first, second = (call("run", model, GOOD[0], "--temperature", "3", "--json") for _ in range(2))
    seeds = [json.loads(answer.out)["seed"] for answer in (first, second)]
    assert [answer.err for answer in (first, second)] == [f"seed {seed}\n" for seed in seeds]
    assert seeds[0] != seeds[1]
    again = call("run", model, GOOD[0], "--temperature", "3", "--json", "--seed", str(seeds[0]))
    assert (again.out, again.err) == (first.out, "")
    assert call("run", model, GOOD[0]).err == "", "nothing is drawn"


# What programs read


def test_json_has_no_character_that_a_terminal_obeys_or_a_reader_breaks_at():
    text = "".join(map(chr, range(0x20, 0xA1))) + "\u2028\u2029é中"
    written = to_json({text: [text]})
    assert json.loads(written) == {text: [text]}
    assert len(written.splitlines()) == 1
    assert not any("\x7f" <= character <= "\x9f" for character in written)
    assert "é中" in written
