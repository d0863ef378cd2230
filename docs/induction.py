"""Writes docs/induction.md and its figure: a small model's heads while they form: `python docs/induction.py FOLDER`.

FOLDER gets the run of recipe `repeats`, whose text is rows of letters, each written twice: the second half of a row can
be known from the first alone, by what came next last time, so the model needs an induction head (Olsson et al. 2022).
"""

import sys
from pathlib import Path

import regard
from regard.api.snapshots import head_history
from regard.data.repeats import Repeats
from regard.views.figure import save_figure
from regard.views.head_history import draw_head_history, head_history_text

DOCS = Path(__file__).parent
READ = (
    "A head that looks back by a fixed distance is no induction head, so the rows differ in length: with rows of",
    "16 and 16 letters every head of the first layer passed for one within 150 steps, which can only look 15 tokens",
    "back. On random tokens that come twice, 24 and 24, such a head would find nothing (`repeated`).",
)
SLIDER = (
    "Under the explorer's slider, `regard explore FOLDER` and its view “Training”, on twelve letters that come",
    "twice: after 0, 300, 500 and 1,000 steps. The second layer's head 0 looks at the same letter first, then at the",
    "one behind it.",
    "",
    "![the heads under the slider at four steps](induction-slider.png)",
)
"""The picture is taken by hand."""


def main(folder: Path) -> None:
    """Train, measure every snapshot, draw."""
    if not folder.is_dir():
        regard.train("repeats", folder, progress=False)
    rows = [Repeats().example("test", place).text for place in range(9)]
    found = head_history(folder, rows[1:])
    save_figure(draw_head_history(found), DOCS / "induction.svg")
    table = head_history_text(found)
    losses = [regard.load(folder, snapshot=step).score(rows[0]).total for step in found.steps]
    said = ", ".join(f"{step}: {loss:.1f}" for step, loss in zip(found.steps, losses, strict=True))
    page = [
        "# An induction head being born",
        "",
        "Made by `python docs/induction.py FOLDER` of the recipe `repeats`: rows of letters, each written twice.",
        "",
    ]
    page += ["![the heads over the steps](induction.svg)", "", "```text", table, "```", ""]
    page += [*SLIDER, ""]
    page += [f"Log-probability of one row, in nats, by step: {said}.", "", *READ, ""]
    (DOCS / "induction.md").write_text("\n".join(page), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
