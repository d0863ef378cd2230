"""A step of one token by fewer calls gives what the layers give, and is left to them where somebody watches."""

import pytest
import torch

from regard.blocks import one_token
from regard.data.batching import Inputs, Padded
from regard.layers.linear import keep_int8, keep_packed
from regard.layers.low_rank import LowRank
from regard.models.config import TransformerConfig
from regard.models.transformer import Transformer
from rounding import assert_close

SHAPES = {
    "gpt2": {"positions": "learned", "max_positions": 23, "norm_placement": "pre", "feedforward": "gelu_tanh"},
    "llama": {
        "positions": "rotary",
        "key_value_heads": 1,
        "norm": "rms",
        "norm_placement": "pre",
        "feedforward": "swiglu",
        "bias": False,
    },
    "gemma": {
        "positions": "rotary",
        "norm": "rms_offset",
        "norm_placement": "sandwich",
        "attention": {"name": "exact", "window": 3, "query_key_norm": "rms", "value_width": 5},
    },
    "transformer": {"architecture": "encoder_decoder"},
}
KEPT = {
    torch.float64: (lambda model: None, 1e-12),
    torch.float32: (keep_packed, 1e-5),
    torch.bfloat16: (lambda model: None, 5e-2),
    torch.int8: (keep_int8, 1e-5),
}


def made(shape: str, dtype: torch.dtype = torch.float64) -> Transformer:
    torch.manual_seed(3)
    sizes = {"architecture": "decoder", "width": 12, "heads": 3, "head_width": 4, "layers": 2, "feedforward_width": 7}
    model = Transformer(TransformerConfig(**sizes | SHAPES[shape], vocabulary=19)).eval()
    model = model.to(torch.float32 if dtype == torch.int8 else dtype)
    KEPT[dtype][0](model)
    return model


def stepped(model: Transformer) -> tuple[torch.Tensor, one_token.OneToken]:
    """Logits of four steps of ragged prompts, rows being taken away in between."""
    prompts = Padded.of([[2, 3, 5, 7], [11], [13, 17]], side="left")
    source = Padded.of([[3, 5], [7, 11, 13], [17]]) if model.config.architecture == "encoder_decoder" else None
    state, ids, found = model.start(Inputs(prompts, source)), torch.tensor([7, 11, 17]), []
    with torch.inference_mode():
        for step in range(4):
            logits, state = model.step(ids, state)
            found.append(logits)
            ids = logits.argmax(dim=-1)
            if step == 1:
                ids, state = ids[[2, 0]], state.select(torch.tensor([2, 0]))
    return torch.cat(found), state.cache.quick


@pytest.mark.parametrize("dtype", KEPT, ids=str)
@pytest.mark.parametrize("shape", SHAPES)
def test_fewer_calls_give_the_same(shape, dtype, monkeypatch):
    model = made(shape, dtype)
    found, quick = stepped(model)
    assert quick is not None
    assert len(quick.layers) == 2
    monkeypatch.setattr(one_token.OneToken, "free", False)
    assert_close(found, stepped(model)[0], KEPT[dtype][1])


def test_an_adapter_is_heard(monkeypatch):
    model, inner = made("gpt2"), made("gpt2").decoder.layers[1].feedforward
    before = stepped(model)[0]
    inner = model.decoder.layers[1].feedforward.down
    inner.adapter = LowRank(inner.in_features, inner.out_features, 2, 1.0, 0.0).double()
    torch.nn.init.normal_(next(one for one in inner.adapter.parameters() if not one.any()))
    found = stepped(model)[0]
    assert not torch.allclose(found, before)
    monkeypatch.setattr(one_token.OneToken, "free", False)
    assert_close(found, stepped(model)[0], 1e-12)


def test_a_hook_is_called_from_the_next_step_on():
    model, called = made("llama"), []
    state = model.start(Inputs(Padded.of([[2, 3, 5]])))
    attend = model.decoder.layers[0].self_attention.attend
    with torch.inference_mode():
        for token in range(4):
            if token == 2:
                attend.register_forward_pre_hook(lambda module, given: called.append(given[1].tokens))
            _, state = model.step(torch.tensor([token]), state)
    assert called == [5, 6]


@pytest.mark.parametrize("change", [{"positions": "t5"}, {"positions": "alibi"}, {"attention": "linear"}])
def test_others_take_the_ordinary_way(change):
    torch.manual_seed(0)
    sizes = {"architecture": "decoder", "width": 12, "heads": 3, "layers": 2, "feedforward_width": 7}
    model = Transformer(TransformerConfig(**sizes | change, vocabulary=19)).double().eval()
    inputs = Inputs(Padded.of([[2, 3, 5, 7, 11]]))
    with torch.inference_mode():
        state, found = model.start(Inputs(Padded.of([[2, 3]]))), []
        for token in (3, 5, 7, 11):
            logits, state = model.step(torch.tensor([token]), state)
            found.append(logits)
        whole = model(inputs)
    assert_close(torch.cat(found), whole[0, 1:], 1e-12)
