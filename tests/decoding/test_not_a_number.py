"""Weights that are no numbers end decoding with a sentence, whatever the strategy."""

import pytest
import torch

from regard.data.batching import Inputs, Padded
from regard.decoding.engine import generate, generate_ranked
from regard.decoding.hypothesis import Stop
from regard.decoding.speculative import PromptLookup
from regard.decoding.strategies import Beam, Contrastive, Greedy, Sample
from regard.errors import InputError
from regard.models.config import TransformerConfig
from regard.models.transformer import Transformer


@pytest.mark.parametrize(
    "strategy", [Greedy(), Sample(), Beam(3), Contrastive()], ids=lambda strategy: type(strategy).__name__
)
@pytest.mark.parametrize(
    "where", ["decoder.layers.0.self_attention.query.bias", "decoder.layers.0.feedforward.up.bias"]
)
def test_logits_that_are_no_numbers_are_refused(where, strategy):
    model = Transformer(TransformerConfig(vocabulary=11, width=8, heads=2, layers=1)).eval()
    with torch.no_grad():
        model.get_parameter(where)[0] = torch.nan
    inputs = Inputs(Padded.of([[1], [1]]), Padded.of([[3, 4, 5], [6, 7]]))
    with pytest.raises(InputError, match="NaN"):
        generate(model, inputs, strategy, Stop(eos_id=2, max_new_tokens=5))
    if isinstance(strategy, Greedy | Sample):
        with pytest.raises(InputError, match="NaN"):
            generate_ranked(model, inputs, strategy, Stop(eos_id=2, max_new_tokens=5), draft=PromptLookup())
