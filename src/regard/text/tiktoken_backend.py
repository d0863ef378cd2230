"""tiktoken as the engine under Regard's own files: byte-level encoding at several times the speed of `tokenizers`.

It joins the neighbours whose joint bytes have the lowest id, where a merge list says which pairs to join. Both come to
the same ids when every token but the bytes is what one merge makes, ids rise in the order of the merges, and each
token's own bytes are joined to just that token: then two neighbours that spell a token are the pair it was made of.
`fast_encoder` checks this and gives None where it does not hold.
"""

import os
import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer as Engine

from regard.text.bytelevel import BLANKS, PATTERN, bytes_of, is_byte_alphabet, symbols_of

if TYPE_CHECKING:
    from tiktoken import Encoding

Encode = Callable[[str], list[int]]
EncodeAll = Callable[[Sequence[str]], list[list[int]]]

SEPARATOR = "\uffff|\ufffe"
"""Two characters that Unicode keeps out of texts: between short texts that are encoded together."""
SHORT = 4096
"""Characters of a text that is encoded together with others: a call by itself takes about as long as 20 characters."""
LONGEST_RUN = 100_000
"""So many blanks in a row are one word found without the pattern: its matcher runs out of stack at ten times that."""
_LONG_RUN = re.compile(f"(?<![{BLANKS}])[{BLANKS}]{{{LONGEST_RUN},}}")
_WORTH_A_THREAD = 2**16
"""Characters; fewer are encoded sooner than threads have begun."""
_TOGETHER = 1000
"""Texts of a thread's share, at most."""


def fast_encoder(engine: Engine, record: dict[str, Any]) -> "FastEncoder | None":
    """A function from a text to the ids of this byte-level engine, whose JSON is `record`, if tiktoken can be one."""
    from tiktoken import Encoding

    model, added = record["model"], record["added_tokens"]
    tokens = {token: place for token, place in model["vocab"].items() if token not in {one["content"] for one in added}}
    merges = [merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]]
    odd = (
        not all(one["special"] for one in added),
        model.get("dropout"),
        model.get("continuing_subword_prefix"),
        model.get("end_of_word_suffix"),
        not record["pre_tokenizer"].get("use_regex", True),
        not is_byte_alphabet(tokens),
    )
    if any(odd) or not _joins_by_ids(engine, tokens, merges):
        return None
    ranks = {bytes_of(token): place for token, place in tokens.items()}
    separator = max(model["vocab"].values()) + 1
    return FastEncoder(
        Encoding("regard", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={SEPARATOR: separator}), engine
    )


class FastEncoder:
    """tiktoken with the merges of an engine: a text, or many together."""

    def __init__(self, encoding: "Encoding", engine: Engine) -> None:
        self._encoding, self._engine = encoding, engine

    def __call__(self, text: str) -> list[int]:
        """The ids of a text."""
        ordinary = self._encoding.encode_ordinary
        if len(text) < LONGEST_RUN or not (run := _LONG_RUN.search(text)):
            return ordinary(text)
        end = run.end() if run.end() == len(text) else run.end() - 1  # the last blank goes with what follows
        word = symbols_of(text[run.start() : end].encode())
        ids = (int(token.id) for token in self._engine.model.tokenize(word))
        return [*ordinary(text[: run.start()]), *ids, *self(text[end:])]

    def together(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text; short ones in one call, so that threads need not take turns for every text."""
        if max(map(len, texts)) > SHORT:
            return [self(text) for text in texts]
        joined = SEPARATOR.join(texts)
        if joined.count("\uffff") != len(texts) - 1:
            return [self(text) for text in texts]
        ids = self._encoding.encode(joined, allowed_special={SEPARATOR}, disallowed_special=())
        separator = self._encoding.max_token_value
        found, start = [], 0
        for _ in texts[1:]:
            end = ids.index(separator, start)
            found.append(ids[start:end])
            start = end + 1
        return [*found, ids[start:]]


def _joins_by_ids(engine: Engine, tokens: dict[str, int], merges: Iterable[Sequence[str]]) -> bool:
    """Whether joining by the id of the result is the same as joining by the list of pairs."""
    made = [left + right for left, right in merges]
    places = [tokens.get(token, -1) for token in made]
    rising = all(before < after for before, after in zip([-1, *places], places, strict=False))
    if not rising or {token for token in tokens if len(token) > 1} != set(made):
        return False
    return all(len(engine.model.tokenize(token)) == 1 for token in made)


def encode_all(encode: Encode, texts: Sequence[str]) -> list[list[int]]:
    """Ids of each text, long lists of texts by a thread for every processor."""
    together: EncodeAll = encode.together if isinstance(encode, FastEncoder) else lambda some: list(map(encode, some))
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = min(processors, len(texts))
    if threads < 2 or sum(map(len, texts)) < _WORTH_A_THREAD:
        return together(texts) if texts else []
    step = min(max(1, len(texts) // (threads * 8)), _TOGETHER)
    shares = [texts[first : first + step] for first in range(0, len(texts), step)]
    with ThreadPoolExecutor(threads) as pool:
        return list(chain.from_iterable(pool.map(together, shares)))
