"""What is shown, as a file: a picture, a page that opens from a disk, or the numbers."""

import base64
import tempfile
from pathlib import Path
from typing import Any, Literal

from regard.errors import InputError
from regard.inspection.maps import labels
from regard.views.exploring.recorded import OfLayer, ShownRecording
from regard.views.look import LONGEST_PICTURE, Shown, draw_seen, seen_page


class OfExport(OfLayer):
    """A layer, or one head of it, as a file."""

    head: int | None = None
    words: bool = False
    format: Literal["png", "svg", "html", "json"]


def export_record(reading: ShownRecording, asked: OfExport) -> dict[str, Any]:
    """The file as text, or as base64 where it is none."""
    seen, tokenizer = reading.part(asked.part), reading.tokenizer
    if asked.format == "html":
        return {"text": seen_page(seen, tokenizer, asked.layer)}
    if asked.format == "json":
        return {"json": _numbers(reading, asked)}
    shown = Shown(layer=asked.layer, head=asked.head, words=asked.words)
    with tempfile.TemporaryDirectory(prefix="regard-") as folder:
        path = Path(folder) / f"attention.{asked.format}"
        draw_seen(seen, tokenizer, path, shown)
        return {"base64": base64.b64encode(path.read_bytes()).decode("ascii")}


def _numbers(reading: ShownRecording, asked: OfExport) -> dict[str, Any]:
    """Every weight of the layer, exactly."""
    seen = reading.part(asked.part)
    rows, columns = labels(seen, asked.layer, reading.tokenizer)
    if max(len(rows), len(columns)) > LONGEST_PICTURE:
        raise InputError(
            f"all weights of {max(len(rows), len(columns)):,} tokens are more than a file should hold",
            f"give up to {LONGEST_PICTURE} tokens, or ask for the rows you need: `seen.weights(layer, rows=…)`",
        )
    heads = range(seen.trace(asked.layer, asked.head).heads) if asked.head is None else [asked.head]
    return {
        "layer": asked.layer,
        "rows": rows,
        "columns": columns,
        "heads": {head: seen.weights(asked.layer, head).float().tolist() for head in heads},
    }
