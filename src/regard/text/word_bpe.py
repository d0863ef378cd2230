"""Words with an end mark, as byte-pair encoding first had them (Sennrich et al. 2016): `low` is `l o w _`.

    marked_words("low lower")  →  ["low_", "lower_"]

The mark is a symbol of its own that merges may take in (`er_` ends a word, `er` does not). An underscore in a text is
written `＿`, so that it is no mark, and comes back as an underscore, as a `＿` of the text does too. Blanks between
words come back as one space, and a character that training never saw is `<unk>` and lost: where texts must come back,
use byte-level BPE.
"""

import json
import re
from collections.abc import Iterable

from tokenizers import AddedToken, Regex, decoders, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Engine
from tokenizers.models import BPE

from regard.text.bytelevel import BLANKS
from regard.text.counting import count_words, valid_text
from regard.text.tokenizer import SPECIALS, Tokenizer
from regard.text.training import RULE, learn_merges

MARK = "_"
STAND_IN = "＿"
_WORD = re.compile(f"[^{BLANKS}]+")
_PARTS = ("normalizer", "pre_tokenizer", "decoder")


def marked_words(text: str) -> list[str]:
    """The words of a text, each with its end mark."""
    return [word + MARK for word in _WORD.findall(text.replace(MARK, STAND_IN))]


def shown(pieces: Iterable[str]) -> list[str]:
    """Pieces of a word as people read them: a mark that stands alone is left out."""
    found = list(pieces)
    return found[:-1] if len(found) > 1 and found[-1] == MARK else found


class WordBpeTokenizer(Tokenizer):
    """BPE of whole words with an end mark; what it does not know is `<unk>`."""

    kind = "bpe_words"

    @classmethod
    def train(cls, texts: Iterable[str], size: int) -> "WordBpeTokenizer":
        """Learn merges until there are `size` entries or no pair occurs twice; same texts, same result."""
        found = count_words(texts, marked_words)
        trained = learn_merges(found.counts, size, specials=SPECIALS, alphabet=MARK)
        model = json.loads(trained.to_str())["model"]
        merges = [(left, right) for left, right in model["merges"]]
        engine = _word_engine(BPE(vocab=model["vocab"], merges=merges, unk_token=SPECIALS[3]))
        engine.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in SPECIALS])
        return cls(engine, RULE)

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """Where each token of `encode(text)` sits in the text, in characters; an end mark takes no room."""
        encoding = self.engine.encode(valid_text(text), add_special_tokens=False)
        spans: list[tuple[int, int]] = []
        for token, (start, end) in zip(encoding.tokens, encoding.offsets, strict=True):
            before = spans[-1][1] if spans else 0
            spans.append((before, before) if token == MARK else (start, start + len(text[start:end].rstrip(BLANKS))))
        return spans

    def token_bytes(self, token: int) -> bytes:
        """What a token adds to a text, in UTF-8: its end mark is a space."""
        name = self.token_text(token)
        return b"" if token in self._special_text else name.replace(MARK, " ").replace(STAND_IN, MARK).encode()

    def token_text(self, token: int) -> str:
        """One token as a picture shows it, with its mark."""
        return str(self.engine.id_to_token(self._known(token)))

    @classmethod
    def problem_of(cls, engine: Engine) -> str | None:
        """Why an engine does not cut text into marked words, if it does not."""
        known, its = (json.loads(one.to_str()) for one in (_word_engine(BPE()), engine))
        differs = [part for part in _PARTS if known[part] != its[part]]
        return f"its {', '.join(differs)} are not those of words with an end mark" if differs else None


def _word_engine(model: BPE) -> Engine:
    """An engine that cuts text into marked words, which the model then cuts into pieces."""
    engine = Engine(model)
    engine.normalizer = normalizers.Sequence(
        [normalizers.Strip(), normalizers.Replace(MARK, STAND_IN), normalizers.Replace(Regex(r"\s+|\z"), MARK)]
    )
    engine.pre_tokenizer = pre_tokenizers.Split(MARK, "merged_with_previous")
    engine.decoder = decoders.Sequence(
        [
            decoders.Replace(MARK, " "),
            decoders.Fuse(),
            decoders.Replace(Regex(r" \z"), ""),
            decoders.Replace(STAND_IN, MARK),
        ]
    )
    return engine
