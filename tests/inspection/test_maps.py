"""A map names every row and column by its token, and reading a text shows what generating it showed."""

from functools import cache

import numpy as np
import pytest
import torch

from regard.api import Model, watch
from regard.data.batching import Inputs, Padded
from regard.decoding.strategies import Beam
from regard.errors import InputError
from regard.inspection.capture import watch_module
from regard.inspection.maps import AttentionMap, attention_map, default_layer
from regard.models.config import TransformerConfig
from regard.models.transformer import Transformer
from regard.tasks.recipe import Recipe
from regard.tasks.task import task_of
from regard.text.tokenizer import Tokenizer

TEXT = "b a d c a"
READ = ("b", " a", " d", " c", " a")


@cache
def make(architecture: str) -> Model:
    """The first untrained model whose greedy answer is a few letters and then the end."""
    tokenizer = Tokenizer.train(["a b c d", "d c b a", "b d a c"] * 3, 270)
    recipe = Recipe.model_validate({"data": {"corpus": "copy"}, "decoding": {"max_new_tokens": 9}})
    letters = [tokenizer.encode(f"a {letter}")[1] for letter in "abcd"]
    for seed in range(200):
        torch.manual_seed(seed)
        config = TransformerConfig(
            architecture=architecture, vocabulary=tokenizer.size, width=12, heads=3, layers=2, tie_embeddings=False
        )
        module = Transformer(config).eval()
        with torch.no_grad():
            for path, parameter in module.named_parameters():
                parameter.mul_(4.0 if ".query." in path or ".key." in path else 1.0)
            silent = torch.ones(tokenizer.size, dtype=torch.bool)
            silent[[*letters, tokenizer.eos_id]] = False
            module.output.weight[silent] = 0.0
            module.output.weight[~silent] *= 5.0
        model = Model(module, tokenizer, task_of(recipe.task), recipe.decoding, recipe)
        [found] = model.hypotheses([TEXT])
        different = len(set(found.ids)) > 3 and found.ids[-1] == tokenizer.eos_id
        if different and tokenizer.encode(tokenizer.decode(found.ids)) == list(found.ids[:-1]):
            return model
    raise AssertionError("no such model")


def answer(model: Model) -> tuple[list[str], str]:
    """The pieces the model answers with, the end included, and their text."""
    [found] = model.hypotheses([TEXT])
    return model.tokenizer.pieces(found.ids), model.tokenizer.decode(found.ids)


def test_an_encoder_map_has_the_source_on_both_sides():
    model = make("encoder_decoder")
    map = attention_map(model.look(TEXT), "encoder.1.self", model.tokenizer)
    assert map.rows == map.columns == (*READ, "<eos>")
    assert map.title == "encoder.1.self"


def test_a_cross_map_has_what_was_chosen_against_what_was_read():
    model = make("encoder_decoder")
    pieces, _ = answer(model)
    map = attention_map(model.look(TEXT), "decoder.0.cross", model.tokenizer)
    assert map.rows == tuple(pieces)
    assert map.columns == (*READ, "<eos>")


def test_a_decoders_own_map_has_the_tokens_that_stood_there():
    model = make("encoder_decoder")
    pieces, _ = answer(model)
    map = attention_map(model.look(TEXT), "decoder.1.self", model.tokenizer)
    assert map.rows == map.columns == ("<bos>", *pieces[:-1])
    assert (np.triu(map.weights, 1) == 0).all()


def test_a_decoder_alone_has_prompt_and_text_in_one_map():
    model = make("decoder")
    pieces, _ = answer(model)
    map = attention_map(model.look(TEXT), "decoder.0.self", model.tokenizer)
    assert map.rows == map.columns == (*READ, "<bos>", *pieces[:-1])


@pytest.mark.parametrize("architecture", ["encoder_decoder", "decoder"])
def test_a_map_holds_what_seen_computes(architecture):
    model = make(architecture)
    with watch(model) as seen:
        model.run(TEXT, strategy=Beam(3))
    for layer in seen.layers:
        map = attention_map(seen, layer, model.tokenizer)
        np.testing.assert_array_equal(map.weights, seen.weights(layer).numpy())
        np.testing.assert_allclose(map.weights.sum(-1), 1.0, atol=1e-5)
        one = attention_map(seen, layer, model.tokenizer, head=2)
        np.testing.assert_array_equal(one.weights, map.weights[2:])
        assert one.title == f"{layer}, head 2"


@pytest.mark.parametrize("architecture", ["encoder_decoder", "decoder"])
def test_reading_the_answer_shows_what_generating_it_showed(architecture):
    model = make(architecture)
    pieces, text = answer(model)
    generated, read = model.look(TEXT), model.look(TEXT, target=text)
    assert generated.layers == read.layers
    for layer in generated.layers:
        one, other = (attention_map(seen, layer, model.tokenizer) for seen in (generated, read))
        assert (one.rows, one.columns) == (other.rows, other.columns)
        np.testing.assert_allclose(one.weights, other.weights, rtol=0, atol=1e-4)
    [hypothesis], [told] = generated.forwards[0].outcome, read.forwards[0].outcome
    assert told.ids == hypothesis.ids
    assert told.score == pytest.approx(hypothesis.score, abs=1e-4)
    assert pieces[-1] == "<eos>"


@pytest.mark.parametrize("architecture", ["encoder_decoder", "decoder"])
def test_reading_another_target_names_its_tokens(architecture):
    model = make(architecture)
    seen = model.look(TEXT, target="c b")
    if architecture == "encoder_decoder":
        assert attention_map(seen, "decoder.1.cross", model.tokenizer).rows == ("c", " b", "<eos>")
        assert attention_map(seen, "decoder.1.self", model.tokenizer).rows == ("<bos>", "c", " b")
    else:
        assert attention_map(seen, "decoder.1.self", model.tokenizer).rows == (*READ, "<bos>", "c", " b")


def test_a_plain_pass_names_the_tokens_it_read():
    model = make("encoder_decoder")
    source, target = model.tokenizer.encode(TEXT), model.tokenizer.encode("c b")
    with watch_module(model.module) as seen:
        model.module(Inputs(Padded.of([target]), Padded.of([source])))
    assert attention_map(seen, "encoder.0.self", model.tokenizer).rows == READ
    assert attention_map(seen, "decoder.0.self", model.tokenizer).columns == ("c", " b")
    cross = attention_map(seen, "decoder.0.cross", model.tokenizer)
    assert (cross.rows, cross.columns) == (("c", " b"), READ)


def test_the_layer_shown_when_none_is_named_is_the_clearest_cross_attention():
    model = make("encoder_decoder")
    seen = model.look(TEXT)

    def clearness(layer: str) -> float:
        mean = attention_map(seen, layer, model.tokenizer).weights.mean(axis=0)
        return sum(max(row) for row in mean.tolist()) / len(mean)

    cross = [layer for layer in seen.layers if layer.endswith("cross")]
    assert len(cross) == 2
    assert default_layer(seen) == max(cross, key=clearness)


def test_a_decoder_alone_shows_its_clearest_layer():
    seen = make("decoder").look(TEXT)
    assert default_layer(seen) in seen.layers == ["decoder.0.self", "decoder.1.self"]


def test_looking_leaves_the_model_as_it_was():
    model = make("encoder_decoder")
    model.look(TEXT, target="c b")
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.module.modules())


def test_a_run_without_its_tokens_is_refused():
    model = make("decoder")
    with watch_module(model.module) as seen, torch.no_grad():
        state = model.module.start(Inputs(Padded.of([[1]])))
        model.module.step(torch.tensor([1]), state)
    with pytest.raises(InputError, match="says nothing of its tokens"):
        attention_map(seen, "decoder.0.self", model.tokenizer)


def test_several_texts_do_not_fit_one_map():
    model = make("encoder_decoder")
    with watch(model) as seen:
        model.run([TEXT, "a b c d"])
    with pytest.raises(InputError, match="2 sequences were seen"):
        attention_map(seen, "encoder.0.self", model.tokenizer)


@pytest.mark.parametrize(
    ("weights", "problem"),
    [
        (np.ones((2, 3)), "not \\[heads, rows, columns\\]"),
        (np.ones((1, 0, 3)), "not \\[heads, rows, columns\\]"),
        (np.ones((1, 3, 3)), "3 rows and 2 labels"),
        (np.ones((1, 2, 4)), "4 columns and 3 labels"),
        (np.full((1, 2, 3), np.nan), "6 of 6 attention weights are not finite"),
    ],
)
def test_a_map_that_does_not_fit_its_labels_is_refused(weights, problem):
    with pytest.raises(InputError, match=problem):
        AttentionMap(weights, ("a", "b"), ("x", "y", "z"), "layer")
