"""Forward passes and training steps of published sizes: Regard and transformers, the same model with random weights.

transformers' is built from the config.json that `regard convert` would write, so both sides are one model. A forward
pass is without gradients, in evaluation; a training step is forward, cross-entropy, backward, clipping and fused AdamW.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from regard.bench.apart import Contestant, Task, compared, compete
from regard.bench.timing import installed
from regard.bench.training import always
from regard.data.batching import Batch, Inputs, Padded
from regard.models.config import TransformerConfig
from regard.models.families import FAMILIES
from regard.models.transformer import Transformer
from regard.training.optimizers import adamw
from regard.training.plan import TrainingPlan
from regard.training.trainable import TokenPrediction
from regard.training.updater import Updater

PEERS = {"transformers": "transformers"}


@dataclass(frozen=True)
class Case:
    """A member of a family, what is done with it, and on how many tokens."""

    family: str
    size: str
    what: Literal["forward pass", "training step"]
    batch: int = 4
    tokens: int = 128

    @property
    def name(self) -> str:
        """What is measured, in words."""
        return f"{self.what} of {self.size}, {self.batch} × {self.tokens} tokens"

    @property
    def config(self) -> TransformerConfig:
        """The model; without dropout on either side, which the two draw differently."""
        without = {"dropout": 0.0, "attention_dropout": 0.0}
        return FAMILIES[self.family].config(self.size).model_copy(update=without)

    def ids(self) -> tuple[Tensor, Tensor]:
        """What is read and what is predicted: random, the same for all."""
        draws = torch.Generator().manual_seed(0)
        read, predicted = torch.randint(self.config.vocabulary, (2, self.batch, self.tokens), generator=draws).unbind()
        return read, predicted


MEMBERS = (("bert", "bert-base"), ("gpt", "gpt2"), ("t5", "t5-small"))
CASES = tuple(Case(*member, what) for member in MEMBERS for what in ("forward pass", "training step"))


def rows() -> Iterator[dict[str, Any]]:
    """All figures, if transformers is installed."""
    if not installed("transformers"):
        return
    contestants = [
        Contestant("regard", regard, keeps_memory=True),
        Contestant("transformers", transformers, keeps_memory=False),
        Contestant("transformers, freed memory kept", transformers, keeps_memory=True),
    ]
    for case in CASES:
        # memory is settled after four; the differences are small, so more rounds than elsewhere
        yield from compared(case.name, compete(contestants, case, rounds=11, warm_up=4))


def regard(case: Case, precision: str) -> Task:
    """Regard's."""
    torch.manual_seed(0)
    model = Transformer(case.config)
    read, predicted = (Padded(ids, torch.full((case.batch,), case.tokens), ragged=False) for ids in case.ids())
    cross = case.config.architecture == "encoder_decoder"
    inputs = Inputs(predicted, read) if cross else Inputs(read)
    if case.what == "forward pass":
        ready = model.to(getattr(torch, precision)).eval()
        return Task(_without_gradients(lambda: ready(inputs)), predicted.ids.numel(), _size(model))
    plan = TrainingPlan.model_validate({"precision": precision, "label_smoothing": 0.0})
    stream = always(Batch(inputs, predicted.ids))
    stepper = Updater(TokenPrediction(model.train()), adamw(model, plan), plan, stream)
    return Task(lambda: stepper.take(1, 1e-4).read(), predicted.ids.numel(), _size(model))


def transformers(case: Case, precision: str) -> Task:
    """transformers', as its users call it."""
    import transformers as peer

    torch.manual_seed(0)
    values = FAMILIES[case.family].write(case.config)
    build = getattr(peer, values["architectures"][0])
    settings: Any = peer.AutoConfig
    model = build(settings.for_model(**values))
    read, predicted = case.ids()
    given = {"input_ids": read}
    if case.config.architecture == "encoder_decoder":
        given["decoder_input_ids"] = predicted
    if case.what == "forward pass":
        ready = model.to(getattr(torch, precision)).eval()
        return Task(_without_gradients(lambda: ready(**given, use_cache=False).logits), predicted.numel(), _size(model))
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    half: AbstractContextManager[Any] = torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16")

    def step() -> float:
        with half:
            logits = model(**given, use_cache=False).logits
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), predicted.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return float(loss.detach())

    return Task(step, predicted.numel(), _size(model))


def _without_gradients(work: Callable[[], object]) -> Callable[[], object]:
    def done() -> object:
        with torch.no_grad():
            return work()

    return done


def _size(model: torch.nn.Module) -> int:
    return sum(one.numel() for one in model.parameters())
