"""The laws bite: break one thing, and a law that is named here fails; mend it, and it holds again."""

import pytest
import torch

from regard.attention import similarity
from regard.attention.mask import Causal, Grid
from regard.attention.similarity import AdditiveOfMapped, ScaledDot
from regard.blocks.decoder import DecoderCache
from regard.blocks.recurrent import RecurrentStack
from regard.inspection.laws import BY_NAME, ROUNDING
from regard.models import recurrent, transformer
from regard.models.config import TransformerConfig
from regard.models.network import NETWORKS, Network
from regard.models.positions import Positions
from regard.models.transformer import Transformer
from regard.training.trainable import Loss, TokenPrediction


def build(**options) -> Transformer:
    torch.manual_seed(3)
    return Transformer(TransformerConfig(vocabulary=13, width=12, heads=2, feedforward_width=10, **options))


def build_recurrent(name: str, **options) -> Network:
    torch.manual_seed(3)
    return NETWORKS[name].config(vocabulary=13, width=6, embedding_width=4, **options).build()


def expect_broken(name: str, model: Network, monkeypatch, break_it) -> None:
    """The law holds, fails by far more than rounding once broken, and holds again."""
    law = BY_NAME[name].measure
    assert law(model) <= ROUNDING
    with monkeypatch.context() as patch:
        break_it(patch)
        assert law(model) > 100 * ROUNDING
    assert law(model) <= ROUNDING


class SeesAll(Causal):
    def allowed(self, at: Grid):
        return (at.key <= at.query) | True


@pytest.mark.parametrize("architecture", ["decoder", "encoder_decoder"])
def test_without_the_causal_mask_causality_fails(monkeypatch, architecture):
    def break_it(patch):
        patch.setattr(transformer, "Causal", lambda: ~(~SeesAll()))  # wrapped: not taken for the causal flag

    expect_broken("causality", build(architecture=architecture), monkeypatch, break_it)


def test_without_the_scale_meaning_fails(monkeypatch):
    def break_it(patch):
        patch.setattr(ScaledDot, "as_dot", lambda self, query, key: (query, key, 1.0))

    expect_broken("meaning", build(architecture="encoder"), monkeypatch, break_it)


@pytest.mark.parametrize("architecture", ["encoder", "encoder_decoder"])
def test_without_the_padding_mask_padding_fails(monkeypatch, architecture):
    def break_it(patch):
        patch.setattr(transformer, "_mask", lambda padded: None)

    expect_broken("padding", build(architecture=architecture), monkeypatch, break_it)


def test_without_the_padding_of_prompts_padding_fails(monkeypatch):
    def break_it(patch):
        patch.setattr(transformer, "_padding", lambda padded: None)

    expect_broken("padding", build(architecture="decoder", positions="alibi"), monkeypatch, break_it)


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary"])
def test_without_the_offset_of_the_cache_caching_fails(monkeypatch, positions):
    count = Positions.count

    def break_it(patch):
        patch.setattr(Positions, "count", lambda self, past, *rest: count(self, 0, *rest))

    expect_broken("caching", build(architecture="decoder", positions=positions), monkeypatch, break_it)


def test_without_the_offset_of_the_queries_caching_fails(monkeypatch):
    of = Grid.of.__func__

    def unshifted(cls, shape, device, rows=None, positions=None):
        grid = of(cls, shape, device, rows, positions)
        return Grid(grid.batch, grid.head, grid.query - (shape[3] - shape[2]), grid.key, grid.keys)

    def break_it(patch):
        patch.setattr(Grid, "of", classmethod(unshifted))

    expect_broken("caching", build(architecture="decoder", positions="none"), monkeypatch, break_it)


@pytest.mark.parametrize("architecture", ["decoder", "encoder_decoder"])
def test_with_a_shifted_position_caching_fails(monkeypatch, architecture):
    count = Positions.count

    def break_it(patch):
        patch.setattr(Positions, "count", lambda self, past, *rest: count(self, past + 1 if past else past, *rest))

    expect_broken("caching", build(architecture=architecture), monkeypatch, break_it)


def test_with_positions_counted_from_the_padding_padding_fails(monkeypatch):
    count = Positions.count

    def break_it(patch):
        patch.setattr(
            Positions, "count", lambda self, past, tokens, padding, device: count(self, past, tokens, None, device)
        )

    expect_broken("padding", build(architecture="decoder"), monkeypatch, break_it)


def test_with_means_instead_of_sums_accumulation_fails(monkeypatch):
    summed = TokenPrediction.loss

    def averaged(self, batch):
        loss = summed(self, batch)
        return Loss(loss.sum / loss.count, 1)

    def break_it(patch):
        patch.setattr(TokenPrediction, "loss", averaged)

    expect_broken("accumulation", build(), monkeypatch, break_it)


def test_with_rows_not_reordered_caching_fails(monkeypatch):
    def break_it(patch):
        patch.setattr(DecoderCache, "select", lambda self, rows: self)

    expect_broken("caching", build(architecture="decoder"), monkeypatch, break_it)


def test_with_a_large_number_for_minus_infinity_masked_rows_fail(monkeypatch):
    infinity = torch.inf

    def break_it(patch):
        patch.setattr(torch, "inf", 1e30)

    model = build(architecture="encoder", similarity="additive")
    assert BY_NAME["masked_rows"].measure(model) == 0.0
    with monkeypatch.context() as patch:
        break_it(patch)
        assert torch.inf != infinity
        assert BY_NAME["masked_rows"].measure(model) > 0.0


def test_with_forgotten_random_state_resume_fails(monkeypatch):
    model = build(dropout=0.2)
    assert BY_NAME["resume"].measure(model) == 0.0
    with monkeypatch.context() as patch:
        patch.setattr(torch, "set_rng_state", lambda state: None)
        assert BY_NAME["resume"].measure(model) > 0.0


def test_where_the_recurrent_encoder_reads_padding_padding_fails(monkeypatch):
    forward = RecurrentStack.forward

    def break_it(patch):
        patch.setattr(
            RecurrentStack, "forward", lambda self, inputs, state=None, padded=None: forward(self, inputs, state)
        )

    expect_broken("padding", build_recurrent("seq2seq", bidirectional=True), monkeypatch, break_it)


def test_where_a_recurrent_decoder_attends_to_padding_padding_fails(monkeypatch):
    def break_it(patch):
        patch.setattr(recurrent, "Padding", lambda lengths, side: None)

    expect_broken("padding", build_recurrent("luong"), monkeypatch, break_it)


def test_where_padding_moves_a_recurrent_state_padding_fails(monkeypatch):
    def break_it(patch):
        patch.setattr(recurrent, "_where", lambda here, new, old: new)

    expect_broken("padding", build_recurrent("bahdanau"), monkeypatch, break_it)


def test_with_recurrent_rows_not_reordered_caching_fails(monkeypatch):
    def break_it(patch):
        patch.setattr(recurrent.RecurrentState, "select", lambda self, rows: self)

    expect_broken("caching", build_recurrent("seq2seq"), monkeypatch, break_it)


def test_with_queries_that_are_not_mapped_meaning_fails(monkeypatch):
    def break_it(patch):
        patch.setattr(
            AdditiveOfMapped, "scores", lambda self, query, key: similarity._additive(query, key, self.direction)
        )

    expect_broken("meaning", build_recurrent("bahdanau"), monkeypatch, break_it)
