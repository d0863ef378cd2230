"""Sizes that no model has are refused by their name before anything is built of them."""

import json

import pytest

from regard.errors import FileError
from regard.models import checkpoint
from regard.models.config import TransformerConfig

WHOLE = [
    name
    for name, field in TransformerConfig.model_fields.items()
    if field.annotation in (int, int | None) and name != "labels"
]


def test_every_size_is_among_those_asked_for():
    assert {"layers", "encoder_layers", "width", "heads", "vocabulary", "max_positions"} <= set(WHOLE)


@pytest.mark.parametrize("value", [10**9, 10**18, 10**400])
@pytest.mark.parametrize("name", WHOLE)
def test_a_billion_of_anything_is_refused_before_it_is_built(name, value, tmp_path, monkeypatch):
    monkeypatch.setattr(TransformerConfig, "build", lambda config: pytest.fail("it was built"))
    values = {"model_type": "regard-transformer", "vocabulary": 53, name: value}
    (tmp_path / "config.json").write_text(json.dumps(values))
    with pytest.raises(FileError, match=r"config\.json") as refused:
        checkpoint.load_model(tmp_path)
    assert f"{name} = " in refused.value.problem
    assert "\n" not in str(refused.value)
