"""The laws of a Trainable for classifiers and finders of answers: closed forms, sums that add up, no padding."""

import pytest
import torch

from regard.data.batching import Batch, Inputs, Padded
from regard.models.config import TransformerConfig
from regard.models.transformer import Transformer
from regard.training.losses import LabelPrediction, SpanPrediction
from regard.training.trainable import Trainable

KINDS = {"labels": LabelPrediction, "spans": SpanPrediction}
kinds = pytest.mark.parametrize("kind", KINDS)
LENGTHS = (7, 3, 5)


def trainable(kind: str) -> Trainable:
    labels = ("a", "b", "c") if kind == "labels" else ()
    shape = {"vocabulary": 23, "width": 6, "heads": 3, "layers": 1, "architecture": "encoder", "dropout": 0.0}
    module = Transformer(TransformerConfig(**shape, head=kind, labels=labels)).double()
    return KINDS[kind](module)


def batch(kind: str, lengths: tuple[int, ...], *, seed: int = 0, room: int = 0) -> Batch:
    """Rows that are a function of their length; `room` columns of padding more than needed."""
    rows = [[4 + (3 * place + length) % 19 for place in range(length)] for length in lengths]
    tokens = Padded.of(rows)
    if room:
        wide = torch.nn.functional.pad(tokens.ids, (0, room), value=9)
        tokens = Padded(wide, tokens.lengths, ragged=True)
    targets = [[length % 3] if kind == "labels" else [length % 2, length - 1] for length in lengths]
    return Batch(Inputs(tokens), torch.tensor(targets))


@kinds
@torch.no_grad()
def test_the_loss_is_its_formula_written_out_over_real_places_alone(kind):
    how = trainable(kind)
    assert isinstance(how, Trainable)
    given = batch(kind, LENGTHS)
    found, total = how.loss(given), 0.0
    logits = how.module(given.inputs)
    for row, length in enumerate(LENGTHS):
        if kind == "labels":
            total -= float(logits[row].log_softmax(0)[length % 3])
        else:
            for column, target in enumerate((length % 2, length - 1)):
                total -= float(logits[row, :length, column].log_softmax(0)[target])
    assert float(found.sum) == pytest.approx(total, rel=1e-12)
    assert found.count == len(LENGTHS) * (1 if kind == "labels" else 2)


@kinds
@torch.no_grad()
def test_the_loss_of_two_batches_is_the_sum_of_their_losses(kind):
    how = trainable(kind)
    whole = how.loss(batch(kind, LENGTHS))
    parts = [how.loss(batch(kind, LENGTHS[:2])), how.loss(batch(kind, LENGTHS[2:]))]
    assert whole.count == sum(part.count for part in parts)
    assert float(whole.sum) == pytest.approx(sum(float(part.sum) for part in parts), rel=1e-10)


@kinds
def test_padding_adds_nothing_to_the_loss_nor_to_its_gradient(kind):
    gradients = []
    for room in (0, 5):
        torch.manual_seed(3)
        how = trainable(kind)
        loss = how.loss(batch(kind, LENGTHS, room=room))
        loss.sum.backward()
        gradients.append(
            (loss, {name: one.grad for name, one in how.module.named_parameters() if one.grad is not None})
        )
    (bare, one), (padded, other) = gradients
    assert float(bare.sum.detach()) == pytest.approx(float(padded.sum.detach()), rel=1e-12)
    assert one.keys() == other.keys()
    assert all(torch.allclose(one[name], other[name], atol=1e-12) for name in one)
    assert all(torch.isfinite(grad).all() for grad in other.values())


@torch.no_grad()
def test_labels_are_smoothed_in_training_and_plain_in_evaluation():
    how = trainable("labels")
    how.label_smoothing = 0.3
    logits, targets = how.module(batch("labels", LENGTHS).inputs), [length % 3 for length in LENGTHS]
    likely = logits.log_softmax(-1)
    plain = -sum(float(likely[row, target]) for row, target in enumerate(targets))
    smoothed = 0.7 * plain - 0.3 * float(likely.mean(-1).sum())
    how.module.train()
    assert float(how.loss(batch("labels", LENGTHS)).sum) == pytest.approx(smoothed, rel=1e-12)
    how.module.eval()
    assert float(how.loss(batch("labels", LENGTHS)).sum) == pytest.approx(plain, rel=1e-12)
