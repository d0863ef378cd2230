"""A similarity of the user's own: as an object in attention, by its name in a recipe."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

import regard
from regard.attention.similarity import SIMILARITIES, _shared
from regard.errors import ConfigError
from regard.tasks.recipe import Recipe


class NegativeDistance(regard.Similarity):
    """`−‖q − k‖² · scale`, with a scale that is learnt."""

    def __init__(self, head_width: int) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(1 / head_width))

    def scores(self, query: Tensor, key: Tensor) -> Tensor:
        return -self.scale * (query[:, :, :, None] - key[:, :, None]).square().sum(-1)


@pytest.fixture
def registered() -> Iterator[str]:
    regard.register_similarity("negative_distance", NegativeDistance)
    yield "negative_distance"
    del SIMILARITIES["negative_distance"]
    _shared.cache_clear()


def closest(query: Tensor, key: Tensor, scale: float) -> Tensor:
    """The weights, one pair at a time."""
    return (-scale * torch.cdist(query.double(), key.double()).square()).softmax(dim=-1)


def test_an_object_of_ones_own_is_what_multi_head_attention_computes():
    attention = regard.MultiHeadAttention(6, 2, similarity=NegativeDistance(3))
    inputs = torch.randn(5, 7, 6)
    query, key, value = (
        part(inputs).view(5, 7, 2, 3).transpose(1, 2) for part in (attention.query, attention.key, attention.value)
    )
    mixed = closest(query, key, 1 / 3) @ value.double()
    expected = attention.output(mixed.float().transpose(1, 2).reshape(5, 7, 6))
    torch.testing.assert_close(attention(inputs), expected, atol=1e-5, rtol=1e-5)
    attention(inputs).sum().backward()
    assert attention.attend.similarity.scale.grad.abs() > 0


def test_a_registered_one_is_known_to_recipes_models_and_what_is_seen_of_them(registered):
    recipe = Recipe.model_validate({"data": "copy", "model": {"similarity": registered, "width": 8, "heads": 2}})
    config = recipe.model.built_for(11)
    model = config.build().eval()
    tokens = regard.Padded.of([[1, 2, 3], [4, 5, 6]])
    with regard.watch(model) as seen, torch.no_grad():
        model(regard.Inputs(tokens, tokens))
    assert isinstance(model.encoder.layers[0].self_attention.attend.similarity, NegativeDistance)
    call = seen.forwards[0].layers["encoder.0.self"][0]
    expected = closest(call.query, call.new_keys, 1 / 4)[1]
    torch.testing.assert_close(seen.weights("encoder.0.self", batch=1), expected.float(), atol=1e-5, rtol=1e-5)


def test_what_is_no_similarity_is_refused_and_names_are_suggested(registered, unchecked):
    with pytest.raises(ConfigError, match="did you mean 'negative_distance'"):
        regard.TransformerConfig(vocabulary=11, similarity="negative_distanse")
    with pytest.raises(ConfigError, match="'dot' is there already"):
        regard.register_similarity("dot", NegativeDistance)
    with pytest.raises(ConfigError, match="function of the head width, not by NegativeDistance"):
        regard.register_similarity("near", NegativeDistance(3))
    for given in (NegativeDistance, lambda query, key: query @ key):
        with pytest.raises(ConfigError, match=r"derive a class from regard\.Similarity"):
            regard.MultiHeadAttention(6, 2, similarity=given)
        with pytest.raises(ConfigError, match=r"derive a class from regard\.Similarity"):
            regard.attend(*torch.randn(3, 1, 2, 3, 4), similarity=given)
