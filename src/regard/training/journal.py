"""metrics.jsonl: one JSON object per step, never a cut line, never a line beyond the state a run goes on from."""

import json
import math
import os
import sys
from pathlib import Path
from types import TracebackType

from regard.errors import FileError
from regard.files import write_text
from regard.training.reports import Report

METRICS = "metrics.jsonl"


class Journal:
    """The open file of a run that goes on after `step`; a context manager."""

    def __init__(self, folder: Path, step: int) -> None:
        self.path = folder / METRICS
        lines = rewound(self.path, step)
        self.last = int(json.loads(lines[-1])["step"]) if lines else 0
        """The step of the last line that was kept."""
        text = "".join(line + "\n" for line in lines)
        if not self.path.is_file() or self.path.read_bytes() != text.encode():
            write_text(self.path, text)
        self.file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    def __enter__(self) -> "Journal":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self.file)

    def write(self, report: Report) -> None:
        """One more line, whole or not at all."""
        line = (json.dumps(report.values(), allow_nan=False) + "\n").encode()
        before = os.fstat(self.file).st_size
        try:
            while line:
                line = line[os.write(self.file, line) :]
        except OSError as error:
            os.ftruncate(self.file, before)
            raise self._failed(error) from error

    def sync(self) -> None:
        """Put the lines on the disk: before the state that would go on after them."""
        try:
            os.fsync(self.file)
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> FileError:
        return FileError(
            f"{self.path} cannot be written: {error.strerror}", "choose a folder that is writable and has room"
        )


def rewound(path: Path, step: int) -> list[str]:
    """The lines up to a step; later ones, and one cut off by a crash, are dropped."""
    kept: list[str] = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []:
        try:
            if json.loads(line)["step"] > step:
                break
        except (ValueError, KeyError, TypeError):
            break
        kept.append(line)
    return kept


def read_metrics(folder: Path) -> list[dict[str, float]]:
    """The numbers of every whole line of a run's metrics.jsonl."""
    path = folder / METRICS
    if not path.is_file():
        problem = f"{folder} does not exist" if not folder.exists() else f"{folder} has no {METRICS}"
        raise FileError(problem, "give the folder of a run, such as runs/dates")
    lines: list[dict[str, float]] = []
    for line in rewound(path, sys.maxsize):
        values = json.loads(line).items()
        numbers = {key: float(value) for key, value in values if isinstance(value, int | float)}
        lines.append({key: value for key, value in numbers.items() if math.isfinite(value)})
    if not lines:
        raise FileError(f"{path} holds no step", "let the run take one, or give another")
    return lines
