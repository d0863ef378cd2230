"""What `regard look` was asked: a model, what it reads, and where what is seen goes."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from regard.cli.options import where
from regard.cli.output import to_json
from regard.errors import InputError

if TYPE_CHECKING:
    from regard.api import Model
    from regard.api.watched import Watched


@dataclass(frozen=True)
class Look:
    """What is read, whether the model goes on with it, and where what is seen goes."""

    model: Path
    text: list[str]
    to: Path
    as_json: bool
    target: str | None
    generate: bool
    max_new_tokens: int | None
    special_tokens: bool
    device: str
    precision: str

    def open(self) -> "Model":
        """The model, once what was asked for is known to make sense."""
        from regard import api

        return api.load(self.model, self.device, self.precision)

    @property
    def one(self) -> str:
        """The text, of which there must be one."""
        if not self.text:
            raise InputError("there is no text to look at", "give one after the model")
        if len(self.text) > 1:
            raise InputError(
                f"{len(self.text)} texts cannot be looked at together", "give one, or name a word with --meaning"
            )
        return self.text[0]

    def seen(self, model: "Model", values: bool = False) -> "Watched":
        """What the model attends to."""
        return model.look(
            self.one,
            target=self.target,
            values=values,
            generate=self.generate,
            max_new_tokens=self.max_new_tokens,
        )

    def tell(self, model: "Model", record: dict[str, Any], text: str, what: str) -> None:
        """Print the numbers, for a program or for people, and where the figure is."""
        whole = {**record, **where(model), "file": str(self.to)}
        typer.echo(to_json(whole) if self.as_json else f"{text}\n{self.to} shows {what}")
