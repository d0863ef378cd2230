"""Word2Vec in large batches of tensor operations, for a GPU.

The same questions as on a CPU (`kernel.py`), asked for thousands of centre words at once, which come from all
over a part of the text: neighbours would repeat each other. So many steps of one row, all taken from the same place,
still overshoot: where a row has so many in a batch that their number times the rate is more than `MOST`, they are
scaled down to it. Nothing in a batch waits for the device, which is soon done with it: asking for its forty operations
takes several times as long, so they are recorded once and asked for as one. A GPU adds in any order, so results differ
in rounding from run to run.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.devices import usable_device
from regard.embedding.vectors import Vectors
from regard.embedding.word2vec.corpus import LINE_END, EncodedCorpus
from regard.embedding.word2vec.fit import Trained, Word2VecProgress, far_apart, finite
from regard.embedding.word2vec.huffman import huffman_paths
from regard.embedding.word2vec.model import Word2VecPlan
from regard.errors import InputError

CENTRES = 4096
"""Centre words of a batch, where there are four times as many different words."""
MOST = 4.0
"""The rates of all steps of one row in a batch, summed, at most."""
AT_ONCE = 2**22
"""Numbers that are drawn at once, for many batches: little is to be done for each, and asking for it takes time."""
CHUNKS = 32
"""Chunks of the text that are on the device at a time."""


@dataclass(frozen=True, eq=False)
class PredictionBatch:
    """A batch: the words read around each centre word, and the questions asked, with answers 1 or 0."""

    inputs: Int[Tensor, "centres inputs"]
    read: Bool[Tensor, "centres inputs"]
    """Which of them there are."""
    questions: Int[Tensor, "centres questions"]
    asked: Bool[Tensor, "centres questions"]
    answers: Float[Tensor, "centres questions"]

    def split(self, size: int) -> Iterator["PredictionBatch"]:
        """The same in batches of so many centre words."""
        for parts in zip(*(tensor.split(size) for tensor in vars(self).values()), strict=True):
            yield PredictionBatch(*parts)


class Draw:
    """Draws batches from text, on one device, from one seed."""

    def __init__(self, corpus: EncodedCorpus, plan: Word2VecPlan, device: torch.device) -> None:
        self.plan, self.device = plan, device
        self.size = min(CENTRES, max(1, len(corpus.words) // 4))
        self.generator = torch.Generator(device).manual_seed(plan.seed)
        self.keep = torch.from_numpy(corpus.keep(plan.sample)).to(device)
        self.upto = torch.from_numpy(corpus.noise.cumsum()).to(device)
        self.nodes = self.turns = torch.zeros(0, 0, dtype=torch.int64, device=device)
        if plan.loss == "hierarchical-softmax":
            paths = huffman_paths(corpus.counts.tolist())
            lengths = np.diff(paths.starts)
            places = np.arange(lengths.max()) < lengths[:, None]
            tables = np.zeros((2, *places.shape), dtype=np.int64)
            tables[0][places], tables[1][places] = paths.nodes, paths.turns
            tables[1][~places] = -1
            self.nodes, self.turns = torch.from_numpy(tables).to(device).unbind()

    def batches(self, text: Int[Tensor, "places"]) -> Iterator[tuple[float, PredictionBatch]]:
        """Those of a part of the text, each with the share of the part before it.

        Words are thinned out, windows have every reach, and centre words come in any order.
        """
        line = (text == LINE_END).cumsum(0)
        kept = (text != LINE_END) & (self._even(text.shape) < self.keep[text.clamp(min=0)])
        words, lines = text[kept], line[kept]
        offsets = torch.arange(-self.plan.window, self.plan.window + 1, device=self.device)
        offsets = offsets[offsets != 0]
        order = torch.randperm(len(words), generator=self.generator, device=self.device)
        many = max(1, AT_ONCE // (self.size * (2 * self.plan.window + self.plan.drawn + 1))) * self.size
        for first in range(0, len(words), many):
            centres = order[first : first + many]
            reach = 1 + (self._even(centres.shape) * self.plan.window).long()
            near = centres[:, None] + offsets
            inside = near.clamp(0, len(words) - 1)
            read = (near == inside) & (offsets.abs() <= reach[:, None]) & (lines[inside] == lines[centres][:, None])
            drawn = PredictionBatch(words[inside], read, *self._questions(words[centres]))
            for number, batch in enumerate(drawn.split(self.size)):
                yield (first + number * self.size) / len(words), batch

    def _questions(self, words: Int[Tensor, "centres"]) -> tuple[Tensor, Tensor, Tensor]:
        if self.plan.loss == "hierarchical-softmax":
            turns = self.turns[words]
            return self.nodes[words], turns >= 0, turns.clamp(min=0).float()
        noise = torch.searchsorted(self.upto, self._even((len(words), self.plan.drawn))).clamp(max=len(self.upto) - 1)
        questions = torch.cat((words[:, None], noise), dim=1)
        answers = torch.zeros(questions.shape, device=self.device)
        answers[:, 0] = 1.0
        return questions, (questions != words[:, None]) | (answers > 0), answers

    def _even(self, shape: torch.Size | tuple[int, ...]) -> Float[Tensor, "..."]:
        return torch.rand(shape, generator=self.generator, device=self.device, dtype=torch.float64)


class Training:
    """The two tables of vectors, which take steps down the gradient, and the loss on the way."""

    def __init__(
        self, read: Float[Tensor, "words width"], asked: Float[Tensor, "rows width"], size: int, *, mean: bool
    ) -> None:
        self.read, self.asked, self.size, self.mean = read, asked, size, mean
        self.sums = torch.zeros(2, dtype=torch.float64, device=read.device)
        """The loss, and of how many predictions, since somebody last set them to nothing."""
        self._rate = torch.zeros((), device=read.device)
        self._recorded: tuple[torch.cuda.CUDAGraph, PredictionBatch] | None = None
        """A step, and where it reads its batch."""

    def take(self, batch: PredictionBatch, rate: float) -> None:
        """One step; of a whole batch on a GPU the recorded one."""
        if not self.read.is_cuda or len(batch.inputs) < self.size:
            self._take(batch, rate)
            return
        with torch.cuda.device(self.read.device):
            if self._recorded is None:
                self._recorded = self._record(batch)
            graph, room = self._recorded
            torch._foreach_copy_(list(vars(room).values()), list(vars(batch).values()))
            self._rate.fill_(rate)
            graph.replay()

    def _take(self, batch: PredictionBatch, rate: float | Float[Tensor, ""]) -> None:
        loss, count = step(self.read, self.asked, batch, rate, mean=self.mean)
        self.sums += torch.stack((loss.double(), count.double()))

    def _record(self, batch: PredictionBatch) -> tuple[torch.cuda.CUDAGraph, PredictionBatch]:
        """Write down what a step asks of the device, after trying it at a rate of nothing, which changes no vector."""
        graph, room = torch.cuda.CUDAGraph(), PredictionBatch(*(tensor.clone() for tensor in vars(batch).values()))
        sums, now = self.sums.clone(), torch.cuda.current_stream()
        aside: torch.cuda.Stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        aside.wait_stream(now)
        with torch.cuda.stream(aside):
            for _ in range(3):
                self._take(room, self._rate)
        now.wait_stream(aside)
        with torch.cuda.graph(graph):
            self._take(room, self._rate)
        self.sums.copy_(sums)
        return graph, room


def step(
    read: Float[Tensor, "words width"],
    asked: Float[Tensor, "rows width"],
    batch: PredictionBatch,
    rate: float | Float[Tensor, ""],
    *,
    mean: bool,
) -> tuple[Float[Tensor, ""], Int[Tensor, ""]]:
    """One step down the gradient, in place; the loss before it, and of how many predictions. `mean` is CBOW's."""
    there = batch.read.to(read.dtype)
    share = there / there.sum(dim=1, keepdim=True).clamp(min=1) if mean else there
    inputs, questions = read[batch.inputs], asked[batch.questions]
    seen = (share[:, None] @ inputs) if mean else inputs
    scores = seen @ questions.mT
    counted = batch.asked[:, None] & (batch.read.any(dim=1, keepdim=True) if mean else batch.read)[..., None]
    answers = batch.answers[:, None].expand_as(scores)
    losses = torch.nn.functional.binary_cross_entropy_with_logits(scores, answers, reduction="none")
    errors = torch.where(counted, answers - scores.sigmoid(), 0.0) * rate
    back = errors @ questions
    _add(read, batch.inputs, back * there[..., None], there * rate)
    _add(asked, batch.questions, errors.mT @ seen, counted.sum(dim=1) * rate)
    return torch.where(counted, losses, 0.0).sum(), counted.any(dim=2).sum()


def _add(
    table: Tensor, rows: Int[Tensor, "..."], steps: Float[Tensor, "... width"], taken: Float[Tensor, "..."]
) -> None:
    """Add steps to rows; `taken` are the rates of each, and where they sum to more than `MOST`, steps are shorter."""
    hits = torch.zeros(len(table), dtype=table.dtype, device=table.device).index_add_(
        0, rows.flatten(), taken.to(table.dtype).flatten()
    )
    scale = (MOST / hits).clamp(max=1.0)[rows]
    table.index_add_(0, rows.flatten(), (steps * scale[..., None]).flatten(0, -2))


def fit_in_batches(
    corpus: EncodedCorpus,
    plan: Word2VecPlan,
    device: torch.device | str,
    *,
    listener: Callable[[Word2VecProgress], None] | None = None,
) -> Trained:
    """Train vectors on a device."""
    place = usable_device(device)
    draw = Draw(corpus, plan, place)
    start = np.random.default_rng(plan.seed).random((len(corpus.words), plan.width), dtype=np.float32)
    read = ((torch.from_numpy(start) - 0.5) / plan.width).to(place)
    asked = torch.zeros_like(read)
    training = Training(read, asked, draw.size, mean=plan.kind == "cbow")
    total, done, losses, begun = corpus.size * plan.epochs, 0, [], time.perf_counter()
    for epoch in range(plan.epochs):
        training.sums.zero_()
        for part in far_apart(corpus.chunks, CHUNKS):
            words = int((part != LINE_END).sum())
            for share, batch in draw.batches(torch.from_numpy(part).to(place).long()):
                training.take(batch, plan.first_rate * max(1 - (done + share * words) / total, 1e-4))
            done += words
            if listener is not None:
                loss, count = training.sums.tolist()
                speed = done / (time.perf_counter() - begun)
                listener(Word2VecProgress(epoch + 1, plan.epochs, done, total, loss / max(count, 1), speed))
        loss, count = training.sums.tolist()
        if not count:
            raise InputError(
                "no line of the corpus has two words that are kept", "lower min_count, raise sample, or join lines"
            )
        losses.append(loss / count)
    return Trained(Vectors(corpus.words, finite(read.cpu().numpy(), plan)), tuple(losses))
