"""Whatever is wrong with what was asked: one sentence with the remedy, no traceback, nothing half-written."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from string import ascii_letters

import pytest
import torch
from small_model import SMALL, Answer

from regard.text.tokenizer import Tokenizer

DAY = "de: 3 mars 2001"
TINY = [part for change in SMALL for part in ("--set", change)]
FOLDER, OUT = "model", "out"


def tree(folder: Path) -> dict[str, str]:
    """Every file below a folder and what is in it."""
    files = (path for path in sorted(folder.rglob("*")))
    return {str(path): sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder" for path in files}


@dataclass(frozen=True)
class Bad:
    """A command in a folder that holds a copy of the model, and a part of what it must say."""

    arguments: tuple[str, ...]
    said: str
    before: Callable[[], object] = lambda: None
    stdin: bytes = b""


def cut(name: str, size: int = -9) -> Callable[[], object]:
    path = Path(FOLDER) / name
    return lambda: path.write_bytes(path.read_bytes()[:size])


def remove(name: str) -> Callable[[], object]:
    return Path(FOLDER, name).unlink


def write(name: str, content: str | bytes) -> Callable[[], object]:
    return lambda: Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())


def both(*acts: Callable[[], object]) -> Callable[[], object]:
    return lambda: [act() for act in acts]


def run(*arguments: str) -> tuple[str, ...]:
    return ("run", FOLDER, DAY, *arguments)


def train(*changes: str, recipe: str = "dates") -> tuple[str, ...]:
    """A small training with these changes on top."""
    settings = [part for change in changes for part in ("--set", change)]
    return ("train", recipe, *TINY, *settings, "--out", OUT)


def own_files(**tables: str) -> Callable[[], object]:
    return write("mine.toml", "".join(f"[{name}]\n{text}\n" for name, text in tables.items()))


OWN = ("train", "mine.toml", "--out", OUT)
PAIRS = write("pairs.tsv", f"a\tb\n{ascii_letters}\ty\n")

MODELS = {
    "no such folder": Bad(("run", "none", DAY), "none is not a folder; give the folder of a trained model"),
    "a file": Bad(("run", "file", DAY), "file is not a folder", write("file", "")),
    "no config": Bad(("run", ".", DAY), "config.json does not exist; give the folder of a trained model"),
    "config cut": Bad(run(), "config.json is damaged", cut("config.json")),
    "config of another model": Bad(run(), "lacks the tensor", write(f"{FOLDER}/config.json", '{"model_type": "bert"}')),
    "config of an unknown kind": Bad(run(), "'gemma'", write(f"{FOLDER}/config.json", '{"model_type": "gemma"}')),
    "weights cut": Bad(run(), "model.safetensors is damaged", cut("model.safetensors")),
    "weights missing": Bad(run(), "model.safetensors does not exist", remove("model.safetensors")),
    "tokenizer cut": Bad(run(), "tokenizer.json: this is not a tokenizer", cut("tokenizer.json")),
    "tokenizer missing": Bad(run(), "tokenizer.json does not exist", remove("tokenizer.json")),
    "tokenizer of another size": Bad(
        run(),
        "has a tokenizer of 260 entries and a model of 300; they must come from the same training",
        lambda: Path(FOLDER, "tokenizer.json").write_text(Tokenizer.train(["a"], 260).to_json()),
    ),
    "recipe missing": Bad(run(), "recipe.toml does not exist", remove("recipe.toml")),
    "recipe cut": Bad(run(), "recipe.toml is not valid TOML", write(f"{FOLDER}/recipe.toml", "[data\n")),
    "generation config cut": Bad(run(), "generation_config.json is damaged", cut("generation_config.json")),
    "generation config that contradicts itself": Bad(
        run(), "top_p has no effect with strategy 'greedy'", write(f"{FOLDER}/generation_config.json", '{"top_p": 0.5}')
    ),
}

TEXTS = {
    "empty": Bad(("run", FOLDER, ""), "the text is empty"),
    "blank": Bad(("run", FOLDER, " \t "), "the text is empty"),
    "no prefix": Bad(("run", FOLDER, "3 mars 2001"), "begin with one of en: fr: de: es: it: pt: iso:"),
    "unknown prefix": Bad(
        ("run", FOLDER, "nl: 3 mars 2001"), "prefix 'nl:' is unknown; use one of en: fr: de: es: it: pt:"
    ),
    "prefix of two lines": Bad(("run", FOLDER, "d\ne: 3 mars 2001"), "prefix 'd\\ne:' is unknown"),
    "ambiguous date": Bad(("run", FOLDER, "de: 3/4/21"), "does not say which number is the day"),
    "year out of range": Bad(("run", FOLDER, "de: 3 mars 1789"), "year 1789 is outside 1990 to 2019"),
    "streamed, unknown prefix": Bad(("run", FOLDER, "nl: 3 mars 2001", "--stream"), "prefix 'nl:' is unknown"),
    "looked at, unknown prefix": Bad(("look", FOLDER, "nl: 3 mars 2001", "--to", "a.png"), "prefix 'nl:' is unknown"),
}

DECODING = {
    "a penalty that is no number": Bad(
        ("run", FOLDER, DAY, "--strategy", "beam", "--length-penalty", "nan"), "length_penalty = nan cannot be used"
    ),
    "a beam without end": Bad(("run", FOLDER, DAY, "--beams", "1000000"), "less than or equal to 512"),
    "top-p above one": Bad(run("--top-p", "2"), "top_p = 2.0 cannot be used"),
    "top-k of nothing": Bad(run("--top-k", "0"), "top_k = 0 cannot be used"),
    "temperature of zero": Bad(run("--temperature", "0"), "it should be greater than 0"),
    "temperature that is no number": Bad(run("--temperature", "nan"), "temperature = nan cannot be used"),
    "no beams": Bad(run("--beams", "0"), "beams = 0 cannot be used"),
    "beams while sampling": Bad(
        run("--beams", "3", "--strategy", "sample"),
        "beams has no effect with strategy 'sample'; use strategy 'beam' or leave beams out",
    ),
    "seed of a greedy choice": Bad(run("--seed", "3", "--strategy", "greedy"), "seed has no effect"),
    "beams and temperature": Bad(run("--beams", "3", "--temperature", "0.5"), "temperature has no effect"),
    "seed out of range": Bad(run("--seed", "99999999999999999999"), "seed = 99999999999999999999 cannot be used"),
    "unknown strategy": Bad(run("--strategy", "best"), "it should be 'greedy', 'sample', 'beam' or 'contrastive'"),
    "no new tokens": Bad(run("--max-new-tokens", "0"), "max_new_tokens = 0 cannot be used"),
    "streamed ranking": Bad(run("--stream", "--n-best", "2"), "--stream and --n-best ask for two kinds of output"),
}

PICTURES = {
    "a film": Bad(("look", FOLDER, DAY, "--to", "a.gif"), "no known format; end it in one of: .png, .svg, .pdf, .html"),
    "no format": Bad(("look", FOLDER, DAY, "--to", "picture"), "its name says no known format"),
    "a folder": Bad(("look", FOLDER, DAY, "--to", "a.png"), "it is a folder", lambda: Path("a.png").mkdir()),
    "below a file": Bad(("look", FOLDER, DAY, "--to", "file/a/b.png"), "cannot be written", write("file", "")),
    "unknown layer": Bad(("look", FOLDER, DAY, "--layer", "decoder.9.cross"), "decoder.1.cross"),
    "unknown head": Bad(("look", FOLDER, DAY, "--head", "2"), "has 2 heads and no head 2; use 0 to 1"),
    "negative head": Bad(("look", FOLDER, DAY, "--head", "-1"), "no head -1"),
}

EVALUATION = {
    "missing file": Bad(("evaluate", FOLDER, "none.tsv"), "none.tsv does not exist"),
    "empty file": Bad(("evaluate", FOLDER, "a.tsv"), "a.tsv is empty", write("a.tsv", "")),
    "no tab": Bad(("evaluate", FOLDER, "a.tsv"), "a.tsv, line 2 has 0 tabs", write("a.tsv", f"{DAY}\tx\n{DAY}\n")),
    "another encoding": Bad(
        ("evaluate", FOLDER, "a.tsv"), "line 1 is not UTF-8", write("a.tsv", f"{DAY}\tMärz".encode("latin-1"))
    ),
    "what the model was never taught": Bad(
        ("evaluate", FOLDER, "a.tsv"), "prefix 'nl:' is unknown", write("a.tsv", "nl: 3 mars 2001\t3 maart 2001\n")
    ),
    "test data that have gone": Bad(
        ("evaluate", FOLDER),
        "gone.tsv does not exist",
        both(
            PAIRS,
            write(f"{FOLDER}/recipe.toml", '[data]\ntrain = "pairs.tsv"\nvalid = "pairs.tsv"\ntest = "gone.tsv"\n'),
        ),
    ),
}

RECIPES = {
    "unknown recipe": Bad(train(recipe="dats"), "there is no recipe 'dats'; did you mean 'dates'?"),
    "missing file": Bad(train(recipe="none.toml"), "there is no recipe 'none.toml'"),
    "a folder": Bad(train(recipe="."), "there is no recipe '.'"),
    "not TOML": Bad(OWN, "mine.toml is not valid TOML", write("mine.toml", "data = {")),
    "typo in a table": Bad(
        OWN, "key 'trainig' is unknown; did you mean 'training'", own_files(data='corpus="copy"', trainig="")
    ),
    "typo in a key": Bad(OWN, "did you mean 'steps'", own_files(data='corpus="copy"', training="stesp = 3")),
    "typo in --set": Bad(train("training.stesp=3"), "key 'stesp' is unknown; did you mean 'steps'"),
    "--set without a value": Bad(train("training.steps"), "is not a change; write it as table.key=value"),
    "heads that do not divide": Bad(train("model.heads=7"), "width 16 does not split into 7 heads; use 1, 2, 4, 8, 16"),
    "odd rotary": Bad(
        train("model.width=6", "model.positions=rotary"), "head width of 3 is odd; choose width and heads"
    ),
    "negative steps": Bad(train("training.steps=-3"), "steps = -3 cannot be used (optimizer steps)"),
    "steps that are no number": Bad(train("training.steps=many"), "steps = 'many' cannot be used"),
    "memories above one": Bad(train("training.optimizer.betas=[0.9, 2.0]"), "2.0 cannot be used"),
    "unknown corpus": Bad(train("data.corpus=dats"), "corpus 'dats' is unknown; did you mean 'dates'"),
    "unknown option": Bad(train("data.options.first_yaer=3"), "has no option 'first_yaer'; did you mean 'first_year'"),
    "short style": Bad(train('data.options.styles=["short"]'), "does not say which number is the day; use full, long"),
    "option of another kind": Bad(train("data.options.seed=three"), "option 'seed' of corpus 'dates' is 'three'"),
    "tokenizer too small": Bad(train("tokenizer.size=100"), "a vocabulary of 100 cannot hold"),
    "an encoder to translate": Bad(
        train("model.architecture=encoder", "model.encoder_layers="),
        "cannot do task 'translation': it writes no text; use model.architecture=encoder_decoder or decoder",
    ),
    "unknown device": Bad(train("training.device=abacus"), "device 'abacus' cannot be used here; use auto"),
    "a device without numbers": Bad(train("training.device=meta"), "device 'meta' cannot be used here"),
    "batches too small": Bad(train("training.batch_tokens=5"), "raise training.batch_tokens"),
    "data files missing": Bad(OWN, "none.tsv does not exist", own_files(data='train = "none.tsv"\nvalid = "none.tsv"')),
    "data files of unequal length": Bad(
        OWN,
        "a.txt has 2 lines and b.txt has 1",
        both(
            write("a.txt", "a\nb\n"), write("b.txt", "a\n"), own_files(data='train = ["a.txt", "b.txt"]\nvalid = "v"')
        ),
    ),
    "too little to hold some out": Bad(
        OWN,
        "1 example is too few to hold some out; give 10 or more, or a file to validate on: data.valid=FILE",
        both(write("pairs.tsv", "a\tb\n"), own_files(data='train = "pairs.tsv"')),
    ),
    "an example longer than a batch": Bad(
        OWN,
        "raise training.batch_tokens or leave such long examples out",
        both(
            PAIRS,
            write("short.tsv", "a\tb\n"),
            own_files(data='train = "pairs.tsv"\nvalid = "short.tsv"', training="steps = 1\nbatch_tokens = 50"),
        ),
    ),
    "a target longer than the network has positions for": Bad(
        OWN,
        "the longest example has 53 tokens and this network takes 20; raise its limit (of learned positions, ",
        both(
            write("long.tsv", f"a\tb\nb\t{ascii_letters}\n"),
            write("short.tsv", "a\tb\n"),
            own_files(
                data='train = "long.tsv"\nvalid = "short.tsv"',
                model='positions = "learned"\nmax_positions = 20',
                training="steps = 1",
            ),
        ),
    ),
    "an example to validate on longer than a batch": Bad(
        OWN,
        "raise training.batch_tokens or leave such long examples out",
        both(
            PAIRS,
            write("short.tsv", "a\tb\n"),
            own_files(data='train = "short.tsv"\nvalid = "pairs.tsv"', training="steps = 1\nbatch_tokens = 50"),
        ),
    ),
}

FOLDERS = {
    "out is a file": Bad((*train()[:-1], "file"), "file is a file; choose another --out", write("file", "")),
    "out is below a file": Bad((*train()[:-1], "file/out"), "cannot be written", write("file", "")),
    "out is far below a file": Bad((*train()[:-1], "file/a/b/out"), "cannot be written", write("file", "")),
    "out is not empty": Bad((*train()[:-1], FOLDER), "model is not empty; add --resume to go on with it"),
    "resumed with another recipe": Bad(
        (*train("training.steps=9", "model.dropout=0.5")[:-1], FOLDER, "--resume"),
        "the recipe in model differs in model.dropout, training.steps; resume with the same recipe",
    ),
    "resumed with another network": Bad(
        ("train", "dates", "--set", "model=bahdanau", "--out", FOLDER, "--resume"),
        "the recipe in model differs in model.name; resume with the same recipe, or train anew",
    ),
    "resumed with a damaged tokenizer": Bad(
        (*train()[:-1], FOLDER, "--resume"), "tokenizer.json: this is not a tokenizer", cut("tokenizer.json")
    ),
    "demo into the folder of another run": Bad(
        ("demo", "--out", FOLDER), "; remove model to train anew, or choose another --out"
    ),
    "demo into a folder of anything else": Bad(
        ("demo", "--out", "notes"),
        "notes is no run that can be resumed",
        both(lambda: Path("notes").mkdir(), write("notes/today.txt", "")),
    ),
}

EVERY = {
    f"{group}: {name}": bad
    for group, cases in {
        "model": MODELS,
        "text": TEXTS,
        "decoding": DECODING,
        "picture": PICTURES,
        "evaluation": EVALUATION,
        "recipe": RECIPES,
        "folder": FOLDERS,
    }.items()
    for name, bad in cases.items()
}


def ask(bad: Bad, model: Path, call: Callable[..., Answer], *more: str) -> Answer:
    """Run it beside a copy of the model; nothing there may change."""
    if not Path(FOLDER).exists():
        shutil.copytree(model, FOLDER)
        bad.before()
    before = tree(Path.cwd())
    answer = call(*bad.arguments, *more, stdin=bad.stdin)
    assert tree(Path.cwd()) == before, "nothing is written"
    return answer


@pytest.mark.parametrize("name", EVERY)
def test_bad_input_is_answered_by_one_sentence_with_the_remedy(name, model, call):
    answer = ask(EVERY[name], model, call)
    assert answer.code == 1
    assert answer.out == ""
    assert answer.err.count("\n") == 1, answer.err
    assert answer.err.startswith("regard: ")
    problem, _, remedy = answer.err.removeprefix("regard: ").rstrip("\n").rpartition("; ")
    assert problem
    assert remedy
    assert EVERY[name].said in answer.err
    assert "Traceback" not in answer.err


WITH_JSON = [
    name for name, bad in EVERY.items() if bad.arguments[0] in ("run", "evaluate") and "--stream" not in bad.arguments
]


@pytest.mark.parametrize("name", WITH_JSON)
def test_with_json_the_same_error_is_one_object_on_stderr(name, model, call):
    plain, answer = ask(EVERY[name], model, call), ask(EVERY[name], model, call, "--json")
    assert (answer.code, answer.out) == (1, "")
    assert answer.err.count("\n") == 1
    error = json.loads(answer.err)
    assert error.keys() == {"error", "remedy"}
    assert plain.err == f"regard: {error['error']}; {error['remedy']}".replace("\n", "\\n") + "\n"


def test_a_stream_is_not_json(model, call):
    answer = ask(Bad(run("--stream", "--json"), ""), model, call)
    assert answer.code == 1
    asked = {"error": "--stream and --json ask for two kinds of output", "remedy": "use one of them"}
    assert json.loads(answer.err) == asked


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_there_is_refused(model, call):
    answer = ask(Bad(train("training.device=cuda"), ""), model, call)
    assert answer.code == 1
    assert answer.err == "regard: device 'cuda' cannot be used here; use auto or cpu\n"


USAGE = {
    "unknown verb": ("translate", "--help"),
    "unknown option": ("run", FOLDER, DAY, "--tempratur", "3"),
    "no model": ("run",),
    "no recipe": ("train",),
    "two texts": ("run", FOLDER, DAY, DAY),
    "beams that are no number": ("run", FOLDER, DAY, "--beams", "many"),
    "a head that is no number": ("look", FOLDER, DAY, "--head", "x"),
    "no examples": ("evaluate", FOLDER, "--examples", "0"),
    "unknown list": ("list", "recipies"),
    "value missing": ("train", "copy", "--set"),
}


@pytest.mark.parametrize("name", USAGE)
def test_a_command_that_is_not_understood_is_explained_and_ends_with_two(name, model, call):
    answer = ask(Bad(USAGE[name], ""), model, call)
    assert answer.code == 2
    assert answer.out == ""
    assert "Error" in answer.err
    assert "Traceback" not in answer.err


# In processes of their own


def process(*arguments: str, stdin: bytes = b"", **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "regard", *arguments],
        input=stdin,
        capture_output=True,
        check=False,
        env=os.environ | environment,
    )


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_bytes_that_are_no_text_are_refused_in_every_locale(model, locale):
    done = process("run", str(model), stdin=b"de: 3 m\xe4rz 2001\n", LC_ALL=locale)
    assert (done.returncode, done.stdout) == (1, b"\n")
    assert done.stderr == b"line 1: the text is not UTF-8 (byte 0xe4); convert it, for instance with iconv\n"
    assert b"Traceback" not in done.stderr


def test_a_reader_that_goes_away_ends_the_command_quietly(model):
    running = subprocess.Popen(
        [sys.executable, "-m", "regard", "run", str(model)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    running.stdout.close()
    running.stdout = None
    _, said = running.communicate(f"{DAY}\n".encode() * 3, timeout=120)
    assert running.returncode == 1
    assert said == b""
