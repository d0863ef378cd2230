"""BigBird's arithmetic against the ten-line reference, and what is promised of the blocks it draws."""

from contextlib import nullcontext

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sparse_reference import draw, small_tiles, table, ten_lines, with_gradients

from regard.attention.core import attend
from regard.attention.efficient.bigbird import NONE, Blocks, Pattern, bigbird_attention, draw_blocks
from regard.attention.mask import Padding
from regard.errors import InputError
from rounding import assert_close

patterns = st.builds(
    Pattern,
    block=st.integers(1, 11),
    window=st.sampled_from([1, 3, 5]),
    first=st.integers(0, 2),
    random=st.integers(0, 3),
    seed=st.integers(0, 2**40),
)


def drawn(pattern: Pattern, length: int) -> list[list[int]]:
    """Of one text alone: the blocks that each block drew."""
    blocks = -(-length // pattern.block)
    return draw_blocks(pattern, blocks, torch.tensor([blocks]))[0].tolist()


@given(
    pattern=patterns,
    sizes=st.tuples(st.integers(1, 2), st.sampled_from([(3, 3), (4, 2)]), st.integers(1, 61)),
    side=st.sampled_from([None, "left", "right"]),
    tiled=st.booleans(),
    seed=st.integers(0, 99),
)
def test_it_equals_the_reference_forward_and_backward(pattern, sizes, side, tiled, seed):
    torch.manual_seed(seed)
    batch, (heads, kv_heads), tokens = sizes
    lengths = torch.full((batch,), tokens) if side is None else torch.randint(0, tokens + 1, (batch,))
    padding = None if side is None else Padding(lengths, side)
    draws = [drawn(pattern, length) for length in lengths.tolist()]
    given_tensors = draw(batch, heads, kv_heads, tokens)

    def rule(sequence: int, head: int, query: int, key: int) -> bool:
        length = int(lengths[sequence])
        begin = tokens - length if side == "left" else 0
        if not begin <= key < begin + length or not begin <= query < begin + length:
            return False
        mine, other = (query - begin) // pattern.block, (key - begin) // pattern.block
        if min(mine, other) < pattern.first or abs(mine - other) <= pattern.window // 2:
            return True
        return other in draws[sequence][mine]

    real = torch.tensor([[rule(b, 0, q, q) for q in range(tokens)] for b in range(batch)])[:, None, :, None]

    def found(query, key, value):
        with small_tiles() if tiled else nullcontext():
            out = bigbird_attention(query, key, value, pattern=pattern, padding=padding)
        return out.where(real, 0)  # what stands at padding is nobody's

    allowed = table(rule, batch, heads, tokens, tokens)
    exact = with_gradients(given_tensors, lambda *qkv: ten_lines(*qkv, allowed))
    for name, one in with_gradients([one.float() for one in given_tensors], found).items():
        assert_close(one, exact[name].float(), 1e-5, name)


@given(pattern=patterns, length=st.integers(1, 211))
def test_blocks_are_drawn_among_those_not_seen_yet_each_once(pattern, length):
    blocks = -(-length // pattern.block)
    for mine, row in enumerate(drawn(pattern, length)):
        found = [one for one in row if one != NONE]
        near = range(mine - pattern.aside, mine + pattern.aside + 1)
        free = [one for one in range(pattern.first, blocks) if one not in near]
        assert len(set(found)) == len(found) == min(pattern.random, len(free))
        assert set(found) <= set(free)


def test_every_block_is_drawn_about_as_often_as_another():
    """A hundred seeds, 41 blocks, 2 draws each: 36 or more blocks may be drawn by every block, so each is expected
    200 / 36 to 200 / 38 times by each row, 100 · 2 in all by the 38 that may draw it."""
    counts = torch.zeros(41)
    for seed in range(100):
        table_of = torch.tensor(drawn(Pattern(block=1, first=1, random=2, seed=seed), 41)[1:])
        counts.index_add_(0, table_of.flatten(), torch.ones(table_of.numel()))
    assert counts[0] == 0
    expected = counts[1:].mean()
    chi_squared = ((counts[1:] - expected) ** 2 / expected).sum()
    assert chi_squared < 74  # of 39 degrees of freedom, above that once in a thousand times


def test_other_seeds_draw_other_blocks_and_the_same_seed_the_same():
    one, again, other = (drawn(Pattern(block=2, seed=seed), 199) for seed in (5, 5, 6))
    assert one == again != other


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_does_not_change_what_a_text_draws(side):
    pattern = Pattern(block=3, seed=7)
    query, key, value = draw(1, 2, 2, 53)
    alone = bigbird_attention(query, key, value, pattern=pattern)
    ends = (0, 0, 19, 0) if side == "left" else (0, 0, 0, 19)
    wider = [torch.nn.functional.pad(one, ends, value=3.0).expand(2, -1, -1, -1) for one in (query, key, value)]
    padding = Padding(torch.tensor([53, 72]), side)
    both = bigbird_attention(*wider, pattern=pattern, padding=padding)
    assert_close(both[:1, :, -53:] if side == "left" else both[:1, :, :53], alone, 1e-12)


@pytest.mark.parametrize("tokens", [1, 7, 31])
def test_a_window_of_all_blocks_is_full_attention(tokens):
    given_tensors = draw(2, 3, 3, tokens)
    pattern = Pattern(block=5, window=15, first=0, random=0)
    actual = with_gradients(given_tensors, lambda *qkv: bigbird_attention(*qkv, pattern=pattern))
    expected = with_gradients(given_tensors, attend)
    for name, one in actual.items():
        assert_close(one, expected[name], 1e-12, name)


def test_long_texts_have_few_live_tiles():
    """No more per row of tiles at four times the length, but for the rows of the global block."""
    from regard.attention.lowering import live_tiles

    def most(tokens: int) -> int:
        mask = Blocks.of(Pattern(), tokens, torch.device("cpu"))
        return int(live_tiles(mask, (1, 1, tokens, tokens), 128, torch.device("cpu")).some[0, 1:].sum(-1).max())

    assert most(16384) <= 11  # 1 global, 3 of the window, at most 2 · 3 drawn and one cut in two
    assert most(65536) <= 11


def test_a_pattern_that_makes_no_sense_is_refused():
    with pytest.raises(InputError, match="a window of 2 blocks has no middle"):
        Pattern(window=2)
    with pytest.raises(InputError, match="negative"):
        Pattern(random=-1)
