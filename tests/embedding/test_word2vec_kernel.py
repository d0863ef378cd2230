"""The fast kernel of Word2Vec: its plain form step for step, one result for any number of threads, a true loss."""

import heapq
import os
import subprocess
import sys
from contextlib import contextmanager
from itertools import pairwise, product

import numpy as np
import pytest
import torch

from regard.data.batching import IGNORED, Batch, Inputs, Padded
from regard.embedding.word2vec import fit as word2vec_fit
from regard.embedding.word2vec.block import CentreBlock, Draws, Schedule, Tables
from regard.embedding.word2vec.corpus import EncodedCorpus, encode_corpus
from regard.embedding.word2vec.fit import RUN, Crew, alias_table, far_apart, fit, prepare
from regard.embedding.word2vec.huffman import huffman_paths
from regard.embedding.word2vec.model import Word2Vec, Word2VecPlan
from regard.errors import ConfigError, InputError
from regard.training.losses import WordPrediction
from rounding import assert_close

pytest.importorskip("numba")

from regard.embedding.word2vec.draws import read_in, spread, thin
from regard.embedding.word2vec.kernel import learn

FORMS = list(product(["skip-gram", "cbow"], ["negative-sampling", "hierarchical-softmax"]))
every_form = pytest.mark.parametrize(("kind", "loss"), FORMS)


def corpus(words: int = 53, lines: int = 400, seed: int = 7) -> EncodedCorpus:
    """Lines in which a word is followed by the next ones, so that there is something to learn."""
    draws = np.random.default_rng(seed)
    starts = draws.zipf(1.3, size=lines) % words
    text = [" ".join(f"w{(start + step) % words}" for step in range(int(draws.integers(1, 14)))) for start in starts]
    return encode_corpus(lambda: text, 1)


def plan(kind: str, loss: str, **options: object) -> Word2VecPlan:
    chosen = {"width": 13, "window": 3, "min_count": 1, "sample": 0.05, "seed": 11}
    return Word2VecPlan.model_validate({**chosen, "kind": kind, "loss": loss, **options})


def batch(block: CentreBlock, kind: str, centres: int) -> Batch:
    """What was drawn for these centre words, as the plain form reads it."""
    rows = []
    for centre in range(centres):
        inputs = block.inputs[centre, : block.input_counts[centre]].tolist()
        count = block.question_counts[centre]
        asked = block.questions[centre, :count].tolist(), block.answers[centre, :count].astype(int).tolist()
        reads = [inputs] if kind == "cbow" and inputs else [[word] for word in inputs]
        rows += [(read, *asked) for read in reads]
    read, asked, answers = zip(*rows, strict=True)
    return Batch(Inputs(Padded.of(read), Padded.of(asked)), Padded.of(answers, fill=IGNORED).ids)


def learn_all(
    chunk: np.ndarray, first: int, draws: Draws, tables: Tables, block: CentreBlock, rate: float
) -> tuple[float, int]:
    """Learn from a chunk of text at a rate that hardly falls."""
    return learn(read_in(chunk, first, draws, block), draws, tables, block, Schedule(rate, 0, 10**6))


@every_form
@pytest.mark.parametrize("width", [13, 101, 300])  # one vector of 16, seven, and eight at once, twice, then three
@pytest.mark.parametrize("words", [53, 997])  # runs of one word, and longer ones
def test_a_block_is_a_step_of_gradient_descent_on_the_plain_form(kind, loss, width, words):
    text, chosen = corpus(words=words), plan(kind, loss, width=width)
    draws, tables, block = prepare(text, chosen, 2)
    assert (block.run > 1) == (words == 997)
    tables.asked[:] = np.random.default_rng(1).normal(size=tables.asked.shape, scale=0.3)
    tables.read[:] = np.random.default_rng(2).normal(size=tables.read.shape)
    size = len(block.losses)
    places = np.flatnonzero(text.chunks[0] >= 0)[: size // 2]
    chunk = text.chunks[0][: places[-1] + 1]
    module = Word2Vec(*(len(table) for table in tables), chosen.width)
    module.read.data, module.asked.data = torch.tensor(tables.read), torch.tensor(tables.asked)
    total, predictions = learn_all(chunk, 0, draws, tables, block, 0.1)
    drawn = batch(block, kind, len(thin(chunk, draws, 0)[0]))
    plain = WordPrediction(module).loss(drawn)
    plain.sum.backward()
    assert predictions == plain.count
    assert total == pytest.approx(float(plain.sum.detach()), rel=1e-5)
    for table, parameter in zip(tables, (module.read, module.asked), strict=True):
        stepped = (parameter - 0.1 * parameter.grad).detach()
        assert (stepped - parameter.detach()).abs().max() > 1e-3
        assert_close(torch.tensor(table), stepped)


@every_form
def test_any_number_of_threads_gives_the_same_vectors_bit_for_bit(kind, loss):
    text, chosen = corpus(words=997, lines=1500), plan(kind, loss, epochs=2)
    assert [prepare(text, chosen, threads)[0].parts for threads in (1, 2, 3)] == [1, 2, 3]  # truly shared out
    found = [fit(text, chosen, threads=threads) for threads in (1, 2, 3)]
    for other in found[1:]:
        assert other.vectors.matrix.tobytes() == found[0].vectors.matrix.tobytes()
        assert other.losses == found[0].losses


@every_form
def test_a_crew_that_changes_from_chunk_to_chunk_learns_what_one_thread_learns(kind, loss, monkeypatch):
    whole, chosen = corpus(words=997, lines=1500), plan(kind, loss)
    chunks = tuple(np.array_split(whole.chunks[0], 100))
    text = EncodedCorpus(whole.words, whole.counts, chunks)
    monkeypatch.setattr(word2vec_fit, "AGAIN", 2)
    asked, timed = [], Crew.timed

    @contextmanager
    def noted(crew, size):
        with timed(crew, size) as (draws, block):
            asked.append(draws.parts)
            yield draws, block

    monkeypatch.setattr(Crew, "timed", noted)
    found = fit(text, chosen, threads=2).vectors.matrix
    assert set(asked) == {1, 2}
    assert found.tobytes() == fit(text, chosen, threads=1).vectors.matrix.tobytes()


@every_form
def test_vectors_are_the_same_in_whatever_pieces_the_text_is_learnt(kind, loss, monkeypatch):
    text, chosen = corpus(words=997, lines=1500), plan(kind, loss)
    whole = fit(text, chosen, threads=2).vectors.matrix
    monkeypatch.setattr(word2vec_fit, "PIECE", 1)
    assert fit(text, chosen, threads=2).vectors.matrix.tobytes() == whole.tobytes()


@pytest.mark.slow
def test_code_that_was_just_compiled_and_code_that_was_kept_give_the_same_vectors(tmp_path):
    program = """
import hashlib, numpy
from regard.embedding.word2vec.model import Word2VecPlan
from regard.embedding.word2vec.corpus import encode_corpus
from regard.embedding.word2vec.fit import fit
ids = numpy.random.default_rng(5).zipf(1.2, size=30_011) % 997
text = encode_corpus(lambda: [" ".join(f"w{number}" for number in ids)], 1)
plan = Word2VecPlan(kind="cbow", min_count=1, sample=1.0, epochs=1, width=101)
print(hashlib.sha256(fit(text, plan, threads=2).vectors.matrix.tobytes()).hexdigest())
"""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    found = [
        subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    assert list(tmp_path.rglob("*.nbc"))
    assert len(found[0].stdout.strip()) == 64
    assert found[0].stdout == found[1].stdout


def test_another_seed_gives_other_vectors():
    text = corpus()
    first, second = (fit(text, plan(*FORMS[0], seed=seed)).vectors.matrix for seed in (1, 2))
    assert np.abs(first - second).max() > 1e-3


@every_form
def test_the_loss_of_every_epoch_is_lower(kind, loss):
    losses = fit(corpus(), plan(kind, loss, epochs=6, learning_rate=0.1)).losses
    assert len(losses) == 6
    assert all(later < earlier for earlier, later in pairwise(losses))


def test_words_that_occur_together_become_neighbours():
    starts = np.random.default_rng(3).integers(0, 53, size=1500)
    lines = [" ".join(f"w{(start + step) % 53}" for step in range(11)) for start in starts]
    vectors = fit(encode_corpus(lambda: lines, 1), plan(*FORMS[0], epochs=10, learning_rate=0.05, sample=1.0)).vectors
    near, far = (
        np.mean([vectors.similarity(f"w{number}", f"w{(number + step) % 53}") for number in range(53)])
        for step in (1, 20)
    )
    assert near > far + 0.15


@every_form
def test_two_words_over_and_over_stay_finite_and_are_learnt(kind, loss):
    text = encode_corpus(lambda: ["yes no " * 3000], 1)
    trained = fit(text, plan(kind, loss, sample=1.0, epochs=3))
    assert np.isfinite(trained.vectors.matrix).all()
    assert trained.losses[-1] <= trained.losses[0]


def test_a_window_never_crosses_a_line():
    text = encode_corpus(lambda: ["a b\nc d\n" * 500], 1)
    draws, tables, block = prepare(text, plan(*FORMS[0], sample=1.0))
    learn_all(text.chunks[0], 0, draws, tables, block, 0.01)
    partner = {text.words.index(one): text.words.index(other) for one, other in ("ab", "ba", "cd", "dc")}
    for centre in range(len(block.losses)):
        (read,) = block.inputs[centre, : block.input_counts[centre]]
        assert read == partner[block.questions[centre, 0]]


def test_windows_of_every_reach_are_drawn_alike():
    text = encode_corpus(lambda: [" ".join(f"w{n}" for n in range(499)) + " "] * 2, 1)
    draws, tables, block = prepare(text, plan(*FORMS[0], window=5, sample=1.0))
    size = len(block.losses)
    chunk = np.arange(2 * size, dtype=np.int32) % 499
    reaches: list[int] = []
    for first in range(0, 100 * len(chunk), len(chunk)):
        learn_all(chunk, first, draws, tables, block, 1e-6)
        places = block.questions[:, 0]
        inside = (places >= 5) & (places < len(chunk) - 5)  # the text does not cut the window
        reaches += (block.input_counts[inside] // 2).tolist()
    shares = np.bincount(reaches, minlength=6)[1:] / len(reaches)
    np.testing.assert_allclose(shares, 0.2, atol=0.03)


@pytest.mark.parametrize(("count", "run"), [(0, 7), (1, 1), (5, 7), (13, 5), (997, 3), (4001, 16)])
def test_blocks_take_every_word_once_in_runs_of_neighbours(count, run):
    order = spread(count, run)
    assert sorted(order.tolist()) == list(range(count))
    whole = order[: count // run * run].reshape(-1, run)
    assert (np.diff(whole, axis=1) == 1).all()
    assert order[whole.size :].tolist() == list(range(whole.size, count))  # what is left over comes last


def test_a_block_takes_its_words_from_all_over_the_text():
    order = spread(16_001, 8)
    for begin in range(0, 15_000, 240):
        hit = np.unique(order[begin : begin + 240] // 1001)
        assert len(hit) >= 12


def test_a_block_does_not_go_on_where_the_one_before_it_stopped():
    size = 256
    blocks = spread(64 * size, RUN).reshape(-1, size)[:, ::RUN]  # where the runs of each begin
    for before, here in pairwise(blocks[:20]):
        assert np.abs(before[:, None] - here).min() > 2 * RUN


@pytest.mark.parametrize("places", [1, 3, 7, 50])
def test_chunks_put_together_are_all_there_and_far_apart(places):
    chunks = tuple(np.full(5, number, dtype=np.int32) for number in range(23))
    found = list(far_apart(chunks, places))
    assert sorted(np.concatenate(found).tolist()) == sorted(np.concatenate(chunks).tolist())
    steps = len(found)
    assert steps == -(-23 // places)
    assert all(set(np.diff(np.unique(part))) <= {steps} for part in found)


def test_frequent_words_are_kept_as_often_as_word2vec_keeps_them():
    text = encode_corpus(lambda: ["the " * 90 + "rare " * 10] * 3000, 1)
    draws, _, _ = prepare(text, plan(*FORMS[0], sample=0.05))
    kept = thin(text.chunks[0], draws, 0)[0]
    counts = np.bincount(text.chunks[0][text.chunks[0] >= 0])
    for word, share in enumerate((0.9, 0.1)):
        expected = min(1.0, (0.05 / share) ** 0.5 + 0.05 / share)
        assert (kept == word).sum() / counts[word] == pytest.approx(expected, abs=0.01)


def test_progress_counts_words_and_no_ends_of_lines():
    text = encode_corpus(lambda: ["a b c\n\n\nd\n\ne a\n" * 50], 1)
    assert (text.chunks[0] < 0).sum() > 100
    draws, _, _ = prepare(text, plan(*FORMS[0], sample=1.0))
    kept, _, _, places = thin(text.chunks[0], draws, 0)
    assert places.tolist() == list(range(text.size)) == list(range(len(kept)))


@pytest.mark.parametrize("rate", [5e-324, 1e-9, 1.0])
@every_form
def test_a_block_has_a_size_at_every_rate(kind, loss, rate):
    size = len(prepare(corpus(words=997), plan(kind, loss, learning_rate=rate))[2].losses)
    assert 1 <= size <= word2vec_fit.LARGEST_BLOCK


def test_blocks_are_the_smaller_the_wider_the_window():
    sizes = [len(prepare(corpus(words=997), plan(*FORMS[0], window=window))[2].losses) for window in (2, 20, 100)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] <= 2


def test_the_alias_table_gives_exactly_the_chances_it_was_made_of():
    chances = np.random.default_rng(5).dirichlet(np.full(101, 0.3))
    stay, other = alias_table(chances)
    found = stay / (2**32 - 1) / 101
    np.add.at(found, other, (1 - stay / (2**32 - 1)) / 101)
    np.testing.assert_allclose(found, chances, atol=1e-9)


@pytest.mark.parametrize("counts", [[5, 3], [1] * 7, [89, 34, 13, 13, 5, 3, 2, 1, 1], [1, 2, 4, 8, 16, 32]])
def test_huffman_ways_are_as_short_as_can_be_and_end_at_different_words(counts):
    paths = huffman_paths(counts)
    ways = [
        tuple(zip(paths.nodes[a:b].tolist(), paths.turns[a:b].tolist(), strict=True)) for a, b in pairwise(paths.starts)
    ]
    heap, least = list(counts), 0  # the cost of the best tree is the sum of its inner nodes' counts
    heapq.heapify(heap)
    while len(heap) > 1:
        both = heapq.heappop(heap) + heapq.heappop(heap)
        least += both
        heapq.heappush(heap, both)
    assert sum(count * len(way) for count, way in zip(counts, ways, strict=True)) == least
    assert all(way[0][0] == len(counts) - 2 for way in ways)
    for one, other in product(ways, ways):
        if one is not other:
            fork = next(step for step, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
            assert one[fork][0] == other[fork][0]


def test_a_listener_hears_of_every_chunk_up_to_the_last_word():
    heard = []
    text = corpus()
    trained = fit(text, plan(*FORMS[0], epochs=3), listener=heard.append)
    assert [one.words for one in heard] == [text.size, 2 * text.size, 3 * text.size]
    assert heard[-1].words == heard[-1].total
    assert tuple(one.loss for one in heard) == trained.losses


def test_lines_of_one_word_teach_nothing_and_are_refused():
    text = encode_corpus(lambda: ["a\nb\n" * 50], 1)
    with pytest.raises(InputError, match="no line of the corpus has two words"):
        fit(text, plan(*FORMS[0]))


def test_an_impossible_number_of_threads_is_refused():
    with pytest.raises(ConfigError, match="threads = -3"):
        fit(corpus(), plan(*FORMS[0]), threads=-3)


def test_without_numba_there_is_a_sentence_that_says_how_to_get_it():
    program = """
import sys
sys.modules["numba"] = None
from regard.embedding.word2vec.model import Word2VecPlan
from regard.embedding.word2vec.corpus import encode_corpus
from regard.embedding.word2vec.fit import fit
try:
    fit(encode_corpus(lambda: ["a b a b"], 1), Word2VecPlan())
except Exception as error:
    print(type(error).__name__, error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("InputError training vectors on a CPU needs Numba")
    assert "pip install 'regard[vectors]'" in done.stdout
