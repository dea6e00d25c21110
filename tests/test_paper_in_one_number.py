"""The paper's Table 1 as it is stored, and the one number fitted to it."""

import matplotlib

matplotlib.use("Agg")

from statistics import median

import pytest

from experiments.paper_in_one_number import (
    CHATS,
    Row,
    by_model_and_method,
    draw_paper,
    paper_rows,
    price_of_a_round,
    residuals,
)


def row(speedup, tau):
    return Row(0.0, "a", "b", "DDTree", speedup, tau)


def test_the_table_is_complete():
    """60 settings, each with DFlash and DDTree; DDTree is better in every one (section 5.2)."""
    rows = paper_rows()
    settings = {(r.temperature, r.dataset, r.model) for r in rows}
    assert len(rows) == 120 and len(settings) == 60
    of = {(r.temperature, r.dataset, r.model, r.method): r for r in rows}
    for setting in settings:
        chain, tree = of[(*setting, "DFlash")], of[(*setting, "DDTree")]
        assert tree.speedup > chain.speedup and tree.tau > chain.tau


def test_speedup_over_tau():
    """What the chapter says of it: between 0.57 and 0.78, lowest on the two chat sets."""
    ratios = {r: r.speedup / r.tau for r in paper_rows()}
    assert min(ratios.values()) == pytest.approx(0.57, abs=0.005)
    assert max(ratios.values()) == pytest.approx(0.79, abs=0.01)
    medians = {dataset: median(v for r, v in ratios.items() if r.dataset == dataset)
               for dataset in {r.dataset for r in ratios}}
    assert set(sorted(medians, key=medians.get)[:2]) == set(CHATS)


def test_the_fit_by_hand():
    """Rows on one line give its slope; a row above it has a positive residual."""
    assert price_of_a_round([row(1.0, 1.5), row(4.0, 6.0)]) == pytest.approx(1.5)
    rows = [row(1.0, 1.5), row(2.2, 3.0)]
    price = price_of_a_round(rows)  # (2.25 + 9) / (1.5 + 6.6)
    assert price == pytest.approx(11.25 / 8.1)
    assert residuals(rows, price) == pytest.approx([-0.0741, 0.0185], abs=1e-4)


def test_a_round_costs_about_four_thirds_of_a_step():
    groups = by_model_and_method(paper_rows())
    prices = {key: price_of_a_round(rows) for key, rows in groups.items()}
    assert len(prices) == 6
    assert all(1.3 < price < 1.5 for price in prices.values())


def test_the_rows_of_conversations_are_hollow_and_below_their_lines():
    rows = paper_rows()
    for (_, method), group in by_model_and_method(rows).items():
        off = residuals(group, price_of_a_round(group))
        assert method == "DFlash" or all(
            x < 0 for r, x in zip(group, off, strict=True) if r.dataset in CHATS)
    hollow = {(r.tau, r.speedup) for r in rows if r.method == "DDTree" and r.dataset in CHATS}
    dots = [dots for dots in draw_paper(rows).collections if len(dots.get_offsets())]
    assert sum(len(d.get_offsets()) for d in dots) == 60
    assert {tuple(place) for d in dots if (d.get_facecolor()[0] == 1).all()
            for place in d.get_offsets().tolist()} == hollow


def test_the_picture_holds_our_points():
    ax = draw_paper(paper_rows(), {"ours, B=7": (3.0, 2.0)})
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert len(labels) == 4 and labels[3] == "ours, B=7: a round costs 1.50 steps"
