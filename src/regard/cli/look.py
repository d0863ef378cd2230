"""`regard look`: what the model attends to, as a picture, a page, or numbers."""

import os
from pathlib import Path
from typing import Any

import typer

from regard.cli import look_options as options
from regard.cli.look_inside import INSIDE
from regard.cli.looking import Look
from regard.cli.options import Device, Plugin, Precision
from regard.errors import FileError, InputError


def look(
    model: options.ModelFolder,
    text: options.Text = None,
    target: options.Target = None,
    generate: options.Generate = False,
    max_new_tokens: options.MaxNewTokens = None,
    to: options.To = None,
    force: options.Force = False,
    layer: options.Layer = None,
    head: options.Head = None,
    words: options.Words = False,
    no_special_tokens: options.NoSpecial = False,
    steps: options.Steps = False,
    row: options.Row = None,
    meaning: options.Meaning = None,
    word: options.Word = None,
    heads: options.Heads = False,
    snapshots: options.Snapshots = False,
    without: options.Without = None,
    effects: options.Effects = False,
    ablation: options.Ablation = None,
    no_renormalise: options.NoRenormalise = False,
    why: options.Why = None,
    lens: options.Lens = False,
    patch: options.Patch = None,
    flow: options.Flow = False,
    corpus: options.Corpus = None,
    device: Device = "auto",
    precision: Precision = "auto",
    as_json: options.Numbers = False,
    plugin: Plugin = None,
) -> None:
    """Draw what the model attends to: the heads of a layer and the alignment they make together.

    A language model reads the text; it continues it only if --generate or --max-new-tokens asks for that.

    Example: `regard look runs/demo "de: 3 mars 2021" --to attention.png`, the same `--to attention.html` to explore,
    `--steps --row 2` for the four steps of the third written token, `--without encoder.1.self:3` for the answer
    without a head, `--effects` for what each head does to it; `regard look MODEL --heads` for what each head does.

    With several texts: `regard look MODEL "by the river bank" "from my bank account" --meaning bank`.
    """
    modes: dict[str, Any] = {
        "meaning": meaning,
        "heads": heads,
        "without": without,
        "effects": effects,
        "why": why,
        "lens": lens,
    }
    modes |= {"patch": patch, "flow": flow, "corpus": corpus, "word": word, "steps": steps}
    given = {"target": target, "generate": generate, "max-new-tokens": max_new_tokens, "layer": layer, "head": head}
    given |= {"words": words, "row": row, "no-special-tokens": no_special_tokens, "ablation": ablation}
    given |= {"no-renormalise": no_renormalise, "snapshots": snapshots, "json": as_json}
    kind = _mode(_asked(modes), _asked(given))
    asked = Look(model, text or [], to or Path(f"{kind}.{ENDING.get(kind, 'png')}"), _asked(given), device, precision)
    refuse_existing(asked.to, force)
    SHOWN[kind](asked, modes.get(kind))


def _asked(values: dict[str, Any]) -> dict[str, Any]:
    """What was asked for."""
    return {name: value for name, value in values.items() if value is not None and value is not False}


ENDING = {"corpus": "html"}
READING = ("generate", "max-new-tokens")
ASKING = ("target", *READING)
EFFECT = {
    "meaning": ("json",),
    "heads": ("snapshots", "json"),
    "without": (*ASKING, "ablation", "no-renormalise", "json"),
    "effects": (*ASKING, "ablation", "no-renormalise", "layer", "head", "row", "json"),
    "why": (*ASKING, "json"),
    "lens": (*ASKING, "json"),
    "patch": ("target", "json"),
    "flow": (*ASKING, "layer", "json"),
    "corpus": ("layer", "head", "json"),
    "word": (*READING, "no-special-tokens", "json"),
    "steps": (*ASKING, "layer", "head", "row", "json"),
    "attention": (*ASKING, "layer", "head", "words", "no-special-tokens"),
}
"""What is shown, and the options that change something about it; of two that are asked for, the first is shown."""


def _mode(modes: dict[str, Any], given: dict[str, Any]) -> str:
    """What is shown; no option is without effect."""
    asked = [name for name in EFFECT if name in modes]
    kind = asked[0] if asked else "attention"
    if kind == "attention":
        if "json" in given:
            raise InputError("--json has no effect on a picture alone", "add --word, --meaning, --steps or --heads")
        if "row" in given:
            raise InputError("--row has no effect without --steps", "add --steps or leave it out")
    idle = [f"--{name}" for name in (*asked[1:], *given) if name not in EFFECT[kind]]
    if idle:
        shows = "which shows every layer" if kind in ("meaning", "heads", "word") else "where it changes nothing"
        raise InputError(f"{idle[0]} has no effect with --{kind}, {shows}", "leave it out")
    return kind


def refuse_existing(path: Path, force: bool) -> None:
    """Nothing is written over unasked."""
    if os.path.isfile(path) and not force:
        raise FileError(f"{path} is there already", "add --force to write over it, or choose another name with --to")


def _show_meaning(asked: Look, word: str) -> None:
    """A word in several sentences: tables in the terminal, a figure in the file."""
    from regard.inspection.contextual import word_in_sentences
    from regard.views.figure import check_format, draw_to
    from regard.views.meaning import draw_meaning, meaning_text
    from regard.views.records import meaning_record

    check_format(asked.to)
    loaded = asked.open()
    for sentence in asked.text:
        loaded.check(sentence)
    found = word_in_sentences(loaded.module, loaded.tokenizer, asked.text, word)
    draw_to(asked.to, lambda: draw_meaning(found))
    asked.tell(
        loaded, meaning_record(found), meaning_text(found), f"how the layers move {word!r} apart, and what moved it"
    )


def _show_word(asked: Look, word: str) -> None:
    """Where a word looks: a table in the terminal, a figure in the file."""
    from regard.views.figure import check_format, draw_to
    from regard.views.look import require_one
    from regard.views.records import word_attention_record
    from regard.views.word_attention import draw_word_attention, word_attention, word_attention_text

    check_format(asked.to)
    loaded = asked.open()
    seen = asked.seen(loaded)
    require_one(seen)
    found = word_attention(seen, loaded.tokenizer, word)
    draw_to(asked.to, lambda: draw_word_attention(found, special_tokens=asked.special_tokens))
    asked.tell(
        loaded,
        word_attention_record(found),
        word_attention_text(found),
        f"where {word!r} looks in every layer and head",
    )


def _show_steps(asked: Look, _: object) -> None:
    """The four steps of one row: a table in the terminal, a figure in the file."""
    from regard.views.figure import check_format
    from regard.views.look import save_steps, steps_seen
    from regard.views.records import steps_record
    from regard.views.steps import steps_text

    check_format(asked.to)
    loaded = asked.open()
    seen = asked.seen(loaded, values=True)
    record = steps_seen(seen, loaded.tokenizer, layer=asked.layer, head=asked.head or 0, row=asked.row or 0)
    save_steps(record, asked.to)
    asked.tell(
        loaded, steps_record(record), steps_text(record), f"the four steps of {record.token!r} in {record.title}"
    )


def _show_attention(asked: Look, _: object) -> None:
    """A picture, or a page to explore."""
    from regard.views.look import Shown, check_name, draw_seen

    check_name(asked.to)
    loaded = asked.open()
    seen = asked.seen(loaded)
    wanted = Shown(asked.layer, asked.head, "words" in asked.given, asked.special_tokens)
    shown = draw_seen(seen, loaded.tokenizer, asked.to, wanted)
    others = [name for name in seen.layers if not shown.startswith(name)]
    typer.echo(f"{asked.to} shows {shown}" + (f"; the other layers are {', '.join(others)}" if others else ""))


SHOWN = INSIDE | {
    "meaning": _show_meaning,
    "word": _show_word,
    "steps": _show_steps,
    "attention": _show_attention,
}
"""What shows each."""
