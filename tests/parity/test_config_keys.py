"""Whatever key a config.json has: what it loads computes what transformers computes, or it is refused."""

import json
import logging

import pytest
import torch

pytest.importorskip("transformers")

from config_keys import PEERS, asked_regard, asked_transformers, changed, keys, others
from tiny_peers import saved

logging.getLogger("transformers").setLevel(logging.CRITICAL)
ROUNDING = {"atol": 2e-5, "rtol": 2e-5}
"""Both sides are float64, but for transformers' sinusoids and rotary angles, which are float32."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A folder of each tiny model, written once."""
    made = {}

    def folder(name):
        if name not in made:
            made[name] = saved(PEERS[name].build(), tmp_path_factory.mktemp("peer"))
        return made[name]

    return folder


def verdict(name, folder):
    """Of a changed folder: equal, refused, or unknown, where transformers itself cannot use it."""
    wanted = asked_transformers(PEERS[name], folder)
    if wanted is None:
        return "unknown"
    found = asked_regard(PEERS[name], folder, wanted[0])
    if found is None:
        return "refused"
    torch.testing.assert_close(found, wanted[1], **ROUNDING)
    return "equal"


MATTER = [
    ("roberta masked", "hidden_act", "relu", "refused"),
    ("roberta masked", "hidden_act", "gelu_new", "refused"),
    ("roberta labels", "hidden_act", "relu", "equal"),
    ("roberta masked", "pad_token_id", 0, "refused"),
    ("bert masked", "hidden_act", "swish", "equal"),
    ("bert masked", "is_decoder", True, "refused"),
    ("llama", "sliding_window", 3, "refused"),
    ("gpt", "sliding_window", 3, "refused"),
    ("marian", "sliding_window", 3, "refused"),
    ("llama", "attention_chunk_size", 3, "refused"),
    ("llama", "is_causal", False, "refused"),
    ("llama", "layer_types", ["full_attention"] * 3, "equal"),
    ("llama", "hidden_act", "swish", "equal"),
    ("llama", "hidden_act", "gelu", "equal"),
    ("llama", "hidden_act", "relu", "refused"),
    ("llama", "rope_theta", 77.0, "equal"),
    ("gpt", "num_attention_heads", 6, "equal"),
    ("gpt", "scale_attn_by_inverse_layer_idx", True, "refused"),
    ("t5 1.1", "dense_act_fn", "gelu", "equal"),
    ("t5 1.1", "dense_act_fn", "relu", "refused"),
    ("t5", "feed_forward_proj", "gelu_new", "equal"),
    ("t5", "relative_attention_max_distance", 11, "equal"),
    ("marian", "num_hidden_layers", 1, "refused"),
    ("mistral", "sliding_window", 2, "equal"),
    ("mistral", "sliding_window", None, "equal"),
    ("mistral", "layer_types", ["sliding_attention"] * 3, "refused"),
    ("mistral", "rope_theta", 77.0, "equal"),
    ("mistral", "rope_scaling", {"type": "yarn", "factor": 2.0}, "refused"),
    ("qwen2", "max_window_layers", 2, "equal"),
    ("qwen2", "layer_types", ["full_attention", "sliding_attention", "full_attention"], "equal"),
    ("qwen2", "layer_types", ["full_attention", "linear_attention", "full_attention"], "unknown"),
    ("qwen3", "use_sliding_window", False, "unknown"),
    ("qwen3", "layer_types", None, "equal"),
    ("gemma2", "layer_types", None, "equal"),
    ("gemma2", "query_pre_attn_scalar", 144, "equal"),
    ("gemma2", "attn_logit_softcapping", 1.5, "equal"),
    ("gemma2", "final_logit_softcapping", None, "equal"),
    ("gemma2", "use_bidirectional_attention", True, "refused"),
    ("gemma2", "hidden_activation", "silu", "equal"),
    ("gemma3", "rope_scaling", {"rope_type": "linear", "factor": 2.0}, "equal"),
    ("gemma3", "rope_parameters", None, "equal"),
    ("gemma3", "sliding_window", 2, "equal"),
    ("gemma3", "sliding_window", 1, "refused"),
    ("gemma3", "attn_logit_softcapping", 2.0, "equal"),
]


@pytest.mark.parametrize(("name", "key", "value", "expected"), MATTER)
def test_keys_that_change_the_numbers_are_read_or_refused(name, key, value, expected, folders, tmp_path):
    assert verdict(name, changed(folders(name), tmp_path / "changed", key, value)) == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", PEERS)
def test_every_key_that_transformers_reads_loads_equal_or_is_refused(name, folders, tmp_path):
    assert verdict(name, folders(name)) == "equal"
    values = json.loads((folders(name) / "config.json").read_text())
    found = []
    for key in keys(PEERS[name], values):
        for value in others(key, values):
            try:
                found.append(verdict(name, changed(folders(name), tmp_path / "changed", key, value)))
            except AssertionError as error:
                raise AssertionError(f"{key} = {value!r}: {error}") from error
    assert {"equal", "refused"} <= {*found}
    assert len(found) > 100
