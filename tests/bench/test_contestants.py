"""Contestants do the same work: models of one size, the same tokens, and steps that change the weights."""

import pytest
import torch

from regard.bench import decoders, decoding, training, training_on_gpu, translation
from regard.bench.apart import PRECISIONS

SMALL = {
    "encoder_decoder": training.Case("encoder_decoder", 2, tokens=5, dropout=0.1, width=24, heads=4, vocabulary=97),
    "decoder": training.Case("decoder", 2, tokens=7, dropout=0.0, width=24, heads=4, vocabulary=97),
}
PEERS = {"encoder_decoder": training.torch_transformer, "decoder": training.x_transformers}
TINY = {
    architecture: decoding.Size(architecture, layers=1, width=24, heads=3, vocabulary=53)
    for architecture in ("encoder_decoder", "decoder")
} | {"llama": decoding.Size("decoder", layers=1, width=24, heads=6, vocabulary=53, key_value_heads=2)}


def peer(architecture: str):
    if architecture == "decoder":
        pytest.importorskip("x_transformers")
    return PEERS[architecture]


@pytest.mark.parametrize("case", [training.TRANSLATOR, training.LANGUAGE_MODEL], ids=lambda case: case.architecture)
def test_both_sides_train_models_of_one_size_on_the_same_number_of_tokens(case):
    own, expected = training.regard(case, "float32"), peer(case.architecture)(case, "float32")
    assert own.tokens == expected.tokens == case.batch * case.tokens
    assert own.parameters == pytest.approx(expected.parameters, rel=0.01)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("architecture", SMALL)
def test_a_step_of_either_side_learns_the_batch(architecture, precision, monkeypatch):
    losses: list[float] = []
    original = torch.Tensor.backward

    def recorded(loss: torch.Tensor, *args: object, **options: object) -> None:
        losses.append(float(loss.detach()))
        original(loss, *args, **options)

    monkeypatch.setattr(torch.Tensor, "backward", recorded)
    for build in (training.regard, peer(architecture)):
        losses.clear()
        task = build(SMALL[architecture], precision)
        for _ in range(30):
            task.work()
        assert len(losses) == 30
        assert sum(losses[-5:]) < sum(losses[:5])


def test_gpt2_is_gpt2():
    pytest.importorskip("transformers")
    case = training_on_gpu.Case(1, training_on_gpu.Size(device="cpu"))
    extra = (case.size.vocabulary - 50257) * case.size.width
    assert training_on_gpu.regard(case, "bfloat16").parameters == 124_439_808 + extra
    assert training_on_gpu.transformers(case, "bfloat16").parameters == 124_439_808 + extra


def test_both_sides_take_the_same_steps_of_the_same_model(monkeypatch):
    pytest.importorskip("transformers")
    monkeypatch.setattr(training_on_gpu, "STEPS", 30)
    size = training_on_gpu.Size(tokens=7, layers=2, width=24, heads=3, vocabulary=97, device="cpu")
    case = training_on_gpu.Case(3, size)
    own, expected = training_on_gpu.regard(case, "float32"), training_on_gpu.transformers(case, "float32")
    assert own.tokens == expected.tokens == 30 * 3 * 7
    assert own.parameters == expected.parameters
    for losses in (own.work(), expected.work()):
        assert sum(losses[-5:]) < sum(losses[:5])


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("architecture", TINY)
def test_both_sides_decode_the_same_number_of_tokens(architecture, precision, beams, attention):
    pytest.importorskip("transformers")
    case = decoding.Case(2, beams, TINY[architecture], source_tokens=5, new_tokens=7)
    own, expected = decoding.regard(case, precision), decoding.transformers(attention, case, precision)
    assert own.work() == expected.work() == own.tokens == expected.tokens == 14


def test_every_side_translates_every_sentence():
    pytest.importorskip("transformers")
    case = translation.Corpus(9, 3, 5, decoders.Size(layers=1, width=24, heads=3, vocabulary=53))
    tasks = [translation.regard(case, "float32"), translation.regard(case, "int8")]
    tasks.append(translation.transformers(case, "float32"))
    assert [task.work() for task in tasks] == [task.tokens for task in tasks] == [45] * 3


def test_ctranslate2_translates_as_much_with_as_many_parameters():
    pytest.importorskip("ctranslate2")
    pytest.importorskip("transformers")
    case = translation.Corpus(4, 2, 5, decoders.Size(layers=1, width=24, heads=3, vocabulary=53))
    task = translation.ctranslate2(case, "int8")
    assert task.work() == task.tokens == 20
    assert task.parameters == translation.transformers(case, "float32").parameters


@pytest.mark.parametrize("size", [decoding.GPT2, decoding.LLAMA, decoding.MARIAN], ids=str)
def test_the_decoders_are_of_one_size(size):
    pytest.importorskip("transformers")
    case = decoding.Case(1, size=size)
    own, expected = decoding.regard(case, "float32"), decoding.transformers("sdpa", case, "float32")
    assert own.parameters == pytest.approx(expected.parameters, rel=0.01)
