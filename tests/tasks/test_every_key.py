"""No option is accepted in silence: of every base, every key with another value changes what is built, or is refused.

What is built: the network and its weights, its loss and gradients on the first batches, the batches, the optimizer, the
schedule, what decoding gives, what is measured; of keys that only a run shows, the files of a run of a few steps. A key
of several bases is tried in one of them here, in all of them in `make test-slow`.
"""

import copy
import hashlib
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import regard
from regard.api.training import prepare
from regard.attention.mechanism import MECHANISMS
from regard.attention.similarity import SIMILARITIES
from regard.data.corpus import Pair
from regard.data.stream import Position
from regard.errors import ConfigError, RegardError
from regard.tasks.keys import keys
from regard.tasks.recipe import Recipe, change_recipe, toml_value
from regard.tasks.task import held_out
from regard.training.compiling import pays
from regard.training.optimizer_table import OPTIMIZERS
from regard.training.optimizers import optimizer_of
from regard.training.precision import autocast
from regard.training.schedules import factor
from regard.training.updater import backward

WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
TEXT = "\n\n".join(f"{word} is a number and {other} is larger ." for word, other in pairwise(WORDS))
TRAINING = {"steps": 5, "batch_tokens": 120, "warmup": 2, "evaluate_every": 2, "save_every": 2}
SMALL = {"width": 12, "heads": 2, "layers": 1, "feedforward_width": 7}
RECURRENT = {"width": 8, "layers": 2}
TRANSLATION = {"task": "translation", "tokenizer": {"kind": "bpe", "size": 290}}
BASES: dict[str, dict[str, Any]] = {
    "translation": TRANSLATION
    | {
        "data": {"train": "pairs.tsv"},
        "model": SMALL | {"positions": "t5", "bias": False, "relative_buckets": 8, "relative_distance": 9},
    },
    "corpus": TRANSLATION
    | {"data": {"corpus": "copy", "options": {"held_out": 20}}, "model": SMALL, "decoding": {"strategy": "beam"}},
    "language": {
        "task": "language_modelling",
        "data": {"train": "text.txt", "window": 9},
        "tokenizer": {"kind": "characters", "size": 90},
        "model": SMALL
        | {
            "architecture": "decoder",
            "positions": "rotary",
            "rotary": {"scaling": "llama3", "factor": 2.0, "original_max_positions": 64},
        },
        "decoding": {"strategy": "sample"},
    },
    "chat": {
        "task": "chat",
        "data": {"train": "chats.jsonl", "window": 60},
        "tokenizer": {"kind": "characters", "size": 90},
        "model": SMALL | {"architecture": "decoder"},
    },
    "masked": {
        "task": "masked",
        "data": {"train": "text.txt", "window": 9},
        "tokenizer": {"kind": "wordpiece", "size": 90},
        "model": SMALL | {"architecture": "encoder", "head": "masked", "positions": "learned", "max_positions": 16},
    },
    "denoising": {
        "task": "denoising",
        "data": {"train": "text.txt", "window": 9},
        "tokenizer": {"kind": "characters", "size": 160},
        "model": SMALL | {"architecture": "encoder_decoder"},
    },
    "classification": {
        "task": "classification",
        "data": {"train": "labels.tsv", "window": 9},
        "tokenizer": {"kind": "wordpiece", "size": 90},
        "model": SMALL | {"architecture": "encoder", "head": "labels"},
    },
    "cloze": {
        "task": "cloze",
        "data": {"train": "gaps.tsv"},
        "tokenizer": {"kind": "characters", "size": 90},
        "model": SMALL | {"architecture": "encoder"},
    },
    "question_answering": {
        "task": "question_answering",
        "data": {"train": "asked.jsonl", "window": 23},
        "tokenizer": {"kind": "wordpiece", "size": 90},
        "model": SMALL | {"architecture": "encoder", "head": "spans"},
        "training": {"label_smoothing": 0.0},
    },
    "summarisation": {
        "task": "summarisation",
        "data": {"train": "pairs.tsv", "window": 9},
        "tokenizer": {"kind": "bpe", "size": 290},
        "model": SMALL,
    },
    **{
        name: TRANSLATION | {"data": {"train": "pairs.tsv"}, "model": RECURRENT | {"name": name}}
        for name in ("seq2seq", "bahdanau", "luong")
    },
}
BASES["adapter"] = BASES["classification"] | {
    "tokenizer": {},
    "model": {"from": "begun", "adapter": {"rank": 2, "targets": ["query", "up"]}},
}
for optimizer in [one for one in OPTIMIZERS if one != "adamw"]:
    tokenizer = {"kind": "wordpiece", "size": 50}
    BASES[optimizer] = BASES["classification"] | {
        "tokenizer": tokenizer,
        "training": {"optimizer": {"name": optimizer}},
    }
ATTENDING: dict[str, str] = {}
"""Bases that are there for the keys of one mechanism, with its name."""
for mechanism, shape in MECHANISMS.items():
    if mechanism != "exact" and len(shape.model_fields) > 1:
        sample = {"attention": {"name": mechanism, **shape.samples[0]}}
        values = BASES["language" if shape.abilities.causal else "masked"]
        positions = ("positions", "rotary", "max_positions")
        kept = {key: value for key, value in values["model"].items() if key not in positions}
        BASES[f"attention {mechanism}"] = values | {"model": kept | sample}
        ATTENDING[f"attention {mechanism}"] = mechanism
RUN = (
    *("evaluate_every", "save_every", "keep", "average", "patience", "metric", "metric_examples", "track", "clip"),
    "snapshots",
)
"""Keys of [training] that a run of a few steps shows."""
OTHERS: dict[str, list[Any]] = {
    "task.gaps": [[";"], ["<mask>", ";"]],
    "tokenizer.kind": ["bpe_words", "characters"],
    "data.corpus": ["sort"],
    "data.options": [{"symbols": 7}],
    "data.train": ["other.txt"],
    "data.valid": ["other.txt"],
    "data.test": ["other.txt"],
    "data.folder": ["elsewhere"],
    "data.columns": [{"source": "2", "target": "1"}],
    "data.split": [0.6],
    "data.window": [7],
    "data.round_to": [4],
    "data.seed": [11],
    "data.format": ["jsonl", "whole"],
    "model.name": ["nobody"],
    "model.vectors": ["vectors.txt"],
    "model.epsilon": [0.3],
    "model.max_positions": [5],
    "model.similarity": list(SIMILARITIES),
    **{f"model.{key}": [{"value_width": 5}] for key in ("attention", "encoder_attention", "cross_attention")},
    "model.attention.window": [2],
    "model.attention.biases": [["query"], ["query", "value"]],
    "model.attention.value_width": [5],
    "model.attention.softcap": [0.5],
    "model.attention.rotary": [{"base": 7.0}],
    "model.attention.buckets": [[4, 4]],
    "model.residual": [False, "reversible"],
    "model.embedding_width": [6],
    "model.encoder_layers": [3],
    "tokenizer.sample": [3],
    "model.relative_distance": [6],
    "training.batch_tokens": [60],
    "training.optimizer.betas": [[0.5, 0.7]],
    "training.layer_decay": [0.5],
    "training.rate_factors": [{"output": 3.0}, {"embedding": 3.0}],
    "training.freeze": [["embedding"]],
    "model.adapter.targets": [["query"]],
    "training.precision": ["bfloat16"],
    "training.device": ["cuda", "meta"],
    "training.snapshots": [[2]],
    "training.metric": ["exact_match", "accuracy", "perplexity", "f1"],
    "decoding.max_new_tokens": [2],
    "decoding.eos_ids": [[*range(250)]],
    "decoding.suppressed": [[*range(200)]],
    "decoding.forced_bos": [9],
    "decoding.forced_eos": [9],
    "decoding.top_k": [2],
    "decoding.top_p": [0.2],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    found = tmp_path_factory.mktemp("keys")
    pairs = [f"{word} and {other}\t{other} und {word}" for word, other in zip(WORDS, WORDS[::-1], strict=True)] * 2
    (found / "pairs.tsv").write_text("\n".join(pairs) + "\n")
    (found / "text.txt").write_text(TEXT + "\n")
    (found / "other.txt").write_text("six is six\tsechs ist sechs\n" * 12)
    gaps = [f"{word[:2]}<mask>{word[3:]} ;\t{word[2]}\n" for word in WORDS] * 2
    (found / "gaps.tsv").write_text("".join(gaps))
    (found / "labels.tsv").write_text("".join(f"{word} is good\tyes\n{word} is bad\tno\n" for word in WORDS))
    for word in WORDS:
        said = [("user", f"how {word}?"), ("assistant", f"very {word}."), ("user", "so?"), ("assistant", "yes.")]
        messages = [{"role": role, "content": content} for role, content in said]
        with (found / "chats.jsonl").open("a") as file:
            file.write(json.dumps({"messages": messages}) + "\n")
    asked = [{"question": f"how {word}?", "context": f"it is {word}.", "answer": word} for word in WORDS]
    (found / "asked.jsonl").write_text("".join(json.dumps(one) + "\n" for one in asked))
    plain = BASES["masked"] | {
        "training": TRAINING | {"steps": 1},
        "data": {"train": str(found / "text.txt"), "window": 9},
    }
    regard.train(Recipe.model_validate(plain), found / "begun", progress=False)
    (found / "vectors.txt").write_text("1 12\n" + "a " + " ".join("0.5" for _ in range(12)) + "\n")
    return found


@pytest.fixture(autouse=True)
def fewer_examples(monkeypatch, folder):
    monkeypatch.setattr("regard.data.stream.POOL", 32)
    monkeypatch.chdir(folder)


def base(name: str) -> Recipe:
    values = copy.deepcopy(BASES[name])
    values["training"] = TRAINING | values.get("training", {})
    return Recipe.model_validate(values)


def digest(thing: Any) -> str:
    """Of nested values and tensors."""
    if isinstance(thing, Tensor):
        return hashlib.sha1(thing.detach().float().cpu().numpy().tobytes()).hexdigest()
    if isinstance(thing, dict):
        return repr({key: digest(value) for key, value in thing.items()})
    return repr([digest(one) for one in thing]) if isinstance(thing, list | tuple) else repr(thing)


def built(recipe: Recipe) -> str:
    """Everything that is made of a recipe before a run."""
    made = prepare(recipe, None)
    plan, data, module = made.plan.training, made.training_data, made.module
    stream = data.batches.start(Position())
    batches = [next(stream)[0] for _ in range(2)]
    parts = [
        [batch.inputs.tokens.ids, batch.inputs.tokens.documents, batch.targets]
        for batch in (*batches, *data.validation)
    ]
    sources = [batch.inputs.source.ids for batch in batches if batch.inputs.source is not None]
    torch.manual_seed(3)
    module.train()
    with autocast(plan, module.device):
        loss = data.trainable.loss(batches[0])
    backward(data.trainable, batches[: plan.accumulate], plan)
    gradients = [one.grad for one in module.parameters() if one.grad is not None]
    groups = [
        {key: value for key, value in group.items() if key != "params"}
        for group in optimizer_of(module, plan).param_groups
    ]
    rates = [
        factor(plan.schedule, step, warmup=plan.warmup, steps=plan.steps, floor=plan.min_rate_ratio)
        for step in range(1, 9)
    ]
    known = pays(plan, torch.device("cpu"), data.validation)
    measured = [held_out(made.data, split, 5) for split in ("valid", "test")]
    module.eval()
    answers = answered(made, held_out(made.data, "valid", 3)) if recipe.task.writes else None
    kept = [sorted((name, digest(one)) for name, one in module.state_dict().items()), made.tokenizer.to_json()]
    return digest(
        [
            kept,
            loss.sum,
            gradients,
            parts,
            sources,
            groups,
            rates,
            plan.steps,
            plan.accumulate,
            known,
            measured,
            answers,
        ]
    )


def answered(made: Any, examples: list[Any]) -> Any:
    """What decoding finds, with its scores, and what is measured of it."""
    plan = made.plan
    model = regard.Model(made.module, made.tokenizer, made.task, plan.decoding, plan)
    texts = [one[0] for one in examples] if plan.task.name == "translation" else ["one", "two is"]
    texts = ["one <extra_id_0> two"] if plan.task.name == "denoising" else texts
    found = [[(one.ids, one.score) for one in ranked] for ranked in made.task.ranked(model, texts, None, None)]
    figures = model.evaluate([Pair(texts[0], ".,")]) if plan.task.name == "translation" else None
    bleu = getattr(plan.task, "bleu", None) if figures and "bleu" in figures else None
    return [found, figures, bleu]


def ran(recipe: Recipe, out: Path) -> str:
    """The files of a run, without its times."""
    said: list[str] = []
    regard.train(recipe, out, listener=Heard(said))
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    timeless = [{key: value for key, value in line.items() if "second" not in key} for line in lines]
    files = sorted(
        str(path.relative_to(out)).split("events.")[0] for path in out.rglob("*") if "began" not in path.name
    )
    weights = hashlib.sha1((out / "model.safetensors").read_bytes()).hexdigest()
    return repr([timeless, files, weights, [one for one in said if "best" in one]])


class Heard:
    """A listener that keeps what is said."""

    def __init__(self, said: list[str]) -> None:
        self.said = said

    def __call__(self, report: Any) -> None:
        pass

    def say(self, sentence: str) -> None:
        self.said.append(sentence)


def others(path: str, kind: str, value: Any) -> list[Any]:
    """Values that a key could have instead."""
    if path in OTHERS:
        return [one for one in OTHERS[path] if one != value]
    if "true | false" in kind and isinstance(value, bool | str):
        return [value is not True]
    if " | " in kind:
        return [one for one in kind.split(" | ") if one != value]
    if isinstance(value, float) and 0 < value < 1:
        return [value / 3]
    if isinstance(value, int | float):
        return [value + 1]
    if value is None:
        return [0.5, 3, 2, 1]
    return [f"{value}x"]


def cases() -> list[Any]:
    """Every base with every key of its tables; a key that was there before is slow."""
    found, seen = [], set()
    for name, values in BASES.items():
        task, network = values["task"], values["model"].get("name", "transformer")
        members = {"task": task, "model": "checkpoint" if "from" in values["model"] else network}
        members["training.optimizer"] = values.get("training", {}).get("optimizer", {"name": "adamw"})["name"]
        for key in keys():
            table, _, rest = key.table.partition(": ")
            member, _, inner = rest.partition(".")
            inner, _, mechanism = inner.partition(": ")
            attends = ATTENDING.get(name, "exact")
            if mechanism not in ("", attends) or (name in ATTENDING and not mechanism):
                continue
            if member != members.get(table, "") or key.name == "name":
                continue
            path = ".".join(part for part in (table, inner, key.name) if part)
            writes = table != "decoding" or "decoding" in values or name == "translation"
            same = (path, member if table in members else "")
            marks = [pytest.mark.slow] if same in seen or not writes else []
            seen |= {same} if writes else set()
            found.append(pytest.param(name, path, key.kind, marks=marks, id=f"{name}-{path}"))
    return found


def value_at(recipe: Recipe, path: str) -> Any:
    found: Any = recipe.tables()
    for part in path.split("."):
        found = None if found is None else found.get(part)
    return found


BUILT: dict[str, str] = {}
"""What is built of each base, once."""


@pytest.mark.parametrize(("name", "path", "kind"), cases())
def test_a_key_changes_something_or_is_refused(name, path, kind, tmp_path):
    plain = base(name)
    silent = []
    for value in others(path, kind, value_at(plain, path)):
        try:
            changed = change_recipe(plain, [f"{path}={written(value)}"])
            if path.split(".")[-1] in RUN:
                if name not in ("translation", "classification"):
                    return  # the loop is one for all tasks
                if (key := f"{name} run") not in BUILT:
                    BUILT[key] = ran(plain, tmp_path / "plain")
                before, after = BUILT[key], ran(changed, tmp_path / f"changed-{value}")
            else:
                if name not in BUILT:
                    BUILT[name] = built(plain)
                before, after = BUILT[name], built(changed)
        except RegardError:
            return
        if before != after:
            return
        silent.append(value)
    raise AssertionError(f"{path} may be {silent} instead of {value_at(plain, path)!r} and nothing changes")


def written(value: Any) -> str:
    """As TOML."""
    if not isinstance(value, dict):
        return toml_value(value)
    return f"{{{', '.join(f'{key} = {toml_value(one)}' for key, one in value.items())}}}"


def test_the_walk_would_notice_a_key_without_effect(monkeypatch):
    """A key that nothing reads is seen: the proof that the walk can fail."""
    from regard.models.transformer import TransformerShape

    monkeypatch.setattr(TransformerShape, "idle", lambda self: {})
    plain = base("corpus")
    assert built(plain) == built(change_recipe(plain, ["model.relative_buckets=9"]))
    monkeypatch.undo()
    with pytest.raises(ConfigError, match=r"relative_buckets = 9 has no effect; use model.positions=t5"):
        change_recipe(plain, ["model.relative_buckets=9"])
