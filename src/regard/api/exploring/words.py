"""What words are to a model: the tokens they are cut into, and how a word's vector moves in several sentences."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from regard.api.exploring.reading import ExploredText
from regard.errors import InputError
from regard.inspection.contextual import word_in_sentences
from regard.inspection.nearness import Sense, nearness
from regard.text.bytelevel import bytes_of
from regard.text.explain import BYTES, Reading
from regard.text.explain_pretrained import BLANKS, build_text
from regard.views.exploring.recorded import PageQuestion
from regard.views.meaning import findings
from regard.views.records import meaning_record

MOST_TOKENS = 1000
MOST_WORDS = 60
"""Different words whose building is shown."""
LONGEST_BUILT = 4000
"""Characters of a text whose words are built."""
MOST_SENTENCES = 12
MOST_SENSES = 6
LONGEST_SENTENCE = 2000
"""Characters."""


class OfSense(BaseModel):
    """A word in a sentence that leaves no doubt what it means."""

    model_config = ConfigDict(extra="forbid")

    word: str
    sentence: str


class OfWord(PageQuestion):
    """A word of several sentences."""

    word: str
    sentences: list[str]
    beside: list[OfSense] = Field(default_factory=list)


def _named(reads: Reading, symbols: Sequence[str]) -> list[str]:
    """Symbols as people read them: letters where bytes are letters, and `\\xc3` where they are a part of one."""
    if reads is BYTES:
        return [bytes_of(one).decode("utf-8", errors="backslashreplace") for one in symbols]
    return [one.replace("▁", " ") for one in symbols] if reads is BLANKS else list(symbols)


def tokens_record(reading: ExploredText, asked: PageQuestion) -> dict[str, Any]:
    """The tokens of the text with their ids, and the merges that built each word, where merges did."""
    tokenizer, text = reading.model.tokenizer, reading.text
    ids, offsets = tokenizer.encode(text), tokenizer.offsets(text)
    tokens = [
        {"id": id, "token": tokenizer.token_text(id), "from": start, "to": end}
        for id, (start, end) in zip(ids[:MOST_TOKENS], offsets, strict=False)
    ]
    built: list[dict[str, Any]] = []
    why = ""
    try:
        reads, words = build_text(tokenizer, text[:LONGEST_BUILT])
        named = partial(_named, reads)
    except InputError as error:
        why = error.problem
    else:
        for word in {one.word: one for one in words}.values():
            steps = [
                {"pair": named(pair), "number": number, "new": named(["".join(pair)])[0], "symbols": named(symbols)}
                for pair, number, symbols in word.steps
            ]
            built.append({"word": reads.word(word.word), "start": named(word.start), "steps": steps})
    return {
        "kind": tokenizer.kind,
        "vocabulary": tokenizer.size,
        "characters": len(text),
        "count": len(ids),
        "tokens": tokens,
        "words": built[:MOST_WORDS],
        "more": max(len(built) - MOST_WORDS, 0),
        "why": why,
    }


def meaning_of(reading: ExploredText, asked: OfWord) -> dict[str, Any]:
    """How far apart the layers move a word, and what moved it."""
    model = reading.model
    _check_few(len(asked.sentences), MOST_SENTENCES, "sentences")
    _check_few(len(asked.beside), MOST_SENSES, "words to compare it with")
    for sentence in (*asked.sentences, *(one.sentence for one in asked.beside)):
        _check_few(len(sentence), LONGEST_SENTENCE, "characters in a sentence")
        model.check(sentence)
    if not asked.beside:
        found = word_in_sentences(model.module, model.tokenizer, asked.sentences, asked.word)
        return {**meaning_record(found), "findings": findings(found)}
    senses = [Sense(one.word, one.sentence) for one in asked.beside]
    near = nearness(model.module, model.tokenizer, asked.sentences, asked.word, senses)
    said = {"findings": findings(near.meaning), "senses": [one._asdict() for one in senses]}
    return {**meaning_record(near.meaning), **said, "near": near.cosines.tolist()}


def _check_few(count: int, most: int, what: str) -> None:
    """What somebody can type is refused in a sentence."""
    if count > most:
        raise InputError(f"{count:,} {what} are more than are shown together", f"give up to {most:,}")
