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
    """What is read, the options that were given, and where what is seen goes."""

    model: Path
    text: list[str]
    to: Path
    given: dict[str, Any]
    device: str
    precision: str

    @property
    def as_json(self) -> bool:
        """Whether a program reads what is printed."""
        return "json" in self.given

    @property
    def layer(self) -> str | None:
        return self.given.get("layer")

    @property
    def head(self) -> int | None:
        return self.given.get("head")

    @property
    def row(self) -> int | None:
        return self.given.get("row")

    @property
    def special_tokens(self) -> bool:
        """Whether they are shown."""
        return "no-special-tokens" not in self.given

    @property
    def target(self) -> str | None:
        """The answer, where it is given."""
        return self.given.get("target")

    @property
    def generate(self) -> bool:
        """Whether a language model goes on with the text."""
        return "generate" in self.given

    @property
    def max_new_tokens(self) -> int | None:
        """How far."""
        return self.given.get("max-new-tokens")

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
