"""The ladder from the plain RNN to the Transformer: docs/history.md and its figures, from the runs that are named.

    regard compare history --out runs/history                        on the CPU, at most 20 minutes on two cores
    regard compare history --out runs/history-gpu --device cuda      on a GPU, for its panel of times
    regard compare ablations --out runs/ablations                    what each part is there for, about five minutes
    python docs/history.py runs/history runs/history-gpu             copies their figures and writes docs/history.md
    python docs/history.py --ablations runs/ablations                likewise docs/ablations.md

The first run's numbers are the page; of the others only what time and operations cost is told.
"""

import json
import sys
from pathlib import Path
from typing import Any

from PIL import Image

DOCS = Path(__file__).resolve().parent
COLUMNS = {"parameters": "parameters", "tokens_per_second": "tokens/s", "seconds": "seconds"}


def page(records: list[dict[str, Any]], figures: list[str]) -> str:
    """The page of these runs."""
    first, *others = records
    lines = [
        "# From the plain RNN to the Transformer",
        "",
        "Written by `python docs/history.py` from `regard compare history`. "
        f"{first['task']}; {first['budget']}; times on {first['timed_on']}.",
        "",
        f"![The four panels]({figures[0]})",
        "",
        *quality(first),
        "",
        *(f"- {sentence}" for sentence in first["sentences"].values()),
    ]
    for record, figure in zip(others, figures[1:], strict=True):
        lines += ["", f"## On {record['timed_on']}", "", f"![The four panels]({figure})", ""]
        lines += [record["sentences"]["time"], "", *times(record)]
    return "\n".join(lines) + "\n"


def quality(record: dict[str, Any]) -> list[str]:
    """Exact match by thirds of the lengths, the gradient at the distance nearest to 100, and what training took."""
    rungs = record["rungs"]
    far = min(rungs[0]["gradient_norm"], key=lambda at: abs(int(at) - 100))
    names = [f"{third['shortest']}–{third['longest']} letters" for third in rungs[0]["thirds"]]
    rows = [
        [
            rung["name"],
            f"{rung['learning_rate']:g}",
            *(f"{100 * third['exact']:.1f} %" for third in rung["thirds"]),
            f"{rung['gradient_norm'][far]:.1e}",
            *(f"{rung[key]:,.0f}" for key in COLUMNS),
        ]
        for rung in rungs
    ]
    return table(["", "learning rate", *names, f"gradient at {far}, untrained", *COLUMNS.values()], rows)


def times(record: dict[str, Any]) -> list[str]:
    """Microseconds for a token at every length."""
    rungs = record["rungs"]
    lengths = list(rungs[0]["microseconds_per_token"])
    rows = [[rung["name"], *(f"{one:.3g}" for one in rung["microseconds_per_token"].values())] for rung in rungs]
    return table(["µs for a token, by length", *(f"{int(length):,}" for length in lengths)], rows)


def table(header: list[str], rows: list[list[str]]) -> list[str]:
    """In Markdown."""
    divider = ["---", *["---:"] * (len(header) - 1)]
    return [f"| {' | '.join(cells)} |" for cells in (header, divider, *rows)]


def copy_figure(figure: Path, copy: Path) -> None:
    """In 128 colours, which is a fourth of the bytes."""
    Image.open(figure).convert("RGB").quantize(128).save(copy, optimize=True)


def ablations(folder: str) -> None:
    """The page of what was taken away."""
    findings = json.loads((Path(folder) / "ablations.json").read_text(encoding="utf-8"))["findings"]
    copy_figure(Path(folder) / "ablations.png", DOCS / "ablations.png")
    lines = [
        "# Why each part of a Transformer is there",
        "",
        "Written by `python docs/history.py --ablations` from `regard compare ablations`.",
        "",
        "![What is lost without each part](ablations.png)",
    ]
    for one in findings:
        lines += ["", f"## {one['title']}", "", *(f"- {sentence}" for sentence in one["sentences"])]
    (DOCS / "ablations.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def main(folders: list[str]) -> None:
    """Read, copy, write."""
    if folders[0] == "--ablations":
        ablations(folders[1])
        return
    records = [json.loads((Path(folder) / "history.json").read_text(encoding="utf-8")) for folder in folders]
    figures = ["history.png", *(f"history-{number}.png" for number in range(2, len(folders) + 1))]
    for folder, figure in zip(folders, figures, strict=True):
        copy_figure(Path(folder) / "history.png", DOCS / figure)
    (DOCS / "history.md").write_text(page(records, figures), encoding="utf-8")


if __name__ == "__main__":
    if not sys.argv[1:]:
        sys.exit("name the folder of a run: python docs/history.py runs/history")
    main(sys.argv[1:])
