"""WordPiece as BERT uses it (Devlin et al. 2019, section 3): words are cleaned, then cut greedily into known pieces.

1. Control characters go, every blank becomes a space, each CJK character a word of its own; unless `cased`, accents go
   and letters become small. Then words end at blanks, and every punctuation mark is a word.
2. A word is cut from the left into the longest pieces of the vocabulary, all but the first marked `##`; a word that
   cannot be cut, or has more than 100 characters, is `[UNK]`.

So a text does not come back as it was: blanks are lost, case and accents too unless `cased`, unknown words altogether.
Where texts must come back (translation, code), use byte-level BPE.

`WordPieceTokenizer` encodes in the `tokenizers` engine; `words` and `cut_word` are the same in a few plain lines, which
the tests hold the engine to. The engine's tables of punctuation and marks are of an older Unicode than Python's: some
500 rare characters of newer scripts are read differently. `wordpiece_trainer.py` learns the vocabulary.
"""

import string
import unicodedata
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from tokenizers import AddedToken
from tokenizers import Tokenizer as Engine
from tokenizers.decoders import WordPiece as WordPieceDecoder
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing

from regard.errors import FileError, InputError
from regard.text.counting import count_words, read_texts
from regard.text.tokenizer import Tokenizer
from regard.text.wordpiece_trainer import LONGEST_WORD, PREFIX, learn_pieces

PAD, UNKNOWN, BEGIN, END, MASK = SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

_CJK = (
    *((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F)),
    *((0x2B740, 0x2B81F), (0x2B820, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F)),
)
_GLUE = {ord(character): None for character in "\x0b\x0c\x1c\x1d\x1e\x1f\x85"}
"""Blanks for Python, control characters for BERT: they part no words."""


def words(text: str, *, cased: bool = False) -> list[str]:
    """A text as BERT's basic tokenisation splits it: the reference that the engine is tested against."""
    kept = (" " if one.isspace() else one for one in text if not _is_control(one))
    spaced = "".join(f" {one} " if _is_cjk(one) else one for one in kept)
    if not cased:
        bare = (one for one in unicodedata.normalize("NFD", spaced) if unicodedata.category(one) != "Mn")
        spaced = "".join(one.lower() for one in bare)  # one by one: a final sigma is no special letter here
    return "".join(f" {one} " if _is_punctuation(one) else one for one in spaced).split()


def cut_word(word: str, vocabulary: Container[str]) -> list[str]:
    """A word as the longest pieces of the vocabulary from the left, or `[UNK]`: the reference.

    >>> cut_word("unaffable", {"un", "##aff", "##able", "##a"})
    ['un', '##aff', '##able']
    """
    if len(word) > LONGEST_WORD:
        return [UNKNOWN]
    found: list[str] = []
    start = 0
    while start < len(word):
        mark = PREFIX if start else ""
        ends = (end for end in range(len(word), start, -1) if mark + word[start:end] in vocabulary)
        end = next(ends, None)
        if end is None:
            return [UNKNOWN]
        found.append(mark + word[start:end])
        start = end
    return found


def _is_control(character: str) -> bool:
    """What BERT throws away: NUL, the replacement character, and control, format and private characters."""
    if character in "\t\n\r":
        return False
    return character in "\0\ufffd" or unicodedata.category(character) in ("Cc", "Cf", "Co")


def _is_cjk(character: str) -> bool:
    return any(first <= ord(character) <= last for first, last in _CJK)


def _is_punctuation(character: str) -> bool:
    """ASCII's marks, `$` and `+` too, and Unicode's."""
    return character in string.punctuation or unicodedata.category(character).startswith("P")


class WordPieceTokenizer(Tokenizer):
    """Text to the ids of WordPiece and back to words; `[CLS]` begins a sequence and `[SEP]` ends it."""

    kind = "wordpiece"
    pad, bos, eos, unk, mask = PAD, BEGIN, END, UNKNOWN, MASK

    @classmethod
    def train(
        cls, texts: Iterable[str], size: int, *, cased: bool = False, score: str = "likelihood"
    ) -> "WordPieceTokenizer":
        """Learn a vocabulary of `size` entries, or as many as there are; same texts, same result."""
        found = count_words(texts, word_splitter(cased=cased))
        return cls.of(learn_pieces(found.counts, size, score=score, specials=SPECIALS), cased=cased)

    @classmethod
    def of(
        cls, vocabulary: Sequence[str], *, cased: bool = False, cleaned: BertNormalizer | None = None
    ) -> "WordPieceTokenizer":
        """The tokenizer of these pieces, their ids being their places; the special tokens must be among them.

        `cleaned` says how texts are made ready, where that is not as BERT's two kinds do it.
        """
        missing = [special for special in SPECIALS if special not in vocabulary]
        if missing:
            raise InputError(f"the vocabulary lacks {' '.join(missing)}", "give one that begins as BERT's does")
        ids = {piece: place for place, piece in enumerate(vocabulary)}
        if len(ids) < len(vocabulary):
            twice = next(piece for place, piece in enumerate(vocabulary) if ids[piece] != place)
            raise InputError(f"the vocabulary has {twice!r} more than once", "give every piece one line")
        engine = Engine(WordPiece(ids, unk_token=UNKNOWN, max_input_chars_per_word=LONGEST_WORD))
        engine.normalizer = cleaning(cased=cased) if cleaned is None else cleaned
        engine.pre_tokenizer = BertPreTokenizer()
        engine.decoder = WordPieceDecoder(prefix=PREFIX)
        engine.add_special_tokens([AddedToken(special, special=True, normalized=False) for special in SPECIALS])
        engine.post_processor = TemplateProcessing(
            single=f"{BEGIN}:0 $A:0 {END}:0",
            pair=f"{BEGIN}:0 $A:0 {END}:0 $B:1 {END}:1",
            special_tokens=[(BEGIN, ids[BEGIN]), (END, ids[END])],
        )
        return cls(engine)

    @classmethod
    def load_vocabulary(
        cls, path: Path, *, cased: bool = False, cleaned: BertNormalizer | None = None
    ) -> "WordPieceTokenizer":
        """Read BERT's vocab.txt, one piece a line, plain or packed with gzip; it does not say whether it is cased."""
        lines = "".join(read_texts([path])).removesuffix("\n").split("\n")
        try:
            return cls.of([line.removesuffix("\r") for line in lines], cased=cased, cleaned=cleaned)
        except InputError as error:
            raise FileError(f"{path}: {error.problem}", error.remedy) from error

    def token_text(self, token: int) -> str:
        """One token as a picture shows it: a piece with its `##`, or a special's name."""
        return str(self.engine.id_to_token(self._known(token)))

    def token_bytes(self, token: int) -> bytes:
        """What a token adds to a text that has begun, in UTF-8: its letters, after a space where a word begins."""
        piece = self.token_text(token)
        if token in self._special_text:
            return b""
        return (
            piece.removeprefix(PREFIX).encode()
            if piece.startswith(PREFIX) or piece in ".?!,"
            else b" " + piece.encode()
        )

    @classmethod
    def problem_of(cls, engine: Engine) -> str | None:
        """Why an engine is not BERT's, if it is not."""
        known = (WordPiece, BertNormalizer, BertPreTokenizer, WordPieceDecoder)
        its = tuple(type(part) for part in (engine.model, engine.normalizer, engine.pre_tokenizer, engine.decoder))
        if its != known:
            names = ", ".join(part.__name__ for part in its)
            return f"BERT's WordPiece is expected, but model, normalizer, splitter and decoder are {names}"
        if engine.model.continuing_subword_prefix != PREFIX:
            return f"its pieces go on with {engine.model.continuing_subword_prefix!r}, not with {PREFIX!r}"
        return None


class CasedWordPieceTokenizer(WordPieceTokenizer):
    """WordPiece that is learnt with capitals and accents kept; what it saves says so, and both kinds read it."""

    kind = "wordpiece_cased"

    @classmethod
    def train(
        cls, texts: Iterable[str], size: int, *, cased: bool = True, score: str = "likelihood"
    ) -> "WordPieceTokenizer":
        """Learn a vocabulary of `size` entries, or as many as there are; same texts, same result."""
        return super().train(texts, size, cased=cased, score=score)


def word_splitter(*, cased: bool = False) -> Callable[[str], Iterator[str]]:
    """`words`, by the engine and as fast as counting needs it: what was split before is remembered."""
    normalizer, splitter = cleaning(cased=cased), BertPreTokenizer()

    class Memory(dict[str, list[str]]):
        def __missing__(self, word: str) -> list[str]:
            if len(self) >= 500_000:
                self.clear()
            if word.isascii() and word.isalpha():  # nothing to clean and nowhere to cut
                found = [word if cased else word.lower()]
            else:
                found = [part for part, _ in splitter.pre_tokenize_str(normalizer.normalize_str(word))]
            self[word] = found
            return found

    memory = Memory()

    def split(text: str) -> Iterator[str]:
        if any(map(text.__contains__, map(chr, _GLUE))):
            text = text.translate(_GLUE)
        return chain.from_iterable(map(memory.__getitem__, text.split()))

    return split


def cleaning(*, cased: bool = False, strip_accents: bool | None = None, part_chinese: bool = True) -> BertNormalizer:
    """How texts are made ready for cutting; accents go with capitals, unless something else is said."""
    return BertNormalizer(
        clean_text=True, handle_chinese_chars=part_chinese, strip_accents=strip_accents, lowercase=not cased
    )
