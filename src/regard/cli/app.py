"""`regard`: the verbs, and how errors reach a person: one sentence with the remedy, never a traceback.

Exit codes: 0 done, 1 something is wrong with what was asked, 2 the command itself was not understood, 130 stopped by
Ctrl-C, 143 by SIGTERM.
Results go to stdout, progress and errors to stderr. Heavy imports happen inside the verbs, so `--help` is instant.
"""

import os
import shlex
import sys
import warnings
from io import TextIOWrapper
from typing import Annotated, TextIO

import typer

from regard import __version__
from regard.cli import (
    bench,
    chat,
    compare,
    convert,
    data,
    demo,
    doctor,
    evaluate,
    explore,
    listing,
    look,
    plot,
    run,
    search,
    size,
    tokenizer,
    train,
    vectors,
)
from regard.cli.output import as_options, to_json
from regard.errors import RegardError, RegardWarning
from regard.training.interrupt import Stopped

STOPPED = (130, 143)
RESUME_UNASKED = ("demo", "compare")
"""Verbs that go on, called again, where they were stopped."""

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _say_version(asked: bool) -> bool:
    if asked:
        print(f"regard {__version__}")
        raise typer.Exit
    return asked


@app.callback()
def program(
    version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """A toolkit for attention models: train them, decode with them, see exactly what they attend to."""


app.command()(demo.demo)
app.command(cls=train.TrainCommand)(train.train)
app.command()(run.run)
app.command()(chat.chat)
app.command()(evaluate.evaluate)
app.command()(look.look)
app.command()(explore.explore)
app.command()(plot.plot)
app.command()(doctor.doctor)
app.command()(convert.convert)
app.command()(bench.bench)
app.command()(size.size)
app.command()(search.search)
app.add_typer(data.app, name="data")
app.add_typer(compare.app, name="compare")
app.add_typer(tokenizer.app, name="tokenizer")
app.add_typer(vectors.app, name="vectors")
app.command(name="list")(listing.list_names)


def main() -> None:
    """Run a verb; turn every error of Regard's into a sentence and an exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that cannot show a letter is no error
    warnings.showwarning = _warn
    try:
        app(prog_name="regard")
    except RegardError as error:
        complain(error.problem, error.remedy)
        sys.exit(1)
    except Stopped as stopped:
        complain(str(stopped), f"go on with: {_again()}")
        sys.exit(stopped.code)
    except (KeyboardInterrupt, SystemExit) as end:  # Typer turns Ctrl-C into an exit
        if isinstance(end, SystemExit) and end.code not in STOPPED:
            raise
        saved = "a training that has saved a state goes on from it with --resume"
        remedies = {"train": saved, **dict.fromkeys(RESUME_UNASKED, "the same command goes on from what is saved")}
        complain("stopped", remedies.get("".join(sys.argv[1:2]), "run the same command again"))
        sys.exit(end.code if isinstance(end, SystemExit) else STOPPED[0])
    except MemoryError:
        complain("there is not enough memory for this", "use a smaller model, batch or text")
        sys.exit(1)
    except BrokenPipeError:  # the reader of the output, such as `head`, has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        complain(f"the output cannot be written: {error.strerror or error}", "check where it goes")
        sys.exit(1)


def _again() -> str:
    """The command that goes on with the run this one began."""
    arguments = sys.argv[1:]
    resumes = "--resume" in arguments or arguments[0] in RESUME_UNASKED
    return shlex.join(["regard", *arguments, *(() if resumes else ("--resume",))])


def _warn(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """One line on stderr of a warning of Regard's; others', which are about code, as Python writes them."""
    if not issubclass(category, RegardWarning):
        sys.stderr.write(warnings.formatwarning(message, category, filename, lineno, line))
    elif "--json" in sys.argv:
        print(to_json({"warning": str(message)}), file=sys.stderr)
    else:
        print(f"regard: {message}", file=sys.stderr)


def complain(problem: str, remedy: str) -> None:
    """One error on stderr, as JSON where JSON was asked for."""
    remedy = as_options(remedy)
    if "--json" in sys.argv:
        print(to_json({"error": problem, "remedy": remedy}), file=sys.stderr)
    else:
        print(f"regard: {problem}; {remedy}".replace("\n", "\\n"), file=sys.stderr)  # one line, whatever it quotes
