"""How a conversation is written down for a model: by the Jinja template that its tokenizer came with, or by ChatML.

    [{"role": "user", "content": "Hi"}]    →    <|im_start|>user␤Hi<|im_end|>␤<|im_start|>assistant␤

What a template writes may hold special tokens; what a person says never does, whatever it spells: contents are framed
by signs that occur nowhere else before the template sees them, so that afterwards each character is known to be the
template's or a person's. The text, and so the ids of all that spells no special token, are those of transformers'
`apply_chat_template`. Where a template writes its marks as plain text, as Mistral's `[INST]` is in some vocabularies,
nothing can tell them from the same signs in a message.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from regard.errors import InputError
from regard.text.pretrained import PretrainedTokenizer
from regard.text.template_sandbox import SandboxedTemplate
from regard.text.tokenizer import CHAT_TEMPLATE, Tokenizer

IM_START, IM_END = "<|im_start|>", "<|im_end|>"
CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
"""What models trained here are taught, in the form OpenAI gave it."""
PLAIN = (
    "{% for message in messages %}"
    "{{ message['role'] | capitalize + ':\\n' + message['content'] }}"
    "{% if message['role'] == 'assistant' %}{{ eos_token }}{% endif %}{{ '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ 'Assistant:\\n' }}{% endif %}"
)
"""What a model that knows no template is taught when training begins in it: no special token but the one that ends."""
ROLES = ("system", "user", "assistant")
PRIVATE = range(0xF0000, 0xFFFFE)
"""Signs that mean nothing to anybody; those that a conversation does not have frame its contents."""
_PROBE = ("Hi", "Yes")


class Message(NamedTuple):
    """What somebody says; of the assistant, whether a model that is trained on it learns to say it."""

    role: str
    content: str
    learnt: bool = True


Messages = tuple[Message, ...]


class ChatPart(NamedTuple):
    """Some text, or the id of a special token; and of which message it is the content, if it is."""

    value: str | int
    message: int | None = None


def read_messages(given: object, place: str = "the conversation") -> Messages:
    """Messages as OpenAI's files and clients write them: objects with role and content; `place` says where they stand.

    A content may be a list of parts, as long as each is a text.
    """
    if not isinstance(given, Sequence) or isinstance(given, str) or not given:
        raise InputError(
            f"{place} is {_shown(given)}, not a list of messages",
            'write it as [{"role": "user", "content": "…"}, …]',
        )
    return tuple(_message(one, f"message {number} of {place}") for number, one in enumerate(given, start=1))


def _message(given: object, place: str) -> Message:
    if isinstance(given, Message):
        given = {"role": given.role, "content": given.content, "weight": int(given.learnt)}
    if not isinstance(given, Mapping) or not {"role", "content"} <= given.keys():
        raise InputError(
            f"{place} is {_shown(given)}", 'give it a role and a content: {"role": "user", "content": "…"}'
        )
    role, content = given["role"], given["content"]
    if role not in ROLES:
        raise InputError(f"{place} has the role {_shown(role)}", f"use {', '.join(ROLES)}")
    if isinstance(content, list) and content:
        texts = [one.get("text") if isinstance(one, Mapping) and one.get("type") == "text" else None for one in content]
        content = None if None in texts else "".join(map(str, texts))
    if not isinstance(content, str):
        raise InputError(f"{place} has the content {_shown(given['content'])}, not a text", "give text alone")
    if not content.strip():
        raise InputError(f"{place} is empty", "say something in it, or leave it out")
    if not content.isascii():
        try:
            content.encode("utf-8")
        except UnicodeEncodeError as error:
            raise InputError(f"{place} has half of a character", "write both halves of the pair") from error
    learnt = given.get("weight", 1)  # as OpenAI's files leave an answer out
    if learnt not in (0, 1):
        raise InputError(f"{place} has the weight {_shown(learnt)}", "use 0 or 1")
    return Message(role, content, bool(learnt))


def _shown(value: object) -> str:
    return repr(value)[:40]


class ChatTemplate:
    """A template with the special tokens of its tokenizer."""

    def __init__(self, source: str, tokenizer: Tokenizer) -> None:
        self.source, self.tokenizer = source, tokenizer
        self._template = SandboxedTemplate(source)
        self._names = _names(tokenizer)
        special = sorted(tokenizer.special_ids, key=len, reverse=True)
        self._special = re.compile(f"({'|'.join(map(re.escape, special))})") if special else None

    def render(self, messages: Sequence[Message], *, answering: bool = True) -> str:
        """The text of a conversation; with `answering`, up to where the assistant's answer begins."""
        values: dict[str, Any] = {
            "messages": [{"role": one.role, "content": one.content} for one in messages],
            "add_generation_prompt": answering,
            "tools": None,
            "documents": None,
            **self._names,
        }
        return self._template.render(values, sum(len(message.content) for message in messages))

    def parts(self, messages: Sequence[Message], *, answering: bool = True) -> list[ChatPart]:
        """The same, cut into what the template says and what people say, the special tokens as ids."""
        plain = self.render(messages, answering=answering)
        frames = _frames(plain, messages)
        for strip in (False, True):  # many templates strip contents, and then the frame stands inside the blanks
            framed = self.render(_framed(messages, frames, strip=strip), answering=answering)
            parts = list(self._cut(framed, frames))
            if "".join(self._written(part) for part in parts) == plain:
                return parts
        found = [ChatPart(value) for value in self._specials(plain)]
        if [one.value for one in found if isinstance(one.value, int)] != [
            one.value for one in parts if isinstance(one.value, int)
        ]:
            raise InputError(
                "the chat template rewrites what people say, and a message spells a special token",
                "leave that out of the message",
            )
        return found

    def encode(self, messages: Sequence[Message]) -> list[int]:
        """What a model reads before it answers."""
        return encode_parts(self.tokenizer, self.parts(messages))

    def stretches(self, messages: Sequence[Message]) -> Iterator[tuple[list[ChatPart], bool]]:
        """A whole conversation in stretches: what is read, and with True what the assistant says, its end with it."""
        parts, before = self.parts(messages, answering=False), list[ChatPart]()
        said = {part.message for part in parts}
        if any(message.role == "assistant" and place not in said for place, message in enumerate(messages)):
            raise InputError(
                "the chat template rewrites what the assistant says, so there is no telling what is to be learnt",
                "train with another template, such as ChatML's",
            )
        while parts:
            part = parts.pop(0)
            before.append(part)
            if part.message is None or messages[part.message].role != "assistant":
                continue
            before.pop()
            yield before, False
            end = self._end_within(parts)
            yield [part, *map(ChatPart, end)], messages[part.message].learnt
            before = []
        yield before, False

    def _end_within(self, parts: list[ChatPart]) -> tuple[str | int, ...]:
        """What ends an answer, taken from what follows it."""
        found: list[str | int] = []
        for value in self.turn_end:
            first = parts[0].value if parts else None
            if first == value:
                parts.pop(0)
            elif isinstance(first, str) and isinstance(value, str) and first.startswith(value):
                parts[0] = ChatPart(first[len(value) :])
            else:
                break
            found.append(value)
        return tuple(found)

    @cached_property
    def turn_end(self) -> tuple[str | int, ...]:
        """What the template writes after an answer: up to its first special token, or all that is said there."""
        user, answer = _PROBE
        parts = self.parts([Message("user", user), Message("assistant", answer)], answering=False)
        places = [place for place, part in enumerate(parts) if part.message == 1]
        if not places:
            return ()
        return end_of_turn([part.value for part in parts[places[-1] + 1 :]])

    @property
    def end_ids(self) -> tuple[int, ...]:
        """The special tokens that end an answer: at most one."""
        return tuple(value for value in self.turn_end if isinstance(value, int))

    @property
    def end_texts(self) -> tuple[str, ...]:
        """The text that ends an answer, where no special token does."""
        texts = [value.strip() for value in self.turn_end if isinstance(value, str)]
        return () if self.end_ids or not any(texts) else tuple(text for text in texts if text)

    def _cut(self, framed: str, frames: Sequence[str]) -> Iterator[ChatPart]:
        """A framed text in parts."""
        *opening, closing = frames
        pattern = f"([{re.escape(''.join(opening))}])([^{closing}]*){closing}"
        pieces = re.split(pattern, framed)
        yield from map(ChatPart, self._specials(pieces[0]))
        for opened, said, after in zip(pieces[1::3], pieces[2::3], pieces[3::3], strict=True):
            yield ChatPart(said, opening.index(opened))
            yield from map(ChatPart, self._specials(after))

    def _specials(self, text: str) -> Iterator[str | int]:
        """A text of the template, its special tokens as ids."""
        ids = self.tokenizer.special_ids
        pieces = [text] if self._special is None else self._special.split(text)
        for place, piece in enumerate(pieces):
            if piece:
                yield ids[piece] if place % 2 else piece

    def _written(self, part: ChatPart) -> str:
        return part.value if isinstance(part.value, str) else self.tokenizer.token_text(part.value)


def end_of_turn(values: Sequence[str | int]) -> tuple[str | int, ...]:
    """Of what stands after an answer, what ends it: all up to the first special token, if only blanks are before it."""
    special = next((place for place, value in enumerate(values) if isinstance(value, int)), None)
    before = values[:special]
    if special is None or any(str(value).strip() for value in before):
        return tuple(before)
    return (*before, values[special])


def encode_parts(tokenizer: Tokenizer, parts: Sequence[ChatPart]) -> list[int]:
    """The ids of parts; texts that stand side by side are one."""
    values: list[str | int] = []
    for part in parts:
        last = values[-1] if values else None
        if isinstance(part.value, str) and isinstance(last, str):
            values[-1] = last + part.value
        else:
            values.append(part.value)
    return tokenizer.encode_parts(values)


def source_of(tokenizer: Tokenizer) -> str | None:
    """The template of a tokenizer: the one it came with, else ChatML where it has its tokens."""
    if isinstance(tokenizer, PretrainedTokenizer):
        found = tokenizer.settings.get("chat_template")
        if isinstance(found, list):  # several by name, as older versions write them
            named = {one.get("name"): one.get("template") for one in found if isinstance(one, dict)}
            found = named.get("default")
        if isinstance(found, str):
            return found
    return CHATML if {IM_START, IM_END} <= tokenizer.special_ids.keys() else None


def chat_template(tokenizer: Tokenizer) -> ChatTemplate:
    """The same, ready to be used, made once for each tokenizer; raise InputError where there is none."""
    kept = vars(tokenizer).get(CHAT_TEMPLATE)
    if isinstance(kept, ChatTemplate):
        return kept
    source = source_of(tokenizer)
    if source is None:
        raise InputError(
            "this model's tokenizer has no chat template, so there is no way to write a conversation down for it",
            "use a model that was trained to chat, or train one: `regard train chat`",
        )
    made = vars(tokenizer)[CHAT_TEMPLATE] = ChatTemplate(source, tokenizer)
    return made


def _names(tokenizer: Tokenizer) -> dict[str, str]:
    """`bos_token`, `eos_token` … as templates ask for them."""
    if isinstance(tokenizer, PretrainedTokenizer):
        known = tokenizer.special_tokens.known()
        return {f"{role}_token": tokenizer.token_text(token) for role, token in known.items()}
    return {"bos_token": tokenizer.bos, "eos_token": tokenizer.eos, "pad_token": tokenizer.pad}


def _frames(text: str, messages: Sequence[Message]) -> list[str]:
    """A sign for each message and one more, of which none occurs in the conversation."""
    taken = set(text).union(*(message.content for message in messages))
    free = (chr(code) for code in PRIVATE if chr(code) not in taken)
    found = [sign for sign, _ in zip(free, range(len(messages) + 1), strict=False)]
    if len(found) <= len(messages):
        raise InputError(f"a conversation of {len(messages):,} messages is too long", "give it in parts")
    return found


def _framed(messages: Sequence[Message], frames: Sequence[str], *, strip: bool) -> list[Message]:
    """The messages with a sign before and behind each content."""
    found = []
    for message, sign in zip(messages, frames, strict=False):
        inner = message.content.strip() if strip else message.content
        before, after = message.content.split(inner, 1)
        found.append(message._replace(content=f"{before}{sign}{inner}{frames[-1]}{after}"))
    return found
