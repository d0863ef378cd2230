"""Tasks whose answer is a text that the model writes token by token: what translation and language have in common."""

import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from regard.data.batching import Inputs, Padded
from regard.data.sentinels import filled
from regard.decoding.constraints import bind
from regard.decoding.engine import generate_ranked, listeners, stream
from regard.decoding.filters import Filter
from regard.decoding.hypothesis import Hypothesis, Stop
from regard.decoding.stepper import Stepper
from regard.decoding.stopping import HeldBack, cut, meeting
from regard.decoding.strategies import Beam, Contrastive, Greedy, Sample, Strategy
from regard.errors import InputError, LengthWarning
from regard.tasks.task import Answer, D, Loaded, Task
from regard.text.tokenizer import Tokenizer

TOGETHER = 64
"""Rows decoded side by side, at most; on a GPU, where a step costs the same for more, four times as many texts."""
TOKENS = 16_384
"""Tokens read side by side, padding with them and each once for every beam, at most."""
AHEAD = 1024
"""Texts that are cut into tokens at a time, and sorted by how many they are."""


def texts_together(beams: int) -> int:
    """How many texts are decoded side by side on a CPU, each by so many beams.

    Beams change places at every step. Of more rows the allocator hands the memory back to the system each time, and
    faulting it in again costs as long as the arithmetic.
    """
    return max(TOGETHER // beams, 1)


class Generation(Task[D]):
    """A text in, a text out."""

    @abstractmethod
    def prompt(self, model: Loaded, texts: Sequence[str]) -> Inputs:
        """What the model reads before it writes."""

    def before(self, model: Loaded, text: str) -> list[int]:
        """The ids of a text that the answer goes on with; none where an answer stands alone."""
        return []

    def begun(self, model: Loaded, texts: Sequence[str]) -> Inputs:
        """What the model reads, with what every answer begins with."""
        prefix = model.decoding.prefix
        if prefix is None:
            return self.prompt(model, texts)
        if self.continues:
            return self.prompt(model, [text + prefix for text in texts])
        inputs, first = self.prompt(model, texts), model.decoding.forced_bos
        ids = [*([] if first is None else [first]), *model.tokenizer.encode(prefix)]
        rows = [[*row, *ids] for row in inputs.tokens.rows()]
        return Inputs(Padded.of(rows, side=inputs.tokens.side), inputs.source)

    def limits(
        self, model: Loaded, stepper: Stepper[Any], inputs: Inputs, max_new_tokens: int | None
    ) -> tuple[Stop, tuple[Filter, ...]]:
        """When an answer ends, and what may stand in it.

        Where nobody said how long it may be and positions are learnt, it ends where they do, unless the window slides.
        """
        config, limit = model.module.config, max_new_tokens
        if limit is None:
            limit = model.decoding.max_new_tokens
            if config.position_limit is not None and stepper is model.module:
                room = config.position_limit - inputs.tokens.ids.shape[1] + 1  # the last token is not read
                limit = max(min(limit, room), 1)
        end, *also = self.endings(model)
        met = meeting(self.stops(model), model.tokenizer.decode)
        return Stop(end, limit, tuple(also), met), model.decoding.filters(config.vocabulary)

    def endings(self, model: Loaded) -> tuple[int, ...]:
        """The tokens that end an answer."""
        return model.decoding.eos_ids or (model.tokenizer.eos_id,)

    def end_id(self, model: Loaded) -> int:
        """The token that a model learns to end an answer with."""
        return model.tokenizer.eos_id

    def stops(self, model: Loaded) -> tuple[str, ...]:
        """The texts that end an answer, which is cut before them."""
        return model.decoding.stop or ()

    def stepper(self, model: Loaded) -> Stepper[Any]:
        """What is decoded: the network itself, unless the task lets it go on beyond what it can read at once."""
        return model.module

    def warn_of_length(self, model: Loaded, inputs: Inputs) -> None:
        """Say, where a text is longer than any the model was trained on, what to expect."""
        config, longest = model.module.config, int((inputs.source or inputs.tokens).lengths.max())
        trained, refused = config.trained_length, longest > (config.position_limit or longest)
        if trained is not None and longest > trained and not refused:
            warnings.warn(
                f"a text of {longest:,} tokens is longer than any this model was trained on ({trained:,}): "
                "expect a worse answer, or give it in parts",
                LengthWarning,
                stacklevel=2,
            )

    def answers(
        self, model: Loaded, texts: Sequence[str], strategy: Strategy | None, max_new_tokens: int | None
    ) -> list[Answer]:
        """What the model writes, its score and how many tokens it took."""
        found = self.hypotheses(model, texts, strategy, max_new_tokens)
        return [self.answer(model, text, one) for text, one in zip(texts, found, strict=True)]

    def answered(self, model: Loaded, texts: Sequence[str], progress: Callable[[int, int], None]) -> list[str]:
        """What the model writes to each text, `progress` being told after every group of them."""
        for text in texts:
            self.check(model, text)
        found = self.ranked(model, texts, None, None, progress)
        return [self.answer(model, text, best).text for text, (best, *_) in zip(texts, found, strict=True)]

    def answer(self, model: Loaded, text: str, found: Hypothesis) -> Answer:
        """What was found for a text, as the model says it: cut before a text to stop at, with what it begins with."""
        prefix, stops = model.decoding.prefix or "", self.stops(model)
        added = text_after(model.tokenizer, self._preceding(model, text), self.written(model, found))
        output, stop = cut(added, stops)
        record = {"output": prefix + output, "score": found.score, "tokens": len(found.ids), "path": found.path}
        return Answer(prefix + output, prefix + output, record | ({"stopped_at": stop} if stops else {}))

    def _preceding(self, model: Loaded, text: str) -> list[int]:
        """The ids that an answer goes on with: of the text, of what every answer begins with, of both or of neither."""
        prefix = model.decoding.prefix or ""
        if self.continues:
            return self.before(model, text + prefix)
        return model.tokenizer.encode(prefix) if prefix else []

    def written(self, model: Loaded, found: Hypothesis) -> tuple[int, ...]:
        """What was found without the token that ended it."""
        return found.ids[:-1] if found.ids[-1] in self.endings(model) else found.ids

    def hypotheses(
        self, model: Loaded, texts: Sequence[str], strategy: Strategy | None, max_new_tokens: int | None
    ) -> list[Hypothesis]:
        """What decoding found for every text: ids, score, and the rows they were computed in."""
        return [ranked[0] for ranked in self.ranked(model, texts, strategy, max_new_tokens)]

    def n_best(
        self, model: Loaded, texts: Sequence[str], count: int, strategy: Beam, max_new_tokens: int | None
    ) -> list[list[Answer]]:
        """The best answers of a beam to each text, at most so many, best first."""
        if not 1 <= count <= strategy.size:
            raise InputError(f"a beam of {strategy.size} does not hold {count} answers", f"use 1 to {strategy.size}")
        found = self.ranked(model, texts, strategy, max_new_tokens)
        return [
            [self.answer(model, text, one) for one in best[:count]] for text, best in zip(texts, found, strict=True)
        ]

    def ranked(
        self,
        model: Loaded,
        texts: Sequence[str],
        strategy: Strategy | None,
        max_new_tokens: int | None,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> list[list[Hypothesis]]:
        """All that decoding found for every text, best first: a beam finds several. The texts are checked before."""
        usual, device = self.strategy(model, strategy), model.module.device
        size = usual.size if isinstance(usual, Beam) else 1
        rows = texts_together(size) if device.type == "cpu" else 4 * TOGETHER
        found: dict[int, list[Hypothesis]] = {}
        for first in range(0, len(texts), AHEAD):
            whole = self.begun(model, texts[first : first + AHEAD])
            self.warn_of_length(model, whole)
            chosen = replace(usual, first=usual.first + first) if isinstance(usual, Sample) else usual
            sizes = [1] * len(whole.sizes) if listeners.get() else whole.sizes  # what is watched stays in its order
            for numbers in side_by_side(sizes, rows, TOKENS // size):
                inputs = whole.select(numbers).to(device)
                stepper = self.stepper(model)
                stop, filters = self.limits(model, stepper, inputs, max_new_tokens)
                best = generate_ranked(stepper, inputs, chosen, stop, filters, numbers, model.draft)
                found |= zip((first + number for number in numbers), best, strict=True)
                progress(len(found), len(texts))
        return [found[number] for number in range(len(texts))]

    def strategy(self, model: Loaded, asked: Strategy | None) -> Strategy:
        """What was asked for, or the model's own; its constraints, with the model's, as filters."""
        if not isinstance(asked, Greedy | Sample | Beam | Contrastive | None):
            raise InputError(f"{asked!r} is not a strategy", "use regard.Greedy, Sample, Beam or Contrastive")
        chosen = asked or model.decoding.chosen()
        constraints = (*model.decoding.constraints, *chosen.constraints)
        if not constraints:
            return chosen
        return replace(chosen, constraints=bind(constraints, model.tokenizer, self.endings(model)))

    def stream(self, model: Loaded, text: str, strategy: Strategy | None, max_new_tokens: int | None) -> Iterator[str]:
        """Pieces of the answer as they are chosen."""
        chosen, prefix = self.strategy(model, strategy), model.decoding.prefix or ""
        inputs = self.begun(model, [text])
        self.warn_of_length(model, inputs)
        inputs = inputs.to(model.module.device)
        text_of = model.tokenizer.stream()  # a character may need the bytes of several tokens
        if before := self._preceding(model, text):
            for token in before:
                text_of.push(token)
            text_of.end()
        stepper, held = self.stepper(model), HeldBack(self.stops(model))
        stop, filters = self.limits(model, stepper, inputs, max_new_tokens)
        if prefix:
            yield prefix
        for token in stream(stepper, inputs, chosen, stop, filters, model.draft):
            if token not in stop.eos_ids and (piece := held.push(text_of.push(token))):
                yield piece
        if rest := held.push(text_of.end()) + held.end():
            yield rest


def side_by_side(sizes: Sequence[int], rows: int, tokens: int) -> Iterator[list[int]]:
    """Texts by their numbers, in groups of so many rows and tokens at most, the longest first; one may be too long.

    Sorted, a group is little padding; and what does not fit into memory shows at once.
    """
    group: list[int] = []
    for number in sorted(range(len(sizes)), key=lambda number: -sizes[number]):
        if group and (len(group) == rows or (len(group) + 1) * sizes[group[0]] > tokens):
            yield group
            group = []
        group.append(number)
    if group:
        yield group


def filled_answer(model: Loaded, text: str, written: Sequence[int], score: float) -> Answer:
    """The text with what was written in its gaps."""
    for key in ("stop", "prefix"):
        if getattr(model.decoding, key) is not None:
            raise InputError(f"{key} has no effect where gaps of a text are filled", f"leave {key} out")
    output, spans = filled(text, written, model.tokenizer)
    return Answer(output, output, {"output": output, "spans": spans, "score": score})


def refuse_stream() -> NoReturn:
    """Gaps are filled when all of them are written."""
    raise InputError("a text with gaps is filled at the end and cannot stream", "do not stream it")


def text_after(tokenizer: Tokenizer, before: list[int], ids: Sequence[int]) -> str:
    """What ids add to a text: where it goes on with a new word, the blank before that is theirs."""
    start, whole = tokenizer.decode(before), tokenizer.decode([*before, *ids])
    return whole.removeprefix(start) if before and whole.startswith(start) else tokenizer.decode(ids)
