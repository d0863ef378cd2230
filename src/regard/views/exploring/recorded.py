"""A recording of one text with its tokens named, as a page is told of it, and the questions that may be asked of it."""

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from regard.errors import InputError
from regard.inspection.capture import Recording
from regard.inspection.maps import labels
from regard.text.tokenizer import Tokenizer

NO_ATTENTION = (
    "this model has no attention, so there is nothing to look at",
    "its answer, its decoding and its tokens can be explored; train one with attention to see where it looks",
)


class PageQuestion(BaseModel):
    """What is asked of a reading; `part` is which of the sequences that the text was read as."""

    model_config = ConfigDict(extra="forbid")

    part: int = Field(0, ge=0)


class OfLayer(PageQuestion):
    """One layer."""

    layer: str


@dataclass(frozen=True, eq=False)
class ShownRecording:
    """What was seen, and how its tokens are called."""

    seen: Recording
    tokenizer: Tokenizer

    @property
    def attends(self) -> bool:
        """Whether there is anything to look at."""
        return bool(self.seen.forwards)

    def part(self, index: int = 0) -> Recording:
        """One of the sequences the text was read as; a long passage is read in windows."""
        if not self.attends:
            raise InputError(*NO_ATTENTION)
        return self.seen.only(index)

    def record(self, part: int = 0) -> dict[str, Any]:
        """The tokens, each list once, and the layers."""
        lists: dict[tuple[str, ...], int] = {}
        layers = []
        seen = self.part(part) if self.attends else self.seen
        for layer in seen.layers:
            rows, columns = labels(seen, layer, self.tokenizer)
            kind = "cross" if seen.crosses(layer) else "self" if seen.encodes(layer) else "masked self"
            sides = {"rows": lists.setdefault(rows, len(lists)), "columns": lists.setdefault(columns, len(lists))}
            heads = seen.trace(layer).heads
            layers.append({"name": layer, "kind": kind, "heads": heads, "mechanism": seen.mechanism(layer), **sides})
        parts = self.seen.sequences if self.attends else 0
        return {"tokens": [list(one) for one in lists], "layers": layers, "parts": parts, "part": part}
