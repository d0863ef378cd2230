"""A trained model with its tokenizer and its task, and what is seen of it while it works."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from regard.decoding.hypothesis import Hypothesis
from regard.decoding.strategies import Strategy
from regard.errors import InputError
from regard.files import write_json, write_text
from regard.inspection.capture import Recording, record_into
from regard.models.checkpoint import save_model
from regard.models.transformer import Transformer
from regard.tasks.generation import Generation
from regard.tasks.recipe import DecodingTable, Recipe
from regard.tasks.registry import TASKS
from regard.tasks.task import USUAL, Answer, Measuring, Task
from regard.text.tokenizer import Tokenizer


@dataclass(frozen=True, eq=False)
class Model:
    """A trained model with its tokenizer, its task and its manners."""

    module: Transformer
    tokenizer: Tokenizer
    recipe: Recipe
    decoding: DecodingTable

    @property
    def task(self) -> Task[Any]:
        """What the model is for: how it answers and is measured."""
        return TASKS[self.recipe.task.name]

    @property
    def writer(self) -> Generation[Any]:
        """The task itself, where answers are texts that the model writes."""
        if not isinstance(self.task, Generation):
            raise InputError(
                f"task {self.task.name!r} writes no text", "ask with `run`, without a strategy or a stream"
            )
        return self.task

    def run(
        self,
        text: str | Sequence[str],
        *,
        strategy: Strategy | None = None,
        max_new_tokens: int | None = None,
        stream: bool = False,
    ) -> Any:
        """Do what the model is for: the answer to a text, or a list of several; with `stream`, pieces as they come.

        A translator and a language model give a text, a classifier its labels with their probabilities.
        """
        if not isinstance(text, Sequence):
            raise InputError(f"a text is a string, not {type(text).__name__}", "give a string, or a list of several")
        if stream:
            if not isinstance(text, str):
                raise InputError(f"{len(text)} texts cannot share one stream", "stream one text at a time")
            return self.writer.stream(self, text, strategy, max_new_tokens)
        texts = [text] if isinstance(text, str) else list(text)
        values = [answer.value for answer in self.answers(texts, strategy, max_new_tokens)]
        return values[0] if isinstance(text, str) else values

    def answers(
        self, texts: Sequence[str], strategy: Strategy | None = None, max_new_tokens: int | None = None
    ) -> list[Answer]:
        """What the model says to each text, for a program, for people and for a file."""
        for text in texts:
            self.check(text)
        return self.task.answers(self, texts, strategy, max_new_tokens)

    def hypotheses(
        self, texts: Sequence[str], strategy: Strategy | None = None, max_new_tokens: int | None = None
    ) -> list[Hypothesis]:
        """What decoding found for every text: ids, score, and the rows they were computed in."""
        return self.writer.hypotheses(self, texts, strategy, max_new_tokens)

    def check(self, text: str) -> None:
        """Refuse, in one sentence, what the model was never taught."""
        if not isinstance(text, str):
            raise InputError(f"a text is a string, not {type(text).__name__}", "decode bytes first")
        self.task.check(self.recipe, text)

    def evaluate(self, examples: Sequence[Any], how: Measuring = USUAL) -> dict[str, float]:
        """The task's figures on these examples, such as pairs for a translator and documents for a language model.

        `how` has the window and the stride that a language model reads in; `task.reading` says which they are.
        """
        kind = self.task.example
        for one in examples if isinstance(examples, Sequence) else [examples]:
            if kind is not None and not isinstance(one, kind):
                fields = ", ".join(kind._fields)
                raise InputError(
                    f"task {self.task.name!r} is measured on examples of {fields}, not on {type(one).__name__}",
                    f"give {kind.__module__}.{kind.__name__}({fields}), or what `model.task.read` makes of a file",
                )
        return self.task.evaluate(self, examples, how)

    def look(self, text: str, *, target: str | None = None, values: bool = False) -> "Watched":
        """What the model attends to while it answers, or while it reads the target it is given to write."""
        with watch(self, values=values) as seen:
            if target is None:
                self.answers([text])
            else:
                self.check(text)
                self._read_target(seen, text, target)
        return seen

    @torch.no_grad()
    def _read_target(self, seen: Recording, text: str, target: str) -> None:
        device = next(self.module.parameters()).device
        inputs = self.writer.prompt(self, [text]).to(device)
        ids = self.tokenizer.encode(target)
        read = torch.tensor([[int(inputs.tokens.ids[0, -1]), *ids]], device=device)
        logits, _ = self.module.extend(read, self.module.start(inputs))
        written = (*ids, self.tokenizer.eos_id)
        likely = logits[0].double().log_softmax(dim=-1)[range(len(written)), list(written)]
        seen.finished(inputs, [Hypothesis(written, float(likely.sum()), rows=(0,))])

    def save(self, folder: str | Path) -> None:
        """Write the model folder."""
        folder = Path(folder)
        save_model(folder, self.module)
        save_around(folder, self.tokenizer, self.recipe)


def save_around(folder: Path, tokenizer: Tokenizer, recipe: Recipe) -> None:
    """What stands beside the weights: the tokenizer, the recipe, how to decode."""
    write_text(folder / "tokenizer.json", tokenizer.to_json())
    write_text(folder / "recipe.toml", recipe.toml())
    marks = {"pad_token_id": tokenizer.pad_id, "bos_token_id": tokenizer.bos_id, "eos_token_id": tokenizer.eos_id}
    given = recipe.decoding.model_dump(exclude_none=True)
    write_json(folder / "generation_config.json", {**marks, **given})


class Watched(Recording):
    """What was seen of a model, and, where its tokenizer is known, how to draw it."""

    def __init__(self, tokenizer: Tokenizer | None, *, values: bool) -> None:
        super().__init__(values=values)
        self.tokenizer = tokenizer

    def save(self, path: str | Path, *, layer: str | None = None, head: int | None = None, words: bool = False) -> None:
        """Write a picture (.png, .svg) or a page to explore (.html) of the one text that was seen."""
        from regard.views.look import draw_seen  # matplotlib is loaded when something is drawn

        if self.tokenizer is None:
            raise InputError("a bare module's tokens have no names", "watch a Model, or ask `seen.weights` for numbers")
        draw_seen(self, self.tokenizer, Path(path), layer=layer, head=head, words=words)


def watch(model: Model | nn.Module, *, values: bool = False) -> AbstractContextManager[Watched]:
    """Record what a model attends to inside a `with` block; ask `seen.weights(layer, head, rows)` afterwards.

    With `values`, the values are kept too, so that the four steps of a row can be shown.
    """
    module, tokenizer = (model.module, model.tokenizer) if isinstance(model, Model) else (model, None)
    return record_into(Watched(tokenizer, values=values), module)
