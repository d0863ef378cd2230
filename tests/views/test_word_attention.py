"""Where a word looks: the captured weights of its row, merged into words."""

import numpy as np
import pytest
import torch

from regard.data.batching import Inputs, Padded
from regard.errors import InputError
from regard.inspection.capture import watch_module
from regard.models.config import TransformerConfig
from regard.models.transformer import Transformer
from regard.text.tokenizer import Tokenizer
from regard.views.word_attention import draw_word_attention, word_attention, word_attention_text

TEXT = "the vase slipped because it was wet, and then it broke"


@pytest.fixture(scope="module", params=["encoder", "decoder"])
def looked(request):
    tokenizer = Tokenizer.train([TEXT] * 3, 300)
    config = TransformerConfig(
        architecture=request.param, vocabulary=tokenizer.size, width=12, heads=3, layers=2, dropout=0.0
    )
    return request.param, config, tokenizer, tokenizer.encode(TEXT)


def watched(looked):
    stack, config, tokenizer, ids = looked
    torch.manual_seed(3)
    model = Transformer(config).eval()
    with watch_module(model) as seen, torch.no_grad():
        model(Inputs(Padded.of([ids])))
    return stack, seen, tokenizer, ids


def test_the_last_of_that_name_is_followed_and_its_weights_are_the_sums_over_pieces(looked):
    stack, seen, tokenizer, _ = watched(looked)
    found = word_attention(seen, tokenizer, "it")
    pieces = [tokenizer.token_text(token) for token in tokenizer.encode(TEXT)]
    starts = [at for at, piece in enumerate(pieces) if at == 0 or piece.startswith(" ")]
    assert [word.strip() for word in found.words] == TEXT.split(" ")
    assert found.itself == TEXT.split(" ").index("broke") - 1
    begin = starts[found.itself]
    end = starts[found.itself + 1]
    assert found.layers == (f"{stack}.0.self", f"{stack}.1.self")
    for number, layer in enumerate(found.layers):
        for head in range(3):
            rows = seen.weights(layer, head)[begin:end].double().mean(dim=0)
            sums = [float(rows[first:last].sum()) for first, last in zip(starts, [*starts[1:], None], strict=True)]
            assert found.weights[number, head].tolist() == pytest.approx(sums, abs=1e-6)
    assert np.allclose(found.weights.sum(axis=-1), 1, atol=1e-6)
    if stack == "decoder":
        assert not found.weights[:, :, found.itself + 1 :].any()


def test_the_head_that_looks_most_is_named(looked):
    _, seen, tokenizer, _ = watched(looked)
    found = word_attention(seen, tokenizer, "broke")
    other = found.of("vase")
    layer, head, most = found.most(other)
    assert most == found.weights[:, :, other].max()
    assert found.weights[found.layers.index(layer), head, other] == most
    said = word_attention_text(found)
    assert f"{most:.3f} in {layer}, head {head}" in said
    assert len(said.splitlines()) == 1 + len(found.words)


def test_the_figure_has_a_strip_for_each_layer_and_every_word_above_the_first(looked):
    _, seen, tokenizer, _ = watched(looked)
    found = word_attention(seen, tokenizer, "wet,")
    figure = draw_word_attention(found, [found.of("vase")])
    assert len(figure.axes) == len(found.layers)
    assert [tick.get_text().strip("␣") for tick in figure.axes[0].get_xticklabels()] == TEXT.split(" ")
    bold = [tick.get_text().strip("␣") for tick in figure.axes[0].get_xticklabels() if tick.get_fontweight() == "bold"]
    assert sorted(bold) == ["vase", "wet,"]
    for strip, weights in zip(figure.axes, found.weights, strict=True):
        assert np.array_equal(strip.images[0].get_array(), weights)


def test_a_word_that_is_not_there_is_answered_with_the_nearest(looked):
    _, seen, tokenizer, _ = watched(looked)
    with pytest.raises(InputError, match=r"'vases' is no word of the text.*vase"):
        word_attention(seen, tokenizer, "vases")
