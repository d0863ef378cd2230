"""A trained GPT's recorded activations (minGPT's sorter of three letters), reproduced from its weights.

Its network: pre-norm, learnt positions, one fused projection for query, key and value, GELU by its tanh
approximation, an output table of its own. The files are not part of the project; without them the tests skip.
"""

import base64
import gzip
import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from regard.attention.mask import Causal
from regard.attention.similarity import ScaledDot
from regard.data.batching import Inputs, Padded
from regard.decoding.engine import generate
from regard.decoding.hypothesis import Stop
from regard.decoding.strategies import Beam, Greedy
from regard.inspection.capture import Recording, watch_module
from regard.models.config import TransformerConfig
from regard.models.transformer import Transformer
from rounding import assert_close

FOLDER = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "gpt_nano_sort"
LETTERS = 6

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason=f"{FOLDER} is not there")


def read(name: str) -> tuple[dict, dict[str, Tensor]]:
    """The config and the tensors of one file."""
    with gzip.open(FOLDER / f"gpt-nano-sort-{name}.json.gz", "rt", encoding="utf-8") as stream:
        content = json.load(stream)
    config = content.pop("config")
    return config, {
        key: torch.from_numpy(np.frombuffer(base64.b64decode(one["data"]), "<f4").reshape(one["shape"]).copy())
        for key, one in content.items()
    }


NAMES = {  # minGPT's name of a layer's part: Regard's
    "ln_1": "self_residual.norm",
    "attn.c_proj": "self_attention.output",
    "ln_2": "feedforward_residual.norm",
    "mlp.c_fc": "feedforward.up",
    "mlp.c_proj": "feedforward.down",
}


def renamed(peer: dict[str, Tensor], layers: int) -> dict[str, Tensor]:
    """Their weights by our names; the fused projection split in three."""
    actual = {
        "embedding.weight": peer["transformer.wte.weight"],
        "decoder_positions.absolute.weight": peer["transformer.wpe.weight"],
        "output.weight": peer["lm_head.weight"],
    }
    for kind in ("weight", "bias"):
        actual[f"decoder.norm.{kind}"] = peer[f"transformer.ln_f.{kind}"]
        for layer in range(layers):
            before, after = f"transformer.h.{layer}", f"decoder.layers.{layer}"
            for part, name in NAMES.items():
                actual[f"{after}.{name}.{kind}"] = peer[f"{before}.{part}.{kind}"]
            fused = peer[f"{before}.attn.c_attn.{kind}"].chunk(3)
            for name, part in zip(("query", "key", "value"), fused, strict=True):
                actual[f"{after}.self_attention.{name}.{kind}"] = part
    return actual


@pytest.fixture(scope="module")
def model() -> Transformer:
    config, peer = read("model")
    model = Transformer(
        TransformerConfig(
            architecture="decoder",
            layers=config["n_layer"],
            heads=config["n_head"],
            width=config["n_embd"],
            vocabulary=config["vocab_size"],
            max_positions=config["block_size"],
            positions="learned",
            norm_placement="pre",
            feedforward="gelu_tanh",
            tie_embeddings=False,
            scale_embeddings=False,
        )
    )
    model.load_state_dict(renamed(peer, config["n_layer"]))
    return model.eval()


@pytest.fixture(scope="module")
def recorded() -> dict[str, Tensor]:
    return read("t0-partials")[1]


@pytest.fixture(scope="module")
def run(model, recorded) -> tuple[dict[str, Tensor], Recording]:
    """Everything our model computes on the recorded inputs, by their names, and what was seen of its attention."""
    found: dict[str, Tensor] = {}

    def keep(name, pick=lambda given, out: out):
        def hook(_, given, out):
            found[name] = pick(given, out)

        return hook

    first = model.decoder.layers[0]
    hooks = [
        model.embedding.register_forward_hook(keep("tok_emb")),
        model.decoder_positions.absolute.register_forward_hook(keep("pos_emb")),
        model.dropout.register_forward_hook(keep("x")),
        first.self_residual.norm.register_forward_hook(keep("ln1")),
        first.self_attention.attend.register_forward_hook(keep("v", lambda given, out: given[1].values)),
        first.self_attention.attend.register_forward_hook(keep("y", lambda given, out: out.transpose(1, 2).flatten(2))),
        first.self_attention.register_forward_hook(keep("yProj", lambda given, out: out[0])),
        first.feedforward_residual.norm.register_forward_hook(keep("attnResid", lambda given, out: given[0])),
        first.feedforward_residual.norm.register_forward_hook(keep("ln2")),
        first.feedforward.up.register_forward_hook(keep("fc")),
        first.feedforward.dropout.register_forward_hook(keep("gelu", lambda given, out: given[0])),
        first.feedforward.register_forward_hook(keep("mlp")),
        model.decoder.norm.register_forward_hook(keep("ln_f")),
        *(
            layer.register_forward_hook(keep(f"block{index}", lambda given, out: out[0]))
            for index, layer in enumerate(model.decoder.layers)
        ),
    ]
    ids = recorded["idx"].long()
    with torch.no_grad(), watch_module(model) as seen:
        found["lm_head"] = model(Inputs(Padded.of(ids.tolist())))
    for hook in hooks:
        hook.remove()
    found["mlpResid"], found["probs"] = found["block0"], found["lm_head"].softmax(-1)
    return found, seen


NUMBERS = ["tok_emb", "pos_emb", "x", "ln1", "v", "y", "yProj", "attnResid", "ln2", "fc", "gelu", "mlp", "mlpResid"]
NUMBERS += ["block0", "block1", "block2", "ln_f", "lm_head", "probs"]


@pytest.mark.parametrize("name", NUMBERS)
def test_every_recorded_number_is_computed(run, recorded, name):
    assert_close(run[0][name], recorded[name])


def test_what_was_seen_of_queries_and_keys_is_what_was_recorded(run, recorded):
    (call,) = run[1].forwards[-1].layers["decoder.0.self"]
    assert_close(call.query, recorded["q"])
    assert_close(call.new_keys, recorded["k"])
    scores = ScaledDot().scores(call.query, call.new_keys)
    allowed = Causal().dense(tuple(scores.shape), scores.device)
    assert_close(scores.masked_fill(~allowed, -torch.inf), recorded["att"])


def test_what_was_seen_of_the_weights_is_the_recorded_softmax(run, recorded):
    _, seen = run
    assert seen.layers == ["decoder.0.self", "decoder.1.self", "decoder.2.self"]
    for sequence in range(3):
        for head in range(3):
            expected = recorded["attSm"][sequence, head]
            whole = seen.weights("decoder.0.self", head, batch=sequence)
            assert_close(whole, expected)
            some = seen.weights("decoder.0.self", head, rows=[-1, 4, 0], batch=sequence)
            assert_close(some, expected[[-1, 4, 0]])


def test_exact_gelu_would_not_reproduce_it(recorded):
    exact = torch.nn.functional.gelu(recorded["fc"])
    assert (exact - recorded["gelu"]).abs().max() > 1e-4


@pytest.mark.parametrize("strategy", [Greedy(), Beam(3)], ids=["greedy", "beam"])
def test_it_sorts_what_was_recorded(model, recorded, strategy):
    prompts = recorded["idx"].long()[:, :LETTERS].tolist()
    found = generate(model, Inputs(Padded.of(prompts)), strategy, Stop(eos_id=-1, max_new_tokens=LETTERS))
    assert [list(one.ids) for one in found] == [sorted(prompt) for prompt in prompts]


def test_it_sorts_all_729_inputs(model):
    prompts = [list(letters) for letters in product(range(3), repeat=LETTERS)]
    found = generate(model, Inputs(Padded.of(prompts)), Greedy(), Stop(eos_id=-1, max_new_tokens=LETTERS))
    wrong = [prompt for prompt, one in zip(prompts, found, strict=True) if list(one.ids) != sorted(prompt)]
    assert wrong == []
