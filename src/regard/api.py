"""The objects people hold: `load` a model, `train` one from a recipe, `watch` what it attends to.

Here the folders above are joined: text becomes ids, the model decodes, ids become text again.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

import regard.data  # noqa: F401  (fills the table of corpora)
from regard.data.ahead import Ahead
from regard.data.corpus import Examples
from regard.decoding.hypothesis import Hypothesis
from regard.decoding.strategies import Strategy
from regard.embedding.pretrained import begin_with
from regard.embedding.vectors_file import read_vectors
from regard.errors import ConfigError, FileError, InputError
from regard.files import PARTIAL, read_json, write_json, write_text
from regard.inspection.capture import Seen, record_into
from regard.interop.huggingface import is_foreign
from regard.interop.loading import open_folder, open_llama2c
from regard.models.checkpoint import load_model, save_config, save_model
from regard.models.config import TransformerConfig
from regard.models.transformer import Transformer
from regard.tasks.recipe import DecodingTable, Recipe, read_recipe
from regard.tasks.table import TASKS
from regard.tasks.task import Answer, Task
from regard.tasks.writing import Writing
from regard.text.foreign import ForeignTokenizer
from regard.text.opening import KINDS
from regard.text.tokenizer import Tokenizer
from regard.training import fingerprint
from regard.training.interrupt import Interrupt
from regard.training.loop import Run
from regard.training.plan import CHANGEABLE
from regard.training.reports import Listener, Silent

DATA = "state/data.json"
"""In a run's folder: what it was trained on, in a few digits."""


@dataclass(frozen=True, eq=False)
class Model:
    """A trained model with its tokenizer, its task and its manners."""

    module: Transformer
    tokenizer: Tokenizer
    recipe: Recipe
    decoding: DecodingTable

    @property
    def task(self) -> str:
        """What the model is for."""
        return self.recipe.task.name

    @property
    def job(self) -> Task[Any]:
        """The task itself: how the model answers and is measured."""
        return TASKS[self.recipe.task.name]

    @property
    def writer(self) -> Writing[Any]:
        """The task itself, where answers are texts that the model writes."""
        if not isinstance(self.job, Writing):
            raise InputError(f"task {self.task!r} writes no text", "ask with `run`, without a strategy or a stream")
        return self.job

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
        return self.job.answers(self, texts, strategy, max_new_tokens)

    def hypotheses(
        self, texts: Sequence[str], strategy: Strategy | None = None, max_new_tokens: int | None = None
    ) -> list[Hypothesis]:
        """What decoding found for every text: ids, score, and the rows they were computed in."""
        return self.writer.hypotheses(self, texts, strategy, max_new_tokens)

    def check(self, text: str) -> None:
        """Refuse, in one sentence, what the model was never taught."""
        if not isinstance(text, str):
            raise InputError(f"a text is a string, not {type(text).__name__}", "decode bytes first")
        self.job.check(self.recipe, text)

    def evaluate(self, examples: Sequence[Any]) -> dict[str, float]:
        """The task's figures on these examples, such as pairs for a translator and documents for a language model."""
        kind = self.job.example
        for one in examples if isinstance(examples, Sequence) else [examples]:
            if kind is not None and not isinstance(one, kind):
                fields = ", ".join(kind._fields)
                raise InputError(
                    f"task {self.task!r} is measured on examples of {fields}, not on {type(one).__name__}",
                    f"give {kind.__module__}.{kind.__name__}({fields}), or what `model.job.read` makes of a file",
                )
        return self.job.evaluate(self, examples)

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
    def _read_target(self, seen: Seen, text: str, target: str) -> None:
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


def load(folder: str | Path) -> Model:
    """The model in a folder that `train` or `Model.save` wrote, in one of Hugging Face's, or in llama2.c's `.bin`."""
    folder = Path(folder)
    if is_foreign(folder) or folder.suffix == ".bin":
        module, tokenizer, recipe = open_llama2c(folder) if folder.suffix == ".bin" else open_folder(folder)
        return Model(module, tokenizer, recipe, recipe.decoding)
    return _load(folder)


def _load(folder: Path) -> Model:
    module = load_model(folder)
    recipe = _read(folder / "recipe.toml")
    kind = recipe.tokenizer.kind
    tokenizer = (ForeignTokenizer if kind == "foreign" else KINDS[kind]).load(folder / "tokenizer.json")
    if tokenizer.size > module.config.vocabulary or (tokenizer.size != module.config.vocabulary and kind != "foreign"):
        raise FileError(
            f"{folder} has a tokenizer of {tokenizer.size} entries and a model of {module.config.vocabulary}",
            "they must come from the same training",
        )
    if isinstance(tokenizer, ForeignTokenizer):
        tokenizer = tokenizer.of_size(module.config.vocabulary)
    values = read_json(folder / "generation_config.json", "copy it again from the trained folder")
    kept = {key: value for key, value in values.items() if key in DecodingTable.model_fields}
    return Model(module, tokenizer, recipe, DecodingTable.model_validate(kept))


def _read(path: Path) -> Recipe:
    if not path.is_file():
        raise FileError(f"{path} does not exist", "the folder is not complete; train again or copy it again")
    return read_recipe(str(path))


def save_around(folder: Path, tokenizer: Tokenizer, recipe: Recipe) -> None:
    """What stands beside the weights: the tokenizer, the recipe, how to decode."""
    write_text(folder / "tokenizer.json", tokenizer.to_json())
    write_text(folder / "recipe.toml", recipe.toml())
    marks = {"pad_token_id": tokenizer.pad_id, "bos_token_id": tokenizer.bos_id, "eos_token_id": tokenizer.eos_id}
    given = recipe.decoding.model_dump(exclude_none=True)
    write_json(folder / "generation_config.json", {**marks, **given})


class Watched(Seen):
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


def train(
    recipe: str | Recipe,
    out: str | Path,
    *,
    changes: list[str] | None = None,
    resume: bool = False,
    listener: Listener | None = None,
    interrupt: Interrupt | None = None,
) -> Model:
    """Train what a recipe describes into the folder `out`, and load the best model from it.

    With `resume`, `changes` may name training keys that differ from the run's own, such as `training.steps=9000`.
    Whoever holds `interrupt` can ask for a stop after the step under way: it is saved, and `Stopped` raised.
    """
    plan = read_recipe(recipe, changes) if isinstance(recipe, str) else recipe
    folder = Path(out)
    listener = listener or Silent()
    for sentence in _claim(folder, plan, resume, changes or []):
        listener.say(sentence)
    job = TASKS[plan.task.name]
    job.check_shape(plan.model)
    data = job.open(plan)
    tokenizer = _tokenizer(folder, job, data, plan, resume)
    seen = fingerprint.fingerprint(data, tokenizer)
    fingerprint.compare(folder / DATA, seen, resume)
    torch.manual_seed(plan.training.seed)
    module = _build(_config(plan, tokenizer, job.labels(data)))
    if plan.model.vectors is not None:
        known = begin_with(module.embedding, tokenizer, read_vectors(Path(plan.model.vectors)))
        listener.say(f"{known:,} of {tokenizer.size:,} tokens begin with the vectors of {plan.model.vectors}")
    module = module.to(_device(plan.training.device))
    lesson = job.lesson(
        plan, data, module, tokenizer
    )  # what cannot be trained on is refused before anything is written
    write_text(folder / "recipe.toml", plan.toml())  # first: it is what makes the folder a run that can be resumed
    fingerprint.write(folder / DATA, seen)
    save_config(folder, module)
    save_around(folder, tokenizer, plan)
    run = Run(
        lesson.trainable,
        Ahead(lesson.batches),
        lesson.validation,
        plan.training,
        folder,
        listener,
        interrupt or Interrupt(),
    )
    run.fit()
    return load(folder)


def _claim(folder: Path, plan: Recipe, resume: bool, changes: list[str]) -> list[str]:
    """A non-empty folder is refused unless it is a run to be resumed, with the same recipe but for `changes`.

    Only what a run can go on with may be changed, and only by naming it: a recipe that merely differs is refused.
    Gives a sentence on each change.
    """
    if folder.exists() and not folder.is_dir():
        raise FileError(f"{folder} is a file", "choose another --out")
    if not folder.is_dir() or all(path.name.startswith(PARTIAL) for path in folder.iterdir()):
        return []
    if not resume:
        raise FileError(f"{folder} is not empty", "add --resume to go on with it, or choose another --out")
    if not (folder / "recipe.toml").is_file():
        raise FileError(
            f"{folder} is no run that can be resumed: it has no recipe.toml",
            "give the --out of one, or an empty folder to train anew",
        )
    before, now = _read(folder / "recipe.toml").model_dump(mode="json"), plan.model_dump(mode="json")
    changed = [f"{table}.{key}" for table in now for key in now[table] if now[table][key] != before[table].get(key)]
    asked = {change.partition("=")[0].strip() for change in changes}
    if any(key not in CHANGEABLE for key in changed):
        remedy = "resume with the same recipe, or train anew"
    elif any(key not in asked for key in changed):
        remedy = f"resume with the same recipe, or say that you mean it with --set {changed[0]}=VALUE"
    else:
        split = [key.split(".") for key in changed]
        return [f"{table}.{key} is now {now[table][key]}, was {before[table][key]}" for table, key in split]
    raise ConfigError(f"the recipe in {folder} differs in {', '.join(changed)}", remedy)


def _tokenizer(folder: Path, job: Task[Any], data: Examples, plan: Recipe, resume: bool) -> Tokenizer:
    kept = folder / "tokenizer.json"
    return KINDS[plan.tokenizer.kind].load(kept) if resume and kept.is_file() else job.tokenizer(plan, data)


def _config(plan: Recipe, tokenizer: Tokenizer, labels: tuple[str, ...]) -> TransformerConfig:
    return TransformerConfig(**plan.model.shape, vocabulary=tokenizer.size, labels=labels)


def _build(config: TransformerConfig) -> Transformer:
    try:
        return Transformer(config)
    except (RuntimeError, MemoryError) as error:
        raise ConfigError(
            f"a model of width {config.width} and {config.layers} layers does not fit in memory", "make it smaller"
        ) from error


def _device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.ones(1, device=device).item()
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(f"device {name!r} cannot be used here", "use auto, cpu or cuda") from error
    return device
