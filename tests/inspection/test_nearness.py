"""A word is as near to a sense as their vectors say, and passages keep what they stand for in sight."""

import numpy as np
import pytest
import torch
from test_contextual import SENTENCES, build, tokenizer

from regard.data.passages import FARTHEST, THINGS, passages
from regard.errors import InputError
from regard.inspection.contextual import word_in_sentences
from regard.inspection.nearness import Sense, nearness


def test_nearness_is_the_cosine_of_the_two_vectors():
    module, token = build("encoder"), tokenizer()
    senses = (Sense("bank", SENTENCES[0]), Sense("river", "by the river"))
    found = nearness(module, token, SENTENCES[1:], "bank", senses)
    assert found.cosines.shape == (4, 2, 2)
    together = word_in_sentences(module, token, SENTENCES, "bank")
    assert found.cosines[:, 0, 0] == pytest.approx(together.cosines[:, 1, 0])
    river = word_in_sentences(module, token, ["by the river", "by the river"], "river").sentences[0].vectors
    bank = together.sentences[2].vectors
    expected = torch.nn.functional.cosine_similarity(torch.tensor(bank), torch.tensor(river), dim=1)
    assert found.cosines[:, 1, 1] == pytest.approx(expected.numpy(), abs=1e-6)
    assert found.nearest(0) == int(np.argmax(found.cosines[-1, 0]))
    assert found.margin(0) == pytest.approx(abs(found.cosines[-1, 0, 0] - found.cosines[-1, 0, 1]))
    alone = nearness(module, token, [SENTENCES[1]], "bank", senses)
    assert np.array_equal(alone.cosines[:, 0], found.cosines[:, 0])
    with pytest.raises(InputError, match="nothing to choose"):
        nearness(module, token, SENTENCES, "bank", senses[:1])


def test_passages_have_one_it_and_one_antecedent_so_many_sentences_apart():
    found = passages(50)
    assert found == passages(50)
    assert len({one.text for one in found}) == 50
    for one in found:
        words = one.text.lower().replace(".", "").split()
        assert words.count("it") == 1
        assert [word for word in words if word in THINGS] == [one.antecedent]
        assert one.text.count(". ") == one.between + 1
    assert {one.between for one in found} == set(range(FARTHEST + 1))
