"""Files as they were written years ago: old names, buffers beside the weights, bodies without their heads."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_peers import BERT, PEERS, Peer, saved

from rounding import assert_close

pytest.importorskip("transformers")

from regard.interop.huggingface import read_model

WEIGHTS = "model.safetensors"


def rewritten(peer: Peer, folder: Path, change, **config: object) -> Path:
    """A tiny model whose file was changed before it is read."""
    saved(peer.build(), folder)
    tensors = load_file(folder / WEIGHTS)
    save_file({name: one.contiguous() for name, one in change(tensors).items()}, folder / WEIGHTS)
    values = json.loads((folder / "config.json").read_text()) | config
    (folder / "config.json").write_text(json.dumps(values))
    return folder


def same(one, other) -> None:
    assert one.config == other.config
    for name, tensor in one.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name]), name


@pytest.fixture
def read(tmp_path):
    """A tiny model of Hugging Face's as it is written today, and with its file changed."""

    def both(peer: Peer, change, **config: object):
        plain = read_model(saved(peer.build(), tmp_path / "today"))
        return plain, read_model(rewritten(peer, tmp_path / "old", change, **config))

    return both


def test_norms_had_a_gamma_and_a_beta(read):
    def old(tensors):
        names = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
        found = {}
        for name, tensor in tensors.items():
            ending = next((key for key in names if name.endswith(key)), None)
            found[name if ending is None else name.removesuffix(ending) + names[ending]] = tensor
        assert sum(name.endswith((".gamma", ".beta")) for name in found) == 2 * (2 * 3 + 2)
        return found

    same(*read(PEERS["bert masked"], old))


BUFFERS = {
    "bert masked": {"bert.embeddings.position_ids": torch.arange(512)[None]},
    "roberta masked": {"roberta.embeddings.position_ids": torch.arange(64)[None]},
    "gpt": {
        f"transformer.h.{layer}.attn.{name}": tensor
        for layer in range(3)
        for name, tensor in {
            "bias": torch.ones(1, 1, 64, 64, dtype=torch.uint8),
            "masked_bias": torch.tensor(-1e4),
        }.items()
    },
    "llama": {f"model.layers.{layer}.self_attn.rotary_emb.inv_freq": torch.ones(2) for layer in range(3)},
    "t5": {"decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight": torch.ones(8, 3)},
    "marian": {f"model.{side}.embed_positions.weight": torch.ones(64, 24) for side in ("encoder", "decoder")},
}


@pytest.mark.parametrize("name", BUFFERS)
def test_what_is_no_weight_is_passed_over(name, read):
    same(*read(PEERS[name], lambda tensors: tensors | BUFFERS[name]))


@pytest.mark.parametrize("name", ["gpt", "llama tied"])
def test_a_body_without_its_prefix_is_a_language_model_by_its_table(name, read):
    prefix = {"gpt": "transformer.", "llama tied": "model."}[name]

    def bare(tensors):
        return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name != "lm_head.weight"}

    same(*read(PEERS[name], bare))


def test_a_bare_body_has_buffers_too(read):
    def bare(tensors):
        all = tensors | BUFFERS["gpt"]
        return {name.removeprefix("transformer."): tensor for name, tensor in all.items()}

    same(*read(PEERS["gpt"], bare, architectures=["GPT2Model"]))


@torch.no_grad()
def test_a_bert_that_also_judges_pairs_fills_gaps_as_the_plain_one(tmp_path):
    """BertForPreTraining has a pooler and a second head."""
    import transformers

    from regard.data.batching import Inputs, Padded

    folder = saved(Peer("BertConfig", "BertForPreTraining", BERT).build(), tmp_path)
    assert "cls.seq_relationship.weight" in load_file(folder / WEIGHTS)
    own = read_model(folder)
    expected = transformers.BertForPreTraining.from_pretrained(folder).eval()
    ids = [[7, 11, 13, 17, 19]]
    wanted = expected(torch.tensor(ids)).prediction_logits
    assert_close(own(Inputs(Padded.of(ids))), wanted)


@pytest.mark.parametrize("name", ["gpt", "t5", "bert masked", "marian", "roberta masked"])
def test_a_table_that_is_stored_twice_is_read_once(name, read):
    copies = {
        "gpt": {"lm_head.weight": "transformer.wte.weight"},
        "t5": dict.fromkeys(("encoder.embed_tokens.weight", "lm_head.weight"), "shared.weight"),
        "bert masked": {"cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight"}
        | {"cls.predictions.decoder.bias": "cls.predictions.bias"},
        "marian": dict.fromkeys(("model.decoder.embed_tokens.weight", "lm_head.weight"), "model.shared.weight"),
        "roberta masked": {"lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight"}
        | {"lm_head.decoder.bias": "lm_head.bias"},
    }[name]
    same(*read(PEERS[name], lambda tensors: tensors | {new: tensors[old].clone() for new, old in copies.items()}))


def test_norms_in_float32_beside_weights_in_bfloat16_are_read_as_the_config_says(tmp_path):
    def mixed(tensors):
        return {name: one if "norm" in name else one.bfloat16() for name, one in tensors.items()}

    model = read_model(rewritten(PEERS["llama"], tmp_path, mixed, dtype="bfloat16"))
    assert {one.dtype for one in model.parameters()} == {torch.bfloat16}
