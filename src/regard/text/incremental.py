"""Text from ids as they come: never half a character, and in the end exactly what decoding them all at once gives."""

import codecs
from collections.abc import Callable, Iterable
from typing import Protocol, runtime_checkable


@runtime_checkable
class TextStream(Protocol):
    """`push` an id and get the text that is certain by now; `end` gives what was held back. Together: `decode`."""

    def push(self, token: int) -> str:
        """The text this id completes, which may be none."""
        ...

    def end(self) -> str:
        """What is left: bytes that never became a character are `�`."""
        ...


class ByteStream:
    """Of tokens that are bytes: a character comes out with the last of its bytes."""

    def __init__(self, token_bytes: Callable[[int], bytes]) -> None:
        self._token_bytes = token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token: int) -> str:
        """The characters that end in this token."""
        return self._decoder.decode(self._token_bytes(token))

    def end(self) -> str:
        """`�` for a character that was begun."""
        return self._decoder.decode(b"", final=True)


class WholeStream:
    """Of tokens that are text: what decoding gives beyond what it gave before."""

    def __init__(self, decode: Callable[[Iterable[int]], str]) -> None:
        self._decode = decode
        self._ids: list[int] = []
        self._given = ""

    def push(self, token: int) -> str:
        """What the text so far is longer by."""
        self._ids.append(token)
        whole = self._decode(self._ids)
        if not whole.startswith(self._given):  # later tokens changed it: keep what was given, wait for the end
            return ""
        new, self._given = whole[len(self._given) :], whole
        return new

    def end(self) -> str:
        """Nothing: text is given as it comes."""
        return ""
