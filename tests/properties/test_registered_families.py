"""Every family that is registered: each named size is the published one's, and config and weights come back."""

import logging

import pytest
import torch

from regard.attention.efficient.longformer_layer import LongformerShape
from regard.interop.huggingface import read_model, write_model
from regard.interop.names import hf_tensors, slot_of
from regard.models.families import FAMILIES
from regard.models.families.family import TensorSlot
from regard.models.size import size_of
from regard.models.transformer import Transformer

SIZES = [(family, size) for family in FAMILIES.values() for size in family.sizes]
NAMES = [size for _, size in SIZES]
logging.getLogger("transformers").setLevel(logging.ERROR)


@pytest.mark.parametrize(("family", "size"), SIZES, ids=NAMES)
def test_a_named_size_has_as_many_parameters_as_in_transformers(family, size):
    transformers = pytest.importorskip("transformers")
    config = family.config(size)
    values = family.write(config)
    with torch.device("meta"):
        peer = transformers.AutoConfig.for_model(**values)
        model = getattr(transformers, values["architectures"][0])(peer)
    wanted = sum(
        one.numel()
        for name, one in model.named_parameters()
        if not (family.name == "marian" and "embed_positions" in name)
    )
    wanted += sum(one.numel() for name, one in model.named_buffers() if name == "final_logits_bias")
    slots = [slot for slot in family.names(config).values() if isinstance(slot, TensorSlot)]
    unused = config.width * sum(slot.skip_rows for slot in slots)  # rows of positions that no text reaches
    assert size_of(config).parameters == wanted - unused


@pytest.mark.parametrize(("family", "size"), SIZES, ids=NAMES)
def test_what_is_written_of_a_config_is_read_as_the_same(family, size):
    config = family.config(size)
    again = family.read(family.write(config), pooled=config.pooled)
    free = {"init", "dropout", "attention_dropout"}
    assert again.settled().model_dump(exclude=free) == config.settled().model_dump(exclude=free)


@pytest.mark.parametrize(("family", "size"), SIZES, ids=NAMES)
def test_every_parameter_has_a_place_of_its_own_in_their_file(family, size):
    config = family.config(size).model_copy(update={"layers": 2, "encoder_layers": None})
    with torch.device("meta"):
        found = Transformer(config).state_dict()
    places = [slot_of(name, family.names(config)) for name in found]
    assert None not in places
    assert len({(place.name, place.part) for place in places}) == len(found)


HEADS = [pytest.param(one, head, id=f"{one.name}-{head}") for one in FAMILIES.values() for head in one.architectures]


@pytest.mark.parametrize(("family", "head"), HEADS)
def test_weights_come_back_bit_for_bit(family, head, tmp_path):
    small = {"layers": 3, "width": 24, "heads": 6, "feedforward_width": 41, "vocabulary": 53, "max_positions": 67}
    first = family.config(next(iter(family.sizes)))
    own = {"head": head, "output_bias": head == "masked" or (first.reads_source and first.output_bias)}
    own |= {"labels": ("a", "b", "c")} if head == "labels" else {}
    own |= {"layers": max(3, len(first.mechanisms("decoder"))), "key_value_heads": first.key_value_heads and 3}
    if family.name == "longformer":  # whose classes choose the global tokens
        chosen = LongformerShape(global_tokens=int(head == "labels"), global_before=2 if head == "spans" else None)
        own["attention"] = chosen
    own |= {"pooler": "relu"} if family.name == "distilbert" and head == "labels" else {}
    config = first.model_copy(update=small | own | {"head_width": None})
    torch.manual_seed(3)
    model = Transformer(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    write_model(tmp_path, model, family)
    again = read_model(tmp_path)
    free = {"init", "attention_dropout"} | ({"pooled"} if head == "labels" else set())  # there is a pooler then
    free |= {"max_positions"} if config.positions == "t5" else set()  # which has no limit
    assert again.config.settled().model_dump(exclude=free) == config.settled().model_dump(exclude=free)
    for name, tensor in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name
    peer = hf_tensors(family.names(config), model.state_dict())
    assert sum(one.numel() for one in peer.values()) >= sum(one.numel() for one in model.state_dict().values())
