"""What was seen of a model, drawn, shown and saved."""

import tempfile
import webbrowser
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from regard.api import notebook
from regard.errors import InputError
from regard.files import write_text
from regard.inspection.capture import Recording
from regard.inspection.heads import HeadMeasures, measure_heads
from regard.inspection.maps import labels
from regard.text.tokenizer import Tokenizer


class Watched(Recording):
    """What was seen of a model, and, where its tokenizer is known, how to draw it."""

    def __init__(self, tokenizer: Tokenizer | None, *, values: bool) -> None:
        super().__init__(values=values)
        self.tokenizer = tokenizer

    def tokens(self, layer: str | None = None, batch: int | None = None) -> "Tokens":
        """The names of a layer's rows and keys in one text; where no layer is named, of the first that goes across."""
        seen = self.only(batch)
        crossing = [name for name in seen.layers if seen.crosses(name)]
        seen.find(None)  # says it where nothing was seen
        return Tokens(*labels(seen, layer or (crossing or seen.layers)[0], self._named()))

    def heads(self) -> list[HeadMeasures]:
        """What kind of head each head is, on the texts that were seen: entropy, distance, previous token …"""
        return measure_heads(self, [] if self.tokenizer is None else [*self.tokenizer.special_ids.values()])

    def save(
        self,
        path: str | Path,
        *,
        layer: str | None = None,
        head: int | None = None,
        words: bool = False,
        special_tokens: bool = True,
        batch: int | None = None,
    ) -> None:
        """Write a picture (.png, .svg, .pdf) or a page to explore (.html) of one text that was seen."""
        from regard.views.look import Shown, draw_seen  # matplotlib is loaded when something is drawn

        shown = Shown(layer=layer, head=head, words=words, special_tokens=special_tokens)
        draw_seen(self.only(batch), self._named(), Path(path), shown)

    def show(self, *, layer: str | None = None, batch: int | None = None) -> None:
        """Show one text to explore: in a notebook inside it, elsewhere in the browser.

        With the extra `notebook` it is a widget, for texts of any length; without, and in the browser, a page that
        holds the largest weights.
        """
        from regard.views.look import require_one, seen_page

        seen, tokenizer = self.only(batch), self._named()
        require_one(seen)
        if notebook.running() and find_spec("anywidget"):
            from regard.views.exploring.recorded import ShownRecording
            from regard.views.exploring.widget import RecordingWidget

            notebook.display(RecordingWidget(ShownRecording(seen, tokenizer), layer, self.keeps_values))
            return
        page = seen_page(seen, tokenizer, layer)
        if notebook.running():
            notebook.display(notebook.frame(page))
            return
        path = Path(tempfile.mkdtemp(prefix="regard-")) / "attention.html"
        write_text(path, page)
        if not webbrowser.open(path.as_uri()):
            raise InputError("there is no notebook and no browser to show it in", 'use `seen.save("attention.html")`')

    def _repr_html_(self) -> str | None:
        """The page that `regard look` writes, in a frame; the sentence of `repr` where there is not one text."""
        if self.tokenizer is None or self.sequences != 1:
            return None
        from regard.views.look import seen_page

        return notebook.frame(seen_page(self, self.tokenizer))

    def _named(self) -> Tokenizer:
        if self.tokenizer is None:
            raise InputError("a bare module's tokens have no names", "watch a Model, or ask `seen.weights` for numbers")
        return self.tokenizer


class Tokens(NamedTuple):
    """What stands beside a layer's weights: a name for every row and for every key."""

    rows: tuple[str, ...]
    keys: tuple[str, ...]
