"""`regard bench`: speed and memory side by side with the peers, in one run."""

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from regard.errors import InputError


class Subject(StrEnum):
    """What can be measured."""

    ATTENTION = "attention"


def bench(
    subject: Annotated[Subject, typer.Argument(help="What to measure.")],
    out: Annotated[Path | None, typer.Option(help="Keep the figures in this JSON file.")] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda; cuda where there is one.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Measure side by side with the peers that are installed.

    Example: `regard bench attention --out benchmarks/results/attention-cpu.json`
    """
    import torch

    from regard.bench import attention
    from regard.bench.timing import circumstances, keep
    from regard.training.memory import keep_freed_memory

    chosen = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    if chosen not in ("cpu", "cuda") or (chosen == "cuda" and not torch.cuda.is_available()):
        raise InputError(f"device {device!r} cannot be used here", "use auto, cpu or, where there is one, cuda")
    keep_freed_memory()
    rows = []
    for row in attention.rows(chosen):
        rows.append(row)
        figure = f"{row['milliseconds']:>10.2f} ms" if "milliseconds" in row else f"{row['extra_peak_bytes']:>10,} B"
        typer.echo(f"{row['what']:<78} {row['contestant']:<20} {figure}  ×{row['ratio']:.2f}", err=as_json)
    if out is not None:
        keep(out, rows)
    if as_json:
        typer.echo(json.dumps({**circumstances(), "rows": rows}))
