"""`regard list`: the names that recipes and options accept."""

from enum import StrEnum
from typing import Annotated

import typer

from regard.cli.options import Plugin
from regard.cli.output import to_json
from regard.errors import InputError, choose


class Kind(StrEnum):
    """What can be listed."""

    RECIPES = "recipes"
    CORPORA = "corpora"
    MECHANISMS = "mechanisms"
    SIMILARITIES = "similarities"
    FAMILIES = "families"
    KEYS = "keys"


def list_names(
    kind: Annotated[Kind, typer.Argument(help="What to list.")],
    table: Annotated[str | None, typer.Argument(help="With `keys`: one table of a recipe, such as training.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    plugin: Plugin = None,
) -> None:
    """List what there is to choose from; `keys` are those of a recipe, with their types, defaults and meanings.

    Example: `regard list recipes`, or `regard list keys training`
    """
    if kind is Kind.KEYS:
        _list_keys(table, as_json)
        return
    if table is not None:
        raise InputError(f"{table!r} has no effect on a list of {kind.value}", "leave it out; keys have tables")
    names = _names(kind)
    if as_json:
        typer.echo(to_json({kind.value: names}))
        return
    width = max(map(len, names)) + 2
    for name, line in names.items():
        typer.echo(f"{name:<{width}}{line}")


def _list_keys(table: str | None, as_json: bool) -> None:
    from regard.plugins import load_plugins
    from regard.tasks.keys import keys
    from regard.tasks.recipe import tables

    load_plugins()
    if table is not None and table not in tables():
        raise InputError(f"a recipe has no table {table!r}", choose(table, tables()))
    found = keys(table)
    if as_json:
        record = {key.table: {one.name: one.record() for one in found if one.table == key.table} for key in found}
        typer.echo(to_json({"keys": record}))
        return
    for number, key in enumerate(found):
        if number == 0 or key.table != found[number - 1].table:
            typer.echo(f"{'' if number == 0 else chr(10)}[{key.table}]")
        typer.echo(f"{key.name} = {key.shown}  ({key.kind})\n    {key.meaning}")


def _names(kind: Kind) -> dict[str, str]:
    """Name and one line of description, taken from the thing itself."""
    from regard.plugins import load_plugins

    load_plugins()
    if kind is Kind.RECIPES:
        from regard.tasks.recipe import shipped

        return shipped()
    if kind is Kind.CORPORA:
        import regard.data
        from regard.data.corpus import CORPORA

        return {name: _first_line(CORPORA[name]) for name in sorted(CORPORA)}
    if kind is Kind.FAMILIES:
        from regard.models.families import FAMILIES

        return {name: f"{family.paper}: {', '.join(family.sizes)}" for name, family in FAMILIES.items()}
    if kind is Kind.MECHANISMS:
        import regard.blocks.config  # noqa: F401  (fills the table)
        from regard.attention.mechanism import MECHANISMS

        return {name: f"{_first_line(shape)} {shape.abilities.words}" for name, shape in MECHANISMS.items()}
    from regard.attention.similarity import SIMILARITIES

    return {name: _first_line(type(make(2))) for name, make in SIMILARITIES.items()}


def _first_line(thing: object) -> str:
    return (thing.__doc__ or "").strip().splitlines()[0]
