"""Training tokens per second of GPT-2 on one GPU, in bfloat16: Regard and transformers, the same model.

Both sides compile the whole way from ids to loss, so that neither writes its wide logits out, and take their steps as
a training does: queued one behind the other, the device waited for at the end. A step is forward, cross-entropy,
backward, clipping and fused AdamW. The vocabulary is rounded up to 50,304, which the matrix units divide evenly.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.bench.apart import Contestant, Task, compared, compete
from regard.bench.timing import installed
from regard.bench.training import always
from regard.data.batching import Batch, Inputs, Padded
from regard.errors import InputError
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
class Case:
    """GPT-2, or something small of its kind, and the batches it is trained on."""

    batch: int
    tokens: int = 1024
    layers: int = 12
    width: int = 768
    heads: int = 12
    vocabulary: int = 50304
    device: str = "cuda"

    @property
    def name(self) -> str:
        """What is trained, in words."""
        shape = f"{self.layers} layers × {self.width}, {self.vocabulary} words"
        return f"training, GPT-2, {shape}, {self.batch} × {self.tokens} tokens"

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

    def ids(self) -> tuple[Tensor, Tensor]:
        """What is read and what is predicted: random, the same for all."""
        draws = torch.Generator().manual_seed(0)
        read, predicted = torch.randint(self.vocabulary, (2, self.batch, self.tokens), generator=draws).unbind()
        return read, predicted


CASES = (Case(32), Case(64))


def rows() -> Iterator[dict[str, Any]]:
    """All figures, of the peers that are installed."""
    contestants = [Contestant("regard", regard, keeps_memory=True)]
    if installed("transformers"):
        contestants.append(Contestant("transformers", transformers, keeps_memory=False))
    for case in CASES:
        yield from compared(case.name, compete(contestants, case, precisions=["bfloat16"], side_by_side=True))


def regard(case: Case, precision: str) -> Task:
    """Steps of `regard train`."""
    torch.manual_seed(0)
    model = Transformer(case.config).train().to(case.device)
    read, predicted = case.ids()
    inputs = Inputs(Padded(read, torch.full((case.batch,), case.tokens), ragged=False))
    plan = TrainingPlan.model_validate({"precision": precision, "label_smoothing": 0.0})
    trainable: Trainable = TokenPrediction(model)
    if case.compiles:
        trainable = Compiled(trainable, _refuse)
    updater = Updater(trainable, adamw(model, plan), plan, always(Batch(inputs, predicted)))

    def work() -> list[float]:
        taken = [updater.take(1, 1e-4) for _ in range(STEPS)]
        return [one.read()[0] for one in taken]

    return Task(work, STEPS * predicted.numel(), sum(one.numel() for one in model.parameters()))


def _refuse(sentence: str) -> NoReturn:
    """What runs as written is not what is measured here."""
    raise InputError(sentence, "measure where the model compiles")


def transformers(case: Case, precision: str) -> Task:
    """The same steps as a user of transformers writes them."""
    import transformers as peer

    torch.manual_seed(0)
    settings: Any = peer.AutoConfig
    build: Any = peer.GPT2LMHeadModel
    model = build(settings.for_model(**FAMILIES["gpt"].write(case.config))).train().to(case.device)
    read, predicted = (ids.to(case.device) for ids in case.ids())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def loss() -> Tensor:
        with torch.autocast(case.device, torch.bfloat16, enabled=precision == "bfloat16"):
            logits = model(input_ids=read, use_cache=False).logits
            return F.cross_entropy(logits.flatten(0, 1).float(), predicted.flatten())

    found: Callable[[], Tensor] = torch.compile(loss) if case.compiles else loss

    def work() -> list[float]:
        losses = []
        for _ in range(STEPS):
            value = found()
            value.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            losses.append(value.detach())
        return [float(one) for one in losses]

    return Task(work, STEPS * predicted.numel(), sum(one.numel() for one in model.parameters()))
