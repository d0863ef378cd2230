"""Every key of a recipe with its meaning, read from the tables: `regard list keys`, `regard train --show`."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from regard.config import Config
from regard.tasks.recipe import Recipe, tables, toml_value


@dataclass(frozen=True)
class Key:
    """One key of a table."""

    table: str
    name: str
    kind: str
    default: Any
    meaning: str

    @property
    def shown(self) -> str:
        """The default as a recipe would have it."""
        return "absent" if self.default is None else toml_value(self.default)

    def record(self) -> dict[str, Any]:
        """For a file."""
        return {name: value for name, value in asdict(self).items() if name not in ("table", "name")}


def keys(table: str | None = None) -> list[Key]:
    """Of one table, or of all; a table inside a table comes after it.

    Of a union, each member's own, and the name of the member stands behind that of the table: `model: bahdanau`.
    """
    found: list[Key] = []
    for name, classes in tables().items():
        if table in (None, name):
            for one in classes:
                member = "" if len(classes) == 1 else f": {one.model_fields['name'].default}"
                found += _keys(name + member, one)
    return found


def _keys(table: str, model: type[Config]) -> Iterator[Key]:
    inner: list[tuple[str, type[Config]]] = []
    for name, field in model.model_fields.items():
        if name in model.unions:
            members, default = model.unions[name], field.get_default()
            yield Key(
                table,
                name,
                f"{' | '.join(members)}, or a table with a name",
                default and default.name,
                field.description or "",
            )
            first = name == next(key for key in model.unions if model.unions[key] is members)
            several = [(member, one) for member, one in members.items() if first and len(one.model_fields) > 1]
            inner += [(f"{table}.{name}: {member}", one) for member, one in several]
        elif name == "name" and ": " in table.partition(": ")[2]:
            continue  # of a member of a union inside a table, which the table's own name says
        elif (inside := _table(field.annotation)) is not None:
            inner.append((f"{table}.{name}", inside))
        elif not field.exclude:
            yield Key(table, field.alias or name, _kind(field.annotation), _default(field), field.description or "")
    for name, other in inner:
        yield from _keys(name, other)


def _table(annotation: Any) -> type[Config] | None:
    """The class of a table inside a table, which may be absent."""
    for one in (annotation, *(get_args(annotation) if get_origin(annotation) in (Union, UnionType) else ())):
        if isinstance(one, type) and issubclass(one, Config):
            return one
    return None


def _default(field: FieldInfo) -> Any:
    value = None if field.is_required() else field.get_default(call_default_factory=True)
    return list(value) if isinstance(value, tuple) else value


def _kind(annotation: Any) -> str:
    """A type in words that a recipe's writer uses."""
    origin, inside = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _kind(inside[0])
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(_kind(one) for one in inside if one is not type(None)))
    if origin is Literal:
        return " | ".join(map(str, inside))
    if origin is tuple:
        return f"list of {_kind(inside[0])}" if inside[-1] is ... else f"{len(inside)} × {_kind(inside[0])}"
    if origin is list:
        return f"list of {_kind(inside[0])}"
    if origin is dict or (isinstance(annotation, type) and issubclass(annotation, Config)):
        return "table"
    return {int: "whole number", float: "number", bool: "true | false", str: "text"}[annotation]


def explained(recipe: Recipe) -> str:
    """The recipe as TOML, every default written out, the meaning of every key beside it; absent keys are comments."""
    values = recipe.tables()
    lines: list[str] = []
    for table in tables():
        model = type(getattr(recipe, table))
        if values[table] is not None:
            about = (model.__doc__ or "").strip().splitlines()[0]
            lines += [f"# {about}", *_explained(table, model, values[table]), ""]
    return "\n".join(lines)


def _explained(table: str, model: type[Config], values: dict[str, Any]) -> list[str]:
    lines, inner = [f"[{table}]"], []
    for key, field in model.model_fields.items():
        name = field.alias or key
        if field.exclude:
            continue
        value, meaning = values[name], field.description or ""
        if key in model.unions and isinstance(value, dict):
            member = model.unions[key][value["name"]]
            inner += ["", f"# {meaning}", *_explained(f"{table}.{name}", member, value)]
        elif (inside := _table(field.annotation)) is not None and value is not None:
            inner += ["", f"# {meaning}", *_explained(f"{table}.{name}", inside, value)]
        else:
            lines.append(
                f"# {name} is absent: {meaning}" if value is None else f"{name} = {toml_value(value)}  # {meaning}"
            )
    return lines + inner
