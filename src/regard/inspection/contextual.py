"""How a word's vector becomes its meaning in a sentence: how far the layers move it, and which words moved it.

`word_in_sentences` follows one word through the same model in several sentences.

*Vectors.* Layer 0 is the token embedding, before positions: the same pieces have the same vector in any sentence. Then
comes the stream after each layer. A word of several pieces is the mean of their vectors. The cosine of two unit vectors
is computed as `1 − ‖x − y‖² / 2`, which is exactly 1 for equal vectors.

*What moved it.* In a layer, attention adds `Σ_j u_ij + b_O` to the token i, where `u_ij = Σ_h α_ij^h W_O^h v_j^h` is
what the token j sends: weight, value and output projection, not the weight alone (Kobayashi et al. 2020, section 3).
With `Δ = after − before`, what the whole layer changed, a word's part is `u_ij · Δ / ‖Δ‖`, summed over its pieces j
(and the mean over i): the length it moved the vector along the way it went. Negative is holding back. The change is
the direction, rather than attention's own output, because it is what becomes of the word; and nothing is left out:

    ‖Δ‖  =  Σ of all words, itself too  +  the bias b_O  +  the rest: feed-forward network, normalisation

A word that occurs more than once in a sentence is followed where it occurs last: in a causal model that place has the
most before it. There a word is moved by earlier words only, and the record says that it is `causal`. Of an
encoder–decoder the encoder is followed.
"""

import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.attention.mechanism import Mechanism
from regard.attention.multihead import HeadAttention
from regard.blocks.decoder import DecoderLayer
from regard.blocks.encoder import EncoderLayer
from regard.data.batching import Inputs, Padded
from regard.errors import InputError, choose
from regard.inspection.capture import Recording, record_into
from regard.models.network import Network
from regard.text.tokenizer import Tokenizer

Span = tuple[int, int]


@dataclass(frozen=True, eq=False)
class InSentence:
    """A word in one sentence: its vectors, and what moved it in each layer, along the change it made there."""

    sentence: str
    pieces: tuple[str, ...]
    occurrences: int
    words: tuple[str, ...]
    """Everything it could be moved by, itself and special tokens too, in the order of the sentence."""
    itself: int
    """Which of them is the word."""
    vectors: NDArray[Any]
    """`[1 + layers, width]`: the embedding, then the stream after each layer."""
    change: NDArray[Any]
    """`[layers]`: how long the layer's change of the vector is."""
    moved: NDArray[Any]
    """`[layers, words]`: the part of that length that each word made."""
    bias: NDArray[Any]
    """`[layers]`: the part of attention's output bias."""

    @property
    def rest(self) -> NDArray[Any]:
        """`[layers]`: the part of the feed-forward network and the normalisation."""
        rest: NDArray[Any] = self.change - self.moved.sum(axis=1) - self.bias
        return rest

    def movers(self, layer: int | None = None) -> list[tuple[str, float]]:
        """Other words and their share of the change, largest first: of one layer, or of all together."""
        chosen = slice(None) if layer is None else slice(layer, layer + 1)
        shares = self.moved[chosen].sum(axis=0) / max(float(self.change[chosen].sum()), 1e-30)
        others = [at for at in np.argsort(-shares, kind="stable") if at != self.itself]
        return [(self.words[at], float(shares[at])) for at in others]


@dataclass(frozen=True, eq=False)
class Meaning:
    """One word in several sentences, layer by layer."""

    word: str
    layers: tuple[str, ...]
    """`embedding`, then the layers' names."""
    sentences: tuple[InSentence, ...]
    causal: bool
    cosines: NDArray[Any] = field(init=False)
    """`[1 + layers, sentences, sentences]`."""

    def __post_init__(self) -> None:
        vectors = np.stack([one.vectors for one in self.sentences], axis=1).astype(np.float64)
        if not np.isfinite(vectors).all():
            raise InputError("the vectors of a word hold NaN or infinity", "look where they come from: the weights")
        units = vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-30)
        apart = units[:, :, None] - units[:, None]
        object.__setattr__(self, "cosines", 1 - (apart**2).sum(axis=-1) / 2)

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """The pairs of sentences."""
        count = len(self.sentences)
        return [(one, other) for one in range(count) for other in range(one + 1, count)]


def word_in_sentences(module: Network, tokenizer: Tokenizer, sentences: Sequence[str], word: str) -> Meaning:
    """Follow a word through an encoder or decoder, in every sentence."""
    if len(sentences) < 2:
        raise InputError(
            f"meaning is compared between sentences and there is {len(sentences)}", f"give two or more with {word!r}"
        )
    if getattr(module.config, "residual", True) == "reversible":
        raise InputError(
            "the layers of a reversible network add to two streams in turn, and none of them is a word's vector",
            "look at its attention, or use a model with model.residual=true",
        )
    causal = not hasattr(module, "encoder")
    name = "decoder" if causal else "encoder"
    if not _layers(module, name):
        raise InputError(f"{module.config.words} has no layers of attention that move a word", "use a Transformer")
    places = [find_word(sentence, word, number) for number, sentence in enumerate(sentences, start=1)]
    found = [
        _follow(module, name, _Reading.of(module, tokenizer, sentence, spans))
        for sentence, spans in zip(sentences, places, strict=True)
    ]
    layers = tuple(f"{name}.{index}" for index in range(len(_layers(module, name))))
    return Meaning(word, ("embedding", *layers), tuple(found), causal)


def find_word(sentence: str, word: str, number: int) -> list[Span]:
    """Where a whole word stands in a sentence, whatever its case; never nowhere."""
    if not word.strip():
        raise InputError(f"{word!r} is no word", "name one that all sentences have")
    low, wanted = sentence.lower(), word.strip().lower()
    if len(low) != len(sentence):  # a few letters change their length, and places must stay
        low, wanted = sentence, word.strip()
    starts = (at for at in range(len(low)) if low.startswith(wanted, at))
    spans = [(start, start + len(wanted)) for start in starts]
    spans = [(start, end) for start, end in spans if not _joins(low, start) and not _joins(low, end)]
    if not spans:
        near = choose(wanted, {"".join(c for c in one if c.isalnum()) for one in low.split()} - {""})
        raise InputError(f"sentence {number}, {sentence!r}, has no word {word!r}", near)
    return spans


def _joins(text: str, at: int) -> bool:
    """Whether the characters before and after a place belong to one word; CJK characters part words."""
    return 0 < at < len(text) and _is_letter(text[at - 1]) and _is_letter(text[at])


def _is_letter(character: str) -> bool:
    mark = unicodedata.category(character).startswith("M")
    return (character.isalnum() or mark) and unicodedata.east_asian_width(character) not in "WF"


@dataclass(frozen=True)
class _Reading:
    """A sentence as the model reads it: ids, the words they make, and which ids are the word that is followed."""

    sentence: str
    ids: tuple[int, ...]
    pieces: tuple[str, ...]
    word_of: tuple[int, ...]
    words: tuple[str, ...]
    places: tuple[int, ...]
    occurrences: int

    @classmethod
    def of(cls, module: Network, tokenizer: Tokenizer, sentence: str, spans: Sequence[Span]) -> "_Reading":
        """An encoder reads special tokens around the text as it does when it is trained; a decoder's come after it."""
        ids, offsets = tokenizer.encode(sentence), tokenizer.offsets(sentence)
        begin, end = spans[-1]
        inside = [at for at, (start, stop) in enumerate(offsets) if start < end and stop > begin]
        if not inside:
            raise InputError(f"the tokenizer leaves {sentence[begin:end]!r} out", "choose another word")
        starts = [at for at in range(len(ids)) if at == 0 or not _one_word(sentence, offsets[at - 1], offsets[at])]
        starts = [at for at in starts if at not in inside[1:]]
        names = [sentence[offsets[at][0] : offsets[stop - 1][1]].strip() for at, stop in pairwise([*starts, len(ids)])]
        names = [name or tokenizer.token_text(ids[at]) for name, at in zip(names, starts, strict=True)]
        before, after = _special_tokens(module, tokenizer)
        words = [*tokenizer.pieces(before), *names, *tokenizer.pieces(after)]
        word_of = np.searchsorted(starts, range(len(ids)), side="right") - 1 + len(before)
        tail = range(len(before) + len(names), len(words))
        return cls(
            sentence,
            (*before, *ids, *after),
            tuple(tokenizer.pieces(ids[at] for at in inside)),
            (*range(len(before)), *(int(at) for at in word_of), *tail),
            tuple(words),
            tuple(at + len(before) for at in inside),
            len(spans),
        )


def _one_word(text: str, left: Span, right: Span) -> bool:
    """Whether two neighbouring tokens are of one word: parts of one character, letters side by side, a blank before."""
    blank = not text[left[0] : left[1]].strip()
    return right[0] < left[1] or (right[0] == left[1] and (blank or _joins(text, right[0])))


def _special_tokens(module: Network, tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """The special tokens before and after a text."""
    config = module.config
    reads_all = config.reads_source or not config.decodes
    return [] if config.decodes else [tokenizer.bos_id], [tokenizer.eos_id] if reads_all else []


def _layers(module: Network, name: str) -> list[EncoderLayer | DecoderLayer]:
    stack = getattr(getattr(module, name, None), "layers", nn.ModuleList())
    return [layer for layer in stack.children() if isinstance(layer, EncoderLayer | DecoderLayer)]


class _Hidden:
    """What hooks see on the way: the embedding, and every layer's stream before and after it."""

    def __init__(self) -> None:
        self.embedding: list[Tensor] = []
        self.before: list[Tensor] = []
        self.after: list[Tensor] = []

    @contextmanager
    def listening(self, module: Network, layers: Sequence[nn.Module]) -> Iterator[None]:
        """Listen to one pass of the model, in evaluation mode."""
        handles = [module.embedding.register_forward_hook(lambda _, args, out: self.embedding.append(out[0]))]
        for layer in layers:
            handles.append(layer.register_forward_pre_hook(lambda _, args: self.before.append(args[0][0])))
            handles.append(layer.register_forward_hook(self._leave))
        training = module.training
        module.eval()
        try:
            yield
        finally:
            module.train(training)
            for handle in handles:
                handle.remove()

    def _leave(self, layer: nn.Module, args: tuple[Any, ...], out: Tensor | tuple[Tensor, Any]) -> None:
        self.after.append((out[0] if isinstance(out, tuple) else out)[0])


@torch.no_grad()
def _follow(module: Network, name: str, reading: _Reading) -> InSentence:
    hidden, layers = _Hidden(), _layers(module, name)
    row = Padded.of([reading.ids]).to(module.device)
    with hidden.listening(module, layers), record_into(Recording(values=True), module) as seen:
        module.hidden(Inputs(row, row) if module.config.reads_source else Inputs(row))
    places = list(reading.places)
    vectors = [hidden.embedding[0][places].mean(dim=0), *(after[places].mean(dim=0) for after in hidden.after)]
    change, moved, bias = [], [], []
    for index, layer in enumerate(layers):
        attention = _exact(layer.self_attention)
        delta = (hidden.after[index] - hidden.before[index])[places].mean(dim=0).double()
        direction = delta / delta.norm().clamp(min=1e-30)
        sent = contributions(seen, f"{name}.{index}.self", attention, places).double() @ direction
        by_word = torch.zeros(len(reading.words), dtype=torch.float64, device=sent.device)
        moved.append(by_word.index_add(0, torch.tensor(reading.word_of, device=sent.device), sent))
        bias.append(
            torch.zeros_like(delta[0]) if attention.output.bias is None else attention.output.bias.double() @ direction
        )
        change.append(delta.norm())
    return InSentence(
        reading.sentence,
        reading.pieces,
        reading.occurrences,
        reading.words,
        reading.word_of[places[0]],
        *(torch.stack(part).double().cpu().numpy() for part in (vectors, change, moved, bias)),
    )


def _exact(attention: Mechanism) -> HeadAttention:
    """The attention, if its values are carried by weights that were seen."""
    if not isinstance(attention, HeadAttention):
        raise InputError(
            f"{type(attention).__name__} does not say which token carried what",
            "ask a model with exact attention; pictures of its attention show its effective weights",
        )
    return attention


def contributions(
    seen: Recording, layer: str, attention: HeadAttention, rows: Sequence[int], batch: int | None = None
) -> Float[Tensor, "keys width"]:
    """What each token sends to the mean of these rows: `Σ_h α_ij^h W_O^h v_j^h`; with the bias they are its output."""
    path = seen.trace(layer, batch=batch)
    if path.exact[0].new_values is None:
        raise InputError("the values were not kept", "watch with `values=True` to see what attention carries")
    weights = path.weights(list(rows)).mean(dim=1)
    values = path.joined("new_values")[0, :, path.real_keys()]
    values = values.repeat_interleave(path.heads // values.shape[0], dim=0).to(
        weights.dtype
    )  # float32 for half precision
    output = attention.output.whole_weight().reshape(attention.output.out_features, path.heads, -1)
    return torch.einsum("hk,hkv,whv->kw", weights, values, output.to(weights.dtype))
