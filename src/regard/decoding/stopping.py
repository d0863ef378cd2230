"""Stopping at a text: `stop=("\\n\\n",)` cuts an answer exactly before it, however it is cut into tokens.

What is streamed is held back while it may be the beginning of such a text: nothing is printed that would be cut.
"""

from collections.abc import Callable, Sequence


def cut(text: str, stops: Sequence[str]) -> tuple[str, str | None]:
    """The text before the first of these texts in it, and which that is; of several at one place the longest."""
    found = [(text.find(stop), -len(stop), stop) for stop in stops if stop in text]
    if not found:
        return text, None
    place, _, stop = min(found)
    return text[:place], stop


def meeting(stops: Sequence[str], decode: Callable[[Sequence[int]], str]) -> Callable[[Sequence[int]], bool] | None:
    """Whether ids hold one of these texts; None where there are none."""
    return (lambda ids: cut(decode(ids), stops)[1] is not None) if stops else None


class HeldBack:
    """Text as it comes, without what may be the beginning of a text to stop at."""

    def __init__(self, stops: Sequence[str]) -> None:
        self.stops = stops
        self.stopped = False
        self._held = ""

    def push(self, text: str) -> str:
        """What is certain to stay."""
        if self.stopped:
            return ""
        whole, met = cut(self._held + text, self.stops)
        if met is not None:
            self.stopped, self._held = True, ""
            return whole
        begun = max((_begun(whole, stop) for stop in self.stops), default=0)
        certain = whole[: len(whole) - begun]
        self._held = whole[len(certain) :]
        return certain

    def end(self) -> str:
        """What was held back and did not become one."""
        held, self._held = self._held, ""
        return held


def _begun(text: str, stop: str) -> int:
    """How many characters of its beginning the text ends with."""
    return next(n for n in range(min(len(text), len(stop) - 1), -1, -1) if text.endswith(stop[:n]))
