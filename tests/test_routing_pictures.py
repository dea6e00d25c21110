"""The pictures of lesson 03: the right head's colour at the right place, c on the edges."""

import math

import matplotlib
import pytest

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.colors import to_rgb  # noqa: E402

from experiments.routing_pictures import (  # noqa: E402
    draw_draft_times,
    draw_further,
    draw_heads,
    draw_rivals,
)
from nanogpt.pictures.plots import GREY, HEADS, tint  # noqa: E402
from tree_attention import Tree  # noqa: E402


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def written(ax):
    return [text.get_text() for text in ax.texts]


def test_each_head_reads_the_root_and_then_its_own_guesses():
    ax = draw_heads(["a", "t"], "h", [[("e", 0.9), ("r", 0.8)], [("i", 0.3), (" ", 0.2)]], (3, 6))
    shown = written(ax)
    assert shown.count("reads h") == 2 and "reads e" in shown and "reads i" in shown
    assert "e .90" in shown and "\u2423 .20" in shown


def test_a_letter_has_the_colour_of_the_head_that_reached_further():
    ax = draw_further(list("ab\ncd"), {1: (2, 0), 2: (1, 3), 4: (1, 1)}, width=3)
    strong = [tint(color, strength) for color, strength in
              [(HEADS[0], 0.6), (HEADS[1], 0.6), (GREY, 0.12)]]
    assert [to_rgb(patch.get_facecolor()) for patch in ax.patches] == [
        pytest.approx(color) for color in strong]
    assert [(round(p.get_x() + 0.5), round(p.get_y() + 0.45)) for p in ax.patches] == [
        (1, 0), (2, 0), (1, 1)]


def test_an_edge_carries_the_probability_of_the_whole_path():
    tree, scores = Tree([5, 7, 7], [-1, 0, 1]), [0.0, math.log(0.5), math.log(0.25)]
    axes = draw_rivals([tree, tree], [scores, scores], "abcdefgh".__getitem__, ["one", "two"])
    for ax in axes:
        assert {".50", ".25", "f", "h"} <= set(written(ax))
        assert "path" in written(ax)[-1]


def test_a_bar_is_as_long_as_its_time():
    ax = draw_draft_times({"one": 2.0, "two": 3.5})
    assert [bar.get_width() for bar in ax.patches] == [2.0, 3.5]
