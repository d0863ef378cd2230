"""A recording in a notebook, with the views of the explorer's page: rows are computed when they are looked at.

The page's programs are modules that import each other; a widget takes one. They are joined here: each becomes a
function's body, its imports the names that others gave back, so that no two of them meet.
"""

import re
from importlib.resources import files
from typing import Any

import anywidget
import traitlets
from pydantic import ValidationError

from regard.errors import RegardError
from regard.views.exploring.questions import OF_RECORDINGS
from regard.views.exploring.recorded import ShownRecording

_IMPORT = re.compile(r'^import \{ ([^}]+) \} from "\.{1,2}/([\w/]+)\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?:async )?(?:class|function|const) (\w+)", re.MULTILINE)


def bundled(first: str) -> str:
    """A program with all that it imports, as one module that exports what `render` needs."""
    assets = files("regard.views").joinpath("assets")
    written: dict[str, str] = {}

    def write(name: str) -> None:
        folder = assets if name in ("weights", "colours") else assets.joinpath("explorer")
        text = folder.joinpath(f"{name}.js").read_text(encoding="utf-8")
        imports = [(names, other.rpartition("/")[2]) for names, other in _IMPORT.findall(text)]
        for _, other in imports:
            if other not in written:
                write(other)
        taken = "".join(f"const {{ {names} }} = part_{other};\n" for names, other in imports)
        given = ", ".join(_EXPORT.findall(text))
        body = re.sub(r"^export ", "", _IMPORT.sub("", text), flags=re.MULTILINE)
        written[name] = f"const part_{name} = (() => {{\n{taken}{body}\nreturn {{ {given} }};\n}})();\n"

    write(first)
    return "".join(written.values()) + f"export default {{ render: part_{first}.render }};\n"


class RecordingWidget(anywidget.AnyWidget):
    """What was seen of one text, to be looked into: it asks by messages, and Python answers."""

    _css = files("regard.views").joinpath("assets", "explorer", "explorer.css").read_text(encoding="utf-8")
    opening = traitlets.Dict().tag(sync=True)
    """What is shown at first."""

    def __init__(self, shown: ShownRecording, layer: str | None = None, values: bool = False) -> None:
        views = ["overview", "head", *(["steps"] if values else [])]
        state = {"view": "head" if layer else "overview", "layer": layer or ""}
        super().__init__(_esm=bundled("widget"), opening={"record": shown.record(), "views": views, "state": state})
        self._shown = shown
        self.on_msg(self._answer)

    def _answer(self, widget: Any, asked: dict[str, Any], buffers: Any) -> None:
        """One question, one answer; what is wrong is told in a sentence."""
        try:
            question, answer = OF_RECORDINGS[asked["what"]]
            record: dict[str, Any] = {"answer": answer(self._shown, question.model_validate(asked["asked"]))}
        except RegardError as error:
            record = {"error": error.problem, "remedy": error.remedy}
        except (ValidationError, KeyError):
            record = {"error": "this question is of another version", "remedy": "run the cell again"}
        self.send({"id": asked.get("id"), **record})
