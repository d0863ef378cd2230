"""The table [data] of a recipe: a built-in corpus, or files of a user's own and how they are read and divided."""

import os.path
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from regard.config import Config
from regard.data.tables import ending
from regard.errors import ConfigError, choose
from regard.tasks.task_table import TaskTable

Source = str | tuple[str, str]


class DataTable(Config):
    """A built-in corpus by name, or files of your own.

    With files, `folder` is always there and absolute, so that a written recipe means the same files everywhere.
    """

    corpus: str | None = Field(None, description="a built-in corpus; `regard list corpora` names them")
    options: dict[str, Any] = Field(default_factory=dict, description="the corpus's own options")
    train: Source | None = Field(None, description="the file to train on, or two: [source, target]")
    valid: Source | None = Field(
        None, description="the file to choose the best model by; held out of the training file if absent"
    )
    test: Source | None = Field(None, description="the file that `regard evaluate` measures on")
    folder: str | None = Field(None, description="where relative paths begin; the current folder if absent")
    format: Literal["auto", "parallel", "tsv", "csv", "jsonl", "parquet", "arrow", "text", "whole"] = Field(
        "auto", description="what the files hold; auto: as their names and first lines say; whole: one text"
    )
    columns: dict[str, str] = Field(
        default_factory=dict,
        description="which column of a table is the source, target, text, label, summary, question, context or answer: "
        "a name, or a number where there is no header; found by itself if absent",
    )
    split: float | None = Field(
        None, gt=0, lt=1, description="share of the training file that is trained on; a twentieth is held out if absent"
    )
    seed: int | None = Field(None, ge=0, description="of the choice of what is held out; 0 if absent")
    window: int | None = Field(
        None, ge=2, description="tokens read at once where texts are long or in a row; 256 if absent"
    )
    round_to: int | None = Field(
        None,
        ge=2,
        description="texts are padded to a multiple of so many tokens: few shapes of batches, for what is compiled; "
        "to the longest of each batch if absent",
    )
    batches: Literal["by_length", "packed"] = Field(
        "by_length", description="examples of like length side by side, or several in a row, for a decoder"
    )

    @field_validator("train", "valid", "test", mode="before")
    @classmethod
    def _files(cls, value: Any, info: Any) -> Any:
        names = list(value) if isinstance(value, list | tuple) else [value]
        if not all(isinstance(name, str) and name.strip() for name in names) or len(names) not in (1, 2):
            raise ConfigError(
                f"{info.field_name} = {value!r} cannot be used", "give a file, or two as [SOURCE, TARGET], in quotes"
            )
        return tuple(names) if len(names) == 2 else names[0]

    @field_validator("columns", mode="before")
    @classmethod
    def _columns(cls, value: Any) -> Any:
        """A number may stand without quotes."""
        whole = isinstance(value, dict) and all(type(column) in (str, int) for column in value.values())
        if not whole or not all(str(column).strip() for column in value.values()):
            raise ConfigError(f"columns = {value!r} cannot be used", 'write them as {source = "english", target = 2}')
        return {part: str(column) for part, column in value.items()}

    @model_validator(mode="before")
    @classmethod
    def _absolute_folder(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("train") is not None:
            folder = values.get("folder") or ""
            if isinstance(folder, str):
                return {**values, "folder": os.path.abspath(os.path.expanduser(folder))}
        return values

    @model_validator(mode="after")
    def _one_source(self) -> "DataTable":
        if self.corpus is not None and self.train is not None:
            raise ConfigError("a corpus and files to train on are two sources", "leave one of them out")
        if self.corpus is None and self.train is None and (self.valid or self.test):
            raise ConfigError("it has files to measure on and none to train on", 'add train = "pairs.tsv"')
        if self.valid is not None and self.split is not None:
            raise ConfigError("valid and split are two ways to say what to validate on", "leave one of them out")
        if self.valid is not None and self.seed is not None:
            raise ConfigError("seed has no effect where valid says what to validate on", "leave one of them out")
        if self.corpus is None and self.options:
            raise ConfigError("options belong to a built-in corpus and none is named", "leave them out")
        if self.corpus is not None:
            for key in ("valid", "test", "folder", "format", "columns", "split", "seed"):
                if getattr(self, key) != type(self).model_fields[key].get_default(call_default_factory=True):
                    raise ConfigError(
                        f"{key} has no effect with the built-in corpus {self.corpus!r}", f"leave {key} or corpus out"
                    )
        return self

    @property
    def divided(self) -> bool:
        """Whether what is validated on comes out of the training file."""
        return self.train is not None and self.valid is None

    def paths(self, source: Source) -> Path | tuple[Path, Path]:
        """Where these files are: below `folder`, written from the current folder where they are inside it."""
        if isinstance(source, str):
            return _shortest(Path(self.folder or "", Path(source).expanduser()))
        first, second = source
        return _shortest(Path(self.folder or "", Path(first).expanduser())), _shortest(
            Path(self.folder or "", Path(second).expanduser())
        )


def _shortest(path: Path) -> Path:
    """A path as a person in the current folder would write it."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def check_columns(task: TaskTable, columns: dict[str, str]) -> None:
    """Raise ConfigError if an example of a task has no such part."""
    parts = task.parts
    for part in columns:
        if part not in parts:
            known = choose(part, parts) if parts else "leave it out"
            raise ConfigError(f"[data] columns.{part} is no part of an example of task {task.name!r}", known)


def replace_source(values: dict[str, Any], files: Sequence[str]) -> None:
    """Put a user's files in place of a recipe's data; what it says about reading stays, where the files allow it."""
    if not 1 <= len(files) <= 2:
        raise ConfigError(
            f"{len(files)} files are given as data", "give one file, or two of which line N belongs to line N"
        )
    before = values.get("data", {})
    kept = (
        {key: before[key] for key in ("format", "columns", "window", "batches") if key in before}
        if (isinstance(before, dict))
        else {}
    )
    if len(files) == 2 or ending(files[0]):
        kept.pop("format", None)
    values["data"] = kept | {"train": list(files)}
