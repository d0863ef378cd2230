"""What the decoding tests drive: Transformers, recurrent networks, and texts whose logits a function gives.

Each comes as a `Case` with an oracle of its own, `after`: the next token's log-probabilities by one pass over the
whole text, without any state.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from regard.data.batching import Inputs, Padded
from regard.errors import InputError
from regard.models.config import TransformerConfig
from regard.models.network import NETWORKS
from regard.models.transformer import Transformer

END = 2
Text = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """A stepper, what it is given, and the oracle of its next token after a row's prompt and generated text."""

    stepper: Any
    inputs: Inputs
    after: Callable[[int, Text], Tensor]

    @property
    def rows(self) -> range:
        return range(self.inputs.tokens.ids.shape[0])

    def alone(self, row: int) -> Inputs:
        return self.beside([row])

    def beside(self, rows: Sequence[int]) -> Inputs:
        tokens, source = self.inputs.tokens, self.inputs.source
        prompts = Padded.of([tokens.rows()[row] for row in rows], side=tokens.side)
        return Inputs(prompts, None if source is None else Padded.of([source.rows()[row] for row in rows]))

    def score(self, row: int, text: Text) -> float:
        """Σ log p of a generated text, token by token."""
        return sum(float(self.after(row, text[:place])[token]) for place, token in enumerate(text))


def sharpened(model: nn.Module, factor: float, *parts: str) -> Any:
    """In float64, with the weights of some parts enlarged: a fresh model says nearly the same whatever it reads."""
    model.double().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if any(part in name for part in parts):
                parameter.mul_(factor)
    return model


def sequences(vocabulary: int, lengths: Sequence[int], seed: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(vocabulary, (length,), generator=generator).tolist() for length in lengths]


def transformer_case(
    architecture: str = "encoder_decoder",
    positions: str = "sinusoidal",
    *,
    vocabulary: int = 7,
    prompts: Sequence[int] = (3, 1, 5, 2),
    sources: Sequence[int] = (4, 7, 2, 5),
    side: str = "left",
    seed: int = 0,
) -> Case:
    torch.manual_seed(seed)
    config = TransformerConfig(
        architecture=architecture,
        positions=positions,
        vocabulary=vocabulary,
        width=12,
        heads=3,
        layers=2,
        max_positions=29,
        tie_embeddings=False,
    )
    model = sharpened(Transformer(config), 4.0, ".query.", ".key.")
    texts = sequences(vocabulary, prompts, seed + 1)
    read = sequences(vocabulary, sources[: len(prompts)], seed + 2) if architecture == "encoder_decoder" else None

    @cache
    @torch.no_grad()
    def after(row: int, text: Text) -> Tensor:
        tokens = Padded.of([[*texts[row], *text]])
        return model(Inputs(tokens, None if read is None else Padded.of([read[row]])))[0, -1].log_softmax(-1)

    return Case(model, Inputs(Padded.of(texts, side=side), None if read is None else Padded.of(read)), after)


def seq2seq_case(
    name: str = "bahdanau",
    cell: str = "gru",
    *,
    vocabulary: int = 7,
    prompts: Sequence[int] = (3, 1, 5, 2),
    side: str = "left",
    seed: int = 0,
) -> Case:
    """A recurrent sequence-to-sequence network of one of the registered kinds."""
    torch.manual_seed(seed)
    model = sharpened(NETWORKS[name].config(vocabulary=vocabulary, width=5, cell=cell, layers=2).build(), 2.0, "")
    texts = sequences(vocabulary, prompts, seed + 1)
    read = sequences(vocabulary, (4, 7, 2, 5)[: len(prompts)], seed + 2)

    @cache
    @torch.no_grad()
    def after(row: int, text: Text) -> Tensor:
        return model(Inputs(Padded.of([[*texts[row], *text]]), Padded.of([read[row]])))[0, -1].log_softmax(-1)

    return Case(model, Inputs(Padded.of(texts, side=side), Padded.of(read)), after)


@dataclass(frozen=True)
class Hidden:
    """The state of a recurrent stepper: one vector per row."""

    vectors: Tensor

    def select(self, rows: Tensor) -> "Hidden":
        return Hidden(self.vectors[rows])

    def copy(self) -> "Hidden":
        return self

    def trim(self, lengths: Tensor) -> "Hidden":
        raise InputError("one vector keeps no single tokens", "read them from the start")


class Recurrent(nn.Module):
    """A GRU language model as a Stepper."""

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.gru = nn.GRU(width, width, batch_first=True)
        self.output = nn.Linear(width, vocabulary)

    def start(self, inputs: Inputs) -> Hidden:
        return Hidden(torch.cat([self._read(prompt[:-1]) for prompt in inputs.tokens.rows()]))

    def step(self, ids: Tensor, state: Hidden) -> tuple[Tensor, Hidden]:
        logits, state = self.extend(ids[:, None], state)
        return logits[:, -1], state

    def extend(self, ids: Tensor, state: Hidden) -> tuple[Tensor, Hidden]:
        out, last = self.gru(self.embedding(ids), state.vectors[None])
        return self.output(out), Hidden(last[0])

    def _read(self, prompt: list[int]) -> Tensor:
        nothing = torch.zeros(1, 1, self.gru.hidden_size, dtype=torch.float64)
        return self.gru(self.embedding(torch.tensor([prompt])), nothing)[1][0] if prompt else nothing[0]


def recurrent_case(*, vocabulary: int = 7, prompts: Sequence[int] = (3, 1, 5, 2), seed: int = 4) -> Case:
    torch.manual_seed(seed)
    model = sharpened(Recurrent(vocabulary, 13), 2.5, "")
    texts = sequences(vocabulary, prompts, seed + 1)

    @cache
    @torch.no_grad()
    def after(row: int, text: Text) -> Tensor:
        whole, _ = model.gru(model.embedding(torch.tensor([[*texts[row], *text]])))
        return model.output(whole[0, -1]).log_softmax(-1)

    return Case(model, Inputs(Padded.of(texts)), after)


@dataclass(frozen=True)
class Texts:
    """A state that is the texts themselves."""

    texts: list[Text]

    def select(self, rows: Tensor) -> "Texts":
        return Texts([self.texts[row] for row in rows.tolist()])

    def copy(self) -> "Texts":
        return self

    def trim(self, lengths: Tensor) -> "Texts":
        return Texts([text[:length] for text, length in zip(self.texts, lengths.tolist(), strict=True)])


class Told:
    """A stepper whose logits are a function of the whole text so far, prompt included."""

    def __init__(self, logits: Callable[[Text], Tensor]) -> None:
        self.logits = logits

    def start(self, inputs: Inputs) -> Texts:
        return Texts([tuple(prompt[:-1]) for prompt in inputs.tokens.rows()])

    def step(self, ids: Tensor, state: Texts) -> tuple[Tensor, Texts]:
        logits, state = self.extend(ids[:, None], state)
        return logits[:, -1], state

    def extend(self, ids: Tensor, state: Texts) -> tuple[Tensor, Texts]:
        whole = [(*text, *new) for text, new in zip(state.texts, ids.tolist(), strict=True)]
        ends = range(-ids.shape[1] + 1, 1)
        logits = [torch.stack([self.logits(text[: len(text) + end]) for end in ends]) for text in whole]
        return torch.stack(logits), Texts(whole)


def told_case(logits: Callable[[Text], Tensor], prompts: Sequence[Text]) -> Case:
    @cache
    def after(row: int, text: Text) -> Tensor:
        return logits((*prompts[row], *text)).double().log_softmax(-1)

    return Case(Told(logits), Inputs(Padded.of(prompts)), after)


def random_logits(vocabulary: int, seed: int, spread: float = 2.0) -> Callable[[Text], Tensor]:
    """Logits drawn anew for every text, and always the same for the same text."""

    def logits(text: Text) -> Tensor:
        number = seed
        for token in text:
            number = (number * 6_364_136_223_846_793_005 + token + 1_442_695_040_888_963_407) % 2**63
        generator = torch.Generator().manual_seed(number)
        return torch.randn(vocabulary, generator=generator, dtype=torch.float64) * spread

    return logits
