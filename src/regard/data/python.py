"""Corpus `python`: the source of Python's own standard library, as running text.

A document is a file. What splits hold out is modules: a package as a whole, or a file at the top. Tests are left out,
and so is what does not read as UTF-8. The text is that of the Python that runs: another version has another corpus, of
one version it is the same on every machine. Nothing is copied and nothing downloaded.
"""

import sysconfig
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from regard.data.corpus import ExampleKind, Examples, Split, register, require_index, stable_hash
from regard.data.splits import TextDocument
from regard.errors import ConfigError

LEFT_OUT = frozenset({"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"})
"""Folders: what others installed, and tests, which are long and alike."""


@dataclass(frozen=True)
class Python:
    """Files of the standard library."""

    name: ClassVar[str] = "python"

    held_out: int = 200_000
    """Characters of valid and of test, about: the modules after which there are so many."""
    only: tuple[str, ...] = ()
    """Modules that are taken; all there are if it is empty."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.held_out < 1:
            raise ConfigError(f"held_out is {self.held_out}, which leaves valid and test empty", "use 1 or more")

    def size(self, split: Split) -> int | None:
        """Files of the split."""
        return len(self._files[split])

    def example(self, split: Split, index: int) -> TextDocument:
        """The file at this place."""
        files = self._files[split]
        require_index(split, index, len(files))
        return TextDocument(files[index].read_text(encoding="utf-8"))

    def of_kind(self, kind: ExampleKind) -> Examples | None:
        """Running text alone."""
        return self if kind == "documents" else None

    def modules(self, split: Split) -> tuple[str, ...]:
        """The modules of a split, in order."""
        return tuple(dict.fromkeys(_module(path) for path in self._files[split]))

    @cached_property
    def _files(self) -> dict[Split, tuple[Path, ...]]:
        """Modules in an order that is always the same: the first are for test, the next for valid."""
        modules: dict[str, list[Path]] = {}
        for path in _sources(self.only):
            modules.setdefault(_module(path), []).append(path)
        for name in self.only:
            if name not in modules:
                raise ConfigError(f"only has {name!r}, which is no module of the standard library", "name others")
        splits: dict[Split, list[Path]] = {"test": [], "valid": [], "train": []}
        waiting: list[Split] = ["valid", "test"]
        held = 0
        for module in sorted(modules, key=lambda name: stable_hash("python", self.seed, name)):
            splits[waiting[-1] if waiting else "train"] += modules[module]
            held += sum(path.stat().st_size for path in modules[module])
            if waiting and held >= self.held_out:
                waiting.pop()
                held = 0
        empty = [split for split, files in splits.items() if not files]
        if empty:
            raise ConfigError(
                f"{len(modules)} modules of which {self.held_out:,} characters are held out leave none for {empty[0]}",
                "lower held_out or take more modules",
            )
        return {split: tuple(files) for split, files in splits.items()}


register(Python)


def _library() -> Path:
    return Path(sysconfig.get_paths()["stdlib"])


def _module(path: Path) -> str:
    return path.relative_to(_library()).parts[0].removesuffix(".py")


def _sources(only: Collection[str]) -> Iterator[Path]:
    """The files, in order."""
    library = _library()
    for top in sorted(library.iterdir()):
        if not only or top.name.removesuffix(".py") in only:
            for path in [top] if top.suffix == ".py" else sorted(top.rglob("*.py")):
                if LEFT_OUT.isdisjoint(path.relative_to(library).parts) and _reads(path):
                    yield path


def _reads(path: Path) -> bool:
    """Whether it is text with something in it."""
    try:
        return bool(path.read_text(encoding="utf-8").strip())
    except (OSError, UnicodeDecodeError):
        return False
