"""Ablations: every number against a closed form or brute force, every sentence by its rule, nothing done twice."""

import json
import math
import re
from dataclasses import asdict
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import regard
from regard.api.loading import read_model
from regard.cli.app import app
from regard.compare import ablation_sentences as say
from regard.compare.ablation_cases import Budget, complete, translator, unmasked
from regard.compare.ablations import ABLATIONS, ablate, cases_of, chosen, write_findings
from regard.compare.permuted import Moved, moved
from regard.compare.quality import forced_share, free_shares, held_out_pairs
from regard.compare.score_spread import KEY_SETS, KEYS, QUERIES, ScoreSpread, spread
from regard.compare.trainings import Case, SilentTrainings, Trainings
from regard.data.batching import Inputs, Padded
from regard.errors import ConfigError, FileError, InputError
from regard.models.families import FAMILIES
from regard.models.network import NETWORKS
from regard.models.unmasked import NAME, unmasked_known

TINY = Budget(steps=2, deep_steps=2, depths=(1,), heads=(1, 2), held_out=7, seeds=(0,), head_widths=(5, 67))


class Told(SilentTrainings):
    """Keeps the names of what was trained."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def begin(self, case: Case) -> None:
        self.names.append(case.name)


@pytest.fixture(scope="module")
def trainings(tmp_path_factory) -> Trainings:
    return Trainings(tmp_path_factory.mktemp("ablations"), Told())


class Answered(Trainings):
    """Trainings that were made elsewhere: their answers are given, and which cases were asked about is kept."""

    asked: ClassVar[set[str]] = set()

    def ask(self, case, what, measure):
        self.asked.add(case.name)
        answers = {"quality": {"forced": 0.9, "free": 0.8, "exact_match": 0.7}, "entropy": 0.5}
        return (answers | {"permuted": asdict(Moved(1e-15, 2.0, 3.0, 0.5))})[what]

    def training(self, case):
        return {"steps": 2, "seconds": 1.0, "diverged": None}


@pytest.fixture(scope="module")
def findings():
    return {one.name: one for one in ablate(chosen(None), Answered(Path("nowhere")), TINY)}


def model_of(trainings: Trainings, case: Case) -> regard.Model:
    trainings.training(case)
    model = read_model(trainings.folder / case.name)
    model.module.eval()
    return model


# Scores


@pytest.mark.parametrize("width", [5, 67, 257])
def test_the_variance_of_scores_is_their_width_and_with_the_scale_one(width):
    found = spread(width)
    assert found.variance["dot"] == pytest.approx(width, rel=0.1)
    assert found.variance["scaled_dot"] == pytest.approx(1, rel=0.1)
    assert found.variance["dot"] / found.variance["scaled_dot"] == pytest.approx(width, rel=1e-9)


def test_the_entropy_is_that_of_the_softmax_of_the_drawn_scores():
    draw = torch.Generator().manual_seed(3)
    query = torch.randn(KEY_SETS, QUERIES, 11, generator=draw, dtype=torch.float64).numpy()
    key = torch.randn(KEY_SETS, KEYS, 11, generator=draw, dtype=torch.float64).numpy()
    found = spread(11, seed=3).entropy
    for name, scale in (("dot", 1.0), ("scaled_dot", 11**-0.5)):
        powers = np.exp(scale * np.einsum("sqd,skd->sqk", query, key))
        shares = powers / powers.sum(axis=-1, keepdims=True)
        expected = -(shares * np.log(shares)).sum(axis=-1).mean() / math.log(KEYS)
        assert found[name] == pytest.approx(expected, rel=1e-9)
    assert found["dot"] < found["scaled_dot"]


# Order


def test_without_positions_an_encoder_does_not_see_the_order_and_a_causal_decoder_does(trainings):
    found = {}
    for name, shape in (
        ("without", {"positions": "none"}),
        ("with", {}),
        ("causal", {"positions": "none", "architecture": "decoder"}),
    ):
        model = model_of(trainings, translator(f"order-{name}", TINY, shape))
        found[name] = moved(model, held_out_pairs(model, 7))
    assert found["without"].vectors is not None
    assert found["without"].vectors < 1e-12
    assert found["without"].logits < 1e-12
    assert found["without"].same == 1.0
    assert found["with"].logits > 1e-3
    assert found["causal"].vectors is None
    assert found["causal"].logits > 1e-3


# Quality


@pytest.mark.parametrize("masked", [True, False])
def test_quality_is_what_brute_force_counts(masked, trainings):
    with unmasked_known():
        model = model_of(trainings, complete(TINY) if masked else unmasked(TINY))
        pairs = held_out_pairs(model, 5)
        token = model.tokenizer
        forced = free = exact = total = 0
        for pair in pairs:
            source = Padded.of([[*token.encode(pair.source), token.eos_id]])
            target = [*token.encode(pair.target), token.eos_id]

            def likeliest(before, source=source):
                logits = model.module(Inputs(Padded.of([[token.bos_id, *before]]), source))
                return logits[0].argmax(dim=-1).tolist()

            with torch.no_grad():
                forced += sum(a == b for a, b in zip(likeliest(target[:-1]), target, strict=True))
                written: list[int] = []
                while len(written) < 16 and token.eos_id not in written:
                    written.append(likeliest(written)[-1])
            free += sum(a == b for a, b in zip(written, target, strict=False))
            exact += written == target
            total += len(target)
        assert forced_share(model, pairs) == pytest.approx(forced / total)
        assert free_shares(model, pairs) == pytest.approx({"free": free / total, "exact_match": exact / 5})


def test_without_the_mask_a_later_token_changes_an_earlier_one_and_padding_does_not(trainings):
    with unmasked_known():
        model = model_of(trainings, unmasked(TINY))
    source = Padded.of([[5, 6, 7]])
    with torch.no_grad():
        one, other = (model.module(Inputs(Padded.of([[1, 5, last]]), source)) for last in (6, 7))
        assert (one[:, 0] - other[:, 0]).abs().max() > 1e-3
        pair = Inputs(Padded.of([[1, 5, 6], [1, 5, 6, 7, 8]]), Padded.of([[5, 6, 7]] * 2))
        assert (model.module(pair)[0, :3] - one[0]).abs().max() < 1e-5


def test_the_network_without_the_mask_is_known_to_nobody_else(trainings):
    trainings_case = unmasked(TINY)
    model_of_it = trainings.folder / trainings_case.name
    with unmasked_known():
        trainings.training(trainings_case)
    assert NAME not in NETWORKS
    with pytest.raises((ConfigError, FileError)):
        regard.load(model_of_it)


# Kept


def test_a_second_call_trains_and_measures_nothing(trainings):
    names = ["scale", "mask"]
    first = ablate(names, trainings, TINY)
    told = Told()
    again = ablate(names, Trainings(trainings.folder, told), TINY)
    assert told.names == []
    assert [one.record() for one in again] == [one.record() for one in first]
    assert Trainings(trainings.folder).missing(cases_of(names, TINY)) == []
    assert len(set(trainings.listener.names)) == len(trainings.listener.names)


def test_what_the_findings_ask_about_is_what_was_said_to_be_trained(findings):
    assert {case.name for case in cases_of(chosen(None), TINY)} == Answered.asked


def test_a_training_of_another_recipe_is_not_taken_for_it(trainings):
    trainings.training(complete(TINY))
    with pytest.raises(FileError, match="another recipe"):
        trainings.training(complete(Budget(steps=5)))


def test_a_training_that_diverges_is_a_result(tmp_path):
    case = translator("wild", TINY)
    training = case.recipe.training.model_copy(update={"learning_rate": 1e30, "warmup": 0, "clip": 1e30})
    wild = Case("wild", case.recipe.model_copy(update={"training": training}))
    kept = Trainings(tmp_path)
    assert kept.ask(wild, "quality", lambda model: 1) is None
    assert re.search("became|NaN or infinity", kept.training(wild)["diverged"])
    assert kept.missing([wild]) == []


def test_the_findings_are_a_figure_a_page_and_numbers(findings, tmp_path):
    picture, page, numbers = write_findings(tmp_path, list(findings.values()), TINY)
    assert picture.read_bytes().startswith(b"\x89PNG")
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"(src|href)=\"(?!data:)|https?://", text)
    for finding in findings.values():
        assert finding.title in text
    found = json.loads(numbers.read_text(encoding="utf-8"))["findings"]
    assert [one["name"] for one in found] == list(ABLATIONS)
    assert all(one["sentences"] for one in found)


def test_an_unknown_part_is_refused():
    with pytest.raises(InputError, match=r"no ablation 'head'; did you mean 'heads'"):
        chosen(["scale", "head"])
    assert chosen(["mask", "scale"]) == ["scale", "mask"]


def test_the_command_refuses_before_it_trains(tmp_path):
    result = CliRunner().invoke(app, ["compare", "ablations", "--only", "heds", "--out", str(tmp_path / "out")])
    assert isinstance(result.exception, InputError)
    assert not (tmp_path / "out").exists()


# What can be left out


@pytest.mark.parametrize("key", ["epsilon", "norm_placement", "embedding_norm"])
def test_without_norms_what_is_about_norms_is_refused(key):
    shape = {"norm": "none", key: {"epsilon": 1e-3, "norm_placement": "pre", "embedding_norm": True}[key]}
    with pytest.raises(ConfigError, match=rf"{key} = .* has no effect"):
        regard.Recipe.model_validate({"data": "reverse", "model": shape})


@pytest.mark.parametrize("left_out", [{"norm": "none"}, {"residual": False}])
def test_no_other_library_is_told_of_a_network_without_a_part(left_out):
    shape = {"architecture": "decoder", "norm_placement": "pre", "feedforward": "gelu_tanh", "positions": "learned"}
    config = regard.TransformerConfig(vocabulary=11, width=8, heads=2, scale_embeddings=False, **shape)
    assert FAMILIES["gpt"].lacking(config) == {}
    assert set(left_out) & set(FAMILIES["gpt"].lacking(config.model_copy(update=left_out)))


# Sentences


def drawn(width: int, dot: float, scaled: float, entropy: tuple[float, float]) -> ScoreSpread:
    return ScoreSpread(width, {"dot": dot, "scaled_dot": scaled}, {"dot": entropy[0], "scaled_dot": entropy[1]})


def test_a_variance_is_said_to_be_the_width_only_where_it_is():
    good = [drawn(4, 4.2, 1.02, (0.6, 0.9)), drawn(64, 63.0, 0.97, (0.2, 0.9))]
    assert say.on_variance(good).endswith("d_k and 1, within 10 %.")
    assert "absent, since at 64" in say.on_variance([good[0], drawn(64, 50.0, 0.97, (0.2, 0.9))])
    assert say.on_entropy(good).endswith("unscaled, it saturates.")
    assert say.on_entropy([drawn(4, 4.0, 1.0, (0.9, 0.9)), drawn(64, 64.0, 1.0, (0.88, 0.9))]).endswith(
        "no saturation shows."
    )


def test_an_effect_that_does_not_show_is_said_to_be_absent():
    assert "a difference of 61 points" in say.on_trained_scale(32, {True: 1.0, False: 0.39}, {True: 0.4, False: None})
    assert "the effect is absent." in say.on_trained_scale(32, {True: 1.0, False: 0.99}, {True: 0.4, False: 0.3})
    sorting, reversing = say.on_heads(32, 3, {1: 0.8, 2: 0.9, 4: 0.97}, {1: 1.0, 4: 1.0})
    assert sorting.endswith("4 heads against one: a difference of 17 points.")
    assert reversing.endswith("100 % with 4 heads and 100 % with one: the effect is absent.")
    assert "the other way round by 8 points" in say.on_heads(32, 3, {1: 0.9, 4: 0.82}, {1: 1.0, 4: 1.0})[0]
    assert say.on_positions({"sort": (1.0, 0.98)}).endswith("98 % without, the effect is absent.")
    assert say.on_mask({"forced": 0.99, "free": 0.98}, {"forced": 1.0, "free": 0.1}).endswith("should predict.")
    assert say.on_mask({"forced": 0.99, "free": 0.98}, {"forced": 0.99, "free": 0.98}).endswith("the effect is absent.")


def test_the_deepest_network_that_learns_is_said_for_every_condition():
    whole = {2: 0.99, 4: 1.0, 8: 1.0}
    shares = {"complete": whole, "without a": {2: 0.95, 4: 0.2, 8: 0.1}, "without b": {2: 0.1, 4: 0.0, 8: 0.0}}
    first, one, other, third, wild = say.on_depth(shares | {"without c": whole}, "complete", {"8 layers": "inf"})
    assert first == ("The deepest that reaches 90 %: complete 8, without a 2, without b none and without c 8.")
    assert one == "Without a, 2 layers are the most."
    assert other == "Without b, none of 2, 4 and 8 layers does."
    assert third == "Without c, the effect is absent: 8 layers reach 90 % all the same."
    assert wild == "Diverged: 8 layers (inf)."


def test_an_order_that_is_seen_or_not_is_said():
    blind, ordered, causal = Moved(2e-15, 3e-15, 9.0, 1.0), Moved(1.0, 4.0, 9.0, 0.1), Moved(None, 5.0, 8.0, 0.2)
    named = {"a": blind, "b": ordered, "c": causal}
    encoder, decoder = say.on_order(named, "a", "b", "c")
    assert "the same answer to rounding (float64)" in encoder
    assert "2.0e-15" in encoder
    assert "does see the order" in decoder
    encoder, decoder = say.on_order(named | {"a": ordered, "c": Moved(None, 1e-14, 8.0, 1.0)}, "a", "b", "c")
    assert "the effect is absent" in encoder
    assert "does not see the order here" in decoder
