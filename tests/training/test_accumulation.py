"""However a batch is divided, its loss and its gradients are the same numbers: sums are added and divided once."""

import pytest
import torch
from tiny_runs import HOW, LETTERS, TOKENIZER, Ear, Same, lines

from regard.data.batching import Batch
from regard.data.stream import Position
from regard.models.config import TransformerConfig
from regard.models.transformer import Transformer
from regard.training.loop import Run
from regard.training.plan import TrainingPlan
from regard.training.trainable import TokenPrediction
from regard.training.updater import backward


def double(smoothing: float = 0.1) -> TokenPrediction:
    torch.manual_seed(5)
    shape = TransformerConfig(vocabulary=TOKENIZER.size, width=6, heads=3, layers=1, dropout=0.0)
    return TokenPrediction(Transformer(shape).double(), label_smoothing=smoothing)


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


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize(("rows", "parts"), [(16, 2), (4, 8)])
def test_32_rows_at_once_and_in_parts_of_unequal_counts_are_one_loss_and_one_gradient(rows, parts, smoothing):
    examples = HOW.encode([LETTERS.example("train", index) for index in range(32)])
    whole = HOW.batch(examples)
    pieces = [HOW.batch(examples[first : first + rows]) for first in range(0, 32, rows)]
    assert len(pieces) == parts
    assert len({piece.count for piece in pieces}) > 1, "the law is trivial for equal counts"
    one, other = double(smoothing), double(smoothing)
    first, second = backward(one, [whole], TrainingPlan()), backward(other, pieces, TrainingPlan())
    assert first.count == second.count == whole.count
    assert first.mean == pytest.approx(second.mean, rel=1e-6)
    for a, b in zip(one.module.parameters(), other.module.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-6, atol=1e-12)
    means = [backward(double(smoothing), [piece], TrainingPlan()).mean for piece in pieces]
    assert sum(means) / parts != pytest.approx(first.mean, rel=1e-4), "a mean of means is another number"


def test_parts_of_nothing_but_ignored_targets_change_nothing():
    whole, _ = halves()
    empty = Batch(whole.inputs, torch.full_like(whole.targets, -100))
    one, other = double(), double()
    assert backward(one, [whole], TrainingPlan()).mean == backward(other, [empty, whole], TrainingPlan()).mean
    for a, b in zip(one.module.parameters(), other.module.parameters(), strict=True):
        assert torch.equal(a.grad, b.grad)
    alone = double()
    assert backward(alone, [empty], TrainingPlan()).count == 0
    assert all(parameter.grad.isfinite().all() for parameter in alone.module.parameters())
