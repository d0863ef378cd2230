"""Questions whose answer is a span of a passage: SQuAD's files or tables, and batches of them.

    read      [CLS] question [SEP] passage [SEP]
    targets   where in that row the answer begins and where it ends (its last token)

A passage that does not fit into the window is read in several windows that overlap by a third; in those without the
answer both targets are the first place, as in Devlin et al. (2018, §4.3).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from regard.data.batching import Batch, Inputs, Padded
from regard.data.columnar import COLUMNAR, read_rows
from regard.data.objectives import Example, Objective
from regard.data.reading import read_beginning, whole_text
from regard.data.tables import TABLES, ending, look, read_columns, read_objects
from regard.errors import ConfigError, FileError
from regard.text.counting import read_texts

ASKED = ("question", "context", "answer")
LONGEST_QUESTION = 64
"""Tokens of a question that are read."""
PASSAGES = 2**15
"""That are kept as tokens: several questions ask about each."""


class Question(NamedTuple):
    """A question, the passage that answers it, and the answers with the characters they begin at."""

    question: str
    context: str
    answers: tuple[tuple[str, int], ...] = ()


def read_questions(path: Path, format: str = "auto", columns: Mapping[str, str] | None = None) -> list[Question]:
    """The questions of SQuAD 1.1's JSON or of a table; each has an answer that stands in its passage."""
    if format not in ("auto", *TABLES):
        raise ConfigError(f"format {format!r} has no questions", "give SQuAD's JSON, or use tsv, csv or jsonl")
    layout = look(path, ASKED, format, columns)
    keys = [layout.columns.get(part, part) for part in ASKED]
    if layout.format == "jsonl" and _has_rows(path, keys[0]):
        records = [(number, [record[key] for key in keys]) for number, record in read_objects(path, keys)]
        return [_found(path, number, *values) for number, values in records]
    if layout.format in COLUMNAR:
        rows = read_rows(path, layout.format, keys)
        return [_found(path, number, *(row[key] for key in keys)) for number, row in rows]
    if layout.format in ("tsv", "csv"):
        return [_found(path, number, *texts) for number, texts in read_columns(path, ASKED, layout)]
    return _squad(path)


def _has_rows(path: Path, question: str) -> bool:
    """Whether the first line is a question, and not the beginning of SQuAD's one object."""
    try:
        first = json.loads(next(iter(read_beginning(path)), ""))
    except (ValueError, RecursionError):
        return False
    return isinstance(first, dict) and (question in first or (ending(path) == ".jsonl" and "data" not in first))


def _found(path: Path, number: int, question: object, context: object, answer: object) -> Question:
    """A row's question; its answer is a text that the passage holds, or texts with their places."""
    place = f"{path}, line {number}"
    passage = whole_text(place, "context", context)
    if isinstance(answer, dict):
        pairs = zip(answer.get("text") or (), answer.get("answer_start") or (), strict=False)
        answers = [{"text": text, "answer_start": start} for text, start in pairs]
    else:
        text = whole_text(place, "answer", answer)
        if text not in passage:
            raise FileError(
                f"{place}: the answer {text[:40]!r} does not stand in its context", "give the answer as it stands there"
            )
        answers = [{"text": text, "answer_start": passage.index(text)}]
    return _question(path, passage, {"id": f"of line {number}", "question": question, "answers": answers})


def _squad(path: Path) -> list[Question]:
    remedy = "give a file in the format of SQuAD 1.1, or a table of question, context and answer"
    try:
        whole = json.loads("".join(read_texts([path])))
        paragraphs = [paragraph for article in whole["data"] for paragraph in article["paragraphs"]]
        asked = [(paragraph["context"], question) for paragraph in paragraphs for question in paragraph["qas"]]
        return [_question(path, context, question) for context, question in asked]
    except FileError:
        raise
    except KeyError as error:
        raise FileError(f"{path} lacks the key {error}", remedy) from error
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise FileError(f"{path} is not a file of questions ({error})", remedy) from error


def _question(path: Path, passage: object, record: dict[str, Any]) -> Question:
    text = record["question"]
    answers = tuple((answer["text"], answer["answer_start"]) for answer in record["answers"])
    named = f"{path}, question {str(record.get('id', text))[:60]!r}"
    text, context = whole_text(named, "question", text), whole_text(named, "passage", passage)
    if not answers:
        raise FileError(f"{named} has no answer", "leave such questions out: SQuAD 1.1 has none")
    for answer, start in answers:
        if not isinstance(answer, str) or type(start) is not int:
            raise FileError(
                f"{named}: the answer {json.dumps(answer)[:40]} at {json.dumps(start)[:40]} is not a text at a number",
                "give text in quotes, and answer_start as a whole number",
            )
        if not answer or start < 0 or context[start : start + len(answer)] != answer:
            raise FileError(
                f"{named}: the answer {answer[:40]!r} does not stand at character {start} of its passage",
                "correct answer_start, which counts characters from 0",
            )
    return Question(text.strip(), context, answers)


@dataclass(frozen=True)
class SpanExample(Example):
    """One window of a passage after its question; `target` has the first and the last place of the answer."""

    segments: list[int]
    first: int
    """The place of the row at which the passage's tokens begin."""
    offsets: list[tuple[int, int]]
    """Which characters of the passage each of its tokens is."""


@dataclass(frozen=True)
class SpanFinding(Objective):
    """A question and a passage in, two places out."""

    window: int = 256
    passages: dict[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict, repr=False, compare=False)
    """Those that were read."""

    def encode(self, pairs: Sequence[Any]) -> list[Example]:
        """The windows of all questions."""
        return [window for question in pairs for window in self.windows(question)]

    def windows(self, asked: Question) -> list[SpanExample]:
        """The windows of one passage, overlapping by a third."""
        token = self.tokenizer
        question = token.encode(asked.question)[:LONGEST_QUESTION]
        passage, offsets = self._passage(asked.context)
        room = self.window - token.added(pair=True) - len(question)
        if room < 1:
            raise ConfigError(
                f"a window of {self.window} tokens has no room for a passage beside a question of {len(question)}",
                "raise data.window",
            )
        answer = _places(offsets, asked.answers[0]) if asked.answers else None
        step = max(1, room - room // 3)
        starts = range(0, max(len(passage) - room, 0) + step, step)
        return [self._window(question, passage, offsets, slice(one, one + room), answer) for one in starts]

    def _passage(self, context: str) -> tuple[list[int], list[tuple[int, int]]]:
        """A passage's tokens and the characters they are; one that was asked about before is not read again."""
        kept = self.passages.get(context)
        if kept is None:
            if len(self.passages) >= PASSAGES:
                self.passages.clear()
            offsets = np.array(self.tokenizer.offsets(context), dtype=np.int32).reshape(-1, 2)
            kept = self.passages[context] = np.array(self.tokenizer.encode(context), dtype=np.int32), offsets
        return kept[0].tolist(), [(start, end) for start, end in kept[1].tolist()]

    def _window(
        self,
        question: list[int],
        passage: list[int],
        offsets: list[tuple[int, int]],
        here: slice,
        answer: tuple[int, int] | None,
    ) -> SpanExample:
        ids, segments = self.tokenizer.apply_template(question, passage[here])
        first = self.tokenizer.apply_template(question, [-1])[0].index(-1)
        target = [0, 0]
        if answer is not None and here.start <= answer[0] and answer[1] < here.stop:
            target = [first + answer[0] - here.start, first + answer[1] - here.start]
        return SpanExample(ids, target, segments, first, offsets[here])

    def cost(self, example: Example) -> int:
        """Question, passage and special tokens."""
        return len(example.source)

    def batch(self, examples: Sequence[Example]) -> Batch:
        """Windows side by side; the two columns of targets are the ends of the answers."""
        segments = [one.segments for one in examples if isinstance(one, SpanExample)]
        tokens = Padded.of([one.source for one in examples], fill=self.tokenizer.pad_id, segments=segments)
        return Batch(Inputs(tokens), Padded.of([one.target for one in examples]).ids)

    def prompt(self, sources: Sequence[str]) -> Inputs:
        """Questions, each with its passage after a tab, cut to one window."""
        rows = [self.windows(Question(*split_question(source)))[0] for source in sources]
        return self.batch(rows).inputs


def split_question(text: str) -> tuple[str, str]:
    """A question and its passage, which a tab parts."""
    question, _, context = text.partition("\t")
    return question.strip(), context


def _places(offsets: Sequence[tuple[int, int]], answer: tuple[str, int]) -> tuple[int, int] | None:
    """The first and the last token that share a character with the answer."""
    begin, end = answer[1], answer[1] + len(answer[0])
    touching = [place for place, (start, stop) in enumerate(offsets) if start < end and stop > begin]
    return (touching[0], touching[-1]) if touching else None
