"""A packed example is read as if it stood alone: the same logits, the same loss, nothing from its neighbours."""

import pytest
import torch

import regard
from regard.data.batching import IGNORED, Inputs, Padded
from regard.data.corpus import Pair
from regard.data.objectives import Continuation
from regard.data.packing import Packed
from regard.errors import ConfigError, InputError
from regard.models.config import PositionScheme, TransformerConfig
from regard.models.transformer import Transformer
from regard.tasks.recipe import read_recipe
from regard.tasks.text_to_text import batch_stream
from regard.text.tokenizer import Tokenizer
from regard.training.trainable import TokenPrediction
from rounding import assert_close

TOKENIZER = Tokenizer.train(["a"], 260)
OBJECTIVE = Continuation(TOKENIZER)
EXAMPLES = OBJECTIVE.encode(
    [Pair("x" * (index * index % 13), "abcdefg"[: index % 5 + 1]) for index in range(11)] + [Pair("", "z")] * 7
)
ROWS = Packed().cut(EXAMPLES, OBJECTIVE, 1009)[0]
BATCH = Packed().batch(ROWS, OBJECTIVE)
schemes = pytest.mark.parametrize("scheme", PositionScheme.__args__)


def decoder(scheme: str, **more: object) -> Transformer:
    torch.manual_seed(7)
    config = TransformerConfig(
        architecture="decoder",
        positions=scheme,
        vocabulary=260,
        width=20,
        heads=2,
        layers=2,
        max_positions=61,
        dropout=0.0,
    )
    return Transformer(config.model_copy(update=more)).double().eval()


def test_rows_hold_several_examples_and_some_padding():
    assert max(len(row) for row in ROWS) > 2
    assert BATCH.inputs.tokens.ragged


@schemes
@torch.no_grad()
def test_a_packed_example_gives_the_logits_it_gives_alone(scheme):
    model = decoder(scheme)
    logits = model(BATCH.inputs)
    numbers = BATCH.inputs.tokens.documents
    for place, row in enumerate(ROWS):
        for number, example in enumerate(row, start=1):
            alone = model(OBJECTIVE.batch([example]).inputs)[0]
            assert_close(logits[place][numbers[place] == number], alone, 1e-12)


@schemes
def test_the_loss_and_its_gradient_are_the_sums_of_those_alone(scheme):
    model = decoder(scheme)
    packed = TokenPrediction(model).loss(BATCH)
    packed.sum.backward()
    gradients = {name: value.grad.clone() for name, value in model.named_parameters() if value.grad is not None}
    model.zero_grad()
    alone = [TokenPrediction(model).loss(OBJECTIVE.batch([example])) for row in ROWS for example in row]
    total = torch.stack([loss.sum for loss in alone]).sum()
    total.backward()
    assert packed.count == sum(loss.count for loss in alone)
    torch.testing.assert_close(packed.sum, total)
    for name, value in model.named_parameters():
        if value.grad is not None:
            torch.testing.assert_close(gradients[name], value.grad, atol=1e-10, rtol=1e-8)


@schemes
@torch.no_grad()
def test_no_token_is_seen_by_another_document(scheme):
    """MaskedLMTransform one document's tokens: every other logit stays bit for bit what it was."""
    model = decoder(scheme)
    tokens = BATCH.inputs.tokens
    before = model(BATCH.inputs)
    for number in (1, 2):
        changed = torch.where(tokens.documents == number, tokens.ids * 7 % 251 + 5, tokens.ids)
        after = model(Inputs(Padded(changed, tokens.lengths, tokens.ragged, documents=tokens.documents)))
        others = tokens.documents != number
        assert torch.equal(after[others], before[others])
        assert not torch.equal(after[~others], before[~others])


def test_padding_is_never_predicted_or_seen():
    assert (BATCH.targets[BATCH.inputs.tokens.documents == 0] == IGNORED).all()


def test_learnt_positions_limit_the_document_and_not_the_row():
    longest = max(OBJECTIVE.cost(example) for example in EXAMPLES)
    rows = [[example for row in ROWS for example in row]]
    packed = Packed().batch(rows, OBJECTIVE)
    assert packed.inputs.tokens.ids.shape[1] > longest
    decoder("learned", max_positions=longest)(packed.inputs)
    with pytest.raises(InputError, match=f"reaches position {longest} and this model has learnt {longest - 1}"):
        decoder("learned", max_positions=longest - 1)(packed.inputs)


def test_a_packed_row_is_not_continued_or_encoded():
    with pytest.raises(InputError, match="packed rows hold several texts: only a decoder reads them, to be trained"):
        decoder("rotary").start(BATCH.inputs)
    with pytest.raises(InputError, match="packed rows hold several texts"):
        decoder("rotary", architecture="encoder")(BATCH.inputs)
    with pytest.raises(InputError, match="an encoder–decoder reads one source for each row"):
        decoder("rotary", architecture="encoder_decoder")(BATCH.inputs)


# From a recipe


def test_a_recipe_may_pack_for_a_decoder_alone():
    with pytest.raises(
        ConfigError, match=r"\[data\] batches = 'packed' .* encoder_decoder, .* does not read; use model"
    ):
        read_recipe("copy", ["data.batches=packed"])
    recipe = read_recipe("copy", ["data.batches=packed", "model.architecture=decoder"])
    assert recipe.data.batches == "packed"


def test_training_from_a_recipe_that_packs_reads_packed_rows(tmp_path, monkeypatch):
    monkeypatch.setattr("regard.data.stream.POOL", 64)
    seen = []
    read = Transformer.forward
    monkeypatch.setattr(Transformer, "forward", lambda self, inputs: (seen.append(inputs), read(self, inputs))[1])
    changes = ["data.batches=packed", "model.architecture=decoder", "model.width=12", "model.heads=2"]
    changes += ["training.steps=3", "training.batch_tokens=256", "tokenizer.sample=53", "data.options.held_out=7"]
    model = regard.train("copy", tmp_path / "run", changes=changes)
    assert any(inputs.tokens.documents is not None for inputs in seen)
    assert model.run("a b c d") == regard.load(tmp_path / "run").run("a b c d")


def test_a_recipe_chooses_its_batching():
    changes = ["model.architecture=decoder", "training.batch_tokens=97", "training.seed=5"]
    for batches, kind in (("packed", "Packed"), ("by_length", "ByLength")):
        recipe = read_recipe("copy", [*changes, f"data.batches={batches}"])
        stream = batch_stream(recipe, regard.data.corpus.corpus("copy", {}), OBJECTIVE)
        assert (stream.tokens, stream.seed, type(stream.batching).__name__) == (97, 5, kind)
