"""The pictures of chapter 06: what they write is what the rules say."""

import numpy as np
import pytest

from experiments.flow_pictures import (
    SameCoin,
    draw_flow,
    draw_lengths,
    draw_numbers,
    draw_second_step,
    tuple_flows,
)
from global_resolution import GR
from nanogpt.pictures.plots import BLUE, FAINT, INK, RED, tint
from single_step_rules import KSEQ, RRS

DRAFT, TARGET = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5])


def texts(ax):
    return [text.get_text() for text in ax.texts]


@pytest.mark.parametrize("rule", [RRS, KSEQ, GR])
def test_listed_tuples_send_what_the_rule_says(rule):
    flows = tuple_flows(rule, DRAFT, TARGET, 2)
    assert flows[0, 1][0] == pytest.approx(0.3) and flows[1, 1][0] == pytest.approx(0.09)
    assert sum(mass for mass, _ in flows.values()) == pytest.approx(1)
    listed = [sum(shares.get(z, 0) for _, shares in flows.values()) for z in range(3)]
    assert listed == pytest.approx(rule(DRAFT[None], TARGET[None], 2).out[0].tolist())


def test_a_tuple_that_is_never_drawn_is_not_listed():
    assert set(tuple_flows(RRS, np.array([0.5, 0.5, 0]), TARGET, 2)) == {(0, 0), (0, 1), (1, 1)}


def test_the_pipes_carry_flow_and_capacity():
    ax = draw_flow(RRS, DRAFT, TARGET, 2, "abc")
    assert {"0.260 / 0.500", "0.200 / 0.200", "0.210 / 0.300", "drafter", "kept", "ab"} \
        <= set(texts(ax))
    assert ax.get_title() == "RRS: 0.760 of 1.00 arrives"


def test_the_second_step_of_the_chain():
    left, right = draw_second_step(np.array([0.5, 0.5]), np.array([0.9, 0.1]), 0.2, "ab")
    assert left.get_title() == "token verification: 0.60 arrives, times 0.2 = 0.12"
    assert right.get_title() == "target scaled by 0.2: 0.20 arrives"
    assert "0.500 / 0.900" in texts(left) and "0.180 / 0.180" in texts(right)


def test_a_drawn_tree_shows_its_numbers():
    ax = draw_numbers([-1, 0, 0], ["root", "a", "b"], [["score 1"], ["score .4", "more"], []],
                      [1, 0.4, 0])
    assert texts(ax) == ["0: root", "score 1", "1: a", "score .4\nmore", "2: b", ""]


def test_lengths_have_a_dot_for_each_lift():
    axes = draw_lengths({"chains": {"RRS": {"TV": 2.15, "LV": 2.38}, "TRV": {"": 2.42}},
                         "trees": {"RRS": {"TV": 2.4, "LV": 2.6}}}, "drafts kept")
    assert texts(axes[0]) == ["2.15", "2.38", "2.42"] and texts(axes[1]) == ["2.40", "2.60"]
    assert [text.get_color() for text in axes[0].texts] == [FAINT, BLUE, INK]
    assert axes[0].get_xlim() == axes[1].get_xlim()
    legend = axes[0].figure.legends[0]
    assert [text.get_text() for text in legend.get_texts()] == ["TV", "LV", "no lift"]


def test_a_pipe_that_overflows_is_red():
    ax = draw_flow(SameCoin, DRAFT, TARGET, 2, "abc")
    # One candidate passes with .7, so each token is asked for 1.3 times.
    assert {"0.260 / 0.200", "0.390 / 0.300", "0.260 / 0.500"} <= set(texts(ax))
    assert ax.get_title() == "SameCoin: overflows where it is red"
    red = [line for line in ax.lines if line.get_color() == tint(RED, 0.6)]
    assert len(red) == 2
