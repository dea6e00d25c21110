"""The pictures of lesson 05: the drawn heap is the taught one, the numbers are those given."""

import matplotlib
import pytest
import torch

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.patches import Rectangle  # noqa: E402

from ddtree import best_first_tree, marginal_children, node_masses  # noqa: E402
from experiments.ddtree_pictures import (  # noqa: E402
    DRAWN,
    decoders,
    draw_break_even,
    draw_drafter,
    draw_frontier,
    draw_gain,
    draw_slot_views,
    gain_in_words,
    places_of,
    predictions,
    replay,
    rows_and_taus,
    uncertainty,
)
from nanogpt.bench import compare, speedup, tau_uncertainty  # noqa: E402
from nanogpt.sampling import Sampler  # noqa: E402
from test_chain_specdec import random_gpt  # noqa: E402
from test_ddtree import prefixes, random_drafter, random_marginals  # noqa: E402

Q = [[0.5, 0.4, 0.1], [0.7, 0.2, 0.1], [0.6, 0.3, 0.1]]


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def texts(ax):
    return [text.get_text() for text in ax.texts]


@pytest.mark.parametrize("seed", range(3))
def test_the_drawn_heap_pops_what_the_taught_one_adds(seed):
    log_probs = random_marginals(seed, 3, 4).sort(-1, descending=True).values
    tree = best_first_tree(0, marginal_children(log_probs), 9)
    popped, waiting = replay(log_probs.exp().tolist(), 9)[-1]
    assert [ranks for _, ranks in popped] == prefixes(tree)
    assert [mass for mass, _ in popped] == pytest.approx(node_masses(tree, log_probs).tolist())
    assert max(mass for mass, _ in waiting) <= min(mass for mass, _ in popped)


def test_the_heap_pushes_at_most_two_for_each_pop_and_ends_when_it_is_empty():
    for pops, (popped, waiting) in enumerate(replay(Q, 99), 1):
        assert len(popped) == pops and pops + len(waiting) <= 2 * pops + 1
    assert pops == 3 + 9 + 27 and not waiting


def test_the_frontier_shows_masses_the_order_of_the_pops_and_the_worth():
    axes = draw_frontier(Q, "abc", after=(1, 5))
    assert [ax.get_title() for ax in axes] == [
        "after 1 pop: worth 0.50", "after 5 pops: worth 1.74"]
    assert {"a .50", "b .40", "a .35"} < set(texts(axes[0])) and "c .10" not in texts(axes[0])
    assert {"1", "2", "3", "4", "5", "a .17", "c .10"} < set(texts(axes[1]))
    bold = [text.get_text() for text in axes[0].texts if text.get_fontweight() == "bold"]
    assert sorted(bold) == ["1", "b .40"]
    draw_frontier(Q, "abc", after=(7, 39))  # all is popped: nothing waits


def test_a_parent_stands_midway_between_its_children():
    places = places_of([(0,), (1,), (0, 0), (0, 1)])
    assert places[0, 0] == (2, 0) and places[0, 1] == (2, 1)
    assert places[(0,)] == (1, 0.5) and places[(1,)] == (1, 2)
    assert places[()] == (0, 1.25)


def test_the_drafter_is_drawn_with_its_own_numbers():
    probs = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.25, 0.25, 0.25, 0.25]])
    ax = draw_drafter([0, 1, 2], probs.log(), lambda token: "wxyz"[token])
    assert texts(ax).count("m") == 2  # a mask for each slot
    assert {"$q_1$", "$q_2$", ".40", ".30", ".25", "fuse"} < set(texts(ax))
    assert [text for text in texts(ax) if text in list("wxy")][:3] == ["w", "x", "y"]  # the context
    # One scale: a bar is as long as its probability, in whatever slot.
    bars = [bar.get_width() for bar in ax.patches if isinstance(bar, Rectangle)]
    assert [width / bars[0] for width in bars] == pytest.approx(
        [1, 0.75, 0.5, 0.25] + [0.25 / 0.4] * 4)


def test_the_views_of_a_slot_share_a_scale():
    sure, flat = torch.tensor([0.1, 0.8, 0.1]), torch.tensor([0.4, 0.3, 0.3])
    axes = draw_slot_views({"sure": sure, "flat": flat}, lambda token: "abc"[token], most=2)
    assert axes[0].get_xlim() == axes[1].get_xlim()
    assert [bar.get_width() for bar in axes[0].patches] == pytest.approx([0.8, 0.1])
    assert [label.get_text() for label in axes[1].get_yticklabels()][0] == "a"


def test_the_break_even_line_and_the_dots_are_what_was_measured():
    lines = {"plain": {"drafted": 0.0, "tau": 1.0}, "DDTree, B=7": {"drafted": 7.0, "tau": 3.2}}
    assert rows_and_taus(lines, ["DDTree, B=7"]) == ([8.0], [3.2])
    ax = draw_break_even({1: 1.2, 8: 1.6}, {"T = 0": ([8], [3.2]), "T = 1": ([8], [2.1])})
    assert [list(line.get_ydata()) for line in ax.lines] == [[1.2, 1.6], [3.2], [2.1]]
    assert ax.get_ylim()[1] > 3.2


def test_what_budgets_bring_is_drawn_and_said():
    target = random_gpt(0)
    methods = decoders(target, random_drafter(target, 0, transition=True), Sampler(1), [2, 4])
    tables = {1.0: compare(methods, [[1, 2], [3, 0]], 6)}
    left, right = draw_gain(tables, [2, 4], 2)
    assert left.get_legend_handles_labels()[1] == ["DDTree, T=1", "its own chain, T=1"]
    assert len(right.containers) == 2  # with their bars
    assert list(left.get_xticks()) == list(right.get_xticks()) == [2, 4]  # what was measured
    said = gain_in_words(tables, [2, 4])
    fast = speedup(tables[1.0]["DDTree, B=4"], tables[1.0]["plain"])
    line = predictions(tables, [2, 4], {1: 2.0, 8: 2.0})[1]
    assert line[::2] == ["T=1, B=4", "2.00", f"{fast:.2f}x"]
    assert said[0].startswith("T=1: chain, tau") and said[-1].startswith("Tau comes from 12 tokens")
    assert uncertainty(tables) == max(map(tau_uncertainty, tables[1.0].values()))
    assert f"up to {uncertainty(tables):.2f} either way" in said[-1]


def test_drawn_drafts_take_part_only_above_temperature_0():
    target = random_gpt(0)
    block = random_drafter(target, 0, transition=True)
    cold, warm = (decoders(target, block, Sampler(t), [4, 7]) for t in (0.0, 1.0))
    assert set(warm) - set(cold) == {DRAWN}
    assert "conditional DDTree, B=7" in cold and "conditional DDTree, B=4" not in cold
