"""Any tokenizer.json, whoever wrote it: BERT's, GPT-2's, RoBERTa's, T5's, LLaMA's, run by the `tokenizers` engine.

It gives the ids and texts that engine gives, with one law of Regard's on top: special tokens are ids that a program
adds, never something a text can spell unless that is asked for. The engine keeps it for tokens it has apart from its
model, but T5's `</s>` is an entry of the model too: texts are cut by a second engine, in which special tokens have
names that nobody can guess.

What the other kinds promise does not hold here: a text may come back changed, and some special tokens may be missing.
"""

import json
import os
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import AddedToken
from tokenizers import Tokenizer as Engine
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import WordPiece
from tokenizers.processors import RobertaProcessing

from regard.errors import FileError, InputError
from regard.text.bytelevel import bytes_of
from regard.text.counting import read_texts, valid_text
from regard.text.incremental import ByteStream, TextStream
from regard.text.kept_settings import KEPT, kept_settings, read_kept_settings
from regard.text.registry import open_tokenizer
from regard.text.sentencepiece import open_sentencepiece, sentencepiece_in
from regard.text.special_tokens import Settings, SpecialTokens, read_settings, special_tokens_in
from regard.text.template import Template, template_of
from regard.text.tiktoken_backend import Encode, encode_all, fast_encoder
from regard.text.tokenizer import Tokenizer, parse_engine, saying_what_lacks
from regard.text.windowed import WindowedStream

ROBERTAS = ("roberta", "longformer", "xlm-roberta", "camembert", "bart")
"""Models whose texts stand between `<s>` and `</s>` where only vocab.json and merges.txt are there to say so."""


class PretrainedTokenizer(Tokenizer):
    """Text to ids and ids to text as the engine does it; of `special_tokens` those that are missing are None."""

    kind = "pretrained"

    def __init__(
        self,
        engine: Engine,
        rule: str | None = None,
        special_tokens: SpecialTokens | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """Take an engine; people call `open_pretrained`, `load` or `from_json`."""
        self.settings = {} if settings is None else dict(settings)
        """What the files say and nothing here reads, such as a chat template: kept for whoever they are written for."""
        self.special_tokens = (
            Settings({}).special_tokens(engine.get_vocab()) if special_tokens is None else special_tokens
        )
        _make_special(engine, self.special_tokens.known().values())
        super().__init__(engine, rule)
        trained = byte_tokens(engine).keys() & self._special_text.keys()  # as special, so that no merge makes them
        for token in trained - {*self.special_tokens.known().values()}:
            del self._special_id[self._special_text.pop(token)]  # they are text
        self._size = max(engine.get_vocab().values(), default=-1) + 1
        self._bytes = self._all_bytes() if isinstance(engine.decoder, ByteLevelDecoder) else None

    @classmethod
    def from_json(cls, text: str) -> "PretrainedTokenizer":
        """Rebuild a tokenizer from what `to_json` gave, or from anybody's tokenizer.json."""
        engine, rule = parse_engine(text)
        return cls(engine, rule, special_tokens_in(text), kept_settings(text))

    def to_json(self) -> str:
        """The whole tokenizer as tokenizer.json text, its special tokens in a key that other libraries pass over."""
        record = json.loads(super().to_json())
        record["model"]["special_tokens"] = asdict(self.special_tokens)
        if self.settings:
            record["model"][KEPT] = self.settings
        return json.dumps(record, indent=2, ensure_ascii=False)

    def with_specials(self, names: Iterable[str]) -> "PretrainedTokenizer":
        """The same with more special tokens, whose ids follow its last; those it has stay."""
        more = super().with_specials(names)
        return type(self)(more.engine, self.rule, self.special_tokens, self.settings)

    def with_roles(self, special_tokens: SpecialTokens) -> "PretrainedTokenizer":
        """The same with other tokens that begin, end, fill and hide."""
        return type(self)(self.engine, self.rule, special_tokens, self.settings)

    def with_settings(self, settings: Mapping[str, Any]) -> "PretrainedTokenizer":
        """The same with other settings to keep, such as a chat template."""
        return type(self)(self.engine, self.rule, self.special_tokens, settings)

    def of_size(self, size: int) -> "PretrainedTokenizer":
        """The same for a model that has more rows than there are tokens, as many have: the ids above are no text."""
        wider = self.with_roles(self.special_tokens)
        wider._size = max(size, self._size)
        if wider._bytes is not None:
            wider._bytes += [b""] * (wider._size - len(wider._bytes))
        return wider

    def apply_template(self, ids: Sequence[int], pair: Sequence[int] | None = None) -> tuple[list[int], list[int]]:
        """What a model reads of one text or of two: the ids with special tokens round them, and the segment of each."""
        return self._template.apply([ids]) if pair is None else self._pair_template.apply([ids, pair])

    def added(self, *, pair: bool = False) -> int:
        """How many special tokens `apply_template` puts round a text, or two."""
        return self._pair_template.added if pair else self._template.added

    @cached_property
    def _template(self) -> Template:
        return template_of(self.engine)

    @cached_property
    def _pair_template(self) -> Template:
        return template_of(self.engine, pair=True)

    def encode_batch(self, texts: Iterable[str]) -> list[list[int]]:
        """Ids of each text, computed in parallel; equal to `encode` of each."""
        checked = [valid_text(text) for text in texts]
        if self._fast is not None:
            return encode_all(self._fast, checked)
        with saying_what_lacks():
            return [list(one.ids) for one in self._cutter.encode_batch_fast(checked, add_special_tokens=False)]

    @cached_property
    def _fast(self) -> Encode | None:
        """tiktoken, where the file is a plain byte-level BPE."""
        if self._parses or Tokenizer.problem_of(self.engine) is not None:
            return None
        return fast_encoder(self.engine, json.loads(self.engine.to_str()))

    @cached_property
    def _encode(self) -> Encode:
        return self._fast or self._encode_by_tokenizers

    def _encode_by_tokenizers(self, text: str) -> list[int]:
        with saying_what_lacks():
            return list(self._cutter.encode(text, add_special_tokens=False).ids)

    @cached_property
    def _cutter(self) -> Engine:
        """The engine that texts are given to."""
        if self._parses:
            return deafened(self.engine, {})
        spellable = self._special_id.keys() & self.engine.get_vocab(with_added_tokens=False).keys()
        return self._spelling[0] if spellable else self.engine

    @cached_property
    def _spelling(self) -> tuple[Engine, dict[str, str]]:
        """An engine in which special tokens have secret names, and these."""
        names = secret_names(self._special_id)
        return deafened(self.engine, names), names

    def encode_parts(self, parts: Sequence[str | int]) -> list[int]:
        """Ids of texts between special tokens that a program put there, cut as one text is."""
        if self._parses:
            return super().encode_parts(parts)
        engine, names = self._spelling
        texts = [part if isinstance(part, str) else names[self._special_text[part]] for part in parts]
        with saying_what_lacks():
            return list(engine.encode(valid_text("".join(texts)), add_special_tokens=False).ids)

    def encode_naming(self, text: str, names: Sequence[str]) -> list[int]:
        """Ids of a text in which these special tokens are written by name; the file says whose blanks beside are."""
        if self._parses:
            return self.encode(text)
        heard = tuple(name for name in names if name in self._special_id)
        if heard not in self._hearing:
            self._hearing[heard] = deafened(
                self.engine, secret_names(name for name in self._special_id if name not in heard)
            )
        with saying_what_lacks():
            return list(self._hearing[heard].encode(valid_text(text), add_special_tokens=False).ids)

    @cached_property
    def _hearing(self) -> dict[tuple[str, ...], Engine]:
        """Engines in which texts spell some of the special tokens, by the names of these."""
        return {}

    @cached_property
    def parsing_special_tokens(self) -> "Tokenizer":
        """The same where the names of special tokens in a text become their ids: for texts of a program, not users'."""
        return self._parsing()

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """Where each token of `encode(text)` sits in the text, in characters."""
        encoding = self._cutter.encode(valid_text(text), add_special_tokens=False)
        return [(start, end) for start, end in encoding.offsets]

    def stream(self) -> TextStream:
        """Decoding one id at a time: `push(id)` gives text, never half a character, and `end()` the rest."""
        if self._bytes is not None:
            return ByteStream(self.token_bytes)
        return WindowedStream(self.decode, self._is_silent, lambda token: token in self._byte)

    def _is_silent(self, token: int) -> bool:
        """Whether an id adds nothing: it is special, or no token has it."""
        return self._known(token) in self._special_text or self.engine.id_to_token(token) is None

    def decode(self, ids: Iterable[int]) -> str:
        """Text of ids, special tokens left out; bytes that end mid-character become `�`."""
        if self._bytes is not None:
            return super().decode(ids)
        return str(self.engine.decode([one for one in ids if not self._is_silent(one)], skip_special_tokens=False))

    def token_bytes(self, token: int) -> bytes:
        """What a token adds to a text that has begun, in UTF-8; a special token adds nothing."""
        known = self._known(token)
        if self._bytes is not None:
            return self._bytes[known]
        if known in self._special_text:
            return b""
        if known in self._byte:
            return self._byte[known]
        before, after = self.decode(self._word), self.decode([*self._word, known])
        return after[len(before) :].encode()

    def token_text(self, token: int) -> str:
        r"""One token as a picture shows it: its text, a special's name, `\xc3` for part of a character."""
        if isinstance(self.engine.model, WordPiece):
            return str(self.engine.id_to_token(self._known(token)) or "")
        return super().token_text(token)

    @cached_property
    def _byte(self) -> dict[int, bytes]:
        return byte_tokens(self.engine)

    @cached_property
    def _word(self) -> list[int]:
        """One token that is text, which others can be added to."""
        ordinary = (token for token in range(self._size) if token not in self._special_text and token not in self._byte)
        return next(([token] for token in ordinary if self.decode([token]).isalnum()), [])

    def _all_bytes(self) -> list[bytes]:
        """What each token adds to a text; an id that no token has adds nothing."""
        found = [b""] * (max(self.engine.get_vocab().values(), default=-1) + 1)
        for name, place in self.engine.get_vocab().items():
            found[place] = b"" if place in self._special_text else bytes_of(name)
        return found

    @property
    def pad_id(self) -> int:
        """The id that fills short rows of a batch: the one that ends texts, where there is none for that alone."""
        return self._role_id("pad", "eos", "sep")

    @property
    def bos_id(self) -> int:
        """The id a sequence begins with."""
        return self._role_id("bos", "cls")

    @property
    def eos_id(self) -> int:
        """The id a sequence ends with."""
        return self._role_id("eos", "sep")

    @property
    def unk_id(self) -> int:
        """The id of the unknown."""
        return self._role_id("unk")

    @property
    def mask_id(self) -> int:
        """The id that hides a token."""
        return self._role_id("mask")

    @property
    def can_mask(self) -> bool:
        """Whether one of its tokens hides others."""
        return self.special_tokens.mask is not None

    def _role_id(self, *roles: str) -> int:
        known = self.special_tokens.known()
        found = next((known[role] for role in roles if role in known), None)
        if found is None:
            there = ", ".join(f"{role} {self.token_text(token)}" for role, token in known.items()) or "none"
            raise InputError(
                f"this tokenizer has no {roles[0]} token (its special tokens: {there})",
                f"name one as {roles[0]}_token in tokenizer_config.json, or use another model",
            )
        return found

    def __reduce__(self) -> tuple[Callable[[str], "Tokenizer"], tuple[str]]:  # type: ignore[override]
        return type(self).from_json, (self.to_json(),)

    @classmethod
    def problem_of(cls, engine: Engine) -> str | None:
        """None: any engine will do."""
        return None


def open_pretrained(folder: Path) -> PretrainedTokenizer:
    """The tokenizer in a model folder that another library wrote."""
    settings = read_settings(folder)
    roles: dict[str, int] = {}
    path = folder / "tokenizer.json"
    if path.is_file():
        try:
            engine, _ = parse_engine("".join(read_texts([path])))
        except InputError as error:
            raise FileError(f"{path}: {error.problem}", "copy it again from where the model came from") from error
    else:
        engine, roles = _engine_of(folder, settings)
    vocabulary = engine.get_vocab()
    _make_special(engine, [vocabulary[name] for name in settings.more if name in vocabulary])
    kept = read_kept_settings(folder, engine)
    special_tokens = settings.special_tokens(vocabulary)
    said = special_tokens.known()
    special_tokens = replace(special_tokens, **{role: token for role, token in roles.items() if role not in said})
    return PretrainedTokenizer(engine, special_tokens=special_tokens, settings=kept)


def open_any(path: Path) -> Tokenizer:
    """The tokenizer at a path: one of Regard's kinds where it is that, else whatever its files describe."""
    if path.suffix == ".model" and os.path.isfile(path):
        engine, roles = open_sentencepiece(path)
        return PretrainedTokenizer(engine, special_tokens=SpecialTokens(**roles))
    if os.path.isdir(path) and not (path / "tokenizer.json").is_file() and sentencepiece_in(path) is not None:
        return open_pretrained(path)
    try:
        return open_tokenizer(path)
    except FileError as error:
        file = path / "tokenizer.json" if os.path.isdir(path) else path
        if file.name.removesuffix(".gz") in ("vocab.json", "vocab.txt") or not os.path.isfile(file):
            raise
        try:
            return open_pretrained(file.parent) if file.name == "tokenizer.json" else PretrainedTokenizer.load(file)
        except (FileError, InputError):
            raise error from None


def _engine_of(folder: Path, settings: Settings) -> tuple[Engine, dict[str, int]]:
    """Where there is no tokenizer.json: GPT-2's or BERT's files, or SentencePiece's, which alone names roles."""
    others = any((folder / name).is_file() for name in ("merges.txt", "vocab.txt"))
    pieces = None if others else sentencepiece_in(folder)
    if pieces is not None:
        return open_sentencepiece(pieces)
    found = sorted(path.name for path in folder.glob("*.spm"))
    if found and not others:
        raise FileError(
            f"{folder} has its tokenizer as {' and '.join(found)} alone",
            "take a copy of the model that has a tokenizer.json, which transformers does not write for this kind",
        )
    engine = open_tokenizer(folder).engine
    _template_as_roberta(engine, settings)
    return engine, {}


def _template_as_roberta(engine: Engine, settings: Settings) -> None:
    """vocab.json and merges.txt do not say which special tokens stand round texts; for these models it is known."""
    begin, end = engine.token_to_id("<s>"), engine.token_to_id("</s>")
    if (settings.ids or {}).get("model_type") in ROBERTAS and begin is not None and end is not None:
        engine.post_processor = RobertaProcessing(("</s>", end), ("<s>", begin), add_prefix_space=False)


def byte_tokens(engine: Engine) -> dict[int, bytes]:
    """Tokens that are single bytes, `<0x0A>`, where the decoder joins them to characters."""
    if engine.decoder is None or b'"ByteFallback"' not in engine.decoder.__getstate__():
        return {}
    ids = ((engine.token_to_id(f"<0x{byte:02X}>"), byte) for byte in range(256))
    return {token: bytes([byte]) for token, byte in ids if token is not None}


def secret_names(specials: Iterable[str]) -> dict[str, str]:
    """For special tokens names that no text can spell."""
    secret = secrets.token_hex(16)
    return {name: f"<{secret}-{place}>" for place, name in enumerate(specials)}


def deafened(engine: Engine, renamed: Mapping[str, str]) -> Engine:
    """The same engine for cutting texts alone, in which the special tokens have these names."""
    record: dict[str, Any] = json.loads(engine.to_str())
    model = record["model"]
    if isinstance(model["vocab"], dict):
        model["vocab"] = {renamed.get(piece, piece): token for piece, token in model["vocab"].items()}
    else:
        model["vocab"] = [[renamed.get(piece, piece), score] for piece, score in model["vocab"]]
    if "merges" in model:
        model["merges"] = [pair for pair in model["merges"] if not renamed.keys() & {*pair, "".join(pair)}]
    if model.get("unk_token") is not None:
        model["unk_token"] = renamed.get(model["unk_token"], model["unk_token"])
    spelt = byte_tokens(engine)  # the model makes them of what it does not know, and texts that name them do not
    record["added_tokens"] = [
        token for token in record["added_tokens"] if not (token["special"] and token["id"] in spelt)
    ]
    for token in record["added_tokens"]:
        token["content"] = renamed.get(token["content"], token["content"])
    record |= {"post_processor": None, "decoder": None, "padding": None, "truncation": None}
    return Engine.from_str(json.dumps(record))


def _make_special(engine: Engine, tokens: Iterable[int]) -> None:
    """Tokens that are known to be special and not called so in the file; those that are stay as they are."""
    special = {token for token, entry in engine.get_added_tokens_decoder().items() if entry.special}
    names = [engine.id_to_token(token) for token in sorted({*tokens} - special)]
    engine.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in names if name is not None])
