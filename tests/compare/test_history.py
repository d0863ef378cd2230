"""The ladder from RNN to Transformer: its measurements against closed forms, its sentences, and that it goes on."""

import json
import math
import signal
from pathlib import Path

import pytest
import torch

from regard.compare import climb as climbing
from regard.compare import history as ladders
from regard.compare import rungs, sentences
from regard.compare.bootstrap import band
from regard.compare.chain import longest_chain, sequential_operations
from regard.compare.climb import Climb, Entry, SilentClimb, Tally
from regard.compare.gradients import gradient_norms, unit_directions
from regard.compare.history import Scale, history, ladder, ranges_of, shares
from regard.compare.history_page import shown
from regard.compare.probe import probe
from regard.compare.rates import search
from regard.compare.shown import ComparisonView
from regard.data import stream
from regard.errors import FileError, InputError
from regard.training.interrupt import Interrupt, Stopped

TINY = [
    *("training.steps=4", "training.evaluate_every=2", "training.save_every=2", "training.batch_tokens=64"),
    *("training.warmup=1", "training.device=cpu", "model.width=8", "data.options.held_out=12"),
    *("data.options.longest=7", "tokenizer.sample=200"),
]
SMALL_RECURRENT, SMALL_TRANSFORMER = ["model.embedding_width=6"], ["model.heads=2", "model.feedforward_width=12"]
SCALE = Scale(distances=(2, 6, 14), gradient_rows=2, lengths=(4, 16), batch_tokens=32)
OUTPUTS = ["history.html", "history.json", "history.png"]


def tiny_ladder() -> list[Entry]:
    recurrent = [rungs.rung(name, None, [*TINY, *SMALL_RECURRENT]) for name in list(rungs.MODELS)[:4]]
    return [*recurrent, rungs.rung("transformer", None, [*TINY, *SMALL_TRANSFORMER])]


class Watching(SilentClimb):
    """A listener that remembers what happened, and may ask for a stop."""

    def __init__(self, stop_at: tuple[str, int] | None = None, interrupt: Interrupt | None = None) -> None:
        self.steps: list[tuple[str, int]] = []
        self.measured: list[str] = []
        self.stop_at, self.interrupt, self.name = stop_at, interrupt, ""

    def begin(self, entry: Entry) -> None:
        self.name = entry.name

    def __call__(self, report) -> None:
        self.steps.append((self.name, report.step))
        if (self.name, report.step) == self.stop_at:
            self.interrupt.ask(signal.SIGINT)

    def measuring(self, what: str) -> None:
        self.measured.append(f"{self.name}: {what}")


@pytest.fixture(autouse=True, scope="module")
def _small_pools():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "POOL", 64)
        yield


@pytest.fixture(scope="module")
def climbed(tmp_path_factory) -> tuple[Path, ComparisonView]:
    """A ladder that was climbed to its end."""
    folder = tmp_path_factory.mktemp("history")
    found = shown(history(Climb(folder, tiny_ladder()), SCALE))
    found.write(folder, "history")
    return folder, found


# The whole


def test_table_picture_page_and_json_have_the_same_numbers(climbed):
    folder, found = climbed
    assert sorted(path.name for path in folder.iterdir() if path.is_file()) == OUTPUTS
    record = json.loads((folder / "history.json").read_text())
    assert [one["rung"] for one in record["rungs"]] == ["rnn", "lstm", "gru", "attention", "transformer"]
    page = (folder / "history.html").read_text()
    numbers = page.partition('id="numbers">')[2].partition("</script>")[0]
    assert json.loads(numbers) == record
    assert (folder / "history.png").read_bytes().startswith(b"\x89PNG")
    for row, rung in zip(found.rows, record["rungs"], strict=True):
        assert row[0] == rung["name"]
        assert [f"{100 * one['exact']:.1f} %" for one in rung["thirds"]] == list(row[2:5])
        assert f"{rung['parameters']:,}" in row
        assert all(f"<td>{cell}</td>" in page for cell in row[1:])
        assert rung["sequential_operations"]["4"] == int(row[6].replace(",", ""))
    for panel, sentence in zip(found.panels, record["sentences"].values(), strict=True):
        assert panel.sentence == sentence
        assert sentence.replace("'", "&#x27;") in page


def test_the_page_needs_no_network_and_runs_no_script(climbed):
    page = (climbed[0] / "history.html").read_text()
    assert "default-src 'none'" in page
    assert "://" not in page.replace("http://www.w3.org", "")
    assert page.count("<script") == 1


def test_what_is_drawn_is_what_was_measured(climbed):
    record = json.loads((climbed[0] / "history.json").read_text())
    axes = climbed[1].figure().axes
    assert len(axes) == 1 + 2 + 2 + 3
    for rung, *lines in zip(record["rungs"], *(one.lines for one in axes[:5]), strict=True):
        kept = [
            [one["exact"] for one in rung["buckets"]],
            list(rung["gradient_norm"].values()),
            list(rung["gradient_norm_trained"].values()),
            list(rung["sequential_operations"].values()),
            list(rung["microseconds_per_token"].values()),
        ]
        assert [list(line.get_ydata()) for line in lines] == kept
    widths = [[bar.get_width() for bar in one.patches] for one in axes[5:]]
    keys = ("parameters", "tokens_per_second", "seconds")
    assert widths == [[rung[key] for rung in record["rungs"]] for key in keys]


def test_a_second_call_trains_and_measures_nothing_and_says_the_same(climbed):
    folder, found = climbed
    listener = Watching()
    again = shown(history(Climb(folder, tiny_ladder(), listener), SCALE))
    assert (listener.steps, listener.measured) == ([], [])
    assert again.record == found.record


def test_a_climb_that_was_stopped_goes_on_where_it_was(climbed, tmp_path):
    entries, interrupt = tiny_ladder()[:2], Interrupt()
    first = Watching(("lstm", 2), interrupt)  # heeded after the step that is then under way
    with pytest.raises(Stopped):
        Climb(tmp_path, entries, first, interrupt).run(ladders.measures(SCALE))
    second = Watching()
    found = Climb(tmp_path, entries, second).run(ladders.measures(SCALE))
    assert first.steps == [("rnn", 1), ("rnn", 2), ("rnn", 3), ("rnn", 4), ("lstm", 1), ("lstm", 2), ("lstm", 3)]
    assert second.steps == [("lstm", 4)]
    whole = json.loads((climbed[0] / "lstm" / "measured.json").read_text())
    assert (found["lstm"]["gradients"], found["lstm"]["quality"]) == (whole["gradients"], whole["quality"])
    assert found["lstm"]["training"]["tokens"] == whole["training"]["tokens"]
    assert found["lstm"]["training"]["validation_loss"] == whole["training"]["validation_loss"]


def test_a_stop_in_the_last_step_keeps_the_run_and_measures_nothing(tmp_path):
    interrupt = Interrupt()
    listener = Watching(("rnn", 4), interrupt)
    with pytest.raises(Stopped):
        Climb(tmp_path, tiny_ladder()[:1], listener, interrupt).run({"one": lambda model: 1})
    assert listener.measured == []
    again = Watching()
    assert Climb(tmp_path, tiny_ladder()[:1], again).run({"one": lambda model: 1})["rnn"]["one"] == 1
    assert (again.steps, again.measured) == ([], ["rnn: one"])


def test_a_measurement_that_is_missing_is_the_only_one_made(climbed, tmp_path):
    entries = tiny_ladder()[:1]
    Climb(tmp_path, entries).run({"one": lambda model: 1})
    listener = Watching()
    found = Climb(tmp_path, entries, listener).run({"one": lambda model: 3, "two": lambda model: 2})
    assert (listener.measured, found["rnn"]["one"], found["rnn"]["two"]) == (["rnn: two"], 1, 2)


def test_a_folder_of_another_budget_is_refused(climbed):
    other = [rungs.rung("rnn", None, [*TINY, *SMALL_RECURRENT, "training.steps=5"])]
    with pytest.raises(FileError, match="holds a run of another recipe"):
        Climb(climbed[0], other).run({})


def test_a_tally_counts_over_calls_and_fills_in_what_was_lost(tmp_path):
    tally = Tally(SilentClimb(), tmp_path / "spent.json")
    tally.steps, tally.tokens, tally.seconds = 3, 30, 1.5
    tally.keep(11)
    tally.keep(7)
    assert Tally(SilentClimb(), tmp_path / "spent.json").totals(4) == {
        "tokens": 40,
        "seconds": 2.0,
        "peak_bytes": 11,
    }


def test_the_search_of_rates_puts_the_best_first(tmp_path, monkeypatch):
    monkeypatch.setattr(climbing.Climb, "run", lambda self, measures: {
        entry.name: {"exact_match": {"gru-0.1": 0.5}.get(entry.name, 0.25), "training": {"validation_loss": 1.0}}
        for entry in self.entries
    })  # fmt: skip
    found = search(["gru"], [0.2, 0.1], tmp_path, [], SilentClimb(), Interrupt())
    assert [(one["learning_rate"], one["exact_match"]) for one in found] == [(0.1, 0.5), (0.2, 0.25)]


def test_every_rung_has_its_best_of_three_rates():
    assert set(rungs.BEST) == set(rungs.MODELS) == set(rungs.NAMES)
    assert set(rungs.BEST.values()) <= set(rungs.RATES)
    assert len(rungs.RATES) == 3
    assert [entry.recipe.training.learning_rate for entry in ladder()] == list(rungs.BEST.values())
    budgets = {str(entry.recipe.training.model_copy(update={"learning_rate": 1.0})) for entry in ladder()}
    assert len(budgets) == 1


def test_an_unknown_rung_is_refused_with_the_nearest():
    with pytest.raises(InputError, match="there is no rung 'grue'; did you mean 'gru'"):
        rungs.rung("grue")


# 1  Quality: bands


@pytest.mark.parametrize(("right", "of"), [(13, 50), (97, 100), (5, 11), (0, 7)])
def test_a_band_is_that_of_the_binomial_distribution(right, of):
    """The mean of resamples of 0s and 1s is a binomial variable over their number."""
    low, high = band([1] * right + [0] * (of - right), seed=3)
    share, below, expected = right / of, 0.0, []
    for count in range(of + 1):
        chance = math.comb(of, count) * share**count * (1 - share) ** (of - count)
        expected += [count / of for bound in (0.025, 0.975) if below < bound <= below + chance]
        below += chance
    assert low == pytest.approx(expected[0], abs=1.01 / of)
    assert high == pytest.approx(expected[-1], abs=1.01 / of)


def test_lengths_are_divided_without_gap_or_overlap():
    assert ranges_of(2, 20, 3) == [(2, 7), (8, 13), (14, 20)]
    assert ranges_of(3, 4, 9) == [(3, 3), (4, 4)]
    found = {"length": [2, 3, 4, 5, 5], "exact": [1, 1, 0, 0, 1], "letters": [1, 1, 0.5, 0, 1]}
    one, other = shares(found, [(2, 3), (4, 5)])
    assert (one.rows, one.exact, one.letters) == (2, 1.0, 1.0)
    assert (other.rows, other.exact, other.letters) == (3, pytest.approx(1 / 3), pytest.approx(0.5))


@pytest.mark.parametrize(("answer", "share"), [("a b c", 1.0), ("a c c", 2 / 3), ("a b", 2 / 3), ("", 0.0)])
def test_letters_count_where_they_stand_at_their_place(answer, share):
    assert ladders.letters_right(answer, "a b c") == pytest.approx(share)


# 2  Gradients


def built(name: str, *changes: str):
    small = SMALL_TRANSFORMER if name == "transformer" else SMALL_RECURRENT
    torch.manual_seed(5)
    return rungs.rung(name, None, [*TINY, *small, *changes]).recipe.model.built_for(11).build()


@pytest.mark.parametrize("name", rungs.MODELS)
def test_the_gradient_is_that_of_central_differences(name):
    """Each number of the source token's embedding moved a little, by hand, one row at a time."""
    module, inputs, output, needed = built(name).double().eval(), probe(11, rows=2, length=5), 3, 1
    (found,) = gradient_norms(module, inputs, [(output, needed)], directions=2, seed=7)
    directions, width = unit_directions(2, module.hidden(inputs).shape[-1], 7), module.embedding.weight.shape[1]
    moved = torch.zeros(2, 5, width, dtype=torch.float64)

    def move(_, args, result):
        return result + moved if args[0] is inputs.source.ids else result

    handle = module.embedding.register_forward_hook(move)
    gradient = torch.zeros(2, 2, width)  # directions, rows, width
    with torch.no_grad():
        for place in range(width):
            ends = []
            for step in (1e-5, -1e-5):
                moved[:, needed, place] = step
                ends.append(module.hidden(inputs)[:, output] @ directions.T)
            moved[:, needed, place] = 0
            gradient[:, :, place] = ((ends[0] - ends[1]) / 2e-5).T
    handle.remove()
    assert found == pytest.approx(float(gradient.norm(dim=2).mean()), rel=1e-4)


def test_the_gradient_does_not_know_the_loss():
    """A readout that is certain of its answer has the same gradient as one that is not: logits are not asked."""
    module, inputs = built("gru"), probe(11, rows=2, length=5)
    before = gradient_norms(module, inputs, [(2, 2)])
    module.embedding.logits = None
    assert gradient_norms(module, inputs, [(2, 2)]) == before


def test_the_letter_that_is_needed_is_the_same_and_its_distance_counts_every_token_between():
    pair = rungs.pairs_of(7, 1)[0]
    source, target = pair.source.split(), pair.target.split()
    assert [source[rungs.needed(place, 7)] for place in range(7)] == target
    read = [*source, "<eos>", "<bos>", *target]
    for place in range(7):
        assert rungs.distance(place, 7) == read.index("<bos>") + place - rungs.needed(place, 7)


# 3  Operations


def test_the_longest_chain_of_a_graph_written_by_hand():
    start = torch.ones(3, requires_grad=True)
    one = (start * 2).exp()
    assert longest_chain(one) == 2
    assert longest_chain(one.sin().cos() + start) == 5
    assert longest_chain(start.detach()) == 0


def test_every_added_tanh_is_one_more():
    value = torch.ones(2, requires_grad=True)
    chains = []
    for _ in range(4):
        value = value.tanh()
        chains.append(longest_chain(value))
    assert chains == [1, 2, 3, 4]


@pytest.mark.parametrize("name", ["rnn", "lstm", "gru", "attention"])
def test_the_chain_of_a_recurrent_network_grows_by_as_much_for_every_token(name):
    module = built(name)
    four, eight, sixteen = (sequential_operations(module, length) for length in (4, 8, 16))
    assert sixteen - eight == 2 * (eight - four) >= 2 * 2 * 4  # at least one operation for a token read and written


def test_the_chain_of_a_transformer_is_the_same_at_every_length():
    module = built("transformer")
    assert len({sequential_operations(module, length) for length in (2, 8, 32)}) == 1


def test_probes_have_their_size_and_are_the_same_again():
    one, again = probe(11, rows=3, length=5), probe(11, rows=3, length=5)
    assert one.tokens.ids.shape == one.source.ids.shape == (3, 5)
    assert torch.equal(one.tokens.ids, again.tokens.ids)
    assert not one.tokens.ragged


# Sentences


def thirds(short: float, long: float) -> list[tuple[int, int, float]]:
    return [(2, 7, short), (8, 13, 0.5), (14, 20, long)]


@pytest.mark.parametrize(
    ("fixed", "attending", "begins"),
    [
        ((0.97, 0.10), (1.0, 0.99), "The fixed vector forgets and attention does not"),
        ((0.70, 0.10), (1.0, 0.99), "Attention is ahead on long rows and already on short ones"),
        ((0.97, 0.90), (1.0, 0.99), "That a fixed vector forgets does not show here"),
        ((0.97, 0.99), (1.0, 0.10), "That a fixed vector forgets does not show here"),
        ((0.0, 0.0), (0.0, 0.0), "That a fixed vector forgets does not show here"),
    ],
)
def test_what_is_said_of_quality(fixed, attending, begins):
    said = sentences.on_quality({"gru": thirds(*fixed), "attention": thirds(*attending)})
    assert said.startswith(begins)
    assert all(f"{100 * share:.1f} %" in said for share in (*fixed, *attending))
    assert "14 to 20 letters" in said


def test_what_is_said_of_gradients():
    norms = {"rnn": {8: 1.0, 100: 1e-9}, "lstm": {8: 1.0, 100: 1e-4}, "gru": {8: 1.0, 100: 2e-9}}
    flat = {8: 1.0, 100: 1e-2}
    after = {"rnn": {8: 1.0, 100: 1e-2}, "attention": {8: 1.0, 100: 5e-2}}
    said = sentences.on_gradients({**norms, "attention": flat, "transformer": flat}, after)
    assert said.startswith("Where training begins, 100 tokens away, the plain RNN's gradient is 10⁷× below that of GRU")
    assert "that of GRU + attention; gates help" in said
    assert "the LSTM's is 100,000× the RNN's" in said
    assert said.endswith("but not the GRU's; after training it is 5.0× below that of GRU + attention.")
    absent = sentences.on_gradients(
        {**norms, "rnn": {8: 1.0, 100: 1e-3}, "attention": flat, "transformer": flat}, after
    )
    assert absent.startswith(
        "The plain RNN's gradient does not vanish here: where training begins, 100 tokens away, it"
    )
    assert "it is 10.0× below that of GRU + attention; after" in absent
    above = sentences.on_gradients({**norms, "rnn": {8: 1.0, 100: 1e-1}, "attention": flat, "transformer": flat}, after)
    assert "it is 10.0× above that of GRU + attention; after" in above
    useless = sentences.on_gradients({key: {100: 1e-9 if key != "attention" else 1.0} for key in rungs.MODELS}, after)
    assert "gates do not help; " in useless
    gone = sentences.on_gradients({key: {100: 0.0 if key == "rnn" else 1.0} for key in rungs.MODELS}, after)
    assert "infinitely many times below" in gone


def test_what_is_said_of_operations_and_time():
    operations = {"rnn": {8: 80, 1024: 6000}, "transformer": {8: 113, 1024: 113}}
    times = {
        "rnn": {8: 10.0, 1024: 60.0},
        "attention": {8: 10.0, 1024: 300.0},
        "transformer": {8: 20.0, 1024: 30.0},
    }
    said = sentences.on_time(operations, times)
    assert said == (
        "From 8 to 1,024 tokens the longest chain of operations goes from 80 to 6,000 in the RNN and stays at 113 in "
        "the Transformer; a token takes 6.0× as long in the RNN, 30× in GRU + attention and 1.5× in the Transformer."
    )
    for factors in ((2.0, 5.0, 1.5), (6.0, 5.0, 3.0)):
        grown = dict(zip(times, factors, strict=True))
        absent = sentences.on_time(operations, {key: {8: 1.0, 1024: factor} for key, factor in grown.items()})
        assert "the expected gap in time does not show" in absent
        assert all(f"{factor:.1f}×" in absent for factor in factors)


def test_what_is_said_of_cost():
    training = {key: {"tokens_per_second": 1000.0, "parameters": 7} for key in rungs.MODELS}
    assert sentences.on_cost(training) == "All train about equally fast, 1,000 to 1,000 tokens a second."
    training["gru"] = {"tokens_per_second": 5000.0, "parameters": 3}
    said = sentences.on_cost(training)
    assert said.startswith("The GRU trains fastest, on 5,000 tokens a second with 3 parameters, the RNN slowest")
