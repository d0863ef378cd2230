"""One step of decoding in place, in every row at once: read a token, choose the next, keep it, see who is done.

Nothing is asked of the host, no shape depends on a number, and all memory stays where it is, so the step can be
captured in a CUDA graph; on a CPU it runs as it is written, and gives the same. Where kernels of our own run, they do
what comes after the logits (choice_triton.py).
"""

from typing import Any

import torch

from regard.decoding.choice_triton import settle, settles
from regard.decoding.counter_random import uniform
from regard.decoding.filters import Filter, apply
from regard.decoding.requests import Rows
from regard.decoding.row_groups import RowState, RowStepper
from regard.decoding.row_sampling import Kinds, choose


def step_rows(
    stepper: RowStepper[Any], state: RowState, rows: Rows, kinds: Kinds, filters: tuple[Filter, ...] = ()
) -> None:
    """One token further in every row that is going; one that is done stays where it is."""
    logits, _ = stepper.step(rows.ids, state)
    if not filters and settles(logits):
        settle(logits, rows, kinds, state.lengths)
        return
    scores = apply(filters, logits, rows.generated) if filters else logits
    draws = uniform(rows.seeds, rows.written) if kinds.draws else None
    ids = choose(scores, rows.asked, kinds, draws)
    wide = torch.promote_types(logits.dtype, torch.float32)
    likely = logits.log_softmax(dim=-1, dtype=wide).gather(1, ids[:, None])
    if filters:
        nothing = scores.gather(1, ids[:, None]).squeeze(1).isneginf() & rows.going & (rows.lost < 0)
        rows.lost.copy_(torch.where(nothing, rows.written, rows.lost))
    at = (rows.read + rows.written)[:, None]
    rows.text.scatter_(1, at, ids[:, None])
    rows.likely.scatter_(1, at, likely.to(rows.likely.dtype))
    state.lengths.sub_((~rows.going).long())
    rows.written.add_(rows.going)
    ended = (ids[:, None] == rows.ends).any(dim=1) | (rows.written >= rows.limits)
    rows.going.logical_and_(~ended)
    rows.ids.copy_(ids)
