"""Training tokens per second of the same models by Regard, by `torch.nn.Transformer` and by x-transformers.

A whole step counts: forward, cross-entropy, backward, clipping, fused AdamW. Dropout is the same on both sides and the
peers' attention runs fused; what is not equal is said here: `nn.Transformer` ends each stack with one more norm, and
x-transformers has neither biases in its attention nor in its norms. Tokens are those that are predicted.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.bench.apart import Contestant, Task, compared, compete
from regard.bench.timing import installed
from regard.data.batching import Batch, Inputs, Padded
from regard.data.stream import Position
from regard.embedding.positions import Sinusoidal
from regard.models.config import Architecture, TransformerConfig
from regard.models.transformer import Transformer
from regard.training.optimizers import adamw
from regard.training.plan import TrainingPlan
from regard.training.trainable import TokenPrediction
from regard.training.updater import Updater

PEERS = {"x-transformers": "x_transformers"}


@dataclass(frozen=True)
class Case:
    """A model and the batches it is trained on."""

    architecture: Architecture
    layers: int
    tokens: int
    dropout: float
    width: int = 256
    heads: int = 8
    vocabulary: int = 8000
    batch: int = 32

    @property
    def name(self) -> str:
        """What is trained, in words."""
        stacks = f"{self.layers} + {self.layers}" if self.architecture == "encoder_decoder" else f"{self.layers}"
        return (
            f"training, {self.architecture}, {stacks} layers × {self.width}, {self.vocabulary} words, "
            f"{self.batch} × {self.tokens} tokens"
        )

    def ids(self) -> tuple[Tensor, Tensor, Tensor]:
        """Sources, inputs and targets: random, the same for all."""
        draws = torch.Generator().manual_seed(0)
        source, inputs, targets = torch.randint(self.vocabulary, (3, self.batch, self.tokens), generator=draws).unbind()
        return source, inputs, targets


TRANSLATOR = Case("encoder_decoder", layers=3, tokens=64, dropout=0.1)
LANGUAGE_MODEL = Case("decoder", layers=6, tokens=256, dropout=0.0)


def rows() -> Iterator[dict[str, Any]]:
    """All figures, of the peers that are installed."""
    own = Contestant("regard", regard, keeps_memory=True)
    peers = [
        Contestant("nn.Transformer", torch_transformer, keeps_memory=False),
        Contestant("nn.Transformer, freed memory kept", torch_transformer, keeps_memory=True),
    ]
    yield from compared(TRANSLATOR.name, compete([own, *peers], TRANSLATOR, warm_up=2))
    if installed("x_transformers"):
        peers = [
            Contestant("x-transformers", x_transformers, keeps_memory=False),
            Contestant("x-transformers, freed memory kept", x_transformers, keeps_memory=True),
        ]
        yield from compared(LANGUAGE_MODEL.name, compete([own, *peers], LANGUAGE_MODEL, warm_up=2))


def regard(case: Case, precision: str) -> Task:
    """A step of `regard train`."""
    torch.manual_seed(0)
    shape = {"width": case.width, "heads": case.heads, "layers": case.layers, "dropout": case.dropout}
    decoder = {"norm_placement": "pre", "feedforward": "gelu", "positions": "learned", "max_positions": case.tokens}
    config = TransformerConfig(
        vocabulary=case.vocabulary,
        architecture=case.architecture,
        **shape,
        **(decoder if case.architecture == "decoder" else {}),
    )
    model = Transformer(config).train()
    source, inputs, targets = (Padded(ids, torch.full((case.batch,), case.tokens), ragged=False) for ids in case.ids())
    batch = Batch(Inputs(inputs, source if case.architecture == "encoder_decoder" else None), targets.ids)
    plan = TrainingPlan.model_validate({"precision": precision})
    stepper = Updater(TokenPrediction(model), adamw(model, plan), plan, always(batch))
    return Task(lambda: stepper.take(1, 1e-4).read(), targets.ids.numel(), _size(model))


def always(batch: Batch) -> Iterator[tuple[Batch, Position]]:
    """One batch, over and over."""
    while True:
        yield batch, Position()


class TorchTransformer(nn.Module):
    """`nn.Transformer` with what it needs to be the same model: tied embeddings, sinusoidal positions."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.embedding = nn.Embedding(case.vocabulary, case.width)
        self.positions = nn.Buffer(Sinusoidal(case.width)(torch.arange(case.tokens)[None]).float())
        self.dropout = nn.Dropout(case.dropout)
        self.transformer = nn.Transformer(
            case.width, case.heads, case.layers, case.layers, 4 * case.width, case.dropout, batch_first=True
        )
        self.causal = nn.Buffer(nn.Transformer.generate_square_subsequent_mask(case.tokens))
        for part in self.modules():
            if isinstance(part, nn.MultiheadAttention):
                part.dropout = 0.0  # neither side drops attention weights, which would slow the fused kernel

    def forward(self, source: Tensor, inputs: Tensor) -> Tensor:
        """Logits of every token."""
        factor = self.embedding.embedding_dim**0.5
        read, written = (self.dropout(self.embedding(ids) * factor + self.positions) for ids in (source, inputs))
        hidden = self.transformer(read, written, tgt_mask=self.causal, tgt_is_causal=True)
        return F.linear(hidden, self.embedding.weight)


def torch_transformer(case: Case, precision: str) -> Task:
    """A step as a user of `nn.Transformer` writes it."""
    torch.manual_seed(0)
    source, inputs, targets = case.ids()
    model = TorchTransformer(case).train()
    return _task(model, lambda: model(source, inputs), targets, precision)


def x_transformers(case: Case, precision: str) -> Task:
    """A step as a user of x-transformers writes it."""
    from x_transformers import Decoder, TransformerWrapper

    torch.manual_seed(0)
    _, inputs, targets = case.ids()
    layers = Decoder(
        dim=case.width,
        depth=case.layers,
        heads=case.heads,
        attn_dim_head=case.width // case.heads,
        attn_flash=True,
        attn_dropout=0.0,
        ff_dropout=case.dropout,
    )
    model: nn.Module = TransformerWrapper(
        num_tokens=case.vocabulary, max_seq_len=case.tokens, tie_embedding=True, attn_layers=layers
    )
    return _task(model.train(), lambda: model(inputs), targets, precision)


def _task(model: nn.Module, forward: Callable[[], Tensor], targets: Tensor, precision: str) -> Task:
    """Forward, loss, backward, clip, step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step() -> None:
        with _autocast(precision):
            loss = F.cross_entropy(forward().flatten(0, 1), targets.flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return Task(step, targets.numel(), _size(model))


def _autocast(precision: str) -> AbstractContextManager[object]:
    return nullcontext() if precision == "float32" else torch.autocast("cpu", dtype=torch.bfloat16)


def _size(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())
