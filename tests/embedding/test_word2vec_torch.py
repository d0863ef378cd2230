"""Word2Vec in large batches: the plain form's step, and the same learning as the CPU's kernel."""

from itertools import pairwise, product

import numpy as np
import pytest
import torch

from regard.data.batching import IGNORED, Batch, Inputs, Padded
from regard.embedding.word2vec import torch_fit
from regard.embedding.word2vec.corpus import EncodedCorpus, encode_corpus
from regard.embedding.word2vec.model import Word2Vec, Word2VecPlan
from regard.embedding.word2vec.torch_fit import Draw, PredictionBatch, fit_in_batches, step
from regard.errors import InputError
from regard.training.losses import WordPrediction

FORMS = list(product(["skip-gram", "cbow"], ["negative-sampling", "hierarchical-softmax"]))
every_form = pytest.mark.parametrize(("kind", "loss"), FORMS)


def corpus(lines: int = 300) -> EncodedCorpus:
    draws = np.random.default_rng(3)
    starts = draws.zipf(1.3, size=lines) % 31
    text = [" ".join(f"w{(start + step) % 31}" for step in range(int(draws.integers(1, 12)))) for start in starts]
    return encode_corpus(lambda: text, 1)


def plan(kind: str, loss: str, **options: object) -> Word2VecPlan:
    chosen = {"width": 11, "window": 3, "min_count": 1, "sample": 0.05, "seed": 5}
    return Word2VecPlan.model_validate({**chosen, "kind": kind, "loss": loss, **options})


def batches(text: EncodedCorpus, chosen: Word2VecPlan) -> list[tuple[float, PredictionBatch]]:
    return list(Draw(text, chosen, torch.device("cpu")).batches(torch.from_numpy(text.chunks[0]).long()))


def plain(batch: PredictionBatch, kind: str) -> Batch:
    rows = []
    for centre in range(len(batch.inputs)):
        inputs = batch.inputs[centre][batch.read[centre]].tolist()
        there = batch.asked[centre]
        asked = batch.questions[centre][there].tolist(), batch.answers[centre][there].int().tolist()
        rows += [(read, *asked) for read in ([inputs] if kind == "cbow" and inputs else [[word] for word in inputs])]
    read, asked, answers = zip(*rows, strict=True)
    return Batch(Inputs(Padded.of(read), Padded.of(asked)), Padded.of(answers, fill=IGNORED).ids)


@every_form
def test_a_batch_is_a_step_of_gradient_descent_on_the_plain_form(kind, loss, monkeypatch):
    monkeypatch.setattr(torch_fit, "MOST", 1e9)
    text, chosen = corpus(), plan(kind, loss)
    ((_, batch), *_) = batches(text, chosen)
    module = Word2Vec(31, 31, 11).double()
    torch.nn.init.normal_(module.asked)
    read, asked = module.read.detach().clone(), module.asked.detach().clone()
    doubled = PredictionBatch(batch.inputs, batch.read, batch.questions, batch.asked, batch.answers.double())
    total, count = step(read, asked, doubled, 0.1, mean=kind == "cbow")
    expected = WordPrediction(module).loss(plain(batch, kind))
    expected.sum.backward()
    assert int(count) == expected.count
    assert float(total) == pytest.approx(float(expected.sum.detach()), rel=1e-9)
    for table, parameter in ((read, module.read), (asked, module.asked)):
        assert float(parameter.grad.abs().max()) > 1e-3
        torch.testing.assert_close(table, (parameter - 0.1 * parameter.grad).detach(), atol=1e-9, rtol=1e-9)


def test_a_row_with_too_many_steps_moves_as_if_it_had_the_most(monkeypatch):
    monkeypatch.setattr(torch_fit, "MOST", 0.4)
    there = torch.ones(20, 1, dtype=torch.bool)
    zeros = torch.zeros(20, 1, dtype=torch.long)
    moved = []
    for rows in (4, 20):
        read, asked = torch.full((2, 3), 0.5), torch.full((2, 3), 0.5)
        part = slice(0, rows)
        step(
            read,
            asked,
            PredictionBatch(zeros[part], there[part], zeros[part], there[part], there[part].float()),
            0.1,
            mean=False,
        )
        moved.append((read, asked))
    for few, many in zip(*moved, strict=True):
        torch.testing.assert_close(few, many)


def test_every_word_is_the_centre_of_one_window_that_never_crosses_a_line(monkeypatch):
    monkeypatch.setattr(torch_fit, "CENTRES", 37)
    text = encode_corpus(lambda: ["a b\nc d\n" * 50], 1)
    partner = {text.words.index(one): text.words.index(other) for one, other in ("ab", "ba", "cd", "dc")}
    centres: list[int] = []
    for _, batch in batches(text, plan(*FORMS[0], sample=1.0)):
        for centre in range(len(batch.inputs)):
            (read,) = batch.inputs[centre][batch.read[centre]].tolist()
            centres.append(int(batch.questions[centre, 0]))
            assert read == partner[centres[-1]]
    assert np.bincount(centres).tolist() == [50, 50, 50, 50]


def test_windows_of_every_reach_are_drawn_alike():
    text = encode_corpus(lambda: [" ".join(f"w{n % 97}" for n in range(20_011))], 1)
    reaches = torch.cat([batch.read.sum(dim=1) for _, batch in batches(text, plan(*FORMS[0], window=5, sample=1.0))])
    shares = np.bincount(reaches.numpy() // 2, minlength=6)[1:] / len(reaches)
    np.testing.assert_allclose(shares, 0.2, atol=0.02)


def test_wrong_answers_are_drawn_as_often_as_the_noise_has_them():
    text = corpus(3000)
    drawn = torch.cat([batch.questions[:, 1:].flatten() for _, batch in batches(text, plan(*FORMS[0], sample=1.0))])
    shares = np.bincount(drawn.numpy(), minlength=31) / len(drawn)
    np.testing.assert_allclose(shares, text.noise, atol=0.004)


def test_the_centres_of_a_batch_come_from_all_over_the_text(monkeypatch):
    monkeypatch.setattr(torch_fit, "CENTRES", 101)
    text = encode_corpus(lambda: ["\n".join(f"w{n} w{n}" for n in range(1009))], 1)
    for _, batch in batches(text, plan(*FORMS[0], sample=1.0))[:-1]:
        assert len(batch.questions[:, 0].unique()) > 90


def test_the_rate_falls_evenly_from_the_first_batch_to_the_last(monkeypatch):
    monkeypatch.setattr(torch_fit, "CENTRES", 41)
    monkeypatch.setattr(torch_fit, "CHUNKS", 5)
    rates = []

    def listening(read, asked, batch, rate, *, mean):
        rates.append(rate)
        return step(read, asked, batch, rate, mean=mean)

    text = corpus(2000)
    text = EncodedCorpus(text.words, text.counts, tuple(np.array_split(text.chunks[0], 89)))
    monkeypatch.setattr(torch_fit, "step", listening)
    fit_in_batches(text, plan(*FORMS[0], learning_rate=0.03, sample=1.0, epochs=2), "cpu")
    assert rates[0] == 0.03
    assert all(later < earlier for earlier, later in pairwise(rates))
    assert max(earlier - later for earlier, later in pairwise(rates)) < 0.03 * 3 / len(rates)
    assert rates[-1] < 0.03 * 0.01


@every_form
def test_two_words_over_and_over_stay_finite_and_are_learnt(kind, loss):
    trained = fit_in_batches(encode_corpus(lambda: ["yes no " * 500], 1), plan(kind, loss, sample=1.0, epochs=3), "cpu")
    assert np.isfinite(trained.vectors.matrix).all()
    assert trained.losses[-1] <= trained.losses[0]


@every_form
def test_the_loss_of_every_epoch_is_lower(kind, loss):
    losses = fit_in_batches(corpus(), plan(kind, loss, epochs=4, learning_rate=0.1), "cpu").losses
    assert all(later < earlier for earlier, later in pairwise(losses))


def test_the_same_seed_gives_the_same_vectors_on_a_cpu_and_another_seed_others():
    first, again, other = (
        fit_in_batches(corpus(), plan(*FORMS[0], seed=seed), "cpu").vectors.matrix for seed in (1, 1, 2)
    )
    assert first.tobytes() == again.tobytes()
    assert np.abs(first - other).max() > 1e-3


def test_lines_of_one_word_teach_nothing_and_are_refused():
    text = encode_corpus(lambda: ["a\nb\n" * 50], 1)
    with pytest.raises(InputError, match="no line of the corpus has two words"):
        fit_in_batches(text, plan(*FORMS[0]), "cpu")
