"""Decoded tokens per second: Regard and `generate` of transformers on models of one size, random weights.

The models are GPT-2's, a decoder of 12 layers × 768, LLaMA's as small checkpoints have it, 576 wide with 9 heads that
share 3 key/value heads, and Marian's, 6 + 6 layers × 512. No token ends a text, so all sides make the same number of
tokens.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from regard.bench.apart import Contestant, Task, compared, compete, compete_in_each
from regard.bench.timing import installed
from regard.data.batching import Inputs, Padded
from regard.decoding.engine import generate
from regard.decoding.hypothesis import Stop
from regard.decoding.strategies import Beam, Greedy
from regard.layers.linear import keep_packed
from regard.models.config import Architecture, TransformerConfig
from regard.models.transformer import Transformer

PEERS = {"transformers": "transformers"}
START = 2
"""The token a text begins with; 0 is padding."""
LONGEST = 1024
"""Positions that GPT-2 learns."""


@dataclass(frozen=True)
class Size:
    """A model: of an encoder–decoder both stacks have as many layers."""

    architecture: Architecture = "encoder_decoder"
    layers: int = 6
    width: int = 512
    heads: int = 8
    vocabulary: int = 8000
    key_value_heads: int | None = None
    """Fewer than heads in a LLaMA, None in the others."""

    def __str__(self) -> str:
        stacks = f"{self.layers} + {self.layers}" if self.architecture == "encoder_decoder" else f"{self.layers}"
        kind = self.architecture if self.key_value_heads is None else "llama"
        return f"{kind}, {stacks} layers × {self.width}, {self.vocabulary} words"


MARIAN = Size()
GPT2 = Size("decoder", layers=12, width=768, heads=12, vocabulary=50257)
LLAMA = Size("decoder", layers=10, width=576, heads=9, vocabulary=16384, key_value_heads=3)
"""A third of the layers and of the words of the checkpoints it stands for, so as to be soon done."""


@dataclass(frozen=True)
class Case:
    """A model, how many texts it decodes at a time, and how."""

    batch: int
    beams: int = 1
    size: Size = MARIAN
    source_tokens: int = 32
    new_tokens: int = 64
    device: str = "cpu"

    @property
    def name(self) -> str:
        """What is decoded, in words."""
        how = "greedy" if self.beams == 1 else f"beam {self.beams}"
        return f"{self.size}, {self.batch} × {self.new_tokens} tokens, {how}"

    def sources(self) -> Tensor:
        """Random sources, the same for all."""
        shape = (self.batch, self.source_tokens)
        return torch.randint(START + 1, self.size.vocabulary, shape, generator=torch.Generator().manual_seed(0))


CASES = (
    *(Case(batch, size=size) for size in (GPT2, LLAMA) for batch in (1, 8)),
    *(Case(batch) for batch in (1, 8, 32)),
    Case(4, beams=4),
)


ON_GPU = (
    *(Case(batch, size=GPT2, new_tokens=256, device="cuda") for batch in (1, 64, 256)),
    Case(16, beams=4, size=GPT2, new_tokens=128, device="cuda"),
)


def rows(device: str = "cpu") -> Iterator[dict[str, Any]]:
    """All figures for this device, of the peers that are installed."""
    if not installed("transformers"):
        return
    if device == "cuda":
        contestants = [
            Contestant("regard", regard, keeps_memory=True),
            Contestant("transformers, sdpa", partial(transformers, "sdpa"), keeps_memory=False),
        ]
        found = compete_in_each(contestants, ON_GPU, rounds=3, precisions=["bfloat16"])
        for case, timed in zip(ON_GPU, found, strict=True):
            yield from compared(case.name, timed)
        return
    contestants = [
        Contestant("regard", regard, keeps_memory=True),
        Contestant("transformers, sdpa", partial(transformers, "sdpa"), keeps_memory=False),
        Contestant("transformers, eager", partial(transformers, "eager"), keeps_memory=False),
    ]
    for case in CASES:
        yield from compared(case.name, compete(contestants, case))


def regard(case: Case, precision: str) -> Task:
    """Regard's decoding."""
    model, parameters = _our_model(case.size, precision, case.device)
    sources = case.sources()
    read = Padded(sources, torch.full((case.batch,), case.source_tokens), ragged=False)
    begin = Padded(torch.full((case.batch, 1), START), torch.ones(case.batch, dtype=torch.long), ragged=False)
    inputs = (Inputs(begin, read) if case.size.architecture == "encoder_decoder" else Inputs(read)).to(case.device)
    strategy = Greedy() if case.beams == 1 else Beam(case.beams)
    stop = Stop(eos_id=-1, max_new_tokens=case.new_tokens)

    def work() -> int:
        return sum(len(one.ids) for one in generate(model, inputs, strategy, stop))

    return Task(work, case.batch * case.new_tokens, parameters)


@cache
def _our_model(size: Size, precision: str, device: str) -> tuple[Transformer, int]:
    torch.manual_seed(0)
    shape: dict[str, Any] = {"width": size.width, "heads": size.heads, "layers": size.layers}
    shape["architecture"] = size.architecture
    if size.key_value_heads is not None:
        shape |= {"key_value_heads": size.key_value_heads, "feedforward": "swiglu", "norm": "rms", "bias": False}
        shape |= {"feedforward_width": _inner(size), "norm_placement": "pre", "positions": "rotary"}
    elif size.architecture == "decoder":
        shape |= {"norm_placement": "pre", "feedforward": "gelu_tanh", "positions": "learned", "max_positions": LONGEST}
    model = Transformer(
        TransformerConfig(vocabulary=size.vocabulary, scale_embeddings=size.architecture != "decoder", **shape)
    )
    model = model.to(device, getattr(torch, precision)).eval()
    parameters = sum(one.numel() for one in model.parameters())
    keep_packed(model)  # as `regard.load` does
    return model, parameters


def transformers(attention: str, case: Case, precision: str) -> Task:
    """The `generate` of transformers, with its cache."""
    decoder = _gpt2 if case.size.key_value_heads is None else _llama
    build = _marian if case.size.architecture == "encoder_decoder" else decoder
    model = build(attention, case.size, precision).to(case.device)
    sources = case.sources().to(case.device)
    options = {"max_new_tokens": case.new_tokens, "do_sample": False, "num_beams": case.beams, "use_cache": True}

    def work() -> int:
        with torch.no_grad():
            found = model.generate(sources, attention_mask=torch.ones_like(sources), **options)
        return int(found[:, -case.new_tokens :].numel())  # before them stands the start token, or the prompt

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
    return _endless(MarianMTModel(config), precision)


@cache
def _gpt2(attention: str, size: Size, precision: str) -> Any:
    from transformers import GPT2Config
    from transformers import GPT2LMHeadModel as Peer

    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=size.vocabulary,
        n_embd=size.width,
        n_layer=size.layers,
        n_head=size.heads,
        n_positions=LONGEST,
        pad_token_id=0,
    )
    config._attn_implementation = attention
    build: Any = Peer
    return _endless(build(config), precision)


@cache
def _llama(attention: str, size: Size, precision: str) -> Any:
    from transformers import LlamaConfig
    from transformers import LlamaForCausalLM as Peer

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=size.vocabulary,
        hidden_size=size.width,
        intermediate_size=_inner(size),
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.key_value_heads,
        max_position_embeddings=LONGEST,
        tie_word_embeddings=True,
        pad_token_id=0,
    )
    config._attn_implementation = attention
    build: Any = Peer
    return _endless(build(config), precision)


def _inner(size: Size) -> int:
    """The width inside a LLaMA's feed-forward networks: 8/3 of its own."""
    return size.width * 8 // 3


def _endless(model: Any, precision: str) -> Any:
    """Ready to decode, with nothing that ends a text."""
    model = model.to(getattr(torch, precision)).eval()
    never = model.generation_config  # nothing ends a text and nothing is forbidden
    never.eos_token_id = never.forced_eos_token_id = never.bad_words_ids = never.max_length = None
    return model
