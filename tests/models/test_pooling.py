"""Labels from the first token's vector, or from the mean of all tokens' vectors."""

import pytest
import torch

from regard.data.batching import Inputs, Padded
from regard.errors import ConfigError
from regard.inspection.laws import LAWS
from regard.interop.huggingface import fitting_family
from regard.interop.writing import with_segments
from regard.models.config import TransformerConfig, TransformerShape
from regard.models.transformer import Transformer

SIZES = {"vocabulary": 13, "width": 12, "heads": 2, "layers": 2, "feedforward_width": 10, "dropout": 0.1}
CONFIG = TransformerConfig(**SIZES, architecture="encoder", head="labels", labels=("a", "b", "c"), pooling="mean")
TEXTS = [[3, 5, 3, 5, 7], [11, 2], [4]]


def model(config: TransformerConfig = CONFIG) -> Transformer:
    torch.manual_seed(3)
    return Transformer(config).eval()


@pytest.mark.parametrize("side", ["left", "right"])
def test_the_mean_is_of_a_texts_own_tokens_wherever_its_padding_stands(side):
    mean, plain = model(), model(CONFIG.model_copy(update={"head": "none", "labels": (), "pooling": "first"}))
    plain.load_state_dict(mean.state_dict(), strict=False)
    found = mean(Inputs(Padded.of(TEXTS, side=side)))
    for text, logits in zip(TEXTS, found, strict=True):
        vectors = plain(Inputs(Padded.of([text])))[0]
        expected = mean.output(torch.tanh(mean.pooler.linear(sum(vectors) / len(text))))
        torch.testing.assert_close(logits, expected)


@pytest.mark.parametrize("law", [law for law in LAWS if law.applies(Transformer(CONFIG))], ids=lambda law: law.name)
def test_every_law_holds(law):
    assert law.measure(model()) <= law.tolerance


@pytest.mark.parametrize("head", ["tokens", "masked", "spans", "none"])
def test_another_head_reads_no_vector_of_a_text(head):
    shape = TransformerShape(architecture="encoder", head=head, pooling="mean")
    assert shape.idle()["pooling"] == "only head 'labels' reads one vector of a text: leave it out"


def test_hugging_face_has_no_such_model_and_is_told_which_key():
    like_bert = {"positions": "learned", "embedding_norm": True, "feedforward": "gelu", "scale_embeddings": False}
    config = CONFIG.model_copy(update=like_bert | {"max_positions": 23})
    with pytest.raises(ConfigError, match='bert: it has pooling = "first"'):
        fitting_family(with_segments(model(config)))
