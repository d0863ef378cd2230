"""Training tokens per second of GPT-2 on one GPU, in bfloat16: Regard and transformers, the same model.

Both sides compile the whole way from ids to loss, so that neither writes its wide logits out, once for all sizes of
batch; and both take their steps as a training does: queued one behind the other, the device waited for at the end. A
step is forward, cross-entropy, backward, clipping and fused AdamW. The vocabulary is rounded up to 50,304, which the
matrix units divide evenly.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.bench.apart import Contestant, Task, compared, compete_in_each
from regard.bench.timing import installed
from regard.bench.training import always
from regard.data.batching import Batch, Inputs, Padded
from regard.errors import InputError
from regard.layers.linear import parameter_count
from regard.models.config import TransformerConfig
from regard.models.families import FAMILIES
from regard.models.transformer import Transformer
from regard.training.compiling import Compiled
from regard.training.optimizers import adamw
from regard.training.plan import TrainingPlan
from regard.training.trainable import TokenPrediction, Trainable
from regard.training.updater import Updater

PEERS = {"transformers": "transformers"}
STEPS = 10
"""Taken in a row and timed together."""


@dataclass(frozen=True)
class Size:
    """GPT-2, or something small of its kind, and where it is trained."""

    tokens: int = 1024
    layers: int = 12
    width: int = 768
    heads: int = 12
    vocabulary: int = 50304
    device: str = "cuda"

    @property
    def compiles(self) -> bool:
        """On a GPU; elsewhere it would take minutes and gain nothing."""
        return self.device == "cuda"

    @property
    def config(self) -> TransformerConfig:
        """Without dropout, which the two sides draw differently."""
        shape = {"layers": self.layers, "width": self.width, "heads": self.heads, "vocabulary": self.vocabulary}
        without = {"dropout": 0.0, "attention_dropout": 0.0, "max_positions": self.tokens}
        values = FAMILIES["gpt"].config("gpt2").model_dump() | {"feedforward_width": 4 * self.width, "head_width": None}
        return TransformerConfig.model_validate(values | shape | without)


@dataclass(frozen=True)
class Case:
    """A model, and how many texts it is trained on at a time."""

    batch: int
    size: Size = Size()

    @property
    def name(self) -> str:
        """What is trained, in words."""
        shape = f"{self.size.layers} layers × {self.size.width}, {self.size.vocabulary} words"
        return f"training, GPT-2, {shape}, {self.batch} × {self.size.tokens} tokens"

    def ids(self) -> tuple[Tensor, Tensor]:
        """What is read and what is predicted: random, the same for all."""
        draws, shape = torch.Generator().manual_seed(0), (2, self.batch, self.size.tokens)
        read, predicted = torch.randint(self.size.vocabulary, shape, generator=draws).unbind()
        return read, predicted


CASES = (Case(32), Case(64))


def rows() -> Iterator[dict[str, Any]]:
    """All figures, of the peers that are installed."""
    contestants = [Contestant("regard", regard, keeps_memory=True)]
    if installed("transformers"):
        contestants.append(Contestant("transformers", transformers, keeps_memory=False))
    found = compete_in_each(contestants, CASES, rounds=5, precisions=["bfloat16"])
    for case, timed in zip(CASES, found, strict=True):
        yield from compared(case.name, timed)


def regard(case: Case, precision: str) -> Task:
    """Steps of `regard train`."""
    trainable, optimizer = _own(case.size)
    read, predicted = case.ids()
    inputs = Inputs(Padded(read, torch.full((case.batch,), case.size.tokens), ragged=False))
    plan = TrainingPlan.model_validate({"precision": precision})
    updater = Updater(trainable, optimizer, plan, always(Batch(inputs, predicted)))

    def work() -> list[float]:
        taken = [updater.take(1, 1e-4) for _ in range(STEPS)]
        return [one.read()[0] for one in taken]

    return Task(work, STEPS * predicted.numel(), parameter_count(trainable.module))


@cache
def _own(size: Size) -> tuple[Trainable, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = Transformer(size.config).train().to(size.device)
    trainable = TokenPrediction(model)
    return Compiled(trainable, _refuse) if size.compiles else trainable, adamw(model, TrainingPlan())


def _refuse(sentence: str) -> NoReturn:
    """What runs as written is not what is measured here."""
    raise InputError(sentence, "measure where the model compiles")


def transformers(case: Case, precision: str) -> Task:
    """The same steps as a user of transformers writes them."""
    model, loss, optimizer = _peer(case.size)
    read, predicted = (ids.to(case.size.device) for ids in case.ids())
    half = torch.autocast(case.size.device, torch.bfloat16, enabled=precision == "bfloat16")

    def work() -> list[float]:
        losses = []
        for _ in range(STEPS):
            with half:
                value = loss(read, predicted)
            value.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            losses.append(value.detach())
        return [float(one) for one in losses]

    return Task(work, STEPS * predicted.numel(), sum(one.numel() for one in model.parameters()))


@cache
def _peer(size: Size) -> tuple[Any, Callable[[Tensor, Tensor], Tensor], torch.optim.Optimizer]:
    import transformers as peer

    torch.manual_seed(0)
    settings: Any = peer.AutoConfig
    build: Any = peer.GPT2LMHeadModel
    model = build(settings.for_model(**FAMILIES["gpt"].write(size.config))).train().to(size.device)

    def loss(read: Tensor, predicted: Tensor) -> Tensor:
        logits = model(input_ids=read, use_cache=False).logits
        return F.cross_entropy(logits.flatten(0, 1).float(), predicted.flatten())

    fused = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    return model, torch.compile(loss, dynamic=True) if size.compiles else loss, fused
