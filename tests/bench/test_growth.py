"""Attention by length: what is measured, fitted, gone on with and left out; and errors on a text of one's own."""

import json
import sys
import time
from typing import ClassVar

import pytest
import torch
from typer.testing import CliRunner

import regard
from regard.attention.mechanism import MECHANISMS
from regard.bench import attention, attention_error, growth
from regard.bench.growth import Growing, exponents, measure
from regard.cli.app import app
from regard.cli.bench_attention import MechanismsAsked
from regard.errors import ConfigError, InputError, RegardError
from regard.views.growth import draw_growth

WHAT = "attention layer, bidirectional, 4 heads of 64, float32, forward"


def grown(name: str, times: dict[int, float], exact: dict[int, float] | None = None) -> list[dict]:
    base = exact or times
    return [
        {"what": WHAT, "contestant": name, "tokens": n, "milliseconds": t, "ratio": t / base[n], "peak_bytes": 7 * n}
        for n, t in times.items()
    ]


def test_an_exponent_is_that_of_the_longest_lengths():
    squared = {n: 5.0 + n * n if n < 2000 else float(n * n) for n in (500, 1000, 2000, 4000, 8000, 16000)}
    linear = {n: 3e3 * n**1.25 for n in squared}
    found = {row["contestant"]: row for row in exponents(grown("exact", squared) + grown("other", linear, squared))}
    assert found["exact"]["time_exponent"] == pytest.approx(2.0, abs=1e-4)
    assert found["other"]["time_exponent"] == pytest.approx(1.25, abs=1e-4)
    assert found["other"]["memory_exponent"] == pytest.approx(1.0, abs=1e-4)
    assert "2,000 to 16,000 tokens" in found["other"]["what"]


@pytest.mark.parametrize(("ratios", "from_length"), [((2, 0.5, 0.4), 200), ((0.5, 1.5, 0.5), 400), ((2, 3, 1), None)])
def test_a_mechanism_is_faster_from_the_length_on_after_which_it_stays_so(ratios, from_length):
    exact = {100: 8.0, 200: 16.0, 400: 32.0}
    other = {n: exact[n] * ratio for n, ratio in zip(exact, ratios, strict=True)}
    (row,) = exponents(grown("other", other, exact))
    assert row["faster_from"] == from_length


def test_every_registered_mechanism_is_measured_where_it_can_be():
    for causal in (False, True):
        names = growth.able(causal)
        assert names[0] == "exact"
        assert set(names) == {
            name
            for name, shape in MECHANISMS.items()
            if (shape.abilities.causal if causal else shape.abilities.bidirectional)
        }
        assert growth.count("cpu", [8, 16], causal=causal) == 4 * len(names)


@pytest.mark.parametrize("gradients", [False, True])
def test_a_measurement_has_rounds_memory_and_the_kernel_of_exact_attention(gradients):
    found = measure(Growing("exact", 96, causal=True, gradients=gradients, device="cpu"))
    assert found.failed is None
    assert 1 <= len(found.rounds) <= growth.ROUNDS
    assert all(one > 0 for one in found.rounds)
    assert found.kernel in {kernel.name for kernel in regard.attention.core.KERNELS}


class Broken(MECHANISMS["exact"]):
    error: ClassVar[Exception] = ConfigError("no room", "make some")

    def make(self, slot):
        raise self.error


def test_a_mechanism_that_refuses_or_breaks_says_so_and_stops_nobody(monkeypatch):
    monkeypatch.setitem(MECHANISMS, "broken", Broken)
    case = Growing("broken", 16, causal=False, gradients=False, device="cpu")
    assert measure(case).failed == "refused: no room"
    monkeypatch.setattr(Broken, "error", RuntimeError("shapes do not fit\nat great length"))
    assert measure(case).failed == "failed: shapes do not fit"
    monkeypatch.setattr(Broken, "error", torch.OutOfMemoryError("CUDA out of memory"))
    assert measure(case).failed == "out of memory"
    row = growth._row(case, growth.Grown(failed="out of memory"), [])
    assert growth._hopeless(Growing("broken", 32, causal=False, gradients=False, device="cpu"), [row])


def test_what_is_known_is_not_measured_again_and_nothing_begins_after_the_time(monkeypatch):
    asked = []
    monkeypatch.setattr(growth._Processes, "measure", lambda self, case: asked.append(case) or growth.Grown((1.0,), 5))
    both = ["exact"]
    whole = list(growth.rows("cpu", [8, 16], mechanisms=both))
    assert len(asked) == 4
    assert [row.get("tokens") for row in whole] == [8, 8, 16, 16, None, None]
    again = list(growth.rows("cpu", [8, 16], mechanisms=both, known=json.loads(json.dumps(whole)), until=0.0))
    assert again == whole
    assert len(asked) == 4
    assert list(growth.rows("cpu", [8, 16], mechanisms=both, known=whole[:1], until=time.monotonic() - 1)) == whole[:1]


def test_curves_are_drawn_for_every_direction_with_time_and_memory():
    rows = grown("exact", {8: 1.0, 16: 4.0}) + grown("other", {8: 1.0, 16: 2.0})
    rows += [row | {"what": f"{WHAT}+backward"} for row in rows]
    figure = draw_growth(
        [*rows, {"what": WHAT, "contestant": "third", "tokens": 8, "figure": "out of memory"}], "Growth"
    )
    assert len(figure.axes) == 4
    assert [list(line.get_ydata()) for line in figure.axes[0].lines] == [[1.0, 4.0], [1.0, 2.0]]
    assert list(figure.axes[1].lines[0].get_ydata()) == [56e-6, 112e-6]


# The error on a text


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("error")
    (folder / "text.txt").write_text("the cat sat on the mat and looked at the moon\n" * 5)
    changes = ["training.steps=2", "training.batch_tokens=64", "model.width=16", "model.heads=2", "model.layers=2"]
    regard.train("gpt", folder / "run", changes=[*changes, "data.window=16"], data=[folder / "text.txt"])
    return folder


class Doubled(MECHANISMS["exact"]):
    """Exact attention, and as much again: its error is 1."""

    def make(self, slot):
        class Twice(regard.attention.exact.ExactAttention):
            def forward(self, inputs, state, context):
                out, state = super().forward(inputs, state, context)
                return 2 * out, state

        return Twice(slot)


def test_the_error_is_the_distance_from_what_exact_attention_gives_in_every_layer(trained, monkeypatch):
    monkeypatch.setitem(MECHANISMS, "doubled", Doubled)
    monkeypatch.setitem(MECHANISMS, "same", MECHANISMS["exact"])
    rows = {}
    for row in attention_error.rows(trained / "run", trained / "text.txt", "cpu", [23], ["doubled", "same"]):
        rows[row["contestant"]] = row
    assert rows["same"]["error"] == 0
    assert rows["doubled"]["layers"] == {"decoder.0.self": 1.0, "decoder.1.self": 1.0}
    assert rows["doubled"]["drawn"] == []


def test_what_a_mechanism_adds_that_the_model_never_learnt_is_left_out_or_named(trained):
    rows = attention_error.rows(trained / "run", trained / "text.txt", "cpu", [23], ["longformer", "gated_softmax"])
    found = {row["contestant"]: row for row in rows}
    assert found["longformer"]["error"] < 1e-5  # its window reaches all 23, and its global tokens read as all do
    assert found["longformer"]["drawn"] == []
    assert found["gated_softmax"]["figure"].endswith("; never learnt, so drawn: gate")


def test_a_length_that_the_text_does_not_have_is_refused(trained):
    with pytest.raises(InputError, match=r"has \d+ tokens and 5,000 are asked for"):
        list(attention_error.rows(trained / "run", trained / "text.txt", "cpu", [5000]))


# The command


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(attention, "rows", lambda device: iter([]))
    monkeypatch.setattr(
        growth._Processes, "measure", lambda self, case: growth.Grown((case.tokens * 1.0,), case.tokens)
    )


def test_the_command_prints_keeps_draws_and_goes_on(tmp_path, monkeypatch):
    out, picture = tmp_path / "grown.json", tmp_path / "grown.svg"
    command = ["bench", "attention", "--length", "8", "--length", "16", "--mechanism", "exact", "--device", "cpu"]
    done = CliRunner().invoke(app, [*command, "--out", str(out), "--to", str(picture)])
    assert done.exit_code == 0, done.output
    assert "exact, 16 tokens" in done.output
    assert "time n^1.00, memory n^1.00" in done.output
    assert picture.read_text().startswith("<?xml")
    kept = json.loads(out.read_text())["rows"]
    monkeypatch.setattr(growth._Processes, "measure", lambda self, case: pytest.fail("measured again"))
    again = CliRunner().invoke(app, [*command, "--out", str(out), "--resume", "--json"])
    assert json.loads(again.stdout)["rows"] == kept


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--on", "text.txt"], "--on alone measures nothing; give --model FOLDER as well"),
        (["--model", "run"], "--model alone measures nothing"),
        (["--on", "t", "--model", "m", "--causal"], "no effect on the error on a text"),
        (["--on", "t", "--model", "m", "--to", "x.png"], "--to draws curves by length"),
        (["--length", "0"], "a length of 0 has no tokens"),
        (["--mechanism", "exakt"], "mechanism 'exakt' is unknown; did you mean 'exact'"),
        (["--resume"], "name the file with --out"),
        (["--length", "8", "--to", "x.gif"], "'.gif' is not a known format"),
    ],
)
def test_an_option_without_effect_is_refused(arguments, said):
    done = CliRunner().invoke(app, ["bench", "attention", *arguments, "--device", "cpu"])
    assert isinstance(done.exception, RegardError)
    assert said in str(done.exception)


def test_other_subjects_measure_no_mechanisms():
    done = CliRunner().invoke(app, ["bench", "train", "--length", "8", "--device", "cpu"])
    assert "`bench train` measures no mechanisms" in str(done.exception)
    assert not MechanismsAsked([], [], False, None, None, None, False).anything
    assert "torch" in sys.modules
