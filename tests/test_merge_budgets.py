"""Chapter 04: the numbers behind the plot of the lesson, small enough to check by hand."""

import matplotlib
import pytest
import torch

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402

from dual_draft_routing import HeadDrafter, mean_confidence, route  # noqa: E402
from experiments.merge_budgets import (  # noqa: E402
    drafted_trees,
    estimated_speedup,
    measure,
    methods,
    priced,
    print_speedups,
)
from experiments.merge_pictures import draw_price_of_rows  # noqa: E402
from experiments.same_rounds import (  # noqa: E402
    accepted,
    best_part,
    equal_rows,
    print_gaps,
    recorded_rounds,
)
from merged_trees import merge, prefixes, trie_merge  # noqa: E402
from nanogpt.decoding import Generation, Step  # noqa: E402
from nanogpt.sampling import Sampler  # noqa: E402
from test_chain_specdec import random_gpt  # noqa: E402
from test_dual_draft_routing import random_heads  # noqa: E402


def generations(draft_ms, drafted, brought=(2, 4)):
    """One text whose rounds bring so many tokens, each with the same drafting."""
    steps = [Step([0] * n, drafted, seconds={"draft": draft_ms / 1e3}) for n in brought]
    return [Generation([0] * (1 + sum(brought)), steps, 1.0)]


def test_a_gap_stands_beside_two_standard_errors(capsys):
    print_gaps({"T = 0": {"routed, 2": [1, 2, 3, 2], "merged, 1 + 1": [1, 0, 3, 0]},
                "T = 1": {"routed, 2": [0, 1], "merged, 1 + 1": [1, 2]}})
    head, _, first, second = capsys.readouterr().out.splitlines()
    assert head.split()[-6:] == ["T", "=", "0", "T", "=", "1"]
    assert first.split() == ["routed,", "2", "2.00", "0.50"]
    # The gaps are 0, -2, 0, -2: deviation (4 / 3) ** 0.5, 4 rounds.
    assert second.split()[4:] == ["-1.00", "+-", "1.15", "+1.00", "+-", "0.00"]


def test_a_smaller_budget_is_the_best_part_of_a_larger_one():
    target = random_gpt(1)
    for head in random_heads(target, 1):
        head.reset()
        head.observe([1], target(torch.tensor([[1, 2]]))[1], [0])
        small, _ = HeadDrafter(head, budget=4).propose_scored(2, 9)
        tree, scores = HeadDrafter(head, budget=8).propose_scored(2, 9)
        assert prefixes(best_part(tree, scores, 4)) == prefixes(small)


def test_three_ways_to_fill_the_same_rows_in_the_same_rounds():
    target = random_gpt(1)
    heads, prompts = random_heads(target, 1), [[1, 2], [2, 1]]
    kept = equal_rows(target, heads, Sampler(1), prompts, 8, 25)
    assert list(kept) == ["routed, 8", "merged, 4 + 4", "trie-merged, 8"]
    recorded = list(recorded_rounds(target, heads, Sampler(1), prompts, 8, 25))
    assert len(recorded) > 6 and {len(lengths) for lengths in kept.values()} == {len(recorded)}
    for i, (trees, scores, tokens) in enumerate(recorded):
        reach = [accepted(tree, tokens) for tree in trees]
        assert kept["routed, 8"][i] == reach[route([mean_confidence(s) for s in scores])]
        assert max(lengths[i] for lengths in kept.values()) <= max(reach) <= len(tokens) - 1
    halves = [accepted(merge(*(best_part(t, s, 4) for t, s in zip(trees, scores, strict=True))),
                       tokens) for trees, scores, tokens in recorded]
    tries = [accepted(trie_merge(trees, scores, 8)[0], tokens)
             for trees, scores, tokens in recorded]
    assert (kept["merged, 4 + 4"], kept["trie-merged, 8"]) == (halves, tries)


def test_only_the_named_methods_are_measured():
    target = random_gpt(1)
    results = measure(target, random_heads(target, 1), Sampler(0), [[1, 2]],
                      ["plain", "merged, 2 + 2"], budget=2, max_new_tokens=6)
    assert list(results) == ["plain", "merged, 2 + 2"]
    assert results["plain"][0].tokens == results["merged, 2 + 2"][0].tokens


def test_the_fastest_has_a_star(capsys):
    """Rows at .125, 3 and 4 tokens: 1.5 and 4 / 3, with drafting 1 and 4 / 3.5."""
    lines = {"head 1, 8": (3, 8, 1), "routed, 16": (4, 16, 0.5)}
    assert estimated_speedup(lines["head 1, 8"], 0.125) == 1
    assert estimated_speedup(lines["head 1, 8"], 0.125, 0) == 1.5
    print_speedups(lines, 0.125, {"head 1, 8": generations(1, 8, (3, 3)),
                                  "routed, 16": generations(1, 16, (3, 5))})
    *rows, _, told = capsys.readouterr().out.splitlines()[2:]
    assert "costs 12.5%" in told and "are 2.00 at most" in told
    rows = [line.split() for line in rows]
    assert rows == [["nothing", "3.00x", "*", "4.00x"], ["rows", "*", "1.50x", "1.33x"],
                    ["drafting", "1.50x", "*", "2.67x"],
                    ["rows", "and", "drafting", "1.00x", "*", "1.14x"]]


def test_methods_are_grouped_by_the_trees_that_they_draft():
    target = random_gpt(1)
    names = list(methods(target, random_heads(target, 1), Sampler(1), 8))[1:]
    groups = {name: drafted_trees(name) for name in names}
    assert groups["routed, 8"] == groups["merged, 8 + 8"] == groups["trie-merged, 8"]
    assert groups["routed, 16"] == groups["trie-merged, 16"] == ("both heads", "16")
    assert groups["merged, 4 + 4"] == ("both heads", "4")
    assert groups["head 1, 8"] == ("head 1", "8") != groups["head 2, 8"]
    assert groups["head 1, 8"] != groups["head 1, 16"]


def test_the_same_trees_have_the_same_price():
    lines = priced({"plain": generations(0, 0), "head 1, 8": generations(2, 8),
                    "routed, 8": generations(3, 8), "merged, 8 + 8": generations(5, 16, (3, 5)),
                    "trie-merged, 16": generations(6, 16)}, plain_ms=4.0)
    assert list(lines) == ["head 1, 8", "routed, 8", "merged, 8 + 8", "trie-merged, 16"]
    expected = {"head 1, 8": (3, 8, 0.5), "routed, 8": (3, 8, 1), "merged, 8 + 8": (4, 16, 1),
                "trie-merged, 16": (3, 16, 1.5)}
    assert all(lines[name] == pytest.approx(line) for name, line in expected.items())


def test_the_plot_begins_at_tau_and_falls_with_the_price_of_a_row():
    lines = {"head 1, 8": (2.0, 8.0, 0.5), "routed, 8": (2.4, 8.0, 1.0),
             "trie-merged, 16": (3.0, 16.0, 1.0)}
    free, paid = draw_price_of_rows(lines, here=0.08)
    for ax, at_zero in ((free, [2, 2.4, 3]), (paid, [2 / 1.5, 1.2, 1.5])):
        curves = ax.get_lines()[:3]
        assert [line.get_label() for line in curves] == list(lines)
        assert [line.get_linestyle() for line in curves] == ["-", "-", "--"]
        assert [line.get_ydata()[0] for line in curves] == pytest.approx(at_zero)
        assert ax.get_lines()[3].get_xdata()[0] == pytest.approx(8)  # percent
        assert ax.get_lines()[0].get_xdata()[-1] == pytest.approx(10)
    # The last price is .1: 3 / (1 + 16 * .1), and with drafting 3 / (1 + 16 * .1 + 1).
    assert free.get_lines()[2].get_ydata()[-1] == pytest.approx(3 / 2.6)
    assert paid.get_lines()[2].get_ydata()[-1] == pytest.approx(3 / 3.6)
    plt.close("all")
