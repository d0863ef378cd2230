"""How weights begin: the law of each draw, and that no table drowns another."""

import math

import pytest
import torch
from torch import nn

from regard.attention.mechanism import MECHANISMS
from regard.attention.projections import Projections
from regard.embedding.positions import Learnt
from regard.embedding.tokens import TokenEmbedding
from regard.errors import ConfigError
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


@pytest.mark.parametrize("name", sorted(MECHANISMS.keys() - {"reformer"}))
def test_mimetic_heads_begin_by_looking_at_what_is_like_a_token(name: str) -> None:
    shape = {"architecture": "encoder", "layers": 1, "width": 96, "heads": 4, "vocabulary": 53, "attention": name}
    if not MECHANISMS[name].abilities.bidirectional:
        shape["architecture"] = "decoder"
    torch.manual_seed(0)
    model = Transformer(TransformerConfig.model_validate(shape | {"init": "mimetic"}))
    (found,) = [part for part in model.modules() if isinstance(part, Projections)]
    queries = found.query.weight.unflatten(0, (found.heads, -1))
    keys = found.key.weight.unflatten(0, (found.key_value_heads, -1)).repeat_interleave(
        found.heads // found.key_value_heads, dim=0
    )
    for product in queries.mT @ keys:  # head_width · 2 / (width + width) · 0.7 on the diagonal, 0 beside it
        own = product.diagonal().mean().item()
        assert own == pytest.approx(0.7 * found.head_width / 96, rel=0.2)
        assert abs((product.sum() - product.trace()).item() / (96 * 95)) < 0.05 * own


def test_shared_keys_are_like_the_first_queries_that_read_them() -> None:
    torch.manual_seed(0)
    shape = {"architecture": "decoder", "layers": 1, "width": 96, "heads": 6, "key_value_heads": 2, "vocabulary": 53}
    model = Transformer(TransformerConfig.model_validate(shape | {"init": "mimetic"}))
    (found,) = [part for part in model.modules() if isinstance(part, Projections)]
    queries, keys = (part.weight.unflatten(0, (-1, 16)).flatten(1) for part in (found.query, found.key))
    like = torch.corrcoef(torch.cat([queries, keys]))[:6, 6:]
    assert like[0, 0].item() == pytest.approx(0.7, abs=0.05)
    assert like[3, 1].item() == pytest.approx(0.7, abs=0.05)
    others = [
        like[row, column].item() for row in range(6) for column in range(2) if (row, column) not in ((0, 0), (3, 1))
    ]
    assert max(map(abs, others)) < 0.1


def test_a_network_whose_keys_are_its_queries_refuses_to_liken_them() -> None:
    shape = {"architecture": "encoder", "layers": 1, "width": 12, "heads": 2, "vocabulary": 53}
    with pytest.raises(ConfigError, match="no layer has keys of its own"):
        Transformer(TransformerConfig.model_validate(shape | {"attention": "reformer", "init": "mimetic"}))
