"""The loop: it learns, it records, it keeps the best and the last, and a resumed run equals an undisturbed one."""

import json
import math
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from regard.data import stream
from regard.data.batching import IGNORED, Batch, Inputs, Padded
from regard.data.corpus import corpus
from regard.data.objectives import SourceToTarget
from regard.data.stream import BatchStream, Position, by_length
from regard.errors import InputError
from regard.models.config import TransformerConfig
from regard.models.transformer import Transformer
from regard.tasks.translation import held_out, train_tokenizer
from regard.training.loop import Listener, Report, Run, Silent, backward
from regard.training.plan import TrainingPlan
from regard.training.schedules import factor
from regard.training.trainable import Loss, TokenPrediction


@pytest.fixture(autouse=True)
def _small_pools(monkeypatch):
    monkeypatch.setattr(stream, "POOL", 128)


@dataclass
class Ear:
    """A listener that remembers."""

    reports: list[Report] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def __call__(self, report: Report) -> None:
        self.reports.append(report)

    def say(self, sentence: str) -> None:
        self.said.append(sentence)


# A real model on a small corpus

LETTERS = corpus("copy", {"symbols": 5, "shortest": 2, "longest": 6, "held_out": 23})
TOKENIZER = train_tokenizer(LETTERS, 270, 53)
HOW = SourceToTarget(TOKENIZER)
VALID = [HOW.batch(batch) for batch in by_length(HOW.encode(held_out(LETTERS, "valid")), HOW, 256)]
PLAN = {
    "steps": 9,
    "learning_rate": 3e-3,
    "warmup": 3,
    "schedule": "cosine",
    "evaluate_every": 4,
    "save_every": 3,
    "keep": 3,
    "batch_tokens": 128,
}


def real(folder: Path, *, listener: Listener | None = None, seed: int = 7, **plan: object) -> Run:
    """A tiny translator with dropout, so that the random state matters."""
    torch.manual_seed(seed)
    shape = TransformerConfig(vocabulary=TOKENIZER.size, width=16, heads=2, layers=1, feedforward_width=11, dropout=0.2)
    whole = TrainingPlan.model_validate(PLAN | plan)
    batches = BatchStream(LETTERS, HOW, whole.batch_tokens)
    return Run(
        TokenPrediction(Transformer(shape), label_smoothing=0.1), batches, VALID, whole, folder, listener or Ear()
    )


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "POOL", 128)
        folder = tmp_path_factory.mktemp("undisturbed")
        real(folder).fit()
        return folder


def lines(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def losses(folder: Path) -> list[dict[str, float]]:
    """The metrics that must be equal in two runs: all but the speed."""
    return [{key: value for key, value in line.items() if key != "tokens_per_second"} for line in lines(folder)]


def states(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "state").iterdir())


def assert_same_run(one: Path, other: Path) -> None:
    """Bit for bit: the best weights, the last state, the recorded losses."""
    files = ["model.safetensors", *(f"state/step-9/{name}.safetensors" for name in ("model", "optimizer", "random"))]
    for name in files:
        first, second = load_file(one / name), load_file(other / name)
        assert first.keys() == second.keys()
        assert all(torch.equal(first[key], second[key]) for key in first), name
    assert losses(one) == losses(other)


def test_a_small_model_learns_to_copy(tmp_path):
    ear = Ear()
    real(tmp_path, listener=ear, steps=120, evaluate_every=60, save_every=120, learning_rate=1e-2).fit()
    uniform = math.log(TOKENIZER.size)
    assert ear.reports[0].loss > 0.9 * uniform
    assert ear.reports[-1].validation["loss"] < ear.reports[59].validation["loss"] < uniform
    assert ear.reports[-1].validation["loss"] < math.log(5), "better than guessing among the five letters"


def test_every_step_has_one_line_and_validations_stand_where_they_were_made(undisturbed):
    found = lines(undisturbed)
    assert [line["step"] for line in found] == list(range(1, 10))
    assert [line["step"] for line in found if "validation_loss" in line] == [4, 8, 9]
    rates = [3e-3 * factor("cosine", step, warmup=3, steps=9) for step in range(1, 10)]
    assert [line["rate"] for line in found] == rates
    assert all(line["tokens_per_second"] > 0 for line in found)


def test_the_listener_hears_every_step_as_it_is_recorded(tmp_path, undisturbed):
    ear = Ear()
    real(tmp_path, listener=ear).fit()
    heard = [{"step": report.step, "loss": report.loss, "rate": report.rate} for report in ear.reports]
    assert heard == [{key: line[key] for key in ("step", "loss", "rate")} for line in lines(undisturbed)]
    assert {report.steps for report in ear.reports} == {9}
    assert isinstance(ear, Listener)
    assert isinstance(Silent(), Listener)
    assert_same_run(tmp_path, undisturbed)


@pytest.mark.parametrize(
    ("keep", "kept"), [(1, ["step-9"]), (2, ["step-6", "step-9"]), (5, ["step-3", "step-6", "step-9"])]
)
def test_as_many_states_are_kept_as_asked_for(tmp_path, keep, kept):
    real(tmp_path, keep=keep).fit()
    assert states(tmp_path) == kept


def test_the_last_step_is_always_validated_and_saved(tmp_path):
    real(tmp_path, steps=5).fit()
    assert states(tmp_path) == ["step-3", "step-5"]
    assert [line["step"] for line in lines(tmp_path) if "validation_loss" in line] == [4, 5]


@pytest.mark.parametrize("stops", [[3], [4], [8], [1, 2, 5, 7]])
def test_a_run_stopped_anywhere_and_resumed_equals_an_undisturbed_one(tmp_path, undisturbed, stops):
    """Other weights and another random state before each start: everything comes from the state."""
    for number, stop in enumerate(stops):
        real(tmp_path, seed=7 if not list(tmp_path.glob("state/step-*")) else 100 + number).fit(until=stop)
    ear = Ear()
    fresh = not list(tmp_path.glob("state/step-*"))
    real(tmp_path, seed=7 if fresh else 200, listener=ear).fit()
    assert_same_run(tmp_path, undisturbed)
    assert ear.said == [] if fresh else ear.said[0].startswith("resuming after step")


def test_resuming_a_finished_run_changes_nothing(tmp_path, undisturbed):
    folder = tmp_path / "run"
    shutil.copytree(undisturbed, folder)
    ear = Ear()
    real(folder, listener=ear, seed=11).fit()
    assert_same_run(folder, undisturbed)
    assert lines(folder) == lines(undisturbed)
    assert ear.reports == []


def test_half_written_files_of_a_killed_run_are_removed_and_a_cut_line_too(tmp_path, undisturbed):
    folder = tmp_path / "run"
    shutil.copytree(undisturbed, folder)
    shutil.rmtree(folder / "state" / "step-9")
    (folder / ".partial-7-model.safetensors").write_bytes(b"half")
    (folder / "state" / ".partial-7-step-9").mkdir()
    (folder / "state" / ".partial-7-step-9" / "model.safetensors").write_bytes(b"half")
    with (folder / "metrics.jsonl").open("ab") as metrics:
        metrics.write(b'{"step": 10, "lo\xff')
    real(folder, seed=11).fit()
    assert_same_run(folder, undisturbed)
    assert [path for path in folder.rglob("*") if path.name.startswith(".partial")] == []


# Damage


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


DAMAGE = {
    "weights cut": lambda state: cut(state / "model.safetensors"),
    "optimizer cut": lambda state: cut(state / "optimizer.safetensors"),
    "random state missing": lambda state: (state / "random.safetensors").unlink(),
    "random state of another kind": lambda state: shutil.copy(
        state / "model.safetensors", state / "random.safetensors"
    ),
    "optimizer of another kind": lambda state: shutil.copy(
        state / "model.safetensors", state / "optimizer.safetensors"
    ),
    "progress cut": lambda state: cut(state / "progress.json"),
    "progress without position": lambda state: (state / "progress.json").write_text('{"step": 9, "best": 1.0}'),
    "progress of another kind": lambda state: (state / "progress.json").write_text(
        '{"step": 9, "best": 1.0, "position": {"page": 3}}'
    ),
    "all files missing": lambda state: [file.unlink() for file in state.iterdir()],
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_state_is_named_and_the_one_before_it_used(tmp_path, undisturbed, damage):
    folder = tmp_path / "run"
    shutil.copytree(undisturbed, folder)
    DAMAGE[damage](folder / "state" / "step-9")
    ear = Ear()
    real(folder, listener=ear, seed=11).fit()
    assert str(folder / "state" / "step-9") in ear.said[0]
    assert "falling back to the state before it" in ear.said[0]
    assert ear.said[1:] == ["resuming after step 6"]
    assert [report.step for report in ear.reports] == [7, 8, 9]
    assert_same_run(folder, undisturbed)


def test_if_all_states_are_damaged_the_run_starts_again_and_says_so(tmp_path, undisturbed):
    folder = tmp_path / "run"
    shutil.copytree(undisturbed, folder)
    for state in (folder / "state").iterdir():
        DAMAGE["random state of another kind"](state)
    ear = Ear()
    real(folder, listener=ear).fit()
    assert len(ear.said) == 4
    assert ear.said[-1] == "no state can be used; starting again from the beginning"
    assert_same_run(folder, undisturbed)


def test_a_damaged_state_is_never_kept_in_place_of_a_good_one(tmp_path, undisturbed):
    """After the fall back to 6, step 7 is saved; with `keep=1` the damaged 9 must not push it out."""
    folder = tmp_path / "run"
    shutil.copytree(undisturbed, folder)
    DAMAGE["weights cut"](folder / "state" / "step-9")
    real(folder, keep=1, save_every=1, seed=11).fit(until=7)
    ear = Ear()
    real(folder, keep=1, save_every=1, seed=12, listener=ear).fit()
    assert ear.said[-1] == "resuming after step 7"
    assert states(folder) == ["step-9"]
    assert_same_run(folder, undisturbed)


def test_a_folder_that_is_no_state_is_left_alone(tmp_path, undisturbed):
    folder = tmp_path / "run"
    shutil.copytree(undisturbed, folder)
    shutil.move(folder / "state" / "step-9", folder / "state" / "step-9-copy")
    real(folder, seed=11).fit()
    assert_same_run(folder, undisturbed)
    assert (folder / "state" / "step-9-copy" / "model.safetensors").is_file()


# A model of one number, whose course is known


class Climber(nn.Module):
    """One number that training pushes up by the learning rate at every step; validation likes it best at 0.31."""

    def __init__(self) -> None:
        super().__init__()
        self.place = nn.Parameter(torch.zeros(()))


@dataclass
class Climb:
    module: Climber
    fails_at: float = math.inf

    def loss(self, batch: Batch) -> Loss:
        place = self.module.place
        if float(place.detach()) > self.fails_at:
            return Loss(place * math.nan, 3)
        return Loss(-place * 3 if self.module.training else (place - 0.31) ** 2 * batch.count, batch.count)


BATCH = Batch(Inputs(Padded.of([[1, 2, 3]])), torch.tensor([[5, 6, 7]]))


@dataclass(frozen=True)
class Same:
    """The same batches for ever."""

    batches: tuple[Batch, ...] = (BATCH,)

    def start(self, position: Position) -> Iterator[tuple[Batch, Position]]:
        number = position.batch
        while True:
            yield self.batches[number % len(self.batches)], Position(0, number + 1)
            number += 1


def climb(folder: Path, **plan: object) -> Run:
    fixed = {"steps": 7, "learning_rate": 0.1, "warmup": 0, "schedule": "constant", "weight_decay": 0.0}
    fixed |= {"evaluate_every": 1, "save_every": 1}
    return Run(Climb(Climber()), Same(), [BATCH], TrainingPlan.model_validate(fixed | plan), folder, Ear())


def test_the_best_model_by_validation_is_kept_and_the_last_is_in_the_state(tmp_path):
    progress = climb(tmp_path).fit()
    best, last = (
        load_file(tmp_path / name)["place"] for name in ("model.safetensors", "state/step-7/model.safetensors")
    )
    assert float(best) == pytest.approx(0.3, abs=1e-5)
    assert float(last) == pytest.approx(0.7, abs=1e-5)
    assert (
        progress.best
        == min(line["validation_loss"] for line in lines(tmp_path))
        == lines(tmp_path)[2]["validation_loss"]
    )


def test_what_was_best_is_remembered_across_a_resume(tmp_path):
    climb(tmp_path).fit(until=4)
    climb(tmp_path).fit()
    assert float(load_file(tmp_path / "model.safetensors")["place"]) == pytest.approx(0.3, abs=1e-5)


def test_a_loss_that_is_not_a_number_stops_the_run_in_a_sentence_and_harms_nothing(tmp_path):
    run = climb(tmp_path)
    run.trainable.fails_at = 0.45
    with pytest.raises(
        InputError, match=r"the loss became nan; lower training\.learning_rate or raise training\.warmup"
    ):
        run.fit()
    assert [line["step"] for line in lines(tmp_path)] == [1, 2, 3, 4, 5]
    assert states(tmp_path) == ["step-4", "step-5"]
    assert float(load_file(tmp_path / "model.safetensors")["place"]) == pytest.approx(0.3, abs=1e-5)


def test_validation_is_a_mean_over_tokens_not_over_batches(tmp_path):
    class Counted:
        def __init__(self) -> None:
            self.module = Climber()

        def loss(self, batch: Batch) -> Loss:
            assert not self.module.training
            return Loss(batch.targets[batch.targets != IGNORED].float().sum(), batch.count)

    tokens = Inputs(Padded.of([[1, 2, 3]]))
    batches = [Batch(tokens, torch.tensor([[2, IGNORED, IGNORED]])), Batch(tokens, torch.tensor([[5, 5, 5]]))]
    run = Run(Counted(), Same(), batches, TrainingPlan(), tmp_path, Ear())
    assert run.validate() == (2 + 15) / 4
    assert run.trainable.module.training, "training goes on where it was"


def test_the_gradient_that_reaches_the_optimizer_is_the_mean_clipped_to_its_norm(tmp_path):
    norms: list[float] = []

    def note(optimizer: torch.optim.Optimizer, *_: object) -> None:
        grads = [one.grad for group in optimizer.param_groups for one in group["params"]]
        norms.append(float(torch.stack([grad.norm() for grad in grads]).norm()))

    handle = register_optimizer_step_pre_hook(note)
    try:
        climb(tmp_path / "unclipped", steps=1, clip=2.0).fit()
        climb(tmp_path / "clipped", steps=1, clip=0.25).fit()
        real(tmp_path / "real", steps=2, clip=0.0625).fit()
    finally:
        handle.remove()
    assert norms == pytest.approx([1.0, 0.25, 0.0625, 0.0625], rel=1e-4)


# Micro-batches


def double() -> TokenPrediction:
    torch.manual_seed(5)
    shape = TransformerConfig(vocabulary=TOKENIZER.size, width=6, heads=3, layers=1, dropout=0.0)
    return TokenPrediction(Transformer(shape).double(), label_smoothing=0.1)


def halves() -> tuple[Batch, tuple[Batch, Batch]]:
    """Seven examples of unequal lengths in one batch, and the same in two of three and four."""
    examples = HOW.encode([LETTERS.example("train", index) for index in range(7)])
    return HOW.batch(examples), (HOW.batch(examples[:3]), HOW.batch(examples[3:]))


def test_gradients_of_a_batch_are_those_of_its_parts():
    whole, parts = halves()
    one, other = double(), double()
    sums = backward(one, [whole], TrainingPlan()), backward(other, list(parts), TrainingPlan())
    assert sums[0].count == sums[1].count == whole.count
    assert float(sums[0].sum) == pytest.approx(float(sums[1].sum), rel=1e-12)
    for first, second in zip(one.module.parameters(), other.module.parameters(), strict=True):
        torch.testing.assert_close(first.grad, second.grad, rtol=1e-10, atol=1e-12)


def test_accumulated_micro_batches_train_as_one_big_batch_does(tmp_path):
    whole, parts = halves()
    plan = {"steps": 5, "warmup": 2, "evaluate_every": 5, "save_every": 5}
    ended = {}
    for accumulate, batches in ((1, (whole,)), (2, parts)):
        settings = TrainingPlan.model_validate(plan | {"accumulate": accumulate})
        run = Run(double(), Same(batches), [whole], settings, tmp_path / str(accumulate), Ear())
        progress = run.fit()
        assert progress.position == Position(0, 5 * accumulate)
        ended[accumulate] = run.trainable.module.state_dict()
    for name, tensor in ended[1].items():
        torch.testing.assert_close(tensor, ended[2][name], rtol=1e-8, atol=1e-10)
    recorded = [[line["loss"] for line in lines(tmp_path / str(accumulate))] for accumulate in (1, 2)]
    assert recorded[0] == pytest.approx(recorded[1], rel=1e-10)
