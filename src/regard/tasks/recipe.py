"""The recipe: one TOML file that says what to train, on what and how.

    [task]       what the model is for          [model]      its shape
    [data]       where the texts come from      [training]   how it is trained
    [tokenizer]  how text becomes ids           [decoding]   how it answers

`model = "transformer"` is short for `[model] name = "transformer"`, `data = "dates"` for `[data] corpus = "dates"`.
Tasks and networks declare and register what stands in [task] and [model]; here it is only put together. Unknown keys
are refused with the nearest known, and keys without effect with what would give them one.
"""

import json
import math
import os.path
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from pydantic import Field, SerializeAsAny, field_validator, model_validator

from regard.config import Config
from regard.errors import ConfigError, FileError, choose
from regard.models.network import NETWORKS, Checkpoint, NetworkShape, read_shape
from regard.tasks.data_table import DataTable, check_columns, replace_source
from regard.tasks.decoding_table import DecodingTable
from regard.tasks.task_table import TASK_TABLES, TaskTable, read_task
from regard.training.plan import TrainingPlan


class TokenizerTable(Config):
    """How text becomes ids."""

    kind: Literal["bpe", "bpe_words", "wordpiece", "wordpiece_cased", "characters", "pretrained"] = Field(
        "bpe", description="byte-level BPE, BPE of words with an end mark, WordPiece, whose texts do not come back, …"
    )
    size: int = Field(512, ge=1, description="entries of the vocabulary")
    sample: int = Field(20_000, ge=1, description="training examples it is learnt from")


BARE = re.compile(r"[A-Za-z0-9_-]+")
"""A key of TOML that needs no quotes."""
MAIN_KEYS = {"task": "name", "data": "corpus", "model": "name", "adapter": "name"}
"""What a string in place of a table means."""
UNIONS: dict[str, Callable[[Mapping[str, Any]], Config]] = {"task": read_task, "model": read_shape}
"""Tables that are of one class or another, by the name in them."""


class Recipe(Config):
    """All tables of a recipe."""

    task: SerializeAsAny[TaskTable] = Field(default_factory=lambda: read_task({}))
    data: DataTable | None = Field(None, description="absent where a user's files are missing")
    tokenizer: TokenizerTable = TokenizerTable()
    model: SerializeAsAny[NetworkShape] = Field(default_factory=lambda: read_shape({}))
    training: TrainingPlan = TrainingPlan()
    decoding: DecodingTable = DecodingTable()

    @field_validator("*", mode="wrap")
    @classmethod
    def _table(cls, value: Any, read: Callable[[Any], Any], info: Any) -> Any:
        """A string alone is a table's main key, a union is read by it, and an error says which table it is about."""
        if isinstance(value, str) and info.field_name in MAIN_KEYS:
            value = {MAIN_KEYS[info.field_name]: value}
        try:
            if isinstance(value, dict) and info.field_name in UNIONS:
                value = UNIONS[info.field_name](value)
            return read(value)
        except ConfigError as error:
            raise ConfigError(f"[{info.field_name}] {error.problem}", error.remedy) from error

    @model_validator(mode="after")
    def _keys_have_a_meaning(self) -> "Recipe":
        """What would change nothing is refused: keys of other tasks and networks."""
        for key, readers in _data_keys().items():
            if self.data is not None and self.task.name not in readers and _given(self.data, key):
                raise ConfigError(
                    f"[data] {key} has no effect on task {self.task.name!r}",
                    f"leave it out; it is for {', '.join(readers)}",
                )
        idle = self.task.idle(None if self.data is None else self.data.corpus)
        for table, values, keys in (("task", self.task, idle), ("model", self.model, self.model.idle())):
            for key, instead in keys.items():
                raise ConfigError(f"[{table}] {key} = {getattr(values, key)!r} has no effect", instead)
        if self.decoding.renormalize and self.decoding.strategy != "beam":
            raise ConfigError(
                f"[decoding] renormalize has no effect with strategy {self.decoding.strategy!r}",
                "use strategy beam, or leave it out",
            )
        if not self.task.writes and self.decoding != DecodingTable():
            key = next(key for key in DecodingTable.model_fields if _given(self.decoding, key))
            raise ConfigError(
                f"[decoding] {key} has no effect on task {self.task.name!r}, which writes no text", "leave it out"
            )
        return self

    @model_validator(mode="after")
    def _tokenizer_can_be_learnt(self) -> "Recipe":
        if self.data is not None and self.tokenizer.kind == "pretrained" and not self.model.begins_in:
            raise ConfigError(
                "[tokenizer] kind = 'pretrained' is that of a model which was loaded, and nothing learns it", "use bpe"
            )
        return self

    @model_validator(mode="after")
    def _tokenizer_is_the_folders(self) -> "Recipe":
        for key in ("size", "sample"):
            if self.model.begins_in and _given(self.tokenizer, key):
                raise ConfigError(
                    f"[tokenizer] {key} has no effect where [model] from names a folder",
                    "leave it out: the tokenizer is the folder's",
                )
        return self

    @model_validator(mode="after")
    def _columns_have_a_meaning(self) -> "Recipe":
        if self.data is not None:
            check_columns(self.task, self.data.columns)
        return self

    @model_validator(mode="after")
    def _freezing_has_an_effect(self) -> "Recipe":
        if isinstance(self.model, Checkpoint) and self.model.adapter is not None and self.training.freeze:
            raise ConfigError(
                "[training] freeze has no effect beside [model.adapter], where the folder's network stays as it is",
                "leave it out",
            )
        return self

    @property
    def given(self) -> DataTable:
        """The data, which must be there."""
        if self.data is None or (self.data.corpus is None and self.data.train is None):
            raise ConfigError("the recipe has no data of its own", f"give your files: {self.task.files}")
        return self.data

    @model_validator(mode="after")
    def _packing_has_a_meaning(self) -> "Recipe":
        if self.data is not None and self.data.batches == "packed" and not self.model.reads_packed:
            raise ConfigError(
                f"[data] batches = 'packed' puts several texts in a row, which {self.model.words} does not read",
                "use model.architecture=decoder, or data.batches=by_length",
            )
        return self

    def tables(self) -> dict[str, Any]:
        """All values, as JSON and TOML have them."""
        return self.model_dump(mode="json", by_alias=True)

    def toml(self) -> str:
        """The recipe as a file, every default written out."""
        return as_toml(self.tables())


def tables() -> dict[str, tuple[type[Config], ...]]:
    """Every table with the classes it may be of: more than one where it is a union."""
    return {
        "task": tuple(TASK_TABLES.values()),
        "data": (DataTable,),
        "tokenizer": (TokenizerTable,),
        "model": (*(one.shape for one in NETWORKS.values()), Checkpoint),
        "training": (TrainingPlan,),
        "decoding": (DecodingTable,),
    }


def _data_keys() -> dict[str, list[str]]:
    """The keys of [data] that not every task reads, with those that do."""
    keys = sorted(set().union(*(table.data_keys for table in TASK_TABLES.values())))
    return {key: [name for name, table in TASK_TABLES.items() if key in table.data_keys] for key in keys}


def _given(table: Config, key: str) -> bool:
    """Whether a key has another value than its default."""
    return bool(getattr(table, key) != type(table).model_fields[key].get_default(call_default_factory=True))


def as_toml(tables: Mapping[str, Any]) -> str:
    """Tables as a file; what is absent is left out."""
    lines = []
    for table, given in tables.items():
        if given is None:
            continue
        values = dict(given)
        nested = {key: values.pop(key) for key in list(values) if isinstance(values[key], dict)}
        lines += [f"[{table}]", *_entries(values), ""]
        for key, inner in nested.items():
            lines += [f"[{table}.{key}]", *_entries(inner), ""] if inner else []
    return "\n".join(lines)


def _entries(values: dict[str, Any]) -> list[str]:
    """`key = value` lines; a key of other signs than a name's is in quotes."""
    return [
        f"{key if BARE.fullmatch(key) else toml_value(key)} = {toml_value(value)}"
        for key, value in values.items()
        if value is not None
    ]


def toml_value(value: Any) -> str:
    """JSON's strings, numbers, booleans and lists are TOML's too, but for infinity and U+007F; tables are inline."""
    if isinstance(value, float) and math.isinf(value):
        return str(value)
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(f"{_toml_key(key)} = {toml_value(one)}" for key, one in value.items() if one is not None)
            + "}"
        )
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _toml_key(key: str) -> str:
    return key if key.isascii() and key.isidentifier() else json.dumps(key, ensure_ascii=False)


def read_recipe(name: str, changes: list[str] | None = None, data: Sequence[str] | None = None) -> Recipe:
    """A recipe from a TOML file or a shipped one by name, with files in place of its data and `a.b=c` changes applied.

    A change without a value, `a.b=`, leaves the key to its default.
    """
    return _changed(parse_recipe(name), changes, data)


def change_recipe(recipe: Recipe, changes: list[str] | None = None, data: Sequence[str] | None = None) -> Recipe:
    """The same of a recipe at hand."""
    if not changes and data is None:
        return recipe
    return _changed(recipe.model_dump(mode="json", by_alias=True, exclude_none=True), changes, data)


def _changed(values: dict[str, Any], changes: list[str] | None, data: Sequence[str] | None) -> Recipe:
    if data is not None:
        replace_source(values, data)
    for change in _where_it_begins_first(changes or []):
        apply_change(values, change)
    return Recipe.model_validate(values)


def _where_it_begins_first(changes: Sequence[str]) -> list[str]:
    """`model.from` puts a network and the steps of fine-tuning in place; what else is said changes these."""
    begins = [change for change in changes if change.startswith("model.from=")]
    other = next((change for change in changes if change.startswith("model=")), None)
    if begins and other:
        raise ConfigError(f"{begins[-1]!r} and {other!r} name two networks", "leave one of them out")
    return [*begins, *(change for change in changes if change not in begins)]


def shipped() -> dict[str, str]:
    """The recipes in the package: name, and the sentence their first line says."""
    folder = files("regard") / "recipes"
    found = sorted((entry for entry in folder.iterdir() if entry.name.endswith(".toml")), key=lambda entry: entry.name)
    lines = {entry.name.removesuffix(".toml"): entry.read_text(encoding="utf-8").splitlines()[0] for entry in found}
    return {name: line.removeprefix("# ") for name, line in lines.items()}


def parse_recipe(name: str) -> dict[str, Any]:
    """The tables of a recipe as they are written."""
    return _parse(*_locate(name))


def _locate(name: str) -> tuple[str, str]:
    """(what to call it, its text)."""
    path = Path(name)
    if name in shipped():
        return name, (files("regard") / "recipes" / f"{name}.toml").read_text(encoding="utf-8")
    if os.path.isfile(path):  # Path.is_file raises for a name that is too long
        try:
            return name, path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise FileError(f"{path} cannot be read: {error}", "give a TOML file") from error
    raise FileError(f"there is no recipe {name!r}", choose(name, shipped()) + ", or give a TOML file")


def _parse(name: str, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise FileError(f"{name} is not valid TOML: {error}", "correct that line") from error


def apply_change(values: dict[str, Any], change: str) -> None:
    """Set one key, or remove it where there is no value; the value is TOML if it reads as TOML, else a plain string."""
    path, equals, text = change.partition("=")
    keys = path.strip().split(".")
    if not equals or not all(keys):
        raise ConfigError(f"{change!r} is not a change", "write it as table.key=value, such as training.steps=100")
    if not text.strip():
        _require_known(keys)
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    if keys == ["model", "from"] and text.strip():
        begin_from(values, value)
        return
    for key in keys[:-1]:
        inner = values.setdefault(key, {})
        if isinstance(inner, str):
            inner = values[key] = {MAIN_KEYS.get(key, "name"): inner}
        if not isinstance(inner, dict):
            raise ConfigError(f"{change!r} goes inside {key!r}, which is not a table", "check the key")
        values = inner
    if text.strip():
        values[keys[-1]] = value
    else:
        values.pop(keys[-1], None)


FINE_TUNING: Mapping[str, Any] = MappingProxyType(
    {"steps": 300, "learning_rate": 1e-4, "warmup": 30, "schedule": "linear", "evaluate_every": 50, "save_every": 150}
)
"""What a recipe made for training from scratch gets in place of its own where a checkpoint is trained on: small steps
and few of them (Devlin et al. 2018, §A.3)."""


def begin_from(values: dict[str, Any], folder: Any) -> None:
    """Let a recipe begin in a folder: network and tokenizer are the folder's, the steps those of fine-tuning."""
    before = values.get("model")
    if isinstance(before, dict) and "from" in before:
        before["from"] = folder  # it is a recipe for fine-tuning already
        return
    values["model"] = {"from": folder}
    values.pop("tokenizer", None)
    training = values.get("training", {})
    values["training"] = {key: value for key, value in training.items() if key != "min_rate_ratio"} | dict(FINE_TUNING)


def _require_known(keys: list[str]) -> None:
    """A key that is to be removed must be one that could be there."""
    known = {name: [key for one in classes for key in names_of(one)] for name, classes in tables().items()}
    if keys[0] not in known:
        raise ConfigError(f"key {keys[0]!r} is unknown", choose(keys[0], known))
    if len(keys) > 1 and keys[1] not in known[keys[0]]:
        raise ConfigError(f"[{keys[0]}] key {keys[1]!r} is unknown", choose(keys[1], known[keys[0]]))


def names_of(table: type[Config]) -> list[str]:
    """Its keys as a recipe writes them."""
    return [field.alias or name for name, field in table.model_fields.items()]
