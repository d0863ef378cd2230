"""The options of decoding, by the names they have in every verb, and what they make of a model's own [decoding]."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from regard.tasks.decoding_table import DecodingTable


Strategy = Annotated[str | None, typer.Option(help="greedy, sample, beam or contrastive; the model's own if absent.")]
Beams = Annotated[int | None, typer.Option(help="Width of the beam.")]
LengthPenalty = Annotated[float | None, typer.Option(help="Power of the length a beam's score is divided by.")]
Diversity = Annotated[
    float | None, typer.Option(help="What it costs a group of beams to choose what the groups before it just chose.")
]
Groups = Annotated[int | None, typer.Option(help="Groups of a diverse beam; as many as beams if absent.")]
Temperature = Annotated[float | None, typer.Option(help="Below 1 sharper, above 1 flatter.")]
TopK = Annotated[int | None, typer.Option(help="Sample, or search contrastively, among this many tokens.")]
TopP = Annotated[float | None, typer.Option(help="Sample among the most likely tokens that reach this.")]
MinP = Annotated[float | None, typer.Option(help="Sample among tokens at least this share as likely as the likeliest.")]
Alpha = Annotated[float | None, typer.Option(help="Contrastive search: 0 is greedy, more shuns what is alike.")]
RepetitionPenalty = Annotated[
    float | None, typer.Option(help="Above 1: tokens that stand there already are less likely.")
]
NoRepeatNgram = Annotated[
    int | None, typer.Option("--no-repeat-ngram", help="So many tokens in a row never stand there twice.")
]
MaxNewTokens = Annotated[int | None, typer.Option(help="Length limit of the answer.")]
Stop = Annotated[
    list[str] | None, typer.Option(help="The answer ends before this text. May be repeated.", metavar="TEXT")
]
MustContain = Annotated[
    list[str] | None, typer.Option(help="This text stands in the answer. May be repeated.", metavar="TEXT")
]
MustNotContain = Annotated[
    list[str] | None, typer.Option(help="This text does not stand in the answer. May be repeated.", metavar="TEXT")
]
Prefix = Annotated[
    str | None, typer.Option("--from", help="The answer begins with this and goes on from it.", metavar="PREFIX")
]
Seed = Annotated[
    int | None, typer.Option(help="Seed of sampling; if absent the recipe's, or a fresh one, which is printed.")
]
Samples = Annotated[int | None, typer.Option(min=1, help="Draw so many answers to each text, a line each.")]
NBest = Annotated[int | None, typer.Option(min=1, help="The best so many of a beam, a line each; at most its width.")]


def decoding(defaults: "DecodingTable", given: dict[str, Any]) -> "DecodingTable":
    """The model's own way of decoding with what was asked for on top; an option that has no effect is refused.

    Naming another strategy starts from that strategy's defaults. An option without a strategy implies its own:
    `--beams 4` means beam search, `--top-p 0.9` sampling, `--alpha 0.6` contrastive search.
    """
    from regard.tasks.decoding_table import OF_ONE, OPTIONS, DecodingTable

    asked = {name: value for name, value in given.items() if value not in (None, [])}
    if "strategy" not in asked:
        own = OPTIONS[defaults.strategy]
        implied = [name for name in ("beam", "contrastive", "sample") if any(one in asked for one in OPTIONS[name])]
        if "alpha" not in asked and "contrastive" in implied:
            implied.remove("contrastive")
        if implied and not any(one in own for one in asked if one in OF_ONE):
            asked["strategy"] = implied[0]
    kept = defaults.model_dump(exclude_none=True)
    if asked.get("strategy", kept["strategy"]) != kept["strategy"]:
        kept = {key: value for key, value in kept.items() if key not in OF_ONE}
    return DecodingTable.model_validate(kept | asked)
