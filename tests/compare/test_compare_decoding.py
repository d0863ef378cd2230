"""`regard compare decoding`: figures by their definitions, drawings on one scale, sentences with this run's numbers."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from regard.compare.decoding import (
    KNOBS,
    DecodingComparison,
    Prompts,
    Setting,
    beginnings,
    distinct,
    repetition,
    sentence,
    sweep,
)
from regard.compare.decoding_page import shown
from regard.data.batching import Inputs, Padded
from regard.errors import InputError
from regard.views.comparison import CurveLines
from small_models import small_model

PROMPTS = Prompts(("the cat sat", "on a mat", "mars"), (), "three prompts")


@pytest.fixture(scope="module")
def found() -> DecodingComparison:
    """Of a model that was never trained."""
    torch.manual_seed(0)
    return sweep(small_model("language_modelling"), PROMPTS, 12, 0, lambda done, total: None)


def test_distinct_pairs_and_repeated_runs_are_counted_over_words():
    texts = ["a b A b a b", "c, d"]
    assert distinct(texts, 2) == (2 + 2) / (5 + 2)  # ab ba, c-comma comma-d
    assert repetition(texts) == 1 - 2 / 3  # abab baba abab; the second text has no run of four
    assert distinct(["a"], 2) is None
    assert repetition(["a b c"]) is None


def test_a_prompt_is_the_first_words_of_a_text_that_has_more():
    long = "one two three four five six seven eight nine"
    assert beginnings([long, "too short", long, f"  {long.upper()}"], 5) == (
        *("one two three four five six seven eight", "ONE TWO THREE FOUR FIVE SIX SEVEN EIGHT"),
    )


def test_what_leaves_one_token_is_greedy_and_what_leaves_all_is_plain_sampling(found):
    at = {(one.knob, one.value): one.figures for one in found.settings}
    assert at["top_k", 1] == at["beams", 1] == found.greedy.figures
    assert at["top_k", 200] == at["top_p", 1.0] == at["temperature", 1.0]
    assert at["temperature", 0.2]["likelihood"] > at["temperature", 2.0]["likelihood"]
    assert all(set(one.figures) <= {"likelihood", "distinct", "repetition"} for one in found.settings)


def test_the_likelihood_is_that_of_one_pass_over_the_answers():
    torch.manual_seed(0)
    model, total, count = small_model("language_modelling"), 0.0, 0
    greedy = sweep(model, PROMPTS, 7, 0, lambda done, total: None).greedy
    for text in PROMPTS.texts:
        prompt = model.task.prompt(model, [text]).tokens.rows()[0]
        own = [int(one) for one in prompt]
        for _ in range(7):
            with torch.no_grad():
                likely = model.module(Inputs(Padded.of([own])))[0, -1].log_softmax(-1)
            total, count = total + float(likely.max()), count + 1
            own.append(int(likely.argmax()))
            if own[-1] == model.tokenizer.eos_id:
                break
    assert greedy.figures["likelihood"] == pytest.approx(total / count, abs=1e-5)


def test_the_drawings_of_likelihood_have_one_scale_and_a_line_for_greedy(found, tmp_path):
    view = shown(found)
    likely = [panel.drawings[0] for panel in view.panels]
    assert all(isinstance(one, CurveLines) for one in likely)
    assert len({one.span for one in likely}) == 1
    low, high = likely[0].span
    assert all(low < number < high for one in likely for curve in one.curves for number in curve.y)
    assert {one.level for one in likely} == {("greedy", found.greedy.figures["likelihood"])}
    axes = view.figure().axes
    assert {one.get_ylim() for one in axes if one.get_ylabel().startswith("mean log p")} == {(low, high)}
    view.write(tmp_path, "decoding")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["decoding.html", "decoding.json", "decoding.png"]
    page = Path(tmp_path / "decoding.html").read_text(encoding="utf-8")
    for knob, panel in zip(KNOBS, view.panels, strict=True):
        assert panel.sentence.startswith(knob.does)
        assert knob.does in page
    assert "no references to measure quality by" in page
    assert len(json.loads((tmp_path / "decoding.json").read_text())["compared"]["settings"]) == 24


def test_a_sentence_says_what_a_knob_is_and_what_it_did(found):
    knob = KNOBS[0]
    figures = [(-0.5, 0.2, 0.3, 0.0), (-1.0, 0.5, 0.3, 0.25), (-2.0, 0.04, 0.3, 0.1)]
    names = ("likelihood", "distinct", "repetition", "quality")
    settings = tuple(
        Setting(knob.key, value, dict(zip(names, one, strict=True)), "")
        for value, one in zip((0.5, 1.0, 2.0), figures, strict=True)
    )
    greedy = Setting("greedy", 0.0, dict.fromkeys(names, 0.123), "")
    told = sentence(replace(found, quality="bleu", greedy=greedy, settings=settings), knob)
    assert told == (
        f"{knob.does} From 0.5 to 2 the mean log p of a token goes from −0.50 to −2.00, distinct-2 goes from 20 % to "
        "4.0 %, repetition stays at 30 %, bleu goes from 0 % to 10 %. The best bleu is 25 %, at 1; greedy has 12 %."
    )


def test_one_prompt_shows_no_diversity():
    with pytest.raises(InputError, match="1 prompts show no diversity; give two or more"):
        sweep(small_model("language_modelling"), Prompts(("a",), (), "one"), 3, 0, lambda done, total: None)
