"""`regard tokenizer`: train one, turn text into ids and back, and see how it came to its pieces."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import Quiet
from regard.cli.output import to_json
from regard.errors import InputError, choose

if TYPE_CHECKING:
    from regard.text.explain import Building, Derivation, Line, Reading
    from regard.text.tokenizer import Tokenizer

app = typer.Typer(
    help="Train a tokenizer, encode and decode with it, see how it came to its pieces.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

LONGEST_CORPUS = 2**22
"""Characters of a corpus that is explained."""

TokenizerPath = Annotated[
    Path,
    typer.Argument(
        metavar="TOKENIZER",
        help="A tokenizer.json, a model folder, GPT-2's vocab.json beside its merges.txt, or BERT's vocab.txt.",
    ),
]


@app.command()
def train(
    files: Annotated[list[Path], typer.Argument(help="Text files, plain or gzip; of any size.")],
    size: Annotated[int, typer.Option(help="Entries of the vocabulary.")],
    kind: Annotated[
        str,
        typer.Option(
            help="bpe (bytes, as GPT-2), bpe_words (with an end mark), wordpiece (as BERT), wordpiece_cased (with "
            "capitals and accents kept) or characters."
        ),
    ] = "bpe",
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("tokenizer.json"),
    quiet: Quiet = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Learn a vocabulary from text; the same text gives the same file.

    Example: `regard tokenizer train corpus.txt --size 8000 --out tokenizer.json`
    """
    from regard import api
    from regard.files import refuse_unwritable

    if out.suffix != ".json":
        raise InputError(f"{out} does not look like a tokenizer", "end the name in .json")
    refuse_unwritable(out)
    trained = api.tokenizer.train(files, size, kind, progress=not quiet)
    trained.save(out)
    if as_json:
        record = {"tokenizer": str(out), "kind": kind, "size": trained.size, "tie_rule": trained.rule}
        typer.echo(to_json(record))
        return
    why = "there is no other character" if kind == "characters" else "no other pair occurs twice"
    less = "" if trained.size == size else f" of {size} asked for, since {why}"
    typer.echo(f"{out} has {trained.size} entries{less}; try: regard tokenizer encode {out} TEXT --pieces")


@app.command()
def encode(
    tokenizer: TokenizerPath,
    text: Annotated[str | None, typer.Argument(help="The text; every line of stdin if absent.")] = None,
    pieces: Annotated[bool, typer.Option("--pieces", help="The pieces instead of their ids.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object per text: text, ids, tokens, offsets.")
    ] = False,
) -> None:
    """Print the ids of a text.

    Example: `regard tokenizer encode runs/demo "3 mars 2021" --pieces`
    """
    if pieces and as_json:
        raise InputError("--pieces has no effect with --json, which has them", "use one of them")
    from regard.text.escape import escape

    loaded = _open(tokenizer)
    for line in _given(text):
        ids = loaded.encode(line)
        if as_json:
            record = {"text": line, "ids": ids, "tokens": loaded.pieces(ids), "offsets": loaded.offsets(line)}
            print(to_json(record), flush=True)
        elif pieces:
            print(" ".join(escape(piece) for piece in loaded.pieces(ids)), flush=True)
        else:
            print(" ".join(map(str, ids)), flush=True)


@app.command()
def decode(
    tokenizer: TokenizerPath,
    ids: Annotated[list[str] | None, typer.Argument(help="Ids separated by spaces; lines of stdin if absent.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
) -> None:
    """Print the text of ids.

    Example: `regard tokenizer encode runs/demo "3 mars 2021" | regard tokenizer decode runs/demo`
    """
    loaded = _open(tokenizer)
    for line in _given(" ".join(ids) if ids else None):
        numbers = [_number(one) for one in line.replace(",", " ").split()]
        text = loaded.decode(numbers)
        print(to_json({"ids": numbers, "text": text}) if as_json else text, flush=True)


@app.command()
def explain(
    file: Annotated[Path, typer.Argument(help="A small corpus, or a tokenizer to explain --text with.")],
    rule: Annotated[
        str | None, typer.Option(help="Who wins a tie: smallest (the default), greatest-bytes or engine.")
    ] = None,
    size: Annotated[int | None, typer.Option(help="Entries of the vocabulary; no limit if absent.")] = None,
    kind: Annotated[str | None, typer.Option(help="bpe_words (with an end mark; the default) or bpe (bytes).")] = None,
    text: Annotated[str | None, typer.Option(help="A text to build with the merges.")] = None,
    to: Annotated[Path | None, typer.Option(help="Write a page, .html, instead.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Show how byte-pair encoding works: each merge, the counts around it, the corpus after it; how a text is built.

    Examples: `regard tokenizer explain corpus.txt --text lowest`, `regard tokenizer explain runs/demo --text "3 mars"`
    """
    from regard.text.counting import valid_text
    from regard.text.explain import corpus_lines, text_lines
    from regard.text.explain_pretrained import build_text

    valid_text(text or "")
    if to is not None and to.suffix not in (".html", ".htm"):
        raise InputError(f"{to} does not look like a web page", "end the name in .html")
    if to is not None and as_json:
        raise InputError("--to writes a page and --json prints an object", "use one of them")
    if _is_tokenizer(file):
        if not text:
            raise InputError(f"{file} is a tokenizer, and there is nothing to explain", "add --text TEXT")
        if (rule, size, kind) != (None, None, None):
            raise InputError("--rule, --size and --kind have no effect with a tokenizer", "leave them out")
        loaded = _open(file)
        found, (reading, words) = None, build_text(loaded, text)
    else:
        found, reading, words = _derived(file, rule or "smallest", size, kind or "bpe_words", text)
    if to is not None:
        from regard.views.derivation import DerivationPage, save_derivation  # loads matplotlib with its folder

        save_derivation(DerivationPage(str(file), found, tuple(words), reading), to)
        typer.echo(f"{to} shows {len(found.steps) if found else 0} merges and {len(words)} words")
        return
    if as_json:
        learnt = {} if found is None else {**asdict(found), "end": found.end, "stopped": found.stopped}
        built = [{**asdict(word), "pieces": word.pieces} for word in words]
        typer.echo(to_json({**learnt, "words": built}))
        return
    if found is not None:
        _print(chain(corpus_lines(found, reading), [[]] if words else []))
    _print(text_lines(words, reading))


def _derived(
    file: Path, rule: str, size: int | None, kind: str, text: str | None
) -> "tuple[Derivation, Reading, list[Building]]":
    """What the reference learns from a corpus, and how it builds a text."""
    from regard.text.bytelevel import SYMBOLS, byte_words, bytes_of
    from regard.text.counting import read_texts
    from regard.text.explain import BYTES, WORDS, build_words, derive
    from regard.text.word_bpe import marked_words

    kinds = {"bpe_words": (marked_words, WORDS), "bpe": (byte_words, BYTES)}
    if kind not in kinds:
        raise InputError(f"there is no kind {kind!r} to explain", choose(kind, kinds))
    corpus = ""
    for part in read_texts([file]):
        corpus += part
        if len(corpus) > LONGEST_CORPUS:
            raise InputError(f"{file} has more than {LONGEST_CORPUS} characters", "explain a part of it")
    split, reading = kinds[kind]
    if kind == "bpe":
        found = derive(split(corpus), size, rule, alphabet=SYMBOLS, as_bytes=bytes_of)
    else:
        found = derive(split(corpus), size, rule)
    merges = [step.merge.pair for step in found.steps]
    return found, reading, build_words(split(text or ""), merges)


def _is_tokenizer(path: Path) -> bool:
    name = path.name.removesuffix(".gz")
    return path.is_dir() or name.endswith(".json") or name == "vocab.txt"


def _open(path: Path) -> "Tokenizer":
    from regard.text.pretrained import open_any

    return open_any(path)


def _given(text: str | None) -> Iterator[str]:
    from regard.cli.stdin import stdin_lines, text_of

    return map(text_of, stdin_lines()) if text is None else iter([text])


def _number(text: str) -> int:
    if not (text.removeprefix("-").isdigit() and text.isascii() and len(text) < 100):
        raise InputError(f"{text[:40]!r} is not an id", "give whole numbers separated by spaces")
    return int(text)


def _print(lines: "Iterable[Line]") -> None:
    """Coloured on a terminal, plain in a pipe."""
    from rich.console import Console
    from rich.text import Text

    console = Console(soft_wrap=True, highlight=False)
    for line in lines:
        console.print(Text.assemble(*line))
