"""A run's figures for TensorBoard as well: what metrics.jsonl holds, as event files in RUN/tensorboard."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from regard.errors import ConfigError
from regard.training.reports import Listener, Report

EVENTS = "tensorboard"
"""The folder in a run's own."""


@contextmanager
def tracked(track: str | None, folder: Path, listener: Listener) -> Iterator[Listener]:
    """The listener itself or, where figures are tracked, one that writes them first."""
    if track is None:
        yield listener
        return
    writing = TensorBoard(folder / EVENTS, listener)
    try:
        yield writing
    finally:
        writing.close()


def writer_class(track: str | None) -> Any:
    """What writes event files; None where nothing is tracked."""
    if track is None:
        return None
    try:
        return import_module("torch.utils.tensorboard").SummaryWriter
    except ImportError as error:
        raise ConfigError(
            f"[training] track = {track!r} needs TensorBoard, which is not installed", "pip install 'regard[track]'"
        ) from error


class TensorBoard:
    """A listener that writes every report and tells another."""

    def __init__(self, folder: Path, then: Listener) -> None:
        self.folder, self.then = folder, then
        self.writer: Any = None

    def __call__(self, report: Report) -> None:
        """Write the figures; those of steps beyond the state that a run goes on from are dropped."""
        if self.writer is None:
            self.writer = writer_class("tensorboard")(str(self.folder), purge_step=report.step)
        for name, value in report.values().items():
            if name != "step":
                self.writer.add_scalar(name.replace("validation_", "validation/"), value, report.step)
        if report.validation is not None:
            self.writer.flush()
        self.then(report)

    def say(self, sentence: str) -> None:
        self.then.say(sentence)

    def close(self) -> None:
        """Put what was written on the disk."""
        if self.writer is not None:
            self.writer.close()
