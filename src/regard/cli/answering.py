"""Answers printed as they come: to one text, or to every line of stdin, where a bad line spoils no other."""

import secrets
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from regard.cli.options import where
from regard.cli.output import as_options, to_json
from regard.cli.stdin import in_groups, text_of
from regard.errors import InputError

if TYPE_CHECKING:
    from regard.api import Model
    from regard.tasks.task import Answer

LINES_TOGETHER = 256
"""Lines of stdin answered at a time; fewer where no more are there yet."""


@dataclass(frozen=True)
class Several:
    """How many answers a text gets: drawn apart from each other, or the best of a beam; one if neither is asked for."""

    samples: int | None = None
    n_best: int | None = None

    def implied(self, given: dict[str, Any]) -> dict[str, Any]:
        """The options given, with the strategy that these imply; what does not go together is refused."""
        if self.samples is not None and self.n_best is not None:
            raise InputError("--samples draws answers and --n-best ranks those of a beam", "use one of them")
        name, owner = ("--samples", "sample") if self.samples is not None else ("--n-best", "beam")
        if self == Several():
            return given
        if given["strategy"] not in (None, owner):
            raise InputError(f"{name} has no effect with --strategy {given['strategy']}", f"use {owner}")
        return given | {"strategy": owner}

    @property
    def count(self) -> int:
        """How many."""
        return self.samples or self.n_best or 1

    @property
    def key(self) -> str | None:
        """Where JSON keeps them; None where there is only one."""
        return "samples" if self.samples is not None else "n_best" if self.n_best is not None else None


@dataclass
class Answering:
    """Asks a model and prints what it says."""

    model: "Model"
    several: Several
    as_json: bool
    through: "Mapping[str, Model]" = field(default_factory=dict)
    """Several adapters by name, each of which answers; the model is the first of them."""
    answered: int = 0
    """Texts before, so that each draws numbers of its own."""

    def one(self, text: str) -> None:
        """Print the answers to one text; what is wrong with it is raised."""
        self._print(text, self._ask([text], 0)[0])

    def lines(self) -> bool:
        """Print the answers to every line of stdin, and what is wrong with some; whether all were answered."""
        good, number = True, 0
        for group in in_groups(LINES_TOGETHER):
            for line, found in zip(group, self._answers(group), strict=True):
                number += 1
                if isinstance(found, InputError):
                    good = False
                    complain_of_line(number, found, self.as_json, max(self.several.count, len(self.through)))
                else:
                    self._print(text_of(line), found)
        return good

    def streamed_lines(self) -> bool:
        """The same for answers that are printed as they are made."""
        good = True
        for group in in_groups(1):
            self.answered += 1
            try:
                self.stream(text_of(group[0]))
            except InputError as error:
                good = False
                complain_of_line(self.answered, error, as_json=False)
        return good

    def stream(self, text: str) -> None:
        """Print an answer as it is made."""
        for piece in self.model.run(text, stream=True):
            print(piece, end="", flush=True)
        print()

    def _answers(self, group: list[bytes]) -> "list[list[Answer] | InputError]":
        """Of each line its answers, or what is wrong with it."""
        found: list[str | InputError] = []
        for line in group:
            try:
                text = text_of(line)
                for model in (self.model, *self.through.values()):
                    model.check(text)
                found.append(text)
            except InputError as error:
                found.append(error)
        texts = [one for one in found if isinstance(one, str)]
        answers = iter(self._halved(texts, self.answered))
        self.answered += len(texts)
        return [next(answers) if isinstance(one, str) else one for one in found]

    def _halved(self, texts: list[str], first: int) -> "list[list[Answer] | InputError]":
        """The answers to texts together; where one is refused, to each half apart, down to the one it is about."""
        if not texts:
            return []
        try:
            return list(self._ask(texts, first))
        except InputError as error:
            if len(texts) == 1:
                return [error]
        half = len(texts) // 2
        return [*self._halved(texts[:half], first), *self._halved(texts[half:], first + half)]

    def _ask(self, texts: list[str], first: int) -> "list[list[Answer]]":
        """As many answers to each text as were asked for."""
        from regard.decoding.strategies import Sample

        if self.through:
            each = [model.answers(texts) for model in self.through.values()]
            return [[answers[place] for answers in each] for place in range(len(texts))]
        count = self.several.count
        if self.several.n_best is not None:
            return self.model.n_best(texts, count)
        usual = self.model.decoding.chosen()
        strategy = replace(usual, first=first * count) if isinstance(usual, Sample) else None
        answers = self.model.answers([text for text in texts for _ in range(count)], strategy)
        return [answers[at : at + count] for at in range(0, len(answers), count)]

    def _print(self, text: str, answers: "list[Answer]") -> None:
        if not self.as_json:
            names = [f"{name}\t" for name in self.through] or [""] * len(answers)
            print(*(name + answer.text for name, answer in zip(names, answers, strict=True)), sep="\n", flush=True)
            return
        records = [answer.record for answer in answers]
        found = records[0] if self.several.key is None else {self.several.key: records}
        if self.through:
            found = {"adapters": dict(zip(self.through, records, strict=True))}
        seed = {} if self.model.decoding.seed is None else {"seed": self.model.decoding.seed}
        print(to_json({"input": text, **found, **seed, **where(self.model)}), flush=True)


def complain_of_line(number: int, error: InputError, as_json: bool, lines: int = 1) -> None:
    """A line that got no answer: empty on stdout, and on stderr what is wrong; or one JSON object."""
    remedy = as_options(error.remedy)
    if as_json:
        print(to_json({"error": error.problem, "remedy": remedy, "line": number}), flush=True)
        return
    print("\n" * (lines - 1), flush=True)
    print(f"line {number}: {error.problem}; {remedy}".replace("\n", "\\n"), file=sys.stderr, flush=True)


def with_seed(model: "Model") -> "Model":
    """A model that samples gets a seed where none was given, and stderr says which, so that it can be given again."""
    if model.decoding.strategy != "sample" or model.decoding.seed is not None:
        return model
    seed = secrets.randbelow(2**32)
    print(f"seed {seed}", file=sys.stderr)
    return replace(model, decoding=model.decoding.model_copy(update={"seed": seed}))
