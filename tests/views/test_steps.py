"""The four steps show the formula's numbers, in a table and in a picture, and refuse numbers that do not follow."""

from dataclasses import fields

import numpy as np
import pytest
from matplotlib.figure import Figure
from rich.cells import cell_len

from regard.errors import InputError
from regard.views.figure import plain_style, save_figure
from regard.views.steps import MOST_KEYS, FourSteps, draw_steps, steps_text

NAMES = ("de:", " 3", " mars", " 日本", "<eos>", "$x$", "\n")


def make(keys=5, width=7, value_width=3, *, hidden=(), bias=0.0) -> FourSteps:
    random = np.random.default_rng(11)
    query, key = random.normal(0, 1.5, width), random.normal(0, 1.5, (keys, width))
    values = random.normal(0, 1, (keys, value_width))
    raw, biases = key @ query, -bias * np.arange(keys, dtype=float)
    allowed = ~np.isin(np.arange(keys), hidden)
    exponentials = np.where(allowed, np.exp(raw / np.sqrt(width) + biases), 0)
    weights = exponentials / exponentials.sum() if allowed.any() else np.zeros(keys)
    names = tuple(NAMES[at] if at < len(NAMES) else f" w{at}" for at in range(keys))
    return FourSteps(
        " März",
        names,
        query,
        key,
        raw,
        width**-0.5,
        biases,
        allowed,
        weights,
        values,
        weights @ values,
        "decoder.1.cross",
    )


def changed(record: FourSteps, **change) -> FourSteps:
    return FourSteps(*(change.get(field.name, getattr(record, field.name)) for field in fields(record)))


def test_scores_that_are_no_dot_product_are_called_scores_and_need_not_be_one():
    record = make()
    other = changed(record, query=record.query + 1, dotted=False)
    assert (table(record)[0][1], table(other)[0][1]) == ("q·k", "score")
    assert [row[1:] for row in table(record)[1:]] == [row[1:] for row in table(other)[1:]]
    texts = [[text.get_text() for axes in draw_steps(one).axes for text in axes.texts] for one in (record, other)]
    assert "query · key" in texts[0]
    assert "query · key" not in texts[1]
    with pytest.raises(InputError, match="scores q·k"):
        changed(record, query=record.query + 1)


def table(record: FourSteps) -> list[list[str]]:
    lines = steps_text(record).splitlines()
    return [line.split() for line in lines[2 : lines.index("", 2)] if not line.startswith("─")]


def drawn_words(figure: Figure) -> list[str]:
    words = [text.get_text().strip() for axes in figure.axes for text in axes.texts]
    return words + [text.get_text() for text in figure.texts]


# The table


def test_every_number_of_the_table_is_the_formulas():
    record = make()
    heading, *rows, total = table(record)
    assert heading == ["key", "q·k", "÷", "√7", "exp", "weight"]
    exponentials = [float(np.exp(raw * 7**-0.5)) for raw in record.raw]
    for at, (_, raw, scaled, exponential, weight) in enumerate(rows):
        assert float(raw) == pytest.approx(record.key[at] @ record.query, abs=6e-4)
        assert float(scaled) == pytest.approx(record.key[at] @ record.query / np.sqrt(7), abs=6e-4)
        assert float(exponential) == pytest.approx(exponentials[at] / max(exponentials), abs=6e-4)
        assert float(weight) == pytest.approx(exponentials[at] / sum(exponentials), abs=6e-4)
    assert [row[0] for row in rows] == ["de:", "␣3", "␣mars", "␣日本", "<eos>"]
    assert total == ["sum", f"{sum(exponentials) / max(exponentials):.3f}", "1.000"]
    by_hand = sum(weight * value for weight, value in zip(record.weights, record.values, strict=True))
    assert steps_text(record).endswith("= " + "  ".join(f"{number:.3f}" for number in by_hand))


def test_a_bias_and_a_mask_have_columns_only_where_there_are_any():
    assert "bias" not in steps_text(make())
    assert "mask" not in steps_text(make())
    record = make(hidden=(1, 3), bias=0.5)
    heading, *rows, _ = table(record)
    assert heading[4:7] == ["+", "bias", "mask"]
    for at, row in enumerate(rows):
        assert float(row[3]) == pytest.approx(record.raw[at] / np.sqrt(7) - 0.5 * at, abs=6e-4)
        assert ("masked" in row) == (at in (1, 3))
    assert [row[-2:] for at, row in enumerate(rows) if at in (1, 3)] == [["0.000", "0.000"]] * 2


def test_the_table_is_aligned_whatever_the_tokens_are():
    for record in (make(7, hidden=(2,)), make(53, value_width=31), make(5, bias=100.0)):
        lines = steps_text(record).splitlines()[2:]
        widths = {cell_len(line) for line in lines[: lines.index("")]}
        assert len(widths) == 1


def test_of_many_keys_the_largest_are_shown_and_the_others_summed():
    record = make(keys=53)
    _, *rows, others, total = table(record)
    largest = sorted(range(53), key=lambda at: -record.weights[at])[:MOST_KEYS]
    assert [int(row[1]) for row in rows] == largest
    assert others[:2] == ["41", "others"]
    assert float(others[-1]) == pytest.approx(sum(np.sort(record.weights)[:41]), abs=6e-4)
    assert total[-1] == "1.000"


def test_a_scale_that_is_not_the_root_of_the_width_is_named():
    record = make()
    exponentials = np.exp(record.raw * 0.25)
    weights = exponentials / exponentials.sum()
    assert "× 0.25" in steps_text(changed(record, scale=0.25, weights=weights, output=weights @ record.values))


def test_a_token_that_may_look_at_nothing_has_weights_and_output_of_zero():
    record = make(hidden=range(5))
    assert table(record)[-1] == ["sum", "0.000", "0.000"]
    assert "masked" in drawn_words(draw_steps(record))


# The picture


def test_the_picture_has_a_bar_for_every_key_in_each_step_and_the_sum_below():
    record = make(hidden=(3,))
    figure = draw_steps(record)
    scores, scaled, softmax, products, output, _ = figure.axes
    np.testing.assert_allclose([bar.get_width() for bar in scores.patches], record.raw)
    seen = [0, 1, 2, 4]
    np.testing.assert_allclose([bar.get_width() for bar in scaled.patches], record.raw[seen] / np.sqrt(7))
    np.testing.assert_allclose([bar.get_width() for bar in softmax.patches], record.weights[seen])
    np.testing.assert_allclose(products.images[0].get_array(), record.weights[:, None] * record.values)
    np.testing.assert_allclose(output.images[0].get_array()[0], record.output)
    np.testing.assert_allclose(products.images[0].get_array().sum(axis=0), output.images[0].get_array()[0])
    assert [text.get_text() for text in scores.get_yticklabels()] == ["de:", "␣3", "␣mars", "␣日本", "<eos>"]
    assert drawn_words(figure).count("masked") == 2
    assert {axes.get_title(loc="left") for axes in figure.axes[:4]} == {
        "1  scores",
        "2  scaled",
        "3  softmax",
        "4  weighted sum",
    }


def test_what_is_not_drawn_key_by_key_is_in_the_last_row():
    record = make(keys=53, value_width=29)
    figure = draw_steps(record)
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()][-1] == "41 others"
    widths = [bar.get_width() for bar in figure.axes[2].patches]
    assert len(widths) == MOST_KEYS + 1
    assert sum(widths) == pytest.approx(1)
    products, output = (figure.axes[at].images[0].get_array() for at in (3, 4))
    assert products.shape == (MOST_KEYS + 1, 16)
    np.testing.assert_allclose(products.sum(axis=0), output[0], atol=1e-12)


def test_everything_drawn_is_on_the_page(tmp_path):
    for record in (make(), make(53, value_width=31, bias=0.25), make(1, value_width=1), make(hidden=range(5))):
        figure = draw_steps(record)
        with plain_style():
            box = figure.get_tightbbox()
        width, height = figure.get_size_inches()
        assert box.x0 >= 0
        assert box.y0 >= 0
        assert box.x1 <= width
        assert box.y1 <= height
    save_figure(figure, tmp_path / "steps.png")
    assert (tmp_path / "steps.png").stat().st_size > 0


# Records that do not follow


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"weights": np.array([0.5, 0.2, 0.1, 0.1, 0.0])}, "sum to 0.9000, not to 1"),
        ({"weights": np.full(5, 0.2)}, "softmax weights of ' März' differ by"),
        ({"raw": np.ones(5)}, "scores q·k of ' März' differ by"),
        ({"scale": 1.0}, "softmax weights"),
        ({"bias": np.arange(5.0)}, "softmax weights"),
        ({"allowed": np.array([True, True, True, True, False])}, "softmax weights"),
        ({"allowed": np.zeros(5, dtype=bool)}, "softmax weights"),
        ({"output": np.ones(3)}, "output of ' März' differ by"),
        ({"query": np.ones(5)}, r"key of shape \[5, 7\] for 5 keys of width 5; pass key as \[5, 5\]"),
        ({"values": np.ones((4, 3))}, r"values of shape \[4, 3\]"),
        ({"bias": np.array([0, 0, 0, 0, -np.inf])}, "bias holds numbers that are not finite"),
        ({"allowed": np.ones(5)}, "`allowed` holds float64"),
        ({"keys": ()}, "for 0 keys"),
    ],
    ids=str,
)
def test_numbers_that_do_not_follow_from_each_other_are_refused(change, sentence):
    with pytest.raises(InputError, match=sentence):
        changed(make(), **change)


def test_half_precision_is_precise_enough():
    record = make(keys=13, width=61)
    halves = {
        name: getattr(record, name).astype(np.float16)
        for name in ("query", "key", "raw", "weights", "values", "output")
    }
    assert changed(record, **halves).weights.dtype == np.float16
