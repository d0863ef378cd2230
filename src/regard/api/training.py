"""Training what a recipe describes: the data, the tokenizer and the network are made, then the loop runs."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

import regard.data  # noqa: F401  (fills the table of corpora)
from regard.api.loading import load, read_run
from regard.api.model import Model, save_around
from regard.data.corpus import Examples
from regard.data.prefetch import Prefetch
from regard.devices import in_memory, usable_device
from regard.embedding.pretrained import begin_with
from regard.embedding.vectors_file import read_vectors
from regard.errors import ConfigError, FileError, InputError, changing
from regard.files import PARTIAL, refuse_unwritable, write_text
from regard.models.checkpoint import save_config
from regard.models.config import TransformerConfig
from regard.models.transformer import Transformer
from regard.tasks.recipe import Recipe, apply_change, read_recipe, toml_value
from regard.tasks.registry import TASKS
from regard.tasks.task import METRIC_EXAMPLES, Task, TrainingData
from regard.text.registry import KINDS
from regard.text.tokenizer import Tokenizer
from regard.training import fingerprint
from regard.training.interrupt import Interrupt
from regard.training.loop import Run
from regard.training.plan import CHANGEABLE
from regard.training.precision import choose_precision
from regard.training.progress import ProgressBar, interactive
from regard.training.reports import Listener, Silent
from regard.training.tracking import writer_class

DATA = "state/data.json"
"""In a run's folder: what it was trained on, in a few digits."""


Changes = Sequence[str] | Mapping[str, Any]
"""Of a recipe's keys: `{"training.steps": 9000}`, `{"training": {"steps": 9000}}` or `["training.steps=9000"]`."""


def train(
    recipe: str | Path | Recipe,
    out: str | Path,
    *,
    changes: Changes | None = None,
    resume: bool = False,
    progress: bool | None = None,
    listener: Listener | None = None,
    interrupt: Interrupt | None = None,
) -> Model:
    """Train what a recipe describes into the folder `out`, and load the best model from it.

    The recipe is a shipped one's name, a TOML file or a `Recipe`; `changes` are keys with other values. With `resume`
    a run in `out` goes on, and `changes` may name training keys that differ from the run's own. `progress` is shown on
    stderr, where it is not said: at a terminal and in a notebook. A `listener` is told of it instead, if there is one.
    Whoever holds `interrupt` can ask for a stop after the step under way: it is saved, and `Stopped` raised.
    """
    asked = _listed(changes)
    plan = _changed(recipe, asked) if isinstance(recipe, Recipe) else read_recipe(str(recipe), asked)
    folder = Path(out)
    if listener is None and (interactive() if progress is None else progress):
        with ProgressBar(folder, saves=interrupt is not None) as bar:
            return _train(plan, folder, asked, resume, bar, interrupt or Interrupt())
    return _train(plan, folder, asked, resume, listener or Silent(), interrupt or Interrupt())


def _train(
    plan: Recipe, folder: Path, asked: list[str], resume: bool, listener: Listener, interrupt: Interrupt
) -> Model:
    for sentence in _claim(folder, plan, resume, asked):
        listener.say(sentence)
    task = TASKS[plan.task.name]
    task.check_shape(plan.model)
    task.check_metric(plan)
    data = task.open(plan)
    tokenizer = _tokenizer(folder, task, data, plan, resume)
    seen = fingerprint.fingerprint(data, tokenizer)
    fingerprint.compare(folder / DATA, seen, resume)
    torch.manual_seed(plan.training.seed)
    module = _build(_config(plan, tokenizer, task.labels(data)), usable_device(plan.training.device))
    if plan.model.vectors is not None:
        known = begin_with(module.embedding, tokenizer, read_vectors(Path(plan.model.vectors)))
        listener.say(f"{known:,} of {tokenizer.size:,} tokens begin with the vectors of {plan.model.vectors}")
    training_data = task.training_data(
        plan, data, module, tokenizer
    )  # what cannot be trained on is refused before anything is written
    module.config = module.config.model_copy(update={"trained_length": training_data.longest})
    write_text(folder / "recipe.toml", plan.toml())  # first: it is what makes the folder a run that can be resumed
    fingerprint.write(folder / DATA, seen)
    save_config(folder, module)
    save_around(folder, tokenizer, plan)
    for sentence in _introduction(plan, module, training_data):
        listener.say(sentence)
    run = Run(
        training_data.trainable,
        Prefetch(training_data.batches),
        training_data.validation,
        plan.training,
        folder,
        listener,
        interrupt,
        task.metric(plan, data, module, tokenizer),
    )
    run.fit()
    return load(folder, plan.training.device)


def _introduction(plan: Recipe, module: Transformer, data: TrainingData) -> Iterator[str]:
    """What is about to be trained, where, and on how much."""
    device = next(module.parameters()).device
    size = sum(parameter.numel() for parameter in module.parameters())
    yield f"{size:,} parameters on {device} in {choose_precision(plan.training.precision, device).name}"
    yield data.summary
    if plan.training.metric != "loss":
        most = plan.training.metric_examples or METRIC_EXAMPLES
        yield f"the best model is the best by {plan.training.metric}, on at most {most:,} validation examples"


def _listed(changes: Changes | None, above: str = "") -> list[str]:
    """Changes as `table.key=value`, the value written as TOML."""
    if isinstance(changes, str):
        raise InputError(f"changes are several, not the text {changes!r}", f"give a list, such as [{changes!r}]")
    if not isinstance(changes, Mapping):
        return list(changes or ())
    found = []
    for key, value in changes.items():
        if isinstance(value, Mapping):
            found += _listed(value, f"{above}{key}.")
        else:
            found.append(f"{above}{key}={toml_value(str(value) if isinstance(value, Path) else value)}")
    return found


def _changed(recipe: Recipe, changes: list[str]) -> Recipe:
    if not changes:
        return recipe
    values = recipe.model_dump(mode="json", exclude_none=True)
    for change in changes:
        apply_change(values, change)
    return Recipe.model_validate(values)


def _claim(folder: Path, plan: Recipe, resume: bool, changes: list[str]) -> list[str]:
    """A non-empty folder is refused unless it is a run to be resumed, with the same recipe but for `changes`.

    Only what a run can go on with may be changed, and only by naming it: a recipe that merely differs is refused.
    Gives a sentence on each change.
    """
    writer_class(plan.training.track)  # refuses before anything is written
    if folder.exists() and not folder.is_dir():
        raise FileError(f"{folder} is a file", "choose another `out`")
    if not folder.is_dir() or all(path.name.startswith(PARTIAL) for path in folder.iterdir()):
        refuse_unwritable(folder / "recipe.toml")  # before the data are read
        return []
    if not resume:
        raise FileError(f"{folder} is not empty", "add `resume=True` to go on with it, or choose another `out`")
    if not (folder / "recipe.toml").is_file():
        raise FileError(
            f"{folder} is no run that can be resumed: it has no recipe.toml",
            "give the `out` of one, or an empty folder to train anew",
        )
    before, now = read_run(folder).model_dump(mode="json"), plan.model_dump(mode="json")
    changed = [f"{table}.{key}" for table in now for key in now[table] if now[table][key] != before[table].get(key)]
    asked = {change.partition("=")[0].strip() for change in changes}
    if any(key not in CHANGEABLE for key in changed):
        remedy = "resume with the same recipe, or train anew"
    elif any(key not in asked for key in changed):
        remedy = f"resume with the same recipe, or say that you mean it with {changing(changed[0], 'VALUE')}"
    else:
        split = [key.split(".") for key in changed]
        return [f"{table}.{key} is now {now[table][key]}, was {before[table][key]}" for table, key in split]
    raise ConfigError(f"the recipe in {folder} differs in {', '.join(changed)}", remedy)


def _tokenizer(folder: Path, task: Task[Any], data: Examples, plan: Recipe, resume: bool) -> Tokenizer:
    kept = folder / "tokenizer.json"
    return KINDS[plan.tokenizer.kind].load(kept) if resume and kept.is_file() else task.tokenizer(plan, data)


def _config(plan: Recipe, tokenizer: Tokenizer, labels: tuple[str, ...]) -> TransformerConfig:
    return TransformerConfig(**plan.model.shape, vocabulary=tokenizer.size, labels=labels)


def _build(config: TransformerConfig, device: torch.device) -> Transformer:
    with in_memory(f"a model of width {config.width} and {config.layers} layers"):
        return Transformer(config).to(device)
