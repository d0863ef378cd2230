"""`regard run`: do what the model is for, on one text or on every line of stdin."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli import decoding_options as options
from regard.cli.answering import Answering, Several, with_seed
from regard.cli.look import refuse_existing
from regard.cli.options import Adapters, Device, Plugin, Precision, adapters
from regard.errors import InputError

if TYPE_CHECKING:
    from regard.api import Model

Context = Annotated[str | None, typer.Option(help="The passage that answers TEXT; on stdin it follows a tab.")]
Special = Annotated[
    bool, typer.Option("--special-tokens", help="Read names of special tokens in the text as these tokens.")
]


@dataclass(frozen=True)
class DraftOptions:
    """Who guesses what the model writes."""

    folder: Path | None
    lookup: bool
    device: str
    precision: str

    def check(self, explain: bool) -> None:
        """Refuse what does not go together."""
        if self.folder is not None and self.lookup:
            raise InputError("--draft and --prompt-lookup both guess", "use one of them")
        if explain and (self.folder is not None or self.lookup):
            name = "--prompt-lookup" if self.lookup else "--draft"
            raise InputError(f"{name} has no effect with --explain, which goes step by step", "leave it out")

    def of(self, model: "Model") -> "Model":
        """The model, with what guesses."""
        from regard import api
        from regard.decoding.speculative import PromptLookup

        if self.folder is None:
            return model.drafted_by(PromptLookup()) if self.lookup else model
        return model.drafted_by(api.load(self.folder, self.device, self.precision))


@dataclass(frozen=True)
class Asked:
    """What the command line asks of a model, the text aside."""

    several: Several
    given: dict[str, Any]
    stream: bool
    as_json: bool
    explain: bool
    to: Path | None
    force: bool
    draft: DraftOptions

    def check(self, text: str | None) -> None:
        """Refuse, before a model is read, what does not go together."""
        several = "--samples" if self.several.samples is not None else "--n-best"
        if self.stream and (self.as_json or self.several.key is not None):
            other = "--json" if self.as_json else several
            raise InputError(f"--stream and {other} ask for two kinds of output", "use one of them")
        self.draft.check(self.explain)
        if not self.explain:
            if self.to is not None:
                raise InputError("--to has no effect without --explain", "add --explain, or leave it out")
            return
        if self.stream or self.several.key is not None:
            other = "--stream" if self.stream else several
            raise InputError(f"--explain and {other} ask for two kinds of output", "use one of them")
        if text is None:
            raise InputError("--explain shows one text, and none is given", "give it as an argument")
        if self.to is not None:
            refuse_existing(self.to, self.force)

    def answer(self, model: "Model", text: str | None, context: str | None) -> None:
        """Ask and print."""
        text = _with_context(model, text, context)
        through = {name: self._decoding_so(each) for name, each in model.adapters.items()}
        self._check_adapters(len(through))
        model = next(iter(through.values()), None) or self._decoding_so(model)
        if self.explain and text is not None:
            from regard.cli.explaining import show

            show(model, text, self.to, self.as_json)
            return
        answering = Answering(model, self.several, self.as_json, through if len(through) > 1 else {})
        if text is not None:
            answering.stream(text) if self.stream else answering.one(text)
        elif not (answering.streamed_lines() if self.stream else answering.lines()):
            raise typer.Exit(1)

    def _check_adapters(self, adapters: int) -> None:
        one = self.stream or self.explain or self.several.key is not None
        if adapters > 1 and one:
            what = (
                f"{adapters} adapters give an answer each, and --stream, --explain, --samples and --n-best are of one"
            )
            raise InputError(what, "name one adapter")

    def _decoding_so(self, model: "Model") -> "Model":
        """The model with the decoding that was asked for, and a seed where it needs one."""
        from regard.decoding.strategies import Beam

        given, n_best = self.several.implied(self.given), self.several.n_best
        if any(value is not None for value in given.values()):
            _ = model.writer  # refuses where no text is written, so that no option is without effect
            model = replace(model, decoding=options.decoding(model.decoding, given))
        model = self.draft.of(model)
        chosen = model.decoding.chosen()
        if n_best is not None and isinstance(chosen, Beam) and n_best > chosen.size:
            raise InputError(f"--n-best {n_best} is more than a beam of {chosen.size} holds", f"use --beams {n_best}")
        return with_seed(model)


def run(
    model: Annotated[Path, typer.Argument(help="A model folder.")],
    text: Annotated[str | None, typer.Argument(help="The text; every line of stdin if absent.")] = None,
    context: Context = None,
    strategy: options.Strategy = None,
    beams: options.Beams = None,
    length_penalty: options.LengthPenalty = None,
    diversity_penalty: options.DiversityPenalty = None,
    beam_groups: options.BeamGroups = None,
    temperature: options.Temperature = None,
    top_k: options.TopK = None,
    top_p: options.TopP = None,
    min_p: options.MinP = None,
    penalty_alpha: options.PenaltyAlpha = None,
    repetition_penalty: options.RepetitionPenalty = None,
    no_repeat_ngram: options.NoRepeatNgram = None,
    max_new_tokens: options.MaxNewTokens = None,
    stop: options.Stop = None,
    must_contain: options.MustContain = None,
    must_not_contain: options.MustNotContain = None,
    prefix: options.Prefix = None,
    seed: options.Seed = None,
    samples: options.Samples = None,
    n_best: options.NBest = None,
    draft: options.Draft = None,
    prompt_lookup: options.PromptLookup = False,
    stream: Annotated[bool, typer.Option("--stream", help="Print the answer while it is generated.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Show how the answer comes about.")] = False,
    to: Annotated[
        Path | None, typer.Option(help="Write what --explain shows: .html, or a beam's tree as .svg.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Let --to write over a file that is there.")] = False,
    special_tokens: Special = False,
    adapter: Adapters = None,
    device: Device = "auto",
    precision: Precision = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per text.")] = False,
    plugin: Plugin = None,
) -> None:
    """Do what the model is for: a translator translates, a language model continues, a classifier labels.

    A line of stdin that cannot be answered gives an empty line, with the reason on stderr (with --json, an object with
    error, remedy and line in its place); the others get their answers. Exit status: 0 if every text was answered, 1 if
    one was not.

    Example: `regard run runs/demo "de: 3 mars 2021"`, or with `--beams 4 --explain --to beam.html`
    """
    given: dict[str, Any] = {"strategy": strategy, "beams": beams, "length_penalty": length_penalty, "seed": seed}
    given |= {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p, "beam_groups": beam_groups}
    given |= {"max_new_tokens": max_new_tokens, "no_repeat_ngram_size": no_repeat_ngram, "stop": stop, "prefix": prefix}
    given |= {"repetition_penalty": repetition_penalty, "penalty_alpha": penalty_alpha, "must_contain": must_contain}
    given |= {"diversity_penalty": diversity_penalty, "must_not_contain": must_not_contain}
    drafted = DraftOptions(draft, prompt_lookup, device, precision)
    asked = Asked(Several(samples, n_best), given, stream, as_json, explain, to, force, drafted)
    asked.check(text)
    from regard import api

    asked.answer(
        _special(api.load(model, device, precision, adapters=adapters(adapter)), special_tokens), text, context
    )


def _special(model: "Model", special_tokens: bool) -> "Model":
    """The model, and itself through its adapters, with a tokenizer that reads names of special tokens as these."""
    if not special_tokens:
        return model
    through = {name: _special(each, True) for name, each in model.adapters.items()}
    return replace(model, tokenizer=model.tokenizer.parsing_special_tokens, adapters=through)


def _with_context(model: "Model", text: str | None, context: str | None) -> str | None:
    """A question and its passage, where they are given apart."""
    if context is None:
        return text
    if text is None or model.task.name != "question_answering":
        what = "without a question" if text is None else f"on task {model.task.name!r}"
        raise InputError(f"--context has no effect {what}", "give both to a model that answers questions")
    return f"{text}\t{context}"
