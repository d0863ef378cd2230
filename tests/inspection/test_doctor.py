"""The doctor names what is wrong: bugs are planted one at a time, and the right law finds each by a small input."""

import re
from dataclasses import replace

import pytest
import torch
from torch import nn

import regard
from regard.attention import core, exact
from regard.attention.cache import KeyValues
from regard.attention.core import Reference
from regard.attention.exact import ExactAttention
from regard.attention.kernels import Sdpa
from regard.attention.mask import Causal, Grid, Window
from regard.attention.mechanism import LayerContext
from regard.blocks.decoder import DecoderCache
from regard.decoding import beam
from regard.errors import InputError
from regard.inspection.capture import Recording
from regard.inspection.doctor import Checkup
from regard.inspection.laws import LAWS, examined
from regard.layers.dropout import Dropout
from regard.models import checkpoint, transformer
from regard.models.config import TransformerConfig
from regard.models.positions import Positions
from regard.models.transformer import Transformer
from regard.training.trainable import Loss, TokenPrediction
from small_models import small_model


def build(architecture: str = "decoder", **options) -> Transformer:
    torch.manual_seed(3)
    sizes = {"vocabulary": 13, "width": 12, "heads": 2, "feedforward_width": 10, "layers": 2, "dropout": 0.1}
    return Transformer(TransformerConfig(architecture=architecture, **sizes, **options))


class TurnedRound(Causal):
    def allowed(self, at: Grid):
        return at.key >= at.query


def turned_round(patch):
    patch.setattr(transformer, "Causal", lambda: ~(~TurnedRound()))  # wrapped: not taken for the causal flag


def padding_attended_to(patch):
    patch.setattr(transformer, "_mask", lambda padded: None)


def window_too_wide(patch):
    patch.setattr(exact, "_window", lambda size: Window(size + 1))


def window_too_narrow(patch):
    patch.setattr(exact, "_window", lambda size: Window(size - 1))


def stale_cache(patch):
    def append(self, newer):
        keys, values = (old[:, :, -1:].expand(new.shape) for old, new in zip(parts(self), parts(newer), strict=True))
        return KeyValues(torch.cat((self.keys, keys), dim=2), torch.cat((self.values, values), dim=2))

    def parts(held):
        return held.keys, held.values

    patch.setattr(KeyValues, "append", append)


def shifted_by_padding(patch):
    count = Positions.count
    patch.setattr(Positions, "count", lambda self, past, tokens, _, device: count(self, past, tokens, None, device))


def mean_of_means(patch):
    summed = TokenPrediction.loss

    def averaged(self, batch):
        loss = summed(self, batch)
        return Loss(loss.sum / loss.count, 1)

    patch.setattr(TokenPrediction, "loss", averaged)


def hook_on_another_tensor(patch):
    record = Recording.record

    def recorded(self, layer, similarity, given, site=None):
        memory = given["memory"]
        return record(self, layer, similarity, given | {"memory": replace(memory, keys=memory.values)}, site)

    patch.setattr(Recording, "record", recorded)


def causal_mask_lost_behind_a_cache(patch):
    masked = ExactAttention.self_mask
    patch.setattr(ExactAttention, "self_mask", lambda self, told: None if told.past else masked(self, told))


def cross_attention_without_padding(patch):
    patch.setattr(LayerContext, "cross", property(lambda self: LayerContext(None)))


def dropout_left_on(patch):
    patch.setattr(Dropout, "forward", lambda self, inputs: nn.functional.dropout(inputs, 0.1, training=True))


def no_length_rule(patch):
    patch.setattr(beam._Rule, "score", lambda self, one: float(one.total))


def documents_leak(patch):
    patch.setattr(transformer, "Document", lambda documents: Causal())


def softmax_over_nothing(patch):
    patch.setattr(core, "fully_masked", lambda scores: torch.zeros_like(scores[..., :1], dtype=torch.bool))


def another_kernel(patch):
    patch.setattr(Sdpa, "run", lambda self, call: Reference().run(call))


def rows_stay(patch):
    patch.setattr(DecoderCache, "select", lambda self, rows: self)


def changed_when_saved(patch):
    state = checkpoint.merged_state
    patch.setattr(checkpoint, "merged_state", lambda model: {name: one * 1.001 for name, one in state(model).items()})


def random_state_forgotten(patch):
    patch.setattr(torch, "set_rng_state", lambda state: None)


def early_answers_lost(patch):
    ended = beam._Rule.ended
    patch.setattr(beam._Rule, "ended", lambda self, one: len(one.ids) > 2 and ended(self, one))


WINDOWED = {"attention": {"name": "exact", "window": 3}}
PLANTED = {
    "mask direction": (turned_round, {}, "causality", "later tokens are seen", 2),
    "padding attended to": (padding_attended_to, {"architecture": "encoder"}, "padding", "padding is attended to", 3),
    "window too wide": (window_too_wide, WINDOWED, "windows", "off by one", None),
    "window too narrow": (window_too_narrow, WINDOWED, "windows", "off by one", None),
    "stale cache": (stale_cache, {}, "caching", "stale cache", 3),
    "positions shifted by left padding": (shifted_by_padding, {}, "padding", "positions are counted from the", 3),
    "mean of means": (mean_of_means, {}, "accumulation", "mean of means", 3),
    "hook on another tensor": (hook_on_another_tensor, {}, "capture", "hook stands on another tensor", 2),
    "causal mask lost": (causal_mask_lost_behind_a_cache, {}, "caching", "causal mask is lost", 4),
    "cross-attention without padding": (
        cross_attention_without_padding,
        {"architecture": "encoder_decoder"},
        "padding",
        "the source's padding is attended to",
        5,
    ),
    "dropout left on": (dropout_left_on, {}, "determinism", "dropout was left on", 1),
    "no length rule": (no_length_rule, {}, "beam_scores", "length rule", 1),
    "documents leak": (documents_leak, {}, "packing", "documents leak", 2),
    "softmax over nothing": (softmax_over_nothing, {"similarity": "additive"}, "masked_rows", "over nothing", None),
    "another kernel": (another_kernel, {}, "kernel", "another kernel ran", 2),
    "rows stay where they are": (rows_stay, {}, "caching", "does not reorder", 6),
    "changed when saved": (changed_when_saved, {}, "save_load", "not in the file", 1),
    "random state forgotten": (random_state_forgotten, {}, "resume", "random numbers", None),
    "early answers lost": (early_answers_lost, {}, "beam_search", "loses answers", 3),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found_and_named(bug, monkeypatch):
    plant, options, law, cause, tokens = PLANTED[bug]
    assert regard.doctor(build(**options), only=[law]).healthy
    with monkeypatch.context() as patch:
        plant(patch)
        found = regard.doctor(build(**options), only=[law]).verdict(law)
    assert found.status == "broken"
    assert cause in found.cause
    assert not found.measured <= found.tolerance
    if tokens is not None:  # the smallest there can be, written out
        texts = re.findall(r"\[([\d ]+)\]", found.smallest)
        assert sum(len(text.split()) for text in texts) <= tokens, found.smallest


def test_a_tied_table_that_came_apart_is_found():
    model = build()
    assert regard.doctor(model, only=["tying"]).healthy
    model.output.tied, model.output.weight = False, nn.Parameter(model.embedding.weight.detach().clone())
    found = regard.doctor(model, only=["tying"]).verdict("tying")
    assert found.status == "broken"
    assert "a table of its own" in found.cause
    untied = build(tie_embeddings=False)
    assert regard.doctor(untied, only=["tying"]).healthy
    untied.output.tied, untied.output.weight = True, None
    assert not regard.doctor(untied, only=["tying"]).healthy


def test_weights_that_are_no_numbers_are_told_once_and_by_name():
    model = build()
    with torch.no_grad():
        model.get_parameter("decoder.layers.1.feedforward.up.bias")[2] = torch.nan
    found = regard.doctor(model)
    [broken] = found.broken
    assert (broken.law, broken.measured) == ("finite", 1)
    assert broken.smallest == "decoder.layers.1.feedforward.up.bias"
    assert found.verdict("lengths").reason == "a weight is no number"
    assert not regard.doctor(model, only=["lengths"]).healthy  # asked alone it is broken


def test_weights_that_are_no_numbers_are_still_those_of_the_file(tmp_path):
    torch.manual_seed(1)
    loaded = small_model("language_modelling")
    with torch.no_grad():
        loaded.module.get_parameter("decoder.layers.1.feedforward.up.weight")[2] = torch.nan
    loaded.save(tmp_path / "broken")
    assert regard.doctor(tmp_path / "broken", only=["weights"]).healthy


# Anybody's own module


class Own(nn.Module):
    """Logits of the next token from a mean of all so far; no Regard part in it."""

    def __init__(self, normalised: str = "nothing"):
        super().__init__()
        torch.manual_seed(0)
        self.table, self.out = nn.Embedding(11, 8), nn.Linear(8, 11)
        self.normalised = normalised

    def forward(self, inputs: regard.Inputs):
        real = inputs.tokens.real[..., None].float()
        vectors = self.table(inputs.tokens.ids) * real
        if self.normalised == "batch":
            vectors = vectors - vectors.mean(0, keepdim=True)
        summed, count = vectors.cumsum(1), real.cumsum(1).clamp(min=1)
        return self.out(vectors.sum(1, keepdim=True) + summed if self.normalised == "all" else summed / count)


class OwnStepper(Own):
    def start(self, inputs):
        state = {"sum": torch.zeros(len(inputs.tokens.ids), 8), "count": torch.zeros(len(inputs.tokens.ids), 1)}
        keep = inputs.tokens.real[:, :-1, None].float()
        state["sum"] += (self.table(inputs.tokens.ids[:, :-1]) * keep).sum(1)
        state["count"] += keep.sum(1)
        return Held(**state)

    def extend(self, ids, state):
        sums = state.sum[:, None] + self.table(ids).cumsum(1)
        count = state.count[:, None] + torch.arange(1, ids.shape[1] + 1)[None, :, None]
        return self.out(sums / count), Held(sums[:, -1], count[:, -1])

    def step(self, ids, state):
        logits, state = self.extend(ids[:, None], state)
        return logits[:, 0], state


class Held:
    def __init__(self, sum, count):
        self.sum, self.count = sum, count

    def select(self, rows):
        return Held(self.sum[rows], self.count[rows])

    def copy(self):
        return self  # no step writes into it

    def trim(self, lengths):
        raise InputError("a mean cannot go back", "read the text again")


def passed(checkup: Checkup) -> set[str]:
    return {one.law for one in checkup.verdicts if one.status == "pass"}


def test_a_module_of_ones_own_is_examined_by_what_it_has():
    found = regard.doctor(Own())
    assert found.healthy, str(found)
    assert passed(found) == {"finite", "lengths", "padding", "batching", "determinism", "accumulation"}
    assert found.verdict("caching").reason == "it has no start, step and extend"
    stepping = regard.doctor(OwnStepper())
    assert stepping.healthy, str(stepping)
    assert passed(stepping) - passed(found) == {"causality", "caching", "beam_scores", "beam_search"}


def test_bugs_of_ones_own_module_are_found():
    assert {one.law for one in regard.doctor(Own("batch")).broken} == {"batching", "accumulation", "padding"}
    assert "causality" in {one.law for one in regard.doctor(OwnStepper("all")).broken}


class WithLoss(Own):
    def __init__(self, averaged: bool):
        super().__init__()
        self.averaged = averaged

    def loss(self, batch: regard.Batch):
        summed = TokenPrediction(self).loss(batch)
        return Loss(summed.sum / summed.count, 1) if self.averaged else summed


def test_a_loss_of_ones_own_is_the_one_that_is_accumulated():
    assert regard.doctor(WithLoss(averaged=False), only=["accumulation"]).healthy
    assert "mean of means" in regard.doctor(WithLoss(averaged=True), only=["accumulation"]).broken[0].cause


class Raising(Own):
    def forward(self, inputs):
        if inputs.tokens.ids.shape[1] > 3:
            raise ValueError("too long\nfor me")
        return super().forward(inputs)


def test_what_a_model_raises_is_a_broken_law_and_told():
    found = regard.doctor(Raising(), only=["lengths"]).verdict("lengths")
    assert (found.status, found.cause) == ("broken", "it raised ValueError: too long")
    assert found.smallest == "text [0 0 0 0]"


def test_a_model_in_half_precision_is_not_blamed_for_its_rounding():
    found = regard.doctor(build("encoder_decoder", positions="t5").bfloat16())
    assert found.healthy, str(found)


def test_a_model_too_large_for_a_second_copy_may_round_more_and_no_more(monkeypatch):
    monkeypatch.setattr(examined, "LARGEST_WIDE", 10)
    found = regard.doctor(build(), only=["caching", "windows", "save_load"])
    assert [one.tolerance for one in found.verdicts] == [1e-3, 0.5, 0.0]
    rows_stay(monkeypatch)
    assert not regard.doctor(build(), only=["caching"]).healthy


# What cannot be examined


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (nn.Linear(3, 3), r"Linear follows no contract of Regard's: given Inputs of one token it raised TypeError"),
        (nn.Module(), r"Module follows no contract of Regard's: it has neither forward\(inputs\) nor start"),
    ],
)
def test_what_follows_no_contract_is_refused_in_a_sentence(model, said):
    with pytest.raises(InputError, match=said) as refused:
        regard.doctor(model)
    assert "\n" not in str(refused.value)


def test_an_unknown_law_is_refused_with_the_nearest():
    with pytest.raises(InputError, match="there is no law 'cashing'; did you mean 'caching'"):
        regard.doctor(Own(), only=["cashing"])
    with pytest.raises(InputError, match="no effect on a model that is there already"):
        regard.doctor(Own(), device="cpu")


def test_every_law_says_what_it_is_and_what_may_be_wrong():
    assert len({law.name for law in LAWS}) == len(LAWS)
    assert all(law.statement.endswith(".") and law.causes and all(law.causes.values()) for law in LAWS)
