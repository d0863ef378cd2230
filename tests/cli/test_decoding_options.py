"""The options of decoding do what they say, alone and together, and what has no effect or cannot be is refused."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import regard
from regard.decoding.constraints import MustContain, MustNotContain
from regard.decoding.strategies import Beam, Contrastive, Greedy, Sample

DAY = "de: 3 mars 2001"
DAYS = [DAY, "it: 1 de mayo de 2010", "iso: Wednesday, July 14, 1999"]


def lines(*texts: str) -> bytes:
    return "\n".join(texts).encode()


@pytest.mark.parametrize(
    ("options", "strategy"),
    [
        (("--min-p", "0.1", "--seed", "3"), Sample(min_p=0.1, seed=3)),
        (("--penalty-alpha", "0.5"), Contrastive(penalty_alpha=0.5)),
        (("--strategy", "contrastive", "--top-k", "3"), Contrastive(3)),
        (
            ("--beams", "4", "--diversity-penalty", "0.5", "--beam-groups", "2"),
            Beam(4, diversity_penalty=0.5, groups=2),
        ),
        (("--beams", "3", "--must-contain", "May"), Beam(3, constraints=(MustContain("May"),))),
        (("--must-not-contain", "e"), Greedy((MustNotContain("e"),))),
        (
            ("--repetition-penalty", "1.7", "--seed", "1", "--top-k", "9"),
            Sample(top_k=9, repetition_penalty=1.7, seed=1),
        ),
    ],
    ids=str,
)
def test_options_are_the_strategy_they_say(call, model, options, strategy):
    answer = call("run", model, *options, "--json", stdin=lines(*DAYS))
    found = [json.loads(line)["output"] for line in answer.out.splitlines()]
    assert found == regard.load(model).run(DAYS, strategy=strategy)


def test_no_ngram_stands_twice_if_that_is_asked_for(call, model):
    loaded = regard.load(model)
    [plain], [once] = (
        [call("run", model, DAY, *options, "--json").out] for options in ((), ("--no-repeat-ngram-size", "1"))
    )
    assert json.loads(plain) != json.loads(once)
    table = loaded.decoding.model_copy(update={"no_repeat_ngram_size": 1})
    assert len(set(ids := loaded.decoded_so({"no_repeat_ngram_size": 1}).hypotheses([DAY])[0].ids)) == len(ids)
    assert table.no_repeat_ngram_size == 1


# Texts to stop at, texts to begin with


def test_an_answer_is_cut_before_a_text_streamed_or_not(call, model):
    whole = regard.load(model).run(DAY)
    for stop in (whole[3:5], whole[:1], whole[-2:]):
        wanted = whole[: whole.index(stop)]
        assert call("run", model, DAY, "--stop", stop).out == wanted + "\n"
        assert call("run", model, DAY, "--stop", stop, "--stream").out == wanted + "\n"
        record = json.loads(call("run", model, DAY, "--stop", stop, "--stop", "never seen", "--json").out)
        assert (record["output"], record["stopped_at"]) == (wanted, stop)
        assert regard.load(model).run(DAY, stop=stop) == wanted


def test_a_text_that_is_never_met_changes_nothing_and_is_said_to_be_none(call, model):
    record = json.loads(call("run", model, DAY, "--stop", "never seen", "--json").out)
    assert record["output"] == regard.load(model).run(DAY)
    assert record["stopped_at"] is None


def test_an_answer_goes_on_from_a_prefix(call, model):
    found = call("run", model, DAY, "--from", "Mai 7").out.rstrip("\n")
    assert found.startswith("Mai 7")
    assert call("run", model, DAY, "--from", "Mai 7", "--stream").out == found + "\n"
    score = regard.load(model).score(DAY, "Mai 7")
    first = json.loads(call("run", model, DAY, "--from", "Mai 7", "--max-new-tokens", "1", "--json").out)
    continued = regard.load(model).logits(DAY, target="Mai 7")[-1].log_softmax(-1).max()
    assert first["score"] == pytest.approx(float(continued), abs=1e-4)
    assert len(score.tokens) > 1


def test_a_beam_streams_what_it_finds(call, model):
    for text in DAYS:
        whole = call("run", model, text, "--beams", "3").out
        assert call("run", model, text, "--beams", "3", "--stream").out == whole


def test_a_beam_gives_its_best_in_python_too(model):
    loaded = regard.load(model)
    best = loaded.run(DAY, strategy=Beam(4, n_best=3))
    assert best[0] == loaded.run(DAY, strategy=Beam(4))
    assert len(best) == 3
    assert [len(one) for one in loaded.run(DAYS, strategy=Beam(4, n_best=2))] == [2, 2, 2]


# What is refused


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--top-p", "0"), "top_p = 0.0 cannot be used"),
        (("--top-p", "2"), "top_p = 2.0 cannot be used"),
        (("--min-p", "1.5"), "min_p = 1.5 cannot be used"),
        (("--repetition-penalty", "0"), "repetition_penalty = 0.0 cannot be used"),
        (("--no-repeat-ngram-size", "0"), "no_repeat_ngram_size = 0 cannot be used"),
        (("--beams", "3", "--min-p", "0.1"), "min_p has no effect with strategy 'beam'"),
        (("--strategy", "greedy", "--penalty-alpha", "0.1"), "penalty_alpha has no effect with strategy 'greedy'"),
        (("--beams", "4", "--beam-groups", "2"), "2 groups have no effect without a diversity penalty"),
        (("--beams", "4", "--beam-groups", "3", "--diversity-penalty", "1"), "does not part into 3 groups"),
        (("--stop", ""), "stop"),
        (("--must-contain", "x" * 99), "that the answer must contain do not fit into a limit of 7"),
        (("--must-contain", "y", "--must-not-contain", "y"), "the constraints leave no token to choose"),
        (("--to", "a.html"), "--to has no effect without --explain"),
        (("--explain", "--stream"), "--explain and --stream ask for two kinds of output"),
        (("--explain", "--samples", "2"), "--explain and --samples ask for two kinds of output"),
        (("--explain", "--to", "a.svg"), "one choice after the other is none"),
        (("--explain", "--to", "a.doc"), "does not look like a web page"),
        (("--from", ""), "prefix"),
    ],
    ids=str,
)
def test_what_cannot_be_is_said_in_a_sentence(call, model, options, said):
    answer = call("run", model, DAY, *options)
    assert answer.code == 1
    assert said in answer.err
    assert "Traceback" not in answer.err
    assert answer.out == ""
    assert not list(Path.cwd().iterdir())


def test_explain_wants_one_text(call, model):
    answer = call("run", model, "--explain", stdin=lines(*DAYS))
    assert (answer.code, "--explain shows one text" in answer.err) == (1, True)


def test_a_beam_wider_than_the_vocabulary_is_as_wide_as_there_is_room(model):
    loaded = regard.load(model)
    assert loaded.tokenizer.size < 512
    wide, narrow = (loaded.hypotheses([DAY], Beam(size), 1)[0] for size in (512, loaded.tokenizer.size))
    assert (wide.ids, wide.score) == (narrow.ids, narrow.score)


@pytest.mark.parametrize("strategy", [(), ("--beams", "2")])
def test_a_line_whose_constraint_cannot_be_met_spoils_no_other(call, model, strategy):
    """Every line is too short for it but one is no line the model was taught."""
    answer = call("run", model, *strategy, "--must-contain", "May", stdin=lines(DAYS[0], "", DAYS[1]))
    first, bad, second = answer.out.splitlines()
    assert "May" in first
    assert "May" in second
    assert bad == ""
    assert "line 2: the text is empty" in answer.err


# Many lines


def test_answers_come_while_lines_do(model):
    """A writer that waits for the first answers before it goes on would wait for ever if they came at the end."""
    command = [sys.executable, "-m", "regard", "run", str(model), "--max-new-tokens", "1"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=dict(os.environ)) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for _ in range(2):
            process.stdin.write(lines(*[DAY] * 64) + b"\n")
            process.stdin.flush()
            found = [process.stdout.readline() for _ in range(64)]
            assert len(set(found)) == 1
        process.stdin.close()
        assert process.stdout.read() == b""
        assert process.wait() == 0


@pytest.mark.slow
def test_ten_thousand_lines_take_no_more_memory_than_a_thousand_and_come_in_order(model, tmp_path):
    peaks = {}
    for count in (1_000, 10_000):
        texts = [f"de: {1 + number % 28} mars {1990 + number % 30}" for number in range(count)]
        program = (
            "import resource, sys\nfrom regard.cli.app import main\n"
            "try:\n    main()\n"
            "finally:\n    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)\n"
        )
        command = [sys.executable, "-c", program, "run", str(model), "--json", "--max-new-tokens", "2"]
        done = subprocess.run(command, input=lines(*texts), capture_output=True, check=True)
        assert [json.loads(line)["input"] for line in done.stdout.decode().splitlines()] == texts
        peaks[count] = int(done.stderr.split()[-1])
    assert peaks[10_000] < 1.05 * peaks[1_000]


def test_a_reader_that_leaves_ends_it_quietly(model):
    command = [sys.executable, "-m", "regard", "run", str(model), "--stream", "--beams", "2"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()
        _, err = process.communicate(lines(*[DAY] * 20))
    assert b"Traceback" not in err
    assert b"cannot be written" not in err
