"""One text as a model read it, kept so that any row of any head can be asked for; and a store of several."""

import secrets
import threading
import warnings
from collections import OrderedDict
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import torch

from regard.api import Model, Watched, watch
from regard.errors import InputError
from regard.inspection.capture import check_watchable
from regard.inspection.trace import AttentionRecord
from regard.tasks.task import Answer
from regard.text.tokenizer import Tokenizer
from regard.views.exploring.recorded import ShownRecording

LONGEST = 16_384
"""Tokens of a text that are read unless more is asked for."""
MEMORY = 2**30
A_SESSION = 6
"""Readings that one page has at a time."""


@dataclass(frozen=True, eq=False)
class ExploredText(ShownRecording):
    """What a model made of a text, and what was seen of it meanwhile."""

    name: str
    model: Model
    text: str
    target: str | None
    answer: Answer | None
    """None where the text was read alone."""
    notes: tuple[str, ...]
    seconds: float
    new_tokens: int | None = None
    kept: dict[Any, Any] = field(default_factory=dict)
    """What was computed of it for some questions, each with the `bytes` it takes."""

    def record(self, part: int = 0) -> dict[str, Any]:
        """What the page is told of it: the answer, the tokens and the layers."""
        said: dict[str, Any] = {"model": self.name, "text": self.text, "target": self.target, "notes": self.notes}
        said |= {"output": None if self.answer is None else self.answer.text, "seconds": self.seconds}
        return said | super().record(part)

    @property
    def bytes(self) -> int:
        """What keeping it takes: queries, keys and values of every layer, and what was computed of it."""
        total: int = sum(one.bytes for one in list(self.kept.values()))
        for forward in self.seen.forwards:
            for call in (call for calls in forward.layers.values() for call in calls):
                kept = (
                    (call.query, call.new_keys, call.new_values)
                    if isinstance(call, AttentionRecord)
                    else (call.inputs, call.memory)
                )
                total += sum(one.numel() * one.element_size() for one in kept if one is not None)
        return total


@dataclass(frozen=True)
class Wanted:
    """What is to be read: a text, and an answer to be read with it or how many tokens may be written."""

    text: str
    target: str | None = None
    new_tokens: int | None = None
    """0 of a language model: it reads the text alone."""


def read(name: str, model: Model, wanted: Wanted, longest: int = LONGEST) -> ExploredText:
    """Let the model do what it is for, watched."""
    _check_length(model.tokenizer, wanted.text, longest)
    _check_length(model.tokenizer, wanted.target or "", longest)
    begun = perf_counter()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        seen, answer = _look(model, wanted)
    notes = tuple(dict.fromkeys(str(one.message) for one in told if one.category.__module__.startswith("regard")))
    took = perf_counter() - begun
    return ExploredText(
        seen, model.tokenizer, name, model, wanted.text, wanted.target, answer, notes, took, wanted.new_tokens
    )


def _check_length(tokenizer: Tokenizer, text: str, longest: int) -> None:
    tokens = len(tokenizer.encode(text))
    if tokens > longest:
        raise InputError(
            f"the text has {tokens:,} tokens and the explorer reads at most {longest:,}",
            f"give a part of it, or start it with max-tokens {tokens}",
        )


@torch.no_grad()
def _look(model: Model, wanted: Wanted) -> tuple[Watched, Answer | None]:
    model.check(wanted.text)
    if wanted.target is not None:
        return model.look(wanted.text, target=wanted.target, values=True), None
    if model.task.continues and wanted.new_tokens == 0:
        return model.look(wanted.text, values=True), None
    limit = wanted.new_tokens or None
    if not attends(model):
        return Watched(model.tokenizer, values=True), model.answers([wanted.text], max_new_tokens=limit)[0]
    with watch(model, values=True) as seen:
        answer = model.answers([wanted.text], max_new_tokens=limit)[0]
    return seen, answer


def attends(model: Model) -> bool:
    """Whether the model has attention that can be watched."""
    try:
        check_watchable(model.module)
    except InputError:
        return False
    return True


class GoneError(InputError):
    """A reading that is no longer kept; the page reads its text again."""


class TextStore:
    """Readings by their names, a page's own; the longest unused go when there are too many or they take too much."""

    def __init__(self, memory: int = MEMORY) -> None:
        self.memory = memory
        self._kept: OrderedDict[tuple[str, str], ExploredText] = OrderedDict()
        self._lock = threading.Lock()

    def put(self, session: str, reading: ExploredText) -> str:
        """Keep it; its name. The newest is kept whatever it takes."""
        name = secrets.token_urlsafe(9)
        with self._lock:
            self._kept[session, name] = reading
            own = [key for key in self._kept if key[0] == session]
            for key in own[:-A_SESSION]:
                del self._kept[key]
            while len(self._kept) > 1 and sum(one.bytes for one in self._kept.values()) > self.memory:
                self._kept.popitem(last=False)
        return name

    def get(self, session: str, name: str) -> ExploredText:
        """One of a page's own."""
        with self._lock:
            if (session, name) not in self._kept:
                raise GoneError("this reading is no longer kept", "read the text again")
            self._kept.move_to_end((session, name))
            return self._kept[session, name]
