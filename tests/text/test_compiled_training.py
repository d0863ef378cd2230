"""What Numba compiles counts the same pieces and learns the same merges as Python and the engine do."""

import sys
from collections import Counter
from itertools import chain

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers.pre_tokenizers import ByteLevel

from regard.text import pretokenize_numba, training
from regard.text.bpe import train
from regard.text.bytelevel import BLANKS, byte_words, expand, pieces
from regard.text.tokenizer import Tokenizer
from regard.text.word_bpe import WordBpeTokenizer

pytest.importorskip("numba")
from regard.text.bpe_numba import merge_words
from regard.text.pretokenize_numba import count_pieces

ODD = "'sdlvermt ab09.,!_-é日αー٣²\u200b\u0301\U0001f600\x00\x1c\x1f\n\t\r" + BLANKS
SNIPPETS = st.lists(st.text(st.sampled_from(ODD), max_size=11) | st.text(max_size=11), max_size=5)
TEXTS = [
    f"it's naïve, {number}²  'll\n\tthey've " + "日本" * (number % 3) + "x" * (number % 29) for number in range(503)
]


@given(SNIPPETS)
def test_pieces_are_cut_as_the_engine_cuts(texts: list[str]) -> None:
    engine = ByteLevel(add_prefix_space=False)
    whole = Counter(word for text in texts for word, _ in engine.pre_tokenize_str(text))
    assert expand(Counter(chain.from_iterable(map(pieces, texts)))) == whole
    assert Counter(chain.from_iterable(map(byte_words, texts))) == whole
    assert all("".join(pieces(text)) == text for text in texts)


@given(SNIPPETS)
def test_compiled_counts_are_those_of_the_pattern(texts: list[str]) -> None:
    assert count_pieces(texts) == Counter(chain.from_iterable(map(pieces, texts)))


@settings(max_examples=300)
@given(
    st.dictionaries(
        st.text("ab", min_size=1, max_size=13) | st.text("abcé日", min_size=1, max_size=7), st.integers(1, 29)
    ),
    st.integers(0, 61),
    st.sampled_from([(), ("<pad>", "<s>")]),
    st.sampled_from(["", "z"]),  # ids that stand in no word make room
)
@example({"bbbbbaaabababa": 1, "abaaa": 2, "babaabb": 50, "a": 3}, 5, (), "")
def test_compiled_merges_are_those_of_the_reference(
    counts: dict[str, int], more: int, specials: tuple[str, ...], alphabet: str
) -> None:
    letters = sorted({*"".join(counts), *alphabet})
    size = len(specials) + len(letters) + more
    expected = train(counts, size, "engine", specials=specials, alphabet=alphabet)
    found = merge_words(counts, letters, first=len(specials), size=size)
    names = expected.vocabulary
    assert [(names[left], names[right]) for left, right in found] == [merge.pair for merge in expected.merges]


@pytest.mark.parametrize("kind", [Tokenizer, WordBpeTokenizer])
@pytest.mark.parametrize("size", [313, 10**9])
def test_a_tokenizer_is_the_same_file_however_it_was_trained(kind: type[Tokenizer], size: int, monkeypatch) -> None:
    shown = kind.train(iter(TEXTS), size).to_json()
    used: list[str] = []
    chosen = training._compiled

    def watched(name: str, entry: str, work):
        found = chosen(name, entry, work)
        assert found is not None
        used.append(name)
        return found

    monkeypatch.setattr(training, "_compiled", watched)
    monkeypatch.setattr(training, "MANY_LETTERS", 1)
    monkeypatch.setattr(training, "MUCH_TEXT", 0)
    assert kind.train(iter(TEXTS), size).to_json() == shown
    assert used[-1] == "bpe_numba"
    monkeypatch.setattr(training, "_compiled", chosen)
    monkeypatch.setitem(sys.modules, "regard.text.bpe_numba", None)  # as where Numba cannot be imported
    monkeypatch.setitem(sys.modules, "regard.text.pretokenize_numba", None)
    assert kind.train(iter(TEXTS), size).to_json() == shown


def test_counting_goes_over_to_compiled_code_after_much_text(monkeypatch) -> None:
    whole = Tokenizer.train(iter(TEXTS), 389)
    seen: list[int] = []

    counted = pretokenize_numba.count_pieces
    monkeypatch.setattr(pretokenize_numba, "count_pieces", lambda texts: seen.append(len(texts)) or counted(texts))
    monkeypatch.setattr(training, "MUCH_TEXT", 4001)
    monkeypatch.setattr("regard.text.training.count_blocks", training_blocks)
    assert Tokenizer.train(iter(TEXTS), 389) == whole
    assert 0 < sum(seen) < len(TEXTS)


def training_blocks(texts, by):
    from regard.text.counting import count_blocks

    return count_blocks(texts, by, block=997)
