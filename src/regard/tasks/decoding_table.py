"""The table [decoding] of a recipe: how a model answers when nothing else is asked for; also generation_config.json."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from regard.config import Config
from regard.decoding.constraints import Constraint, MustContain, MustNotContain
from regard.decoding.filters import Filter, ForcedBos, ForcedEos, Renormalized, Suppressed
from regard.decoding.penalties import Banned, NoRepeatNgram, RepetitionPenalty
from regard.decoding.strategies import Beam, Contrastive, Greedy, Sample, Strategy
from regard.errors import ConfigError, InputError

TokenId = Annotated[int, Field(ge=0)]
Text = Annotated[str, Field(min_length=1)]

BEAM_OPTIONS = ("beams", "length_penalty", "diversity_penalty", "beam_groups")
SAMPLE_OPTIONS = ("temperature", "top_k", "top_p", "min_p", "seed")
CONTRASTIVE_OPTIONS = ("top_k", "penalty_alpha")
OPTIONS = {"beam": BEAM_OPTIONS, "sample": SAMPLE_OPTIONS, "contrastive": CONTRASTIVE_OPTIONS, "greedy": ()}
"""Those that mean something to one strategy, by its name."""
OF_ONE = tuple(dict.fromkeys(name for names in OPTIONS.values() for name in names))


class DecodingTable(Config):
    """How the model answers when nothing else is asked for; also `generation_config.json`."""

    strategy: Literal["greedy", "sample", "beam", "contrastive"] = Field("greedy", description="how tokens are chosen")
    beams: int | None = Field(None, ge=1, le=512, description="width of the beam; 5 if absent")
    length_penalty: float | None = Field(
        None, allow_inf_nan=False, description="power of the length a beam's score is divided by"
    )
    diversity_penalty: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="what a token costs a group of beams if an earlier group has just chosen it",
    )
    beam_groups: int | None = Field(None, ge=2, description="groups of a diverse beam; as many as beams if absent")
    temperature: float | None = Field(None, gt=0, description="of sampling")
    top_k: int | None = Field(
        None, ge=1, description="sampling and contrastive search choose among this many of the likeliest tokens"
    )
    top_p: float | None = Field(None, gt=0, le=1, description="sample among the most likely that reach this")
    min_p: float | None = Field(
        None, gt=0, le=1, description="sample among those at least this share as likely as the first"
    )
    seed: int | None = Field(None, ge=0, lt=2**32, description="of sampling")
    penalty_alpha: float | None = Field(
        None, ge=0, le=1, description="weight of the penalty on repetition in contrastive search; 0 is greedy"
    )
    repetition_penalty: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="divides the scores of tokens that are in the text already"
    )
    no_repeat_ngram_size: int | None = Field(None, ge=1, description="no run of this many tokens occurs twice")
    max_new_tokens: int = Field(64, ge=1, description="length limit of an answer")
    stop: tuple[Text, ...] | None = Field(None, description="texts that end an answer, which is cut before them")
    prefix: str | None = Field(None, min_length=1, description="the text every answer begins with")
    must_contain: tuple[Text, ...] | None = Field(None, description="texts that every answer contains")
    must_not_contain: tuple[Text, ...] | None = Field(None, description="texts that no answer contains")
    eos_ids: tuple[TokenId, ...] | None = Field(
        None, min_length=1, description="ids that end it; the tokenizer's if absent"
    )
    suppressed: tuple[TokenId, ...] | None = Field(None, description="ids that an answer never contains")
    banned: tuple[Annotated[tuple[TokenId, ...], Field(min_length=2)], ...] | None = Field(
        None, description="sequences of ids that an answer never contains"
    )
    forced_bos: TokenId | None = Field(None, description="the id every answer begins with")
    forced_eos: TokenId | None = Field(None, description="the id an answer ends with at its length limit")
    renormalize: bool = Field(
        False, description="probabilities in a beam are normalised again after filters, as Marian's are"
    )

    @model_validator(mode="after")
    def _options_belong(self) -> "DecodingTable":
        for name in OF_ONE:
            if getattr(self, name) is not None and name not in OPTIONS[self.strategy]:
                owners = " or ".join(repr(owner) for owner, names in OPTIONS.items() if name in names)
                raise ConfigError(
                    f"{name} has no effect with strategy {self.strategy!r}",
                    f"use strategy {owners} or leave {name} out",
                )
        try:
            self.chosen()
        except InputError as error:
            raise ConfigError(error.problem, error.remedy) from error
        return self

    def chosen(self) -> Strategy:
        """The strategy these options describe."""
        given = {name: getattr(self, name) for name in OPTIONS[self.strategy] if getattr(self, name) is not None}
        if self.strategy == "sample":
            return Sample(**given)
        if self.strategy == "beam":
            size = 5 if self.beams is None else self.beams
            power = 1.0 if self.length_penalty is None else self.length_penalty
            return Beam(size, power, self.diversity_penalty or 0.0, self.beam_groups)
        if self.strategy == "contrastive":
            usual = Contrastive()
            return Contrastive(
                self.top_k or usual.top_k, usual.penalty_alpha if self.penalty_alpha is None else self.penalty_alpha
            )
        return Greedy()

    @property
    def constraints(self) -> tuple[Constraint, ...]:
        """What stands in every answer and in none."""
        without = [MustNotContain(self.must_not_contain)] if self.must_not_contain else []
        return (*without, MustContain(self.must_contain)) if self.must_contain else tuple(without)

    def filters(self, vocabulary: int) -> tuple[Filter, ...]:
        """Which tokens of so many may be chosen, whatever the strategy; in the order of decoding/filters.py."""
        self._check_ids(vocabulary)
        penalty, size = self.repetition_penalty, self.no_repeat_ngram_size
        found: list[Filter] = [] if penalty in (None, 1) else [RepetitionPenalty(float(penalty or 1))]
        found += [] if size is None else [NoRepeatNgram(size)]
        found += [Banned(self.banned)] if self.banned else []
        found += [Suppressed(self.suppressed)] if self.suppressed else []
        found += [] if self.forced_bos is None or self.prefix is not None else [ForcedBos(self.forced_bos)]
        found += [] if self.forced_eos is None else [ForcedEos(self.forced_eos)]
        return (*found, Renormalized()) if self.renormalize else tuple(found)

    def _check_ids(self, vocabulary: int) -> None:
        ones = [one for one in (self.forced_bos, self.forced_eos) if one is not None]
        suppressed = self.suppressed or ()
        banned = [token for word in self.banned or () for token in word]
        none = max((*ones, *suppressed, *banned, *(self.eos_ids or ())), default=0)
        if none >= vocabulary or len(set(suppressed)) == vocabulary:
            problem = f"id {none} is none" if none >= vocabulary else "every one is suppressed"
            raise ConfigError(f"[decoding] {problem} of the model's {vocabulary} tokens", f"use 0 to {vocabulary - 1}")
