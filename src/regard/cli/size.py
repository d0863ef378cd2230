"""`regard size`: parameters, memory and work of a model, counted without building it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.options import Plugin
from regard.cli.output import to_json
from regard.errors import InputError, choose
from regard.files import read_json

if TYPE_CHECKING:
    from regard.models.network import NetworkConfig
    from regard.models.size import Beside, Memory, Size
    from regard.tasks.recipe import Recipe

UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def size(
    what: Annotated[
        str, typer.Argument(help="A family, one of its sizes, a recipe, a model folder, or a llama2.c .bin.")
    ],
    context: Annotated[
        int | None, typer.Option(min=1, help="Tokens of a text; as many as the model is made for if absent.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    plugin: Plugin = None,
) -> None:
    """Count what a model takes: parameters, memory to run and to train it, operations for a token.

    Nothing is allocated: the size of GPT-3 takes no more memory to compute than any other.

    Example: `regard size gpt2-xl`
    """
    from regard.models.families import FAMILIES
    from regard.models.size import size_of

    if what in FAMILIES:
        sizes = {name: size_of(FAMILIES[what].config(name), context) for name in FAMILIES[what].sizes}
        if as_json:
            typer.echo(to_json({name: _record(one) for name, one in sizes.items()}))
        else:
            typer.echo("\n".join(_overview(sizes)))
        return
    asked = _asked(what)
    found = size_of(asked.config, context or asked.window, asked.adapter)
    if as_json:
        vocabulary = {"vocabulary_at_most" if asked.at_most else "vocabulary": asked.config.vocabulary}
        typer.echo(to_json({"name": what, **vocabulary, **_record(found)}))
    else:
        typer.echo("\n".join(_page(what, found, at_most=asked.at_most)))


@dataclass(frozen=True)
class Described:
    """A model, and what is known of the texts it is for."""

    config: "NetworkConfig"
    window: int | None = None
    """Tokens read at once, where a recipe says."""
    at_most: bool = False
    """Whether the vocabulary may be smaller: a tokenizer that is not learnt yet has no more than its recipe says."""
    adapter: "Beside | None" = None
    """With adapters, what they stand beside."""


def _asked(what: str) -> Described:
    """The model that a name, a folder or a file describes."""
    from regard.models.families import FAMILIES

    known = {_plain(name): (family, name) for family in FAMILIES.values() for name in family.sizes}
    if _plain(what) in known:
        family, name = known[_plain(what)]
        return Described(family.config(name))
    path = Path(what)
    if what.count("/") == 1:
        from regard.interop.hub import located

        path = located(path, weights=False)
    try:
        folder, file = path.is_dir(), path.is_file()
    except OSError:  # a name that is too long
        folder = file = False
    if folder:
        return _of_folder(path)
    if file and path.suffix == ".bin":
        from regard.interop.llama2c import read_llama2c

        return Described(read_llama2c(path)[0])
    return _of_recipe(what, [name for _, name in known.values()] + list(FAMILIES))


def _plain(name: str) -> str:
    """`GPT-2`, `gpt_2` and `gpt2` are one name."""
    return name.lower().replace("-", "").replace("_", "")


def _of_folder(folder: Path) -> Described:
    """From config.json; of the weights only the names are read."""
    from regard.interop.huggingface import is_huggingface, read_config
    from regard.interop.peft import is_adapter
    from regard.interop.tensors import opened
    from regard.models.checkpoint import CONFIG, read_own_config
    from regard.tasks.recipe import parse_recipe, read_recipe

    read_json(folder / CONFIG, "give the folder of a trained model; `regard train` writes one")
    if not is_huggingface(folder):
        config = read_own_config(folder)
        tables = parse_recipe(str(folder / "recipe.toml")) if (folder / "recipe.toml").is_file() else {}
        recipe = read_recipe(str(folder / "recipe.toml")) if "training" in tables else None
        if recipe is not None and is_adapter(folder):
            return replace(_fine_tuned(recipe), config=config)
        return Described(config, None if recipe is None else _window(recipe))
    if not any(folder.glob("*.safetensors")):
        return Described(read_config(folder))
    with opened(folder) as tensors:
        return Described(read_config(folder, tensors.places))


def _of_recipe(name: str, sizes: list[str]) -> Described:
    from regard.tasks.recipe import read_recipe, shipped

    if not name.endswith(".toml") and name not in shipped():
        raise InputError(f"{name!r} is no family, size, recipe or model folder", choose(name, [*sizes, *shipped()]))
    recipe = read_recipe(name)
    if recipe.model.begins_in is not None:
        return _fine_tuned(recipe)
    labels = ("0", "1") if recipe.model.outputs == "labels" else ()  # how many there are is in the data
    config = recipe.model.built_for(recipe.tokenizer.size, labels)
    return Described(config, _window(recipe), at_most=True)


def _fine_tuned(recipe: "Recipe") -> Described:
    """The network of the folder it begins in, with the head that its task needs."""
    from regard.models.network import Checkpoint
    from regard.models.size import Beside
    from regard.tasks.task import task_of

    assert isinstance(recipe.model, Checkpoint)
    base, outputs = _of_folder(Path(recipe.model.folder)).config, task_of(recipe.task).needs.outputs
    config = (
        base if base.outputs in outputs else base.with_head(outputs[0], ("0", "1") if outputs[0] == "labels" else ())
    )
    adapter = recipe.model.adapter and Beside(recipe.model.adapter, base)
    return Described(config, _window(recipe), adapter=adapter or None)


def _window(recipe: "Recipe") -> int | None:
    """Tokens the task reads at once; None where that is up to the texts."""
    from regard.tasks.files import window_of

    reads = recipe.data is not None and "window" in recipe.task.data_keys
    return window_of(recipe.model, recipe.data) if reads else None


def _record(size: "Size") -> dict[str, Any]:
    """For programs: plain numbers, memory in bytes."""
    counts = {**size.parts, "total": size.parameters}
    counts |= {} if size.learnt == size.parameters else {"learn": size.learnt}
    memory = {name: vars(one) for name in _MEMORY if (one := getattr(size, name)) is not None}
    work = {"forward": size.work.forward, "training": size.work.training}
    return {"context": size.context, "parameters": counts, "bytes": memory, "flops_per_token": work}


_MEMORY = (
    "weights",
    "int8_weights",
    "cache",
    "whole_cache",
    "trained_weights",
    "gradients",
    "moments",
    "state",
    "activations",
)


def _overview(sizes: "dict[str, Size]") -> list[str]:
    """A line for every size of a family."""
    rows = [("", "parameters", "to run, bfloat16", "to train, mixed", "work, a token")]
    for name, one in sizes.items():
        memory = _bytes(one.weights.bfloat16), _bytes(one.state.bfloat16)
        rows.append((name, f"{one.parameters:,}", *memory, _operations(one.work.forward)))
    return _aligned(rows)


def _page(name: str, size: "Size", *, at_most: bool) -> list[str]:
    """Everything about one model."""
    rows = [("parameters", f"{size.parameters:,}", "")]
    rows += [
        (f"  {part}", f"{count:,}", f"{100 * count / size.parameters:.1f} %") for part, count in size.parts.items()
    ]
    if size.learnt != size.parameters:
        rows.append(("  of these learn", f"{size.learnt:,}", f"{100 * size.learnt / size.parameters:.1f} %"))
    rows += [("", "", ""), ("to run", "float32", "bfloat16"), _memory("  weights", size.weights)]
    rows.append(_memory("  weights, maps in int8", size.int8_weights))
    if size.cache.float32:
        tokens = " + ".join([f"{size.context:,}"] * size.estimates.cached_texts)
        rows.append(_memory("  cache, a token", size.cache))
        rows.append(_memory(f"  cache, {tokens} tokens", size.whole_cache))
    rows += [("", "", ""), ("to train", "float32", "mixed"), _memory("  weights", size.trained_weights)]
    rows += [_memory("  gradients", size.gradients), _memory("  AdamW's moments", size.moments)]
    rows.append(_memory("  together", size.state))
    if size.activations is not None:
        rows.append(_memory("  activations, a token", size.activations))
    rows += [("", "", ""), ("work", "forward", "training")]
    rows.append(("  FLOPs, a token", _operations(size.work.forward), _operations(size.work.training)))
    vocabulary = f"vocabulary {'at most ' if at_most else ''}{size.config.vocabulary:,}"
    head = f"{name}: {size.config.words}, {vocabulary}, texts of {size.context:,} tokens"
    return [head, "", *_aligned(rows), "", *_formulas(size)]


def _formulas(size: "Size") -> list[str]:
    """How the numbers come about."""
    said = dict(size.estimates.formulas)
    kept = "" if size.activations is None else "; activations in bfloat16"
    said["mixed"] = f"all in float32, and the matrices once more in bfloat16{kept}"
    said["work"] = f"{said.get('work', 'as the network says')}; training 3 ×"
    order = ("a token", "cache", "mixed", "activations", "work")
    return [f"{label:<12} {said[label]}" for label in (*order, *(set(said) - set(order))) if label in said]


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    lines = []
    for row in rows:
        numbers = "  ".join(f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True))
        lines.append(f"{row[0]:<{widths[0]}}  {numbers}".rstrip())
    return lines


def _memory(label: str, memory: "Memory") -> tuple[str, str, str]:
    return label, _bytes(memory.float32), _bytes(memory.bfloat16)


def _bytes(count: int) -> str:
    """Bytes as people say them."""
    unit = min((count.bit_length() - 1) // 10, len(UNITS) - 1) if count else 0
    return f"{count / 1024**unit:.1f} {UNITS[unit]}" if unit else f"{count} {UNITS[0]}"


def _operations(count: float) -> str:
    """Operations as people say them."""
    for power, unit in ((15, "P"), (12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if count >= 10**power:
            return f"{count / 10**power:.1f} {unit}"
    return f"{count:.0f}"
