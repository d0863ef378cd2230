"""Chat: a conversation in, what the assistant says next out (Ouyang et al. 2022, §3, supervised fine-tuning).

How a conversation is written down is the tokenizer's chat template; models trained here are taught ChatML. A text alone
is a conversation of which the user has said all. Only what the assistant says is learnt.
"""

import math
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeGuard

import torch
from pydantic import Field

from regard.data.batching import Inputs
from regard.data.conversations import (
    SPOKEN,
    Chatting,
    Conversation,
    Dialogues,
    look_conversations,
    read_conversations,
    without_oldest,
)
from regard.data.corpus import Corpus, Examples, Split
from regard.data.splits import hold_out
from regard.data.stream import BatchStream, Position, by_length
from regard.data.tables import Layout
from regard.errors import InputError, LengthWarning
from regard.metrics.text import chrf, exact_match
from regard.models.network import Network
from regard.tasks.data_table import DataTable
from regard.tasks.files import corpus_examples, one_file, open_files, reading_of, require_positions, window_of
from regard.tasks.generation import Generation
from regard.tasks.language_modelling import MEASURED, measured
from regard.tasks.recipe import Recipe
from regard.tasks.task import EVERY_SPLIT, USUAL, Loaded, Measuring, Needs, TrainingData, amount, held_out
from regard.tasks.task_table import TaskTable
from regard.text.chat_template import (
    IM_END,
    IM_START,
    PLAIN,
    Message,
    Messages,
    chat_template,
    read_messages,
    source_of,
)
from regard.text.pretrained import PretrainedTokenizer
from regard.text.tokenizer import Tokenizer
from regard.training.trainable import TokenPrediction

Spoken = Sequence[Message] | Sequence[Mapping[str, Any]]
"""A conversation as clients give it: messages with role and content."""


class ConversationText(str):
    """A conversation where a text is asked for: as a string what is said last; `.messages` has all."""

    messages: Messages

    def __new__(cls, given: Spoken) -> "ConversationText":
        """Messages as clients write them; the last is not the assistant's."""
        messages = read_messages(given)
        if messages[-1].role == "assistant":
            raise InputError(
                "the last message is the assistant's, and it is the assistant's turn", "end with the user's"
            )
        found = super().__new__(cls, messages[-1].content)
        found.messages = messages
        return found


class ChatTable(TaskTable):
    """A conversation in, what the assistant says next out."""

    name: Literal["chat"] = Field("chat", description="conversations with an assistant")

    parts = SPOKEN
    files = '`data=["chats.jsonl"]` (messages with role and content)'
    data_keys = frozenset({"window", "seed"})
    writes = True

    def layout(self, path: Path, format: str, columns: Mapping[str, str]) -> Layout:
        return look_conversations(path, format, columns)


class Chat(Generation[Examples]):
    """A conversation in, what the assistant says next out."""

    Table = ChatTable
    options: ChatTable
    needs = Needs(decodes=True, source=False)
    example = Conversation
    specials = (IM_START, IM_END)

    def open(self, recipe: Recipe, splits: Collection[Split] = EVERY_SPLIT) -> Examples:
        """Conversations from files, or of a built-in corpus: of a pair the source asks and the target answers."""
        own = corpus_examples(recipe.given, "conversations")
        if own is not None:
            return Dialogues(own)
        return open_files(recipe.given, splits, one_file(self.name, read_conversations), _by_question)

    def texts(self, data: Examples, sample: int) -> Iterator[str]:
        """What is said in the first training conversations, and by whom."""
        said = (message for one in held_out(data, "train", sample) for message in one.messages)
        return (f"{message.role}\n{message.content}" for message in said)

    def adopt(self, tokenizer: Tokenizer, folder: str) -> Tokenizer:
        """A folder's tokenizer keeps its own template; one without is taught `User:` and `Assistant:`."""
        if source_of(tokenizer) is not None:
            return tokenizer
        if isinstance(tokenizer, PretrainedTokenizer) and "eos" in tokenizer.special_tokens.known():
            return tokenizer.with_settings({**tokenizer.settings, "chat_template": PLAIN})
        return super().adopt(tokenizer, folder)

    def shown(self, example: Any) -> dict[str, str]:
        """All that is said, and what of it is learnt."""
        learnt = [one.content for one in example.messages if one.role == "assistant" and one.learnt]
        said = "\n".join(f"{one.role}: {one.content}" for one in example.messages)
        return {"conversation": said, "learnt": "\n".join(learnt)}

    def cuts(self, recipe: Recipe, examples: Sequence[Any], tokenizer: Tokenizer) -> list[str]:
        """Conversations that are longer than the window."""
        how, said = Chatting(tokenizer, window=window_of(recipe.model, recipe.data)), []
        fitted = [(how.fitted(one.messages), one) for one in examples]
        fewer = sum(len(messages) < len(one.messages) for (_, messages), one in fitted)
        cut = sum(len(example.source) > how.window for (example, _), _ in fitted)
        if fewer:
            said.append(f"{fewer:,} are longer than the window of {how.window:,} tokens: the oldest turns are left out")
        if cut:
            said.append(f"{cut:,} fill the window of {how.window:,} tokens: of a longer turn the end is read")
        return said

    def training_data(self, recipe: Recipe, data: Examples, module: Network, tokenizer: Tokenizer) -> TrainingData:
        """Conversations of like length side by side."""
        plan, how = recipe.training, _chatting(recipe.data, module, tokenizer)
        require_positions(recipe, module.config, how.window)
        batches = BatchStream(data, how, plan.batch_tokens, plan.seed)
        next(batches.start(Position()))
        valid = by_length(how.encode(held_out(data, "valid")), how, plan.batch_tokens)
        trainable = TokenPrediction(module, label_smoothing=plan.label_smoothing)
        held = [how.batch(rows) for rows in valid]
        return TrainingData(trainable, batches, held, amount(batches, data), how.window)

    def metrics(self, data: DataTable | None) -> tuple[str, ...]:
        return ("exact_match", "conversation_match", "chrf", "loss", "perplexity")

    def check(self, model: Loaded, text: str) -> None:
        """No empty text, and of a built-in corpus, what it teaches."""
        super().check(model, text)
        if model.data is not None and model.data.corpus is not None:
            found = corpus_examples(model.data, "conversations")
            if isinstance(found, Corpus):
                found.check(str(text))

    def prompt(self, model: Loaded, texts: Sequence[str]) -> Inputs:
        """The conversations up to where the assistant answers; the oldest turns of one that is too long left out."""
        how = _chatting(model.data, model.module, model.tokenizer)
        return how.prompts([_fitting(model, _messages(text)) for text in texts])

    def endings(self, model: Loaded) -> tuple[int, ...]:
        """What the template writes after an answer, and what ends texts."""
        return tuple(dict.fromkeys((*chat_template(model.tokenizer).end_ids, *super().endings(model))))

    def end_id(self, model: Loaded) -> int:
        """What the template writes after an answer."""
        return self.endings(model)[0]

    def stops(self, model: Loaded) -> tuple[str, ...]:
        """Also the text that ends an answer, where the template has one in place of a special token."""
        return (*super().stops(model), *chat_template(model.tokenizer).end_texts)

    def read(self, paths: Sequence[Path], data: DataTable | None = None) -> list[Conversation]:
        """The conversations of one file."""
        if len(paths) != 1:
            raise InputError(f"{len(paths)} files are given", "give one file of conversations")
        return read_conversations(paths[0], *reading_of(data))

    @torch.no_grad()
    def evaluate(self, model: Loaded, examples: Sequence[Any], how: Measuring = USUAL) -> dict[str, float]:
        """Of every answer, given what was said before it as it stands: whether it is the same, chrF, and the loss.

        `conversation_match` is the share of conversations whose answers are all the same.
        """
        how.refuse_windows(self.name)
        chats: Sequence[Conversation] = examples
        if not chats:
            raise InputError("there are no conversations to measure on", "give a file, or test data in the recipe")
        asked, references, whose = [], [], []
        for number, one in enumerate(chats):
            for place, message in enumerate(one.messages):
                if message.role == "assistant" and message.learnt and place:
                    asked.append(ConversationText(one.messages[:place]))
                    references.append(message.content)
                    whose.append(number)
        outputs = self.answered(model, asked, how.progress)
        task = _chatting(model.data, model.module, model.tokenizer)
        rows = by_length(task.encode(chats), task, max(MEASURED, task.window))
        total, count = measured(TokenPrediction(model.module), [task.batch(one) for one in rows], how.progress)
        loss = total / max(count, 1)
        wrong = {one for one, output, right in zip(whose, outputs, references, strict=True) if output != right}
        return {
            "exact_match": exact_match(outputs, references),
            "conversation_match": 1 - len(wrong) / len(set(whose)),
            "chrf": chrf(outputs, references),
            "loss": loss,
            "perplexity": math.exp(loss) if loss < 700 else math.inf,
        }


def is_spoken(given: object) -> TypeGuard[Spoken]:
    """Whether these are messages, and no texts."""
    return (
        isinstance(given, Sequence)
        and not isinstance(given, str)
        and any(isinstance(one, Mapping | Message) for one in given)
    )


def _messages(text: str) -> Messages:
    return text.messages if isinstance(text, ConversationText) else (Message("user", str(text)),)


def _chatting(data: DataTable | None, module: Network, tokenizer: Tokenizer) -> Chatting:
    return Chatting(tokenizer, window=window_of(module.config, data))


def _fitting(model: Loaded, messages: Messages) -> Messages:
    """As many of the latest turns as the model reads at once, with room for an answer; what is left out is said."""
    context, template = model.module.config.context, chat_template(model.tokenizer)
    tokens = whole = len(template.encode(messages))
    if context is None:
        return messages
    room, kept = context - min(model.decoding.max_new_tokens, context // 4), messages
    while tokens > room and (fewer := without_oldest(kept)) is not None:
        kept, tokens = fewer, len(template.encode(fewer))
    if tokens > room:
        raise InputError(
            f"the last turn takes {tokens:,} tokens, and this model reads {context:,} at once, its answer included",
            "say less, or use a model that reads more",
        )
    if len(kept) < len(messages):
        warnings.warn(
            f"the conversation of {whole:,} tokens is longer than the {context:,} this model reads at once, its answer "
            f"included: the oldest {len(messages) - len(kept)} messages are left out",
            LengthWarning,
            stacklevel=2,
        )
    return kept


def _by_question(
    examples: Sequence[Conversation], share: float | None, seed: int
) -> tuple[Sequence[Conversation], Sequence[Conversation]]:
    """No conversations that begin with the same question are on both sides."""
    return hold_out(
        examples, share, seed, lambda one: next(said.content for said in one.messages if said.role != "system")
    )


def as_chat(model: Any) -> Any:
    """A model that was loaded for something else, asked as its chat template says."""
    task = Chat()
    lacking = task.needs.lacking(model.module.config)
    if lacking is not None:
        raise InputError(f"this model cannot chat: {lacking}", "use a decoder, such as a language model")
    chat_template(model.tokenizer)
    return model if isinstance(model.task, Chat) else replace(model, task=task)
