"""Masked tokens: how many, which, what becomes of them; the same again from the same key."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.data.batching import IGNORED
from regard.data.masking import Masking
from regard.data.stream import Position
from regard.data.windows import TokenStream, TokenWindow, WindowObjective, Windows, in_order
from regard.errors import ConfigError, InputError
from regard.text.tokenizer import Tokenizer
from regard.text.wordpiece import WordPieceTokenizer

TEXTS = ["the rose by the river bank", "low lower lowest and slower", "a bank of monitors"] * 3
KINDS = {
    "wordpiece": WordPieceTokenizer.train(TEXTS, 97),
    "bytes": Tokenizer.train(TEXTS, 271).with_specials(["<mask>"]),
}
kinds = pytest.mark.parametrize("kind", KINDS)


def token_window(ids: list[int], *key: int) -> TokenWindow:
    return TokenWindow(np.array(ids, dtype=np.int32), None, key)


def drawn(tokenizer: Tokenizer, count: int, seed: int) -> list[int]:
    """Ordinary and special ids, mixed."""
    return np.random.default_rng(seed).integers(0, tokenizer.size, count).tolist()


@kinds
@given(count=st.integers(1, 60), seed=st.integers(0, 99))
def test_exactly_fifteen_in_a_hundred_ordinary_tokens_are_predicted_and_no_special_one(kind, count, seed):
    tokenizer = KINDS[kind]
    special = set(tokenizer.special_ids.values())
    ids = drawn(tokenizer, count, seed)
    batch = Masking(tokenizer, count + 2).batch([token_window(ids, seed)])
    read, targets = batch.inputs.tokens.ids[0].tolist(), batch.targets[0].tolist()
    assert (read[0], read[-1]) == (tokenizer.bos_id, tokenizer.eos_id)
    assert targets[0] == targets[-1] == IGNORED
    ordinary = [place for place, token in enumerate(ids) if token not in special]
    chosen = [place for place, target in enumerate(targets[1:-1]) if target != IGNORED]
    assert len(chosen) == (max(1, round(0.15 * len(ordinary))) if ordinary else 0)
    assert set(chosen) <= set(ordinary)
    for place, token in enumerate(ids):
        if place in chosen:
            assert targets[1 + place] == token
            assert read[1 + place] == tokenizer.mask_id or read[1 + place] not in special
        else:
            assert read[1 + place] == token


@kinds
def test_eight_of_ten_are_hidden_one_is_replaced_one_stays(kind):
    """Over 30,000 choices the shares are 80, 10 and 10 in a hundred to within four standard deviations."""
    tokenizer = KINDS[kind]
    word = next(token for token in range(tokenizer.size) if token not in tokenizer.special_ids.values())
    read, wanted = Masking(tokenizer, 9).hidden(np.full(200_000, word, dtype=np.int32), np.random.default_rng(5))
    chosen = read[wanted != IGNORED]
    assert len(chosen) == 30_000
    ordinary = tokenizer.size - len(tokenizer.special_ids)
    hidden = float((chosen == tokenizer.mask_id).mean())
    kept = float((chosen == word).mean())
    assert hidden == pytest.approx(0.8, abs=4 * (0.8 * 0.2 / 30_000) ** 0.5)
    assert kept == pytest.approx(0.1 + 0.1 / ordinary, abs=4 * (0.1 * 0.9 / 30_000) ** 0.5)
    others = chosen[(chosen != tokenizer.mask_id) & (chosen != word)]
    assert set(others.tolist()) == set(range(tokenizer.size)) - set(tokenizer.special_ids.values()) - {word}


@kinds
def test_masks_are_a_function_of_the_key_and_new_every_epoch(kind):
    tokenizer = KINDS[kind]
    how = Masking(tokenizer, 43)
    assert isinstance(how, WindowObjective)
    ids = [token for token in drawn(tokenizer, 400, 3) if token not in tokenizer.special_ids.values()][:41]
    one, same, other = (how.batch([token_window(ids, *key)]) for key in ((1, 2), (1, 2), (1, 3)))
    assert torch.equal(one.inputs.tokens.ids, same.inputs.tokens.ids)
    assert torch.equal(one.targets, same.targets)
    assert not torch.equal(one.targets, other.targets)
    stream = TokenStream(np.array(ids * 2 + [7], dtype=np.int32), None)
    batches = Windows(stream, how, rows=1, seed=3)
    first, second = (next(batches.start(Position(0, epoch * batches.epoch)))[0] for epoch in (0, 1))
    assert not torch.equal(first.targets, second.targets)


@kinds
def test_windows_side_by_side_hold_what_each_holds_and_padding_adds_no_target(kind):
    tokenizer = KINDS[kind]
    how = Masking(tokenizer, 31)
    windows = [token_window(drawn(tokenizer, length, length), length) for length in (29, 7, 13)]
    together = how.batch(windows)
    for row, one in enumerate(windows):
        alone, length = how.batch([one]), len(one.ids) + 2
        assert together.inputs.tokens.ids[row, :length].tolist() == alone.inputs.tokens.ids[0].tolist()
        assert together.targets[row, :length].tolist() == alone.targets[0].tolist()
        assert (together.targets[row, length:] == IGNORED).all()
    assert together.inputs.tokens.lengths.tolist() == [31, 9, 15]
    assert together.count == sum(how.batch([one]).count for one in windows)


def test_measuring_hides_the_same_tokens_every_time():
    tokenizer = KINDS["wordpiece"]
    stream = TokenStream.of(TEXTS, tokenizer, begin=False)
    first, again = (in_order(stream, Masking(tokenizer, 11), 44) for _ in range(2))
    assert all(torch.equal(one.targets, other.targets) for one, other in zip(first, again, strict=True))
    read = [
        token
        for batch in first
        for row, wanted in zip(batch.inputs.tokens.rows(), batch.targets.tolist(), strict=True)
        for token, target in list(zip(row, wanted, strict=False))[1:-1]
        for token in [token if target == IGNORED else target]
    ]
    assert read == stream.ids.tolist()


def test_what_cannot_be_masked_is_refused():
    with pytest.raises(
        ConfigError, match=r"a window of 2 tokens has no room beside 2 special tokens; use data.window=3"
    ):
        Masking(KINDS["bytes"], 2)
    bare = Tokenizer.train(TEXTS, 271)
    with pytest.raises(InputError, match="this tokenizer has no <mask>"):
        Masking(bare, 9).batch([token_window([50, 60], 1)])
