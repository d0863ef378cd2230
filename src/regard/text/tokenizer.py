"""Text to ids and back. `Tokenizer` itself is byte-level BPE, GPT-2's; word_bpe.py and wordpiece.py the other kinds.

Sennrich et al. 2016 (merges), Radford et al. 2019, section 2.2 (bytes, and a pattern that keeps words apart).
Merges are learnt by the `tokenizers` engine from counted words; text is encoded by tiktoken where that gives the
same ids (tiktoken_backend.py), else by `tokenizers`. Every text has ids and comes back unchanged: `<unk>` is never
made. Special tokens are ids that a program adds, never something a text can spell: `<eos>` typed by a user is five
ordinary characters. This file writes nothing to disk.
"""

import html
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from tokenizers import AddedToken
from tokenizers import Tokenizer as Engine
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from regard.errors import FileError, InputError
from regard.files import write_text
from regard.text.bytelevel import SYMBOLS, bytes_of
from regard.text.counting import read_texts, valid_text
from regard.text.escape import escape
from regard.text.incremental import ByteStream, TextStream, WholeStream
from regard.text.tiktoken_backend import Encode, encode_all, fast_encoder
from regard.text.training import RULE, learn_byte_merges

SPECIALS = ("<pad>", "<bos>", "<eos>", "<unk>")
END_OF_TEXT = "<|endoftext|>"
"""GPT-2's one special token."""
CHAT_TEMPLATE = "_chat_template"
"""Where a tokenizer keeps the chat template that was made for it."""
SHOWN = 40
"""Entries that a notebook shows."""
MADE = ("_encode", "_fast", "_cutter", CHAT_TEMPLATE)
"""What goes by how special tokens in a text are read."""
_RULE = re.compile(r'"tie_rule":\s*"([a-z-]+)"')
_REMEDY = "use a tokenizer.json that Regard wrote, or train the tokenizer again"


def parse_engine(text: str) -> tuple[Engine, str | None]:
    """The engine a tokenizer.json describes, and the rule for ties that its merges were learnt with, if it says so."""
    try:
        engine = Engine.from_str(text)
    except Exception as error:  # the engine raises bare Exception for everything
        raise InputError(f"this is not a tokenizer ({error})", _REMEDY) from error
    if not engine.get_vocab_size():
        raise InputError("this tokenizer has no entries: its vocabulary is empty", _REMEDY)
    rule = _RULE.search(text)
    return engine, rule.group(1) if rule else None


@contextmanager
def saying_what_lacks() -> Iterator[None]:
    """A text that an engine cannot cut, as a sentence: it has no kinds of errors."""
    try:
        yield
    except Exception as error:
        raise InputError(
            f"this tokenizer cannot cut the text: {error}", "train it with a token for what it does not know"
        ) from error


class Tokenizer:
    """Text to ids and ids to text; `decode(encode(text)) == text` for every text that is valid Unicode."""

    kind: ClassVar[str] = "bpe"
    pad: ClassVar[str] = SPECIALS[0]
    bos: ClassVar[str] = SPECIALS[1]
    eos: ClassVar[str] = SPECIALS[2]
    unk: ClassVar[str] = SPECIALS[3]
    mask: ClassVar[str] = "<mask>"

    def __init__(self, engine: Engine, rule: str | None = None) -> None:
        """Take an engine that is known to be good; people call `train`, `load` or `from_json`."""
        engine.encode_special_tokens = True  # not kept in the JSON: must be set on every engine
        engine.no_padding()
        engine.no_truncation()
        added = engine.get_added_tokens_decoder()
        self.engine = engine
        """What does the work; not to be changed."""
        self._special_text = {token: str(entry.content) for token, entry in added.items() if entry.special}
        self._special_id = {text: token for token, text in self._special_text.items()}
        self._parses = False
        self._size = int(engine.get_vocab_size())
        self._bytes = self._all_bytes() if isinstance(engine.pre_tokenizer, ByteLevel) else None
        self.rule = rule
        """How ties were decided when the merges were learnt, where that is known."""

    @classmethod
    def train(cls, texts: Iterable[str], size: int) -> "Tokenizer":
        """Learn merges until there are `size` entries or no pair occurs twice; same texts, same result.

        Of a large corpus nothing is kept but counts, and of a million different words the frequent ones (counting.py).
        """
        return cls(_byte_level(learn_byte_merges(texts, size, specials=SPECIALS)), RULE)

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
        engine, rule = parse_engine(text)
        problem = cls.problem_of(engine) or _lacking(engine, (cls.pad, cls.bos, cls.eos, cls.unk))
        if problem:
            raise InputError(problem, _REMEDY)
        return cls(engine, rule)

    @classmethod
    def from_gpt2(cls, vocabulary: Path, merges: Path) -> "Tokenizer":
        """Read GPT-2's vocab.json and merges.txt, plain or packed with gzip."""
        remedy = "give vocab.json and merges.txt of the same tokenizer"
        try:
            ids = json.loads("".join(read_texts([vocabulary])))
            lines = "".join(read_texts([merges])).splitlines()
            split = (line.split(" ") for line in lines if line and not line.startswith("#version"))
            pairs = [(left, right) for left, right in split]
            engine = _byte_level(Engine(BPE(vocab=ids, merges=pairs)))
        except FileError:
            raise
        except Exception as error:  # JSON's ValueError, and whatever the engine raises
            raise FileError(f"{vocabulary} and {merges} do not make a tokenizer ({error})", remedy) from error
        if END_OF_TEXT in ids:
            engine.add_special_tokens([AddedToken(END_OF_TEXT, special=True, normalized=False)])
        problem = cls.problem_of(engine)
        if problem:
            raise FileError(f"{vocabulary}: {problem}", remedy)
        return cls(engine)

    def with_specials(self, names: Iterable[str]) -> "Tokenizer":
        """The same with more special tokens, whose ids follow its last; those it has stay."""
        new = [name for name in names if name not in self._special_id]
        for name in new:
            if name in self.engine.get_vocab():
                raise InputError(
                    f"{name} is an ordinary token here and cannot be a special one", "learn from texts without it"
                )
        engine = Engine.from_str(self.engine.to_str())
        engine.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in new])
        return type(self)(engine, self.rule)

    def to_json(self) -> str:
        """The whole tokenizer as tokenizer.json text, readable by Hugging Face's libraries."""
        text = str(self.engine.to_str(pretty=True))
        if self.rule is None:
            return text
        head = '"model": {\n    "type": "BPE",'
        return text.replace(head, f'{head}\n    "tie_rule": "{self.rule}",', 1)  # a key the engine passes over

    def save(self, path: str | Path) -> None:
        """Write a tokenizer.json."""
        write_text(Path(path), self.to_json())

    def encode(self, text: str, *, special_tokens: bool = False) -> list[int]:
        """Ids of a text; no special token is added, and none recognised unless `special_tokens` asks for it."""
        return self.parsing_special_tokens.encode(text) if special_tokens else self._encode(valid_text(text))

    @cached_property
    def parsing_special_tokens(self) -> "Tokenizer":
        """The same where the names of special tokens in a text become their ids: for texts of a program, not users'."""
        other = self._parsing()
        record = json.loads(self.engine.to_str())
        for token in record["added_tokens"]:  # blanks before what is hidden are part of it
            token["lstrip"] = token["content"] not in (self.pad, self.bos, self.eos, self.unk)
        other.engine = Engine.from_str(json.dumps(record))
        vars(other)["_encode"] = other._encode_by_tokenizers
        return other

    def _parsing(self) -> "Tokenizer":
        """The same without what is kept for texts that spell no special token."""
        other = object.__new__(type(self))
        kept = {name: value for name, value in vars(self).items() if name not in MADE}
        vars(other).update(kept | {"_parses": True})
        return other

    def encode_batch(self, texts: Iterable[str]) -> list[list[int]]:
        """Ids of each text, computed in parallel; equal to `encode` of each."""
        checked = [valid_text(text) for text in texts]
        if self._bytes is not None:
            return encode_all(self._encode, checked)
        with saying_what_lacks():
            return [list(one.ids) for one in self.engine.encode_batch_fast(checked, add_special_tokens=False)]

    @cached_property
    def _encode(self) -> Encode:
        fast = None if self._bytes is None else fast_encoder(self.engine, json.loads(self.engine.to_str()))
        return fast or self._encode_by_tokenizers

    def _encode_by_tokenizers(self, text: str) -> list[int]:
        with saying_what_lacks():
            return list(self.engine.encode(text, add_special_tokens=False).ids)

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """Where each token of `encode(text)` sits in the text, in characters.

        A character that takes several tokens (`é` is two bytes) is the span of each of them.
        """
        encoding = self.engine.encode(valid_text(text), add_special_tokens=False)
        return [(start, end) for start, end in encoding.offsets]

    def apply_template(self, ids: Sequence[int], pair: Sequence[int] | None = None) -> tuple[list[int], list[int]]:
        """What an encoder reads of one text or two: the ids with special tokens round them, and the segment of each."""
        first = [self.bos_id, *ids, self.eos_id]
        second = [] if pair is None else [*pair, self.eos_id]
        return [*first, *second], [0] * len(first) + [1] * len(second)

    def added(self, *, pair: bool = False) -> int:
        """How many special tokens `apply_template` puts round a text, or two."""
        return 3 if pair else 2

    def encode_naming(self, text: str, names: Sequence[str]) -> list[int]:
        """Ids of a text in which these special tokens are written by name, blanks before a name being part of it."""
        if self._parses:
            return self.encode(text)
        *begun, last = re.split(f"({'|'.join(map(re.escape, names))})", valid_text(text))
        ids: list[int] = []
        for before, name in zip(begun[::2], begun[1::2], strict=True):
            ids += [*self.encode(before.rstrip()), self._special(name)]
        return [*ids, *self.encode(last)]

    def encode_parts(self, parts: Sequence[str | int]) -> list[int]:
        """Ids of texts between special tokens that a program put there; whatever the texts spell, they are text."""
        return [token for part in parts for token in ([part] if isinstance(part, int) else self.encode(part))]

    def decode(self, ids: Iterable[int]) -> str:
        """Text of ids, special tokens left out; bytes that end mid-character become `�`."""
        if self._bytes is not None:
            return b"".join([self._bytes[self._known(token)] for token in ids]).decode("utf-8", errors="replace")
        return str(self.engine.decode([self._known(token) for token in ids], skip_special_tokens=True))

    def stream(self) -> TextStream:
        """Decoding one id at a time: `push(id)` gives text, never half a character, and `end()` the rest."""
        return WholeStream(self.decode) if self._bytes is None else ByteStream(self.token_bytes)

    def token_bytes(self, token: int) -> bytes:
        """What a token adds to a text, in UTF-8; a special token adds nothing."""
        known = self._known(token)
        return self.decode([known]).encode() if self._bytes is None else self._bytes[known]

    def token_text(self, token: int) -> str:
        r"""One token as a picture shows it: its text, a special's name, `\xc3` for part of a character."""
        if token in self._special_text:
            return self._special_text[token]
        return self.token_bytes(token).decode("utf-8", errors="backslashreplace")

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Each token as a picture shows it."""
        return [self.token_text(token) for token in ids]

    @property
    def merges(self) -> list[tuple[str, str]]:
        """The pairs that are joined, in the order they were learnt, in symbols; none where pieces come otherwise."""
        found = json.loads(self.engine.to_str())["model"].get("merges", [])
        pairs = (merge.split(" ") if isinstance(merge, str) else merge for merge in found)
        return [(left, right) for left, right in pairs]

    @property
    def size(self) -> int:
        """How many ids there are, special tokens included."""
        return self._size

    @property
    def pad_id(self) -> int:
        """The id that fills short rows of a batch."""
        return self._special(self.pad)

    @property
    def bos_id(self) -> int:
        """The id a sequence begins with."""
        return self._special(self.bos)

    @property
    def eos_id(self) -> int:
        """The id a sequence ends with."""
        return self._special(self.eos)

    @property
    def unk_id(self) -> int:
        """The id of the unknown, which bytes never need."""
        return self._special(self.unk)

    @property
    def mask_id(self) -> int:
        """The id that hides a token; few tokenizers have one."""
        return self._special(self.mask)

    @property
    def can_mask(self) -> bool:
        """Whether it has a token that hides others, whatever that is called."""
        return self.mask in self._special_id

    @property
    def special_ids(self) -> dict[str, int]:
        """All special tokens by name."""
        return dict(self._special_id)

    def __repr__(self) -> str:
        specials = " ".join(self._special_id) or "none"
        return f"<{type(self).__name__}: kind {self.kind}, {self.size:,} entries, special tokens {specials}>"

    def _repr_html_(self) -> str:
        """As a notebook shows it: what it is, and the first entries."""
        names = [self.token_text(token) for token in range(min(self.size, SHOWN))]
        entries = " ".join(f"<code>{html.escape(escape(name))}</code>" for name in names)
        more = f" … and {self.size - SHOWN:,} more" if self.size > SHOWN else ""
        return f"<p>{html.escape(repr(self)[1:-1])}</p><p>{entries}{more}</p>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tokenizer) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(self.to_json())

    def __reduce__(self) -> tuple[Callable[[str, str | None], "Tokenizer"], tuple[str, str | None]]:
        return type(self)._again, (self.engine.to_str(), self.rule)

    @classmethod
    def _again(cls, text: str, rule: str | None) -> "Tokenizer":
        return cls(Engine.from_str(text), rule)

    @classmethod
    def problem_of(cls, engine: Engine) -> str | None:
        """Why an engine is not a byte-level BPE that gives every text back, if it is not."""
        kinds = (type(engine.model), type(engine.pre_tokenizer), type(engine.decoder))
        if kinds != (BPE, ByteLevel, ByteLevelDecoder):
            names = ", ".join(kind.__name__ for kind in kinds)
            return f"a byte-level BPE is expected, but model, splitter and decoder are {names}"
        if engine.normalizer is not None or engine.pre_tokenizer.add_prefix_space:
            return "this tokenizer changes texts (a normalizer or a prefix space), so they would not come back"
        vocabulary = engine.get_vocab()
        letters = len(set(SYMBOLS) & vocabulary.keys())
        if letters < 256:
            return f"only {letters} of the 256 bytes have a token"
        highest = max(vocabulary.values())
        if highest >= len(vocabulary):
            return f"{len(vocabulary)} tokens have ids up to {highest}, so ids are missing"
        return None

    def _all_bytes(self) -> list[bytes]:
        """What each token adds to a text."""
        names = sorted(self.engine.get_vocab().items(), key=lambda entry: entry[1])
        return [b"" if place in self._special_text else bytes_of(name) for name, place in names]

    def _special(self, name: str) -> int:
        if name not in self._special_id:
            known = " ".join(self._special_id) or "none"
            raise InputError(
                f"this tokenizer has no {name} (its special tokens: {known})", "use one that Regard trained"
            )
        return self._special_id[name]

    def _known(self, token: int) -> int:
        if not 0 <= token < self._size:
            raise InputError(
                f"token id {token} is outside the vocabulary of {self._size}",
                f"use ids from 0 to {self._size - 1}",
            )
        return token


def _byte_level(engine: Engine) -> Engine:
    engine.pre_tokenizer = ByteLevel(add_prefix_space=False)
    engine.decoder = ByteLevelDecoder()
    return engine


def _lacking(engine: Engine, specials: Iterable[str]) -> str | None:
    """Which special tokens are not there, in words."""
    there = {token.content for token in engine.get_added_tokens_decoder().values() if token.special}
    missing = [token for token in specials if token not in there]
    return f"the special tokens {' '.join(missing)} are missing" if missing else None
