"""Writes docs/induction.md and its figure: a small model's heads while they form: `python docs/induction.py FOLDER`.

FOLDER gets the run. The text is made here: rows of random letters, each written twice. The second half of a row can be
known from the first alone, by what came next last time, so the model needs an induction head (Olsson et al. 2022). The
halves differ in length: of one length, a head that looks back by a fixed distance would do, and pass for one.
"""

import random
import sys
from pathlib import Path

import regard
from regard.api.snapshots import head_history
from regard.views.figure import save_figure
from regard.views.head_history import draw_head_history, head_history_text

DOCS = Path(__file__).parent
LETTERS, SHORTEST, LONGEST, ROWS = "abcdefghijklmnopqrstuvwxyz", 8, 24, 8000
STEPS = (0, 100, 200, 300, 400, 500, 600, 800, 1000, 1200, 1500, 1800)
CHANGES = {
    "data": {"format": "text", "window": 68},
    "tokenizer": {"kind": "characters", "size": 40},
    "model": {"layers": 2, "width": 64, "heads": 4, "feedforward_width": 128, "dropout": 0.0},
    "training": {
        "steps": STEPS[-1],
        "batch_tokens": 2176,
        "learning_rate": 2e-3,
        "evaluate_every": 600,
        "save_every": 1800,
        "snapshots": list(STEPS),
    },
}
READ = (
    "A head that looks back by a fixed distance is no induction head, so the rows differ in length: with rows of",
    "16 and 16 letters every head of the first layer passed for one within 150 steps, which can only look 15 tokens",
    "back. On random tokens that come twice, 24 and 24, such a head would find nothing (`repeated`).",
)
SLIDER = (
    "Under the explorer's slider, `regard explore FOLDER/run` and its view “Training”, on twelve letters that come",
    "twice: after 0, 600, 1,000 and 1,500 steps. The second layer's head 0 looks at the same letter first, then at the",
    "one behind it.",
    "",
    "![the heads under the slider at four steps](induction-slider.png)",
)
"""The picture is taken by hand."""


def row(draws: random.Random) -> str:
    """Different letters, twice."""
    letters = "".join(draws.sample(LETTERS, draws.randint(SHORTEST, LONGEST)))
    return letters + letters


def main(folder: Path) -> None:
    """Train, measure every snapshot, draw."""
    draws = random.Random(0)
    folder.mkdir(parents=True, exist_ok=True)
    text = folder / "rows.txt"
    text.write_text("\n".join(row(draws) for _ in range(ROWS)) + "\n", encoding="utf-8")
    run = folder / "run"
    if not run.is_dir():
        regard.train("gpt", run, data=[text], changes=CHANGES, progress=False)
    found = head_history(run, [row(draws) for _ in range(8)])
    save_figure(draw_head_history(found), DOCS / "induction.svg")
    table = head_history_text(found)
    losses = [regard.load(run, snapshot=step).score(row(random.Random(7))).total for step in found.steps]
    said = ", ".join(f"{step}: {loss:.1f}" for step, loss in zip(found.steps, losses, strict=True))
    page = ["# An induction head being born", "", "Made by `python docs/induction.py FOLDER`.", ""]
    page += ["![the heads over the steps](induction.svg)", "", "```text", table, "```", ""]
    page += [*SLIDER, ""]
    page += [f"Log-probability of one row, in nats, by step: {said}.", "", *READ, ""]
    (DOCS / "induction.md").write_text("\n".join(page), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
