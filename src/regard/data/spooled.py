"""Texts that are too many for memory: kept on the disk in a file without a name, read one by one.

The file goes when the process does. Reading is by `pread`: what was read takes no memory once it is let go.
"""

import os
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import IO, overload

from regard.data.splits import TextDocument

LARGE = 2**27
"""Bytes of a file from which its texts are kept on the disk."""


class Spooled(Sequence[str]):
    """Texts on the disk; with `joined`, pieces of one."""

    def __init__(self, file: IO[bytes], ends: "array[int]", rows: range, *, joined: bool) -> None:
        self._file, self._ends, self._rows, self.joined = file, ends, rows, joined

    @classmethod
    def of(cls, texts: Iterable[str], *, joined: bool = False) -> "Spooled":
        """These texts, written as they come."""
        file, ends, total = TemporaryFile(), array("q"), 0  # noqa: SIM115  (it lives as long as what is read from it)
        for text in texts:
            total += file.write(text.encode())
            ends.append(total)
        file.flush()
        return cls(file, ends, range(len(ends)), joined=joined)

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, place: int) -> str: ...

    @overload
    def __getitem__(self, place: slice) -> "Spooled": ...

    def __getitem__(self, place: int | slice) -> "str | Spooled":
        if isinstance(place, slice):
            return Spooled(self._file, self._ends, self._rows[place], joined=self.joined)
        row = self._rows[place]
        start = self._ends[row - 1] if row else 0
        return os.pread(self._file.fileno(), self._ends[row] - start, start).decode()


@dataclass(frozen=True, eq=False)
class SpooledDocuments(Sequence[TextDocument]):
    """The same as documents."""

    texts: Spooled

    def __len__(self) -> int:
        return len(self.texts)

    @overload
    def __getitem__(self, place: int) -> TextDocument: ...

    @overload
    def __getitem__(self, place: slice) -> "SpooledDocuments": ...

    def __getitem__(self, place: int | slice) -> "TextDocument | SpooledDocuments":
        if isinstance(place, slice):
            return SpooledDocuments(self.texts[place])
        return TextDocument(self.texts[place])
