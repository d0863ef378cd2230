"""`regard list`: the names that recipes and options accept."""

from enum import StrEnum
from typing import Annotated

import typer

from regard.cli.output import to_json


class Kind(StrEnum):
    """What can be listed."""

    RECIPES = "recipes"
    CORPORA = "corpora"
    SIMILARITIES = "similarities"
    FAMILIES = "families"


def list_names(
    kind: Annotated[Kind, typer.Argument(help="What to list.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """List what there is to choose from.

    Example: `regard list recipes`
    """
    names = _names(kind)
    if as_json:
        typer.echo(to_json({kind.value: names}))
        return
    width = max(map(len, names)) + 2
    for name, line in names.items():
        typer.echo(f"{name:<{width}}{line}")


def _names(kind: Kind) -> dict[str, str]:
    """Name and one line of description, taken from the thing itself."""
    if kind is Kind.RECIPES:
        from regard.tasks.recipe import shipped

        return shipped()
    if kind is Kind.CORPORA:
        import regard.data  # noqa: F401  (fills the table)
        from regard.data.corpus import CORPORA

        return {name: _first_line(CORPORA[name]) for name in sorted(CORPORA)}
    if kind is Kind.FAMILIES:
        from regard.models.families import FAMILIES

        return {name: f"{family.paper}: {', '.join(family.sizes)}" for name, family in FAMILIES.items()}
    from regard.attention.similarity import SIMILARITIES

    return {name: _first_line(type(make(2))) for name, make in SIMILARITIES.items()}


def _first_line(thing: object) -> str:
    return (thing.__doc__ or "").strip().splitlines()[0]
