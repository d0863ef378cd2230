"""Texts with gaps and what stands in them (Taylor 1953), as a network that has logits for every token is taught them.

    source      a<mask> and b<mask>           read         [CLS] a [MASK] and b [MASK] [SEP]
    target      β γ                           predicted            β          γ

A gap is one token, and so is what belongs in it; the words of the target come in the order of the gaps. Gaps are the
mask, or tokens of the text itself that ask for something. A gap is predicted where it stands, so an encoder and a
decoder read and answer the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from regard.axes import Ids
from regard.data.batching import IGNORED, Batch, Inputs, Padded
from regard.data.objectives import Example, Objective
from regard.errors import ConfigError, InputError

MASK = "<mask>"
"""How the token that hides is written in a text, whatever the tokenizer calls it."""


@dataclass(frozen=True)
class Cloze(Objective):
    """A text with its special tokens; of an example, `target` has what belongs in the gaps, in their order."""

    gaps: tuple[str, ...] = (MASK,)
    """The tokens that are gaps."""

    def encode(self, pairs: Sequence[Any]) -> list[Example]:
        """Texts and fills as ids."""
        rows = self.sources([pair.source for pair in pairs])
        examples = []
        for pair, row in zip(pairs, rows, strict=True):
            fills, count = [self._one(word) for word in pair.target.split()], sum(map(self.gap_ids.__contains__, row))
            if len(fills) != count or not fills:
                raise InputError(
                    f"{pair.source[:40]!r} has {count} gaps and {len(fills)} words to stand in them",
                    f"write {' or '.join(self.gaps[:3])} for every word of the target",
                )
            examples.append(Example(row, fills))
        return examples

    def sources(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of texts with the special tokens round them."""
        token = self.tokenizer
        name = token.token_text(token.mask_id)
        masked = MASK in self.gaps
        rows = [
            token.encode_naming(text.replace(MASK, name), [name]) if masked and MASK in text else token.encode(text)
            for text in texts
        ]
        return [token.apply_template(row)[0] for row in rows]

    @cached_property
    def gap_ids(self) -> frozenset[int]:
        """The ids of gaps."""
        return frozenset(self.tokenizer.mask_id if name == MASK else self._one(name) for name in self.gaps)

    def places(self, ids: Ids) -> Bool[Tensor, "batch tokens"]:
        """Where the gaps are."""
        return torch.isin(ids, torch.tensor(sorted(self.gap_ids), device=ids.device))

    def cost(self, example: Example) -> int:
        """The text with its special tokens."""
        return len(example.source)

    def batch(self, examples: Sequence[Example]) -> Batch:
        """Texts side by side; only their gaps have targets."""
        source = Padded.of([example.source for example in examples], fill=self.tokenizer.pad_id)
        targets = torch.full_like(source.ids, IGNORED)
        targets[self.places(source.ids)] = torch.tensor([fill for example in examples for fill in example.target])
        return Batch(Inputs(source), targets)

    def prompt(self, sources: Sequence[str]) -> Inputs:
        """Texts side by side."""
        return Inputs(Padded.of(self.sources(sources), fill=self.tokenizer.pad_id))

    def _one(self, word: str) -> int:
        ids = self.tokenizer.encode(word)
        if len(ids) != 1:
            raise ConfigError(
                f"{word!r} is {len(ids)} tokens and a gap holds one", "use tokenizer.kind=characters or a larger size"
            )
        return ids[0]
