"""llama2.c's two files (Karpathy 2023): a LLaMA's weights as one `.bin`, and its `tokenizer.bin`.

model      seven int32: width, feed-forward width, layers, heads, key/value heads, vocabulary (negative where the
           output has a table of its own), longest text; then float32, each kind of tensor for all layers in a row
tokenizer  an int32, the longest piece; then for every token a float32 score, an int32 length and its bytes

Its rotary pairs are the coordinates (2i, 2i + 1) of a head and Regard's are (i, i + half): the rows of queries and keys
change places. Weights are mapped, not read: what is never used is never loaded, and nothing is there twice.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from tokenizers import AddedToken, decoders, models, normalizers, processors
from tokenizers import Tokenizer as Engine
from torch import Tensor

from regard.errors import ConfigError, FileError
from regard.models.config import TransformerConfig
from regard.text.pretrained import PretrainedTokenizer
from regard.text.special_tokens import SpecialTokens

MAGIC = 0x616B3432
"""How the newer versions of the format begin, which are not read."""
UNKNOWN, BEGIN, END = SPECIALS = ("<unk>", "<s>", "</s>")
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
_REMEDY = "give a .bin that llama2.c's export.py wrote with --version 0"


@dataclass(frozen=True)
class Header:
    """The seven numbers a model begins with."""

    width: int
    inner: int
    layers: int
    heads: int
    key_value_heads: int
    vocabulary: int
    longest: int

    @property
    def head_width(self) -> int:
        """Of one head."""
        return self.width // self.heads

    def config(self) -> TransformerConfig:
        """What the model is."""
        return TransformerConfig(
            architecture="decoder",
            layers=self.layers,
            width=self.width,
            heads=self.heads,
            key_value_heads=self.key_value_heads,
            feedforward="swiglu",
            feedforward_width=self.inner,
            norm="rms",
            epsilon=1e-5,
            norm_placement="pre",
            bias=False,
            positions="rotary",
            max_positions=self.longest,
            trained_length=self.longest,
            dropout=0.0,
            scale_embeddings=False,
            tie_embeddings=self.vocabulary > 0,
            vocabulary=abs(self.vocabulary),
        )

    def tensors(self) -> "Iterator[Stored]":
        """What follows the header, in its order; the angles of the positions have no name, since they are computed."""
        width, inner, table = self.width, self.inner, (abs(self.vocabulary), self.width)
        keys = (self.key_value_heads * self.head_width, width)
        yield Stored("embedding.weight", table)
        yield Stored("self_residual.norm.weight", (width,), "layers")
        yield Stored("self_attention.query.weight", (width, width), "layers")
        yield Stored("self_attention.key.weight", keys, "layers")
        yield Stored("self_attention.value.weight", keys, "layers")
        yield Stored("self_attention.output.weight", (width, width), "layers")
        yield Stored("feedforward_residual.norm.weight", (width,), "layers")
        yield Stored("feedforward.gate.weight", (inner, width), "layers")
        yield Stored("feedforward.down.weight", (width, inner), "layers")
        yield Stored("feedforward.up.weight", (inner, width), "layers")
        yield Stored("decoder.norm.weight", (width,))
        yield Stored("cosines and sines", (2, self.longest, self.head_width // 2), "skipped")
        if self.vocabulary < 0:
            yield Stored("output.weight", table)


@dataclass(frozen=True)
class Stored:
    """A tensor of the file by Regard's name: there once, once for every layer, or not read."""

    name: str
    shape: tuple[int, ...]
    kind: Literal["once", "layers", "skipped"] = "once"

    def numbers(self, layers: int) -> int:
        """How many floats it takes."""
        return int(np.prod(self.shape, dtype=np.int64)) * (layers if self.kind == "layers" else 1)


def read_llama2c(path: Path) -> tuple[TransformerConfig, dict[str, Tensor]]:
    """The config of the model in a llama2.c `.bin`, and its weights by Regard's names."""
    size = _size(path)
    if size < 28:
        raise FileError(f"{path} has {size} bytes, fewer than the header of a llama2.c model", _REMEDY)
    with open(path, "rb") as stream:
        beginning = stream.read(28)
    if beginning.startswith(b"PK\x03\x04"):
        raise FileError(f"{path} is a zip, as pickles of PyTorch are, and no llama2.c model", _REMEDY)
    numbers = struct.unpack("<7i", beginning)
    header, config = _checked(path, numbers)
    expected = 28 + 4 * sum(one.numbers(header.layers) for one in header.tensors())
    if size != expected:
        word, remedy = (
            ("short", "copy it again if it is a llama2.c model")
            if size < expected
            else ("long", "it may be something else")
        )
        said = f"{header.layers} layers of width {header.width} and {config.vocabulary} tokens"
        raise FileError(f"{path} is too {word}: it has {size} bytes, and {said} take {expected}", remedy)
    return config, _mapped(path, header)


def _checked(path: Path, numbers: tuple[int, ...]) -> tuple[Header, TransformerConfig]:
    """The header, and the config it makes, if a model can be so."""
    if numbers[0] == MAGIC:
        raise FileError(f"{path} is of version {numbers[1]} of llama2.c's format", _REMEDY)
    header = Header(*numbers)
    possible = (*numbers[:5], abs(header.vocabulary), header.longest)
    if min(possible) < 1 or header.width % header.heads:
        raise FileError(f"{path} is no llama2.c model: it begins with {', '.join(map(str, numbers))}", _REMEDY)
    try:
        return header, header.config()
    except ConfigError as error:
        raise FileError(f"{path} is no llama2.c model: {error.problem}", _REMEDY) from error


def _mapped(path: Path, header: Header) -> dict[str, Tensor]:
    """Every tensor as a view of the file; writing to one changes memory and never the file."""
    numbers = np.memmap(path, dtype="<f4", mode="c", offset=28)
    found: dict[str, Tensor] = {}
    room = torch.empty(header.head_width, header.width)
    place = 0
    for stored in header.tensors():
        count = int(np.prod(stored.shape, dtype=np.int64))
        names = [stored.name]
        if stored.kind == "layers":
            names = [f"decoder.layers.{layer}.{stored.name}" for layer in range(header.layers)]
        for name in names:
            if stored.kind != "skipped":
                found[name] = torch.from_numpy(numbers[place : place + count].reshape(stored.shape))
                if stored.name.endswith(("query.weight", "key.weight")):
                    _pair_halves(found[name], room)
            place += count
    return found


def _pair_halves(weight: Tensor, room: Tensor) -> None:
    """Rows 0, 2, 4 … of every head first, then 1, 3, 5 …: in place, by way of one head's room, so that nothing else is
    allocated and only these pages of the file are copied."""
    for head in weight.view(-1, *room.shape):
        room.view(2, -1, room.shape[1]).copy_(head.view(-1, 2, room.shape[1]).transpose(0, 1))
        head.copy_(room)


def read_llama2c_tokenizer(path: Path, vocabulary: int | None = None) -> PretrainedTokenizer:
    """The tokenizer in a llama2.c tokenizer.bin; with `vocabulary`, refused if it has another number of tokens."""
    pieces = list(_pieces(path))
    if vocabulary is not None and len(pieces) != vocabulary:
        raise FileError(
            f"{path} has {len(pieces)} tokens and the model {vocabulary}", "give the tokenizer.bin of this model"
        )
    texts = [*SPECIALS, *BYTES, *(text.replace(" ", "▁") for text, _ in pieces[len(SPECIALS) + len(BYTES) :])]
    ids = {text: place for place, text in enumerate(texts)}
    if len(ids) < len(texts):
        twice = next(text for place, text in enumerate(texts) if ids[text] != place)
        raise FileError(f"{path} has the piece {twice!r} twice", "give a tokenizer.bin whose pieces all differ")
    return PretrainedTokenizer(
        _engine(ids, [score for _, score in pieces]), special_tokens=SpecialTokens(bos=1, eos=2, unk=0)
    )


def _pieces(path: Path) -> Iterator[tuple[str, float]]:
    """Each token's text and score."""
    size = _size(path)
    remedy = "give the tokenizer.bin that llama2.c's tokenizer.py wrote, and copy it again if it is that"
    content = path.read_bytes() if size < 2**28 else b""
    place, count = 4, 0
    while place < len(content):
        score, length = struct.unpack_from("<fi", content, place) if place + 8 <= len(content) else (0.0, -1)
        if not 0 <= length <= len(content) - place - 8:
            raise FileError(f"{path} ends within token {count}, or is no llama2.c tokenizer", remedy)
        try:
            yield content[place + 8 : place + 8 + length].decode(), score
        except UnicodeDecodeError as error:
            raise FileError(f"{path}: token {count} is not UTF-8, so it is no llama2.c tokenizer", remedy) from error
        place, count = place + 8 + length, count + 1
    if count <= len(SPECIALS) + len(BYTES):
        raise FileError(f"{path} has {count} tokens, fewer than the 256 bytes take", remedy)


def _engine(ids: dict[str, int], scores: list[float]) -> Engine:
    """A BPE that joins, of all neighbours that make a token, those whose token has the highest score."""
    ranked = sorted(list(ids.items())[len(SPECIALS) + len(BYTES) :], key=lambda entry: (-scores[entry[1]], entry[1]))
    merges = [
        (text[:cut], text[cut:])
        for text, _ in ranked
        for cut in range(1, len(text))
        if text[:cut] in ids and text[cut:] in ids
    ]
    engine = Engine(models.BPE(vocab=ids, merges=merges, unk_token=UNKNOWN, fuse_unk=True, byte_fallback=True))
    engine.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    engine.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    engine.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in SPECIALS])
    engine.post_processor = processors.TemplateProcessing(
        single=f"{BEGIN}:0 $A:0", pair=f"{BEGIN}:0 $A:0 {BEGIN}:1 $B:1", special_tokens=[(BEGIN, ids[BEGIN])]
    )
    return engine


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except (OSError, ValueError) as error:
        raise FileError(f"{path} cannot be read ({getattr(error, 'strerror', error)})", "check the path") from error
