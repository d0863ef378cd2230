"""Recurrent sequence-to-sequence networks as frozen, validated values: what recipes and `config.json` hold of them."""

from typing import Literal

from pydantic import Field, field_validator

from regard.attention.similarity import check_similarity
from regard.blocks.config import MOST
from regard.blocks.recurrent import CellKind
from regard.models.config import MOST_LAYERS
from regard.models.network import NetworkConfig, NetworkShape, Reads


class RecurrentShape(NetworkShape):
    """What the three have in common: an encoder and a decoder of the same cells."""

    cell: CellKind = Field("gru", description="the recurrent cell")
    layers: int = Field(1, ge=1, le=MOST_LAYERS, description="layers of the encoder and of the decoder")
    bidirectional: bool = Field(False, description="the encoder reads from both ends")
    width: int = Field(256, ge=1, le=MOST, description="size of a hidden vector; in both directions, of each")
    embedding_width: int | None = Field(
        None, ge=1, le=MOST, description="size of a token's vector, and of what the output reads; the width if absent"
    )
    dropout: float = Field(
        0.1, ge=0.0, lt=1.0, description="on embeddings, between layers and on what the output reads"
    )
    tie_embeddings: bool = Field(True, description="the output layer shares the weights of the embedding")

    @property
    def reads(self) -> tuple[Reads, ...]:
        return ("tokens", "source")

    @property
    def token_width(self) -> int:
        """Size of a token's vector."""
        return self.embedding_width or self.width

    @property
    def memory_width(self) -> int:
        """Size of what the encoder gives for a token."""
        return self.width * (1 + self.bidirectional)

    @property
    def words(self) -> str:
        layers = "1 layer" if self.layers == 1 else f"{self.layers} layers"
        encoder = ", bidirectional encoder" if self.bidirectional else ""
        return f"{self.name}, {layers} of {self.cell}{encoder}, width {self.width}"


class Seq2SeqShape(RecurrentShape):
    """A fixed context: one vector of the whole source, which every step reads (Cho et al. 2014)."""

    name: Literal["seq2seq"] = Field("seq2seq", description="the kind of network")


class AttentionalShape(RecurrentShape):
    """A context of its own for every step."""

    bidirectional: bool = Field(True, description="the encoder reads from both ends")
    similarity: str = Field("additive", description="how the decoder's states and the encoder's are compared")

    @field_validator("similarity")
    @classmethod
    def _known_similarity(cls, value: str) -> str:
        check_similarity(value)
        return value

    @property
    def words(self) -> str:
        return f"{super().words}, {self.similarity} attention"


class BahdanauShape(AttentionalShape):
    """Attention before each step, by the state so far (Bahdanau et al. 2014)."""

    name: Literal["bahdanau"] = Field("bahdanau", description="the kind of network")


class LuongShape(AttentionalShape):
    """Attention after each step, by the state reached (Luong et al. 2015), without input feeding."""

    name: Literal["luong"] = Field("luong", description="the kind of network")
    similarity: str = Field("general", description="how the decoder's states and the encoder's are compared")


class Seq2SeqConfig(Seq2SeqShape, NetworkConfig):
    """A shape with the vocabulary it is built for."""


class BahdanauConfig(BahdanauShape, NetworkConfig):
    """A shape with the vocabulary it is built for."""


class LuongConfig(LuongShape, NetworkConfig):
    """A shape with the vocabulary it is built for."""


RecurrentConfig = Seq2SeqConfig | BahdanauConfig | LuongConfig
AttentionalConfig = BahdanauConfig | LuongConfig
