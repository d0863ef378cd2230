"""Conversations of a user's own, and batches of them in which only what the assistant says is learnt.

    jsonl    {"messages": [{"role": "user", "content": …}, {"role": "assistant", "content": …}]} on each line, as
             OpenAI's files for fine-tuning are; an answer with "weight": 0 is read and not learnt
    tables   a message in each row: columns role and content, and conversation, whose value says which rows belong
             together; without that column a conversation begins at every system row

A conversation that is longer than the window loses its oldest turns, but for what the system says.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from regard.data.batching import IGNORED, Batch, Inputs, Padded
from regard.data.columnar import COLUMNAR, column_names, columnar_format, read_rows
from regard.data.corpus import Examples, Pair, Split
from regard.data.objectives import Example, Objective
from regard.data.reading import read_beginning
from regard.data.tables import NAMES, TABLES, Layout, first_object, look, read_columns, read_objects
from regard.errors import ConfigError, FileError, InputError
from regard.text.chat_template import Message, Messages, chat_template, encode_parts, read_messages

SPOKEN = ("messages", "conversation", "role", "content")
"""Columns that a file of conversations may have: the first alone, or the others."""
_REMEDY = 'write {"messages": [{"role": "user", "content": "…"}, {"role": "assistant", "content": "…"}]} on each line'


class Conversation(NamedTuple):
    """What was said, in its order."""

    messages: Messages


def look_conversations(path: Path, format: str = "auto", columns: Mapping[str, str] | None = None) -> Layout:
    """What this file holds: a list of messages in each line, or a message in each row."""
    if format not in ("auto", *TABLES):
        raise ConfigError(f"format {format!r} has no conversations", "use jsonl, csv or tsv")
    given = dict(columns or {})
    if "messages" in given and len(given) > 1:
        raise ConfigError("[data] columns name messages and a message's parts", "name one or the other")
    kind = columnar_format(path, format)
    first = next(iter(read_beginning(path)), "") if kind is None else ""
    keys = set(column_names(path, kind)) if kind else set(first_object(first) or {first})
    listed = "messages" in given or (not given and bool(keys & {*NAMES["messages"]}))
    if listed or (first.startswith("{") and not keys & {*NAMES["role"]}):
        return look(path, ("messages",), format, given)
    for parts in (SPOKEN[1:], SPOKEN[2:]):
        try:
            layout = look(path, parts, format, given)
        except (FileError, ConfigError):
            if parts == SPOKEN[2:] or "conversation" in given:
                raise
            continue
        if layout.format != "jsonl" or {layout.columns.get(part, part) for part in parts} <= keys:
            break
    if layout.format == "text":
        raise FileError(f"{path} is no table of messages", _REMEDY)
    return layout if layout.columns else Layout(layout.format, {part: part for part in parts}, layout.said)


def read_conversations(
    path: Path, format: str = "auto", columns: Mapping[str, str] | None = None
) -> list[Conversation]:
    """The conversations of a file; in each the assistant says something."""
    layout = look_conversations(path, format, columns)
    found = list(_listed(path, layout) if "messages" in layout.columns or not layout.columns else _rows(path, layout))
    if not found:
        raise FileError(f"{path} is empty", _REMEDY)
    return found


def _listed(path: Path, layout: Layout) -> Iterator[Conversation]:
    """A conversation in each line."""
    key = layout.columns.get("messages", "messages")
    if layout.format in COLUMNAR:
        for number, row in read_rows(path, layout.format, [key]):
            yield _conversation(row[key], f"{path}, row {number}")
        return
    if layout.format != "jsonl":
        raise FileError(f"{path} has a column of messages, and only JSON can hold them", _REMEDY)
    for number, record in read_objects(path, [key]):
        yield _conversation(record[key], f"{path}, line {number}")


def _rows(path: Path, layout: Layout) -> Iterator[Conversation]:
    """A message in each row."""
    parts = tuple(part for part in SPOKEN[1:] if part in layout.columns)
    rows = list(read_columns(path, parts, layout))
    if "conversation" in parts:
        for _, group in groupby(rows, key=lambda row: row[1][0]):
            yield _of_rows(path, [(number, texts[1:]) for number, texts in group])
        return
    begins = [place for place, (_, (role, _)) in enumerate(rows) if role == "system"]
    if begins[:1] != [0]:
        raise FileError(
            f"{path} does not say where a conversation ends",
            "give it a column `conversation`, or begin each one with a row of the system",
        )
    for start, end in zip(begins, [*begins[1:], len(rows)], strict=True):
        yield _of_rows(path, rows[start:end])


def _of_rows(path: Path, rows: Sequence[tuple[int, tuple[str, ...]]]) -> Conversation:
    messages = [{"role": role, "content": content} for _, (role, content) in rows]
    return _conversation(messages, f"{path}, the conversation at line {rows[0][0]}")


def _conversation(given: object, place: str) -> Conversation:
    try:
        messages = read_messages(given, place)
    except InputError as error:
        raise FileError(error.problem, error.remedy) from error
    if not any(message.role == "assistant" and message.learnt for message in messages):
        raise FileError(f"{place} has nothing that the assistant says, so nothing to learn", "add an answer")
    return Conversation(messages)


@dataclass(frozen=True)
class Dialogues:
    """The examples of a built-in corpus as conversations: a question and its answer, where they are pairs."""

    corpus: Examples

    def size(self, split: Split) -> int | None:
        """As many as the corpus has."""
        return self.corpus.size(split)

    def example(self, split: Split, index: int) -> Conversation:
        """The conversation at this place."""
        found = self.corpus.example(split, index)
        if isinstance(found, Pair):
            return Conversation((Message("user", found.source), Message("assistant", found.target)))
        assert isinstance(found, Conversation)
        return found


def without_oldest(messages: Messages) -> Messages | None:
    """What is left without the oldest turn, what the system says aside; None where one turn alone is there."""
    first = next((place for place, one in enumerate(messages) if one.role != "system"), len(messages))
    later = next((place for place in range(first + 1, len(messages)) if messages[place].role == "user"), None)
    return None if later is None else messages[:first] + messages[later:]


@dataclass(frozen=True)
class Chatting(Objective):
    """A decoder reads a conversation as its template writes it down; an `Example`'s target marks the learnt tokens.

    Law: what is predicted after `prompt` is what `batch` trained; all but the assistant's tokens add nothing.
    """

    window: int = 256

    def encode(self, pairs: Sequence[Any]) -> list[Example]:
        """Each conversation as its last turns that fit into the window; of one that does not, its end."""
        return [self.fitted(one.messages)[0] for one in pairs]

    def fitted(self, messages: Messages) -> tuple[Example, Messages]:
        """A conversation's tokens, and which of its messages are among them."""
        while True:
            found, fewer = self._example(messages), without_oldest(messages)
            if len(found.source) <= self.window + 1 or fewer is None:
                return Example(found.source[-self.window - 1 :], found.target[-self.window - 1 :]), messages
            messages = fewer

    def _example(self, messages: Messages) -> Example:
        ids: list[int] = []
        learnt: list[int] = []
        for parts, said in chat_template(self.tokenizer).stretches(messages):
            row = encode_parts(self.tokenizer, parts)
            ids += row
            learnt += [int(said)] * len(row)
        return Example(ids, learnt)

    def cost(self, example: Example) -> int:
        """What is read: all tokens but the last."""
        return len(example.source) - 1

    def batch(self, examples: Sequence[Example]) -> Batch:
        """Conversations side by side; targets are what the assistant says, one place earlier."""
        rows = [example.source[:-1] for example in examples]
        targets = [
            [token if said else IGNORED for token, said in zip(one.source[1:], one.target[1:], strict=True)]
            for one in examples
        ]
        tokens = Padded.of(rows, fill=self.tokenizer.pad_id)
        return Batch(Inputs(tokens), Padded.of(targets, fill=IGNORED).ids)

    def prompt(self, sources: Sequence[str]) -> Inputs:
        """Each text as all that a user has said."""
        return self.prompts([(Message("user", source),) for source in sources])

    def prompts(self, conversations: Sequence[Sequence[Message]]) -> Inputs:
        """Conversations up to where the assistant answers, padded on the left so that all go on at the same column."""
        template = chat_template(self.tokenizer)
        rows = [template.encode(messages) for messages in conversations]
        return Inputs(Padded.of(rows, fill=self.tokenizer.pad_id, side="left"))
