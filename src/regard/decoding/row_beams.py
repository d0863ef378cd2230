"""Beam search in place, many texts side by side: what beam.py finds, step by step on the device, nothing moved.

A text's beams stand side by side in one row of the cache, and every token's keys and values stay where they were
written. Which of them a beam sees is a table of ancestors, so the prompt is held and looked at once:

    columns      prompt        step 0     step 1     step 2      written by beam 0 1, beam 0 1, …
                 p p p p p     a b        c d        e f
    ancestors    of beam 0 at step 2:  0 0 0        sees  p p p p p a · c · e ·
                 of beam 1 at step 2:  0 1 1        sees  p p p p p a · · d · f

All that a step decides is decided where the logits are, so that it can be captured in a CUDA graph: the best
candidates of every row, of those the best of the text, who finishes, who runs on, and which texts are done. What was
chosen is kept by step with the beam that it came from; answers are read back along that when all is over.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.data.batching import Inputs, Padded
from regard.decoding.beam import check_likely, nothing_left
from regard.decoding.cuda_graph import Replays
from regard.decoding.filters import NOTHING, Filter, Generated, apply
from regard.decoding.hypothesis import Hypothesis, Stop
from regard.decoding.kept_engines import KeptEngines
from regard.decoding.largest import largest
from regard.decoding.strategies import Beam
from regard.models.in_place import InPlaceDecoder, InPlaceState, reach_of, rounded
from regard.models.network import Network

TOGETHER = 16
"""Steps between two looks at whether all are done."""


@dataclass(frozen=True)
class BeamSpace:
    """What there is memory for."""

    texts: int
    size: int
    ends: int
    """Tokens that end a text."""
    prompt: int
    """Tokens of a prompt."""
    steps: int
    source: int = 0
    """Tokens of a source."""

    @property
    def room(self) -> int:
        """Columns of a row."""
        return rounded(self.prompt + self.steps * self.size)

    def joined(self, other: "BeamSpace") -> "BeamSpace":
        """Enough for both where rows and beams are as many; else for the other."""
        prompt, steps = max(self.prompt, other.prompt), max(self.steps, other.steps)
        both = replace(self, prompt=prompt, steps=steps, source=max(self.source, other.source))
        return both if both.holds(other) else other

    def holds(self, other: "BeamSpace") -> bool:
        """Whether what the other has memory for fits here, in as many rows of as many beams."""
        same = (self.texts, self.size, self.ends, bool(self.source))
        return same == (other.texts, other.size, other.ends, bool(other.source)) and (
            self.prompt >= other.prompt and self.steps >= other.steps and self.source >= other.source
        )


@dataclass(eq=False)
class Beams:
    """What is known of every text and its beams: numbers on the device, in memory that never moves."""

    ids: Int[Tensor, "texts beams"]
    """The token that the next step reads."""
    total: Float[Tensor, "texts beams"]
    """Of the running beams, best first; `-inf` where there is none."""
    going: Bool[Tensor, "texts"]
    read: Int[Tensor, "texts"]
    """Columns of the prompt, all but its last token."""
    ancestors: Int[Tensor, "texts beams steps"]
    """For every step the beam whose column a beam sees."""
    tokens: Int[Tensor, "texts steps beams"]
    parents: Int[Tensor, "texts steps beams"]
    likely: Float[Tensor, "texts steps beams"]
    """What was chosen at every step, for which beam, and what it added."""
    scores: Float[Tensor, "texts beams"]
    """Of the finished ones, best first; `-inf` where there is none."""
    ended: Int[Tensor, "texts beams"]
    """The step of their last token, the beam that it came from, the token and what it added."""
    ended_from: Int[Tensor, "texts beams"]
    last: Int[Tensor, "texts beams"]
    last_likely: Float[Tensor, "texts beams"]
    lost: Bool[Tensor, "texts"]
    """Whether logits were no numbers."""
    step: Int[Tensor, "1"]
    over: Int[Tensor, "texts"]
    """The step after which a text was done."""
    text: Int[Tensor, "texts beams room"]
    """The prompt and what was written, no id behind it; kept where filters look at it."""
    limits: Int[Tensor, "texts"]
    powers: Float[Tensor, "steps"]
    """The lengths to the power of the length penalty."""
    ends: Int[Tensor, "ends"]

    @classmethod
    def allocate(cls, space: BeamSpace, device: torch.device) -> "Beams":
        """Texts of which none goes on yet."""

        def whole(*sizes: int) -> Tensor:
            return torch.zeros(*sizes, dtype=torch.long, device=device)

        def wide(*sizes: int) -> Tensor:
            return torch.full(sizes, -torch.inf, dtype=torch.float64, device=device)

        beams, steps = (space.texts, space.size), (space.texts, space.steps, space.size)
        no = torch.zeros(space.texts, dtype=torch.bool, device=device)
        return cls(
            ids=whole(*beams),
            total=wide(*beams),
            going=no,
            read=whole(space.texts),
            ancestors=whole(*beams, space.steps),
            tokens=whole(*steps),
            parents=whole(*steps),
            likely=wide(*steps),
            scores=wide(*beams),
            ended=whole(*beams),
            ended_from=whole(*beams),
            last=whole(*beams),
            last_likely=wide(*beams),
            lost=no.clone(),
            step=whole(1),
            over=whole(space.texts),
            text=whole(*beams, space.prompt + space.steps),
            limits=whole(space.texts),
            powers=wide(space.steps),
            ends=whole(space.ends),
        )

    def begin(self, prompts: Sequence[Sequence[int]], strategy: Beam, stop: Stop) -> None:
        """One running beam for every text, which has read all of its prompt but the last token."""
        texts, device = len(prompts), self.ids.device
        self.ids[:texts] = torch.tensor([prompt[-1] for prompt in prompts], device=device)[:, None]
        self.read[:texts] = torch.tensor([len(prompt) - 1 for prompt in prompts], device=device)
        self.total.fill_(-torch.inf)
        self.total[:texts, 0] = 0
        self.going.fill_(False)
        self.going[:texts] = True
        for one in (self.step, self.lost, self.ancestors):
            one.zero_()
        self.scores.fill_(-torch.inf)
        self.limits.fill_(stop.max_new_tokens)
        self.text.fill_(NOTHING)
        for place, prompt in enumerate(prompts):
            self.text[place, :, : len(prompt)] = torch.tensor(list(prompt), device=device)
        powers = [float(length**strategy.length_penalty) for length in range(1, stop.max_new_tokens + 1)]
        self.powers[: len(powers)] = torch.tensor(powers, dtype=torch.float64)
        self.ends.copy_(torch.tensor(_ends(stop, len(self.ends))))

    @property
    def generated(self) -> Generated:
        """What filters are shown, beam after beam."""
        size = self.ids.shape[1]
        return Generated(
            self.text.flatten(0, 1), (self.read + 1).repeat_interleave(size), self.limits.repeat_interleave(size)
        )

    @property
    def came_from(self) -> Int[Tensor, "texts beams"]:
        """The beams that those of the last step went on from."""
        return self.parents.index_select(1, self.step - 1)[:, 0]

    def copy(self) -> "Beams":
        """The same in memory of its own."""
        return Beams(*(one.clone() for one in self._tensors()))

    def restore(self, other: "Beams") -> None:
        """Write what is known of others over these."""
        for own, new in zip(self._tensors(), other._tensors(), strict=True):
            own.copy_(new)

    def _tensors(self) -> list[Tensor]:
        return [getattr(self, one.name) for one in fields(self)]


def _ends(stop: Stop, room: int) -> list[int]:
    found = sorted(stop.eos_ids)
    return [*found, *[NOTHING] * (room - len(found))]


def step_beams(
    stepper: InPlaceDecoder, state: InPlaceState, beams: Beams, reach: int, filters: tuple[Filter, ...] = ()
) -> None:
    """One token further in every beam of every text that is going."""
    (texts, size), device = beams.ids.shape, beams.ids.device
    numbers = torch.arange(size, device=device)
    beams.ancestors.index_copy_(2, beams.step, numbers.view(1, size, 1).repeat(texts, 1, 1))
    positions = (beams.read + beams.step)[:, None].expand(texts, size)
    columns = (beams.read + beams.step * size)[:, None] + numbers
    logits = stepper.branch(beams.ids, state, positions, columns, _seen(beams, reach))
    likely = logits.log_softmax(dim=-1, dtype=torch.promote_types(logits.dtype, torch.float32))
    beams.lost.logical_or_((likely[:, :, 0].isnan() & (beams.total > -torch.inf)).any(dim=1) & beams.going)
    scores, count = logits.flatten(0, 1), (1 + len(beams.ends)) * size
    if filters:
        scores = apply(filters, likely.flatten(0, 1), beams.generated)
        likely = scores.view_as(likely)
    _, tokens = largest(scores, min(count, scores.shape[1]))
    _settle(beams, _best(beams, likely, tokens.view(texts, size, -1), count))
    if filters:
        beams.text.copy_(beams.text.gather(1, beams.came_from[:, :, None].expand_as(beams.text)))
        at = (beams.read + beams.step)[:, None, None].expand(texts, size, 1)
        beams.text.scatter_(2, at, beams.ids[:, :, None])


def _seen(beams: Beams, reach: int) -> Bool[Tensor, "texts beams reach"]:
    """What each beam sees of the columns: the prompt, and what it and its ancestors wrote."""
    texts, size, steps = beams.ancestors.shape
    behind = torch.arange(reach, device=beams.read.device) - beams.read[:, None]
    step = behind.div(size, rounding_mode="floor")
    whose = beams.ancestors.gather(2, step.clamp(0, steps - 1)[:, None].expand(texts, size, reach))
    written = (step >= 0) & (step <= beams.step)
    return (behind < 0)[:, None] | (written[:, None] & (whose == (behind - step * size)[:, None]))


@dataclass(frozen=True)
class _Candidates:
    """Those of every text that are looked at, best first: what all of it comes to, and the last token alone."""

    totals: Float[Tensor, "texts count"]
    tokens: Int[Tensor, "texts count"]
    parents: Int[Tensor, "texts count"]
    likely: Float[Tensor, "texts count"]

    def select(self, at: Int[Tensor, "texts some"]) -> "_Candidates":
        """These of every text."""
        return _Candidates(*(one.gather(1, at) for one in vars(self).values()))


def _best(
    beams: Beams, likely: Float[Tensor, "texts beams vocab"], tokens: Int[Tensor, "texts beams most"], count: int
) -> _Candidates:
    """The `count` best of every text, of equals those of the better beam, then with the lower id."""
    tokens = tokens.sort(dim=2).values
    totals = beams.total[:, :, None] + likely.gather(2, tokens)
    most = tokens.shape[2]
    order = totals.flatten(1).sort(dim=1, descending=True, stable=True).indices[:, :count]
    parents = order // most
    total, before = totals.flatten(1).gather(1, order), beams.total.gather(1, parents)
    return _Candidates(total, tokens.flatten(1).gather(1, order), parents, total - before)


def _settle(beams: Beams, found: _Candidates) -> None:
    """Those that end may finish, so many others run on; a text is done where nothing that runs may still win."""
    size, step = beams.ids.shape[1], beams.step
    exists, power = found.totals > -torch.inf, beams.powers[step]
    ended = (found.tokens[:, :, None] == beams.ends).any(dim=2) | (step + 1 == beams.limits)[:, None]
    may = torch.arange(found.totals.shape[1], device=step.device) < size
    finishing = ended & may & exists & beams.going[:, None]
    scores = torch.cat([beams.scores, (found.totals / power).where(finishing, -torch.inf)], dim=1)
    ranked = scores.sort(dim=1, descending=True, stable=True)
    beams.scores.copy_(ranked.values[:, :size])
    kept = ranked.indices[:, :size]
    for own, new in (
        (beams.ended, step.expand_as(found.tokens)),
        (beams.ended_from, found.parents),
        (beams.last, found.tokens),
        (beams.last_likely, found.likely),
    ):
        own.copy_(torch.cat([own, new], dim=1).gather(1, kept))
    runs = exists & ~ended
    running = found.select((~runs).long().sort(dim=1, stable=True).indices[:, :size])
    totals = running.totals.where(torch.arange(size, device=step.device) < runs.sum(dim=1)[:, None], -torch.inf)
    for kept_by_step, new in ((beams.tokens, running.tokens), (beams.parents, running.parents)):
        kept_by_step.index_copy_(1, step, new[:, None])
    beams.likely.index_copy_(1, step, running.likely[:, None])
    beams.ancestors.copy_(beams.ancestors.gather(1, running.parents[:, :, None].expand_as(beams.ancestors)))
    worst = beams.scores[:, -1]
    over = (totals == -torch.inf).all(dim=1) | ((worst > -torch.inf) & (totals.amax(dim=1) / power <= worst))
    beams.over.copy_(torch.where(beams.going, step, beams.over))
    beams.going.logical_and_(~over)
    beams.ids.copy_(running.tokens)
    beams.total.copy_(totals)
    beams.step.add_(1)


class BeamEngine:
    """Rows of memory for the beams of so many texts, and the graphs of its steps."""

    def __init__(self, stepper: InPlaceDecoder, space: BeamSpace) -> None:
        device = stepper.model.device
        self.stepper, self.space = stepper, space
        self.state = stepper.allocate(space.texts, space.room, space.source)
        self.beams = Beams.allocate(space, device)
        self.replays = Replays() if device.type == "cuda" else None

    @torch.inference_mode()
    def search(
        self, inputs: Inputs, strategy: Beam, stop: Stop, filters: tuple[Filter, ...] = ()
    ) -> list[list[Hypothesis]]:
        """All finished hypotheses of every text, best first."""
        prompts = inputs.tokens.rows()
        at = torch.arange(len(prompts), device=self.beams.ids.device)
        self.stepper.admit(Inputs(Padded.of(prompts), inputs.source), self.state, at)
        self.beams.begin(prompts, strategy, stop)
        longest, done = max(map(len, prompts)), 0
        while done < stop.max_new_tokens:
            count = min(TOGETHER, stop.max_new_tokens - done)
            done += count
            self._step(count, min(reach_of(longest - 1 + done * self.space.size), self.state.room), filters)
            if not bool(self.beams.going.any()):
                break
        return self._answers(len(prompts))

    @property
    def path(self) -> str:
        """How steps are made, in a word."""
        return "graph" if self.replays is not None else "in place"

    def _step(self, count: int, reach: int, filters: tuple[Filter, ...]) -> None:
        def work() -> None:
            step_beams(self.stepper, self.state, self.beams, reach, filters)

        key = reach, filters
        if self.replays is not None and key not in self.replays:
            before = self.beams.copy()
            self.replays.capture(key, work, lambda: self.beams.restore(before))
        for _ in range(count):
            work() if self.replays is None else self.replays.replay(key)

    def _answers(self, texts: int) -> list[list[Hypothesis]]:
        """Read back from the last token of each along the beams that it came from."""
        beams = self.beams
        if bool(beams.lost[:texts].any()):
            check_likely(beams.lost[:texts].double().masked_fill(beams.lost[:texts], torch.nan))
        steps = int(beams.step)
        tokens, parents, likely = (one[:texts, :steps].tolist() for one in (beams.tokens, beams.parents, beams.likely))
        ends = [one[:texts].tolist() for one in (beams.scores, beams.ended, beams.ended_from, beams.last)]
        last = beams.last_likely[:texts].tolist()
        found: list[list[Hypothesis]] = []
        for text in range(texts):
            own: dict[tuple[int, ...], Hypothesis] = {}
            for score, step, beam, token, added in zip(*(one[text] for one in ends), last[text], strict=True):
                if score == -torch.inf:
                    continue
                ids, terms, rows = [token], [added], [text * self.space.size + beam]
                for place in range(step - 1, -1, -1):
                    ids.append(tokens[text][place][beam])
                    terms.append(likely[text][place][beam])
                    beam = parents[text][place][beam]
                    rows.append(text * self.space.size + beam)
                one = tuple(reversed(ids))
                own.setdefault(one, Hypothesis(one, score, tuple(reversed(rows)), tuple(reversed(terms)), self.path))
            if not own:
                raise nothing_left(int(beams.over[text]))
            found.append(list(own.values()))
        return found


KEPT: KeptEngines[BeamEngine, BeamSpace] = KeptEngines()


def decode_beams(
    model: Network, inputs: Inputs, strategy: Beam, stop: Stop, filters: tuple[Filter, ...] = ()
) -> list[list[Hypothesis]]:
    """What a beam finds for every text. The memory and the graphs are kept with the model."""
    texts, prompt = inputs.tokens.ids.shape
    source = 0 if inputs.source is None else inputs.source.ids.shape[1]
    rows = 1 << (texts - 1).bit_length()
    wanted = BeamSpace(rows, strategy.size, len(stop.eos_ids), prompt, stop.max_new_tokens, source)
    with KEPT.taken(model, wanted, lambda space: BeamEngine(model.in_place(), space)) as engine:
        return engine.search(inputs, strategy, stop, filters)
