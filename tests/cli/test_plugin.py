"""A mechanism of somebody's own, in one file outside the package: listed, trained, decoded, watched, measured."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from small_model import RECIPE, SMALL

import regard
from regard import plugins
from regard.attention.mechanism import MECHANISMS
from regard.inspection.laws import LAWS
from regard.models.config import TransformerConfig

FILE = Path(__file__).parent / "mean_attention.py"
MEAN = ["model.attention=mean", "model.encoder_attention=exact"]


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch):
    """What a test makes known is forgotten after it."""
    monkeypatch.setenv(plugins.VARIABLE, "")
    known, modules = dict(MECHANISMS), set(sys.modules)
    yield
    for name in set(MECHANISMS) - set(known):
        del MECHANISMS[name]
    for name in set(sys.modules) - modules:
        if name.startswith("regard_plugin_"):
            del sys.modules[name]
    plugins.load_plugins.cache_clear()


@pytest.fixture
def trained(call, tmp_path):
    changes = [part for change in (*SMALL, *MEAN) for part in ("--set", change)]
    answer = call("train", RECIPE, "--plugin", FILE, "--out", tmp_path / "run", "--quiet", *changes)
    assert (answer.code, answer.err) == (0, "")
    return tmp_path / "run"


def test_it_is_listed_with_what_it_can_and_its_keys(call):
    assert "mean " not in call("list", "mechanisms").out
    [line] = [line for line in call("list", "mechanisms", "--plugin", FILE).out.splitlines() if line.startswith("mean")]
    assert "Every token reads the mean of what came before it." in line
    assert line.endswith("causal")
    found = json.loads(call("list", "keys", "model", "--plugin", FILE, "--json").out)["keys"]
    assert found["model: transformer.attention: mean"]["gain"]["default"] == 1.0


def test_it_trains_decodes_and_is_measured(call, trained):
    written = [call("run", trained, "--plugin", FILE, "de: 3 mars 2011", *how).out for how in ((), ("--beams", "3"))]
    assert all(line.endswith("\n") for line in written)
    measured = json.loads(call("evaluate", trained, "--plugin", FILE, "--json").out)
    assert 0 <= measured["metrics"]["exact_match"] <= 1
    recipe = (trained / "recipe.toml").read_text()
    assert '[model.attention]\nname = "mean"\ngain = 1.0\n' in recipe


def test_it_is_watched_by_its_effective_weights(call, trained):
    answer = call("look", trained, "--plugin", FILE, "de: 3 mars 2011", "--layer", "decoder.1.self")
    assert answer.out.startswith("attention.png shows decoder.1.self, effective weights of Mean; the other layers are")
    page = call("look", trained, "--plugin", FILE, "de: 3 mars 2011", "--to", "seen.html")
    assert page.code == 0
    refused = call("look", trained, "--plugin", FILE, "de: 3 mars 2011", "--layer", "decoder.1.self", "--steps")
    assert refused.code == 1
    assert "Mean has no scores, keys and values" in refused.err
    with regard.watch(regard.load(trained)) as seen:
        seen_model = regard.load(trained)
        assert seen_model.module.config.attention.name == "mean"
    model = regard.load(trained)
    with regard.watch(model) as seen:
        model.run("de: 3 mars 2011")
    found = seen.weights("decoder.0.self", head=1)
    count = torch.arange(1, len(found) + 1)
    torch.testing.assert_close(found, torch.ones_like(found).tril() / count[:, None])
    torch.testing.assert_close(seen.weights("decoder.0.self", head=1, rows=[-1, 0]), found[[-1, 0]])


@pytest.mark.parametrize("architecture", ["decoder", "encoder_decoder"])
def test_the_laws_hold(architecture):
    plugins.load_plugin(FILE)
    own = {} if architecture == "decoder" else {"encoder_attention": "exact"}
    described = TransformerConfig(
        vocabulary=13, width=12, heads=2, architecture=architecture, attention={"name": "mean", "gain": 0.5}, **own
    )
    torch.manual_seed(0)
    model = described.build()
    measured = {law.name: law.measure(model) for law in LAWS if law.applies(model)}
    assert {law.name for law in LAWS if law.name in measured and not measured[law.name] <= law.tolerance} == set()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["model.attention=mean"], "cannot do attention in both directions, which an encoder needs; it can do causal"),
        (["model.attention=mean", "model.architecture=decoder"], "encoder_layers"),
        ([*MEAN, "model.positions=t5"], "positions that add to the scores"),
        ([*MEAN, "model.similarity=cosine"], "cannot do similarity 'cosine'"),
        ([*MEAN, "model.attention.gian=2"], "key 'gian' is unknown; did you mean 'gain'"),
        ([*MEAN, "model.attention.window=2"], "key 'window' has no effect on 'mean'; leave it out; it is for "),
        ([*MEAN, "model.cross_attention=mean"], "cannot do attention to a memory"),
    ],
)
def test_what_it_cannot_is_refused_by_the_recipe(call, changes, said):
    answer = call("train", RECIPE, "--plugin", FILE, "--show", *(part for one in changes for part in ("--set", one)))
    assert answer.code == 1
    assert answer.err.count("\n") == 1
    assert said in answer.err


def test_without_the_file_its_folder_says_what_is_missing(call, trained):
    del MECHANISMS["mean"]
    answer = call("run", trained, "de: 3 mars 2011")
    assert answer.code == 1
    assert "attention 'mean' is unknown" in answer.err
    assert "--plugin FILE.py" in answer.err


@pytest.mark.parametrize(
    ("line", "wrong", "said"),
    [
        ("return hidden, ", "return hidden[:, :1], ", r"forward was given \(1, 3, 12\) to read and gave \(1, 1, 12\)"),
        ("return hidden, ", "return hidden  # ", "forward gave a Tensor; return what was read and the state"),
        (".expand(len(inputs), self.heads, -1, -1)", "", r"dense_map gave \(3, 3\) for 3 tokens"),
    ],
)
def test_what_it_gives_in_another_shape_is_refused_and_not_spread_over_the_tokens(tmp_path, line, wrong, said):
    source = FILE.read_text()
    assert source.count(line) == 1
    (tmp_path / "mine.py").write_text(source.replace(line, wrong))
    plugins.load_plugin(tmp_path / "mine.py")
    config = TransformerConfig(vocabulary=13, width=12, heads=2, layers=1, architecture="decoder", attention="mean")
    model = config.build().eval()

    def looked():
        with regard.watch(model) as seen:
            model(regard.Inputs(regard.Padded.of([[1, 5, 3]])))
        return seen.weights("decoder.0.self")

    with pytest.raises(regard.RegardError, match=said):
        looked()


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("none.py", None, "none.py is not a Python file; give the .py file that registers your parts"),
        ("mine.txt", "", "mine.txt is not a Python file"),
        ("mine.py", "1 / 0", "mine.py does not run: ZeroDivisionError: division by zero; correct it"),
        ("mine.py", "raise SystemExit(3)", "mine.py does not run: SystemExit: 3; correct it"),
        ("mine.py", "import regard\nregard.register_mechanism(regard.MechanismShape)", "has no name a recipe could"),
    ],
)
def test_a_file_that_is_no_plugin_is_one_sentence(call, tmp_path, name, text, said):
    if text is not None:
        (tmp_path / name).write_text(text)
    answer = call("list", "mechanisms", "--plugin", tmp_path / name)
    assert answer.code == 1
    assert answer.err.count("\n") == 1
    assert said in answer.err


def test_processes_begun_from_here_and_entry_points_know_it_too(tmp_path):
    """One process: the variable names a file to it, an installed package's entry point a module."""
    (tmp_path / "other.py").write_text(FILE.read_text().replace('"mean"', '"other"'))
    package = tmp_path / "other-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[regard.plugins]\nother = other\n")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    environment = os.environ | {plugins.VARIABLE: str(FILE), "PYTHONPATH": path}
    command = [sys.executable, "-m", "regard", "list", "mechanisms", "--json"]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
    assert {"exact", "mean", "other"} <= set(json.loads(found.stdout)["mechanisms"])
