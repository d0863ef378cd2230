"""Word2Vec on a GPU: the recorded step is the step itself, and vectors are learnt."""

from itertools import product

import numpy as np
import pytest
import torch

from regard.embedding.word2vec.corpus import encode_corpus
from regard.embedding.word2vec.model import Word2VecPlan
from regard.embedding.word2vec.torch_fit import Draw, PredictionBatch, Training, fit_in_batches, step

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

FORMS = list(product(["skip-gram", "cbow"], ["negative-sampling", "hierarchical-softmax"]))


def on(batch: PredictionBatch, device: str) -> PredictionBatch:
    return PredictionBatch(*(tensor.to(device) for tensor in vars(batch).values()))


@pytest.mark.parametrize(("kind", "loss"), FORMS)
def test_recorded_steps_are_the_steps_themselves(kind, loss):
    words = np.random.default_rng(3).zipf(1.3, size=20_000) % 997
    text = encode_corpus(lambda: [" ".join(f"w{word}" for word in words)], 1)
    plan = Word2VecPlan.model_validate({"kind": kind, "loss": loss, "width": 24, "min_count": 1, "sample": 1.0})
    draw = Draw(text, plan, torch.device("cpu"))
    batches = [batch for _, batch in draw.batches(torch.from_numpy(text.chunks[0]).long())]
    assert len(batches[0].inputs) == draw.size > len(batches[-1].inputs)  # whole ones, and what is left over
    draws = torch.Generator().manual_seed(5)
    tables = [torch.randn(len(text.words), 24, generator=draws) * 0.1 for _ in range(2)]
    plain = [table.double() for table in tables]
    training = Training(*(table.cuda() for table in tables), draw.size, mean=kind == "cbow")
    total = count = 0.0
    for number, batch in enumerate([*batches[:3], batches[-1]]):
        rate = 0.1 / (1 + number)
        training.take(on(batch, "cuda"), rate)
        doubled = PredictionBatch(batch.inputs, batch.read, batch.questions, batch.asked, batch.answers.double())
        found = step(*plain, doubled, rate, mean=kind == "cbow")
        total, count = total + float(found[0]), count + float(found[1])
    for table, expected in zip((training.read, training.asked), plain, strict=True):
        torch.testing.assert_close(table.cpu().double(), expected, atol=2e-5, rtol=1e-4)
    assert training.sums.tolist() == pytest.approx([total, count], rel=1e-5)


def test_words_that_occur_together_become_neighbours_on_a_gpu():
    starts = np.random.default_rng(3).integers(0, 53, size=1500)
    lines = [" ".join(f"w{(start + step) % 53}" for step in range(11)) for start in starts]
    plan = Word2VecPlan(width=24, window=3, min_count=1, sample=1.0, epochs=10, learning_rate=0.05)
    vectors = fit_in_batches(encode_corpus(lambda: lines, 1), plan, "cuda").vectors
    near, far = (
        np.mean([vectors.similarity(f"w{number}", f"w{(number + step) % 53}") for number in range(53)])
        for step in (1, 20)
    )
    assert near > far + 0.15
