"""`regard compare recipes`: several recipes or values side by side over seeds, and what is refused before training."""

import json
import statistics
import sys
from pathlib import Path

import pytest

from regard.cli.app import main
from regard.compare.climb import Climb
from regard.compare.recipes import Spread, compare, contestants
from regard.compare.recipes_page import shown
from regard.data import stream
from regard.errors import RegardError
from regard.tasks.recipe import read_recipe

SMALL = [
    *("training.steps=4", "training.evaluate_every=2", "training.batch_tokens=64", "training.warmup=1"),
    *("training.device=cpu", "model.width=8", "model.heads=2", "model.layers=1", "data.options.held_out=6"),
    *("data.options.longest=5", "tokenizer.sample=50", "training.save_every=4"),
]
OVER = ["model.positions=rotary,none"]


@pytest.fixture(autouse=True, scope="module")
def _small_pools():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "POOL", 64)
        yield


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """`copy` with two kinds of positions and two seeds: its folder, the numbers and what is shown."""
    folder = tmp_path_factory.mktemp("recipes")
    given = contestants(["copy"], OVER, 2, SMALL)
    found = compare(given, Climb(folder, [one.entry for one in given]))
    page = shown(found)
    page.write(folder, "recipes")
    return folder, found, page


@pytest.fixture
def call(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["regard", "compare", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main()
        return (int(end.value.code or 0), *capsys.readouterr())

    return run


def test_every_value_is_trained_with_every_seed(compared):
    folder, found, _ = compared
    runs = sorted(path.name for path in folder.iterdir() if path.is_dir())
    assert runs == [f"model.positions={kind}-seed{seed}" for kind in ("none", "rotary") for seed in (0, 1)]
    for run in runs:
        recipe = read_recipe(str(folder / run / "recipe.toml"))
        assert f"model.positions={recipe.model.positions}-seed{recipe.training.seed}" == run
    assert [one.name for one in found.compared] == ["model.positions=rotary", "model.positions=none"]
    assert (found.task, found.data, found.seeds) == ("translation", "copy (test)", 2)


def test_means_and_deviations_are_those_of_the_runs(compared):
    folder, found, page = compared
    for one, row in zip(found.compared, page.rows, strict=True):
        kept = [json.loads((folder / f"{one.name}-seed{seed}" / "measured.json").read_text()) for seed in (0, 1)]
        matches = [run["held_out"]["metrics"]["exact_match"] for run in kept]
        losses = [run["training"]["validation_loss"] for run in kept]
        assert one.figures["exact_match"].values == tuple(matches)
        assert row[0] == one.name
        assert row[1] == f"{statistics.mean(matches):.4f} ± {statistics.stdev(matches):.4f}"
        assert row[2] == f"{statistics.mean(losses):.4f} ± {statistics.stdev(losses):.4f}"
        assert row[3] == f"{kept[0]['training']['parameters']:,}"
        assert list(one.losses) == [2, 4]
        assert one.losses[4].mean == pytest.approx(statistics.mean(losses)) or min(losses) < one.losses[4].mean


def test_table_picture_page_and_json_agree(compared):
    folder, found, page = compared
    record = json.loads((folder / "recipes.json").read_text())
    assert record == json.loads(json.dumps(found.record()))
    html = (folder / "recipes.html").read_text()
    assert all(f"<td>{cell}</td>" in html for row in page.rows for cell in row)
    assert all(cell in page.table() for row in page.rows for cell in row)
    assert (folder / "recipes.png").read_bytes().startswith(b"\x89PNG")
    curves, *bars = page.figure().axes
    for line, one in zip(curves.lines, record["recipes"], strict=True):
        assert list(line.get_ydata()) == [step["mean"] for step in one["validation_losses"].values()]
    assert [bar.get_width() for bar in bars[0].patches] == [one["exact_match"]["mean"] for one in record["recipes"]]


def test_called_again_nothing_is_trained_and_the_same_is_said(compared, call):
    folder, found, _ = compared
    changes = [part for change in SMALL for part in ("--set", change)]
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("model.safetensors")}
    code, out, err = call(
        "recipes", "copy", "--over", OVER[0], "--seeds", 2, *changes, "--out", folder, "--to", "f.svg", "--json", "-q"
    )
    assert (code, err) == (0, "")
    record = json.loads(out)
    assert len(record.pop("files")) == 4
    assert record == json.loads(json.dumps(found.record()))
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert Path("f.svg").read_text().startswith("<?xml")


def test_memory_is_that_of_each_training_in_megabytes(compared):
    folder, found, page = compared
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("the most memory a process held is not known here")
    assert page.header[-1] == "peak MB"
    for one, row in zip(found.compared, page.rows, strict=True):
        kept = [json.loads((folder / f"{one.name}-seed{seed}" / "measured.json").read_text()) for seed in (0, 1)]
        bytes_held = [run["training"]["peak_bytes"] for run in kept]
        assert one.figures["peak_bytes"].values == tuple(bytes_held)
        assert all(10**8 < held < 10**11 for held in bytes_held)
        assert row[-1].split(" ± ")[0] == f"{statistics.mean(bytes_held) / 1e6:,.0f}"


def test_mechanisms_are_compared_by_name_and_with_their_options():
    over = ['model.attention=exact, {name = "exact"}', 'model.positions=rotary,["x", "y"]']
    with pytest.raises(RegardError, match="positions"):
        contestants(["copy"], over, 1, SMALL)
    given = contestants(["copy"], over[:1], 1, SMALL)
    assert [one.name for one in given] == ["model.attention=exact", 'model.attention={name = "exact"}']
    assert {one.entry.recipe.model.attention.name for one in given} == {"exact"}
    assert len({one.entry.name for one in given}) == 2


def test_a_figure_of_one_seed_has_no_deviation():
    assert Spread((3.0,)).deviation is None
    assert Spread((1.0, 3.0)).deviation == pytest.approx(2**0.5)


def test_two_recipes_are_told_apart_by_their_names():
    given = contestants(["copy", "reverse"], ["training.learning_rate=1e-3,2e-3"], 1, SMALL)
    assert [one.name for one in given] == [
        f"{name}, training.learning_rate={rate}" for name in ("copy", "reverse") for rate in ("1e-3", "2e-3")
    ]
    assert given[1].entry.recipe.training.learning_rate == 2e-3
    assert len({one.entry.name for one in given}) == 4


@pytest.mark.parametrize(
    ("names", "over", "changes", "sentence"),
    [
        (["copy", "gpt"], [], [], "copy is of task 'translation' and gpt of task 'language_modelling'"),
        (
            ["copy"],
            ["model.positions=rotary"],
            [],
            "'model.positions=rotary' has one value, which is compared with nothing",
        ),
        (["copy"], ["model.positions="], [], "'model.positions=' has no value, which is"),
        (["copy"], ["model.positions"], [], "'model.positions' names no key to compare values of; write"),
        (["copy"], ["model.colour=red,blue"], [], "[model] key 'colour' is unknown"),
        (["copy"], ["model.positions=rotary,none"], ["model.colour=red"], "[model] key 'colour' is unknown"),
        (["copy"], ["model.positions=rotary,round"], [], "positions = 'round' cannot be used"),
        (["copy"], ["model.heads=2,3"], [], "3 heads"),
        (["copy"], ["model.architecture=encoder_decoder,encoder"], [], "cannot do task 'translation'"),
        (["copy"], ["training.metric=loss,bleu"], [], "metric 'bleu' is no metric of task 'translation'"),
        (["copy"], [], [], "recipe 'copy' alone is compared with nothing; name another"),
        (["copy", "copy"], [], [], "'copy' is there twice"),
        (["copy", "coppy"], [], [], "there is no recipe 'coppy'; did you mean 'copy'"),
        (["translation", "copy"], [], [], "the recipe has no data of its own"),
        (
            ["copy"],
            [f"training.seed={','.join(map(str, range(13)))}"],
            [],
            "13 recipes cannot be told apart in one figure",
        ),
    ],
)
def test_what_cannot_be_compared_is_refused_in_one_sentence_before_training(names, over, changes, sentence, tmp_path):
    with pytest.raises(RegardError) as refused:
        Climb(tmp_path, [one.entry for one in contestants(names, over, 1, changes)])
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_the_command_says_what_it_refuses_and_exits_with_1(call):
    code, out, err = call("recipes", "copy", "--over", "model.positions=rotary")
    assert (code, out) == (1, "")
    assert err == (
        "regard: 'model.positions=rotary' has one value, which is compared with nothing; give several: "
        "model.positions=A,B\n"
    )
    assert not Path("runs").exists()


def test_a_picture_that_cannot_be_written_is_refused_before_training(call):
    Path("there.png").write_text("")
    for to, sentence in (("there.png", "there.png is there already"), ("a.gif", "'.gif' is not a known format")):
        code, _, err = call("recipes", "copy", "--over", OVER[0], "--to", to)
        assert (code, sentence in err) == (1, True)
    assert not Path("runs").exists()


@pytest.mark.parametrize("verb", ["history", "recipes", "rates"])
def test_help_gives_an_example(call, verb):
    code, out, _ = call(verb, "--help")
    assert code == 0
    assert f"Example: regard compare {verb}" in " ".join(out.replace("│", " ").split())
