"""`regard run`: do what the model is for, on one text or on every line of stdin."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.options import Adapters, Device, Plugin, Precision, adapters, decoding
from regard.errors import InputError

if TYPE_CHECKING:
    from regard.api import Model


def run(
    model: Annotated[Path, typer.Argument(help="A model folder.")],
    text: Annotated[str | None, typer.Argument(help="The text; every line of stdin if absent.")] = None,
    context: Annotated[
        str | None, typer.Option(help="The passage that answers TEXT; on stdin, it stands after a tab.")
    ] = None,
    strategy: Annotated[str | None, typer.Option(help="greedy, sample or beam; the model's own if absent.")] = None,
    beams: Annotated[int | None, typer.Option(help="Width of the beam.")] = None,
    length_penalty: Annotated[
        float | None, typer.Option(help="Power of the length a beam's score is divided by.")
    ] = None,
    temperature: Annotated[float | None, typer.Option(help="Below 1 sharper, above 1 flatter.")] = None,
    top_k: Annotated[int | None, typer.Option(help="Sample among this many tokens.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Sample among the most likely tokens that reach this.")] = None,
    max_new_tokens: Annotated[int | None, typer.Option(help="Length limit of the answer.")] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of sampling; if absent the recipe's, or a fresh one, which is printed.")
    ] = None,
    samples: Annotated[int | None, typer.Option(min=1, help="Draw so many answers to each text, a line each.")] = None,
    n_best: Annotated[
        int | None, typer.Option(min=1, help="The best so many of a beam, a line each; at most its width.")
    ] = None,
    stream: Annotated[bool, typer.Option("--stream", help="Print the answer as it is made.")] = False,
    special_tokens: Annotated[
        bool, typer.Option("--special-tokens", help="Names of special tokens in the text are these tokens.")
    ] = False,
    adapter: Adapters = None,
    device: Device = "auto",
    precision: Precision = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per text.")] = False,
    plugin: Plugin = None,
) -> None:
    """Do what the model is for: a translator translates, a language model goes on, a classifier gives labels.

    A line of stdin that cannot be answered gives an empty line, and the reason on stderr (with --json, an object with
    error, remedy and line in its place); the others get their answers. Exit status: 0 if every text was answered, 1 if
    one was not.

    Example: `regard run runs/demo "de: 3 mars 2021"`
    """
    from regard import api
    from regard.cli.answering import Answering, Several

    if stream and (as_json or samples is not None):
        other = "--json" if as_json else "--samples"
        raise InputError(f"--stream and {other} ask for two kinds of output", "use one of them")
    one = stream or samples is not None or n_best is not None
    loaded, through = _loaded(api.load(model, device, precision, adapters=adapters(adapter)), special_tokens, one)
    text = _with_context(loaded, text, context)
    given = {"strategy": strategy, "beams": beams, "length_penalty": length_penalty, "temperature": temperature}
    given |= {"top_k": top_k, "top_p": top_p, "seed": seed, "max_new_tokens": max_new_tokens}
    several = Several(samples, n_best)
    asked = _decoding_so(loaded, several.implied(given), n_best)
    answering = Answering(asked, several, as_json, {name: _decoding_so(each, given) for name, each in through.items()})
    if text is not None:
        answering.stream(text) if stream else answering.one(text)
    elif not (answering.streamed_lines() if stream else answering.lines()):
        raise typer.Exit(1)


def _loaded(model: "Model", special_tokens: bool, one: bool) -> "tuple[Model, dict[str, Model]]":
    """The model that is asked, through its adapter where one is named, and several by name where each answers."""
    through = dict(model.adapters)
    if len(through) > 1 and one:
        what = f"{len(through)} adapters give an answer each, and --stream, --samples and --n-best are of one"
        raise InputError(what, "name one adapter")
    if special_tokens:
        model, *others = (
            replace(each, tokenizer=each.tokenizer.parsing_special_tokens) for each in (model, *through.values())
        )
        through = dict(zip(through, others, strict=True))
    return next(iter(through.values()), model), through if len(through) > 1 else {}


def _with_context(model: "Model", text: str | None, context: str | None) -> str | None:
    """A question and its passage, where they are given apart."""
    if context is None:
        return text
    if text is None or model.task.name != "question_answering":
        what = "without a question" if text is None else f"on task {model.task.name!r}"
        raise InputError(f"--context has no effect {what}", "give both to a model that answers questions")
    return f"{text}\t{context}"


def _decoding_so(model: "Model", given: dict[str, Any], n_best: int | None = None) -> "Model":
    """The model with the decoding that was asked for, and a seed where it needs one."""
    from regard.cli.answering import with_seed
    from regard.decoding.strategies import Beam

    if any(value is not None for value in given.values()):
        _ = model.writer  # refuses where no text is written, so that no option is without effect
        model = replace(model, decoding=decoding(model.decoding, given))
    chosen = model.decoding.chosen()
    if n_best is not None and isinstance(chosen, Beam) and n_best > chosen.size:
        raise InputError(f"--n-best {n_best} is more than a beam of {chosen.size} holds", f"use --beams {n_best}")
    return with_seed(model)
