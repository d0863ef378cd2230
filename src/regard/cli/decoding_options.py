"""The options of decoding, by the names they have in every verb, and what they make of a model's own [decoding]."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from regard.tasks.decoding_table import DecodingTable


Strategy = Annotated[str | None, typer.Option(help="greedy, sample, beam or contrastive; the model's own if absent.")]
Beams = Annotated[int | None, typer.Option(help="Width of the beam.")]
LengthPenalty = Annotated[
    float | None,
    typer.Option(help="A beam's score is divided by its length to this power; above 1 favours long answers."),
]
DiversityPenalty = Annotated[
    float | None,
    typer.Option(
        help="Diverse beam search: what a token costs a group of beams if an earlier group has just chosen it."
    ),
]
BeamGroups = Annotated[int | None, typer.Option(help="Groups of a diverse beam; as many as beams if absent.")]
Temperature = Annotated[float | None, typer.Option(help="Below 1 sharper, above 1 flatter.")]
TopK = Annotated[int | None, typer.Option(help="Sample (or search contrastively) among the k likeliest tokens.")]
TopP = Annotated[
    float | None, typer.Option(help="Sample among the likeliest tokens whose probabilities add up to at least p.")
]
MinP = Annotated[
    float | None, typer.Option(help="Sample among tokens whose probability is at least this share of the likeliest's.")
]
PenaltyAlpha = Annotated[
    float | None, typer.Option(help="Contrastive search: weight of the penalty on repetition, 0 to 1; 0 is greedy.")
]
RepetitionPenalty = Annotated[
    float | None, typer.Option(help="Above 1: tokens that are in the text already become less likely.")
]
NoRepeatNgram = Annotated[
    int | None, typer.Option("--no-repeat-ngram-size", help="No run of this many tokens occurs twice.")
]
MaxNewTokens = Annotated[int | None, typer.Option(help="Length limit of the answer, in tokens.")]
Stop = Annotated[
    list[str] | None, typer.Option(help="End the answer before this text. May be repeated.", metavar="TEXT")
]
MustContain = Annotated[
    list[str] | None, typer.Option(help="The answer contains this text. May be repeated.", metavar="TEXT")
]
MustNotContain = Annotated[
    list[str] | None, typer.Option(help="The answer does not contain this text. May be repeated.", metavar="TEXT")
]
Prefix = Annotated[
    str | None, typer.Option("--from", help="The answer begins with this and continues it.", metavar="PREFIX")
]
Seed = Annotated[
    int | None, typer.Option(help="Seed of sampling; if absent the recipe's, or a fresh one, which is printed.")
]
Samples = Annotated[int | None, typer.Option(min=1, help="Sample this many answers to each text, one a line.")]
NBest = Annotated[
    int | None, typer.Option(min=1, help="Print the n best answers of a beam, one a line; at most its width.")
]
Draft = Annotated[
    Path | None,
    typer.Option(help="A smaller model guesses, this one checks: the same answer, sooner.", metavar="FOLDER"),
]
PromptLookup = Annotated[
    bool, typer.Option("--prompt-lookup", help="Guess by what followed the same words before: the same answer, sooner.")
]


def decoding(defaults: "DecodingTable", given: dict[str, Any]) -> "DecodingTable":
    """The model's own way of decoding with what was asked for on top; an option that has no effect is refused.

    Naming another strategy starts from that strategy's defaults. An option without a strategy implies its own:
    `--beams 4` means beam search, `--top-p 0.9` sampling, `--penalty-alpha 0.6` contrastive search.
    """
    from regard.tasks.decoding_table import OF_ONE, OPTIONS, DecodingTable

    asked = {name: value for name, value in given.items() if value not in (None, [])}
    if "strategy" not in asked:
        own = OPTIONS[defaults.strategy]
        implied = [name for name in ("beam", "contrastive", "sample") if any(one in asked for one in OPTIONS[name])]
        if "penalty_alpha" not in asked and "contrastive" in implied:
            implied.remove("contrastive")
        if implied and not any(one in own for one in asked if one in OF_ONE):
            asked["strategy"] = implied[0]
    kept = defaults.model_dump(exclude_none=True)
    if asked.get("strategy", kept["strategy"]) != kept["strategy"]:
        kept = {key: value for key, value in kept.items() if key not in OF_ONE}
    return DecodingTable.model_validate(kept | asked)
