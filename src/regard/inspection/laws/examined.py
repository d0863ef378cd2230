"""What a doctor needs to know of a model: how it is called, what it gives, and the texts it is tried on.

A Regard network says it all itself. Of anybody's own `nn.Module` it is found out: by its methods (`forward(inputs)`,
and `start`, `step`, `extend` if it decodes) and by what comes out of a text of one token.
"""

import copy
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention.multihead import Attend
from regard.data.batching import Inputs, Padded
from regard.errors import InputError
from regard.layers.linear import parameter_count
from regard.models.network import Network, NetworkConfig
from regard.text.tokenizer import Tokenizer

LARGE = 20_000_000
"""Parameters from which on some laws take fewer inputs, or a smaller copy, and say so."""
LARGEST_WIDE = 300_000_000
"""Parameters up to which a copy in float64 tells rounding from a bug."""
SHORTEST = 12
"""Positions a model must have for the texts of the laws."""
Texts = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, eq=False)
class Examined:
    """A model in evaluation, in float32 where it is in half precision, with what is known about it."""

    module: nn.Module
    original: nn.Module
    """The model as it was given."""
    vocabulary: int
    outputs: str
    """What its head gives: tokens, masked, labels, spans, or none: vectors."""
    reads_source: bool
    decodes: bool
    forwards: bool = True
    folder: Path | None = None
    tokenizer: Tokenizer | None = None

    @classmethod
    def of(cls, module: nn.Module, folder: Path | None = None, tokenizer: Tokenizer | None = None) -> "Examined":
        """What is known of a network, or found out about a module."""
        if not isinstance(module, nn.Module):
            raise InputError(
                f"{type(module).__name__} is no model",
                "give a Model, a Network, or an nn.Module that follows contracts",
            )
        own = module if module_dtype(module).itemsize > 2 else copy.deepcopy(module).float()
        if isinstance(module, Network):
            config = module.config
            decodes = config.decodes
            known = cls(own, module, config.vocabulary, config.outputs, config.reads_source, decodes)
        else:
            known = _found_out(own, module)
        return replace(known, folder=folder, tokenizer=tokenizer)

    @cached_property
    def large(self) -> bool:
        """Whether it has so many parameters that some laws take a sample."""
        return parameter_count(self.original) > LARGE

    @property
    def widens(self) -> bool:
        """Whether there is room for a copy in float64."""
        return parameter_count(self.original) <= LARGEST_WIDE

    @cached_property
    def wide(self) -> "Examined":
        """The same in float64, where rounding is a billion times smaller."""
        return replace(self, module=copy.deepcopy(self.module).double())

    @property
    def network(self) -> Network | None:
        """It, where it is one of Regard's networks."""
        return self.module if isinstance(self.module, Network) else None

    @property
    def config(self) -> NetworkConfig:
        """That of a network; laws that go by it are not about other modules."""
        assert isinstance(self.module, Network)
        return self.module.config

    @property
    def stepper(self) -> Any:
        """It, as what is decoded with."""
        return self.module

    @property
    def device(self) -> torch.device:
        return next(iter(self.module.parameters()), torch.empty(0)).device

    @property
    def eos_id(self) -> int:
        """The token that ends a text; any will do where no tokenizer says."""
        try:
            return 0 if self.tokenizer is None else self.tokenizer.eos_id
        except InputError:
            return 0

    @property
    def attentions(self) -> list[Attend]:
        return [part for part in self.module.modules() if isinstance(part, Attend)]

    def texts(self, *lengths: int, seed: int = 0) -> Texts:
        """Random ids, the same at every call."""
        generator = torch.Generator().manual_seed(seed + 7919 * sum(lengths))
        drawn = (torch.randint(self.vocabulary, (length,), generator=generator).tolist() for length in lengths)
        return tuple(map(tuple, drawn))

    def inputs(self, tokens: Padded, source: Padded) -> Inputs:
        return Inputs(tokens, source if self.reads_source else None).to(self.device)

    def together(self, texts: Texts, sources: Texts, side: str = "right", fills: tuple[int, int] = (0, 0)) -> Inputs:
        """A batch of them, its padding on a side, and filled with these."""
        tokens = Padded.of(texts, fill=fills[0], side="left" if side == "left" else "right")
        return self.inputs(tokens, Padded.of(sources or ((0,),) * len(texts), fill=fills[1]))

    def alone(self, text: tuple[int, ...], source: tuple[int, ...] = ()) -> Inputs:
        """One of them."""
        return self.inputs(Padded.of([text]), Padded.of([source or (0,)]))

    def each(self, texts: Texts, sources: Texts) -> list[Tensor]:
        """What comes out of each of them alone."""
        sources = sources or ((),) * len(texts)
        return [self.module(self.alone(text, source))[0] for text, source in zip(texts, sources, strict=True)]


def module_dtype(module: nn.Module) -> torch.dtype:
    """The type of a module's first weight."""
    return next((one.dtype for one in module.parameters() if one.is_floating_point()), torch.float32)


def _found_out(own: nn.Module, module: nn.Module) -> Examined:
    """By what it has, and by what comes out of one token."""
    stepper: Any = own
    decodes = all(callable(getattr(own, name, None)) for name in ("start", "step", "extend"))
    forwards = type(own).forward is not nn.Module.forward
    problem = "it has neither forward(inputs) nor start, step and extend"
    for source in (None, Padded.of([[0]])):
        inputs = Inputs(Padded.of([[0]]), source).to(next(iter(own.parameters()), torch.empty(0)).device)
        if not (forwards or decodes):
            break
        try:
            with torch.no_grad(), evaluating(own):
                out = own(inputs) if forwards else stepper.step(inputs.tokens.ids[:, -1], stepper.start(inputs))[0]
        except Exception as error:
            problem = f"given Inputs of one token it raised {type(error).__name__}: {str(error).splitlines()[0][:120]}"
            continue
        if not isinstance(out, Tensor) or out.dim() not in (2, 3) or not out.is_floating_point():
            problem = f"of Inputs it made {type(out).__name__}, not a tensor [batch, tokens, vocabulary]"
            continue
        outputs = "tokens" if out.dim() == 3 or not forwards else "labels"
        vocabulary = out.shape[-1] if outputs == "tokens" else getattr(own, "vocabulary", None)
        if vocabulary is None:
            problem = "its labels do not tell how many tokens it knows"
            continue
        return Examined(own, module, int(vocabulary), outputs, source is not None, decodes, forwards)
    raise InputError(
        f"{type(module).__name__} follows no contract of Regard's: {problem}",
        "write `forward(inputs: regard.Inputs)` that gives logits, or regard.Stepper's methods, and for labels an "
        "attribute `vocabulary`",
    )


@contextmanager
def evaluating(*modules: nn.Module) -> Iterator[None]:
    """Evaluation mode inside a block, what it was before afterwards."""
    before = [module.training for module in modules]
    for module in modules:
        module.eval()
    try:
        yield
    finally:
        for module, training in zip(modules, before, strict=True):
            module.train(training)


def difference(found: Tensor | Iterable[Tensor], expected: Tensor | Iterable[Tensor]) -> float:
    """The largest difference of an entry, as a share of the largest entry expected; infinite for what is no number."""
    ones, others = ([one] if isinstance(one, Tensor) else list(one) for one in (found, expected))
    if len(ones) != len(others) or any(one.shape != other.shape for one, other in zip(ones, others, strict=True)):
        return float("inf")
    pairs = [(one.double(), other.double()) for one, other in zip(ones, others, strict=True) if one.numel()]
    if not pairs:
        return 0.0
    size = max(float(other.abs().amax()) for _, other in pairs)
    worst = [float((one - other).abs().amax()) for one, other in pairs]
    unlike = any(math.isnan(value) for value in (*worst, size))
    return max(worst) / max(size, SMALLEST) if not unlike else float("inf")


SMALLEST = 1e-6
"""What is smaller than this counts as rounding of nothing."""


def nothing_unfit(model: Examined) -> None:
    """The law is about every model."""


def needs_forward(model: Examined) -> str | None:
    """Why it cannot be asked for logits of a text."""
    limit = getattr(getattr(model.module, "config", None), "position_limit", None)
    if limit is not None and limit < SHORTEST:
        return f"it has {limit} positions and the law is tried on texts of {SHORTEST} tokens"
    return None if model.forwards else "it has no forward(inputs)"


def needs_steps(model: Examined) -> str | None:
    """Why it cannot be decoded with."""
    if not model.decodes:
        return "it does not decode" if model.network else "it has no start, step and extend"
    return needs_forward(model)


def needs_loss(model: Examined) -> str | None:
    """Why it cannot be trained."""
    return needs_forward(model) or ("it gives vectors and has no loss" if model.outputs == "none" else None)


def needs_network(model: Examined) -> str | None:
    """Why nothing says what it should be."""
    return None if model.network else "it is no Network of Regard's, so there is no config to go by"


def needs_attention(model: Examined) -> str | None:
    """Why there is nothing to look at in it."""
    return needs_forward(model) or (None if model.attentions else "it has no attention with queries and keys")


def any_part(model: Examined, kind: type[Any]) -> bool:
    """Whether a part of the model is of a kind."""
    return any(isinstance(part, kind) for part in model.module.modules())
