"""Byte-level BPE as GPT-2 uses it: text becomes bytes, bytes become merged pieces, pieces have ids.

Sennrich et al. 2016 (merges), Radford et al. 2019, section 2.2 (bytes, and a pattern that keeps words apart).
Training and encoding run in the `tokenizers` engine. Every text has ids and comes back unchanged: `<unk>` is
never produced. Special tokens are ids that a program adds, never something a text can spell: `<eos>` typed by
a user is five ordinary characters. This file writes nothing to disk.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

from tokenizers import Tokenizer as Engine
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer

from regard.errors import ConfigError, FileError, InputError

SPECIALS = ("<pad>", "<bos>", "<eos>", "<unk>")
SMALLEST = len(SPECIALS) + 256


def _byte_of_symbol() -> dict[str, int]:
    """The engine's printable stand-in for each byte: itself where it prints, else the next from 256."""
    printing = [byte for first, last in ("!~", "¡¬", "®ÿ") for byte in range(ord(first), ord(last) + 1)]
    silent = [byte for byte in range(256) if byte not in printing]
    symbols = [*printing, *range(256, 256 + len(silent))]
    return {chr(symbol): byte for symbol, byte in zip(symbols, [*printing, *silent], strict=True)}


_BYTE_OF_SYMBOL = _byte_of_symbol()


class Tokenizer:
    """Text to ids and ids to text; `decode(encode(text)) == text` for every text that is valid Unicode."""

    def __init__(self, engine: Engine) -> None:
        """Take an engine that is known to be good; people call `train`, `load` or `from_json`."""
        engine.encode_special_tokens = True  # not kept in the JSON: must be set on every engine
        engine.no_padding()
        engine.no_truncation()
        added = engine.get_added_tokens_decoder()
        self._engine = engine
        self._special_text = {token: str(entry.content) for token, entry in added.items() if entry.special}
        self._special_id = {text: token for token, text in self._special_text.items()}
        self._size = int(engine.get_vocab_size())

    @classmethod
    def train(cls, texts: Iterable[str], size: int) -> "Tokenizer":
        """Learn merges until there are `size` entries or no pair occurs twice; same texts, same result."""
        if size < SMALLEST:
            raise ConfigError(
                f"a vocabulary of {size} cannot hold {len(SPECIALS)} special tokens and 256 bytes",
                f"use a size of {SMALLEST} or more",
            )
        engine = Engine(BPE())
        engine.pre_tokenizer = ByteLevel(add_prefix_space=False)
        engine.decoder = ByteLevelDecoder()
        trainer = BpeTrainer(
            vocab_size=size,
            min_frequency=2,
            show_progress=False,
            special_tokens=list(SPECIALS),
            initial_alphabet=sorted(_BYTE_OF_SYMBOL),
        )
        engine.train_from_iterator((_valid(text) for text in texts), trainer)
        return cls(engine)

    @classmethod
    def load(cls, path: Path) -> "Tokenizer":
        """Read a tokenizer.json."""
        remedy = "give the tokenizer.json of a model folder, or train the tokenizer again"
        try:
            return cls.from_json(path.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise FileError(f"{path} does not exist", remedy) from error
        except OSError as error:
            raise FileError(f"{path} cannot be read ({error.strerror})", remedy) from error
        except UnicodeDecodeError as error:
            raise FileError(f"{path} is not UTF-8 text (byte {error.start})", remedy) from error
        except InputError as error:
            raise FileError(f"{path}: {error.problem}", error.remedy) from error

    @classmethod
    def from_json(cls, text: str) -> "Tokenizer":
        """Rebuild a tokenizer from what `to_json` gave."""
        remedy = "use a tokenizer.json that Regard wrote, or train the tokenizer again"
        try:
            engine = Engine.from_str(text)
        except Exception as error:  # the engine raises bare Exception for everything
            raise InputError(f"this is not a tokenizer ({error})", remedy) from error
        problem = _problem(engine)
        if problem:
            raise InputError(problem, remedy)
        return cls(engine)

    def to_json(self) -> str:
        """The whole tokenizer as tokenizer.json text, readable by Hugging Face's libraries."""
        return str(self._engine.to_str(pretty=True))

    def encode(self, text: str) -> list[int]:
        """Ids of a text; no special token is added or recognised."""
        return list(self._engine.encode(_valid(text), add_special_tokens=False).ids)

    def encode_batch(self, texts: Iterable[str]) -> list[list[int]]:
        """Ids of each text, computed in parallel; equal to `encode` of each."""
        checked = [_valid(text) for text in texts]
        return [list(one.ids) for one in self._engine.encode_batch_fast(checked, add_special_tokens=False)]

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """Where each token of `encode(text)` sits in the text, in characters.

        A character that takes several tokens (`é` is two bytes) is the span of each of them.
        """
        encoding = self._engine.encode(_valid(text), add_special_tokens=False)
        return [(start, end) for start, end in encoding.offsets]

    def decode(self, ids: Iterable[int]) -> str:
        """Text of ids, special tokens left out; bytes that end mid-character become `�`."""
        return str(self._engine.decode([self._known(token) for token in ids], skip_special_tokens=True))

    def token_text(self, token: int) -> str:
        r"""One token as a picture shows it: its text, a special's name, `\xc3` for part of a character."""
        symbols = str(self._engine.id_to_token(self._known(token)))
        if token in self._special_text:
            return symbols
        return bytes(_BYTE_OF_SYMBOL[symbol] for symbol in symbols).decode("utf-8", errors="backslashreplace")

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Each token as a picture shows it."""
        return [self.token_text(token) for token in ids]

    @property
    def size(self) -> int:
        """How many ids there are, special tokens included."""
        return self._size

    @property
    def pad_id(self) -> int:
        """The id that fills short rows of a batch."""
        return self._special_id["<pad>"]

    @property
    def bos_id(self) -> int:
        """The id a sequence begins with."""
        return self._special_id["<bos>"]

    @property
    def eos_id(self) -> int:
        """The id a sequence ends with."""
        return self._special_id["<eos>"]

    @property
    def unk_id(self) -> int:
        """The id of the unknown, which bytes never need."""
        return self._special_id["<unk>"]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tokenizer) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(self.to_json())

    def __reduce__(self) -> tuple[Callable[[str], "Tokenizer"], tuple[str]]:
        return Tokenizer.from_json, (self.to_json(),)

    def _known(self, token: int) -> int:
        if not 0 <= token < self.size:
            raise InputError(
                f"token id {token} is outside the vocabulary of {self.size}",
                f"use ids from 0 to {self.size - 1}",
            )
        return token


def _problem(engine: Engine) -> str | None:
    """Why an engine is not a byte-level BPE that gives every text back, if it is not."""
    kinds = (type(engine.model), type(engine.pre_tokenizer), type(engine.decoder))
    if kinds != (BPE, ByteLevel, ByteLevelDecoder):
        names = ", ".join(kind.__name__ for kind in kinds)
        return f"a byte-level BPE is expected, but model, splitter and decoder are {names}"
    if engine.normalizer is not None or engine.pre_tokenizer.add_prefix_space:
        return "this tokenizer changes texts (a normalizer or a prefix space), so they would not come back"
    special = {token.content for token in engine.get_added_tokens_decoder().values() if token.special}
    missing = [token for token in SPECIALS if token not in special]
    if missing:
        return f"the special tokens {' '.join(missing)} are missing"
    vocabulary = engine.get_vocab()
    letters = len(_BYTE_OF_SYMBOL.keys() & vocabulary.keys())
    if letters < 256:
        return f"only {letters} of the 256 bytes have a token"
    highest = max(vocabulary.values())
    if highest >= len(vocabulary):
        return f"{len(vocabulary)} tokens have ids up to {highest}, so ids are missing"
    return None


def _valid(text: str) -> str:
    """The text itself, if it is Unicode that can be written as bytes."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(
            f"character {error.start} (U+{ord(text[error.start]):04X}) is half of a surrogate pair",
            "read the text as UTF-8, or replace such halves with text.encode('utf-8', 'replace').decode()",
        ) from error
    return text
