"""A word's parts add up to what attention did, the embedding knows no context, and a causal word no future."""

from functools import cache

import numpy as np
import pytest
import torch

from regard.data.batching import Inputs, Padded
from regard.errors import InputError
from regard.inspection.capture import Recording, record_into
from regard.inspection.contextual import contributions, find_word, word_in_sentences
from regard.models.config import TransformerConfig
from regard.models.transformer import Transformer
from regard.text.tokenizer import Tokenizer
from rounding import assert_close

SENTENCES = ("We sat by the river bank today.", "He took it from my bank account.", "I saw a bank of monitors.")
ARCHITECTURES = ("encoder", "decoder", "encoder_decoder")


@cache
def tokenizer() -> Tokenizer:
    return Tokenizer.train([*SENTENCES, "by the river", "the bank account", "a bank"] * 3, 290)


def build(architecture: str, **changes: object) -> Transformer:
    options = {"width": 24, "heads": 4, "key_value_heads": 2, "layers": 3, "feedforward_width": 17, "dropout": 0.3}
    torch.manual_seed(5)
    config = TransformerConfig(architecture=architecture, vocabulary=tokenizer().size, **(options | changes))
    module = Transformer(config)
    with torch.no_grad():
        for path, parameter in module.named_parameters():
            if path.endswith("bias"):
                parameter.normal_()
            elif ".query." in path or ".key." in path:
                parameter.mul_(4)
    return module


def read(module: Transformer, ids: list[int]) -> tuple[Recording, dict[str, torch.Tensor]]:
    """One pass, with what every module of interest gave."""
    out: dict[str, torch.Tensor] = {}
    part = module.decoder if module.config.architecture == "decoder" else module.encoder
    hooks = [
        layer.self_attention.output.register_forward_hook(
            lambda _, args, made, at=at: out.__setitem__(f"attention {at}", made)
        )
        for at, layer in enumerate(part.layers)
    ]
    hooks += [
        layer.register_forward_hook(
            lambda _, args, made, at=at: out.__setitem__(f"layer {at}", made[0] if isinstance(made, tuple) else made)
        )
        for at, layer in enumerate(part.layers)
    ]
    row = Padded.of([ids])
    with torch.no_grad(), record_into(Recording(values=True), module) as seen:
        module(Inputs(row)) if module.config.architecture == "decoder" else module.encode(row)
    for hook in hooks:
        hook.remove()
    return seen, out


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("placement", ["pre", "post"])
def test_what_the_words_send_adds_up_to_what_attention_gives(architecture, placement):
    module = build(architecture, norm_placement=placement).eval()
    seen, out = read(module, tokenizer().encode(SENTENCES[0]))
    stack = module.decoder if architecture == "decoder" else module.encoder
    name = "decoder" if architecture == "decoder" else "encoder"
    for at, layer in enumerate(stack.layers):
        for rows in ([3], [2, 5, 4]):
            sent = contributions(seen, f"{name}.{at}.self", layer.self_attention, rows)
            expected = out[f"attention {at}"][0, rows].mean(dim=0)
            assert_close(sent.sum(dim=0) + layer.self_attention.output.bias, expected)


def test_one_head_and_one_word_send_what_the_formula_says():
    module = build("encoder").eval()
    seen, _ = read(module, tokenizer().encode(SENTENCES[1]))
    attention = module.encoder.layers[1].self_attention
    sent = contributions(seen, "encoder.1.self", attention, [4])
    values = seen.trace("encoder.1.self").joined("new_values")[0]
    by_hand = torch.zeros(24)
    for head in range(4):
        weight = seen.weights("encoder.1.self", head, rows=[4])[0, 2]
        by_hand += weight * attention.output.weight[:, 6 * head : 6 * head + 6] @ values[head // 2, 2]
    assert_close(sent[2], by_hand, 1e-6)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_words_bias_and_the_rest_are_the_whole_change(architecture):
    module = build(architecture)
    for one in word_in_sentences(module, tokenizer(), SENTENCES, "bank").sentences:
        np.testing.assert_allclose(one.moved.sum(axis=1) + one.bias + one.rest, one.change, rtol=1e-12)
        assert (one.change > 0).all()


@pytest.mark.parametrize("architecture", ["encoder", "decoder"])
def test_without_feed_forward_the_words_and_the_bias_make_the_whole_change(architecture):
    module = build(architecture, norm_placement="pre")
    with torch.no_grad():
        for path, parameter in module.named_parameters():
            if "feedforward.down" in path:
                parameter.zero_()
    for one in word_in_sentences(module, tokenizer(), SENTENCES, "bank").sentences:
        np.testing.assert_allclose(one.rest / one.change, 0, atol=1e-5)
        assert np.abs(one.moved).max() > 0.1


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("positions", ["sinusoidal", "rotary"])
def test_one_vector_at_the_embedding_and_several_after_the_layers(architecture, positions):
    found = word_in_sentences(build(architecture, positions=positions), tokenizer(), SENTENCES, "bank")
    assert len({one.pieces for one in found.sentences}) == 1
    assert (found.cosines[0] == 1).all()
    for layer in range(1, 4):
        for one, other in found.pairs:
            assert found.cosines[layer, one, other] < 1 - 1e-5
    prefix = "decoder" if architecture == "decoder" else "encoder"
    assert found.layers == ("embedding", *(f"{prefix}.{at}" for at in range(3)))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_vectors_are_means_over_the_pieces_of_what_the_layers_give(architecture):
    module = build(architecture)
    found = word_in_sentences(module, tokenizer(), SENTENCES, "bank")
    token = tokenizer()
    before = [token.bos_id] if architecture == "encoder" else []
    after = [] if architecture == "decoder" else [token.eos_id]
    for sentence, one in zip(SENTENCES, found.sentences, strict=True):
        ids = [*before, *token.encode(sentence), *after]
        pieces = [token.token_text(at) for at in ids]
        text = "".join(one.pieces)
        place = next(at for at in range(len(ids)) if "".join(pieces[at : at + len(one.pieces)]) == text)
        rows = slice(place, place + len(one.pieces))
        _, out = read(module.eval(), ids)
        torch.testing.assert_close(
            torch.tensor(one.vectors[0]),
            module.embedding(torch.tensor([ids]))[0, rows].detach().mean(dim=0).double(),
            atol=1e-6,
            rtol=1e-6,
        )
        for at in range(3):
            expected = out[f"layer {at}"][0, rows].mean(dim=0).double()
            assert_close(torch.tensor(one.vectors[at + 1]), expected)


def test_cosines_are_cosines():
    found = word_in_sentences(build("encoder"), tokenizer(), SENTENCES, "bank")
    for layer in range(4):
        vectors = torch.stack([torch.tensor(one.vectors[layer]) for one in found.sentences])
        expected = torch.nn.functional.cosine_similarity(vectors[:, None], vectors[None], dim=-1)
        np.testing.assert_allclose(found.cosines[layer], expected.numpy(), atol=1e-12)


def test_in_a_causal_model_later_words_send_nothing_and_change_nothing():
    module = build("decoder")
    found = word_in_sentences(module, tokenizer(), SENTENCES, "bank")
    assert found.causal
    for one in found.sentences:
        assert (one.moved[:, one.itself + 1 :] == 0).all()
        assert (one.moved[:, : one.itself] != 0).all()
    other = [sentence.replace("account", "manager") for sentence in SENTENCES]
    again = word_in_sentences(module, tokenizer(), other, "bank")
    np.testing.assert_allclose(again.sentences[1].vectors, found.sentences[1].vectors, atol=1e-5)
    both_ways = build("encoder")
    found, again = (word_in_sentences(both_ways, tokenizer(), texts, "bank") for texts in (SENTENCES, other))
    assert not found.causal
    assert np.abs(again.sentences[1].vectors - found.sentences[1].vectors).max() > 0.01
    assert (found.sentences[0].moved[:, found.sentences[0].itself + 1 :] != 0).all()


def test_the_order_of_the_sentences_changes_nothing_but_the_order():
    module = build("encoder")
    order = [2, 0, 1]
    one = word_in_sentences(module, tokenizer(), SENTENCES, "bank")
    other = word_in_sentences(module, tokenizer(), [SENTENCES[at] for at in order], "bank")
    np.testing.assert_array_equal(other.cosines, one.cosines[:, order][:, :, order])
    np.testing.assert_array_equal(other.sentences[0].moved, one.sentences[2].moved)


def test_words_are_named_once_each_and_marks_by_their_names():
    found = word_in_sentences(build("encoder"), tokenizer(), ("It's a bank, no?", "the bank"), "bank").sentences
    assert found[0].words == ("<bos>", "It", "'", "s", "a", "bank", ",", "no", "?", "<eos>")
    assert found[0].itself == 5
    assert found[1].words == ("<bos>", "the", "bank", "<eos>")


def test_several_words_are_followed_as_one():
    found = word_in_sentences(build("encoder"), tokenizer(), ("the river bank", "a river bank I saw"), "river bank")
    assert found.sentences[0].words == ("<bos>", "the", "river bank", "<eos>")
    assert found.sentences[1].words == ("<bos>", "a", "river bank", "I", "saw", "<eos>")


def test_movers_are_the_other_words_largest_part_first():
    [one, _] = word_in_sentences(build("encoder"), tokenizer(), SENTENCES[:2], "bank").sentences
    for layer in (None, 0, 2):
        movers = one.movers(layer)
        assert len(movers) == len(one.words) - 1
        assert "bank" not in dict(movers)
        assert [share for _, share in movers] == sorted((share for _, share in movers), reverse=True)
    name, share = one.movers(1)[0]
    at = one.words.index(name)
    assert share == pytest.approx(one.moved[1, at] / one.change[1])


def test_of_several_occurrences_the_last_is_followed():
    module = build("decoder")
    found = word_in_sentences(module, tokenizer(), ("the bank by the bank I saw", "a bank"), "bank").sentences[0]
    assert found.occurrences == 2
    assert found.words[: found.itself] == ("the", "bank", "by", "the")


@pytest.mark.parametrize(
    ("sentence", "word", "spans"),
    [
        ("a bank, the Bank", "bank", [(2, 6), (12, 16)]),
        ("banks and embankments, bank-like", "bank", [(23, 27)]),
        ("Bank", "bank", [(0, 4)]),
        ("我去银行取钱", "银行", [(2, 4)]),
        ("naïve naive", "naïve", [(0, 5)]),
        ("İ bank", "bank", [(2, 6)]),
        ("$5 and 5.", "5", [(1, 2), (7, 8)]),
    ],
)
def test_whole_words_are_found_in_any_case(sentence, word, spans):
    assert find_word(sentence, word, 1) == spans


def test_what_cannot_be_followed_is_said_in_one_sentence():
    module = build("encoder")
    with pytest.raises(InputError, match=r"sentence 2, 'the banks', has no word 'bank'; did you mean 'banks'"):
        word_in_sentences(module, tokenizer(), ("the bank", "the banks"), "bank")
    with pytest.raises(InputError, match=r"there is 1; give two or more with 'bank'"):
        word_in_sentences(module, tokenizer(), ["the bank"], "bank")
    with pytest.raises(InputError, match=r"'  ' is no word"):
        word_in_sentences(module, tokenizer(), SENTENCES, "  ")


def test_following_leaves_the_model_as_it_was():
    module = build("encoder").train()
    word_in_sentences(module, tokenizer(), SENTENCES, "bank")
    assert module.training
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in module.modules())
