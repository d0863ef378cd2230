"""Tasks whose answer is a text that the model writes token by token: what translation and language have in common."""

import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from regard.data.batching import Inputs
from regard.data.sentinels import filled
from regard.decoding.engine import generate_ranked, stream
from regard.decoding.filters import Filter
from regard.decoding.hypothesis import Hypothesis, Stop
from regard.decoding.stepper import Stepper
from regard.decoding.strategies import Beam, Greedy, Sample, Strategy
from regard.errors import InputError, LengthWarning
from regard.tasks.task import Answer, D, Loaded, Task
from regard.text.tokenizer import Tokenizer

TOGETHER = 64
"""Texts read or decoded side by side."""


class Generation(Task[D]):
    """A text in, a text out."""

    @abstractmethod
    def prompt(self, model: Loaded, texts: Sequence[str]) -> Inputs:
        """What the model reads before it writes."""

    def before(self, model: Loaded, text: str) -> list[int]:
        """The ids of a text that the answer goes on with; none where an answer stands alone."""
        return []

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
        """What was found for a text, as the model says it."""
        output = text_after(model.tokenizer, self.before(model, text), self.written(model, found))
        told = {"score": found.score, "tokens": len(found.ids), "path": found.path}
        return Answer(output, output, {"output": output, **told})

    def written(self, model: Loaded, found: Hypothesis) -> tuple[int, ...]:
        """What was found without the token that ended it."""
        return found.ids[:-1] if found.ids[-1] in _ends(model) else found.ids

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
        found: list[list[Hypothesis]] = []
        for first in range(0, len(texts), TOGETHER):
            inputs = self.prompt(model, texts[first : first + TOGETHER])
            self.warn_of_length(model, inputs)
            inputs = inputs.to(device)
            chosen = replace(usual, first=usual.first + first) if isinstance(usual, Sample) else usual
            stepper = self.stepper(model)
            found += generate_ranked(stepper, inputs, chosen, *_limits(model, stepper, inputs, max_new_tokens))
            progress(len(found), len(texts))
        return found

    def strategy(self, model: Loaded, asked: Strategy | None) -> Strategy:
        """What was asked for, or the model's own."""
        if not isinstance(asked, Greedy | Sample | Beam | None):
            raise InputError(f"{asked!r} is not a strategy", "use regard.Greedy(), Sample(…) or Beam(…)")
        return asked or model.decoding.chosen()

    def stream(self, model: Loaded, text: str, strategy: Strategy | None, max_new_tokens: int | None) -> Iterator[str]:
        """Pieces of the answer as they are chosen."""
        chosen = self.strategy(model, strategy)
        if isinstance(chosen, Beam):
            raise InputError("a beam decides its tokens at the end and cannot stream", "use greedy or sample")
        inputs = self.prompt(model, [text])
        self.warn_of_length(model, inputs)
        inputs = inputs.to(model.module.device)
        text_of = model.tokenizer.stream()  # a character may need the bytes of several tokens
        if before := self.before(model, text):
            for token in before:
                text_of.push(token)
            text_of.end()
        stepper = self.stepper(model)
        stop, filters = _limits(model, stepper, inputs, max_new_tokens)
        for token in stream(stepper, inputs, chosen, stop, filters):
            if token not in stop.eos_ids and (piece := text_of.push(token)):
                yield piece
        if rest := text_of.end():
            yield rest


def filled_answer(model: Loaded, text: str, written: Sequence[int], score: float) -> Answer:
    """The text with what was written in its gaps."""
    output, spans = filled(text, written, model.tokenizer)
    return Answer(output, output, {"output": output, "spans": spans, "score": score})


def refuse_stream() -> NoReturn:
    """Gaps are filled when all of them are written."""
    raise InputError("a text with gaps is filled at the end and cannot stream", "do not stream it")


def text_after(tokenizer: Tokenizer, before: list[int], ids: Sequence[int]) -> str:
    """What ids add to a text: where it goes on with a new word, the blank before that is theirs."""
    start, whole = tokenizer.decode(before), tokenizer.decode([*before, *ids])
    return whole.removeprefix(start) if before and whole.startswith(start) else tokenizer.decode(ids)


def _ends(model: Loaded) -> tuple[int, ...]:
    """The tokens that end an answer."""
    return model.decoding.eos_ids or (model.tokenizer.eos_id,)


def _limits(
    model: Loaded, stepper: Stepper[Any], inputs: Inputs, max_new_tokens: int | None
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
    end, *also = _ends(model)
    return Stop(end, limit, tuple(also)), model.decoding.filters(model.module.config.vocabulary)
