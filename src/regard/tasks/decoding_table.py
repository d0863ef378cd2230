"""The table [decoding] of a recipe: how a model answers when nothing else is asked for; also generation_config.json."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from regard.config import Config
from regard.decoding.filters import Filter, ForcedBos, ForcedEos, Renormalized, Suppressed
from regard.decoding.strategies import Beam, Greedy, Sample, Strategy
from regard.errors import ConfigError

TokenId = Annotated[int, Field(ge=0)]

BEAM_OPTIONS = ("beams", "length_penalty")
SAMPLE_OPTIONS = ("temperature", "top_k", "top_p", "seed")


class DecodingTable(Config):
    """How the model answers when nothing else is asked for; also `generation_config.json`."""

    strategy: Literal["greedy", "sample", "beam"] = Field("greedy", description="how tokens are chosen")
    beams: int | None = Field(None, ge=1, le=512, description="width of the beam; 5 if absent")
    length_penalty: float | None = Field(
        None, allow_inf_nan=False, description="power of the length a beam's score is divided by"
    )
    temperature: float | None = Field(None, gt=0, description="of sampling")
    top_k: int | None = Field(None, ge=1, description="sample among this many")
    top_p: float | None = Field(None, gt=0, le=1, description="sample among the most likely that reach this")
    seed: int | None = Field(None, ge=0, lt=2**32, description="of sampling")
    max_new_tokens: int = Field(64, ge=1, description="length limit of an answer")
    eos_ids: tuple[TokenId, ...] | None = Field(
        None, min_length=1, description="ids that end it; the tokenizer's if absent"
    )
    suppressed: tuple[TokenId, ...] | None = Field(None, description="ids that are never in it")
    forced_bos: TokenId | None = Field(None, description="the id every answer begins with")
    forced_eos: TokenId | None = Field(None, description="the id at its length limit, where it has not ended before")
    renormalize: bool = Field(False, description="a beam counts shares of what may be chosen, as Marian's do")

    @model_validator(mode="after")
    def _options_belong(self) -> "DecodingTable":
        used = {"greedy": (), "beam": BEAM_OPTIONS, "sample": SAMPLE_OPTIONS}[self.strategy]
        for name in (*BEAM_OPTIONS, *SAMPLE_OPTIONS):
            if getattr(self, name) is not None and name not in used:
                owner = "beam" if name in BEAM_OPTIONS else "sample"
                raise ConfigError(
                    f"{name} has no effect with strategy {self.strategy!r}",
                    f"use strategy {owner!r} or leave {name} out",
                )
        return self

    def chosen(self) -> Strategy:
        """The strategy these options describe."""
        given = {name: getattr(self, name) for name in SAMPLE_OPTIONS if getattr(self, name) is not None}
        if self.strategy == "sample":
            return Sample(**given)
        if self.strategy == "beam":
            size = 5 if self.beams is None else self.beams
            return Beam(size, 1.0 if self.length_penalty is None else self.length_penalty)
        return Greedy()

    def filters(self, vocabulary: int) -> tuple[Filter, ...]:
        """Which tokens of so many may be chosen, whatever the strategy."""
        ones = [one for one in (self.forced_bos, self.forced_eos) if one is not None]
        suppressed = self.suppressed or ()
        none = max((*ones, *suppressed, *(self.eos_ids or ())), default=0)
        if none >= vocabulary or len(set(suppressed)) == vocabulary:
            problem = f"id {none} is none" if none >= vocabulary else "every one is suppressed"
            raise ConfigError(f"[decoding] {problem} of the model's {vocabulary} tokens", f"use 0 to {vocabulary - 1}")
        found: list[Filter] = [Suppressed(suppressed)] if suppressed else []
        found += [] if self.forced_bos is None else [ForcedBos(self.forced_bos)]
        found += [] if self.forced_eos is None else [ForcedEos(self.forced_eos)]
        return (*found, Renormalized()) if self.renormalize else tuple(found)
