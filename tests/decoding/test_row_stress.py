"""Random small models, random texts that come and go at random: every one is what the plain loop writes alone.

Here a few cases run. `python tests/decoding/test_row_stress.py --minutes 10` runs them for as long as is asked, and
says by which number a case that departs is made again.
"""

import argparse
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import pytest
import torch
from small_steppers import sharpened

from regard.data.batching import Inputs, Padded
from regard.decoding import paths
from regard.decoding.engine import generate, generate_ranked
from regard.decoding.filters import Filter, ForcedBos, ForcedEos, Suppressed
from regard.decoding.hypothesis import Hypothesis, Stop
from regard.decoding.penalties import Banned, NoRepeatNgram, RepetitionPenalty
from regard.decoding.requests import RowRequest
from regard.decoding.row_engine import Capacity, RowEngine, decode
from regard.decoding.row_groups import rows_of
from regard.decoding.strategies import Beam, Greedy, Sample
from regard.errors import ConfigError, InputError
from regard.models import in_place
from regard.models.config import TransformerConfig
from regard.models.families import FAMILIES
from regard.models.network import Network, NetworkConfig

sys.path.append(str(Path(__file__).parents[1] / "properties"))
from axes_of_models import ATTENTIONAL, FIXED, TRANSFORMER, mechanism, mechanism_choices, recurrent, transformer

MECHANISMS = [config for choice in mechanism_choices(True) if (config := mechanism(choice)) is not None]
LARGE = 2**63


def drawn_config(draw: Random) -> NetworkConfig | None:
    """Of any registered network, mechanism, published family or a plain decoder of odd sizes."""
    kind = draw.choice(("transformer", "recurrent", "mechanism", "family", "plain", "plain"))
    if kind == "mechanism":
        return draw.choice(MECHANISMS)
    if kind == "family":
        family = FAMILIES[draw.choice(sorted(FAMILIES))]
        one = family.config(next(iter(family.sizes)))
        own = {"layers": max(2, len(one.mechanisms("decoder"))), "key_value_heads": one.key_value_heads and 3}
        small = {"width": 12, "heads": 6, "feedforward_width": 11, "vocabulary": 13, "max_positions": 90}
        return one.model_copy(update=small | own | {"head_width": None})
    if kind == "plain":
        heads = draw.choice((1, 3, 6))
        positions = draw.choice(("rotary", "learned", "alibi", "sinusoidal"))
        return TransformerConfig(
            architecture=draw.choice(("decoder", "decoder", "encoder_decoder")),
            vocabulary=draw.choice((3, 7, 61)),
            width=12,
            heads=heads,
            head_width=draw.choice((2, 6)) if positions == "rotary" else draw.choice((1, 3, 5)),
            key_value_heads=draw.choice([one for one in (None, 1, 3) if one is None or heads % one == 0]),
            layers=draw.choice((1, 3)),
            positions=positions,
            max_positions=90,
            norm_placement=draw.choice(("pre", "post")),
            norm=draw.choice(("rms", "layer")),
            feedforward=draw.choice(("relu", "swiglu")),
            attention=draw.choice(({"name": "exact"}, {"name": "exact", "window": draw.choice((1, 3, 64))})),
            tie_embeddings=draw.random() < 0.5,
        )
    axes = TRANSFORMER if kind == "transformer" else draw.choice((ATTENTIONAL, FIXED))
    choice = tuple(draw.choice(column) for column in axes.values())
    return transformer(choice) if axes is TRANSFORMER else recurrent(axes, choice)


def drawn_model(draw: Random) -> Network:
    """One that decodes, in float64."""
    while True:
        try:
            config = drawn_config(draw)
        except ConfigError:
            continue
        if config is not None and config.decodes and config.outputs == "tokens":
            torch.manual_seed(draw.randrange(1000))
            return sharpened(config.build(), 3.0, ".query.", ".key.", "embedding")


def drawn_sample(draw: Random) -> Sample:
    def maybe(*values):
        return draw.choice(values) if draw.random() < 0.5 else None

    return Sample(
        draw.choice((1e-3, 0.5, 1.0, 1.4, 50.0)),
        maybe(1, 2, 5, 13, 200),
        maybe(1e-6, 0.3, 0.9, 1.0),
        maybe(0.01, 0.4, 1.0),
        seed=draw.choice((0, 7, -3, LARGE, 2**70)),
        first=draw.choice((0, 5)),
    )


@dataclass
class Asked:
    """What is asked of a model, and what it has room for."""

    room: int
    source: int
    requests: list[RowRequest]


def drawn_requests(draw: Random, model: Network) -> Asked:
    """Prompts of which some begin alike, limits of which some just fit, ends of which some come at once."""
    config, size = model.config, model.config.vocabulary
    room = min(draw.choice((12, 20, 85, 90)), config.position_limit or 90)
    source = draw.choice((1, 6)) if config.reads_source else 0
    head = [draw.randrange(size) for _ in range(draw.choice((0, 3, min(18, room - 4))))]
    filters = drawn_filters(draw, size)
    found = []
    for _ in range(draw.randint(1, 11)):
        text = [draw.randrange(size) for _ in range(draw.choice((1, 2, 5, room)))]
        prompt = tuple((head if draw.random() < 0.6 else []) + text)[: room - 1]
        limit = draw.choice((1, 2, 7, 30, room))
        ends = [draw.randrange(size) for _ in range(draw.choice((1, 1, 3, 8)))] if draw.random() < 0.7 else [-5]
        found.append(
            RowRequest(
                prompt,
                draw.choice((Greedy(), drawn_sample(draw))),
                Stop(ends[0], min(limit, room - len(prompt)), tuple(ends[1:])),
                draw.randrange(20),
                tuple(draw.randrange(size) for _ in range(draw.randint(1, source))) if source else None,
                filters,
            )
        )
    return Asked(room, source, found)


def drawn_filters(draw: Random, size: int) -> tuple[Filter, ...]:
    every = (
        *(RepetitionPenalty(1.7), RepetitionPenalty(0.5), Suppressed((1,)), NoRepeatNgram(size)),
        *(Banned(((1, 0), (2,))), ForcedEos(2), ForcedBos(1)),
    )
    return tuple(sorted(draw.sample(every, draw.choice((0, 0, 1, 2))), key=every.index))  # what is demanded comes last


def alone(model: Network, one: RowRequest) -> Hypothesis | None:
    """By the plain loop, beside nobody; None where the filters leave nothing to choose."""
    strategy = one.strategy
    if isinstance(strategy, Sample):
        strategy = replace(strategy, first=strategy.first + one.number)
    source = None if one.source is None else Padded.of([one.source])
    try:
        return by("none", generate, model, Inputs(Padded.of([one.prompt]), source), strategy, one.stop, one.filters)[0]
    except InputError as error:
        if "leave no token to choose" in str(error):
            return None
        raise


def by(device: str, work: Callable[..., list[Any]], *told: object) -> list[Any]:
    """What this gives where the engine decodes on such a device."""
    with mock.patch.object(paths, "DEVICES", frozenset({device})):
        return work(*told)


def come_and_go(draw: Random, model: Network, asked: Asked) -> list[Hypothesis]:
    """Let in and stepped as it happens, not always told of at once; twice, in one engine."""
    engine = RowEngine(rows_of(model), Capacity(draw.choice((1, 2, 3, 4, 7, 8)), asked.room, asked.source))
    found: dict[int, Hypothesis] = {}
    for _ in range(2):
        waiting = [replace(one) for one in asked.requests]
        places = {id(one): place for place, one in enumerate(waiting)}
        draw.shuffle(waiting)
        while waiting or engine.busy:
            coming = draw.randint(0 if engine.busy else 1, len(engine.free)) if waiting else 0
            engine.admit(waiting[:coming])
            waiting = waiting[coming:]
            engine.step(draw.choice((1, 2, 5, 16)))
            if draw.random() < 0.8:
                found |= {places[id(request)]: hypothesis for request, hypothesis in engine.retire()}
    return [found[place] for place in range(len(asked.requests))]


def differing(found: list[Hypothesis], expected: list[Hypothesis]) -> str | None:
    """What departs, if anything does."""
    for place, (own, other) in enumerate(zip(found, expected, strict=True)):
        if own.ids != other.ids:
            return f"text {place} by {own.path}: {own.ids} is not {other.ids}"
        if own.log_probabilities != pytest.approx(other.log_probabilities, rel=1e-9, abs=1e-9):
            return f"text {place} by {own.path}: {own.log_probabilities} are not {other.log_probabilities}"
    return None


def departs(number: int) -> str | None:
    """What departs in the case of this number, if anything does."""
    draw = Random(number)
    model, stacked = drawn_model(draw), draw.random() < 0.5
    asked = drawn_requests(draw, model)
    with mock.patch.object(in_place, "STACKED", frozenset({"cpu"} if stacked else ())):
        told = [(one, found) for one in asked.requests if (found := alone(model, one)) is not None]
        asked.requests[:] = [one for one, _ in told]
        if not told:
            return None
        problem = differing(come_and_go(draw, model, asked), [found for _, found in told])
        for some in (told, draw.sample(told, draw.randint(1, len(told)))):
            problem = problem or differing(decode(model, [one for one, _ in some]), [found for _, found in some])
        return problem or beams_depart(draw, model, asked)


def beams_depart(draw: Random, model: Network, asked: Asked) -> str | None:
    """The same of beams, all texts at once."""
    one = draw.choice(asked.requests)
    limit = min(1 + asked.room - max(len(one.prompt) for one in asked.requests), one.stop.max_new_tokens, 9)
    stop = Stop(one.stop.eos_id, max(1, limit - 1), one.stop.other_eos_ids)
    filters = one.filters
    strategy = Beam(draw.choice((1, 2, 3, 5)), draw.choice((0.0, 1.0, -0.7)))
    sources = [one.source for one in asked.requests if one.source is not None]
    inputs = Inputs(Padded.of([one.prompt for one in asked.requests]), Padded.of(sources) if sources else None)
    try:
        expected = by("none", generate_ranked, model, inputs, strategy, stop, filters)
    except InputError as error:
        with pytest.raises(InputError, match=re.escape(str(error))):
            by("cpu", generate_ranked, model, inputs, strategy, stop, filters)
        return None
    found = by("cpu", generate_ranked, model, inputs, strategy, stop, filters)
    for own, other in zip(found, expected, strict=True):
        problem = differing(own, other) if len(own) == len(other) else f"{len(own)} are not {len(other)}"
        if problem is not None:
            return f"{strategy}, {stop}: {problem}"
    return None


@pytest.mark.parametrize("number", range(3, 8))
def test_texts_that_come_and_go_at_random_are_what_the_plain_loop_writes_of_each_alone(number):
    assert departs(number) is None


def main() -> None:
    """Case after case, until the time is over."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", type=int)
    told = parser.parse_args()
    torch.set_num_threads(1)
    number, until = told.first, time.monotonic() + 60 * told.minutes
    if told.only is not None:
        print(told.only, departs(told.only))
        return
    while time.monotonic() < until:
        try:
            problem = departs(number)
        except Exception as error:  # whatever it is, the next case is tried
            problem = f"{type(error).__name__}: {error}"
        if problem is not None:
            print(f"{number}: {problem}", flush=True)
        number += 1
    print(f"{number - told.first} cases, from {told.first}")


if __name__ == "__main__":
    main()
