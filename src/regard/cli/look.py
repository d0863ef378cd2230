"""`regard look`: what the model attends to, as a picture, a page, or numbers."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.errors import InputError


def look(
    model: Annotated[Path, typer.Argument(help="A model folder.")],
    text: Annotated[list[str], typer.Argument(help="The text the model reads; with --meaning, several sentences.")],
    target: Annotated[str | None, typer.Option(help="The answer to look at; the model's own if absent.")] = None,
    to: Annotated[
        Path | None,
        typer.Option(
            help="A picture, .png or .svg, or a page to explore, .html.",
            show_default="attention.png; meaning.png with --meaning, gaze.png with --word",
        ),
    ] = None,
    layer: Annotated[str | None, typer.Option(help="Such as decoder.1.cross; the clearest if absent.")] = None,
    head: Annotated[int | None, typer.Option(help="One head alone; all and their mean if absent.")] = None,
    words: Annotated[bool, typer.Option("--words", help="Pieces merged back into words.")] = False,
    steps: Annotated[bool, typer.Option("--steps", help="The four steps of one row, with the numbers.")] = False,
    row: Annotated[int | None, typer.Option(help="The row whose steps are shown; 0, the first, if absent.")] = None,
    meaning: Annotated[
        str | None, typer.Option(help="A word of all sentences: how far apart the layers move it, and what moved it.")
    ] = None,
    word: Annotated[
        str | None, typer.Option(help="A word of the text: where it looks, in every layer and head.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="The numbers of --word, --meaning or --steps as one JSON object.")
    ] = False,
) -> None:
    """Draw what the model attends to: the heads of a layer and the alignment they make together.

    Example: `regard look runs/demo "de: 3 mars 2021" --to attention.png`, the same `--to attention.html` to explore,
    or `--steps --row 2` for the four steps of the third written token.

    With `--meaning`: `regard look MODEL "by the river bank" "from my bank account" --meaning bank`; with `--word`:
    `regard look MODEL "The cup did not fit in the bag because it was too big." --word it`.
    """
    if meaning is not None or word is not None:
        options = {"--target": target, "--layer": layer, "--head": head, "--row": row}
        options |= {"--word": word if meaning is not None else None, "--words": words or None, "--steps": steps or None}
        _refuse_given(options, "--meaning" if meaning is not None else "--word")
    elif as_json and not steps:
        raise InputError("--json has no effect on a picture alone", "add --word, --meaning or --steps")
    if meaning is not None:
        _show_meaning(model, text, meaning, to or Path("meaning.png"), as_json)
    elif len(text) > 1:
        raise InputError(f"{len(text)} texts cannot be looked at together", "give one, or name a word with --meaning")
    elif word is not None:
        _show_gaze(model, text[0], word, to or Path("gaze.png"), as_json)
    else:
        _show_attention(
            model,
            text[0],
            to or Path("attention.png"),
            target=target,
            layer=layer,
            head=head,
            words=words,
            steps=steps,
            row=row,
            as_json=as_json,
        )


def _refuse_given(options: dict[str, Any], mode: str) -> None:
    """No option is without effect."""
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise InputError(f"{given[0]} has no effect with {mode}, which shows every layer", "leave it out")


def _tell(record: dict[str, Any], to: Path) -> None:
    """Print a record and where the figure is."""
    typer.echo(json.dumps({**record, "file": str(to)}, ensure_ascii=False))


def _show_meaning(model: Path, sentences: list[str], word: str, to: Path, as_json: bool) -> None:
    """A word in several sentences: tables in the terminal, a figure in the file."""
    from regard import api
    from regard.inspection.contextual import word_in_sentences
    from regard.views.figure import check_format, save_figure
    from regard.views.meaning import draw_meaning, meaning_text
    from regard.views.records import meaning_record

    check_format(to)
    loaded = api.load(model)
    for sentence in sentences:
        loaded.check(sentence)
    found = word_in_sentences(loaded.module, loaded.tokenizer, sentences, word)
    save_figure(draw_meaning(found), to)
    if as_json:
        _tell(meaning_record(found), to)
        return
    typer.echo(meaning_text(found))
    typer.echo(f"{to} shows how the layers move {word!r} apart, and what moved it")


def _show_gaze(model: Path, text: str, word: str, to: Path, as_json: bool) -> None:
    """Where a word looks: a table in the terminal, a figure in the file."""
    from regard import api
    from regard.views.figure import check_format, save_figure
    from regard.views.look import require_one
    from regard.views.records import gaze_record
    from regard.views.word_attention import draw_gaze, gaze, gaze_text

    check_format(to)
    loaded = api.load(model)
    seen = loaded.look(text)
    require_one(seen)
    found = gaze(seen, loaded.tokenizer, word)
    save_figure(draw_gaze(found), to)
    if as_json:
        _tell(gaze_record(found), to)
        return
    typer.echo(gaze_text(found))
    typer.echo(f"{to} shows where {word!r} looks in every layer and head")


def _show_attention(
    model: Path,
    text: str,
    to: Path,
    *,
    target: str | None,
    layer: str | None,
    head: int | None,
    words: bool,
    steps: bool,
    row: int | None,
    as_json: bool,
) -> None:
    from regard import api
    from regard.views.figure import check_format
    from regard.views.look import check_name, draw_seen, save_steps, steps_seen
    from regard.views.records import steps_record
    from regard.views.steps import steps_text

    if row is not None and not steps:
        raise InputError("--row has no effect without --steps", "add --steps or leave it out")
    if steps and words:
        raise InputError("--words has no effect with --steps: the steps are of one piece", "use one of them")
    check_format(to) if steps else check_name(to)
    loaded = api.load(model)
    seen = loaded.look(text, target=target, values=steps)
    if steps:
        record = steps_seen(seen, loaded.tokenizer, layer=layer, head=head or 0, row=row or 0)
        save_steps(record, to)
        if as_json:
            _tell(steps_record(record), to)
            return
        typer.echo(steps_text(record))
        typer.echo(f"{to} shows the four steps of {record.token!r} in {record.title}")
        return
    shown = draw_seen(seen, loaded.tokenizer, to, layer=layer, head=head, words=words)
    others = [name for name in seen.layers if not shown.startswith(name)]
    typer.echo(f"{to} shows {shown}; the other layers are {', '.join(others)}")
