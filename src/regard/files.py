"""Files: written so that a crash leaves the last complete one (beside its name, flushed, then renamed), and opened so
that what is packed with gzip is unpacked and what cannot be read is said in one sentence."""

import gzip
import io
import json
import os
import re
import shutil
import stat
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from regard.errors import FileError, InputError

PARTIAL = ".partial-"
"""What the name of a file being written begins with; nothing ever reads one."""

GZIP = b"\x1f\x8b"
FOREIGN = {
    rb"PK\x03\x04": "zip",
    rb"BZh[1-9]1AY": "bzip2",
    rb"\xfd7zXZ": "xz",
    rb"\x28\xb5\x2f\xfd": "zstd",
    rb"7z\xbc\xaf": "7z",
}
"""How files begin that are packed otherwise, as patterns."""

ALWAYS_UNPACKED = 64 * 2**20
"""Bytes that any gzip file may unpack to."""
MOST_TIMES = 100
"""Beyond that, how many times its own size it may unpack to: text reaches 3 to 20, a bomb 1,000."""


def listed(files: str | Path | Sequence[str | Path]) -> list[Path]:
    """One file or several, as paths."""
    given = [files] if isinstance(files, str | Path) else list(files)
    if not given:
        raise InputError("no file is named", "give one, or a list of several")
    return [Path(one) for one in given]


@contextmanager
def writing(path: Path) -> Iterator[Path]:
    """A place to write a file or a folder to; it takes `path`'s place when the block ends without an error."""
    partial = path.with_name(f"{PARTIAL}{os.getpid()}-{path.name}")
    try:
        _make(path.parent)
        yield partial
        _flush(partial)
        if os.path.isdir(partial) and path.exists():
            shutil.rmtree(path)
        os.replace(partial, path)
        _sync(path.parent)
    except FileError:  # of a file inside the folder: it has said what is wrong
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise FileError(
            f"{path} cannot be written: {reason}", "choose a folder that is writable and has room"
        ) from error
    finally:
        _remove(partial)


def refuse_unwritable(path: Path) -> None:
    """Say before long work, not after it, that its result could not be written."""
    if os.path.isdir(path):
        raise FileError(f"{path} is a folder", "give the name of a file in it")
    above = next(folder for folder in path.absolute().parents if os.path.exists(folder))
    if not (os.path.isdir(above) and os.access(above, os.W_OK)):
        problem = "is not writable" if os.path.isdir(above) else "is a file, not a folder"
        raise FileError(f"{path} cannot be written: {above} {problem}", "choose a folder that is writable and has room")


def write_text(path: Path, text: str) -> None:
    """A whole text file at once, or none of it."""
    with writing(path) as partial:
        partial.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """A whole JSON file at once, readable by people."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path, remedy: str) -> dict[str, Any]:
    """The object in a JSON file; the remedy is for a file that is missing or damaged."""
    value = _json(path, remedy)
    if not isinstance(value, dict):
        raise FileError(f"{path} holds {type(value).__name__}, not an object", remedy)
    return value


def read_list(path: Path, remedy: str) -> list[Any]:
    """The list in a JSON file, likewise."""
    value = _json(path, remedy)
    if not isinstance(value, list):
        raise FileError(f"{path} holds {type(value).__name__}, not a list", remedy)
    return value


def _json(path: Path, remedy: str) -> Any:
    if not path.is_file():
        raise FileError(f"{path} does not exist", remedy)
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise FileError(f"{path} is damaged: {error}", remedy) from error


def _make(folder: Path) -> None:
    """A folder and those above it, each on the disk before something is put into it."""
    if not os.path.isdir(folder):  # Path.is_dir raises for a name that is too long
        _make(folder.parent)
        folder.mkdir(exist_ok=True)
        _sync(folder.parent)


def _flush(path: Path) -> None:
    """Ask the system to put a file, or everything in a folder, on the disk."""
    for one in [*path.iterdir(), path] if os.path.isdir(path) else [path]:
        _sync(one)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove(partial: Path) -> None:
    if os.path.isdir(partial):  # Path.is_dir raises for a name that is too long
        shutil.rmtree(partial, ignore_errors=True)
    elif os.path.exists(partial):
        partial.unlink()


@contextmanager
def opened(path: Path) -> Iterator[io.BufferedReader]:
    """The file's bytes, unpacked where they are packed; what the system or gzip says becomes a FileError."""
    try:
        kind = _mode(path)
        if stat.S_ISDIR(kind):
            raise FileError(f"{path} is a folder, not a file", "give the path of a text file")
        if not (stat.S_ISREG(kind) or stat.S_ISFIFO(kind)):
            raise FileError(f"{path} is a device, not a file", "give the path of a text file")
        with open(path, "rb") as stream:
            if stream.peek(2)[:2] == GZIP:
                yield io.BufferedReader(Unpacked(path, stream))
            else:
                yield stream
    except FileNotFoundError as error:
        raise FileError(f"{path} does not exist", "check the path") from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise FileError(
            f"{path} is a damaged gzip file ({str(error).rstrip('.')})", "copy or download it again"
        ) from error
    except FileError:
        raise
    except OSError as error:
        raise FileError(f"{path} cannot be read ({error.strerror})", "check the path and its permissions") from error


def _mode(path: Path) -> int:
    try:
        return os.stat(path).st_mode
    except ValueError as error:  # a NUL in the name
        raise FileError(f"{str(path)!r} cannot be the name of a file ({error})", "check the path") from error


class Unpacked(io.RawIOBase):
    """What a gzip stream unpacks to, refused as soon as it is out of all proportion to its size."""

    def __init__(self, path: Path, stream: BinaryIO) -> None:
        self._path = path
        self._unpacked = gzip.GzipFile(fileobj=stream, mode="rb")
        self._left = ALWAYS_UNPACKED + MOST_TIMES * os.fstat(stream.fileno()).st_size

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        """Fill the buffer with what comes next."""
        content = self._unpacked.read1(len(buffer))
        self._left -= len(content)
        if self._left < 0:
            raise FileError(
                f"{self._path} unpacks to more than {MOST_TIMES} times its size", "unpack it yourself if that is meant"
            )
        buffer[: len(content)] = content
        return len(content)


def refuse_packed(path: Path, beginning: bytes) -> None:
    """Say so if a text's first bytes are those of an archive, or of gzip inside gzip."""
    for mark, kind in {GZIP: "gzip, twice", **FOREIGN}.items():
        if re.match(mark, beginning):
            raise FileError(f"{path} is packed with {kind}", "unpack it, or pack it once with gzip")
