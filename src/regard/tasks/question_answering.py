"""Extractive question answering: an encoder that finds the answer to a question in a passage."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from regard.data.corpus import Examples, Split
from regard.data.questions import (
    ASKED,
    LONGEST_QUESTION,
    Question,
    SpanExample,
    SpanFinding,
    read_questions,
    split_question,
)
from regard.data.splits import Splits, hold_out
from regard.data.stream import BatchStream, Position, by_length
from regard.decoding.beam import check_likely
from regard.decoding.strategies import Strategy
from regard.errors import ConfigError, InputError
from regard.metrics.answers import overlap, same_answer
from regard.models.network import Network
from regard.tasks.data_table import DataTable
from regard.tasks.files import corpus_examples, one_file, open_files, reading_of, require_positions, window_of
from regard.tasks.language_modelling import read_at_once
from regard.tasks.recipe import Recipe
from regard.tasks.task import (
    EVERY_SPLIT,
    USUAL,
    Answer,
    Loaded,
    Measuring,
    Needs,
    Task,
    TrainingData,
    amount,
    held_out,
    refuse_decoding,
)
from regard.tasks.task_table import TaskTable
from regard.text.tokenizer import Tokenizer
from regard.training.losses import SpanPrediction

LONGEST_ANSWER = 30
"""Tokens of an answer."""
TOGETHER = 256
"""Questions measured side by side."""


@dataclass(frozen=True)
class Found:
    """Characters of a passage, and the log-probability that the answer begins and ends there."""

    start: int
    end: int
    score: float


class QuestionAnsweringTable(TaskTable):
    """A question and a passage in, the part of the passage that answers it out."""

    name: Literal["question_answering"] = Field("question_answering", description="answers found in passages")

    parts = ASKED
    files = '`data=["questions.jsonl"]` (question, context, answer), or the JSON of SQuAD'
    data_keys = frozenset({"window", "seed"})


class QuestionAnswering(Task[Examples]):
    """A question and a passage in, the part of the passage that answers it out."""

    Table = QuestionAnsweringTable
    options: QuestionAnsweringTable
    needs = Needs(decodes=False, outputs=("spans",))
    example = Question

    def open(self, recipe: Recipe, splits: Collection[Split] = EVERY_SPLIT) -> Examples:
        """Files in the format of SQuAD, tables, or a built-in corpus that asks questions."""
        own = corpus_examples(recipe.given, "questions")
        if own is not None:
            return own
        found: Splits[Question] = open_files(recipe.given, splits, one_file(self.name, read_questions), _by_passage)
        return found

    def texts(self, data: Examples, sample: int) -> Iterator[str]:
        """The first training questions, and their passages once each."""
        taken = held_out(data, "train", sample)
        yield from (one.question for one in taken)
        yield from dict.fromkeys(one.context for one in taken)

    def shown(self, example: Any) -> dict[str, str]:
        """Of the answers their texts."""
        answers = " | ".join(answer for answer, _ in example.answers)
        return {"question": example.question, "context": example.context, "answer": answers}

    def cuts(self, recipe: Recipe, examples: Sequence[Any], tokenizer: Tokenizer) -> list[str]:
        """Passages of several windows, and questions of which only the beginning is read."""
        how, said = SpanFinding(tokenizer, window=window_of(recipe.model, recipe.data)), []
        several = sum(len(how.windows(one)) > 1 for one in examples)
        long = sum(len(tokenizer.encode(one.question)) > LONGEST_QUESTION for one in examples)
        if several:
            said.append(f"{several:,} passages are longer than the window of {how.window:,} tokens: read in several")
        if long:
            said.append(f"{long:,} questions are longer than {LONGEST_QUESTION} tokens, and are cut there")
        return said

    def training_data(self, recipe: Recipe, data: Examples, module: Network, tokenizer: Tokenizer) -> TrainingData:
        """Windows of like length side by side."""
        plan, how = recipe.training, _finding(recipe.data, module, tokenizer)
        if plan.label_smoothing:
            raise ConfigError(
                f"[training] label_smoothing = {plan.label_smoothing} has no meaning for places in a text",
                "use training.label_smoothing=0",
            )
        require_positions(recipe, module.config, how.window)
        batches = BatchStream(data, how, plan.batch_tokens, plan.seed)
        next(batches.start(Position()))
        held = how.encode(held_out(data, "valid") if recipe.given.corpus else held_out(data, "valid", None))
        valid = [how.batch(rows) for rows in by_length(held, how, plan.batch_tokens)]
        return TrainingData(SpanPrediction(module), batches, valid, amount(batches, data), how.window)

    def metrics(self, data: DataTable | None) -> tuple[str, ...]:
        return ("exact_match", "f1")

    def check(self, model: Loaded, text: str) -> None:
        """A question, a tab, a passage."""
        question, context = split_question(text)
        if not question or not context.strip():
            missing = "question before" if not question else "passage after"
            raise InputError(
                f"there is no {missing} the tab",
                'give a question, a tab, and the passage that answers it, as `question + "\\t" + passage`',
            )

    def answers(
        self, model: Loaded, texts: Sequence[str], strategy: Strategy | None, max_new_tokens: int | None
    ) -> list[Answer]:
        """The part of the passage, its score, and its characters from and to."""
        refuse_decoding(self.name, strategy, max_new_tokens)
        return self._answers(model, [Question(*split_question(text)) for text in texts])

    @torch.no_grad()
    def _answers(self, model: Loaded, asked: Sequence[Question], how: SpanFinding | None = None) -> list[Answer]:
        """The windows of all questions side by side, and for each question the best of its own."""
        how = how or _finding(model.data, model.module, model.tokenizer)
        device = model.module.device
        windows = [how.windows(question) for question in asked]
        found: dict[int, Found] = {}
        for rows in by_length([one for own in windows for one in own], how, max(read_at_once(device), how.window)):
            logits: Tensor = model.module(how.batch(rows).inputs.to(device)).cpu()
            for one, row in zip(logits, rows, strict=True):
                assert isinstance(row, SpanExample)
                found[id(row)] = best_span(one, row)
        return [
            _answer(question, max((found[id(one)] for one in own), key=lambda one: one.score))
            for question, own in zip(asked, windows, strict=True)
        ]

    def read(self, paths: Sequence[Path], data: DataTable | None = None) -> list[Question]:
        """The questions of one file."""
        if len(paths) != 1:
            raise InputError(f"{len(paths)} files are given", "give one file in the format of SQuAD")
        return read_questions(paths[0], *reading_of(data))

    def evaluate(self, model: Loaded, examples: Sequence[Any], how: Measuring = USUAL) -> dict[str, float]:
        """The share of answers that are a reference, and the mean overlap of their words with the best reference."""
        how.refuse_windows(self.name)
        questions: Sequence[Question] = examples
        if not questions:
            raise InputError("there are no questions to measure on", "give a file, or test data in the recipe")
        finding = _finding(model.data, model.module, model.tokenizer)
        said: list[str] = []
        for first in range(0, len(questions), TOGETHER):
            said += [one.text for one in self._answers(model, questions[first : first + TOGETHER], finding)]
            how.progress(len(said), len(questions))
        wanted = [[answer for answer, _ in question.answers] for question in questions]
        pairs = list(zip(said, wanted, strict=True))
        return {
            "exact_match": sum(same_answer(*pair) for pair in pairs) / len(pairs),
            "f1": sum(overlap(*pair) for pair in pairs) / len(pairs),
        }


def _answer(asked: Question, best: Found) -> Answer:
    """The passage's part, its score, and its characters from and to."""
    start, end = without_blanks(asked.context, best.start, best.end)
    text = asked.context[start:end]
    return Answer(text, text, {"output": text, "score": best.score, "start": start, "end": end})


def _finding(data: DataTable | None, module: Network, tokenizer: Tokenizer) -> SpanFinding:
    kinds = max(tokenizer.apply_template([0], [0])[1]) + 1
    if 0 < module.config.segment_kinds < kinds:
        raise ConfigError(
            f"[model] segments = {module.config.segment_kinds} tells no question from its passage, which are {kinds}",
            f"use model.segments={kinds}, or 0 to tell none apart",
        )
    return SpanFinding(tokenizer, window=window_of(module.config, data))


def without_blanks(text: str, start: int, end: int) -> tuple[int, int]:
    """Where a span begins and ends without the blanks round it, which some tokenizers count to their tokens."""
    span = text[start:end]
    start += len(span) - len(span.lstrip())
    return start, start + len(span.strip())


def best_span(logits: Float[Tensor, "tokens 2"], row: SpanExample) -> Found:
    """The likeliest span of the passage that begins before it ends and is no longer than an answer may be.

    Probabilities are of the whole row: a window that points at its first place, seeing no answer, says little. That is
    all there is to say of a passage without tokens: nothing, at its beginning.
    """
    count = len(row.offsets)
    likely = logits[: len(row.source)].double().log_softmax(dim=0)
    check_likely(likely)
    if not count:
        return Found(0, 0, float(likely[0].sum()))
    here = likely[row.first : row.first + count]
    ends = F.pad(here[:, 1], (0, LONGEST_ANSWER - 1), value=-torch.inf).unfold(0, LONGEST_ANSWER, 1)
    scores = here[:, 0, None] + ends  # of every beginning with the tokens from there on
    begin, length = divmod(int(scores.argmax()), LONGEST_ANSWER)
    return Found(row.offsets[begin][0], row.offsets[begin + length][1], float(scores[begin, length]))


def _by_passage(
    examples: Sequence[Question], share: float | None, seed: int
) -> tuple[Sequence[Question], Sequence[Question]]:
    """No passage is both trained on and held out."""
    return hold_out(examples, share, seed, lambda one: one.context)
