"""Reading prompts for the plain loop: what all of them begin with is read once, where nobody watches."""

from typing import Any

import torch

from regard.data.batching import Inputs
from regard.decoding.stepper import S, Stepper
from regard.models.in_place import CachedModel
from regard.models.network import Network
from regard.models.shared_head import read_behind_head, shared_head


def begun(stepper: Stepper[S], inputs: Inputs) -> S:
    """What `start` gives."""
    rows = [row[:-1] for row in inputs.tokens.rows()] if _keeps_tokens(stepper, inputs) else []
    head = shared_head(rows)
    if not head or not isinstance(stepper, CachedModel):
        return stepper.start(inputs)
    state: Any = read_behind_head(stepper, rows, head)
    lengths = torch.tensor([len(row) for row in rows], device=stepper.device)
    found: S = state.trim(lengths) if len(set(map(len, rows))) > 1 else state
    return found


def _keeps_tokens(stepper: Stepper[Any], inputs: Inputs) -> bool:
    """Whether it is a decoder of such layers, and each row one prompt."""
    alone = inputs.source is None and inputs.tokens.documents is None
    return alone and isinstance(stepper, Network) and stepper.in_place_unsupported() is None
