"""The loss is a sum and a count: against its formula, plain in evaluation, in float32 for any model."""

import pytest
import torch
from torch import nn

from regard.data.batching import IGNORED, Batch, Inputs, Padded
from regard.models.config import TransformerConfig
from regard.models.transformer import Transformer
from regard.training.plan import TrainingPlan
from regard.training.precision import autocast
from regard.training.trainable import Loss, TokenPrediction, Trainable, cross_entropy

TARGETS = torch.tensor([[3, IGNORED, 0, 10, IGNORED], [1, 2, 3, IGNORED, IGNORED]])


def tiny(dropout: float = 0.0) -> Transformer:
    return Transformer(TransformerConfig(vocabulary=11, width=6, heads=3, layers=1, dropout=dropout))


def batch(seed: int = 0, rows: int = 3) -> Batch:
    draws = torch.Generator().manual_seed(seed)
    source = [torch.randint(4, 11, (length,), generator=draws).tolist() for length in range(2, 2 + rows)]
    target = [torch.randint(4, 11, (length,), generator=draws).tolist() for length in range(rows, 0, -1)]
    targets = Padded.of([[*row, 2] for row in target], fill=IGNORED).ids
    return Batch(Inputs(Padded.of([[1, *row] for row in target]), Padded.of(source)), targets)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_the_loss_is_its_formula_written_out(smoothing):
    """Each target's distribution is (1 − ε) on itself plus ε/vocabulary everywhere (Szegedy et al. 2015, §7)."""
    logits = torch.randn(2, 5, 11, dtype=torch.float64)
    total, count = 0.0, 0
    for row in range(2):
        for place in range(5):
            target = int(TARGETS[row, place])
            if target == IGNORED:
                continue
            scores = logits[row, place]
            log_p = [float(score) - float(torch.logsumexp(scores, 0)) for score in scores]
            total -= (1 - smoothing) * log_p[target] + smoothing * sum(log_p) / 11
            count += 1
    found = cross_entropy(logits, TARGETS, smoothing)
    assert found.count == count == 6
    assert float(found.sum) == pytest.approx(total, rel=1e-12)
    assert found.mean == pytest.approx(total / 6, rel=1e-12)


def test_ignored_targets_have_no_part_in_the_loss_nor_in_its_gradient():
    logits = torch.randn(2, 5, 11, requires_grad=True)
    before = cross_entropy(logits, TARGETS, 0.1)
    before.sum.backward()
    ignored = TARGETS == IGNORED
    assert (logits.grad[ignored] == 0).all()
    assert (logits.grad[~ignored] != 0).any(dim=-1).all()
    changed = torch.where(ignored[..., None], torch.randn(2, 5, 11), logits.detach())
    assert torch.equal(cross_entropy(changed, TARGETS, 0.1).sum, before.sum.detach())


def test_a_batch_of_nothing_but_ignored_targets_adds_nothing():
    found = cross_entropy(torch.randn(2, 3, 5), torch.full((2, 3), IGNORED))
    assert (float(found.sum), found.count, found.mean) == (0.0, 0, 0.0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_the_sum_is_float32_and_exact_for_logits_of_half_the_width(dtype):
    logits = torch.randn(2, 5, 11).to(dtype)
    found = cross_entropy(logits, TARGETS)
    assert found.sum.dtype == torch.float32
    exact = cross_entropy(logits.double(), TARGETS)
    assert exact.sum.dtype == torch.float64
    assert float(found.sum) == pytest.approx(float(exact.sum), rel=1e-6)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_under_autocast_the_model_computes_in_bfloat16_and_the_sum_stays_float32(precision):
    module = tiny()
    seen: list[torch.dtype] = []
    module.register_forward_hook(lambda _, __, logits: seen.append(logits.dtype))
    with autocast(TrainingPlan(precision=precision), torch.device("cpu")):
        loss = TokenPrediction(module).loss(batch())
    assert seen == [getattr(torch, precision)]
    assert loss.sum.dtype == torch.float32


def test_evaluation_is_plain_and_training_is_smoothed():
    trainable = TokenPrediction(tiny().double(), label_smoothing=0.3)
    assert isinstance(trainable, Trainable)
    logits = trainable.module(batch().inputs)
    trainable.module.train()
    assert torch.equal(trainable.loss(batch()).sum, cross_entropy(logits, batch().targets, 0.3).sum)
    trainable.module.eval()
    assert torch.equal(trainable.loss(batch()).sum, cross_entropy(logits, batch().targets).sum)


@torch.no_grad()
def test_dropout_changes_the_loss_in_training_and_never_in_evaluation():
    trainable = TokenPrediction(tiny(dropout=0.5))
    trainable.module.train()
    assert float(trainable.loss(batch()).sum) != float(trainable.loss(batch()).sum)
    trainable.module.eval()
    assert float(trainable.loss(batch()).sum) == float(trainable.loss(batch()).sum)


@torch.no_grad()
def test_the_loss_of_two_batches_is_the_sum_of_their_losses():
    trainable = TokenPrediction(tiny().double(), label_smoothing=0.1)

    def joined(one: Padded, other: Padded) -> Padded:
        return Padded.of(one.rows() + other.rows())

    one, other = batch(0), batch(1, rows=2)
    targets = [[token for token in row if token != IGNORED] for part in (one, other) for row in part.targets.tolist()]
    inputs = Inputs(joined(one.inputs.tokens, other.inputs.tokens), joined(one.inputs.source, other.inputs.source))
    whole = trainable.loss(Batch(inputs, Padded.of(targets, fill=IGNORED).ids))
    parts = [trainable.loss(one), trainable.loss(other)]
    assert whole.count == sum(part.count for part in parts)
    assert float(whole.sum) == pytest.approx(float(sum(part.sum for part in parts)), rel=1e-12)


def test_a_mean_is_for_people_and_never_divides_by_zero():
    assert Loss(torch.tensor(6.0), 4).mean == 1.5
    assert Loss(torch.tensor(0.0), 0).mean == 0.0


@torch.no_grad()
def test_any_module_that_gives_logits_is_trainable():
    class Bigrams(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Parameter(torch.zeros(11, 11))

        def forward(self, inputs: Inputs) -> torch.Tensor:
            return self.table[inputs.tokens.ids]

    loss = TokenPrediction(Bigrams()).loss(batch())
    assert float(loss.sum) == pytest.approx(batch().count * float(torch.tensor(11.0).log()), rel=1e-6)
