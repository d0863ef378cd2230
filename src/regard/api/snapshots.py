"""A run looked at through the weights it kept on purpose while it trained."""

from collections.abc import Sequence
from pathlib import Path

import torch

from regard.api.loading import load
from regard.errors import InputError
from regard.inspection.head_history import HeadHistory
from regard.models.checkpoint import snapshots_of


def head_history(
    folder: str | Path,
    texts: Sequence[str] | None = None,
    device: str | torch.device = "auto",
    precision: str = "auto",
) -> HeadHistory:
    """What kind of head each head was at every step that the run kept, measured as `Model.heads` does."""
    steps = snapshots_of(Path(folder))
    if not steps:
        raise InputError(
            f"{folder} kept no weights while it trained", "train with training.snapshots, such as [0, 50, 100, 200]"
        )
    reports = [load(folder, device, precision, snapshot=step).heads(texts) for step in steps]
    return HeadHistory(tuple(steps), tuple(reports))
