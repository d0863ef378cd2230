"""The verbs: what they print, where, and what they leave on disk."""

import json
import signal
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import torch
from small_model import RECIPE, SMALL

import regard
from regard.attention.similarity import SIMILARITIES
from regard.cli import demo
from regard.cli.app import app
from regard.data.corpus import CORPORA, corpus
from regard.decoding.strategies import Beam, Sample
from regard.devices import usable_device
from regard.models.families import FAMILIES
from regard.tasks.pairs import open_corpus
from regard.tasks.recipe import read_recipe, shipped
from regard.tasks.task import held_out
from regard.training.progress import ProgressBar
from regard.training.reports import Report

VERBS = [command.name or command.callback.__name__ for command in app.registered_commands]
DAYS = ["de: 3 mars 2001", "iso: Wednesday, July 14, 1999", "it: 1 de mayo de 2010"]
FILES = [
    "config.json",
    "generation_config.json",
    "metrics.jsonl",
    "model.safetensors",
    "recipe.toml",
    "state",
    "tokenizer.json",
]


def lines(*texts: str, end: str = "\n") -> bytes:
    return "".join(text + end for text in texts).encode()


# Help


def test_the_verbs_are_these():
    asking = ["demo", "train", "run", "chat", "evaluate", "look", "explore", "plot", "doctor"]
    assert [*asking, "convert", "bench", "size", "search", "list"] == VERBS


@pytest.mark.parametrize("verb", VERBS)
def test_help_says_what_a_verb_does_and_gives_an_example(call, verb):
    answer = call(verb, "--help")
    assert (answer.code, answer.err) == (0, "")
    assert "Usage:" in answer.out
    assert f"Example: regard {verb}" in " ".join(answer.out.replace("│", " ").split())


def test_help_names_every_verb(call):
    answer = call("--help")
    assert answer.code == 0
    assert [verb for verb in VERBS if verb not in answer.out] == []


# run


def test_one_text_gives_one_line(call, model):
    answer = call("run", model, DAYS[0])
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == regard.load(model).run(DAYS[0]) + "\n"


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_every_line_of_stdin_gives_a_line_in_its_order(call, model, end):
    texts = [f"de: {index % 28 + 1} mars {1990 + index % 30}" for index in range(131)]  # more than go together
    answer = call("run", model, stdin=lines(*texts, end=end))
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == "".join(text + "\n" for text in regard.load(model).run(texts))


def test_the_last_line_needs_no_end_and_no_lines_give_none(call, model):
    assert call("run", model, stdin=DAYS[0].encode()).out == call("run", model, DAYS[0]).out
    answer = call("run", model, stdin=b"")
    assert (answer.code, answer.out, answer.err) == (0, "", "")


def test_json_is_one_object_a_line_and_agrees_with_the_plain_text(call, model):
    plain = call("run", model, stdin=lines(*DAYS)).out
    answer = call("run", model, "--json", stdin=lines(*DAYS))
    records = [json.loads(line) for line in answer.out.splitlines()]
    assert (answer.code, answer.err) == (0, "")
    assert [record["input"] for record in records] == DAYS
    assert "".join(record["output"] + "\n" for record in records) == plain
    keys = {"input", "output", "score", "tokens", "path", "device", "precision"}
    assert all(record.keys() == keys and record["path"] == "plain" for record in records)
    assert all(record["score"] < 0 and 1 <= record["tokens"] <= 7 for record in records)
    (alone,) = (json.loads(line) for line in call("run", model, DAYS[0], "--json").out.splitlines())
    assert alone["output"] == records[0]["output"]


@pytest.mark.parametrize("options", [(), ("--temperature", "1.5", "--seed", "5")])
def test_a_stream_prints_what_run_prints(call, model, options):
    for texts in (DAYS[:1], DAYS):
        whole = [call("run", model, text, *options).out for text in texts]
        assert call("run", model, "--stream", *options, stdin=lines(*texts)).out == "".join(whole)


@pytest.mark.parametrize(
    ("options", "strategy"),
    [
        (("--beams", "3"), Beam(3)),
        (("--strategy", "beam"), Beam(5)),
        (("--strategy", "beam", "--beams", "2", "--length-penalty", "0"), Beam(2, 0.0)),
        (("--top-k", "5", "--seed", "3"), Sample(top_k=5, seed=3)),
        (("--top-p", "0.9", "--temperature", "2", "--seed", "0"), Sample(temperature=2.0, top_p=0.9)),
        (("--strategy", "sample", "--seed", "11"), Sample(seed=11)),
    ],
    ids=str,
)
def test_options_choose_the_strategy_they_belong_to(call, model, options, strategy):
    answer = call("run", model, *options, "--json", stdin=lines(*DAYS))
    found = [json.loads(line)["output"] for line in answer.out.splitlines()]
    assert found == regard.load(model).run(DAYS, strategy=strategy)


def test_a_limit_on_new_tokens_is_kept(call, model):
    record = json.loads(call("run", model, DAYS[0], "--max-new-tokens", "2", "--json").out)
    assert record["tokens"] == 2
    with pytest.raises(regard.InputError, match="a limit of 0 new tokens"):
        regard.load(model).run(DAYS[0], max_new_tokens=0)


# evaluate


def test_evaluate_measures_the_share_of_exact_answers(call, model):
    """Two of three references are the model's own answers."""
    answers = regard.load(model).run(DAYS)
    references = [answers[0], "no such date", answers[2]]
    Path("pairs.tsv").write_text("".join(f"{day}\t{text}\n" for day, text in zip(DAYS, references, strict=True)))
    answer = call("evaluate", model, "pairs.tsv", "--json")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.count("\n") == 1
    assert json.loads(answer.out) == {
        "task": "translation",
        "data": "pairs.tsv",
        "examples": 3,
        "metrics": {"exact_match": 2 / 3},
        "device": str(usable_device()),
        "precision": "float32",
    }
    assert call("evaluate", model, "pairs.tsv").out == "translation on pairs.tsv, 3 examples\nexact_match  0.6667\n"
    assert json.loads(call("evaluate", model, "pairs.tsv", "--examples", "1", "--json").out)["examples"] == 1


def test_a_byte_order_mark_and_windows_line_ends_change_nothing(call, model):
    answers = regard.load(model).run(DAYS)
    rows = [f"{day}\t{text}" for day, text in zip(DAYS, answers, strict=True)]
    Path("windows.tsv").write_bytes(b"\xef\xbb\xbf" + lines(*rows, end="\r\n"))
    assert json.loads(call("evaluate", model, "windows.tsv", "--json").out)["metrics"] == {"exact_match": 1.0}


def test_without_data_the_recipes_test_split_is_measured(call, model):
    loaded = regard.load(model)
    everything = held_out(open_corpus(loaded.recipe.data), "test")
    record = json.loads(call("evaluate", model, "--json").out)
    assert (record["data"], record["examples"]) == ("dates (test)", len(everything))
    assert json.loads(call("evaluate", model, "--examples", "13", "--json").out)["examples"] == 13


# look


@pytest.mark.parametrize("options", [(), ("--layer", "encoder.0.self"), ("--head", "1"), ("--target", "3. März 2001")])
def test_look_writes_a_picture_and_says_what_it_shows(call, model, options):
    layer = options[1] if "--layer" in options else ".cross"
    answer = call("look", model, DAYS[0], "--to", "new/picture.png", *options)
    assert (answer.code, answer.err) == (0, "")
    assert Path("new/picture.png").read_bytes().startswith(b"\x89PNG\r\n")
    assert answer.out.startswith("new/picture.png shows ")
    shown, _, others = answer.out.partition("; the other layers are ")
    assert layer in shown
    assert len(others.split(", ")) == 4, "encoder 1, decoder 2 × 2, less the one shown"


def test_look_writes_an_svg_that_holds_the_text(call, model):
    assert call("look", model, DAYS[0], "--to", "picture.svg", "--target", "3. März 2001").code == 0
    words = " ".join(ET.parse("picture.svg").getroot().itertext())
    assert DAYS[0] in " ".join(words.split())
    assert "3. März 2001" in " ".join(words.split())


# list


@pytest.mark.parametrize(
    ("kind", "known"),
    [("recipes", shipped()), ("corpora", CORPORA), ("similarities", SIMILARITIES), ("families", FAMILIES)],
)
def test_list_names_what_there_is_with_a_line_each(call, kind, known):
    plain, answer = call("list", kind), call("list", kind, "--json")
    assert (plain.code, plain.err, answer.code, answer.err) == (0, "", 0, "")
    record = json.loads(answer.out)
    assert set(record[kind]) == set(known)
    assert all(record[kind].values())
    lines = plain.out.splitlines()
    assert [line.split("  ", 1)[0].strip() for line in lines] == list(record[kind])
    assert [line.split("  ", 1)[1].strip() for line in lines] == list(record[kind].values())
    assert len({line.index(text) for line, text in zip(lines, record[kind].values(), strict=True)}) == 1, "one column"


# train


def settings(*changes: str) -> list[str]:
    return [part for change in (*SMALL, *changes) for part in ("--set", change)]


def test_train_writes_the_whole_folder_and_resuming_a_finished_run_changes_no_file(call, model):
    answer = call("train", RECIPE, *settings(), "--out", "new")
    assert answer.code == 0
    assert answer.out == "new holds the model; ask it with: regard run new\n"
    assert sorted(path.name for path in Path("new").iterdir()) == FILES
    for name in FILES:  # the fixture's folder was made by `regard.train` with the same seed
        if name not in ("state", "metrics.jsonl"):
            assert Path("new", name).read_bytes() == (model / name).read_bytes(), name
    before = {path: path.read_bytes() for path in Path("new").rglob("*") if path.is_file()}
    again = call("train", RECIPE, *settings(), "--out", "new", "--resume")
    assert again.code == 0
    assert "new is finished after step 3" in again.err
    assert before == {path: path.read_bytes() for path in Path("new").rglob("*") if path.is_file()}


def test_the_folder_is_named_after_the_recipe_if_none_is_given(call):
    """And the user's own files train too: here with the test split in parallel files."""
    Path("words.tsv").write_text("one\tun\ntwo\tdeux\nthree\ttrois\n")
    Path("en.txt").write_text("four\nfive\n")
    Path("fr.txt").write_text("quatre\ncinq\n")
    data = 'train = "words.tsv"\nvalid = "words.tsv"\ntest = ["en.txt", "fr.txt"]\n'
    Path("mine.toml").write_text(f"[data]\n{data}[training]\nsteps = 2\n[model]\nwidth = 12\nheads = 2\n")
    assert call("train", "mine.toml").out == "runs/mine holds the model; ask it with: regard run runs/mine\n"
    assert call("run", "runs/mine", "anything at all").code == 0
    record = json.loads(call("evaluate", "runs/mine", "--json").out)
    assert record["examples"] == 2


def test_resuming_from_python_with_tuples_is_no_change_of_recipe(tmp_path):
    values = {"data": {"corpus": "copy", "options": {"held_out": 11, "longest": 5}}, "training": {"steps": 1}}
    values |= {"tokenizer": {"size": 264, "sample": 7}, "model": {"width": 8, "heads": 2, "layers": 1}}
    recipe = regard.Recipe.model_validate(values)
    regard.train(recipe, tmp_path / "run")
    regard.train(recipe, tmp_path / "run", resume=True)
    dates = {
        **values,
        "data": {"corpus": "dates", "options": {"languages": ("en", "fr"), "first_year": 2000, "last_year": 2019}},
    }
    recipe = regard.Recipe.model_validate(dates)
    trained = regard.train(recipe, tmp_path / "dates")
    resumed = regard.train(recipe, tmp_path / "dates", resume=True)
    assert resumed.recipe == trained.recipe


@pytest.mark.parametrize("architecture", ["decoder", "encoder_decoder"])
def test_a_saved_model_answers_as_before(tmp_path, architecture):
    """`Model.save` writes a folder of its own, for a decoder alone too."""
    changes = ["data.options.held_out=11", "tokenizer.sample=7", "tokenizer.size=264", "model.width=8", "model.heads=2"]
    changes += ["training.steps=2", f"model.architecture={architecture}", "decoding.max_new_tokens=5"]
    trained = regard.train("reverse", tmp_path / "run", changes=changes)
    trained.save(tmp_path / "copy")
    loaded = regard.load(tmp_path / "copy")
    texts = ["a b c d", "z y x w v u t"]
    assert loaded.run(texts) == trained.run(texts)
    assert loaded.recipe == trained.recipe
    assert loaded.decoding == trained.decoding
    pairs = zip(loaded.module.state_dict().values(), trained.module.state_dict().values(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


# demo


def test_every_example_of_the_demo_is_something_the_corpus_teaches():
    dates = corpus("dates", {})
    for text in (*demo.EXAMPLES, demo.PICTURED, "es: 3 mars 2021", "pt: Wednesday, July 14, 2038"):
        dates.check(text)
    assert demo.PICTURED in demo.EXAMPLES


@pytest.fixture
def small_demo(monkeypatch) -> None:
    shorter = [change for change in SMALL if not change.startswith("data.")]
    Path("short.toml").write_text(read_recipe(demo.RECIPE, shorter).toml())
    monkeypatch.setattr(demo, "RECIPE", "short.toml")


def test_the_demo_goes_on_where_it_was_stopped_measures_answers_and_draws_and_then_reuses_its_model(
    call, small_demo, monkeypatch
):
    def ctrl_c(self: ProgressBar, report: Report) -> None:
        if report.step == 1:
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(ProgressBar, "__call__", ctrl_c)
        stopped = call("demo")
    assert stopped.code == 130
    assert stopped.err.endswith("stopped after step 2, which is saved in runs/demo; go on with: regard demo\n")
    answer = call("demo")
    assert answer.code == 0
    assert "resuming after step 2" in answer.err
    assert "Traceback" not in answer.err
    assert answer.out.startswith("trained in ")
    days = corpus("dates", {}).size("test")
    assert f"exact match on {min(days, 1000)} held-out days: " in answer.out
    for text, found in zip(demo.EXAMPLES, regard.load("runs/demo").run(demo.EXAMPLES), strict=True):
        assert f"  {text:<34}→  {found}\n" in answer.out
    picture = Path("runs/demo/attention.png")
    drawn = picture.read_bytes()
    assert drawn.startswith(b"\x89PNG")
    suggested = [line.strip() for line in answer.out.splitlines() if line.startswith("  regard ")]
    assert [line.split()[1] for line in suggested] == ["run", "look", "evaluate"]
    for line in suggested[:2]:
        verb, folder, rest = line.removeprefix("regard ").split(" ", 2)
        text, _, options = rest.removeprefix('"').partition('"')
        assert call(verb, folder, text, *options.split()).code == 0
    picture.unlink()
    again = call("demo")
    assert (again.code, again.err) == (0, "")
    first, *rest = again.out.splitlines()
    assert first == "runs/demo holds the trained model; remove it to train anew"
    assert rest == answer.out.splitlines()[1:]
    assert picture.read_bytes() == drawn


def test_the_hundredth_text_draws_numbers_of_its_own(call, model):
    lines = ("de: 3 mars 2001\n" * 70).encode()
    answers = call("run", model, "--strategy", "sample", "--temperature", "3", "--json", stdin=lines).out.splitlines()
    assert len(answers) == 70
    assert len({*answers[:3], *answers[64:67]}) == 6
