"""How an answer came about, to look at: in a terminal, in a notebook, as a page or a picture, as JSON."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.api import notebook
from regard.decoding.trace import BeamTree, Choices
from regard.errors import FileError, InputError
from regard.files import write_text

if TYPE_CHECKING:
    from regard.views.decoding_text import Line


@dataclass(frozen=True, eq=False)
class Explanation:
    """What decoding did with one text: `.record` has it all, `.save` writes a page, or of a beam a picture."""

    record: Choices | BeamTree

    @property
    def output(self) -> str:
        """The answer."""
        return self.record.output

    def lines(self) -> "list[Line]":
        """What a terminal shows, with the style of every line."""
        from regard.views.decoding_text import decoding_lines

        return decoding_lines(self.record)

    def __str__(self) -> str:
        return "\n".join(line.text for line in self.lines())

    def to_dict(self) -> dict[str, Any]:
        """The record, for a program."""
        return {"kind": "beam" if isinstance(self.record, BeamTree) else "steps", **asdict(self.record)}

    def save(self, path: str | Path) -> None:
        """Write a page (.html), or the tree of a beam as a picture (.svg)."""
        path = Path(path)
        check_explanation(path, beam=isinstance(self.record, BeamTree))
        from regard.views.decoding_page import decoding_html, decoding_svg

        if isinstance(self.record, BeamTree) and path.suffix.lower() == ".svg":
            write_text(path, decoding_svg(self.record))
        else:
            write_text(path, decoding_html(self.record))

    def _repr_html_(self) -> str:
        from regard.views.decoding_page import decoding_html

        return notebook.frame(decoding_html(self.record))


def check_explanation(path: Path, *, beam: bool) -> None:
    """Refuse a name that says no format before any work is done."""
    from regard.views.html import check_html_name

    if path.suffix.lower() != ".svg":
        check_html_name(path)
    elif not beam:
        raise InputError(
            f"{path} would be a picture of a tree, and one choice after the other is none", "end it in .html"
        )
    elif path.is_dir():
        raise FileError(f"cannot write {path}: it is a folder", "choose a name that is not taken")
