"""One id for each character: the smallest tokenizer, for models of letters.

    CharacterTokenizer.train(["to be"], 99).pieces(...)   →   ["t", "o", " ", "b", "e"]

Texts of known characters come back as they were. A character that training never saw, or that did not fit in, is
`<unk>` and lost: where every text must come back, use byte-level BPE. The file is an ordinary tokenizer.json, a BPE
that has no merges, which other libraries read too.
"""

from collections import Counter
from collections.abc import Iterable
from functools import cached_property

from tokenizers import AddedToken, decoders
from tokenizers import Tokenizer as Engine
from tokenizers.models import BPE

from regard.errors import VocabularyError
from regard.text.counting import valid_text
from regard.text.tiktoken_backend import Encode
from regard.text.tokenizer import SPECIALS, Tokenizer


class CharacterTokenizer(Tokenizer):
    """Text to the ids of its characters and back; what it does not know is `<unk>`."""

    kind = "characters"

    @classmethod
    def train(cls, texts: Iterable[str], size: int) -> "CharacterTokenizer":
        """The characters of the texts, or of very many the `size` − 4 most frequent; same texts, same result."""
        if size <= len(SPECIALS):
            raise VocabularyError(size, len(SPECIALS), 1, "a character")
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(valid_text(text))
        frequent = sorted(counts, key=lambda character: (-counts[character], character))[: size - len(SPECIALS)]
        return cls(_engine(sorted(frequent)))

    def encode_batch(self, texts: Iterable[str]) -> list[list[int]]:
        """Ids of each text."""
        return [self.encode(text) for text in texts]

    @cached_property
    def _encode(self) -> Encode:
        ids = self.engine.get_vocab(with_added_tokens=False)
        unknown = ids[self.unk]
        return lambda text: [ids.get(character, unknown) for character in text]

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """Every character is a token."""
        if self._parses:
            return super().offsets(text)
        return [(place, place + 1) for place in range(len(valid_text(text)))]

    @classmethod
    def problem_of(cls, engine: Engine) -> str | None:
        """Why an engine does not give each character its id, if it does not."""
        parts = (engine.normalizer, engine.pre_tokenizer, type(engine.model), type(engine.decoder))
        if parts != (None, None, BPE, decoders.Fuse) or engine.model.unk_token != cls.unk:
            return "a BPE of bare characters is expected, with no normalizer or splitter, and a decoder that joins them"
        special = {entry.content for entry in engine.get_added_tokens_decoder().values()}
        longer = sorted(token for token in engine.get_vocab() if len(token) > 1 and token not in special)
        return f"{longer[0]!r} is more than a character" if longer else None


def _engine(characters: list[str]) -> Engine:
    ids = {name: place for place, name in enumerate([*SPECIALS, *characters])}
    engine = Engine(BPE(vocab=ids, merges=[], unk_token=SPECIALS[3]))
    engine.decoder = decoders.Fuse()
    engine.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in SPECIALS])
    return engine
