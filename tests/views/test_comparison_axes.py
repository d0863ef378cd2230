"""A curve of values that differ by rounding alone looks flat, with plain numbers beside it."""

import matplotlib.pyplot as plt
import pytest

from regard.views.comparison import ComparisonPanel, Curve, CurveLines, draw_panels


@pytest.mark.parametrize("values", [(-5.1884e-3, -5.1884e-3 + 1e-10), (7.0, 7.0 + 1e-9), (0.0, 0.0)])
def test_rounding_draws_no_slope(values):
    curve = Curve("log p", (1, 2), values)
    figure = draw_panels("title", "", [ComparisonPanel("panel", [CurveLines("width", "log p", [curve])])])
    figure.canvas.draw()
    [axes] = [one for one in figure.axes if one.get_ylabel() == "log p"]
    low, high = axes.get_ylim()
    assert abs(values[1] - values[0]) <= 1e-6 * (high - low)
    assert axes.yaxis.get_offset_text().get_text() == ""
    plt.close(figure)
