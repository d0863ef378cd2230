"""The laws a correct model obeys, each a function that takes a model and returns the measured departure from it.

    lengths        texts of any length, one token among them, give finite logits and gradients
    padding        what stands in the padding never changes a real token
    batching       a sequence's logits do not depend on what stands beside it
    causality      a later token never changes an earlier one's logits
    caching        cached decoding equals the uncached model, row by row, after reordering too
    meaning        every attention layer computes the formula of its similarity, masked, in float64
    masked_rows    a row that may attend to nothing gives exact zeros, forward and backward
    accumulation   gradients do not depend on how a batch is divided into micro-batches
    save_load      a saved and loaded model gives the same logits
    resume         stopping and resuming a training gives the same weights

The tests call them over every implementation; each has a tolerance: 0 where it must be equal bit for bit, 1e-5
where shapes differ and float32 rounds differently.
"""

import copy
import math
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention.cache import KeyValues
from regard.attention.mask import Dense
from regard.attention.multihead import Attend
from regard.data.batching import IGNORED, Batch, Inputs, Padded
from regard.data.stream import Position
from regard.inspection.formulas import attended
from regard.models.checkpoint import load_model, save_model
from regard.models.network import Network
from regard.training.loop import Run
from regard.training.losses import LabelPrediction, SpanPrediction
from regard.training.plan import TrainingPlan
from regard.training.reports import Silent
from regard.training.trainable import TokenPrediction, Trainable
from regard.training.updater import backward

ROUNDING = 1e-5
LENGTHS = (7, 3, 5, 1)
SOURCE_LENGTHS = (3, 8, 1, 5)


@dataclass(frozen=True)
class Law:
    """A statement, how far a model departs from it, and how far it may."""

    name: str
    statement: str
    measure: Callable[[Network], float]
    tolerance: float
    decoders_only: bool = False
    by_loss: bool = False
    """Whether it trains: a model without a head has no loss."""

    def applies(self, model: Network) -> bool:
        """Whether the law says anything about this model: encoders do not decode, vectors alone have no loss."""
        return not (self.decoders_only and not model.config.decodes) and not (
            self.by_loss and model.config.outputs == "none"
        )


def lengths(model: Network) -> float:
    """Infinity where a text of 1 to 11 tokens has a logit or a gradient that is not finite, else 0."""
    found: list[Tensor] = []
    weights = [parameter for parameter in model.parameters() if parameter.requires_grad]
    with _evaluating(model):
        for length in range(1, 12):
            [sequence], [source] = _sequences(model, (length,)), _sequences(model, (12 - length,))
            logits = model(_one(model, sequence, source))
            gradients = torch.autograd.grad(logits.square().mean(), weights, allow_unused=True)
            found += [logits, *(one for one in gradients if one is not None)]
    return 0.0 if all(bool(torch.isfinite(one).all()) for one in found) else float("inf")


def padding(model: Network) -> float:
    """The largest change of a real token's logits when its sequence is padded, on either side, with anything."""
    sequences, sources = _sequences(model, LENGTHS), _sequences(model, SOURCE_LENGTHS)
    worst = 0.0
    with torch.no_grad(), _evaluating(model):
        for fill in (0, model.config.vocabulary - 1):
            for side in ("right", "left"):
                tokens = Padded.of(sequences, fill=fill, side=side)
                together = model(_inputs(model, tokens, Padded.of(sources, fill=fill)))
                for row, keep in enumerate(tokens.real):
                    alone = model(_one(model, sequences[row], sources[row]))[0]
                    found = together[row] if model.config.outputs == "labels" else together[row][keep]
                    worst = max(worst, _distance(found, alone))
    return worst


def batching(model: Network) -> float:
    """The largest change of a logit between a sequence alone and the same one among others of its length."""
    sequences, sources = _sequences(model, (5,) * 4), _sequences(model, (7,) * 4)
    with torch.no_grad(), _evaluating(model):
        together = model(_inputs(model, Padded.of(sequences), Padded.of(sources)))
        rows = [model(_one(model, sequence, source)) for sequence, source in zip(sequences, sources, strict=True)]
    return _distance(together, torch.cat(rows))


def causality(model: Network) -> float:
    """The largest change of an earlier token's logits when all later tokens are replaced."""
    [sequence], [source] = _sequences(model, (9,)), _sequences(model, (5,))
    worst = 0.0
    with torch.no_grad(), _evaluating(model):
        before = model(_one(model, sequence, source))[0]
        for place in range(1, len(sequence)):
            changed = sequence[:place] + [(token + 1) % model.config.vocabulary for token in sequence[place:]]
            after = model(_one(model, changed, source))[0]
            worst = max(worst, _distance(before[:place], after[:place]))
    return worst


def caching(model: Network) -> float:
    """The largest difference between decoding by steps, from ragged prompts, with rows reordered, and forward."""
    sequences, sources = _sequences(model, (9, 7, 8)), _sequences(model, (3, 6, 4))
    given = (4, 2, 3)  # tokens of each prompt; all rows then have five more to go
    order = torch.tensor([2, 0, 1])
    worst = 0.0
    with torch.no_grad(), _evaluating(model):
        whole = [model(_one(model, row, source))[0] for row, source in zip(sequences, sources, strict=True)]
        prompts = Padded.of([row[:count] for row, count in zip(sequences, given, strict=True)], side="left")
        state = model.start(_inputs(model, prompts, Padded.of(sources)))
        rows = [0, 1, 2]
        for ahead in range(3):
            ids = torch.tensor([sequences[row][given[row] - 1 + ahead] for row in rows])
            logits, state = model.step(ids, state)
            for at, row in enumerate(rows):
                worst = max(worst, _distance(logits[at], whole[row][given[row] - 1 + ahead]))
            state, rows = state.select(order), [rows[index] for index in order.tolist()]
        rest = torch.tensor([sequences[row][given[row] + 2 : given[row] + 5] for row in rows])
        logits, _ = model.extend(rest, state)
        for at, row in enumerate(rows):
            worst = max(worst, _distance(logits[at], whole[row][given[row] + 2 : given[row] + 5]))
    return worst


def meaning(model: Network) -> float:
    """The largest difference between what an attention layer gave and its formula, written out in float64."""
    worst = 0.0

    def compare(module: Attend, args: tuple[Any, ...], options: dict[str, Any], output: Tensor) -> None:
        nonlocal worst
        query, memory = args
        told = (options.get(name) for name in ("mask", "bias", "query_positions"))
        expected = attended(module.similarity, query, memory, *told)
        worst = max(worst, _distance(output.double(), expected))

    with torch.no_grad(), _evaluating(model), _hooked(model, compare):
        tokens, source = Padded.of(_sequences(model, LENGTHS)), Padded.of(_sequences(model, SOURCE_LENGTHS))
        model(_inputs(model, tokens, source))
    return worst


def masked_rows(model: Network) -> float:
    """The largest entry of an output, or of a gradient, that comes from rows which may attend to nothing."""
    worst = 0.0
    generator = torch.Generator().manual_seed(0)
    for part, (heads, key_heads, width, value_width) in _attentions(model).items():
        if isinstance(part, Attend):
            query, keys, values = (
                torch.randn(2, count, tokens, size, generator=generator).requires_grad_()
                for count, tokens, size in ((heads, 5, width), (key_heads, 7, width), (key_heads, 7, value_width))
            )
            allowed = torch.rand(2, 5, 7, generator=generator) < 0.5
            allowed[0, 1], allowed[1, 3:] = False, False
            with _evaluating(model):
                out = part(query, KeyValues(keys, values), mask=Dense(allowed))
            dead = out.transpose(1, 2)[~allowed.any(dim=-1)]
            gradients = torch.autograd.grad(dead.sum(), (query, keys, values))
            worst = max(worst, *(float(one.detach().abs().max()) for one in (dead, *gradients)))
            worst = worst if all(torch.isfinite(one).all() for one in (out, *gradients)) else float("inf")
    return worst


def _attentions(model: Network) -> dict[nn.Module, tuple[int, int, int, int]]:
    """Every attention of the model with its heads, key heads, and the widths of keys and values."""
    found: dict[nn.Module, tuple[int, int, int, int]] = {}

    def keep(module: nn.Module, args: tuple[Any, ...], options: dict[str, Any], output: Tensor) -> None:
        query, memory = args
        found[module] = query.shape[1], memory.keys.shape[1], memory.keys.shape[3], memory.values.shape[3]

    with torch.no_grad(), _evaluating(model), _hooked(model, keep):
        model(_inputs(model, Padded.of(_sequences(model, LENGTHS)), Padded.of(_sequences(model, SOURCE_LENGTHS))))
    return found


@contextmanager
def _hooked(model: nn.Module, hook: Callable[..., None]) -> Iterator[None]:
    """A hook on every attention of a model."""
    attentions = [part for part in model.modules() if isinstance(part, Attend)]
    handles = [part.register_forward_hook(hook, with_kwargs=True) for part in attentions]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def accumulation(model: Network) -> float:
    """The largest difference between the gradients of one batch and of the same in unequal micro-batches."""
    model = copy.deepcopy(model).double().eval()
    trainable = _trainable(model)
    sequences, sources = _sequences(model, (9, 3, 5, 2, 8)), _sequences(model, (3, 8, 2, 5, 4))
    gradients = []
    for groups in ((0, 5),), ((0, 1), (1, 4), (4, 5)):
        model.zero_grad()
        parts = [_batch(model, sequences[first:last], sources[first:last]) for first, last in groups]
        backward(trainable, parts, TrainingPlan())
        gradients.append([parameter.grad for parameter in model.parameters() if parameter.grad is not None])
    return max(_distance(one, other) for one, other in zip(*gradients, strict=True))


def save_load(model: Network) -> float:
    """The largest difference between the logits of a model and of itself after saving and loading."""
    inputs = _inputs(model, Padded.of(_sequences(model, LENGTHS)), Padded.of(_sequences(model, SOURCE_LENGTHS)))
    with tempfile.TemporaryDirectory() as folder, torch.no_grad(), _evaluating(model):
        save_model(Path(folder), model)
        return _distance(model(inputs), load_model(Path(folder))(inputs))


def resume(model: Network) -> float:
    """The largest difference between the weights of an undisturbed training and of one stopped half-way."""
    with tempfile.TemporaryDirectory() as folder:
        whole = _trained(model, Path(folder) / "whole", [6])
        parts = _trained(model, Path(folder) / "parts", [3, 6])
    return max(_distance(one, other) for one, other in zip(whole, parts, strict=True))


WRITING, TRAINING = (causality, caching), (accumulation, resume)
LAWS = tuple(
    Law(
        law.__name__, (law.__doc__ or "").strip(), law, tolerance, decoders_only=law in WRITING, by_loss=law in TRAINING
    )
    for law, tolerance in (
        (lengths, 0.0),
        (padding, ROUNDING),
        (batching, ROUNDING),
        (causality, ROUNDING),
        (caching, ROUNDING),
        (meaning, ROUNDING),
        (masked_rows, 0.0),
        (accumulation, ROUNDING),
        (save_load, 0.0),
        (resume, 0.0),
    )
)


@dataclass(frozen=True)
class _RandomBatches:
    """Batches that are a function of their position, for a model of any vocabulary."""

    model: Network

    def start(self, position: Position) -> Iterator[tuple[Batch, Position]]:
        index = position.batch
        while True:
            lengths = (2 + index % 5, 7, 3)
            sequences = _sequences(self.model, lengths, seed=index)
            yield _batch(self.model, sequences, sequences[::-1]), Position(0, index + 1)
            index += 1


def _trained(model: Network, folder: Path, stops: list[int]) -> list[Tensor]:
    """The weights after training in one or several sittings; a new one knows only what is in the folder."""
    plan = TrainingPlan(steps=stops[-1], warmup=2, evaluate_every=2, save_every=3, label_smoothing=0.1)
    for sitting, stop in enumerate(stops):
        fresh = copy.deepcopy(model)
        torch.manual_seed(sitting)
        validation = [_batch(model, *[_sequences(model, (3, 5))] * 2)]
        run = Run(_trainable(fresh), _RandomBatches(model), validation, plan, folder, Silent())
        run.fit(until=stop)
    return [parameter.detach() for parameter in fresh.parameters()]


def _sequences(model: Network, lengths: tuple[int, ...], seed: int = 0) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed + 7919 * sum(lengths))
    return [torch.randint(model.config.vocabulary, (length,), generator=generator).tolist() for length in lengths]


def _inputs(model: Network, tokens: Padded, source: Padded) -> Inputs:
    return Inputs(tokens, source if model.config.reads_source else None)


def _one(model: Network, sequence: list[int], source: list[int]) -> Inputs:
    return _inputs(model, Padded.of([sequence]), Padded.of([source]))


def _trainable(model: Network) -> Trainable:
    """The objective that goes with the model's head."""
    if model.config.outputs == "labels":
        return LabelPrediction(model, label_smoothing=0.1)
    return SpanPrediction(model) if model.config.outputs == "spans" else TokenPrediction(model, label_smoothing=0.1)


def _batch(model: Network, sequences: list[list[int]], sources: list[list[int]]) -> Batch:
    """Targets of whatever the head gives: tokens, a class of each text, or two places in it."""
    targets = [row[::-1] for row in sequences]
    if model.config.outputs == "labels":
        targets = [[sum(row) % len(model.config.labels)] for row in sequences]
    elif model.config.outputs == "spans":
        targets = [[row[0] % len(row), len(row) - 1] for row in sequences]
    inputs = _inputs(model, Padded.of(sequences), Padded.of(sources))
    return Batch(inputs, Padded.of(targets, fill=IGNORED).ids)


def _distance(one: Tensor, other: Tensor) -> float:
    """The largest absolute difference; infinite where something is not a number."""
    worst = float((one - other).abs().max()) if one.numel() else 0.0
    return float("inf") if math.isnan(worst) else worst


class _evaluating:  # noqa: N801  (reads as a verb where it is used)
    """Evaluation mode inside a block, what it was before afterwards."""

    def __init__(self, model: Network) -> None:
        self.model, self.before = model, model.training

    def __enter__(self) -> None:
        self.model.eval()

    def __exit__(self, *_: object) -> None:
        self.model.train(self.before)
