"""Text from the ids of any tokenizer as they come, by decoding the last few of them.

What a token adds depends on its neighbours: a blank before a word, unless the text begins with it; a byte that is part
of a character. So each new token is decoded with those before it, back to the last point where nothing was left open.
A run of bytes is held back to its end, since a later byte can still spoil the character an earlier one was part of.
"""

from collections.abc import Callable, Iterable


class WindowedStream:
    """Text as it is certain; together it is what decoding all ids at once gives."""

    def __init__(
        self, decode: Callable[[Iterable[int]], str], silent: Callable[[int], bool], is_byte: Callable[[int], bool]
    ) -> None:
        self._decode, self._silent, self._is_byte = decode, silent, is_byte
        self._window: list[int] = []
        self._given = 0
        """How many tokens of the window have been given out."""

    def push(self, token: int) -> str:
        """The text this id completes, which may be none."""
        if self._silent(token):
            return ""
        self._window.append(token)
        return "" if self._is_byte(token) else self._give()

    def end(self) -> str:
        """What was held back."""
        return self._give()

    def _give(self) -> str:
        before = self._decode(self._window[: self._given])
        now = self._decode(self._window)
        self._window = self._window[self._given :]
        self._given = len(self._window)
        return now[len(before) :]
