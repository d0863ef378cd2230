"""Which special tokens stand round a text, or two, when a model reads it: `[CLS] x [SEP] y [SEP]`, `x </s>`, `<s> x`.

The `tokenizers` engine knows, but adds them only to texts that it has cut itself. A template is what it makes of two
short texts, with gaps where they stood, so that any ids can be put there: cut-off ones, or some with a masked token.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, groupby

from tokenizers import Tokenizer as Engine

PROBES = ("a", "A", "1", ".")


@dataclass(frozen=True)
class Part:
    """Special tokens, or the gap of one of the texts, and the segment they belong to."""

    ids: tuple[int, ...]
    text: int | None
    segment: int


@dataclass(frozen=True)
class Template:
    """The parts of what a model reads, in their order."""

    parts: tuple[Part, ...]

    def apply(self, texts: Sequence[Sequence[int]]) -> tuple[list[int], list[int]]:
        """The ids with these texts in the gaps, and the segment of each."""
        filled = [(part.ids if part.text is None else texts[part.text], part.segment) for part in self.parts]
        ids = [token for tokens, _ in filled for token in tokens]
        return ids, [segment for tokens, segment in filled for _ in tokens]

    @property
    def added(self) -> int:
        """How many ids it adds."""
        return sum(len(part.ids) for part in self.parts)


def template_of(engine: Engine, *, pair: bool = False) -> Template:
    """The template of one text or of two."""
    tried = chain(PROBES, engine.get_vocab())  # some tokenizers know few letters and pass over the others
    text = next((one for one in tried if engine.encode(one, add_special_tokens=False).ids), "")
    made = engine.encode(text, text if pair else None, add_special_tokens=True)
    places = zip(made.ids, made.sequence_ids, made.type_ids, strict=True)
    parts = []
    for (text, segment), run in groupby(places, key=lambda place: place[1:]):
        ids = tuple(token for token, _, _ in run)
        parts.append(Part(ids if text is None else (), text, segment))
    return Template(tuple(parts))
