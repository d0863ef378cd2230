"""Training what a recipe describes: the data, the tokenizer and the network are made, then the loop runs."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import regard.data  # noqa: F401  (fills the table of corpora)
from regard.api.checkpoints import AdapterFiling, begin_from
from regard.api.loading import load
from regard.api.model import Model, save_around
from regard.api.purpose import read_run
from regard.data.corpus import Examples
from regard.data.prefetch import Prefetch
from regard.devices import in_memory, usable_device
from regard.embedding.pretrained import begin_with
from regard.embedding.vectors_file import read_vectors
from regard.errors import ConfigError, FileError, InputError, changing
from regard.files import PARTIAL, read_json, refuse_unwritable, write_json, write_text
from regard.interop.peft import write_config
from regard.models.checkpoint import save_config
from regard.models.lora import learnt
from regard.models.network import Checkpoint, Network, NetworkConfig
from regard.tasks.files import settle
from regard.tasks.recipe import Recipe, TokenizerTable, change_recipe, read_recipe, toml_value
from regard.tasks.task import METRIC_EXAMPLES, Task, TrainingData, task_of
from regard.text.registry import KINDS
from regard.text.tokenizer import Tokenizer
from regard.training import fingerprint
from regard.training.filing import WHOLE, Filing
from regard.training.groups import check_rates, freeze, told
from regard.training.interrupt import Interrupt, at_keyboard
from regard.training.loop import Run
from regard.training.plan import CHANGEABLE
from regard.training.precision import choose_precision
from regard.training.progress import ProgressBar, interactive
from regard.training.reports import Listener, Silent
from regard.training.tracking import writer_class

DATA = "state/data.json"
"""In a run's folder: what it was trained on, in a few digits."""
BEGAN = "state/began.json"
"""Likewise: the changes and the files it was begun with."""


Changes = Sequence[str] | Mapping[str, Any]
"""Of a recipe's keys: `{"training.steps": 9000}`, `{"training": {"steps": 9000}}` or `["training.steps=9000"]`."""


def train(
    recipe: str | Path | Recipe | None,
    out: str | Path,
    *,
    changes: Changes | None = None,
    data: Sequence[str | Path] | None = None,
    resume: bool = False,
    progress: bool | None = None,
    listener: Listener | None = None,
    interrupt: Interrupt | None = None,
) -> Model:
    """Train what a recipe describes into the folder `out`, and load the best model from it.

    The recipe is a shipped one's name, a TOML file or a `Recipe`; `changes` are keys with other values, `data` files of
    your own in place of the recipe's: one, or two of which line N belongs to line N. With `resume` a run in `out` goes
    on; the recipe may then be None, and `changes` may name training keys that differ from the run's own. `progress` is
    shown on stderr, where it is not said: at a terminal and in a notebook. A `listener` is told of it instead, if there
    is one. Ctrl-C finishes the step under way and saves it before it is a `KeyboardInterrupt`; a second one stops at
    once. Whoever holds an `interrupt` can ask for the same themselves, and gets `Stopped`.
    """
    folder = Path(out)
    request = Request(_listed(changes), None if data is None else [str(one) for one in data])
    with at_keyboard() if interrupt is None else nullcontext(interrupt) as heard:
        if listener is None and (interactive() if progress is None else progress):
            with ProgressBar(folder, saves=heard is not None) as bar:
                return _train(recipe, folder, request, resume, bar, heard or Interrupt())
        return _train(recipe, folder, request, resume, listener or Silent(), heard or Interrupt())


def _train(
    recipe: str | Path | Recipe | None,
    folder: Path,
    request: "Request",
    resume: bool,
    listener: Listener,
    interrupt: Interrupt,
) -> Model:
    began = Request.of(folder, resume).with_more(request)
    plan, found = settle(_plan(recipe, folder, request, began, resume))
    changed = _claim(folder, plan, resume, request.changes)
    prepared = prepare(plan, _kept_tokenizer(folder, plan, resume))
    plan = prepared.plan
    seen = fingerprint.fingerprint(prepared.data, prepared.tokenizer, prepared.base)
    fingerprint.compare(folder / DATA, seen, resume)
    write_text(folder / "recipe.toml", plan.toml())  # first: it is what makes the folder a run that can be resumed
    fingerprint.write(folder / DATA, seen)
    began.write(folder)
    save_config(folder, prepared.module)
    save_around(folder, Model(prepared.module, prepared.tokenizer, prepared.task, plan.decoding), plan)
    prepared.describe_adapter(folder)
    for sentence in (*changed, *found, *prepared.said, *_introduction(plan, prepared.module, prepared.training_data)):
        listener.say(sentence)
    run = Run(
        prepared.training_data.trainable,
        Prefetch(prepared.training_data.batches),
        prepared.training_data.validation,
        plan.training,
        folder,
        listener,
        interrupt,
        prepared.task.metric(plan, prepared.data, prepared.module, prepared.tokenizer),
        prepared.filing,
    )
    run.fit()
    return load(folder, plan.training.device)


def _introduction(plan: Recipe, module: Network, data: TrainingData) -> Iterator[str]:
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


@dataclass(frozen=True)
class Request:
    """How a run was asked for besides its recipe's name: that, too, need not be said again."""

    changes: list[str]
    data: list[str] | None

    @classmethod
    def of(cls, folder: Path, resume: bool) -> "Request":
        """What the folder of a run to be resumed remembers."""
        path = folder / BEGAN
        if not resume or not path.is_file():
            return cls([], None)
        kept = read_json(path, "remove it, and say again what differs from the recipe")
        return cls(list(kept.get("changes") or []), kept.get("data"))

    def with_more(self, now: "Request") -> "Request":
        """The same with what is said now."""
        latest = {change.partition("=")[0].strip(): change for change in (*self.changes, *now.changes)}
        return Request(list(latest.values()), now.data or self.data)

    def write(self, folder: Path) -> None:
        """Remember it."""
        if self != Request.of(folder, resume=True):
            write_json(folder / BEGAN, {"changes": self.changes, "data": self.data})


def _plan(recipe: str | Path | Recipe | None, folder: Path, now: Request, began: Request, resume: bool) -> Recipe:
    """The recipe to train by: one given whole, one by name with what the run was begun with, or the run's own."""
    if recipe is None:
        if not resume:
            raise ConfigError("there is no recipe to train", "name one: `regard list recipes` shows them")
        if not (folder / "recipe.toml").is_file():
            raise _no_run(folder)
        return change_recipe(read_run(folder), now.changes, now.data)
    if isinstance(recipe, Recipe):
        return change_recipe(recipe, now.changes, now.data)
    return read_recipe(str(recipe), began.changes, began.data)


@dataclass(frozen=True)
class Prepared:
    """All that training needs, made from a recipe; nothing is written."""

    plan: Recipe
    """The recipe, with the tokenizer that a checkpoint came with."""
    task: Task[Any]
    data: Examples
    tokenizer: Tokenizer
    module: Network
    training_data: TrainingData
    said: list[str]
    """What a person should know about them."""
    base: str | None = None
    """With an adapter, a digest of the weights it stands beside."""

    @property
    def filing(self) -> Filing:
        """What of the model the run keeps."""
        return WHOLE if self.base is None else AdapterFiling(self.module, self.base)

    def describe_adapter(self, folder: Path) -> None:
        """Write down what the adapter is, where there is one."""
        model = self.plan.model
        if self.base is not None and isinstance(model, Checkpoint) and model.adapter is not None:
            write_config(folder, model.folder, model.adapter, self.module, learnt(self.module))


def prepare(plan: Recipe, tokenizer: Tokenizer | None) -> Prepared:
    """Read the data, learn the tokenizer unless it is there already, build the model; refuse what cannot be trained."""
    task = task_of(plan.task)
    if not isinstance(plan.model, Checkpoint):
        task.check_shape(plan.model)
    task.check_metric(plan)
    data = task.open(plan)
    labels = task.labels(data)
    said = task.describe(plan, data)
    device, base = usable_device(plan.training.device), None
    if isinstance(plan.model, Checkpoint):
        torch.manual_seed(plan.training.seed)
        begun = begin_from(plan.model, task, labels)
        module, tokenizer, base = begun.module.to(device), begun.tokenizer, begun.base
        _require_kind(plan, tokenizer.kind)
        said += begun.said
    else:
        tokenizer = tokenizer or task.tokenizer(plan, data)
        torch.manual_seed(plan.training.seed)
        module = _build(plan.model.built_for(tokenizer.size, labels), device)
        if plan.model.vectors is not None:
            known = begin_with(module.embedding, tokenizer, read_vectors(Path(plan.model.vectors)))
            said.append(f"{known:,} of {tokenizer.size:,} tokens begin with the vectors of {plan.model.vectors}")
    freeze(module, plan.training.freeze)
    check_rates(module, plan.training)
    said += told(module, plan.training)
    training_data = task.training_data(plan, data, module, tokenizer)
    module.config = module.config.model_copy(update={"trained_length": training_data.longest})
    if isinstance(plan.model, Checkpoint):
        plan = plan.model_copy(update={"tokenizer": plan.tokenizer.model_copy(update={"kind": tokenizer.kind})})
    return Prepared(plan, task, data, tokenizer, module, training_data, said, base)


def _require_kind(plan: Recipe, kind: str) -> None:
    """A kind of tokenizer has no effect where the folder that the model begins in has one of another kind."""
    if plan.tokenizer.kind not in (TokenizerTable().kind, kind):
        raise ConfigError(
            f"[tokenizer] kind = {plan.tokenizer.kind!r} has no effect where [model] from names a folder",
            f"leave it out: the folder's tokenizer is of kind {kind!r}",
        )


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
        raise _no_run(folder)
    before, now = read_run(folder).tables(), plan.tables()
    if plan.model.begins_in and plan.tokenizer == TokenizerTable():
        now["tokenizer"] = before["tokenizer"]  # a run writes down the kind of its folder's tokenizer
    changed = [f"{table}.{key}" for table in now for key in _differing(before[table] or {}, now[table] or {})]
    asked = {change.partition("=")[0].strip() for change in changes}
    if any(key not in CHANGEABLE for key in changed):
        remedy = "resume with the same recipe, or train anew"
    elif any(key not in asked for key in changed):
        remedy = f"resume with the same recipe, or say that you mean it with {changing(changed[0], 'VALUE')}"
    else:
        split = [key.split(".") for key in changed]
        return [f"{table}.{key} is now {now[table][key]}, was {before[table][key]}" for table, key in split]
    raise ConfigError(f"the recipe in {folder} differs in {', '.join(changed)}", remedy)


def _differing(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Which keys; of another member of a union its name alone, since the others follow from it."""
    found = [key for key in {**now, **before} if now.get(key) != before.get(key)]
    return ["name"] if "name" in found else found


def _no_run(folder: Path) -> FileError:
    if not folder.exists():
        return FileError(f"{folder} does not exist: there is no run to resume", "give the `out` of one")
    return FileError(
        f"{folder} is no run that can be resumed: it has no recipe.toml",
        "give the `out` of one, or an empty folder to train anew",
    )


def _kept_tokenizer(folder: Path, plan: Recipe, resume: bool) -> Tokenizer | None:
    """The one that a run to be resumed has learnt; where [model] from names a folder it is that folder's."""
    kept = folder / "tokenizer.json"
    learnt_before = resume and not plan.model.begins_in and kept.is_file()
    return KINDS[plan.tokenizer.kind].load(kept) if learnt_before else None


def _build(config: NetworkConfig, device: torch.device) -> Network:
    with in_memory(f"a model: {config.words}"):
        return config.build().to(device)
