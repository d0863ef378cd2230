"""`regard run`: do what the model is for, on one text or on every line of stdin."""

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.errors import InputError

if TYPE_CHECKING:
    from regard.api import Model

LINES_TOGETHER = 64


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
    seed: Annotated[int | None, typer.Option(help="Seed of sampling.")] = None,
    stream: Annotated[bool, typer.Option("--stream", help="Print the answer as it is made.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per text.")] = False,
) -> None:
    """Do what the model is for: a translator translates, a language model goes on, a classifier gives labels.

    Example: `regard run runs/demo "de: 3 mars 2021"`
    """
    from regard import api
    from regard.cli.options import decoding

    if stream and as_json:
        raise InputError("--stream and --json ask for two kinds of output", "use one of them")
    loaded = api.load(model)
    if context is not None:
        if text is None or loaded.task.name != "question_answering":
            what = "without a question" if text is None else f"on task {loaded.task.name!r}"
            raise InputError(f"--context has no effect {what}", "give both to a model that answers questions")
        text = f"{text}\t{context}"
    given = {"strategy": strategy, "beams": beams, "length_penalty": length_penalty, "temperature": temperature}
    given |= {"top_k": top_k, "top_p": top_p, "seed": seed, "max_new_tokens": max_new_tokens}
    if any(value is not None for value in given.values()):
        _ = loaded.writer  # refuses where no text is written, so that no option is without effect
        loaded = replace(loaded, decoding=decoding(loaded.decoding, given))
    if stream:
        for line in [text] if text is not None else stdin_lines():
            for piece in loaded.run(line, stream=True):
                print(piece, end="", flush=True)
            print()
        return
    answered = 0
    for group in [[text]] if text is not None else _groups(loaded.check):
        _answer(loaded, group, answered, as_json)
        answered += len(group)


def _answer(model: "Model", texts: list[str], first: int, as_json: bool) -> None:
    """Print the answers of a group; `first` is how many texts came before it, so that each draws its own numbers."""
    from regard.decoding.strategies import Sample

    usual = model.decoding.chosen()
    strategy = replace(usual, first=first) if isinstance(usual, Sample) else None
    for text, answer in zip(texts, model.answers(texts, strategy), strict=True):
        print(json.dumps({"input": text} | answer.record, ensure_ascii=False) if as_json else answer.text, flush=True)


def stdin_lines() -> Iterator[str]:
    """Lines of stdin; a terminal is told that we wait for it."""
    if sys.stdin is None:
        raise InputError("there is no text and no stdin to read it from", "give the text as an argument")
    if isinstance(sys.stdin, TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8-sig", errors="strict")
    if sys.stdin.isatty():
        print("one text per line; end with Ctrl-D", file=sys.stderr)
    try:
        for line in sys.stdin:
            yield line.rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise InputError(f"stdin is not UTF-8 text ({error.reason})", "convert it, for instance with iconv") from error


def _groups(check: Callable[[str], None]) -> Iterator[list[str]]:
    """Lines in groups, decoded together; from a terminal, one by one, so that each is answered at once.

    A line that cannot be used is named by its number, after those before it have been answered.
    """
    together = 1 if sys.stdin is None or sys.stdin.isatty() else LINES_TOGETHER
    group: list[str] = []
    for number, line in enumerate(stdin_lines(), start=1):
        try:
            check(line)
        except InputError as error:
            yield group
            raise InputError(f"line {number}: {error.problem}", error.remedy) from error
        group.append(line)
        if len(group) == together:
            yield group
            group = []
    if group:
        yield group
