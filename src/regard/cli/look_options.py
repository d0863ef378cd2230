"""The options of `regard look`, each with what `--help` says of it."""

from pathlib import Path
from typing import Annotated

import typer

ModelFolder = Annotated[Path, typer.Argument(help="A model folder.")]
Text = Annotated[
    list[str] | None,
    typer.Argument(help="The text the model reads; with --meaning and --heads, several.", show_default=False),
]
Target = Annotated[str | None, typer.Option(help="The answer to look at; the model's own if absent.")]
Generate = Annotated[bool, typer.Option("--generate", help="A language model continues the text.")]
MaxNewTokens = Annotated[int | None, typer.Option(min=1, help="Length limit of the answer.")]
To = Annotated[
    Path | None,
    typer.Option(
        help="A picture, .png, .svg or .pdf, or a page to explore, .html.",
        show_default="attention.png; steps.png with --steps, and likewise with the others",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Write over a file that is there.")]
Layer = Annotated[str | None, typer.Option(help="Such as decoder.1.cross; the clearest if absent.")]
Head = Annotated[int | None, typer.Option(help="One head alone; all and their mean if absent.")]
Words = Annotated[bool, typer.Option("--words", help="Pieces merged back into words.")]
NoSpecial = Annotated[
    bool, typer.Option("--no-special-tokens", help="Leave them out; the other weights stay, their share is said.")
]
Steps = Annotated[bool, typer.Option("--steps", help="The four steps of one row, with the numbers.")]
Row = Annotated[int | None, typer.Option(help="Of --steps and --effects: one row; of --steps 0, the first, if absent.")]
Meaning = Annotated[
    str | None, typer.Option(help="A word of all sentences: how far apart the layers move it, and what moved it.")
]
Word = Annotated[str | None, typer.Option(help="A word of the text: where it looks, in all layers and heads.")]
Heads = Annotated[
    bool, typer.Option("--heads", help="Every head by what it does; on a small English grammar without a text.")
]
Snapshots = Annotated[
    bool,
    typer.Option("--snapshots", help="With --heads: at every step whose weights the run kept (training.snapshots)."),
]
Without = Annotated[
    list[str] | None,
    typer.Option(
        metavar="LAYER:HEAD[:QUERY:KEY]",
        help="Switch a head off, or cut the edge from a token to another (HEAD may be `all`): the answer before and "
        "after. May be repeated.",
    ),
]
Effects = Annotated[
    bool,
    typer.Option(
        "--effects", help="What the answer loses without each head; with --layer and --row, without each edge of a row."
    ),
]
Ablation = Annotated[
    str | None, typer.Option(help="What a head that is off gives: zero (if absent), or its mean over the text.")
]
NoRenormalise = Annotated[
    bool, typer.Option("--no-renormalise", help="The other weights of a row whose edge is cut stay as they are.")
]
Why = Annotated[
    str | None,
    typer.Option(metavar="LAYER:HEAD:QUERY:KEY", help="One score q·k, split by where its parts came from."),
]
Lens = Annotated[bool, typer.Option("--lens", help="Logit lens: what each layer would decide.")]
Patch = Annotated[
    str | None,
    typer.Option(
        metavar="OTHER", help="Activation patching: which vectors of the text bring its answer back in this other one."
    ),
]
Flow = Annotated[
    bool, typer.Option("--flow", help="Raw weights of a layer, attention rollout and gradient × attention.")
]
Corpus = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="What heads do on a file of text: strongest edges, rows of every tenth, a page."),
]
Numbers = Annotated[bool, typer.Option("--json", help="The numbers of any but pictures alone, as one JSON object.")]
