"""One position scheme with its three places of effect: on the vectors, on the heads, on the scores."""

import torch
from jaxtyping import Int
from torch import Tensor, nn

from regard.attention.bias import ALiBi, Bias, RelativeBuckets
from regard.attention.rotary import Rotary, Rotate
from regard.axes import Hidden
from regard.blocks.config import head_width
from regard.embedding.positions import Learnt, Sinusoidal, SinusoidalHalves
from regard.errors import InputError
from regard.models.config import TransformerConfig


class Positions(nn.Module):
    """What the config's scheme adds to the vectors, turns in the heads and adds to the scores of one stack."""

    def __init__(self, config: TransformerConfig, *, bidirectional: bool) -> None:
        super().__init__()
        scheme = config.positions
        self.max_positions = config.max_positions if scheme == "learned" else None
        self.absolute: nn.Module | None = None
        if scheme == "sinusoidal":
            self.absolute = Sinusoidal(config.width)
        elif scheme == "sinusoidal_halves":
            self.absolute = SinusoidalHalves(config.width)
        elif scheme == "learned":
            self.absolute = Learnt(config.max_positions, config.width)
        self.rotary = Rotary(head_width(config), config.rotary) if scheme == "rotary" else None
        self.bias: Bias | None = None
        if scheme == "alibi":
            self.bias = ALiBi(config.heads)
        elif scheme == "t5":
            self.bias = RelativeBuckets(
                config.heads,
                buckets=config.relative_buckets,
                max_distance=config.relative_distance,
                bidirectional=bidirectional,
            )

    def add(self, stream: Hidden, positions: Int[Tensor, "#batch tokens"]) -> Hidden:
        """The token vectors with absolute positions added, where the scheme is absolute."""
        if self.absolute is None:
            return stream
        added: Tensor = self.absolute(positions)
        return stream + added.to(stream.dtype)

    def rotate(self, positions: Int[Tensor, "#batch tokens"]) -> Rotate | None:
        """The hook that turns queries and keys, where the scheme is rotary."""
        return None if self.rotary is None else self.rotary(positions)

    def count(
        self, past: int, tokens: int, padding: Int[Tensor, "batch"] | None, device: torch.device
    ) -> Int[Tensor, "#batch tokens"]:
        """Where `tokens` new ones stand after `past` columns; `padding` of those columns, per row, are not text."""
        longest = past + tokens
        if padding is not None and self.max_positions is not None and longest > self.max_positions:
            longest -= int(padding.min())  # the row without padding may have left
        self.require_learnt(longest)
        columns = torch.arange(past, past + tokens, device=device)[None]
        return columns if padding is None else (columns - padding[:, None]).clamp(min=0)

    def restart(self, documents: Int[Tensor, "batch tokens"]) -> Int[Tensor, "batch tokens"]:
        """Where each token stands in its own document; a document is one piece of its row, padding is 0."""
        columns = torch.arange(documents.shape[1], device=documents.device)
        begins = torch.ones_like(documents, dtype=torch.bool)
        begins[:, 1:] = documents[:, 1:] != documents[:, :-1]
        places = columns - torch.where(begins, columns, 0).cummax(dim=1).values
        places = torch.where(documents == 0, 0, places)
        if self.max_positions is not None:
            self.require_learnt(int(places.max()) + 1)
        return places

    def require_learnt(self, length: int) -> None:
        """Refuse a text of so many tokens where not all have a position."""
        if self.max_positions is not None and length > self.max_positions:
            raise InputError(
                f"the text reaches position {length} and this model has learnt {self.max_positions}",
                "shorten it or ask for fewer new tokens; rotary positions and their like have no limit",
            )
