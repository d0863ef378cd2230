"""A model with adapters is saved merged: the file is held to the merged model, and that one to the model as it is."""

import pytest
import torch

import regard
from regard.models import lora
from regard.models.adapter_table import AdapterTable
from regard.models.config import TransformerConfig
from regard.models.transformer import Transformer


@pytest.fixture(params=[torch.float32, torch.bfloat16], ids=str)
def adapted(request):
    torch.manual_seed(5)
    config = TransformerConfig(architecture="decoder", vocabulary=13, width=12, heads=2, layers=2, dropout=0.0)
    model = Transformer(config).to(request.param).eval()
    lora.attach(model, AdapterTable(rank=2, targets=("query", "value")))
    for _, _, adapter in lora.adapted(model):
        torch.nn.init.normal_(adapter.up)
    return model


def test_a_model_with_adapters_is_healthy_when_saved(adapted):
    assert lora.adapted(adapted)
    found = regard.doctor(adapted, only=["save_load"])
    assert found.healthy, str(found)
    assert lora.adapted(adapted)  # it is as it was


def test_adapters_that_are_lost_or_counted_twice_on_saving_are_found(adapted, monkeypatch):
    monkeypatch.setattr(lora, "_sum", lambda one, adapter: one.weight)
    assert not regard.doctor(adapted, only=["save_load"]).healthy
    monkeypatch.setattr(lora, "_sum", lambda one, adapter: one.weight + 2 * adapter.up @ adapter.down * adapter.scale)
    assert not regard.doctor(adapted, only=["save_load"]).healthy
