"""Writing so that a crash leaves the last complete file: beside its name, flushed, then renamed."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from regard.errors import FileError

PARTIAL = ".partial-"
"""What the name of a file being written begins with; nothing ever reads one."""


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


def write_text(path: Path, text: str) -> None:
    """A whole text file at once, or none of it."""
    with writing(path) as partial:
        partial.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """A whole JSON file at once, readable by people."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path, remedy: str) -> dict[str, Any]:
    """The object in a JSON file; the remedy is for a file that is missing or damaged."""
    if not path.is_file():
        raise FileError(f"{path} does not exist", remedy)
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise FileError(f"{path} is damaged: {error}", remedy) from error
    if not isinstance(value, dict):
        raise FileError(f"{path} holds {type(value).__name__}, not an object", remedy)
    return value


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
