"""The models that decoding is measured on, Regard's and those of transformers, with random weights and of one size."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from regard.layers.linear import keep_int8, keep_packed
from regard.models.config import Architecture, TransformerConfig
from regard.models.transformer import Transformer

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
LLAMA = Size("decoder", layers=30, width=576, heads=9, vocabulary=49152, key_value_heads=3)


@cache
def our_model(size: Size, precision: str, device: str) -> tuple[Transformer, int]:
    """As `regard.load` gives it, and how many parameters it has."""
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
    model = model.to(device, torch.float32 if precision == "int8" else getattr(torch, precision)).eval()
    parameters = sum(one.numel() for one in model.parameters())
    keep_int8(model) if precision == "int8" else keep_packed(model)
    return model, parameters


@cache
def marian(attention: str, size: Size, precision: str) -> Any:
    """An encoder–decoder of transformers."""
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
def gpt2(attention: str, size: Size, precision: str) -> Any:
    """A decoder with learnt positions."""
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
def llama(attention: str, size: Size, precision: str) -> Any:
    """A decoder with rotary ones, gates and shared keys."""
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
