"""Which sense of a word a sentence ends nearer to: its vector beside those of words in sentences that leave no doubt.

Vectors are those of `contextual.py`; nearness is their cosine, layer by layer. The cosine of contextual vectors is high
between any two (Ethayarajh 2019), so of interest is which of several is nearer, not how near one is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.errors import InputError
from regard.inspection.contextual import InSentence, Meaning, word_in_sentences
from regard.models.network import Network
from regard.text.tokenizer import Tokenizer


class Sense(NamedTuple):
    """A word in a sentence that leaves no doubt: what another is compared with."""

    word: str
    sentence: str


@dataclass(frozen=True, eq=False)
class Nearness:
    """One word in several sentences, beside several senses."""

    meaning: Meaning
    senses: tuple[Sense, ...]
    cosines: NDArray[Any]
    """`[1 + layers, sentences, senses]`."""

    @property
    def sentences(self) -> tuple[InSentence, ...]:
        return self.meaning.sentences

    def nearest(self, sentence: int, layer: int = -1) -> int:
        """Which sense a sentence's word is nearest to after a layer; the last if none is named."""
        return int(self.cosines[layer, sentence].argmax())

    def margin(self, sentence: int, layer: int = -1) -> float:
        """By how much nearer it is to that sense than to the next."""
        last = np.sort(self.cosines[layer, sentence])
        return float(last[-1] - last[-2])


def nearness(
    module: Network, tokenizer: Tokenizer, sentences: Sequence[str], word: str, senses: Sequence[Sense]
) -> Nearness:
    """Follow a word through the sentences and each sense through its own."""
    if len(senses) < 2:
        raise InputError(f"{len(senses)} senses leave nothing to choose", "give two or more")
    doubled = [*sentences, sentences[0]] if len(sentences) == 1 else sentences
    found = word_in_sentences(module, tokenizer, doubled, word)
    kept = [word_in_sentences(module, tokenizer, [one.sentence] * 2, one.word).sentences[0] for one in senses]
    own = _units(found.sentences[: len(sentences)])
    others = _units(kept)
    return Nearness(found, tuple(senses), np.einsum("slw,rlw->lsr", own, others))


def _units(many: Sequence[InSentence]) -> NDArray[Any]:
    vectors = np.stack([one.vectors for one in many]).astype(np.float64)
    units: NDArray[Any] = vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-30)
    return units
