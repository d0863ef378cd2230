"""The recipe: one TOML file that says what to train, on what and how.

    [task]       what the model is for          [model]      its shape
    [data]       where the texts come from      [training]   how it is trained
    [tokenizer]  how text becomes ids           [decoding]   how it answers

`model = "transformer"` is short for `[model] name = "transformer"`, `data = "dates"` for `[data] corpus = "dates"`.
Unknown keys are refused with the nearest known.
"""

import json
import math
import os.path
import tomllib
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, SerializeAsAny, field_validator, model_validator

from regard.config import Config
from regard.decoding.filters import Filter, ForcedBos, ForcedEos, Renormalized, Suppressed
from regard.decoding.strategies import Beam, Greedy, Sample, Strategy
from regard.errors import ConfigError, FileError, choose
from regard.metrics.text import BleuTokenizer
from regard.models.config import TransformerShape
from regard.models.network import NetworkShape, read_shape
from regard.tasks.data_table import DataTable, check_columns, replace_source
from regard.training.plan import TrainingPlan

TokenId = Annotated[int, Field(ge=0)]
TaskName = Literal[
    "translation",
    "language_modelling",
    "masked",
    "denoising",
    "classification",
    "question_answering",
    "sentence_embedding",
]


class TaskTable(Config):
    """What the model is for."""

    name: TaskName = Field("translation", description="what is learnt from the data")
    bleu: BleuTokenizer = Field("13a", description="how BLEU cuts words; none for texts that are tokenised already")
    prefix: str = Field("", description="put before every source or embedded text, as T5 is told what to do")
    begin: Literal["bos", "none"] = Field(
        "bos", description="the special token a language model's texts begin with, in training and when it goes on"
    )
    pooling: Literal["mean", "first", "max"] = Field(
        "mean", description="what stands for a text: the mean of its tokens' vectors, the first, or the largest of each"
    )
    normalised: bool = Field(True, description="what stands for a whole text is brought to length 1")
    max_seq_length: int | None = Field(None, ge=1, description="tokens of a text that is embedded; the rest is cut off")
    do_lower_case: bool = Field(False, description="a text that is embedded is read in small letters")


class TokenizerTable(Config):
    """How text becomes ids."""

    kind: Literal["bpe", "bpe_words", "wordpiece", "wordpiece_cased", "characters", "pretrained"] = Field(
        "bpe", description="byte-level BPE, BPE of words with an end mark, WordPiece, whose texts do not come back, …"
    )
    size: int = Field(512, ge=1, description="entries of the vocabulary")
    sample: int = Field(20_000, ge=1, description="training examples it is learnt from")


class DecodingTable(Config):
    """How the model answers when nothing else is asked for; also `generation_config.json`."""

    strategy: Literal["greedy", "sample", "beam"] = Field("greedy", description="how tokens are chosen")
    beams: int | None = Field(None, ge=1, le=512, description="width of the beam; 5 if absent")
    length_penalty: float | None = Field(
        None, allow_inf_nan=False, description="power of the length a beam's score is divided by"
    )
    temperature: float | None = Field(None, gt=0, description="of sampling")
    top_k: int | None = Field(None, ge=1, description="sample among this many")
    top_p: float | None = Field(None, gt=0, le=1, description="sample among the most likely that reach this")
    seed: int | None = Field(None, ge=0, lt=2**32, description="of sampling")
    max_new_tokens: int = Field(64, ge=1, description="length limit of an answer")
    ends: tuple[TokenId, ...] | None = Field(
        None, min_length=1, description="ids that end it; the tokenizer's if absent"
    )
    suppressed: tuple[TokenId, ...] | None = Field(None, description="ids that are never in it")
    forced_bos: TokenId | None = Field(None, description="the id every answer begins with")
    forced_eos: TokenId | None = Field(None, description="the id at its length limit, where it has not ended before")
    renormalize: bool = Field(False, description="a beam counts shares of what may be chosen, as Marian's do")

    @model_validator(mode="after")
    def _options_belong(self) -> "DecodingTable":
        used = {"greedy": (), "beam": BEAM_OPTIONS, "sample": SAMPLE_OPTIONS}[self.strategy]
        for name in (*BEAM_OPTIONS, *SAMPLE_OPTIONS):
            if getattr(self, name) is not None and name not in used:
                owner = "beam" if name in BEAM_OPTIONS else "sample"
                raise ConfigError(
                    f"{name} has no effect with strategy {self.strategy!r}",
                    f"use strategy {owner!r} or leave {name} out",
                )
        return self

    def chosen(self) -> Strategy:
        """The strategy these options describe."""
        given = {name: getattr(self, name) for name in SAMPLE_OPTIONS if getattr(self, name) is not None}
        if self.strategy == "sample":
            return Sample(**given)
        if self.strategy == "beam":
            size = 5 if self.beams is None else self.beams
            return Beam(size, 1.0 if self.length_penalty is None else self.length_penalty)
        return Greedy()

    def filters(self, vocabulary: int) -> tuple[Filter, ...]:
        """Which tokens of so many may be chosen, whatever the strategy."""
        ones = [one for one in (self.forced_bos, self.forced_eos) if one is not None]
        suppressed = self.suppressed or ()
        none = max((*ones, *suppressed, *(self.ends or ())), default=0)
        if none >= vocabulary or len(set(suppressed)) == vocabulary:
            problem = f"id {none} is none" if none >= vocabulary else "every one is suppressed"
            raise ConfigError(f"[decoding] {problem} of the model's {vocabulary} tokens", f"use 0 to {vocabulary - 1}")
        found: list[Filter] = [Suppressed(suppressed)] if suppressed else []
        found += [] if self.forced_bos is None else [ForcedBos(self.forced_bos)]
        found += [] if self.forced_eos is None else [ForcedEos(self.forced_eos)]
        return (*found, Renormalized()) if self.renormalize else tuple(found)


BEAM_OPTIONS = ("beams", "length_penalty")
SAMPLE_OPTIONS = ("temperature", "top_k", "top_p", "seed")


MEANT_FOR: dict[str, tuple[str, ...]] = {
    "task.bleu": ("translation",),
    "task.prefix": ("translation", "sentence_embedding"),
    "task.begin": ("language_modelling",),
    "task.pooling": ("sentence_embedding",),
    "task.normalised": ("sentence_embedding",),
    "task.max_seq_length": ("sentence_embedding",),
    "task.do_lower_case": ("sentence_embedding",),
    "data.window": ("language_modelling", "masked", "denoising", "classification", "question_answering"),
    "data.batches": ("translation",),
}
"""The keys that mean something for some tasks alone."""


EXAMPLES = {
    "translation": '`data=["english.txt", "french.txt"]`, or one file: pairs.tsv, pairs.csv or pairs.jsonl',
    "classification": '`data=["reviews.csv"]` (columns text and label), or .tsv or .jsonl',
    "question_answering": '`data=["questions.jsonl"]` (question, context, answer), or the JSON of SQuAD',
    "language_modelling": '`data=["book.txt"]`',
    "masked": '`data=["book.txt"]`',
    "denoising": '`data=["book.txt"]`',
}
"""What a task's files may be called."""

MAIN_KEYS = {"task": "name", "data": "corpus", "model": "name"}
"""What a string in place of a table means."""


class Recipe(Config):
    """All tables of a recipe."""

    task: TaskTable = TaskTable()
    data: DataTable | None = Field(
        None, description="absent where a model was loaded, or where a user's files are missing"
    )
    tokenizer: TokenizerTable = TokenizerTable()
    model: SerializeAsAny[NetworkShape] = TransformerShape()
    training: TrainingPlan = TrainingPlan()
    decoding: DecodingTable = DecodingTable()

    @field_validator("model", mode="before")
    @classmethod
    def _network(cls, value: Any) -> Any:
        return read_shape(value) if isinstance(value, dict) else value

    @field_validator("*", mode="wrap")
    @classmethod
    def _table(cls, value: Any, read: Callable[[Any], Any], info: Any) -> Any:
        """A string alone is a table's main key, and an error says which table it is about."""
        if isinstance(value, str) and info.field_name in MAIN_KEYS:
            value = {MAIN_KEYS[info.field_name]: value}
        try:
            return read(value)
        except ConfigError as error:
            raise ConfigError(f"[{info.field_name}] {error.problem}", error.remedy) from error

    @model_validator(mode="after")
    def _keys_have_a_meaning(self) -> "Recipe":
        for path, tasks in MEANT_FOR.items():
            table, key = path.split(".")
            values = getattr(self, table)
            if values is None or self.task.name in tasks:
                continue
            if getattr(values, key) != type(values).model_fields[key].default:
                raise ConfigError(
                    f"[{table}] {key} has no effect on task {self.task.name!r}",
                    f"leave it out; it is for {', '.join(tasks)}",
                )
        return self

    @model_validator(mode="after")
    def _tokenizer_can_be_learnt(self) -> "Recipe":
        if self.data is not None and self.tokenizer.kind == "pretrained":
            raise ConfigError(
                "[tokenizer] kind = 'pretrained' is that of a model which was loaded, and nothing learns it", "use bpe"
            )
        return self

    @model_validator(mode="after")
    def _columns_have_a_meaning(self) -> "Recipe":
        if self.data is not None:
            check_columns(self.task.name, self.data.columns)
        return self

    @property
    def given(self) -> DataTable:
        """The data, which must be there."""
        if self.data is None or (self.data.corpus is None and self.data.train is None):
            raise ConfigError(
                "the recipe has no data of its own",
                f"give your files: {EXAMPLES.get(self.task.name, '`data=[FILE]`')}",
            )
        return self.data

    @model_validator(mode="after")
    def _packing_has_a_meaning(self) -> "Recipe":
        if self.data is not None and self.data.batches == "packed" and not self.model.reads_packed:
            raise ConfigError(
                f"[data] batches = 'packed' puts several texts in a row, which {self.model.words} does not read",
                "use model.architecture=decoder, or data.batches=by_length",
            )
        return self

    def toml(self) -> str:
        """The recipe as a file, every default written out."""
        lines = []
        for table, values in self.model_dump(mode="json").items():
            if values is None:
                continue
            nested = {key: values.pop(key) for key in list(values) if isinstance(values[key], dict)}
            lines += [f"[{table}]", *_entries(values), ""]
            for key, inner in nested.items():
                lines += [f"[{table}.{key}]", *_entries(inner), ""] if inner else []
        return "\n".join(lines)


TABLES: dict[str, type[Config]] = {
    "task": TaskTable,
    "data": DataTable,
    "tokenizer": TokenizerTable,
    "model": TransformerShape,
    "training": TrainingPlan,
    "decoding": DecodingTable,
}


def _entries(values: dict[str, Any]) -> list[str]:
    """`key = value` lines."""
    return [f"{key} = {toml_value(value)}" for key, value in values.items() if value is not None]


def toml_value(value: Any) -> str:
    """JSON's strings, numbers, booleans and lists are TOML's too, but for infinity and U+007F."""
    if isinstance(value, float) and math.isinf(value):
        return str(value)
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def read_recipe(name: str, changes: list[str] | None = None, data: Sequence[str] | None = None) -> Recipe:
    """A recipe from a TOML file or a shipped one by name, with files in place of its data and `a.b=c` changes applied.

    A change without a value, `a.b=`, leaves the key to its default.
    """
    return _changed(_parse(*_locate(name)), changes, data)


def change_recipe(recipe: Recipe, changes: list[str] | None = None, data: Sequence[str] | None = None) -> Recipe:
    """The same of a recipe at hand."""
    if not changes and data is None:
        return recipe
    return _changed(recipe.model_dump(mode="json", exclude_none=True), changes, data)


def _changed(values: dict[str, Any], changes: list[str] | None, data: Sequence[str] | None) -> Recipe:
    if data is not None:
        replace_source(values, data)
    for change in changes or []:
        apply_change(values, change)
    return Recipe.model_validate(values)


def shipped() -> dict[str, str]:
    """The recipes in the package: name, and the sentence their first line says."""
    folder = files("regard") / "recipes"
    found = sorted((entry for entry in folder.iterdir() if entry.name.endswith(".toml")), key=lambda entry: entry.name)
    lines = {entry.name.removesuffix(".toml"): entry.read_text(encoding="utf-8").splitlines()[0] for entry in found}
    return {name: line.removeprefix("# ") for name, line in lines.items()}


def _locate(name: str) -> tuple[str, str]:
    """(what to call it, its text)."""
    path = Path(name)
    if name in shipped():
        return name, (files("regard") / "recipes" / f"{name}.toml").read_text(encoding="utf-8")
    if os.path.isfile(path):  # Path.is_file raises for a name that is too long
        try:
            return name, path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise FileError(f"{path} cannot be read: {error}", "give a TOML file") from error
    raise FileError(f"there is no recipe {name!r}", choose(name, shipped()) + ", or give a TOML file")


def _parse(name: str, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise FileError(f"{name} is not valid TOML: {error}", "correct that line") from error


def apply_change(values: dict[str, Any], change: str) -> None:
    """Set one key, or remove it where there is no value; the value is TOML if it reads as TOML, else a plain string."""
    path, equals, text = change.partition("=")
    keys = path.strip().split(".")
    if not equals or not all(keys):
        raise ConfigError(f"{change!r} is not a change", "write it as table.key=value, such as training.steps=100")
    if not text.strip():
        _require_known(keys)
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    for key in keys[:-1]:
        inner = values.setdefault(key, {})
        if isinstance(inner, str):
            inner = values[key] = {MAIN_KEYS.get(key, "name"): inner}
        if not isinstance(inner, dict):
            raise ConfigError(f"{change!r} goes inside {key!r}, which is not a table", "check the key")
        values = inner
    if text.strip():
        values[keys[-1]] = value
    else:
        values.pop(keys[-1], None)


def _require_known(keys: list[str]) -> None:
    """A key that is to be removed must be one that could be there."""
    known = {name: list(table.model_fields) for name, table in TABLES.items()}
    if keys[0] not in known:
        raise ConfigError(f"key {keys[0]!r} is unknown", choose(keys[0], known))
    if len(keys) > 1 and keys[1] not in known[keys[0]]:
        raise ConfigError(f"[{keys[0]}] key {keys[1]!r} is unknown", choose(keys[1], known[keys[0]]))
