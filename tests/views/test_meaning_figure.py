"""The table and the figure of a word's meaning show the record's own numbers, and say what they do not show."""

import numpy as np
import pytest

from regard.inspection.contextual import InSentence, Meaning
from regard.views.figure import plain_style, save_figure
from regard.views.meaning import MOST_PAIRS, MOST_WORDS, _percent, draw_meaning, findings, meaning_text

LAYERS = ("embedding", "encoder.0", "encoder.1")
WORDS = (("by", "the", "river", "bank", "<eos>"), ("my", "bank", "$account$", "字", "<eos>"), ("bank", "\n", "\x1b"))


def sentence(words: tuple[str, ...], seed: int, start: np.ndarray, apart: float = 1.0) -> InSentence:
    chance = np.random.default_rng(seed)
    vectors = np.stack([start, start + apart * chance.normal(size=7), start + 2 * apart * chance.normal(size=7)])
    return InSentence(
        sentence=" ".join(words),
        pieces=(" bank",),
        occurrences=1,
        words=words,
        itself=words.index("bank"),
        vectors=vectors,
        change=np.array([2.0, 5.0]),
        moved=chance.normal(scale=0.5, size=(2, len(words))),
        bias=np.array([0.25, -0.5]),
    )


def record(count: int = 3, apart: float = 1.0, *, causal: bool = False) -> Meaning:
    start = np.random.default_rng(11).normal(size=7)
    return Meaning("bank", LAYERS, tuple(sentence(WORDS[at % 3], at, start, apart) for at in range(count)), causal)


def test_the_table_prints_every_pairs_cosine():
    found = record()
    lines = meaning_text(found).splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("cosine"))
    assert lines[at].split() == ["cosine", "1–2", "1–3", "2–3"]
    for layer, line in enumerate(lines[at + 2 : at + 5]):
        assert line.split() == [LAYERS[layer], *(f"{found.cosines[layer][pair]:.3f}" for pair in found.pairs)]


def test_many_sentences_are_summed_up():
    found = record(6)
    assert len(found.pairs) > MOST_PAIRS
    line = next(line for line in meaning_text(found).splitlines() if line.startswith("encoder.1"))
    numbers = [found.cosines[2][pair] for pair in found.pairs]
    assert line.split()[1:] == [f"{number:.3f}" for number in (min(numbers), np.mean(numbers), max(numbers))]


def test_a_layers_parts_are_printed_as_shares_that_add_up():
    found = record()
    text = meaning_text(found)
    block = text.split("What moved it in sentence 2")[1].splitlines()
    for layer in range(2):
        line = next(line for line in block if line.startswith(f"encoder.{layer}"))
        one = found.sentences[1]
        numbers = [float(part) for part in line.replace("−", "-").replace(" %", "").split()[1:5]]
        whole = one.change[layer]
        expected = [whole, *(100 * part / whole for part in (one.moved[layer, 1], one.bias[layer], one.rest[layer]))]
        np.testing.assert_allclose(numbers, expected, atol=0.051)
        others = 100 * (one.moved[layer].sum() - one.moved[layer, 1]) / whole
        assert sum(numbers[1:]) + others == pytest.approx(100, abs=0.2)
        name, share = one.movers(layer)[0]
        assert f"{name} {100 * share:.1f} %" in line


def test_a_share_of_nothing_has_no_minus():
    found = [_percent(share) for share in (-1e-5, 0.0, -0.0, -0.0126, 0.391)]
    assert found == ["0.0 %", "0.0 %", "0.0 %", "−1.3 %", "39.1 %"]


def test_what_was_found_is_said_and_that_nothing_was():
    assert any("the sentences have moved it apart" in line for line in findings(record()))
    assert any("this model hardly tells them apart" in line for line in findings(record(apart=1e-3)))
    assert not any("causal" in line for line in findings(record()))
    assert any("a word is moved by itself and earlier words only" in line for line in findings(record(causal=True)))
    assert "At the embedding, before positions, it is one vector." in findings(record())


def test_words_cut_in_different_ways_are_said():
    one, other = record(2).sentences
    cut = InSentence(**{**vars(other), "pieces": ("b", "ank"), "occurrences": 2})
    said = findings(Meaning("bank", LAYERS, (one, cut), causal=False))
    assert "cuts the word in different ways (␣bank, b ank)" in said[0]
    assert any("Sentence 2 has it 2 times: the last is followed." in line for line in said)


def test_that_the_tokenizer_does_not_know_the_word_is_said():
    sentences = tuple(InSentence(**{**vars(one), "pieces": ("[UNK]",)}) for one in record(2).sentences)
    assert any("does not know the word" in line for line in findings(Meaning("bank", LAYERS, sentences, causal=False)))
    assert not any("does not know the word" in line for line in findings(record()))


def test_the_figure_draws_a_line_for_each_pair_and_a_strip_for_each_sentence():
    found = record()
    figure = draw_meaning(found)
    lines, *strips = figure.axes
    drawn = [line.get_ydata() for line in lines.lines]
    assert len(drawn) == 3
    for pair, line in zip(found.pairs, drawn, strict=True):
        np.testing.assert_array_equal(line, [cosines[pair] for cosines in found.cosines])
    assert [text.get_text() for text in lines.texts] == ["1–2", "1–3", "2–3"]
    assert len(strips) == 3
    for one, axes in zip(found.sentences, strips, strict=True):
        np.testing.assert_allclose(axes.images[0].get_array(), one.moved / one.change[:, None])
        assert len(axes.get_xticklabels()) == len(one.words)
        assert axes.get_xticklabels()[one.itself].get_fontweight() == "bold"
        assert [label.get_text() for label in axes.get_yticklabels()] == ["encoder.0", "encoder.1"]


def test_of_a_long_sentence_the_words_of_the_largest_shares_are_drawn_in_order():
    start = np.random.default_rng(11).normal(size=7)
    words = (*(f"w{at}" for at in range(60)), "bank", *(f"w{at}" for at in range(60, 97)))
    long, short = sentence(words, 5, start), sentence(WORDS[0], 1, start)
    long.moved[:, 60] = 0.0
    axes = draw_meaning(Meaning("bank", LAYERS, (long, short), causal=False)).axes[1]
    drawn = [label.get_text() for label in axes.get_xticklabels()]
    largest = np.abs(long.moved / long.change[:, None]).max(axis=0)
    largest[60] = np.inf
    assert drawn == [word for word, share in zip(words, largest, strict=True) if share >= np.sort(largest)[-MOST_WORDS]]
    assert axes.get_xticklabels()[drawn.index("bank")].get_fontweight() == "bold"
    assert "and 58 words of smaller shares" in [text.get_text() for text in axes.texts]


def test_nothing_on_the_page_lies_on_something_else():
    figure = draw_meaning(record())
    with plain_style():
        boxes = [axes.get_tightbbox() for axes in figure.axes]
    for at, one in enumerate(boxes):
        for other in boxes[at + 1 :]:
            assert not one.overlaps(other)


@pytest.mark.parametrize("ending", [".png", ".svg"])
def test_the_same_record_is_the_same_file(tmp_path, ending):
    for name in ("one", "other"):
        save_figure(draw_meaning(record()), tmp_path / f"{name}{ending}")
    assert (tmp_path / f"one{ending}").read_bytes() == (tmp_path / f"other{ending}").read_bytes()
