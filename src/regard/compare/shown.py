"""What a comparison becomes: a table in the terminal, a picture, a page and a JSON file, all of the same numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from regard.files import write_json
from regard.views.comparison import ComparisonPanel, draw_panels
from regard.views.comparison_page import ComparisonPage, save_comparison
from regard.views.figure import draw_to
from regard.views.html import SUFFIXES


@dataclass(frozen=True)
class ComparisonView:
    """One comparison, ready to be written."""

    title: str
    subtitle: str
    note: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    panels: Sequence[ComparisonPanel]
    record: dict[str, Any]

    def table(self) -> str:
        """For a terminal."""
        lines = [self.header, *self.rows]
        widths = [max(len(line[place]) for line in lines) for place in range(len(self.header))]
        return "\n".join(
            "  ".join(
                f"{cell:<{width}}" if place == 0 else f"{cell:>{width}}"
                for place, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        )

    def figure(self) -> Figure:
        """All panels."""
        return draw_panels(self.title, self.subtitle, self.panels, self.note)

    def save(self, path: Path) -> None:
        """A picture or a page, as the name ends."""
        if path.suffix.lower() in SUFFIXES:
            note = " ".join(one for one in (f"{self.subtitle}." if self.subtitle else "", self.note) if one)
            page = ComparisonPage(self.title, note, self.header, self.rows, self.panels, self.record)
            save_comparison(page, self.figure(), path)
        else:
            draw_to(path, self.figure)

    def write(self, folder: Path, name: str) -> list[Path]:
        """JSON, picture and page, in the folder of what was compared."""
        paths = [folder / f"{name}{suffix}" for suffix in (".json", ".png", ".html")]
        write_json(paths[0], self.record)
        for path in paths[1:]:
            self.save(path)
        return paths
