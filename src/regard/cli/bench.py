"""`regard bench`: speed and memory side by side with the peers, in one run."""

from collections.abc import Iterator
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.options import Device, Plugin
from regard.cli.output import to_json
from regard.errors import InputError


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


def bench(
    subject: Annotated[Subject, typer.Argument(help="What to measure.")],
    out: Annotated[Path | None, typer.Option(help="Keep the figures in this JSON file.")] = None,
    device: Device = "auto",
    data: Annotated[Path | None, typer.Option(help="Of tokenizer and vectors: the text, such as enwik8.gz.")] = None,
    questions: Annotated[
        Path | None, typer.Option(help="Of vectors: the folder of wordsim353.tsv and questions-words.txt.gz.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    plugin: Plugin = None,
) -> None:
    """Measure side by side with the peers that are installed.

    Ratios are of times, regard's at its best being 1; an asterisk marks the faster precision of a contestant.

    Example: `regard bench train --out benchmarks/results/train-cpu.json`
    """
    from regard.bench.timing import circumstances, keep
    from regard.devices import usable_device

    chosen = usable_device(device).type
    if subject not in ON_GPU:
        if device == "cuda":
            raise InputError(f"`bench {subject}` measures the CPU, not 'cuda'", "leave --device out")
        chosen = "cpu"
    if data and subject not in (Subject.TOKENIZER, Subject.VECTORS):
        raise InputError(f"`bench {subject}` makes its own data", "leave --data out")
    if questions and subject != Subject.VECTORS:
        raise InputError(f"`bench {subject}` asks no questions", "leave --questions out")
    found = []
    for row in _text_rows(subject, data, questions) or _rows(subject, chosen):
        found.append(row)
        name = f"{row['contestant']}, {row['precision']}" if "precision" in row else row["contestant"]
        typer.echo(f"{row['what']:<88} {name:<48} {_figure(row)}  ×{row['ratio']:.2f}", err=as_json)
        if out is not None:
            keep(out, found, chosen)  # row by row: what was measured stays where the rest is not waited for
    if as_json:
        typer.echo(to_json({**circumstances(chosen), "rows": found}))


def _rows(subject: Subject, device: str) -> Iterator[dict[str, Any]]:
    """The figures of a subject, as they come; a peer that is not installed is named."""
    from regard.bench import attention, decoding, families, training, training_on_gpu
    from regard.bench.timing import installed
    from regard.training.malloc import keep_freed_memory

    if subject == Subject.ATTENTION:
        keep_freed_memory()  # contestants of the other subjects have processes of their own
        return attention.rows(device)
    trained = training_on_gpu if device == "cuda" else training
    peers, rows = {
        Subject.TRAIN: (trained.PEERS, trained.rows),
        Subject.DECODE: (decoding.PEERS, partial(decoding.rows, device)),
        Subject.FAMILIES: (families.PEERS, families.rows),
    }[subject]
    for name, package in peers.items():
        if not installed(package):
            typer.echo(f"{name} is not installed, so its rows are left out; `pip install {name}`", err=True)
    found: Iterator[dict[str, Any]] = rows()
    return found


def _text_rows(subject: Subject, data: Path | None, questions: Path | None) -> Iterator[dict[str, Any]] | None:
    """Those of tokenizers and word vectors, which read a text."""
    from regard.bench import tokenizer, vectors

    if subject == Subject.TOKENIZER:
        return tokenizer.rows(data)
    return vectors.rows(data, questions) if subject == Subject.VECTORS else None


def _figure(row: dict[str, Any]) -> str:
    if "figure" in row:
        return f"{row['figure']:>20}"
    if "tokens_per_second" in row:
        return f"{row['tokens_per_second']:>10,.0f} tokens/s{'*' if row['faster'] else ' '}"
    return f"{row['milliseconds']:>10.2f} ms" if "milliseconds" in row else f"{row['extra_peak_bytes']:>10,} B"
