"""A trained model with its tokenizer and its task, and what is seen of it while it works."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.api import notebook
from regard.api.explanation import Explanation
from regard.api.inside import Inside
from regard.api.watched import Watched
from regard.decoding.engine import decoding
from regard.decoding.hypothesis import Hypothesis
from regard.decoding.speculative import Draft, DraftModel, PromptLookup
from regard.decoding.strategies import Beam, Strategy
from regard.devices import INT8, dtype_of, usable_device
from regard.errors import InputError
from regard.files import write_json, write_text
from regard.inspection.capture import Recording, record_into
from regard.layers.linear import in_int8, keep_int8, parameter_count
from regard.models.checkpoint import save_model
from regard.models.network import Network
from regard.tasks.chat import ConversationText, Spoken, as_chat, is_spoken
from regard.tasks.data_table import DataTable
from regard.tasks.decoding_table import DecodingTable
from regard.tasks.explaining import explain
from regard.tasks.generation import Generation
from regard.tasks.recipe import Recipe, as_toml
from regard.tasks.scoring import Score, logits_of, score_of
from regard.tasks.task import USUAL, Answer, Loaded, Measuring, Task
from regard.text.tokenizer import Tokenizer


@dataclass(frozen=True, eq=False)
class Model(Inside):
    """A trained model with its tokenizer, its task and how it decodes."""

    module: Network
    tokenizer: Tokenizer
    task: Task[Any]
    """What the model is for: how it answers and is measured."""
    decoding: DecodingTable
    """How it answers when nothing else is asked for."""
    recipe: Recipe | None = None
    """What it was trained by, where that is known."""
    adapters: Mapping[str, "Model"] = field(default_factory=dict)
    """The same model through each adapter that was loaded beside it; all share its weights."""
    draft: Draft | None = None
    """Who guesses what it writes, where somebody does."""

    @property
    def data(self) -> DataTable | None:
        """What it was trained on, where that is known."""
        return None if self.recipe is None else self.recipe.data

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self.module.device

    @property
    def precision(self) -> str:
        """The type of its numbers, such as float32; int8 where its weights were rounded."""
        if in_int8(self.module):
            return INT8
        return str(self.module.dtype).removeprefix("torch.")

    def to(self, device: str | torch.device | None = None, precision: str = "auto") -> "Model":
        """This model, moved to a device (auto, cpu, cuda) and into a precision (float32, bfloat16, int8)."""
        place = self.device if device is None else usable_device(device)
        dtype = dtype_of(precision, place)
        if self.precision == INT8 and precision not in ("auto", INT8):
            raise InputError(f"weights in int8 are not {precision} again", "load the model anew")
        for one in (self, *self.adapters.values()):
            one.module.to(device=place, dtype=dtype)
            if precision == INT8:
                keep_int8(one.module)
        return self

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
        text: str | Sequence[str] | Spoken,
        *,
        strategy: Strategy | None = None,
        max_new_tokens: int | None = None,
        stream: bool = False,
        stop: str | Sequence[str] | None = None,
        special_tokens: bool = False,
    ) -> Any:
        """Do what the model is for: the answer to a text, or a list of several; with `stream`, pieces as they come.

        A translator and a language model give a text, a classifier its labels with their probabilities. An answer is
        cut before a text of `stop`. A beam with `n_best` gives a list of its best. With `special_tokens` the names of
        special tokens in a text are these tokens; without, they are text like any other. Messages are a conversation.
        """
        if is_spoken(text):
            if special_tokens:
                raise InputError("special_tokens has no effect on messages: what people say is text", "leave it out")
            return self.chat(text, strategy=strategy, max_new_tokens=max_new_tokens, stream=stream, stop=stop)
        if stop is not None:
            ends = (stop,) if isinstance(stop, str) else tuple(stop)
            _ = self.writer
            return self.decoded_so({"stop": ends}).run(
                text, strategy=strategy, max_new_tokens=max_new_tokens, stream=stream, special_tokens=special_tokens
            )
        if special_tokens:
            parsing = replace(self, tokenizer=self.tokenizer.parsing_special_tokens)
            return parsing.run(text, strategy=strategy, max_new_tokens=max_new_tokens, stream=stream)
        if not isinstance(text, Sequence):
            raise InputError(f"a text is a string, not {type(text).__name__}", "give a string, or a list of several")
        if stream:
            if not isinstance(text, str):
                raise InputError(f"{len(text)} texts cannot share one stream", "stream one text at a time")
            self.check(text)
            return self.writer.stream(self, text, strategy, max_new_tokens)
        texts = [text] if isinstance(text, str) else list(cast(Sequence[str], text))
        values: list[Any]
        if isinstance(strategy, Beam) and strategy.n_best is not None:
            found = self.n_best(texts, strategy.n_best, strategy, max_new_tokens)
            values = [[answer.value for answer in best] for best in found]
        else:
            values = [answer.value for answer in self.answers(texts, strategy, max_new_tokens)]
        return values[0] if isinstance(text, str) else values

    def chat(
        self,
        messages: Spoken,
        *,
        strategy: Strategy | None = None,
        max_new_tokens: int | None = None,
        stream: bool = False,
        stop: str | Sequence[str] | None = None,
    ) -> Any:
        """What the assistant says next to messages with role and content, written down by the model's chat template."""
        return as_chat(self).run(
            ConversationText(messages), strategy=strategy, max_new_tokens=max_new_tokens, stream=stream, stop=stop
        )

    def answers(
        self, texts: Sequence[str], strategy: Strategy | None = None, max_new_tokens: int | None = None
    ) -> list[Answer]:
        """What the model says to each text, for a program, for people and for a file."""
        return self.task.answers(self, self._checked(texts), strategy, max_new_tokens)

    def n_best(
        self, texts: Sequence[str], count: int, strategy: Beam | None = None, max_new_tokens: int | None = None
    ) -> list[list[Answer]]:
        """The best answers of a beam to each text, best first; of the model's own beam where none is given."""
        usual = self.decoding.chosen()
        beam = strategy or (usual if isinstance(usual, Beam) else Beam(max(count, 1)))
        return self.writer.n_best(self, self._checked(texts), count, beam, max_new_tokens)

    def hypotheses(
        self, texts: Sequence[str], strategy: Strategy | None = None, max_new_tokens: int | None = None
    ) -> list[Hypothesis]:
        """What decoding found for every text: ids, score, and the rows they were computed in."""
        return self.writer.hypotheses(self, self._checked(texts), strategy, max_new_tokens)

    def decoded_so(self, changes: dict[str, Any]) -> "Model":
        """This model with some keys of [decoding] changed."""
        table = DecodingTable.model_validate(self.decoding.model_dump(exclude_none=True) | changes)
        return replace(self, decoding=table)

    def drafted_by(self, draft: "Model | PromptLookup") -> "Model":
        """This model, with a smaller one or `PromptLookup()` guessing what it writes: the same text, sooner."""
        _ = self.writer
        if isinstance(draft, PromptLookup):
            return replace(self, draft=draft)
        small, own = draft.module.config, self.module.config
        if draft.tokenizer != self.tokenizer or small.vocabulary > own.vocabulary:
            sizes = f"{small.vocabulary:,} entries, the model {own.vocabulary:,}"
            raise InputError(
                f"the draft cuts text by another vocabulary: it has {sizes}", "use one with the same tokenizer"
            )
        if not small.decodes or small.reads != own.reads:
            raise InputError(
                f"a model that reads {' and '.join(small.reads)} cannot guess what this one writes",
                f"use one that writes text and reads {' and '.join(own.reads)}",
            )
        return replace(self, draft=DraftModel(draft.module))

    def explain(
        self,
        text: str,
        *,
        strategy: Strategy | None = None,
        max_new_tokens: int | None = None,
        prefix: str | None = None,
    ) -> Explanation:
        """How the answer comes about: the candidates of every step, or the tree of a beam; a page in a notebook.

        With `prefix` the answer begins with it: how one goes on from an alternative.
        """
        if prefix is not None:
            return self.decoded_so({"prefix": prefix}).explain(text, strategy=strategy, max_new_tokens=max_new_tokens)
        self.check(text)
        return Explanation(explain(self.writer, self, text, strategy, max_new_tokens))

    def _checked(self, texts: Sequence[str]) -> Sequence[str]:
        """The texts, each of which is looked at here and nowhere else."""
        for text in texts:
            self.check(text)
        return texts

    def check(self, text: str) -> None:
        """Refuse, in one sentence, what the model was never taught."""
        if not isinstance(text, str):
            raise InputError(f"a text is a string, not {type(text).__name__}", "decode bytes first")
        self.task.check(self, text)

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

    def look(
        self,
        text: str,
        *,
        target: str | None = None,
        values: bool = False,
        generate: bool = False,
        max_new_tokens: int | None = None,
    ) -> "Watched":
        """What the model attends to while it answers, or while it reads the target it is given to write.

        A language model reads the text alone; with `generate` or `max_new_tokens` it goes on with it.
        """
        generate = generate or max_new_tokens is not None
        if generate and target is not None:
            raise InputError("a target is given, so nothing is generated", "leave the target or the limit out")
        with watch(self, values=values) as seen:
            if target is None and (generate or not self.task.continues):
                _ = self.writer if generate else None  # refuses where no text is written
                self.answers([text], max_new_tokens=max_new_tokens)
            else:
                self.check(text)
                self._read(text) if target is None else self._read_target(seen, text, target)
        return seen

    @torch.no_grad()
    def _read(self, text: str) -> None:
        self.module(self.writer.prompt(self, [text]).to(self.device))

    @torch.no_grad()
    def _read_target(self, seen: Recording, text: str, target: str) -> None:
        inputs = self.writer.prompt(self, [text]).to(self.device)
        ids = self.tokenizer.encode(target)
        read = torch.tensor([[int(inputs.tokens.ids[0, -1]), *ids]], device=self.device)
        with decoding(inputs) as finished:
            state = self.module.start(inputs)
            seen.started()
            logits, _ = self.module.extend(read, state)
            written = (*ids, self.writer.end_id(self))
            likely = logits[0].double().log_softmax(dim=-1)[range(len(written)), list(written)]
            rows, terms = (0,) * len(written), tuple(likely.tolist())
            finished([Hypothesis(written, float(likely.sum()), rows, terms)])

    def logits(self, text: str, *, target: str | None = None) -> Float[Tensor, "*tokens out"]:
        """The network's own numbers for a text, read as the model reads it, with its special tokens and its template.

        `[tokens, vocabulary]` of a language model (each token's are those of the next one), a translator (of `<bos>`
        and the target's tokens) and a masked model; `[labels]` of a classifier; `[tokens, 2]` where spans are found.
        """
        self.check(text)
        return logits_of(self, self.task, text, target)

    def score(self, text: str, target: str | None = None) -> Score:
        """How likely the model finds a text, or a target given its source: `.log_probabilities`, `.total` in nats.

        A target's end counts; a text is scored as it stands, without one. Nothing of decoding is in it.
        """
        self.check(text)
        return score_of(self, self.task, text, target)

    @property
    def facts(self) -> dict[str, str]:
        """What the model is, in a few words."""
        config = self.module.config
        network = getattr(config, "family", None) or config.name
        return {
            "task": self.task.name,
            "network": f"{network}, {config.words}",
            "parameters": f"{parameter_count(self.module):,}",
            "vocabulary": f"{config.vocabulary:,} ({self.tokenizer.kind})",
            "device": f"{self.device}, {self.precision}",
        }

    def __repr__(self) -> str:
        facts = self.facts
        return (
            f"<Model: {facts['task']}, {facts['network']}, {facts['parameters']} parameters, "
            f"vocabulary {facts['vocabulary']}, on {facts['device']}>"
        )

    def _repr_html_(self) -> str:
        return notebook.table("Model", self.facts)

    def save(self, folder: str | Path) -> None:
        """Write the model folder; an adapter it was loaded through is merged."""
        folder = Path(folder)
        save_model(folder, self.module)
        save_around(folder, self, self.recipe)


def save_around(folder: Path, model: Loaded, recipe: Recipe | None = None) -> None:
    """What stands beside the weights: the tokenizer, the task, how to decode, and what it was trained by.

    A model that was loaded has no recipe: its recipe.toml says the task and the kind of tokenizer alone.
    """
    tokenizer = model.tokenizer
    write_text(folder / "tokenizer.json", tokenizer.to_json())
    tables = {} if recipe is None else recipe.tables()
    tables |= {"task": model.task.options.model_dump(mode="json")}
    if recipe is None:
        tables["tokenizer"] = {"kind": tokenizer.kind}
    write_text(folder / "recipe.toml", as_toml(tables))
    special = {"pad_token_id": tokenizer.pad_id, "bos_token_id": tokenizer.bos_id, "eos_token_id": tokenizer.eos_id}
    given = model.decoding.model_dump(exclude_none=True)
    write_json(folder / "generation_config.json", {**special, **given})


def watch(model: Model | nn.Module, *, values: bool = False) -> AbstractContextManager[Watched]:
    """Record what a model attends to inside a `with` block; ask `seen.weights(layer, head, rows)` afterwards.

    With `values`, the values are kept too, so that the four steps of a row can be shown.
    """
    module, tokenizer = (model.module, model.tokenizer) if isinstance(model, Model) else (model, None)
    return record_into(Watched(tokenizer, values=values), module)
