"""`regard vectors`: train word vectors, ask for neighbours and analogies, turn one format into the other."""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import Quiet
from regard.cli.output import to_json

if TYPE_CHECKING:
    from rich.console import Console

    from regard.embedding.vectors import Neighbour
    from regard.embedding.word2vec.fit import Word2VecProgress

app = typer.Typer(
    help="Word vectors: train them by Word2Vec, ask for neighbours and analogies, write them in either format.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)


class VectorKind(StrEnum):
    """What predicts the word in the middle of a window."""

    SKIP_GRAM = "skip-gram"
    CBOW = "cbow"


class VectorLoss(StrEnum):
    """How a word is predicted."""

    NEGATIVE_SAMPLING = "negative-sampling"
    HIERARCHICAL_SOFTMAX = "hierarchical-softmax"


Source = Annotated[Path, typer.Argument(help="A file of vectors, word2vec's text or binary format, plain or gzip.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object.")]
Count = Annotated[int, typer.Option("--count", help="How many words.")]


@app.command()
def train(
    files: Annotated[list[Path], typer.Argument(help="Text files, plain or gzip: words between spaces.")],
    out: Annotated[Path, typer.Option(help="Where to write: .txt or .bin; with .gz at the end it is compressed.")],
    kind: Annotated[VectorKind, typer.Option(help="What predicts a word: each word around it, or their mean.")] = (
        VectorKind.SKIP_GRAM
    ),
    loss: Annotated[VectorLoss, typer.Option(help="How a word is predicted.")] = VectorLoss.NEGATIVE_SAMPLING,
    width: Annotated[int, typer.Option(help="Numbers of a vector.")] = 100,
    window: Annotated[int, typer.Option(help="Words on either side, at most.")] = 5,
    negatives: Annotated[
        int | None, typer.Option(help="Words drawn from the noise, 5 if absent; of negative sampling only.")
    ] = None,
    min_count: Annotated[int, typer.Option(help="Leave out words that occur less often.")] = 5,
    sample: Annotated[float, typer.Option(help="Leave out words more frequent than this now and then.")] = 1e-3,
    epochs: Annotated[int, typer.Option(help="Times the text is read.")] = 5,
    learning_rate: Annotated[float | None, typer.Option(help="First learning rate; 0.025, or 0.075 for cbow.")] = None,
    threads: Annotated[
        int | None, typer.Option(help="As many as there are cores if absent; all give one result.")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda (large batches on a GPU) or auto.")] = "cpu",
    seed: Annotated[int, typer.Option(help="Of everything that is drawn.")] = 0,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train word vectors by Word2Vec.

    The same text, options and seed give the same vectors on any number of threads.

    Example: `regard vectors train corpus.txt --out vectors.txt --width 100 --epochs 5`
    """
    from regard import api
    from regard.files import refuse_unwritable
    from regard.text.compiling import announcing
    from regard.training.progress import console

    options: dict[str, str | float | None] = {"kind": kind.value, "loss": loss.value, "width": width, "window": window}
    options |= {"negatives": negatives, "min_count": min_count, "sample": sample, "epochs": epochs}
    options |= {"learning_rate": learning_rate, "seed": seed}
    plan = api.vectors.Word2VecPlan.model_validate(options)
    refuse_unwritable(out)
    begun, said = perf_counter(), console(quiet)
    corpus = api.vectors.read(files, plan, threads, device, progress=not quiet)
    said.print(f"{corpus.size:,} words, {len(corpus.words):,} of them different", highlight=False)
    with Lines(said) as lines, announcing(said.print):
        trained = api.vectors.fit(corpus, plan, threads, device, lines)
    api.vectors.save(trained.vectors, out)
    if as_json:
        record = {"vectors": str(out), "words": len(corpus.words), "width": width, "losses": list(trained.losses)}
        typer.echo(to_json(record | {"seconds": round(perf_counter() - begun, 1)}))
        return
    typer.echo(f"{out} holds {len(corpus.words):,} vectors; ask them with: regard vectors neighbours {out} WORD")


class Lines:
    """Of the training, on stderr: a line at every end of an epoch; for every tenth, or on a terminal a bar, besides."""

    def __init__(self, console: "Console | None" = None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        self.tenth = 0
        self.console = console or Console(stderr=True, soft_wrap=True)
        columns = (TextColumn("training"), BarColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
        self.bar = Bar(*columns, console=self.console, transient=True, disable=not self.console.is_terminal)

    def __enter__(self) -> "Lines":
        self.bar.start()
        self.task = self.bar.add_task("", total=None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()

    def __call__(self, progress: "Word2VecProgress") -> None:
        """Say what is known, where it is time."""
        tenth = 10 * progress.words // progress.total
        ended = progress.words * progress.epochs % progress.total == 0
        state = f"loss {progress.loss:.4f}  {progress.words_per_second:,.0f} words/s"
        self.bar.update(self.task, completed=progress.words, total=progress.total, description=state)
        if ended or (tenth > self.tenth and not self.console.is_terminal):
            said = f"epoch {progress.epoch} of {progress.epochs}  {100 * progress.words // progress.total:>3} %"
            self.console.print(f"{said}  {state}", markup=False, highlight=False)
        self.tenth = tenth


@app.command()
def neighbours(
    vectors: Source,
    word: Annotated[str, typer.Argument(help="A word that has a vector.")],
    count: Count = 10,
    as_json: Json = False,
) -> None:
    """The words whose vectors point most nearly the same way, with the cosine.

    Example: `regard vectors neighbours vectors.txt king --count 5`
    """
    from regard.embedding.vectors_file import read_vectors

    _show({"word": word}, read_vectors(vectors).neighbours(word, count), as_json)


@app.command()
def analogy(
    vectors: Source,
    first: Annotated[str, typer.Argument(help="This is to …")],
    second: Annotated[str, typer.Argument(help="… this as …")],
    third: Annotated[str, typer.Argument(help="… this is to what is sought.")],
    count: Count = 10,
    as_json: Json = False,
) -> None:
    """Words that are to the third as the second is to the first (3CosAdd: nearest to second − first + third).

    Example: `regard vectors analogy vectors.txt man king woman`
    """
    from regard.embedding.vectors_file import read_vectors

    found = read_vectors(vectors).analogy(first, second, third, count)
    _show({"first": first, "second": second, "third": third}, found, as_json)


@app.command()
def export(
    vectors: Source,
    out: Annotated[Path, typer.Argument(help="Where to write: .txt or .bin; with .gz at the end it is compressed.")],
    as_json: Json = False,
) -> None:
    """Write vectors in another format; the numbers stay what they are.

    Example: `regard vectors export vectors.txt vectors.bin`
    """
    from regard.embedding.vectors_file import read_vectors, write_vectors
    from regard.files import refuse_unwritable

    refuse_unwritable(out)
    read = read_vectors(vectors)
    write_vectors(read, out)
    if as_json:
        typer.echo(to_json({"vectors": str(out), "words": len(read), "width": read.width}))
        return
    typer.echo(f"{out} holds {len(read):,} vectors of width {read.width}")


def _show(question: dict[str, str], found: Sequence["Neighbour"], as_json: bool) -> None:
    if as_json:
        answers = [{"word": one.word, "similarity": round(one.similarity, 6)} for one in found]
        typer.echo(to_json({**question, "neighbours": answers}))
        return
    if not found:
        typer.echo("no other word has a vector", err=True)
    for one in found:
        typer.echo(f"{one.similarity:7.4f}  {one.word}")
