"""How a tokenizer's merges build a text; of somebody else's where it is a BPE, and its merges alone cut that text."""

import json
import re
from collections.abc import Sequence

from tokenizers.decoders import ByteLevel

from regard.errors import InputError
from regard.text.bpe import Pair
from regard.text.bytelevel import byte_words
from regard.text.explain import BYTES, WORDS, Building, Reading, build_words
from regard.text.pretrained import PretrainedTokenizer
from regard.text.tokenizer import Tokenizer
from regard.text.word_bpe import marked_words

OTHERWISE = {
    "WordPiece": "it takes the longest piece it knows",
    "Unigram": "it takes the likeliest pieces",
    "WordLevel": "it knows whole words",
}
"""How the kinds that have no merges come to their pieces."""
_BLANK, _WORD = re.compile("(?<=[^▁])▁"), re.compile("(?<=[^▁])(?=▁)")
BLANKS = Reading(lambda word: repr(word.replace("▁", " ")), list)
"""Of tokenizers that write a blank as ▁."""
_REMEDY = "look at the pieces it encodes to instead"


def build_text(tokenizer: Tokenizer, text: str) -> tuple[Reading, list[Building]]:
    """Each word of a text with the merges that build it, and how its symbols are read."""
    if tokenizer.kind.startswith("wordpiece"):
        raise InputError("WordPiece has no merges: it takes the longest piece it knows", "encode it with `pieces=True`")
    if tokenizer.kind == "characters":
        raise InputError("characters have no merges: each is a piece", "encode it with `pieces=True`")
    if isinstance(tokenizer, PretrainedTokenizer):
        return build_foreign(tokenizer, text)
    split, reading = (marked_words, WORDS) if tokenizer.kind == "bpe_words" else (byte_words, BYTES)
    return reading, build_words(split(text), tokenizer.merges)


def blank_words(text: str, merges: Sequence[Pair]) -> list[str]:
    """A text that nothing cuts beforehand, cut before its blanks where no merge reaches across one: nothing changes."""
    if any(_BLANK.search(one + other) for one, other in merges):
        return [text]
    return _WORD.split(text)


def build_foreign(tokenizer: PretrainedTokenizer, text: str) -> tuple[Reading, list[Building]]:
    """Each word of a text with the merges that build it, and how its symbols are read."""
    engine = tokenizer.engine
    kind = json.loads(engine.to_str())["model"]["type"]
    if kind != "BPE":
        raise InputError(f"{kind} has no merges: {OTHERWISE.get(kind, 'it is another way to cut')}", _REMEDY)
    plain = engine.normalizer.normalize_str(text) if engine.normalizer is not None else text
    if engine.pre_tokenizer is not None:
        cut = [word for word, _ in engine.pre_tokenizer.pre_tokenize_str(plain)]
    else:
        cut = blank_words(plain, tokenizer.merges)
    built = build_words([word for word in cut if word], tokenizer.merges)
    found = [piece for word in built for piece in word.pieces]
    if found != [engine.id_to_token(token) for token in tokenizer.encode(text)]:
        raise InputError("this tokenizer does not cut this text by its merges alone", _REMEDY)
    return BYTES if isinstance(engine.decoder, ByteLevel) else BLANKS, built
