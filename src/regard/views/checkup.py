"""A doctor's findings as a table for a terminal, and below it what is broken, by what and most likely why."""

import math

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from regard.inspection.doctor import Checkup, Verdict

STYLES = {"pass": "green", "broken": "bold red", "not applicable": "dim"}


def checkup_table(checkup: Checkup) -> Group:
    """All of it."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("law", "", "measured", "tolerance", "of what"):
        table.add_column(name, justify="right" if name in ("measured", "tolerance") else "left", overflow="fold")
    for one in checkup.verdicts:
        table.add_row(one.law, Text(one.status, STYLES[one.status]), *_numbers(one))
    parts: list[RenderableType] = [table]
    for one in checkup.broken:
        parts.append(Text(f"\n{one.law}: {one.statement}", "bold"))
        parts.append(Text(f"broken by  {_plain(one.smallest)}\nlikely     {_plain(one.cause)}"))
    counted = {status: sum(one.status == status for one in checkup.verdicts) for status in STYLES}
    said = ", ".join(f"{count} {'passed' if status == 'pass' else status}" for status, count in counted.items())
    seconds = sum(one.seconds for one in checkup.verdicts)
    parts.append(Text(f"\n{_plain(checkup.model)}: {said}, in {seconds:.0f} s"))
    return Group(*parts)


def _numbers(one: Verdict) -> tuple[str, str, str]:
    """Measured, tolerated, and of what; or why there is nothing."""
    if one.measured is None or one.tolerance is None:
        return "", "", one.reason
    whole = one.measured if math.isfinite(one.measured) else None
    shown = "no number" if whole is None else "0" if whole == 0 else f"{whole:.1e}" if whole < 0.01 else f"{whole:.3g}"
    return shown, f"{one.tolerance:g}", one.unit + (f" ({one.sampled})" if one.sampled else "")


def _plain(text: str) -> str:
    """Names out of a file are shown, never obeyed."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)
