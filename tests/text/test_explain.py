"""What `explain` shows follows from the reference."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import InputError
from regard.text.bpe import joined, train
from regard.text.explain import BYTES, MOST_WORDS, WORDS, build_words, corpus_lines, derive, text_lines
from regard.text.tokenizer import Tokenizer
from regard.text.words import WordBpeTokenizer, marked_words

EXAMPLE = "low lower newest wider"


def plain(lines: list[list[tuple[str, str]]]) -> list[str]:
    return ["".join(text for text, _ in line) for line in lines]


def test_the_corpus_after_each_merge_is_shown() -> None:
    found = derive(marked_words(EXAMPLE))
    assert [" ".join(symbols) for symbols, _ in found.start] == [
        "l o w _",
        "l o w e r _",
        "n e w e s t _",
        "w i d e r _",
    ]
    assert [[" ".join(symbols) for symbols, _ in step.words[:2]] for step in found.steps] == [
        ["l o w _", "l o w er _"],
        ["l o w _", "l o w er_"],
        ["lo w _", "lo w er_"],
        ["low _", "low er_"],
    ]
    assert found.stopped == "no pair occurs twice"
    assert found.in_use == ("_", "d", "e", "er_", "i", "low", "n", "s", "t", "w")


@given(st.lists(st.text("abc", min_size=1, max_size=7), min_size=1, max_size=13), st.integers(0, 7))
def test_a_derivation_is_the_reference_step_by_step(words: list[str], more: int) -> None:
    size = len(set("".join(words))) + more
    found = derive(words, size)
    learnt = train({word: words.count(word) for word in words}, size)
    assert tuple(step.merge for step in found.steps) == learnt.merges
    assert found.vocabulary == learnt.vocabulary
    before = found.start
    for step in found.steps:
        assert step.pairs[0] == (step.merge.pair, step.merge.count)
        assert [pair for pair, count in step.pairs if count == step.merge.count] == [step.merge.pair, *step.merge.ties]
        assert step.words == tuple((tuple(joined(symbols, step.merge.pair)), count) for symbols, count in before)
        before = step.words
    assert ("full" in found.stopped) == (
        len(found.vocabulary) == size and train({w: words.count(w) for w in words}, size + 1).merges != learnt.merges
    )


@given(st.text("lower _n", max_size=17))
def test_a_text_is_built_as_the_tokenizer_encodes_it(text: str) -> None:
    words = WordBpeTokenizer.train([EXAMPLE] * 2, 37)
    built = build_words(marked_words(text), words.merges)
    known = ["<unk>" if piece == "＿" else piece for word in built for piece in word.pieces]
    assert known == words.pieces(words.encode(text))


def test_a_building_names_the_merges_in_the_order_they_apply() -> None:
    merges = [step.merge.pair for step in derive(marked_words(EXAMPLE)).steps]
    (word,) = build_words(marked_words("slower"), merges)
    assert [number for _, number, _ in word.steps] == [1, 2, 3, 4]
    assert word.pieces == ("s", "low", "er_")
    assert plain(text_lines([word], WORDS)) == [
        "slower   s l o w e r _",
        "    merge 1      e r   s l o w er _",
        "    merge 2      er _   s l o w er_",
        "    merge 3      l o   s lo w er_",
        "    merge 4      lo w   s low er_",
        "    pieces       s low er_",
    ]


def test_bytes_are_shown_as_the_text_they_are() -> None:
    tokenizer = Tokenizer.train(["é é é"], 270)
    lines = plain(text_lines(build_words(["ĠÃ©"], tokenizer.merges), BYTES))
    assert lines[0].startswith("' é'   Ġ Ã ©")


def test_many_words_are_shown_where_something_happened() -> None:
    found = derive([f"{first}{second}x" for first in "abcdefg" for second in "hijklmn"] * 2)
    lines = plain(corpus_lines(found, WORDS))
    assert "… and 9 more words" in lines[-1]
    assert any("more" in line for line in lines if line.startswith("    corpus"))


def test_a_corpus_too_large_to_follow_is_refused_with_both_numbers() -> None:
    with pytest.raises(InputError, match=f"{MOST_WORDS + 1} .*{MOST_WORDS}"):
        derive([str(number) for number in range(MOST_WORDS + 1)])
    with pytest.raises(InputError, match="no words"):
        derive([])
