"""The small model the command line is asked about, and what an answer is."""

from dataclasses import dataclass

RECIPE = "dates"
SMALL = [
    "data.options.first_year=1990",
    "data.options.last_year=2019",
    "tokenizer.size=300",
    "tokenizer.sample=101",
    "model.width=16",
    "model.heads=2",
    "model.layers=2",
    "model.feedforward_width=11",
    "training.steps=3",
    "training.batch_tokens=512",
    "training.warmup=2",
    "training.evaluate_every=3",
    "training.save_every=3",
    "decoding.max_new_tokens=7",
]


@dataclass(frozen=True)
class Answer:
    """What a command printed and how it ended."""

    code: int
    out: str
    err: str
