"""A Transformer without the causal mask, to see what the mask is there for: in training every token sees the next one.

It is known by name only inside `unmasked_known()`, so that no recipe asks for one by mistake, and a folder that holds
one is refused by everything else. It decodes as it was trained: all that is written so far is read anew at every
step, each token seeing every other. So `extend` by n tokens is not n steps, and nothing can be kept between them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor

from regard.attention.mask import Padding
from regard.attention.mechanism import LayerContext
from regard.axes import Hidden, Lengths, RowIds
from regard.data.batching import Inputs, Padded
from regard.models.config import TransformerConfig, TransformerShape
from regard.models.network import NETWORKS, register_network
from regard.models.transformer import Transformer

NAME = "transformer_without_causal_mask"


class UnmaskedShape(TransformerShape):
    """A Transformer's shape under another name."""

    name: Literal["transformer_without_causal_mask"] = Field(  # type: ignore[assignment]
        "transformer_without_causal_mask", description="the kind of network"
    )


class UnmaskedConfig(UnmaskedShape, TransformerConfig):
    """The same with a vocabulary."""


@dataclass(frozen=True, eq=False)
class UncachedState:
    """What was read and written so far, as ids: the whole state of a network that keeps nothing."""

    ids: Int[Tensor, "rows tokens"]
    lengths: Lengths
    source: Padded | None

    def select(self, rows: RowIds) -> "UncachedState":
        """These rows, in this order."""
        source = self.source
        if source is not None:
            source = Padded(source.ids[rows], source.lengths[rows], source.ragged, source.side)
        return UncachedState(self.ids[rows], self.lengths[rows], source)

    def copy(self) -> "UncachedState":
        """The same: it is a value."""
        return self

    def trim(self, lengths: Lengths) -> "UncachedState":
        """The first so many tokens of every row."""
        most = int(lengths.max())
        at = torch.arange(most, device=self.ids.device) + (self.ids.shape[1] - self.lengths - most + lengths)[:, None]
        return UncachedState(
            self.ids.gather(1, at.clamp(min=0, max=max(self.ids.shape[1] - 1, 0))), lengths, self.source
        )


class UnmaskedTransformer(Transformer):
    """The Transformer, its decoder seeing all of a text at once."""

    def hidden(self, inputs: Inputs) -> Hidden:
        """The last layer's vectors; padding alone is hidden."""
        tokens, state, positions = inputs.tokens, self.begin(inputs), self.decoder_positions
        places = positions.count(0, tokens.ids.shape[1], state.padding, tokens.ids.device)
        mask = Padding(tokens.lengths, tokens.side) if tokens.ragged else None
        context = LayerContext(mask, positions.bias, positions.rotate(places), state.memory_mask, places=places)
        hidden, _ = self.decoder(self.enter(tokens.ids, positions, places), state.cache, context)
        out: Hidden = hidden
        return out

    def in_place_unsupported(self) -> str | None:
        """Everything written is read anew at every step."""
        return "every token sees every other"

    def start(self, inputs: Inputs) -> UncachedState:  # type: ignore[override]
        """Keep the prompt but for its last token."""
        tokens = inputs.tokens
        if tokens.ragged and tokens.side == "right":
            tokens = Padded.of(tokens.rows(), side="left").to(tokens.ids.device)
        return UncachedState(tokens.ids[:, :-1], tokens.lengths - 1, inputs.source)

    def extend(  # type: ignore[override]
        self, ids: Int[Tensor, "rows tokens"], state: UncachedState
    ) -> tuple[Float[Tensor, "rows tokens vocab"], UncachedState]:
        """Everything written so far read anew, with these tokens at its end."""
        after = UncachedState(torch.cat([state.ids, ids], dim=1), state.lengths + ids.shape[1], state.source)
        ragged = bool((after.lengths < after.ids.shape[1]).any())
        tokens = Padded(after.ids, after.lengths, ragged, "left")
        return self.logits(self.hidden(Inputs(tokens, after.source))[:, -ids.shape[1] :]), after


@contextmanager
def unmasked_known() -> Iterator[None]:
    """While this lasts, recipes and folders may name the network without the mask."""
    if NAME in NETWORKS:
        yield
        return
    register_network(UnmaskedShape, UnmaskedTransformer, UnmaskedConfig)
    try:
        yield
    finally:
        del NETWORKS[NAME]
