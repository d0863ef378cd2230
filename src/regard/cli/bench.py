"""`regard bench`: speed and memory side by side with the peers, in one run."""

from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.bench_attention import MechanismsAsked
from regard.cli.options import Device, Plugin, Quiet
from regard.cli.output import to_json
from regard.errors import InputError
from regard.files import read_json


class Subject(StrEnum):
    """What can be measured."""

    ATTENTION = "attention"
    TRAIN = "train"
    DECODE = "decode"
    FAMILIES = "families"
    TOKENIZER = "tokenizer"
    VECTORS = "vectors"


ON_GPU = (Subject.ATTENTION, Subject.TRAIN, Subject.DECODE)
"""What can be measured on a GPU too, and is where there is one."""

Minutes = Annotated[float | None, typer.Option(help="Of attention and decode: begin nothing new after so many.")]
Resume = Annotated[bool, typer.Option("--resume", help="Of attention and decode: go on with what --out holds.")]

Questions = Annotated[
    Path | None, typer.Option(help="Of vectors: the folder of wordsim353.tsv and questions-words.txt.gz.")
]
Sentences = Annotated[int | None, typer.Option(min=1, help="Of decode on a CPU: translate so many, and no more.")]


def bench(
    subject: Annotated[Subject, typer.Argument(help="What to measure.")],
    out: Annotated[Path | None, typer.Option(help="Keep the figures in this JSON file.")] = None,
    device: Device = "auto",
    data: Annotated[Path | None, typer.Option(help="Of tokenizer and vectors: the text, such as enwik8.gz.")] = None,
    questions: Questions = None,
    length: Annotated[
        list[int] | None, typer.Option(help="Of attention: mechanisms at this length; repeat it.")
    ] = None,
    mechanism: Annotated[list[str] | None, typer.Option(help="Of attention: this one and exact; repeat it.")] = None,
    causal: Annotated[bool, typer.Option("--causal", help="Of attention: mechanisms as a decoder has them.")] = False,
    minutes: Minutes = None,
    on: Annotated[
        Path | None, typer.Option(help="Of attention: a text, for the error against exact attention.")
    ] = None,
    model: Annotated[Path | None, typer.Option(help="Of attention: the trained model that reads the text.")] = None,
    resume: Resume = False,
    sentences: Sentences = None,
    to: Annotated[Path | None, typer.Option(help="Of attention: the curves by length, a .png, .svg or .pdf.")] = None,
    quiet: Quiet = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    plugin: Plugin = None,
) -> None:
    """Measure side by side with the peers that are installed.

    Ratios are of times, regard's at its best being 1; an asterisk marks the faster precision of a contestant. Of
    attention: first kernels, then mechanisms by length, for which 1 is exact attention; with an option of mechanisms,
    these alone.

    Example: `regard bench train --out benchmarks/results/train-cpu.json`, or
    `regard bench attention --length 1024 --length 4096 --mechanism performer`
    """
    from regard.bench.timing import circumstances, keep
    from regard.devices import usable_device
    from regard.training.progress import MeasuringBar, console

    asked = MechanismsAsked(length or [], mechanism or [], causal, minutes, on, model, resume)
    chosen = usable_device(device).type
    if subject not in ON_GPU:
        if device == "cuda":
            raise InputError(f"`bench {subject}` measures the CPU, not 'cuda'", "leave --device out")
        chosen = "cpu"
    _refuse(subject, chosen, data, questions, asked, sentences, out, to)
    kept = read_json(out, "leave --resume out")["rows"] if resume and out is not None and out.is_file() else []
    found: list[dict[str, Any]] = []
    total = asked.count(chosen) if subject == Subject.ATTENTION and asked.anything else None
    with MeasuringBar(console(quiet)) as bar:
        for row in _text_rows(subject, data, questions) or _rows(subject, chosen, asked, kept, sentences, quiet):
            found.append(row)
            if not (quiet and as_json):  # beside JSON these lines are progress
                typer.echo(_line(row), err=as_json)
            if total is not None:
                bar(min(len(found), total), total)
            if out is not None:
                keep(out, found, chosen)  # row by row: what was measured stays where the rest is not waited for
    if to is not None:
        _draw(to, found, chosen)
    if as_json:
        typer.echo(to_json({**circumstances(chosen), "rows": found}))


def _refuse(
    subject: Subject,
    device: str,
    data: Path | None,
    questions: Path | None,
    asked: MechanismsAsked,
    sentences: int | None,
    out: Path | None,
    to: Path | None,
) -> None:
    """Options that would have no effect, before anything is measured."""
    if sentences is not None and (subject != Subject.DECODE or device != "cpu"):
        raise InputError("--sentences are translated by `bench decode` on a CPU", "leave them out, or add --device cpu")
    if data and subject not in (Subject.TOKENIZER, Subject.VECTORS):
        raise InputError(f"`bench {subject}` makes its own data", "leave --data out")
    if questions and subject != Subject.VECTORS:
        raise InputError(f"`bench {subject}` asks no questions", "leave --questions out")
    in_parts = subject == Subject.DECODE and device == "cpu"
    others = replace(asked, minutes=None, resume=False) if in_parts else asked
    if subject != Subject.ATTENTION and (others.anything or to is not None):
        raise InputError(
            f"`bench {subject}` measures no mechanisms", "use `bench attention`, or leave their options out"
        )
    if asked.resume and out is None:
        raise InputError("--resume has nothing to go on with", "name the file with --out")
    if to is not None:
        from regard.views.figure import check_format

        if asked.on is not None:
            raise InputError("--to draws curves by length and --on measures none", "leave one of them out")
        check_format(to)


def _draw(to: Path, found: list[dict[str, Any]], device: str) -> None:
    from regard.bench.timing import circumstances
    from regard.views.figure import draw_to
    from regard.views.growth import draw_growth

    draw_to(to, lambda: draw_growth(found, "Attention by length", str(circumstances(device)["device"])))


def _rows(
    subject: Subject,
    device: str,
    asked: MechanismsAsked,
    kept: list[dict[str, Any]],
    sentences: int | None,
    quiet: bool,
) -> Iterator[dict[str, Any]]:
    """The figures of a subject, as they come; a peer that is not installed is named."""
    from regard.bench import attention, decoding, families, training, training_on_gpu
    from regard.bench.timing import installed
    from regard.training.malloc import keep_freed_memory

    if subject == Subject.ATTENTION:
        keep_freed_memory()  # contestants of the other subjects have processes of their own
        mechanisms = asked.rows(device, kept)
        return mechanisms if asked.anything else chain(attention.rows(device), mechanisms)
    trained = training_on_gpu if device == "cuda" else training
    peers, rows = {
        Subject.TRAIN: (trained.PEERS, trained.rows),
        Subject.DECODE: (decoding.PEERS, partial(decoding.rows, device, kept, asked.until, sentences)),
        Subject.FAMILIES: (families.PEERS, families.rows),
    }[subject]
    for name, package in peers.items():
        if not installed(package) and not quiet:
            typer.echo(f"{name} is not installed, so its rows are left out; `pip install {name}`", err=True)
    found: Iterator[dict[str, Any]] = rows()
    return found


def _text_rows(subject: Subject, data: Path | None, questions: Path | None) -> Iterator[dict[str, Any]] | None:
    """Those of tokenizers and word vectors, which read a text."""
    from regard.bench import tokenizer, vectors

    if subject == Subject.TOKENIZER:
        return tokenizer.rows(data)
    return vectors.rows(data, questions) if subject == Subject.VECTORS else None


def _line(row: dict[str, Any]) -> str:
    """A row for people."""
    name = f"{row['contestant']}, {row['precision']}" if "precision" in row else row["contestant"]
    if "tokens" in row:
        name = f"{name}, {row['tokens']:,} tokens"
    ratio = f"  ×{row['ratio']:.2f}" if "ratio" in row else ""
    return f"{row['what']:<88} {name:<48} {_figure(row)}{ratio}"


def _figure(row: dict[str, Any]) -> str:
    if "figure" in row:
        return f"{row['figure']:>20}"
    if "tokens_per_second" in row:
        return f"{row['tokens_per_second']:>10,.0f} tokens/s{'*' if row['faster'] else ' '}"
    if "milliseconds" not in row:
        return f"{row['extra_peak_bytes']:>10,} B"
    held = f"  {row['peak_bytes'] / 1e6:>9,.1f} MB" if "tokens" in row and "peak_bytes" in row else ""
    return f"{row['milliseconds']:>10.2f} ms{held}"
