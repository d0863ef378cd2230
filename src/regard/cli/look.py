"""`regard look`: what the model attends to, as a picture, a page, or numbers."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.look_inside import show_heads
from regard.cli.looking import Look
from regard.cli.options import Device, Plugin, Precision
from regard.errors import FileError, InputError

Text = Annotated[
    list[str] | None,
    typer.Argument(help="The text the model reads; with --meaning and --heads, several.", show_default=False),
]
To = Annotated[
    Path | None,
    typer.Option(
        help="A picture, .png, .svg or .pdf, or a page to explore, .html.",
        show_default="attention.png; steps.png with --steps, and likewise with --meaning, --word and --heads",
    ),
]
Meaning = Annotated[
    str | None, typer.Option(help="A word of all sentences: how far apart the layers move it, and what moved it.")
]
Numbers = Annotated[
    bool, typer.Option("--json", help="The numbers of --word, --meaning, --steps or --heads as one JSON object.")
]
NoSpecial = Annotated[
    bool, typer.Option("--no-special-tokens", help="Leave them out; the other weights stay, their share is said.")
]


def look(
    model: Annotated[Path, typer.Argument(help="A model folder.")],
    text: Text = None,
    target: Annotated[str | None, typer.Option(help="The answer to look at; the model's own if absent.")] = None,
    generate: Annotated[bool, typer.Option("--generate", help="A language model continues the text.")] = False,
    max_new_tokens: Annotated[int | None, typer.Option(min=1, help="Length limit of the answer.")] = None,
    to: To = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
    layer: Annotated[str | None, typer.Option(help="Such as decoder.1.cross; the clearest if absent.")] = None,
    head: Annotated[int | None, typer.Option(help="One head alone; all and their mean if absent.")] = None,
    words: Annotated[bool, typer.Option("--words", help="Pieces merged back into words.")] = False,
    no_special_tokens: NoSpecial = False,
    steps: Annotated[bool, typer.Option("--steps", help="The four steps of one row, with the numbers.")] = False,
    row: Annotated[int | None, typer.Option(help="The row whose steps are shown; 0, the first, if absent.")] = None,
    meaning: Meaning = None,
    word: Annotated[
        str | None, typer.Option(help="A word of the text: where it looks, in all layers and heads.")
    ] = None,
    heads: Annotated[
        bool, typer.Option("--heads", help="Every head by what it does; on a small English grammar without a text.")
    ] = False,
    device: Device = "auto",
    precision: Precision = "auto",
    as_json: Numbers = False,
    plugin: Plugin = None,
) -> None:
    """Draw what the model attends to: the heads of a layer and the alignment they make together.

    A language model reads the text; it continues it only if --generate or --max-new-tokens asks for that.

    With `--heads`: `regard look MODEL --heads`, or `regard look MODEL "A text." "Another." --heads --json`.

    Example: `regard look runs/demo "de: 3 mars 2021" --to attention.png`, the same `--to attention.html` to explore,
    or `--steps --row 2` for the four steps of the third written token.

    With `--meaning`: `regard look MODEL "by the river bank" "from my bank account" --meaning bank`; with `--word`:
    `regard look MODEL "The cup did not fit in the bag because it was too big." --word it`.
    """
    modes = {"meaning": meaning, "heads": heads or None, "word": word, "steps": steps or None}
    given = {"--target": target, "--generate": generate or None, "--max-new-tokens": max_new_tokens, "--layer": layer}
    given |= {"--head": head, "--words": words or None, "--row": row, "--json": as_json or None}
    kind = _mode(modes, given | {"--no-special-tokens": no_special_tokens or None})
    to = to or Path(f"{kind}.png")
    read, shown = text or [], not no_special_tokens
    asked = Look(model, read, to, as_json, target, generate, max_new_tokens, shown, device, precision)
    refuse_existing(to, force)
    if meaning is not None:
        _show_meaning(asked, meaning)
    elif heads:
        show_heads(asked)
    elif word is not None:
        _show_word(asked, word)
    elif steps:
        _show_steps(asked, layer, head or 0, row or 0)
    else:
        _show_attention(asked, layer, head, words)


READING = ("--generate", "--max-new-tokens")
EFFECT = {
    "meaning": ("--json",),
    "heads": ("--json",),
    "word": (*READING, "--no-special-tokens", "--json"),
    "steps": ("--target", *READING, "--layer", "--head", "--row", "--json"),
    "attention": ("--target", *READING, "--layer", "--head", "--words", "--no-special-tokens"),
}
"""What is shown, and the options that change something about it; of two that are asked for, the first is shown."""


def _mode(modes: dict[str, Any], given: dict[str, Any]) -> str:
    """What is shown; no option is without effect."""
    asked = [name for name in EFFECT if modes.get(name) is not None]
    kind = asked[0] if asked else "attention"
    if kind == "attention":
        if given["--json"]:
            raise InputError("--json has no effect on a picture alone", "add --word, --meaning, --steps or --heads")
        if given["--row"] is not None:
            raise InputError("--row has no effect without --steps", "add --steps or leave it out")
    idle = [f"--{name}" for name in asked[1:]]
    idle += [name for name, value in given.items() if value is not None and name not in EFFECT[kind]]
    if idle:
        shows = "the steps are of one piece" if kind == "steps" else "which shows every layer"
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


def _show_steps(asked: Look, layer: str | None, head: int, row: int) -> None:
    """The four steps of one row: a table in the terminal, a figure in the file."""
    from regard.views.figure import check_format
    from regard.views.look import save_steps, steps_seen
    from regard.views.records import steps_record
    from regard.views.steps import steps_text

    check_format(asked.to)
    loaded = asked.open()
    record = steps_seen(asked.seen(loaded, values=True), loaded.tokenizer, layer=layer, head=head, row=row)
    save_steps(record, asked.to)
    asked.tell(
        loaded, steps_record(record), steps_text(record), f"the four steps of {record.token!r} in {record.title}"
    )


def _show_attention(asked: Look, layer: str | None, head: int | None, words: bool) -> None:
    """A picture, or a page to explore."""
    from regard.views.look import Shown, check_name, draw_seen

    check_name(asked.to)
    loaded = asked.open()
    seen = asked.seen(loaded)
    shown = draw_seen(seen, loaded.tokenizer, asked.to, Shown(layer, head, words, asked.special_tokens))
    others = [name for name in seen.layers if not shown.startswith(name)]
    typer.echo(f"{asked.to} shows {shown}" + (f"; the other layers are {', '.join(others)}" if others else ""))
