"""Every family against `transformers`, from the same files: outputs, hidden vectors, both directions."""

import json
import logging
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_peers import PEERS, cross, our_inputs, saved, their_call

from rounding import assert_close

transformers = pytest.importorskip("transformers")

from regard.data.batching import Inputs, Padded  # noqa: E402
from regard.errors import FileError  # noqa: E402
from regard.interop.huggingface import (  # noqa: E402
    family_of,
    fitting_family,
    read_model,
    read_special_token_ids,
    write_model,
)

logging.getLogger("transformers").setLevel(logging.ERROR)
NAMES = list(PEERS)
OFFSET = ("Roberta", "Longformer", "Bart", "OPT")
"""Their tables of positions have two rows that no text reaches."""
SIMPLER = ("bert", "roberta", "gpt2", "llama")
"""What members of others that use little of what they have are written as, unless their own is asked for first."""


@pytest.fixture(scope="module", params=NAMES)
def pair(request, tmp_path_factory):
    peer = PEERS[request.param]
    expected = peer.build()
    folder = saved(expected, tmp_path_factory.mktemp("peer"))
    return peer, expected, folder, read_model(folder)


def outputs(peer, expected, side):
    """Their logits (or vectors, where there is no head) and last hidden vectors."""
    found = their_call(peer, expected, side)(output_hidden_states=True)
    hidden = found.decoder_hidden_states[-1] if cross(peer) else None
    if not cross(peer):
        hidden = found.hidden_states[-1]
    if peer.model.endswith("QuestionAnswering"):
        return torch.stack((found.start_logits, found.end_logits), dim=-1), hidden
    return found.logits if "logits" in found else hidden, hidden


@pytest.mark.parametrize("side", ["right", "left"])
@torch.no_grad()
def test_outputs_and_vectors_equal_transformers(pair, side):
    peer, expected, _, actual = pair
    inputs = our_inputs(peer, side)
    # Some count padding on the left as places of the text, and BERT's pooler takes the first column, padding or not.
    unaware = peer.model.startswith(("Marian", "Bart", "DistilBert")) or peer.model.endswith("Classification")
    read = "right" if unaware else side
    wanted, hidden = outputs(peer, expected, read)
    found = actual(inputs)
    if found.dim() == 2:
        assert_close(found, wanted)
        return
    real, there = inputs.tokens.real, our_inputs(peer, read).tokens.real
    assert_close(found[real], wanted[there])
    assert_close(actual.hidden(inputs)[real], hidden[there])


@torch.no_grad()
def test_segments_are_told_apart_as_in_transformers(tmp_path):
    expected = PEERS["bert"].build()
    actual = read_model(saved(expected, tmp_path))
    kinds = [[0, 0, 1, 1, 1], [0, 1, 1, 1, 1]]
    ids = [[7, 11, 13, 17, 19], [23, 29, 31, 37, 41]]
    wanted = expected(torch.tensor(ids), token_type_ids=torch.tensor(kinds)).last_hidden_state
    inputs = Inputs(Padded.of(ids, segments=kinds))
    assert_close(actual(inputs), wanted)
    assert (actual(Inputs(Padded.of(ids))) - wanted).abs().max() > 0.1


@torch.no_grad()
def test_what_we_write_is_what_they_load_and_give_the_same_with(pair, tmp_path):
    peer, expected, folder, actual = pair
    write_model(tmp_path, actual, family_of(folder), read_special_token_ids(folder))
    again = getattr(transformers, peer.model).from_pretrained(tmp_path, attn_implementation="eager").eval()
    for side in ("right", "left"):
        wanted, _ = outputs(peer, expected, side)
        found, _ = outputs(peer, again, side)
        assert_close(found, wanted, 1e-6)


def test_a_round_trip_gives_the_same_model(pair, tmp_path):
    _, _, folder, actual = pair
    family = family_of(folder)
    write_model(tmp_path, actual, family, read_special_token_ids(folder))
    again = read_model(tmp_path)
    assert again.config.settled() == actual.config.settled()
    mine, other = actual.state_dict(), again.state_dict()
    assert mine.keys() == other.keys()
    for name, tensor in mine.items():
        assert torch.equal(tensor, other[name]), name


def test_every_tensor_of_transformers_comes_back_but_for_rows_that_are_never_read(pair, tmp_path):
    peer, _, folder, actual = pair
    write_model(tmp_path, actual, family_of(folder), read_special_token_ids(folder))
    before, after = load_file(folder / "model.safetensors"), load_file(tmp_path / "model.safetensors")
    biases = {"cls.predictions.bias", "lm_head.bias"}
    made = "embed_positions" if peer.model.startswith("Marian") else " "  # which are a formula
    kept = {name for name in before if made not in name and name not in biases}
    assert after.keys() <= before.keys()
    assert kept - after.keys() == set()
    for name, tensor in after.items():
        skip_rows = 2 if peer.model.startswith(OFFSET) and "position" in name else 0
        assert torch.equal(tensor[skip_rows:], before[name][skip_rows:]), name


def test_the_family_that_fits_is_found_by_the_parts(pair):
    _, _, folder, actual = pair
    fitting = fitting_family(actual)
    assert fitting.write(actual.config)["model_type"] in {family_of(folder).model_type, *SIMPLER}
    assert fitting_family(actual, family_of(folder).name).name == family_of(folder).name


def test_shards_are_read_as_one(tmp_path):
    expected = PEERS["llama"].build()
    whole = read_model(saved(expected, tmp_path / "whole"))
    folder = saved(expected, tmp_path / "shards", max_shard_size="20KB")
    assert len(set(json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"].values())) > 2
    for name, tensor in read_model(folder).state_dict().items():
        assert torch.equal(tensor, whole.state_dict()[name])


@torch.no_grad()
def test_a_marian_without_its_head_reads_its_table_backwards_as_transformers_does(tmp_path):
    peer = replace(PEERS["marian"], model="MarianModel")
    folder = saved(peer.build(), tmp_path)
    expected = transformers.MarianMTModel.from_pretrained(folder, attn_implementation="eager").eval()
    actual, inputs = read_model(folder), our_inputs(peer, "right")
    wanted, _ = outputs(PEERS["marian"], expected, "right")
    assert_close(actual(inputs)[inputs.tokens.real], wanted[inputs.tokens.real])


@torch.no_grad()
def test_a_marian_without_a_bias_of_its_output_has_zeros(tmp_path):
    expected = PEERS["marian"].build()
    expected.final_logits_bias.zero_()
    folder = saved(expected, tmp_path)
    whole = read_model(folder).state_dict()
    tensors = load_file(folder / "model.safetensors")
    del tensors["final_logits_bias"]
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    found = read_model(folder).state_dict()
    assert all(torch.equal(found[name], tensor) for name, tensor in whole.items())


def test_an_untied_marian_is_told_what_is_read_and_not_what_it_has(tmp_path):
    peer = replace(PEERS["marian"], values=PEERS["marian"].values | {"tie_word_embeddings": False})
    with pytest.raises(FileError, match="only the output may have a table of its own here; this version reads marian"):
        read_model(saved(peer.build(), tmp_path))
