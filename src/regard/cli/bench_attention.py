"""What `regard bench attention` is asked of mechanisms: by length, and on a text of one's own."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from regard.errors import InputError, choose


@dataclass(frozen=True)
class MechanismsAsked:
    """The options of `bench attention` that are about mechanisms."""

    lengths: list[int]
    mechanisms: list[str]
    causal: bool
    minutes: float | None
    on: Path | None
    model: Path | None
    resume: bool

    def __post_init__(self) -> None:
        if (self.on is None) != (self.model is None):
            there, missing = ("--on", "--model FOLDER") if self.model is None else ("--model", "--on TEXT")
            raise InputError(f"{there} alone measures nothing", f"give {missing} as well")
        if self.on is not None and (self.causal or self.minutes is not None or self.resume):
            raise InputError("--causal, --minutes and --resume have no effect on the error on a text", "leave them out")
        if any(length < 1 for length in self.lengths):
            raise InputError(f"a length of {min(self.lengths)} has no tokens", "use 1 or more")

    @property
    def until(self) -> float | None:
        """When to begin nothing new, by the clock that only goes on."""
        return None if self.minutes is None else time.monotonic() + 60 * self.minutes

    @property
    def anything(self) -> bool:
        """Whether anything is asked of mechanisms alone."""
        return self != MechanismsAsked([], [], False, None, None, None, False)

    def rows(self, device: str, kept: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """The figures, as they come; `kept` are those of the file that is gone on with."""
        from regard.attention.mechanism import MECHANISMS
        from regard.bench import attention_error, growth
        from regard.plugins import load_plugins

        load_plugins()
        for name in self.mechanisms:
            if name not in MECHANISMS:
                raise InputError(f"mechanism {name!r} is unknown", choose(name, MECHANISMS))
        lengths, mechanisms, until = self.lengths or None, self.mechanisms or None, self.until
        if self.on is not None and self.model is not None:
            return attention_error.rows(self.model, self.on, device, lengths, mechanisms)
        kinds = (True,) if self.causal else (False, True)
        return chain.from_iterable(
            growth.rows(device, lengths, causal=causal, mechanisms=mechanisms, known=kept, until=until)
            for causal in kinds
        )

    def count(self, device: str) -> int | None:
        """How many rows there are at most, where that is known."""
        from regard.bench import growth

        if self.on is not None:
            return None
        kinds = (True,) if self.causal else (False, True)
        names = self.mechanisms or None
        return sum(growth.count(device, self.lengths or None, causal=causal, mechanisms=names) for causal in kinds)
