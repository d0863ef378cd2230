"""Span corruption (Raffel et al. 2020, §3.1.4): spans of a text are cut out, and the model writes what was there.

    source   Thank you <extra_id_0> me to your party <extra_id_1> week
    target   <extra_id_0> for inviting <extra_id_1> last

15 % of a window's tokens are cut out, in spans of 3 on average: both counts are exact, where they fall is random, and
is a function of the window's key (see windows.py). Spans never touch, and may stand at either end. Each side ends with
`<eos>`, which stands nowhere else: texts follow each other without one. No target ends with one more sentinel, as
the paper's do and those of T5's own code do not: `<eos>` ends the last span.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from regard.data.batching import IGNORED, Batch, Inputs, Padded
from regard.data.sentinels import SENTINELS
from regard.data.windows import Row, TokenWindow
from regard.errors import ConfigError
from regard.text.tokenizer import Tokenizer

CUT = 0.15
MEAN_SPAN = 3.0


@dataclass(frozen=True, eq=False)
class SpanCorruption:
    """Windows of a stream with spans cut out, for an encoder–decoder."""

    tokenizer: Tokenizer
    window: int

    def __post_init__(self) -> None:
        cut, spans = span_counts(self.stride)
        if not cut:
            raise ConfigError(
                f"a window of {self.window} tokens has room for {max(self.stride, 0)} beside <eos>, "
                "and nothing can be cut out of fewer than 2",
                "use data.window=3 or more",
            )
        if spans > len(SENTINELS):
            raise ConfigError(
                f"a window of {self.window} tokens has {spans} spans and there are {len(SENTINELS)} sentinels",
                "lower data.window",
            )

    @property
    def stride(self) -> int:
        """The tokens of a window that are text; one place is for <eos>."""
        return self.window - 1

    @property
    def lookahead(self) -> int:
        """Nothing of the next window is seen."""
        return 0

    @property
    def places(self) -> int:
        """The source, if nothing were cut out of it: both sides fit in."""
        return self.window

    def batch(self, windows: Sequence[TokenWindow]) -> Batch:
        """Sources with sentinels, and the spans they stand for."""
        token = self.tokenizer
        sides = [self.corrupted(stretch.ids, stretch.draws()) for stretch in windows]
        source = Padded.of([[*kept, token.eos_id] for kept, _ in sides], fill=token.pad_id)
        tokens = Padded.of([[token.bos_id, *cut] for _, cut in sides], fill=token.pad_id)
        targets = Padded.of([[*cut, token.eos_id] for _, cut in sides], fill=IGNORED)
        return Batch(Inputs(tokens, source), targets.ids)

    def corrupted(self, ids: Row, draws: np.random.Generator) -> tuple[list[int], list[int]]:
        """What is left of a text, with sentinels, and what was cut out after each of them."""
        cut, spans = span_counts(len(ids))
        if not cut:
            return ids.tolist(), []
        between = parted(len(ids) - cut + 2, spans + 1, draws)  # the first and the last may be empty: one too many each
        between[0], between[-1] = between[0] - 1, between[-1] - 1
        source: list[int] = []
        target: list[int] = []
        place = 0
        for sentinel, kept, gone in zip(self._sentinels, between, parted(cut, spans, draws), strict=False):
            source += [*ids[place : place + kept].tolist(), sentinel]
            target += [sentinel, *ids[place + kept : place + kept + gone].tolist()]
            place += kept + gone
        return [*source, *ids[place:].tolist()], target

    @cached_property
    def _sentinels(self) -> list[int]:
        return [self.tokenizer.special_ids[name] for name in SENTINELS]


def span_counts(tokens: int) -> tuple[int, int]:
    """How many of so many tokens are cut out, and in how many spans; none of fewer than two."""
    if tokens < 2:
        return 0, 0
    cut = min(max(round(CUT * tokens), 1), tokens - 1)
    return cut, min(max(round(cut / MEAN_SPAN), 1), cut, tokens - cut)


def parted(total: int, parts: int, draws: np.random.Generator) -> list[int]:
    """So many positive numbers that add up to the total, all ways to do so being equally likely."""
    cuts = np.sort(np.argsort(draws.random(total - 1), kind="stable")[: parts - 1]) + 1
    found: list[int] = np.diff([0, *cuts.tolist(), total]).tolist()
    return found
