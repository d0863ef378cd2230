"""What each way of decoding does to likelihood, diversity, repetition and quality.

One model, the same prompts, one knob turned at a time:

    likelihood    mean log p of a token under the model itself, before temperature and filters
    diversity     distinct-2: of all pairs of neighbouring words in all answers, the share that are different (Li et al.
                  2016, §5.1)
    repetition    of every answer's runs of REPEATED words, the share that stood in it before (Welleck et al. 2020, §6)
    quality       the task's own figure, where answers have references
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from regard.api.model import Model
from regard.errors import InputError
from regard.tasks.decoding_table import OF_ONE, DecodingTable

TEMPERATURES = (0.2, 0.5, 0.8, 1.0, 1.3, 1.6, 2.0)
TOP_K = (1, 2, 5, 10, 50, 200)
TOP_P = (0.1, 0.3, 0.5, 0.7, 0.9, 0.97, 1.0)
BEAMS = (1, 2, 4, 8)
REPEATED = 4
PROMPT_WORDS = 8
"""Of a held-out text so many words are what a language model goes on with."""
_WORD = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True)
class Knob:
    """What is turned: a key of [decoding], the values it takes, and what stands beside it."""

    key: str
    name: str
    values: tuple[float, ...] | tuple[int, ...]
    beside: tuple[tuple[str, Any], ...]
    does: str
    """What it is, for who never turned it."""

    def table(self, usual: DecodingTable, value: float | int, seed: int) -> DecodingTable:
        """The model's own table with the knob at a value."""
        kept = {key: one for key, one in usual.model_dump(exclude_none=True).items() if key not in OF_ONE}
        seeded = {"seed": seed} if dict(self.beside)["strategy"] == "sample" else {}
        return DecodingTable.model_validate({**kept, **dict(self.beside), self.key: value, **seeded})


SAMPLE = ("strategy", "sample")
KNOBS = (
    Knob(
        *("temperature", "temperature", TEMPERATURES, (SAMPLE,)),
        "Scores are divided by it before a token is drawn: near 0 that is nearly always the likeliest, above 1 "
        "unlikely ones come up more.",
    ),
    Knob("top_k", "top-k", TOP_K, (SAMPLE,), "A token is drawn among the k likeliest alone; 1 is greedy."),
    Knob(
        *("top_p", "top-p", TOP_P, (SAMPLE,)),
        "A token is drawn among the likeliest that together have the probability p; 1 leaves none out.",
    ),
    Knob(
        *("beams", "beam width", BEAMS, (("strategy", "beam"),)),
        "Nothing is drawn: so many of the likeliest beginnings are kept side by side; 1 is greedy.",
    ),
)
FIGURES = ("likelihood", "distinct", "repetition", "quality")


@dataclass(frozen=True)
class Setting:
    """One value of one knob, and what came of it; figures that nothing is known of are left out."""

    knob: str
    value: float | int
    figures: dict[str, float]
    example: str


@dataclass(frozen=True)
class DecodingComparison:
    """All settings, with what they were measured on."""

    model: str
    prompts: int
    data: str
    max_new_tokens: int
    seed: int
    quality: str | None
    greedy: Setting
    settings: tuple[Setting, ...]

    def of(self, knob: Knob) -> list[Setting]:
        """Those of one knob, by its value."""
        return [one for one in self.settings if one.knob == knob.key]


@dataclass(frozen=True)
class Prompts:
    """What is decoded: texts, and examples with references where there are such."""

    texts: tuple[str, ...]
    examples: tuple[Any, ...]
    name: str


def sweep(
    model: Model, prompts: Prompts, max_new_tokens: int | None, seed: int, progress: Callable[[int, int], None]
) -> DecodingComparison:
    """Decode all prompts at every setting."""
    if len(prompts.texts) < 2:
        raise InputError(f"{len(prompts.texts)} prompts show no diversity", "give two or more")
    usual = model.decoding
    if max_new_tokens is not None:
        usual = usual.model_copy(update={"max_new_tokens": max_new_tokens})
    names = [name for name in model.task.metrics(model.data) if name not in ("loss", "perplexity", "bits_per_byte")]
    quality = ("bleu" if "bleu" in names else names[0]) if names and prompts.examples else None
    wanted = [(knob, value) for knob in KNOBS for value in knob.values]
    found: list[Setting] = []
    plain = {key: one for key, one in usual.model_dump(exclude_none=True).items() if key not in OF_ONE}
    greedy = DecodingTable.model_validate({**plain, "strategy": "greedy"})
    first = _measured(replace(model, decoding=greedy), prompts, quality, ("greedy", 0.0))
    for done, (knob, value) in enumerate(wanted, start=1):
        at = replace(model, decoding=knob.table(usual, value, seed))
        found.append(_measured(at, prompts, quality, (knob.key, value)))
        progress(done, len(wanted))
    facts = model.facts
    words = f"{facts['task']}, {facts['network']}"
    return DecodingComparison(
        words, len(prompts.texts), prompts.name, usual.max_new_tokens, seed, quality, first, tuple(found)
    )


def _measured(model: Model, prompts: Prompts, quality: str | None, at: tuple[str, float | int]) -> Setting:
    found = model.hypotheses(prompts.texts)
    answers = [model.writer.answer(model, text, one).text for text, one in zip(prompts.texts, found, strict=True)]
    likely = [value for one in found for value in one.log_probabilities]
    figures = {"likelihood": sum(likely) / len(likely)}
    shares = {"distinct": distinct(answers, 2), "repetition": repetition(answers)}
    figures |= {name: value for name, value in shares.items() if value is not None}
    if quality is not None:
        share = model.evaluate(prompts.examples)[quality]
        figures["quality"] = share / 100 if quality in ("bleu", "chrf") else share
    return Setting(*at, figures, answers[0])


def distinct(texts: Sequence[str], count: int) -> float | None:
    """Of all runs of so many words the share that are different; None where there are none."""
    runs = [run for text in texts for run in _runs(text, count)]
    return len(set(runs)) / len(runs) if runs else None


def repetition(texts: Sequence[str]) -> float | None:
    """The share of runs of REPEATED words that stood in their own text before; None where no text is so long."""
    runs = [_runs(text, REPEATED) for text in texts]
    total = sum(map(len, runs))
    return 1 - sum(len(set(one)) for one in runs) / total if total else None


def _runs(text: str, count: int) -> list[tuple[str, ...]]:
    words = _WORD.findall(text.lower())
    return [tuple(words[at : at + count]) for at in range(len(words) - count + 1)]


def beginnings(texts: Sequence[str], most: int) -> tuple[str, ...]:
    """The first words of texts that have more."""
    cut = (re.match(rf"\s*(?:\S+\s+){{{PROMPT_WORDS - 1}}}\S+", text) for text in texts)
    found = dict.fromkeys(one.group().strip() for one in cut if one is not None)
    return tuple(found)[:most]


def sentence(found: DecodingComparison, knob: Knob) -> str:
    """What a knob is, and what turning it did, from the run's own numbers."""
    settings = found.of(knob)
    first, last = settings[0], settings[-1]
    names = {"likelihood": "the mean log p of a token", "distinct": "distinct-2", "repetition": "repetition"}
    names["quality"] = (found.quality or "").replace("_", " ")
    parts = []
    for key, name in names.items():
        if key in first.figures and key in last.figures:
            before, after = (_figure(key, one.figures[key]) for one in (first, last))
            parts.append(f"{name} stays at {before}" if before == after else f"{name} goes from {before} to {after}")
    told = f"{knob.does} From {first.value:g} to {last.value:g} {', '.join(parts)}."
    best = _best(settings)
    if best is not None:
        told += f" The best {names['quality']} is {_figure('quality', best.figures['quality'])}, at {best.value:g}"
        told += f"; greedy has {_figure('quality', found.greedy.figures['quality'])}."
    return told


def _best(settings: Sequence[Setting]) -> Setting | None:
    known = [one for one in settings if "quality" in one.figures]
    worse = any(abs(one.figures["quality"] - other.figures["quality"]) > 5e-3 for one, other in pairwise(known))
    return max(known, key=lambda one: one.figures["quality"]) if worse else None


def _figure(key: str, value: float) -> str:
    """As the axes have it: a share in percent."""
    if key == "likelihood":
        return f"{value:.2f}".replace("-", "−")
    return f"{100 * value:.{1 if 0 < value < 0.1 else 0}f} %"
