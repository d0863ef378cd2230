"""How weights begin: the law of each draw, and that no table drowns another."""

import math

import pytest
import torch
from torch import nn

from regard.embedding.positions import Learnt
from regard.embedding.tokens import TokenEmbedding
from regard.models.config import TransformerConfig
from regard.models.transformer import Transformer

BERT = TransformerConfig(
    architecture="encoder",
    head="masked",
    layers=3,
    width=128,
    heads=4,
    vocabulary=997,
    positions="learned",
    max_positions=257,
    segments=23,
    embedding_norm=True,
    scale_embeddings=False,
    init="normal",
)


def test_a_normal_draw_gives_every_table_and_layer_its_deviation() -> None:
    torch.manual_seed(0)
    model = Transformer(BERT)
    tables = [part.weight for part in model.modules() if isinstance(part, nn.Embedding | TokenEmbedding | Learnt)]
    assert len(tables) == 3
    for table in tables:
        assert table.square().mean().sqrt().item() == pytest.approx(0.02, rel=0.05)
    for name, weight in model.encoder.named_parameters():
        if weight.dim() == 2:
            added = name.endswith(("output.weight", "down.weight"))
            assert weight.std().item() == pytest.approx(0.02 / (math.sqrt(6) if added else 1), rel=0.05), name


@pytest.mark.parametrize("width", [1, 7, 64])
def test_learnt_positions_begin_as_waves(width: int) -> None:
    weight = Learnt(53, width).weight
    assert weight.dtype == torch.get_default_dtype()
    for place in (0, 1, 29, 52):
        for column in range(width):
            angle = place / 10_000 ** (column // 2 * 2 / (width + width % 2))
            expected = 0.02 * math.sqrt(2) * (math.cos(angle) if column % 2 else math.sin(angle))
            assert weight[place, column].item() == pytest.approx(expected, abs=1e-6)
