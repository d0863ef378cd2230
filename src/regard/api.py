"""The objects people hold: `load` a model, `train` one from a recipe, `watch` what it attends to.

Here the folders above are joined: text becomes ids, the model decodes, ids become text again.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, overload

import torch
from torch import nn

import regard.data  # noqa: F401  (fills the table of corpora)
from regard.data.ahead import Ahead
from regard.data.corpus import Corpus, Pair
from regard.data.objectives import Objective
from regard.data.stream import Position, by_length
from regard.decoding.engine import generate, stream
from regard.decoding.hypothesis import Hypothesis, Stop
from regard.decoding.strategies import Beam, Greedy, Sample, Strategy
from regard.embedding.pretrained import begin_with
from regard.embedding.vectors_file import read_vectors
from regard.errors import ConfigError, FileError, InputError
from regard.files import PARTIAL, read_json, write_json, write_text
from regard.inspection.capture import Seen, record_into
from regard.metrics.text import bleu, chrf, exact_match
from regard.models.checkpoint import load_model, save_config, save_model
from regard.models.config import TransformerConfig
from regard.models.transformer import Transformer
from regard.tasks.recipe import DecodingTable, Recipe, read_recipe
from regard.tasks.translation import batch_stream, held_out, objective, open_corpus, train_tokenizer
from regard.text.opening import KINDS
from regard.text.tokenizer import Tokenizer
from regard.training import fingerprint
from regard.training.interrupt import Interrupt
from regard.training.loop import Run
from regard.training.plan import CHANGEABLE
from regard.training.reports import Listener, Silent
from regard.training.trainable import TokenPrediction

TOGETHER = 64
"""Texts decoded side by side by `Model.run`."""

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
    def objective(self) -> Objective:
        """How texts become its inputs."""
        return objective(self.module.config, self.tokenizer)

    @overload
    def run(  # type: ignore[overload-overlap]  # a str is a Sequence[str] too, and comes first
        self, text: str, *, strategy: Strategy | None = ..., max_new_tokens: int | None = ...
    ) -> str: ...
    @overload
    def run(
        self, text: str, *, strategy: Strategy | None = ..., max_new_tokens: int | None = ..., stream: Literal[True]
    ) -> Iterator[str]: ...
    @overload
    def run(
        self, text: Sequence[str], *, strategy: Strategy | None = ..., max_new_tokens: int | None = ...
    ) -> list[str]: ...

    def run(
        self,
        text: str | Sequence[str],
        *,
        strategy: Strategy | None = None,
        max_new_tokens: int | None = None,
        stream: bool = False,
    ) -> str | list[str] | Iterator[str]:
        """Do what the model is for: a text in, a text out; with `stream`, pieces of it as they are chosen."""
        if stream:
            if not isinstance(text, str):
                raise InputError(f"{len(text)} texts cannot share one stream", "stream one text at a time")
            return self._stream(text, strategy, max_new_tokens)
        texts = [text] if isinstance(text, str) else list(text)
        outputs = [self.tokenizer.decode(found.ids) for found in self.hypotheses(texts, strategy, max_new_tokens)]
        return outputs[0] if isinstance(text, str) else outputs

    def hypotheses(
        self, texts: Sequence[str], strategy: Strategy | None = None, max_new_tokens: int | None = None
    ) -> list[Hypothesis]:
        """What decoding found for every text: ids, score, and the rows they were computed in."""
        if not isinstance(strategy, Greedy | Sample | Beam | None):
            raise InputError(f"{strategy!r} is not a strategy", "use regard.Greedy(), Sample(…) or Beam(…)")
        for text in texts:
            self.check(text)
        stop = Stop(self.tokenizer.eos_id, self._limit(max_new_tokens))
        device = next(self.module.parameters()).device
        found = []
        for first in range(0, len(texts), TOGETHER):
            inputs = self.objective.prompt(texts[first : first + TOGETHER]).to(device)
            chosen = strategy or self.decoding.chosen()
            chosen = replace(chosen, first=chosen.first + first) if isinstance(chosen, Sample) else chosen
            found += generate(self.module, inputs, chosen, stop)
        return found

    def _limit(self, max_new_tokens: int | None) -> int:
        return self.decoding.max_new_tokens if max_new_tokens is None else max_new_tokens

    def check(self, text: str) -> None:
        """Refuse, in one sentence, what the model was never taught."""
        if not isinstance(text, str):
            raise InputError(f"a text is a string, not {type(text).__name__}", "decode bytes first")
        if not text.strip():
            raise InputError("the text is empty", "give some")
        if self.recipe.data.corpus is not None:
            open_corpus(self.recipe.data).check(text)

    def evaluate(self, pairs: Sequence[Pair]) -> dict[str, float]:
        """The task's metrics on these pairs: where every question has one answer, its share; else BLEU and chrF too."""
        if not pairs:
            raise InputError("there are no pairs to measure on", "give a file of pairs, or test data in the recipe")
        outputs, references = self.run([pair.source for pair in pairs]), [pair.target for pair in pairs]
        found = {"exact_match": exact_match(outputs, references)}
        if self.recipe.data.corpus is None:
            found |= {"bleu": bleu(outputs, references, self.recipe.task.bleu), "chrf": chrf(outputs, references)}
        return found

    def look(self, text: str, *, target: str | None = None, values: bool = False) -> "Watched":
        """What the model attends to while it answers, or while it reads the target it is given."""
        with watch(self, values=values) as seen:
            if target is None:
                self.hypotheses([text])
            else:
                self.check(text)
                self._read_target(seen, text, target)
        return seen

    @torch.no_grad()
    def _read_target(self, seen: Seen, text: str, target: str) -> None:
        device = next(self.module.parameters()).device
        inputs = self.objective.prompt([text]).to(device)
        ids = self.tokenizer.encode(target)
        read = torch.tensor([[self.tokenizer.bos_id, *ids]], device=device)
        logits, _ = self.module.extend(read, self.module.start(inputs))
        written = (*ids, self.tokenizer.eos_id)
        likely = logits[0].double().log_softmax(dim=-1)[range(len(written)), list(written)]
        seen.finished(inputs, [Hypothesis(written, float(likely.sum()), rows=(0,))])

    def save(self, folder: str | Path) -> None:
        """Write the model folder."""
        folder = Path(folder)
        save_model(folder, self.module)
        save_around(folder, self.tokenizer, self.recipe)

    def _stream(self, text: str, strategy: Strategy | None, max_new_tokens: int | None) -> Iterator[str]:
        chosen = strategy or self.decoding.chosen()
        if isinstance(chosen, Beam):
            raise InputError("a beam decides its tokens at the end and cannot stream", "use greedy or sample")
        self.check(text)
        stop = Stop(self.tokenizer.eos_id, self._limit(max_new_tokens))
        inputs = self.objective.prompt([text]).to(next(self.module.parameters()).device)
        text_of = self.tokenizer.stream()  # a character may need the bytes of several tokens
        for token in stream(self.module, inputs, chosen, stop):
            if piece := text_of.push(token):
                yield piece
        if rest := text_of.end():
            yield rest


def load(folder: str | Path) -> Model:
    """The model in a folder that `train` or `Model.save` wrote."""
    folder = Path(folder)
    module = load_model(folder)
    recipe = _read(folder / "recipe.toml")
    tokenizer = KINDS[recipe.tokenizer.kind].load(folder / "tokenizer.json")
    if tokenizer.size != module.config.vocabulary:
        raise FileError(
            f"{folder} has a tokenizer of {tokenizer.size} entries and a model of {module.config.vocabulary}",
            "they must come from the same training",
        )
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
    corpus = open_corpus(plan.data)
    tokenizer = _tokenizer(folder, corpus, plan, resume)
    seen = fingerprint.fingerprint(corpus, tokenizer)
    fingerprint.compare(folder / DATA, seen, resume)
    torch.manual_seed(plan.training.seed)
    config = TransformerConfig(**plan.model.model_dump(exclude={"name", "vectors"}), vocabulary=tokenizer.size)
    how = objective(config, tokenizer)
    module = _build(config)
    if plan.model.vectors is not None:
        known = begin_with(module.embedding, tokenizer, read_vectors(Path(plan.model.vectors)))
        listener.say(f"{known:,} of {tokenizer.size:,} tokens begin with the vectors of {plan.model.vectors}")
    module = module.to(_device(plan.training.device))
    batches = batch_stream(plan, corpus, how)
    next(batches.start(Position()))  # what cannot be trained on is refused before anything is written
    valid = by_length(how.encode(held_out(corpus, "valid")), how, plan.training.batch_tokens)
    write_text(folder / "recipe.toml", plan.toml())  # first: it is what makes the folder a run that can be resumed
    fingerprint.write(folder / DATA, seen)
    save_config(folder, module)
    save_around(folder, tokenizer, plan)
    run = Run(
        TokenPrediction(module, label_smoothing=plan.training.label_smoothing),
        Ahead(batches),
        [how.batch(batch) for batch in valid],
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


def _tokenizer(folder: Path, corpus: Corpus, plan: Recipe, resume: bool) -> Tokenizer:
    kept = folder / "tokenizer.json"
    if resume and kept.is_file():
        return KINDS[plan.tokenizer.kind].load(kept)
    return train_tokenizer(corpus, plan.tokenizer.size, plan.tokenizer.sample, plan.tokenizer.kind)


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
