"""Frozen, validated values that come from files and keyword arguments: a model's config, a recipe's tables.

An unknown key is refused with the nearest known one; a wrong value is refused with both values. Either way the
error is a ConfigError, one sentence and a remedy.
"""

from collections.abc import Callable, Mapping
from types import NoneType, UnionType
from typing import Any, ClassVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import ErrorDetails

from regard.errors import ConfigError, choose


class Config(BaseModel):
    """A frozen set of named values that refuses what it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    unions: ClassVar[Mapping[str, Mapping[str, "type[Config]"]]] = {}
    """Keys whose value is a table of one class or another, by the name in it."""

    @model_validator(mode="wrap")
    @classmethod
    def _speak_plainly(cls, data: Any, read: Callable[[Any], Any]) -> Any:
        try:
            return read(data)
        except ValidationError as error:
            raise _sentence(cls, error) from None


def refuse_foreign_keys(values: Mapping[str, Any], name: str, members: Mapping[str, type[BaseModel]]) -> None:
    """Of a union's member `name`: raise ConfigError for a key that belongs to other members alone, naming them."""
    for key in values:
        owners = [other for other, member in members.items() if key in member.model_fields]
        if owners and name not in owners:
            raise ConfigError(f"key {key!r} has no effect on {name!r}", f"leave it out; it is for {', '.join(owners)}")


def _sentence(cls: type[BaseModel], error: ValidationError) -> ConfigError:
    """The first thing pydantic found, as a problem and a remedy."""
    found = error.errors()
    first = found[0]
    key = ".".join(str(part) for part in first["loc"]) or cls.__name__
    if first["type"] == "extra_forbidden":
        known = [field.alias or name for name, field in cls.model_fields.items() if not field.exclude]
        return ConfigError(f"key {key!r} is unknown", choose(key, known))
    if first["type"] in ("model_type", "model_attributes_type"):
        return ConfigError(f"{first['input']!r} is one value where a table is wanted", "give its keys: table.key=value")
    if first["type"] == "missing":
        return ConfigError(f"key {key!r} is missing", "add it")
    kinds = [_wanted(first)]
    if len(_alternatives(cls, first["loc"])) > 1:  # every one was tried, and each says what it wanted
        key = str(first["loc"][0])
        kinds = list(dict.fromkeys(_wanted(one) for one in found if one["loc"][0] == key))
    wanted = " or ".join([kinds[0], *(one.removeprefix("it should be ") for one in kinds[1:])])
    description = cls.model_fields[key].description if key in cls.model_fields else None
    meaning = f" ({description})" if description else ""
    return ConfigError(f"{key} = {first['input']!r} cannot be used{meaning}", wanted)


def _alternatives(cls: type[BaseModel], path: tuple[int | str, ...]) -> list[Any]:
    """The kinds of value that the key where a path begins may have, None aside, if it may have several."""
    field = cls.model_fields.get(str(path[0])) if path else None
    union = get_origin(field.annotation) in (Union, UnionType) if field is not None else False
    return [one for one in get_args(field.annotation) if one is not NoneType] if field is not None and union else []


def _wanted(error: ErrorDetails) -> str:
    """What pydantic says that a value should be."""
    said = error["msg"].removeprefix("Input ").replace("should be", "it should be")
    return said.partition(", unable to")[0]
