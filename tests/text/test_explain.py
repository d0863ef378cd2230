"""What `explain` shows follows from the reference."""

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import InputError
from regard.text.bpe import joined, train
from regard.text.bytelevel import byte_words
from regard.text.explain import (
    BYTES,
    LONGEST_WORD,
    MOST_WORDS,
    SHOWN_WORDS,
    WORDS,
    build_words,
    corpus_lines,
    derive,
    text_lines,
)
from regard.text.tokenizer import Tokenizer
from regard.text.word_bpe import WordBpeTokenizer, marked_words

EXAMPLE = "low lower newest wider"


def plain(lines: Iterable[list[tuple[str, str]]]) -> list[str]:
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
    with pytest.raises(InputError, match=f"{LONGEST_WORD + 1} .*{LONGEST_WORD}"):
        derive(["a" * (LONGEST_WORD + 1)])
    assert derive(["ab" * (LONGEST_WORD // 2)]).steps


@given(st.lists(st.text("abcde", min_size=1, max_size=11), min_size=SHOWN_WORDS + 1, max_size=97, unique=True))
def test_of_many_words_a_step_keeps_those_it_changed_and_counts_all(words: list[str]) -> None:
    found = derive(words * 2)
    corpus = {word: tuple(word) for word in words}
    for step in found.steps:
        often = Counter(pair for symbols in corpus.values() for pair in pairwise(symbols))
        after = {word: tuple(joined(symbols, step.merge.pair)) for word, symbols in corpus.items()}
        assert step.words == tuple((after[word], 2) for word in words if after[word] != corpus[word])
        assert step.pairs[0] == (step.merge.pair, 2 * max(often.values()))
        assert dict(step.pairs) == {pair: 2 * often[pair] for pair, _ in step.pairs}
        left = often.keys() - dict(step.pairs).keys()
        assert step.more == len(left)
        assert all(2 * often[pair] <= step.pairs[-1][1] for pair in left)
        corpus = after
    assert found.end == tuple((corpus[word], 2) for word in words)


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=5))
def test_no_line_holds_anything_a_terminal_would_obey(text: str) -> None:
    for reading, corpus in ((WORDS, marked_words(f"{text} x\x1b[2Jx\x9b\u202e")), (BYTES, byte_words(text))):
        found = derive(corpus * 2)
        lines = [*corpus_lines(found, reading), *text_lines(build_words(corpus, []), reading)]
        assert all(line.isprintable() for line in plain(lines))


def test_control_characters_are_written_out_where_the_words_are() -> None:
    lines = plain(corpus_lines(derive(marked_words("\x1b[2J\u202e \x1b[2J\u202e")), WORDS))
    assert r"\x1b [ 2 J \u202e _ ×2" in lines[2]
    assert lines[-1].split() == [r"\x1b[2J\u202e", r"\x1b[2J\u202e_", r"\x1b[2J\u202e_"]
