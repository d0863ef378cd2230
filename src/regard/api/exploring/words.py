"""What words are to a model: the tokens they are cut into, and how a word's vector moves in several sentences."""

from typing import Annotated, Any

from pydantic import Field

from regard.api.exploring.reading import ExploredText
from regard.errors import InputError
from regard.inspection.contextual import word_in_sentences
from regard.text.explain_pretrained import build_text
from regard.views.exploring.recorded import PageQuestion
from regard.views.meaning import findings
from regard.views.records import meaning_record

MOST_TOKENS = 1000
MOST_WORDS = 60
"""Different words whose building is shown."""
LONGEST_BUILT = 4000
"""Characters of a text whose words are built."""
MOST_SENTENCES = 12


class OfWord(PageQuestion):
    """A word of several sentences."""

    word: Annotated[str, Field(max_length=100)]
    sentences: Annotated[list[Annotated[str, Field(max_length=2000)]], Field(max_length=MOST_SENTENCES)]


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
    except InputError as error:
        why = error.problem
    else:
        for word in {one.word: one for one in words}.values():
            steps = [{"pair": pair, "number": number, "symbols": symbols} for pair, number, symbols in word.steps]
            pieces = list(reads.pieces(word.pieces))
            built.append({"word": reads.word(word.word), "start": word.start, "steps": steps, "pieces": pieces})
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
    for sentence in asked.sentences:
        model.check(sentence)
    found = word_in_sentences(model.module, model.tokenizer, asked.sentences, asked.word)
    return {**meaning_record(found), "findings": findings(found)}
