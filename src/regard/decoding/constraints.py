"""What must stand in an answer, and what must not: `MustContain`, `MustNotContain`, `Allowed`.

They are given to a strategy, `Beam(5, constraints=(MustContain("March"),))`, and hold for any. The first two are texts,
which become filters where the tokenizer is known (`bind`).

**Must contain.** An end is banned until every text stands there; when the length limit leaves just the room that the
missing tokens take, only they may follow. In a beam, a bank of `size` beams is kept for every number of missing tokens:
grid beam search (Hokamp and Liu 2017), so that beams on the way to a constraint compete among themselves. A text may be
met by tokens of another cut; it is written in the cut that the tokenizer gives it, with a blank before or without.

**Must not contain.** A token is banned where the text with it would hold the forbidden one, however that is cut.

**Allowed.** A function of the ids written so far gives the ids that may follow, or None for all.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Bool
from torch import Tensor

from regard.axes import RowLogits
from regard.decoding.filters import Filter, Generated, on
from regard.errors import InputError
from regard.text.incremental import ByteStream
from regard.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class MustContain:
    """Every one of these texts stands somewhere in the answer."""

    texts: str | tuple[str, ...]

    def __post_init__(self) -> None:
        _check(self.texts, "must contain")


@dataclass(frozen=True)
class MustNotContain:
    """None of these texts stands anywhere in the answer."""

    texts: str | tuple[str, ...]

    def __post_init__(self) -> None:
        _check(self.texts, "must not contain")


@dataclass(frozen=True)
class Allowed:
    """Only tokens that a function of the ids written so far gives may follow; None: all may."""

    function: Callable[[tuple[int, ...]], Iterable[int] | None]
    on_device: ClassVar[bool] = False

    def __call__(self, scores: RowLogits, generated: Generated) -> RowLogits:
        """`-inf` for all others."""
        found = scores.clone()
        for row, written in enumerate(generated.written()):
            given = self.function(written)
            if given is not None:
                kept = torch.tensor(sorted(self._checked(given, scores.shape[1])), device=scores.device)
                found[row] = torch.full_like(found[row], -torch.inf).index_copy(
                    0, kept.long(), scores[row, kept.long()]
                )
        return found

    def _checked(self, ids: Iterable[int], vocabulary: int) -> set[int]:
        given = set(ids)
        wrong = next((one for one in given if not isinstance(one, int) or not 0 <= one < vocabulary), None)
        if wrong is not None:
            raise InputError(
                f"the function of Allowed gave {wrong!r}, no id of {vocabulary} tokens", "give ids of tokens"
            )
        return given


Constraint = Filter | MustContain | MustNotContain


def bind(constraints: Sequence[Constraint], tokenizer: Tokenizer, ends: Collection[int]) -> tuple[Filter, ...]:
    """The filters that these are for a tokenizer, whose answers end with `ends`."""
    found: list[Filter] = []
    wanted = [text for one in constraints if isinstance(one, MustContain) for text in _several(one.texts)]
    for one in constraints:
        if isinstance(one, MustNotContain):
            found.append(WithoutTexts(_several(one.texts), continuations(tokenizer)))
        elif not isinstance(one, MustContain):
            found.append(one)
    if wanted:
        cuts = tuple(tuple(_cuts(text, tokenizer)) for text in wanted)
        found.append(WithPhrases(cuts, tuple(ends), lambda ids: [text in tokenizer.decode(ids) for text in wanted]))
    return tuple(found)


@runtime_checkable
class Banked(Protocol):
    """A filter by which beams are kept in banks."""

    def missing(self, written: tuple[int, ...]) -> int:
        """How many tokens it still takes."""

    def wanted(self, written: tuple[int, ...]) -> frozenset[int]:
        """The tokens after which fewer are missing."""


@dataclass(frozen=True, eq=False)
class WithPhrases:
    """Every phrase stands in what is written, in one of its cuts, or so that `met` says it does."""

    phrases: tuple[tuple[tuple[int, ...], ...], ...]
    ends: tuple[int, ...]
    met: Callable[[tuple[int, ...]], Sequence[bool]] | None = None
    on_device: ClassVar[bool] = False

    def __call__(self, scores: RowLogits, generated: Generated) -> RowLogits:
        """No end before all stand there; and nothing after which what is missing would have no room."""
        found, limits = scores.clone(), generated.limit.tolist()
        for row, (written, limit) in enumerate(zip(generated.written(), limits, strict=True)):
            missing, room = self.missing(written), limit - len(written)
            if missing > room:
                raise InputError(
                    f"the {missing} tokens that the answer must contain do not fit into a limit of {limit}",
                    "allow more new tokens, or ask for less",
                )
            if missing and room - 1 < self._whole(written):  # a token of no phrase would have it begin anew
                kept = on(scores.device, tuple(sorted(self._fitting(written, room - 1))))
                found[row] = torch.full_like(found[row], -torch.inf).index_copy(0, kept, scores[row, kept])
            if missing:
                found[row, on(scores.device, self.ends)] = -torch.inf
        return found

    def missing(self, written: tuple[int, ...]) -> int:
        """The tokens of the shortest cuts of what is not there; what is begun of one of them counts."""
        return self._progress(written)[0]

    def wanted(self, written: tuple[int, ...]) -> frozenset[int]:
        """What begins a phrase that is not there, or goes on with one that is begun."""
        return self._progress(written)[1]

    def _whole(self, written: tuple[int, ...]) -> int:
        """The same if nothing were begun."""
        return sum(min(map(len, cuts)) for cuts in self._open(written))

    def _fitting(self, written: tuple[int, ...], room: int) -> set[int]:
        """The tokens of phrases after which no more is missing than there is room for."""
        tokens = {token for cuts in self._open(written) for cut in cuts for token in cut}
        return {token for token in tokens if self.missing((*written, token)) <= room}

    @lru_cache(maxsize=65536)  # noqa: B019  (kept as long as the search it belongs to)
    def _open(self, written: tuple[int, ...]) -> tuple[tuple[tuple[int, ...], ...], ...]:
        """The phrases that are not there."""
        there = self.met(written) if self.met is not None and written else [False] * len(self.phrases)
        pairs = zip(self.phrases, there, strict=True)
        return tuple(cuts for cuts, found in pairs if not found and not any(_holds(written, cut) for cut in cuts))

    @lru_cache(maxsize=65536)  # noqa: B019
    def _progress(self, written: tuple[int, ...]) -> tuple[int, frozenset[int]]:
        whole, options = self._whole(written), dict[int, set[int]]()
        for cuts in self._open(written):
            shortest = min(map(len, cuts))
            for cut in cuts:
                begun = _begun(written, cut)
                options.setdefault(whole - shortest + len(cut) - begun, set()).add(cut[begun])
        if not options:
            return 0, frozenset()
        least = min(options)
        return least, frozenset(options[least])


@dataclass(frozen=True, eq=False)
class WithoutTexts:
    """None of these texts stands in what is written; `pieces` has what every token adds to a text, in UTF-8."""

    texts: tuple[str, ...]
    pieces: Sequence[bytes]
    on_device: ClassVar[bool] = False
    _known: dict[tuple[bytes, bytes], Bool[Tensor, "vocab"]] = field(default_factory=dict)

    def __call__(self, scores: RowLogits, generated: Generated) -> RowLogits:
        """`-inf` for every token with which one of them would stand there."""
        found = scores.clone()
        for row, written in enumerate(generated.written()):
            text = b"".join(self.pieces[token] for token in written)
            for forbidden in self.texts:
                banned = self._banned(forbidden.encode(), text).to(scores.device)
                found[row, : len(banned)].masked_fill_(banned, -torch.inf)
        return found

    def _banned(self, forbidden: bytes, text: bytes) -> Bool[Tensor, "vocab"]:
        """The tokens that complete it after what of it the text ends with: looked for once for every such beginning."""
        begun = next(forbidden[:n] for n in range(len(forbidden) - 1, -1, -1) if text.endswith(forbidden[:n]))
        if (forbidden, begun) not in self._known:
            completes = [forbidden in begun + piece for piece in self.pieces]
            self._known[forbidden, begun] = torch.tensor(completes)
        return self._known[forbidden, begun]


def continuations(tokenizer: Tokenizer) -> list[bytes]:
    """What every token adds to a text that has begun, in UTF-8."""
    if isinstance(tokenizer.stream(), ByteStream):
        return [tokenizer.token_bytes(token) for token in range(tokenizer.size)]
    [first, *_] = tokenizer.encode("a")
    start = tokenizer.decode([first])
    return [tokenizer.decode([first, token]).removeprefix(start).encode() for token in range(tokenizer.size)]


def _cuts(text: str, tokenizer: Tokenizer) -> dict[tuple[int, ...], None]:
    """A text in tokens: as it stands, and after a blank."""
    return dict.fromkeys(tuple(tokenizer.encode(one)) for one in (f" {text.lstrip()}", text))


def _check(texts: str | tuple[str, ...], what: str) -> None:
    if not _several(texts) or not all(_several(texts)):
        raise InputError(f"an answer that {what} an empty text is every answer", "give one character or more")


def _several(texts: str | tuple[str, ...]) -> tuple[str, ...]:
    return (texts,) if isinstance(texts, str) else tuple(texts)


def _holds(written: tuple[int, ...], phrase: tuple[int, ...]) -> bool:
    return any(written[at : at + len(phrase)] == phrase for at in range(len(written) - len(phrase) + 1))


def _begun(written: tuple[int, ...], phrase: tuple[int, ...]) -> int:
    """How many of a phrase's first tokens the text ends with."""
    return next(
        n for n in range(min(len(phrase) - 1, len(written)), -1, -1) if written[len(written) - n :] == phrase[:n]
    )
