"""Texts with gaps and what stands in them (Taylor 1953), as a network that has logits for every token is taught them.

    source      a<mask> and b<mask>           read         [CLS] a [MASK] and b [MASK] [SEP]
    target      β γ                           predicted            β          γ

A gap is one token, and so is what stands in it; the words of the target are told in the order of the gaps. A gap is
predicted where it stands, so an encoder and a decoder read and answer the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from regard.data.batching import IGNORED, Batch, Inputs, Padded
from regard.data.objectives import Example, Objective
from regard.errors import ConfigError, InputError

GAP = "<mask>"
"""How a gap is written in a text."""


@dataclass(frozen=True)
class Cloze(Objective):
    """A text with its special tokens; of an example, `target` has what stands in the gaps, in their order."""

    def encode(self, pairs: Sequence[Any]) -> list[Example]:
        """Texts and fills as ids."""
        rows, gap = self.sources([pair.source for pair in pairs]), self.tokenizer.mask_id
        examples = []
        for pair, row in zip(pairs, rows, strict=True):
            fills = [self._fill(word) for word in pair.target.split()]
            if len(fills) != row.count(gap) or not fills:
                raise InputError(
                    f"{pair.source[:40]!r} has {row.count(gap)} gaps and {len(fills)} words to stand in them",
                    f"write {GAP} for every word of the target",
                )
            examples.append(Example(row, fills))
        return examples

    def sources(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of texts, a gap being the token that hides, with the special tokens round them."""
        token = self.tokenizer
        name = token.token_text(token.mask_id)
        return [token.apply_template(token.encode_naming(text.replace(GAP, name), [name]))[0] for text in texts]

    def cost(self, example: Example) -> int:
        """The text with its special tokens."""
        return len(example.source)

    def batch(self, examples: Sequence[Example]) -> Batch:
        """Texts side by side; only their gaps have targets."""
        source = Padded.of([example.source for example in examples], fill=self.tokenizer.pad_id)
        targets = torch.full_like(source.ids, IGNORED)
        fills = torch.tensor([fill for example in examples for fill in example.target])
        targets[source.ids == self.tokenizer.mask_id] = fills
        return Batch(Inputs(source), targets)

    def prompt(self, sources: Sequence[str]) -> Inputs:
        """Texts side by side."""
        return Inputs(Padded.of(self.sources(sources), fill=self.tokenizer.pad_id))

    def _fill(self, word: str) -> int:
        ids = self.tokenizer.encode(word)
        if len(ids) != 1:
            raise ConfigError(
                f"{word!r} is {len(ids)} tokens and a gap holds one", "use tokenizer.kind=characters or a larger size"
            )
        return ids[0]
