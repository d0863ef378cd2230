"""A mask taken apart: what a mechanism that is no kernel has to respect, and what it may refuse."""

from dataclasses import dataclass
from functools import reduce

import torch
from jaxtyping import Bool
from torch import Tensor

from regard.attention.mask import Causal, Document, Padding
from regard.attention.mask_algebra import And, Mask


@dataclass(frozen=True, eq=False)
class MaskParts:
    """A mask as `causal & padding & documents & rest`."""

    causal: bool = False
    padding: Padding | None = None
    documents: Document | None = None
    rest: Mask | None = None
    """What is none of these, as one mask."""

    def real(self, keys: int, tokens: int, device: torch.device) -> Bool[Tensor, "batch tokens"] | None:
        """Which of the last `tokens` of so many keys are text and not padding; None where all are."""
        if self.padding is None:
            return None
        columns = torch.arange(keys - tokens, keys, device=device)[None]
        lengths = self.padding.lengths.to(device)[:, None]
        return columns < lengths if self.padding.side == "right" else columns >= keys - lengths


def split(mask: Mask | None) -> MaskParts:
    """The parts of a mask that are joined by `&`; a second padding or document mask is part of the rest."""
    causal, padding, documents = False, None, None
    rest: list[Mask] = []
    for part in () if mask is None else _joined(mask):
        if isinstance(part, Causal):
            causal = True
        elif isinstance(part, Padding) and padding is None:
            padding = part
        elif isinstance(part, Document) and documents is None:
            documents = part
        else:
            rest.append(part)
    return MaskParts(causal, padding, documents, reduce(And, rest) if rest else None)


def _joined(mask: Mask) -> list[Mask]:
    return [*_joined(mask.left), *_joined(mask.right)] if isinstance(mask, And) else [mask]
