"""The plain form of Word2Vec: its loss by formula, its gradient by differences, and its place in the loop."""

import json
import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from regard.data.batching import IGNORED, Batch, Inputs, Padded
from regard.data.stream import Position
from regard.embedding.word2vec.model import Word2Vec, Word2VecPlan
from regard.errors import ConfigError, InputError
from regard.training.loop import Run
from regard.training.losses import WordPrediction
from regard.training.plan import TrainingPlan
from regard.training.reports import Silent

READ = [[3], [0, 5, 5], [1, 2], [6, 0, 4]]
ASKED = [[2, 4], [0, 1, 3, 10], [7, 7, 9], [5]]
ANSWERS = [[1, 0], [1, 0, 0, 0], [0, 1, 1], [1]]


def model() -> WordPrediction:
    module = Word2Vec(7, 11, 5).double()
    with torch.no_grad():
        for table in (module.read, module.asked):
            table.copy_(torch.randn(table.shape, generator=torch.Generator().manual_seed(2)))
    return WordPrediction(module)


def batch(rows: slice = slice(None)) -> Batch:
    wanted = Padded.of(ANSWERS[rows], fill=IGNORED).ids
    return Batch(Inputs(Padded.of(READ[rows]), Padded.of(ASKED[rows])), wanted)


def by_formula(read: np.ndarray, asked: np.ndarray, rows: slice = slice(None)) -> float:
    total = 0.0
    for words, questions, answers in zip(READ[rows], ASKED[rows], ANSWERS[rows], strict=True):
        mean = sum(read[word] for word in words) / len(words)
        for question, answer in zip(questions, answers, strict=True):
            likely = 1 / (1 + math.exp(-float(mean @ asked[question])))
            total -= math.log(likely if answer else 1 - likely)
    return total


def tables(trainable: WordPrediction) -> tuple[np.ndarray, np.ndarray]:
    return trainable.module.read.detach().numpy(), trainable.module.asked.detach().numpy()


def test_the_loss_is_the_papers_formula():
    trainable = model()
    loss = trainable.loss(batch())
    assert float(loss.sum.detach()) == pytest.approx(by_formula(*tables(trainable)), rel=1e-12)
    assert loss.count == 4


def test_losses_of_parts_add_up_to_the_loss_of_the_whole():
    trainable = model()
    parts = [trainable.loss(batch(rows)) for rows in (slice(0, 1), slice(1, 4))]
    whole = trainable.loss(batch())
    assert sum(float(part.sum.detach()) for part in parts) == pytest.approx(float(whole.sum.detach()), rel=1e-12)
    assert sum(part.count for part in parts) == whole.count


@pytest.mark.parametrize("row", range(len(READ)))
def test_the_gradient_is_that_of_small_differences_and_every_input_takes_that_of_their_mean_whole(row):
    trainable, rows, small = model(), slice(row, row + 1), 1e-6
    trainable.loss(batch(rows)).sum.backward()
    gradients = trainable.module.read.grad, trainable.module.asked.grad
    for which, (gradient, times) in enumerate(zip(gradients, (len(READ[row]), 1), strict=True)):
        for place in np.ndindex(*gradient.shape):
            values = []
            for sign in (1, -1):
                changed = [table.copy() for table in tables(trainable)]
                changed[which][place] += sign * small
                values.append(by_formula(*changed, rows))
            assert float(gradient[place]) == pytest.approx(times * (values[0] - values[1]) / (2 * small), abs=1e-7)


class Forever:
    """The same batch at every step."""

    def start(self, position: Position) -> Iterator[tuple[Batch, Position]]:
        while True:
            position = Position(0, position.batch + 1)
            yield batch(), position


def test_the_loop_trains_it_by_the_papers_loss_per_predicted_word(tmp_path):
    trainable, steps = model(), 7
    before = by_formula(*tables(trainable)) / len(READ)
    plan = {"steps": steps, "learning_rate": 0.1, "warmup": 0, "schedule": "constant", "precision": "float32"}
    end = Run(trainable, Forever(), [batch()], TrainingPlan.model_validate(plan), tmp_path, Silent()).fit()
    records = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert len(records) == steps
    assert records[0]["loss"] == pytest.approx(before, rel=1e-5)
    after = by_formula(*tables(trainable)) / len(READ)
    assert end.best == pytest.approx(after, rel=1e-5)
    assert after < 0.8 * before


def test_words_without_questions_are_refused():
    with pytest.raises(InputError, match="without questions"):
        model().loss(Batch(Inputs(Padded.of(READ)), torch.tensor([[1]])))


def test_vectors_begin_small_and_questions_at_zero_so_that_every_answer_is_even():
    module = Word2Vec(7, 11, 5)
    assert float(module.read.detach().abs().max()) <= 0.1
    assert float(WordPrediction(module).loss(batch()).sum.detach()) == pytest.approx(10 * math.log(2))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"width": 0}, "width = 0 cannot be used"),
        ({"windows": 3}, "key 'windows' is unknown; did you mean 'window'"),
        ({"kind": "glove"}, "kind = 'glove' cannot be used"),
        ({"loss": "hierarchical-softmax", "negatives": 3}, "negatives have no effect with loss 'hierarchical-softmax'"),
        ({"learning_rate": 0.0}, "learning_rate = 0.0 cannot be used"),
    ],
)
def test_an_impossible_plan_is_refused(options, said):
    with pytest.raises(ConfigError, match=said):
        Word2VecPlan.model_validate(options)
