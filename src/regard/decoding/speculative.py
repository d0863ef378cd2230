"""Speculative decoding (Leviathan et al. 2023, §2): what comes next is guessed, and the model reads all of it at once.

    guessed     the  cat  sat  on        a small model's, or what followed the same words before
    chosen      the  cat  lay            the model's own choice at each place, by its own filters and its own draw
                 ✓    ✓    ✗             up to the first that differs all is as if it had been read one by one

A step takes as long as the weights take to read, so several tokens for one reading are a gain. A guess decides nothing:
the model's choice at a place is a function of what stands before it and of the draw at that place, the one that plain
decoding would use. So the text is that of plain decoding token for token, sampled or not, and its distribution is the
same; common random numbers take the place of rejection (Daliri et al. 2025). A model that guesses draws with the same
numbers, so a good one guesses what is drawn.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.axes import RowIds, RowLogits
from regard.data.batching import Inputs, Padded
from regard.decoding.beam import check_likely, nothing_left
from regard.decoding.filters import Filter, Generated, apply
from regard.decoding.hypothesis import Stop
from regard.decoding.moment import Moment, last_tokens, log_probability
from regard.decoding.stepper import S, Stepper
from regard.decoding.strategies import Greedy, Sample
from regard.errors import InputError

Draws = Callable[[Sequence[int], Int[Tensor, "rows"]], Float[Tensor, "rows"]]
"""The draws of these sequences at these places."""


@dataclass(frozen=True, eq=False)
class Choosing:
    """How a token is chosen in each row, so many places further."""

    strategy: Greedy | Sample
    filters: tuple[Filter, ...]
    draws: Draws
    sequence: list[int]
    places: Int[Tensor, "rows"]
    generated: Generated | None

    def __call__(self, logits: RowLogits, ahead: int) -> RowIds:
        """The tokens; refused where the filters leave none."""
        scores = logits if self.generated is None else apply(self.filters, logits, self.generated)
        if self.filters and bool((scores.amax(dim=-1) == -torch.inf).any()):
            raise nothing_left(int(self.places.max()) + ahead)
        scores = scores if self.generated is None else apply(self.strategy.filters, scores, self.generated)
        return self.strategy.choose(scores, self.draws(self.sequence, self.places + ahead))

    def then(self, ids: RowIds) -> "Choosing":
        """After these tokens."""
        return replace(self, generated=None if self.generated is None else self.generated.then(ids))

    def select(self, rows: list[int]) -> "Choosing":
        """In these rows alone."""
        at = torch.tensor(rows, device=self.places.device)
        generated = None if self.generated is None else self.generated.select(at)
        sequence = [self.sequence[row] for row in rows]
        return replace(self, sequence=sequence, places=self.places[at], generated=generated)


@runtime_checkable
class Guesses(Protocol):
    """Somebody who guesses, for rows that are being decoded."""

    def guess(self, ids: RowIds, choosing: Choosing, count: int) -> list[list[int]]:
        """What comes after these tokens in each row, at most so many."""
        ...

    def wrote(self, tokens: list[list[int]], kept: list[int]) -> None:
        """What was written in each row since; these rows go on."""
        ...


@runtime_checkable
class Draft(Protocol):
    """A way to guess."""

    @property
    def tokens(self) -> int:
        """At most so many at a time."""
        ...

    def begin(self, inputs: Inputs) -> Guesses:
        """For these prompts."""
        ...


@dataclass(frozen=True)
class PromptLookup:
    """What followed the last words where they stood before, in the text or in its source (Saxena 2023).

    The last `longest` tokens are looked for, then fewer; the latest place counts. It costs next to nothing, and guesses
    well where a text repeats its prompt: summaries, answers from a passage, code that is changed.
    """

    tokens: int = 8
    longest: int = 3

    def __post_init__(self) -> None:
        for name, value in (("tokens", self.tokens), ("longest", self.longest)):
            if value < 1:
                raise InputError(f"{name} = {value} guesses nothing", "use 1 or more")

    def begin(self, inputs: Inputs) -> "Lookups":
        """For these prompts."""
        texts = inputs.tokens.rows()
        sources = [[] for _ in texts] if inputs.source is None else inputs.source.rows()
        return Lookups(self, *([Followed(self.longest, row) for row in some] for some in (texts, sources)))


class Followed:
    """A text, and where after its words it last went on, so that looking does not take longer as it grows."""

    def __init__(self, longest: int, ids: Sequence[int]) -> None:
        self.ids: list[int] = []
        self._longest = longest
        self._after: dict[tuple[int, ...], int] = {}
        self.extend(ids)

    def extend(self, ids: Sequence[int]) -> None:
        """With these behind it."""
        for token in ids:
            self._after |= dict.fromkeys(self.last(), len(self.ids))
            self.ids.append(token)

    def last(self) -> list[tuple[int, ...]]:
        """The last words, as many as are looked for, then fewer."""
        return [tuple(self.ids[-length:]) for length in range(min(self._longest, len(self.ids)), 0, -1)]

    def after(self, words: tuple[int, ...], count: int) -> list[int]:
        """What followed these, where they stood last."""
        place = self._after.get(words, len(self.ids))
        return self.ids[place : place + count]


@dataclass
class Lookups:
    """The texts of all rows so far, and their sources."""

    how: PromptLookup
    texts: list[Followed]
    sources: list[Followed]

    def guess(self, ids: RowIds, choosing: Choosing, count: int) -> list[list[int]]:
        """What followed in each, in the text or else in the source."""
        found = []
        for text, source in zip(self.texts, self.sources, strict=True):
            options = (where.after(words, count) for words in text.last() for where in (text, source))
            found.append(next(filter(None, options), []))
        return found

    def wrote(self, tokens: list[list[int]], kept: list[int]) -> None:
        """Longer texts."""
        for row in kept:
            self.texts[row].extend(tokens[row])
        self.texts, self.sources = [self.texts[row] for row in kept], [self.sources[row] for row in kept]


@dataclass(frozen=True, eq=False)
class DraftModel:
    """What a smaller model of the same vocabulary chooses, by the same filters and draws."""

    stepper: Stepper[Any]
    tokens: int = 4

    def begin(self, inputs: Inputs) -> "Drafted":
        """Its own reading of these prompts."""
        return Drafted(self.stepper, self.stepper.start(inputs), inputs.tokens.lengths - 1)


@dataclass
class Drafted:
    """A small model's state after all that was written but the last token of each row."""

    stepper: Stepper[Any]
    state: Any
    lengths: Int[Tensor, "rows"]
    read: int = 0
    """Tokens that it has read of its guesses."""

    def guess(self, ids: RowIds, choosing: Choosing, count: int) -> list[list[int]]:
        """Chosen one after the other; the last is read as well, for all may turn out right."""
        found = []
        for ahead in range(count):
            logits, self.state = self.stepper.step(ids, self.state)
            ids = choosing(logits, ahead)
            choosing = choosing.then(ids)
            found.append(ids.tolist())
        _, self.state = self.stepper.step(ids, self.state)
        self.read = count + 1
        return [list(row) for row in zip(*found, strict=True)] if found else [[] for _ in ids]

    def wrote(self, tokens: list[list[int]], kept: list[int]) -> None:
        """Back to what was right."""
        at = torch.tensor(kept, device=self.lengths.device)
        counts = torch.tensor([len(row) for row in tokens], device=at.device)
        self.lengths = (self.lengths + counts)[at]
        self.state = self.state.select(at) if len(kept) < len(tokens) else self.state
        if any(len(tokens[row]) < self.read for row in kept):
            self.state = self.state.trim(self.lengths)


def speculate(
    stepper: Stepper[S],
    inputs: Inputs,
    strategy: Greedy | Sample,
    stop: Stop,
    filters: tuple[Filter, ...],
    draft: Draft,
    draws: Draws,
) -> Iterator[Moment]:
    """Guess, read, keep what is right and one token more, go on; rows that have finished leave."""
    state, guesses, ids = stepper.start(inputs), draft.begin(inputs), last_tokens(inputs)
    prompts, device = inputs.tokens.rows(), ids.device
    texts: list[list[int]] = [[] for _ in prompts]
    sequence = list(range(len(prompts)))
    while sequence:
        places = torch.tensor([len(texts[one]) for one in sequence])
        generated = None
        if filters or strategy.filters:
            generated = _generated([prompts[one] for one in sequence], [texts[one] for one in sequence], stop, device)
        choosing = Choosing(strategy, filters, draws, sequence, places, generated)
        room = stop.max_new_tokens - int(places.max())
        guessed = guesses.guess(ids, choosing, min(draft.tokens, room - 1))
        width = max(map(len, guessed))
        padded = [[first, *row, *[0] * (width - len(row))] for first, row in zip(ids.tolist(), guessed, strict=True)]
        logits, state = stepper.extend(torch.tensor(padded, device=device), state)
        written: list[list[int]] = [[] for _ in sequence]
        yield from _right(choosing, logits, guessed, stop, texts, written)
        kept = [row for row, one in enumerate(sequence) if _going(texts[one], stop)]
        if not kept:
            return
        guesses.wrote(written, kept)
        state = state.select(torch.tensor(kept, device=device)) if len(kept) < len(sequence) else state
        sequence = [sequence[row] for row in kept]
        if any(len(written[row]) <= width for row in kept):
            lengths = [len(prompts[one]) + len(texts[one]) - 1 for one in sequence]
            state = state.trim(torch.tensor(lengths, device=device))
        ids = torch.tensor([texts[one][-1] for one in sequence], device=device)


def _right(
    choosing: Choosing,
    logits: Float[Tensor, "rows places vocab"],
    guessed: list[list[int]],
    stop: Stop,
    texts: list[list[int]],
    written: list[list[int]],
) -> Iterator[Moment]:
    """What is chosen at each place, in the rows whose guesses were right so far; it is entered where it is written."""
    live = list(range(len(guessed)))
    for ahead in range(logits.shape[1]):
        chosen = choosing(logits[live, ahead], ahead)
        likely = log_probability(logits[live, ahead], chosen)
        check_likely(likely)
        yield Moment(choosing.sequence, chosen, likely, live)
        right = []
        for at, (row, token) in enumerate(zip(live, chosen.tolist(), strict=True)):
            text = texts[choosing.sequence[at]]
            written[row].append(token)
            text.append(token)
            if _going(text, stop) and guessed[row][ahead : ahead + 1] == [token]:
                right.append(at)
        if not right:
            return
        choosing, live = choosing.then(chosen).select(right), [live[at] for at in right]


def _going(text: list[int], stop: Stop) -> bool:
    """Whether a text goes on."""
    return len(text) < stop.max_new_tokens and not stop.ended(text)


def _generated(prompts: list[list[int]], texts: list[list[int]], stop: Stop, device: torch.device) -> Generated:
    whole = Padded.of([[*prompt, *text] for prompt, text in zip(prompts, texts, strict=True)]).to(device)
    begun = Generated.begin(Inputs(whole), stop.max_new_tokens)
    return replace(begun, prompt_lengths=torch.tensor([len(prompt) for prompt in prompts], device=device))
