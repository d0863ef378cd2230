"""The table [task] of a recipe: a union, of which every task owns a member with the options that mean something to it.

A task's file has its table beside it and registers both (`registry.py`); a recipe is read by the name in its table.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from regard.config import Config, refuse_foreign_keys
from regard.data.tables import Layout, look
from regard.errors import ConfigError, choose
from regard.plugins import load_plugins


class TaskTable(Config):
    """What a model is for, with the options of that task. Derive from it and give `name` a default."""

    name: str = Field(description="what is learnt from the data")

    parts: ClassVar[tuple[str, ...]] = ()
    """What an example is made of: the columns that a table of a user's has for it."""
    files: ClassVar[str] = "`data=[FILE]`"
    """What the task's files may be called."""
    data_keys: ClassVar[frozenset[str]] = frozenset()
    """The keys of [data] that mean something to this task and not to every one: window, batches, seed."""
    writes: ClassVar[bool] = False
    """Whether its answers are decoded: [decoding] means something."""

    def layout(self, path: Path, format: str, columns: Mapping[str, str]) -> Layout:
        """What a user's file holds: which of its columns is which part."""
        return look(path, self.parts, format, columns)

    def idle(self, corpus: str | None) -> dict[str, str]:
        """Keys that were given a value and change nothing, each with what to do instead; `corpus` is the built-in one,
        where the data are that."""
        return {}


TASK_TABLES: dict[str, type[TaskTable]] = {}
"""By the name a recipe's [task] gives; the registry fills it."""


def read_task(values: Mapping[str, Any]) -> TaskTable:
    """The member of the union that a recipe's [task] describes; translation where no name is given."""
    load_plugins()
    name = values.get("name", "translation")
    if name not in TASK_TABLES:
        raise ConfigError(f"task {name!r} is unknown", choose(str(name), TASK_TABLES))
    refuse_foreign_keys(values, name, TASK_TABLES)
    return TASK_TABLES[name].model_validate(dict(values))
