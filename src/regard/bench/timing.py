"""Timing contestants against each other in one run, and keeping what was seen with how it was made.

Contestants take turns, so that a machine that slows down slows them all; the median of the rounds counts.
"""

import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from regard import __version__
from regard.files import write_json

Work = Callable[[], object]
MEASURED = ("transformers", "x-transformers", "gensim", "numba", "ctranslate2")
"""Packages whose versions stand beside the figures."""
SWITCHES = ("ONEDNN_MAX_CPU_ISA", "CT2_FORCE_CPU_ISA")
"""Variables of the environment that keep instructions from being used."""


@dataclass(frozen=True)
class Timed:
    """One contestant's rounds, in milliseconds."""

    name: str
    rounds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle round."""
        return statistics.median(self.rounds)


def take_turns(contestants: dict[str, Work], *, rounds: int = 5, warm_up: int = 1, inner: int = 1) -> dict[str, Timed]:
    """Every contestant once per round, `inner` times in a row; milliseconds for one."""
    for work in contestants.values():
        for _ in range(warm_up):
            work()
    found: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, work in contestants.items():
            settle()
            begun = time.perf_counter()
            for _ in range(inner):
                work()
            settle()
            found[name].append((time.perf_counter() - begun) * 1000 / inner)
    return {name: Timed(name, tuple(times)) for name, times in found.items()}


def settle() -> None:
    """Wait for what this process still has a GPU do."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()


def circumstances(device: str = "cpu") -> dict[str, Any]:
    """What a figure depends on: versions, machine, commit, command."""
    return {
        "command": " ".join(["regard", *sys.argv[1:]]),
        "commit": _commit(),
        "regard": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": torch.cuda.get_device_name()
        if device == "cuda"
        else f"CPU, {torch.get_num_threads()} thread{'s' * (torch.get_num_threads() > 1)}",
        **{name: os.environ[name] for name in SWITCHES if name in os.environ},
        **{name: version(name) for name in MEASURED if installed(name.replace("-", "_"))},
    }


def installed(package: str) -> bool:
    """Whether a peer can be imported here."""
    return find_spec(package) is not None


def _commit() -> str:
    try:
        found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return found.stdout.strip()


def keep(path: Path, rows: list[dict[str, Any]], device: str = "cpu") -> None:
    """Write the figures with their circumstances."""
    write_json(path, {**circumstances(device), "rows": rows})
