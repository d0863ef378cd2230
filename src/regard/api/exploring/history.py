"""A run's models at the steps whose weights it kept, loaded when they are asked for."""

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path

from regard.api import Model, load
from regard.errors import InputError
from regard.models.checkpoint import snapshots_of

AT_A_TIME = 4
"""Models in memory; another step is read from its file again."""


@dataclass(eq=False)
class KeptSteps:
    """The snapshots of a folder that was named when the explorer began; a step is all that a page may choose."""

    folder: Path
    device: str = "auto"
    precision: str = "auto"
    steps: tuple[int, ...] = ()
    _models: OrderedDict[int, Model] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def of(cls, folder: Path, device: str = "auto", precision: str = "auto") -> "KeptSteps":
        """Those that are there now."""
        return cls(folder, device, precision, tuple(snapshots_of(folder)) if folder.is_dir() else ())

    def at(self, step: int) -> Model:
        """The model after this step."""
        if step not in self.steps:
            known = ", ".join(map(str, self.steps)) or "none: train with training.snapshots=[0,50,100]"
            raise InputError(f"no weights of step {step} were kept", f"kept were {known}")
        with self._lock:
            if step not in self._models:
                self._models[step] = load(self.folder, self.device, self.precision, snapshot=step)
            self._models.move_to_end(step)
            while len(self._models) > AT_A_TIME:
                self._models.popitem(last=False)
            return self._models[step]
