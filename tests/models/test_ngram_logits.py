"""The logits of n-grams beside an encoder, against counting them one by one."""

import json
from itertools import pairwise

import pytest
import torch

from regard.data.batching import Inputs, Padded
from regard.errors import ConfigError
from regard.inspection.laws import LAWS
from regard.interop.huggingface import fitting_family
from regard.interop.writing import with_segments
from regard.models.checkpoint import load_model, save_model
from regard.models.config import TransformerConfig, TransformerShape
from regard.models.heads import NgramLogits
from regard.models.transformer import Transformer

CONFIG = TransformerConfig(
    vocabulary=13,
    width=12,
    heads=2,
    layers=1,
    feedforward_width=10,
    architecture="encoder",
    positions="learned",
    embedding_norm=True,
    feedforward="gelu",
    scale_embeddings=False,
    max_positions=23,
    head="labels",
    labels=("a", "b", "c"),
    ngram_buckets=37,
)
TEXTS = [[3, 5, 3, 5, 7], [11, 2], [4]]


def model() -> Transformer:
    torch.manual_seed(3)
    built = Transformer(CONFIG).eval()
    torch.nn.init.normal_(built.ngrams.table.weight)
    return built


def one_by_one(part: NgramLogits, text: list[int]) -> torch.Tensor:
    """Each bucket that the text meets, once."""
    alone = {part.LAST * token % part.PRIME % part.table.num_embeddings for token in text}
    pairs = {
        (part.LAST * token + part.FIRST * (before + 1)) % part.PRIME % part.table.num_embeddings
        for before, token in pairwise(text)
    }
    return part.RATE * part.table.weight[sorted(alone | pairs)].sum(dim=0)


@pytest.mark.parametrize("side", ["left", "right"])
def test_they_are_the_sum_over_the_buckets_a_text_meets_whatever_its_padding(side):
    part = model().ngrams
    expected = torch.stack([one_by_one(part, text) for text in TEXTS])
    torch.testing.assert_close(part(Padded.of(TEXTS, side=side, fill=5)), expected)


def test_a_model_adds_them_to_the_encoders():
    whole, inputs = model(), Inputs(Padded.of(TEXTS))
    alone = Transformer(CONFIG.model_copy(update={"ngram_buckets": 0})).eval()
    alone.load_state_dict({name: one for name, one in whole.state_dict().items() if not name.startswith("ngrams.")})
    torch.testing.assert_close(whole(inputs), alone(inputs) + whole.ngrams(inputs.tokens))


def test_new_ones_add_nothing():
    torch.manual_seed(3)
    assert not Transformer(CONFIG).ngrams(Padded.of(TEXTS)).any()


@pytest.mark.parametrize("law", [law for law in LAWS if law.applies(Transformer(CONFIG))], ids=lambda law: law.name)
def test_every_law_holds(law):
    assert law.measure(model()) <= law.tolerance


def test_they_are_saved_with_the_model(tmp_path):
    whole = model()
    save_model(tmp_path, whole)
    torch.testing.assert_close(load_model(tmp_path)(Inputs(Padded.of(TEXTS))), whole(Inputs(Padded.of(TEXTS))))
    assert json.loads((tmp_path / "config.json").read_text())["ngram_buckets"] == 37


@pytest.mark.parametrize("head", ["tokens", "masked", "spans", "none"])
def test_another_head_refuses_them(head):
    with pytest.raises(ConfigError, match=r"ngram_buckets = 7 lead to labels and the head is"):
        TransformerShape(architecture="encoder", head=head, ngram_buckets=7)


def test_hugging_face_has_no_such_model_and_is_told_which_key():
    with pytest.raises(ConfigError, match=r"bert: it has ngram_buckets = 0\b"):
        fitting_family(with_segments(model()))
