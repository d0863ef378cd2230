"""Decoded tokens per second: Regard and `generate` of transformers on models of one size, random weights.

The model is Marian's: 6 + 6 layers × 512. No token ends a text, so all sides make the same number of tokens.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from regard.bench.apart import Contestant, Task, compared, compete
from regard.bench.timing import installed
from regard.data.batching import Inputs, Padded
from regard.decoding.engine import generate
from regard.decoding.hypothesis import Stop
from regard.decoding.strategies import Beam, Greedy
from regard.models.config import TransformerConfig
from regard.models.transformer import Transformer

PEERS = {"transformers": "transformers"}
START = 2
"""The token a text begins with; 0 is padding."""


@dataclass(frozen=True)
class Size:
    """An encoder–decoder."""

    layers: int = 6
    width: int = 512
    heads: int = 8
    vocabulary: int = 8000


@dataclass(frozen=True)
class Case:
    """A model, how many texts it decodes at a time, and how."""

    batch: int
    beams: int = 1
    size: Size = Size()
    source_tokens: int = 32
    new_tokens: int = 64

    @property
    def name(self) -> str:
        """What is decoded, in words."""
        how = "greedy" if self.beams == 1 else f"beam {self.beams}"
        size = f"{self.size.layers} + {self.size.layers} layers × {self.size.width}, {self.size.vocabulary} words"
        return f"decoding, {size}, {self.batch} × {self.new_tokens} tokens, {how}"

    def sources(self) -> Tensor:
        """Random sources, the same for all."""
        shape = (self.batch, self.source_tokens)
        return torch.randint(START + 1, self.size.vocabulary, shape, generator=torch.Generator().manual_seed(0))


CASES = (Case(1), Case(8), Case(32), Case(4, beams=4))


def rows() -> Iterator[dict[str, Any]]:
    """All figures, of the peers that are installed."""
    if not installed("transformers"):
        return
    contestants = [
        Contestant("regard", regard, keeps_memory=True),
        Contestant("transformers, sdpa", partial(transformers, "sdpa"), keeps_memory=False),
        Contestant("transformers, eager", partial(transformers, "eager"), keeps_memory=False),
        Contestant("transformers, sdpa, freed memory kept", partial(transformers, "sdpa"), keeps_memory=True),
    ]
    for case in CASES:
        yield from compared(case.name, compete(contestants, case))


def regard(case: Case, precision: str) -> Task:
    """Our decoding."""
    model = _our_model(case.size, precision)
    sources = case.sources()
    read = Padded(sources, torch.full((case.batch,), case.source_tokens), ragged=False)
    begin = Padded(torch.full((case.batch, 1), START), torch.ones(case.batch, dtype=torch.long), ragged=False)
    strategy = Greedy() if case.beams == 1 else Beam(case.beams)
    stop = Stop(end=-1, tokens=case.new_tokens)

    def work() -> int:
        return sum(len(one.ids) for one in generate(model, Inputs(begin, read), strategy, stop))

    return Task(work, case.batch * case.new_tokens, sum(one.numel() for one in model.parameters()))


@cache
def _our_model(size: Size, precision: str) -> Transformer:
    torch.manual_seed(0)
    shape = {"width": size.width, "heads": size.heads, "layers": size.layers}
    model = Transformer(TransformerConfig(vocabulary=size.vocabulary, **shape))
    return model.to(getattr(torch, precision)).eval()


def transformers(attention: str, case: Case, precision: str) -> Task:
    """The `generate` of transformers, with its cache."""
    model = _marian(attention, case.size, precision)
    sources = case.sources()
    options = {"max_new_tokens": case.new_tokens, "do_sample": False, "num_beams": case.beams, "use_cache": True}

    def work() -> int:
        with torch.no_grad():
            found = model.generate(sources, attention_mask=torch.ones_like(sources), **options)
        return int(found[:, 1:].numel())  # the first is the start token

    return Task(work, case.batch * case.new_tokens, sum(one.numel() for one in model.parameters()))


@cache
def _marian(attention: str, size: Size, precision: str) -> Any:
    from transformers import MarianConfig, MarianMTModel

    torch.manual_seed(0)
    config = MarianConfig(
        vocab_size=size.vocabulary,
        decoder_vocab_size=size.vocabulary,
        d_model=size.width,
        encoder_layers=size.layers,
        decoder_layers=size.layers,
        encoder_attention_heads=size.heads,
        decoder_attention_heads=size.heads,
        encoder_ffn_dim=4 * size.width,
        decoder_ffn_dim=4 * size.width,
        max_position_embeddings=256,
        activation_function="relu",
        scale_embedding=True,
        pad_token_id=0,
        eos_token_id=1,
        decoder_start_token_id=START,
        forced_eos_token_id=None,
    )
    config._attn_implementation = attention
    model = MarianMTModel(config).to(getattr(torch, precision)).eval()
    never = model.generation_config  # nothing ends a text and nothing is forbidden
    never.eos_token_id = never.forced_eos_token_id = never.bad_words_ids = never.max_length = None
    return model
