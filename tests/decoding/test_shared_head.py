"""What all prompts begin with is read once, and nothing of what is written changes."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_steppers import END, transformer_case

from regard.data.batching import Inputs, Padded
from regard.decoding import paths
from regard.decoding.engine import generate, generate_ranked
from regard.decoding.hypothesis import Stop
from regard.decoding.strategies import Beam, Greedy, Sample
from regard.inspection.capture import watch_module
from regard.models import shared_head
from regard.models.config import TransformerConfig

HEAD = [3, 1, 4, 1, 5, 0, 2, 6, 5, 3, 5, 6, 0, 4, 3, 2, 6]
TAILS = [[1, 4, 4], [], [1, 0], [6, 6, 2, 5]]
PROMPTS = Inputs(Padded.of([[*HEAD, *tail] for tail in TAILS], side="left"))
SHAPE = {"architecture": "decoder", "vocabulary": 7, "width": 12, "heads": 3, "layers": 2}


def model(kind: str):
    if kind != "window":
        return transformer_case("decoder", kind).stepper
    torch.manual_seed(1)
    window = {"name": "exact", "window": 5}
    return TransformerConfig(positions="rotary", attention=window, **SHAPE).build().double().eval()


def read_by(stepper, monkeypatch) -> list[int]:
    """How many tokens each pass reads, padding too."""
    counted, advance = [], stepper.advance
    monkeypatch.setattr(
        stepper,
        "advance",
        lambda ids, *rest: (counted.append(ids.numel()) if ids.shape[1] > 1 else None, advance(ids, *rest))[1],
    )
    return counted


@pytest.mark.parametrize("devices", [set(), {"cpu"}], ids=["plain", "in place"])
@pytest.mark.parametrize("kind", ["rotary", "learned", "t5", "window"])
def test_what_is_written_is_what_was_written_and_the_head_is_read_once(kind, devices, monkeypatch):
    stepper = model(kind)
    monkeypatch.setattr(paths, "DEVICES", devices)
    strategies = (Greedy(), Sample(1.3, seed=2)) if kind != "rotary" else (Greedy(), Sample(1.3, seed=2), Beam(3))
    found = {}
    for least in (shared_head.LEAST, 10**9):
        monkeypatch.setattr(shared_head, "LEAST", least)
        found[least] = [
            one for how in strategies for best in generate_ranked(stepper, PROMPTS, how, Stop(END, 6)) for one in best
        ]
    short, long = found.values()
    assert [one.ids for one in short] == [one.ids for one in long]
    assert [one.score for one in short] == pytest.approx([one.score for one in long], abs=1e-9)
    monkeypatch.setattr(shared_head, "LEAST", 16)
    counted = read_by(stepper, monkeypatch)
    generate(stepper, PROMPTS, Greedy(), Stop(END, 3))
    assert counted == [len(HEAD) - 1, len(TAILS) * 4]


def test_a_head_that_is_short_or_stands_alone_and_what_is_watched_are_read_as_ever(monkeypatch):
    stepper = model("rotary")
    counted = read_by(stepper, monkeypatch)
    generate(stepper, PROMPTS.select([1]), Greedy(), Stop(END, 2))
    generate(stepper, Inputs(Padded.of([[*HEAD[-9:], 1, 2], [*HEAD[-9:], 2, 5]])), Greedy(), Stop(END, 2))
    with watch_module(stepper) as seen:
        watched = generate(stepper, PROMPTS, Greedy(), Stop(END, 4))
    assert counted == [16, 20, 4 * 20]
    assert seen.weights("decoder.0.self", batch=0, rows=[-1]).shape[0] == 3
    monkeypatch.undo()
    assert [one.ids for one in watched] == [one.ids for one in generate(stepper, PROMPTS, Greedy(), Stop(END, 4))]


@given(st.lists(st.lists(st.integers(0, 1), max_size=4), min_size=2, max_size=4), st.integers(14, 18))
def test_the_head_is_what_all_begin_with(tails, length):
    rows = [[1] * length + tail for tail in tails]
    shared = 0
    while all(len(row) > shared and row[shared] == rows[0][shared] for row in rows):
        shared += 1
    assert shared_head.shared_head(rows) == (shared if shared >= 16 else 0)
