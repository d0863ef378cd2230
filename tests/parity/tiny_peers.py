"""Tiny models of every family with random weights, as `transformers` builds them, and how to call both sides alike."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.data.batching import Inputs, Padded

BERT = {"vocab_size": 53, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 3, "intermediate_size": 41}
LONGFORMER = BERT | {"max_position_embeddings": 64, "attention_window": [4, 8, 4], "sep_token_id": 2}
LLAMA = BERT | {"num_attention_heads": 6, "num_key_value_heads": 2, "max_position_embeddings": 64}
T5 = {"vocab_size": 53, "d_model": 24, "d_kv": 7, "d_ff": 41, "num_layers": 2, "num_decoder_layers": 3, "num_heads": 3}
T5 |= {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 19}
MARIAN = {"vocab_size": 53, "d_model": 24, "encoder_layers": 2, "decoder_layers": 3, "pad_token_id": 52}
MARIAN |= {f"{side}_attention_heads": 3 for side in ("encoder", "decoder")}
MARIAN |= {f"{side}_ffn_dim": 41 for side in ("encoder", "decoder")}
MARIAN |= {"max_position_embeddings": 64, "decoder_start_token_id": 52, "eos_token_id": 0, "forced_eos_token_id": None}
BART = MARIAN | {"pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
DISTILBERT = {"vocab_size": 53, "dim": 24, "n_layers": 3, "n_heads": 3, "hidden_dim": 41}
OPT = {"vocab_size": 53, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 3, "ffn_dim": 41}
OPT |= {"max_position_embeddings": 64}
GPT = {"vocab_size": 53, "n_embd": 24, "n_layer": 3, "n_head": 3, "n_positions": 64, "eos_token_id": 0}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA3 |= {"original_max_position_embeddings": 16}
QWEN3 = LLAMA | {"head_dim": 10}
GEMMA = LLAMA | {"head_dim": 10, "num_hidden_layers": 4, "sliding_window": 3, "query_pre_attn_scalar": 7}
GEMMA3 = GEMMA | {"layer_types": ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"]}
TURNS = {"full_attention": {"rope_type": "linear", "rope_theta": 5e5, "factor": 8.0}}
TURNS |= {"sliding_attention": {"rope_type": "default", "rope_theta": 77.0}}


@dataclass(frozen=True)
class Peer:
    """A class of transformers and what makes a tiny member of it."""

    config: str
    model: str
    values: dict[str, Any]

    def build(self, attention: str = "eager") -> nn.Module:
        """Random weights, larger than the usual ones so that every part matters, in evaluation mode."""
        import transformers

        torch.manual_seed(5)
        config = getattr(transformers, self.config)(**self.values, attn_implementation=attention)
        model: nn.Module = getattr(transformers, self.model)(config).eval()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "embed_positions" not in name or "Marian" not in self.model:
                    parameter.add_(torch.randn_like(parameter) * 0.2)
            for name, buffer in model.named_buffers():
                if "final_logits_bias" in name:
                    buffer.normal_(std=0.2)
        return model


PEERS = {
    "bert": Peer("BertConfig", "BertModel", BERT),
    "bert masked": Peer("BertConfig", "BertForMaskedLM", BERT),
    "bert relu, untied": Peer(
        "BertConfig", "BertForMaskedLM", BERT | {"hidden_act": "relu", "tie_word_embeddings": False}
    ),
    "bert labels": Peer("BertConfig", "BertForSequenceClassification", BERT | {"num_labels": 3}),
    "bert spans": Peer("BertConfig", "BertForQuestionAnswering", BERT),
    "roberta masked": Peer("RobertaConfig", "RobertaForMaskedLM", BERT | {"max_position_embeddings": 64}),
    "roberta labels": Peer("RobertaConfig", "RobertaForSequenceClassification", BERT | {"num_labels": 5}),
    "longformer": Peer("LongformerConfig", "LongformerModel", LONGFORMER),
    "longformer masked": Peer("LongformerConfig", "LongformerForMaskedLM", LONGFORMER | {"attention_window": 4}),
    "longformer labels": Peer(
        "LongformerConfig", "LongformerForSequenceClassification", LONGFORMER | {"attention_window": 4, "num_labels": 5}
    ),
    "gpt": Peer("GPT2Config", "GPT2LMHeadModel", GPT),
    "gpt untied": Peer("GPT2Config", "GPT2LMHeadModel", GPT | {"tie_word_embeddings": False, "n_inner": 41}),
    "t5": Peer("T5Config", "T5ForConditionalGeneration", T5),
    "t5 1.1": Peer(
        "T5Config", "T5ForConditionalGeneration", T5 | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
    ),
    "llama": Peer("LlamaConfig", "LlamaForCausalLM", LLAMA),
    "llama tied": Peer("LlamaConfig", "LlamaForCausalLM", LLAMA | {"tie_word_embeddings": True, "head_dim": 10}),
    "llama 3": Peer("LlamaConfig", "LlamaForCausalLM", LLAMA | {"rope_parameters": LLAMA3}),
    "llama linear": Peer(
        "LlamaConfig",
        "LlamaForCausalLM",
        LLAMA | {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}},
    ),
    "llama biases": Peer("LlamaConfig", "LlamaForCausalLM", LLAMA | {"attention_bias": True, "mlp_bias": True}),
    "llama attention biases": Peer("LlamaConfig", "LlamaForCausalLM", LLAMA | {"attention_bias": True}),
    "mistral": Peer("MistralConfig", "MistralForCausalLM", LLAMA | {"sliding_window": 3, "head_dim": 10}),
    "mistral without a window": Peer("MistralConfig", "MistralForCausalLM", LLAMA | {"sliding_window": None}),
    "qwen2": Peer("Qwen2Config", "Qwen2ForCausalLM", LLAMA),
    "qwen2 with windows": Peer(
        "Qwen2Config",
        "Qwen2ForCausalLM",
        LLAMA | {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 1, "tie_word_embeddings": True},
    ),
    "qwen3": Peer("Qwen3Config", "Qwen3ForCausalLM", QWEN3),
    "qwen3 with windows and biases": Peer(
        "Qwen3Config",
        "Qwen3ForCausalLM",
        QWEN3 | {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 2, "attention_bias": True},
    ),
    "gemma2": Peer("Gemma2Config", "Gemma2ForCausalLM", GEMMA | {"attn_logit_softcapping": 2.0}),
    "gemma2 without caps": Peer(
        "Gemma2Config",
        "Gemma2ForCausalLM",
        GEMMA | {"attn_logit_softcapping": None, "final_logit_softcapping": None, "attention_bias": True},
    ),
    "gemma3": Peer("Gemma3TextConfig", "Gemma3ForCausalLM", GEMMA3 | {"rope_parameters": TURNS}),
    "gemma3 of one turn": Peer(
        "Gemma3TextConfig",
        "Gemma3ForCausalLM",
        GEMMA3 | {"rope_parameters": dict.fromkeys(TURNS, TURNS["sliding_attention"]), "tie_word_embeddings": False},
    ),
    "distilbert": Peer("DistilBertConfig", "DistilBertModel", DISTILBERT),
    "distilbert masked": Peer("DistilBertConfig", "DistilBertForMaskedLM", DISTILBERT | {"activation": "relu"}),
    "distilbert labels": Peer(
        "DistilBertConfig", "DistilBertForSequenceClassification", DISTILBERT | {"num_labels": 3}
    ),
    "distilbert spans": Peer("DistilBertConfig", "DistilBertForQuestionAnswering", DISTILBERT),
    "opt": Peer("OPTConfig", "OPTForCausalLM", OPT),
    "opt untied": Peer("OPTConfig", "OPTForCausalLM", OPT | {"tie_word_embeddings": False}),
    "bart": Peer("BartConfig", "BartForConditionalGeneration", BART),
    "bart scaled": Peer("BartConfig", "BartForConditionalGeneration", BART | {"scale_embedding": True}),
    "marian": Peer("MarianConfig", "MarianMTModel", MARIAN),
    "marian swish, scaled": Peer(
        "MarianConfig", "MarianMTModel", MARIAN | {"activation_function": "swish", "scale_embedding": True}
    ),
}

TEXTS = [[7, 11, 13, 17, 19, 23, 29], [31, 37, 41], [43, 47, 3, 5, 2]]
ANSWERS = [[1, 5, 3], [4, 9, 16, 25, 36], [49, 8]]


def our_inputs(peer: Peer, side: str) -> Inputs:
    fill = peer.values.get("pad_token_id", 1)
    texts = Padded.of(TEXTS, fill=fill, side=side)
    if not cross(peer):
        return Inputs(texts)
    return Inputs(Padded.of(ANSWERS, fill=fill, side="right"), texts)


def cross(peer: Peer) -> bool:
    return peer.model.startswith(("T5", "Marian", "Bart"))


def their_call(peer: Peer, model: nn.Module, side: str) -> Callable[..., Any]:
    """Their forward pass on the same texts, told where padding is and, where they do not count it, the positions."""
    inputs = our_inputs(peer, side)
    texts = inputs.source if inputs.source is not None else inputs.tokens
    given: dict[str, Tensor] = {"input_ids": texts.ids, "attention_mask": texts.real.long()}
    if cross(peer):
        given |= {"decoder_input_ids": inputs.tokens.ids, "decoder_attention_mask": inputs.tokens.real.long()}
    elif not peer.model.startswith("DistilBert"):  # which counts columns alone
        places = (texts.real.cumsum(1) - 1).clamp(min=0)
        given["position_ids"] = places + 2 if peer.model.startswith(("Roberta", "Longformer")) else places
    return lambda **more: model(**given, **more, return_dict=True)


def saved(model: nn.Module, folder: Path, **how: Any) -> Path:
    model.save_pretrained(folder, **how)
    return folder
