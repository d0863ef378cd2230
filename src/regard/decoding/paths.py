"""Which loop decodes: the plain one, step by step, or the engine that works in place and on a GPU replays a graph.

Both give the same tokens. The plain one takes every stepper, strategy and filter, tells listeners of every step and can
be watched; the engine is for where starting kernels takes longer than they do.
"""

from collections.abc import Sequence
from typing import Any

from regard.data.batching import Inputs
from regard.decoding.filters import Filter
from regard.decoding.hypothesis import Hypothesis, Stop
from regard.decoding.penalties import RepetitionPenalty
from regard.decoding.requests import RowRequest
from regard.decoding.row_engine import ENDS, decode
from regard.decoding.stepper import Stepper
from regard.decoding.strategies import Beam, Greedy, Sample, Strategy
from regard.models.in_place import branches_unsupported
from regard.models.network import Network

DEVICES = frozenset({"cuda"})
"""Where the engine pays. On a CPU a step's kernels are started faster than they run, and the plain loop reads less."""


def why_plain(
    stepper: Stepper[Any], inputs: Inputs, strategy: Strategy, stop: Stop, filters: Sequence[Filter]
) -> str | None:
    """Why the plain loop decodes this; None where the engine does. That somebody watches is for the caller to say."""
    if not isinstance(stepper, Network):
        return f"{type(stepper).__name__} decodes by steps of its own"
    if stepper.device.type not in DEVICES:
        return f"on {stepper.device.type} it is as fast"
    if not isinstance(strategy, Greedy | Sample | Beam):
        return f"{type(strategy).__name__} looks at several rows at once"
    asking = [type(one).__name__ for one in filters if not one.on_device]
    if asking:
        return f"{asking[0]} is asked at every step"
    if stop.met is not None:
        return "what was written is looked at after every step"
    if stepper.training:
        return "the model is in training"
    if any(one._forward_hooks or one._forward_pre_hooks for one in stepper.modules()):
        return "a hook is called at every step"
    if isinstance(strategy, Beam) and (reason := _why_plain_beam(stepper, strategy, stop)) is not None:
        return reason
    if len(stop.eos_ids) > ENDS:
        return f"{len(stop.eos_ids)} tokens end a text"
    longest, limit = inputs.tokens.ids.shape[1] + stop.max_new_tokens, stepper.config.position_limit
    if limit is not None and longest > limit:
        return f"{longest} tokens are more than {limit} positions"
    return None if stepper.config.decodes else "it does not decode"


def _why_plain_beam(stepper: Network, strategy: Beam, stop: Stop) -> str | None:
    """Why a beam of this kind is searched by the plain loop."""
    if strategy.parts > 1:
        return "groups of beams are searched one after the other"
    if len(stop.eos_ids) >= stepper.config.vocabulary:
        return "all tokens end a text"
    return stepper.in_place_unsupported() or branches_unsupported(stepper.in_place().model)


def decode_in_place(
    stepper: Stepper[Any],
    inputs: Inputs,
    strategy: Greedy | Sample,
    stop: Stop,
    filters: tuple[Filter, ...],
    numbers: Sequence[int],
) -> list[Hypothesis]:
    """What is written to each of these by the engine; `numbers` say which texts of the call they are."""
    assert isinstance(stepper, Network)
    if isinstance(strategy, Sample) and strategy.repetition_penalty != 1:
        filters = (*filters, RepetitionPenalty(strategy.repetition_penalty))
    sources = [None] * len(numbers) if inputs.source is None else [tuple(row) for row in inputs.source.rows()]
    prompts = zip(inputs.tokens.rows(), sources, numbers, strict=True)
    return decode(
        stepper, [RowRequest(tuple(row), strategy, stop, number, source, filters) for row, source, number in prompts]
    )
