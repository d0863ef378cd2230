"""The page of attention mechanisms, from what `regard bench attention --length …` measured: docs/mechanisms.md."""

from typing import Any

MEGABYTE = 10**6
HEAD = """# How attention mechanisms grow with length

Made by `make docs` from `benchmarks/results/mechanisms-*.json`. One layer's attention, its projections included,
reads a random text: forward, and forward with gradients. `exact` is softmax attention by the fastest kernel there is
for it; `differential` and `gated_softmax` are softmax attentions too, and grow as it does. An exponent is the slope of
the line through the logarithms of the four longest lengths; a mechanism is faster than exact attention from the length
given on. Which mechanisms there are and what each can: `regard list mechanisms`; on a text of your own, with the error
against exact attention: `regard bench attention --on TEXT --model FOLDER`."""


def page(files: list[tuple[str, dict[str, Any]]]) -> str:
    """Every file with its picture, then a table for each kind of layer."""
    return "\n".join([HEAD, *(section(name, found) for name, found in files)]) + "\n"


def section(name: str, found: dict[str, Any]) -> str:
    """How it was made, the curves, and the tables."""
    known = {key: value for key, value in found.items() if key not in ("command", "device", "rows")}
    made = f"`{found['command'].split(' --out')[0]}`: {', '.join(f'{key} {value}' for key, value in known.items())}."
    measured = [row for row in found["rows"] if "tokens" in row]
    kinds = list(dict.fromkeys(row["what"] for row in measured))
    picture = f"![Time and peak memory against length, both axes logarithmic](growth-{name}.png)"
    return "\n".join(
        ["", f"## {found['device']}", "", picture, "", made, *(table(kind, found["rows"]) for kind in kinds)]
    )


def table(kind: str, rows: list[dict[str, Any]]) -> str:
    """Milliseconds and megabytes of every mechanism at every length, with its exponents."""
    own = [row for row in rows if row["what"] == kind]
    lengths = sorted({row["tokens"] for row in own})
    names = list(dict.fromkeys(row["contestant"] for row in own))
    grown = {row["contestant"]: row for row in rows if row["what"].startswith(f"growth of {kind}, ")}
    head = ["mechanism", *(f"{length:,}" for length in lengths), "time", "memory", "faster than exact from"]
    lines = [
        "",
        f"### {kind[0].upper()}{kind[1:]}: ms, MB",
        "",
        f"| {' | '.join(head)} |",
        "|---" + "|---:" * len(head[1:]) + "|",
    ]
    for name in names:
        at = {row["tokens"]: row for row in own if row["contestant"] == name}
        cells = [cell(at.get(length, {})) for length in lengths]
        lines.append(f"| {' | '.join([name, *cells, *growth(name, grown.get(name, {}))])} |")
    return "\n".join(lines)


def cell(row: dict[str, Any]) -> str:
    """`12.3, 45`; why there is nothing where there is not."""
    if "milliseconds" not in row:
        return str(row.get("failed", ""))
    held = f", {row['peak_bytes'] / MEGABYTE:,.0f}" if "peak_bytes" in row else ""
    return f"{row['milliseconds']:,.1f}{held}"


def growth(name: str, row: dict[str, Any]) -> list[str]:
    """The exponents of time and memory, and the length from which it is faster."""
    shown = [f"n^{row[key]:.2f}" if row.get(key) is not None else "" for key in ("time_exponent", "memory_exponent")]
    faster = row.get("faster_from")
    return [*shown, "" if name == "exact" or not row else "never" if faster is None else f"{faster:,}"]
