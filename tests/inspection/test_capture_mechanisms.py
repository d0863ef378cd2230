"""What a watch says of a mechanism without weights of its own: its map, whatever way the text was read.

The mechanism here is exact attention that keeps nothing to be recorded, so every map is compared with what a watch of
a model with exact attention and the same weights says, which test_capture.py compares with the formula.
"""

from dataclasses import dataclass
from functools import cache
from typing import Literal

import pytest
import torch

import regard
from regard.attention.mechanism import MECHANISMS
from regard.data.batching import Inputs, Padded
from regard.decoding.engine import generate
from regard.decoding.hypothesis import Stop
from regard.decoding.strategies import Beam, Greedy
from regard.errors import InputError
from regard.inspection import trace
from regard.inspection.capture import watch_module
from regard.inspection.four_steps import four_steps
from regard.models.config import TransformerConfig
from regard.models.transformer import Transformer

VOCABULARY, END = 7, 2


class UnseenShape(regard.MechanismShape):
    """Exact attention by the function, not by the module that is recorded."""

    name: Literal["unseen"] = "unseen"
    abilities = regard.Abilities(causal=True, cross=True, score_bias=True, documents=True)

    def make(self, slot):
        return Unseen(slot)


class Unseen(regard.Projections, regard.Mechanism):
    def start(self, memory=None):
        return None if memory is None else self.keys_values(memory)

    def forward(self, inputs, state, context):
        query = self.queries(inputs, context.rotate)
        if not self.slot.cross:
            own = self.keys_values(inputs, context.rotate)
            state = own if state is None else state.append(own)
        out = regard.attend(query, state.keys, state.values, mask=context.mask, bias=context.bias)
        return self.joined(out), state

    def dense_map(self, inputs, context, memory=None):
        query, key = self.queries(inputs, context.rotate), self.keys_values(inputs if memory is None else memory)
        keys = key.keys if context.rotate is None else context.rotate(key.keys)
        return regard.weights(query, keys, mask=context.mask, bias=context.bias)


@dataclass(frozen=True)
class Case:
    architecture: str
    positions: str
    options: tuple = ()


CASES = [
    Case("encoder_decoder", "sinusoidal"),
    Case("encoder_decoder", "t5"),
    Case("encoder", "rotary"),
    Case("encoder", "alibi"),
    Case("decoder", "rotary", (("key_value_heads", 1),)),
    Case("decoder", "learned"),
]


@pytest.fixture(scope="module", autouse=True)
def _known():
    regard.register_mechanism(UnseenShape)
    yield
    del MECHANISMS["unseen"]
    pair.cache_clear()


@cache
def pair(case: Case) -> tuple[Transformer, Transformer]:
    """The same weights under both mechanisms."""
    shape = {"vocabulary": VOCABULARY, "width": 12, "heads": 2, "layers": 2, "max_positions": 29, **dict(case.options)}
    shape |= {"architecture": case.architecture, "positions": case.positions}
    torch.manual_seed(4)
    exact = Transformer(TransformerConfig(**shape)).double().eval()
    cross = {"cross_attention": "unseen"} if case.architecture == "encoder_decoder" else {}
    unseen = Transformer(TransformerConfig(attention="unseen", **cross, **shape)).double().eval()
    unseen.load_state_dict(exact.state_dict())
    return exact, unseen


def texts(*lengths: int, seed: int = 1) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(3, VOCABULARY, (length,), generator=generator).tolist() for length in lengths]


def inputs_of(model: Transformer, tokens, source, side="right") -> Inputs:
    return Inputs(Padded.of(tokens, side=side), Padded.of(source, fill=3) if model.config.reads_source else None)


def assert_same(found, expected, sequences: int) -> None:
    assert found.layers == expected.layers
    for layer in expected.layers:
        for batch in range(sequences):
            assert found.crosses(layer) == expected.crosses(layer)
            torch.testing.assert_close(
                found.weights(layer, batch=batch), expected.weights(layer, batch=batch), rtol=0, atol=1e-9
            )
            top, other = (seen.top(2, layer, 1, batch=batch).weights for seen in (found, expected))
            torch.testing.assert_close(top, other, rtol=0, atol=1e-9)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("side", ["right", "left"])
def test_the_maps_of_a_padded_batch_are_those_of_exact_attention(case, side):
    seen = []
    for model in pair(case):
        with watch_module(model) as watched, torch.no_grad():
            model(inputs_of(model, texts(7, 3, 5, 1), texts(4, 7, 1, 6, seed=2), side))
        seen.append(watched)
    assert seen[0].mechanism(seen[0].layers[0]) is None
    assert seen[1].mechanism(seen[0].layers[0]) == "Unseen"
    assert_same(seen[1], seen[0], 4)


@pytest.mark.parametrize("case", [case for case in CASES if case.architecture != "encoder"], ids=str)
@pytest.mark.parametrize("strategy", [Greedy(), Beam(3, 0.7)], ids=["greedy", "beam"])
def test_the_maps_of_decoding_follow_each_text_through_its_rows(case, strategy):
    seen, written = [], []
    for model in pair(case):
        inputs = inputs_of(model, texts(4, 2, 3), texts(3, 6, 4, seed=2))
        with watch_module(model) as watched:
            found = generate(model, inputs, strategy, Stop(END, 5))
        written.append([one.ids for one in found])
        seen.append(watched)
    assert written[0] == written[1]
    assert_same(seen[1], seen[0], 3)


def test_rows_come_in_the_order_asked_for():
    _, model = pair(CASES[0])
    with watch_module(model) as seen, torch.no_grad():
        model(inputs_of(model, texts(5), texts(6, seed=2)))
    whole = seen.weights("decoder.0.cross", 1)
    assert torch.equal(seen.weights("decoder.0.cross", 1, rows=[-1, 0, 2, 0]), whole[[-1, 0, 2, 0]])


def test_what_only_exact_attention_has_is_refused_in_a_sentence(monkeypatch):
    _, model = pair(CASES[3])
    with watch_module(model) as seen, torch.no_grad():
        model(inputs_of(model, texts(5), []))
    with pytest.raises(InputError, match=r"Unseen has no scores, keys and values .*; ask for its effective weights"):
        four_steps(seen, "encoder.0.self", 0, 0)
    with pytest.raises(InputError, match="are no distribution"):
        seen.entropy("encoder.0.self")
    monkeypatch.setattr(trace, "LARGEST", 49)
    with pytest.raises(InputError, match=r"Unseen shows its weights as a whole table, here of 50 numbers"):
        seen.weights("encoder.0.self")
