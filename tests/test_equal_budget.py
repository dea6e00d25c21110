"""Chapter 02: chain against trees at the same number of draft tokens, who is ahead and why."""

import matplotlib
import pytest
import torch

from experiments.equal_budget import (
    SHAPES,
    ahead,
    chain_and_best_tree,
    draft_tokens,
    draw_uncertainty,
    print_winners,
    round_in_words,
    shape_name,
)
from nanogpt.contest import tau_uncertainty
from nanogpt.decoding import Generation, Step
from nanogpt.pictures import plots
from tree_attention import TreeBigram, TreeDrafter

matplotlib.use("Agg")


def test_shapes_hold_their_budget_and_the_drafter_fills_it():
    assert draft_tokens((2, 2, 1)) == 10
    assert [shape_name(s) for s in ((1, 1, 1), (2, 1), (1, 2))] == [
        "chain 3", "tree 2-1", "tree 1-2"]
    model = TreeBigram(torch.arange(400) * 7 % 11, 11)
    for budget, shapes in SHAPES.items():
        assert shape_name(shapes[0]) == f"chain {budget}"
        for shape in shapes:
            assert draft_tokens(shape) == budget
            assert len(TreeDrafter(model, shape).propose(1, room=99)) == 1 + budget


def test_chain_and_best_tree():
    def runs(tokens, seconds):  # 2 steps, a fifth of each spent on drafting
        steps = [Step([0] * tokens, 4, {"draft": 0.2 * seconds, "verify": 0.8 * seconds})] * 2
        return [Generation([0] * (1 + 2 * tokens), steps, 2 * seconds)]

    results = {"plain": runs(1, 1.0), "chain 4": runs(2, 1.25), "tree 2-1": runs(3, 1.25),
               "tree 4": runs(2, 1.0)}
    (budget, pair), = chain_and_best_tree(results, {1: 1000.0, 9: 2000.0}).items()
    assert (budget, pair["tree"]["name"], pair["tree"]["tau"]) == (4, "tree 2-1", 3)
    assert pair["chain"]["speedup"] == pytest.approx(1.6)
    assert pair["chain"]["predicted"] == pytest.approx(2 * 1000 / (1500 + 250))


def test_a_round_in_words_has_its_times_and_their_quotient():
    def text(brought, seconds):
        return [Generation([0] * (1 + sum(brought)), [Step([0] * n, 4, seconds) for n in brought],
                           1.0)]

    rounds = text([2, 4], {"draft": 0.002, "verify": 0.006, "accept": 0.001, "commit": 0.001})
    told = round_in_words(rounds, text([1, 1], {"verify": 0.005}), 4)
    assert "10.0 ms, as long as 2.00 plain steps of 5.0 ms: 2.0 ms of drafting" in told
    assert "5 rows in 6.0 ms" in told and "3.00 / 2.00 = 1.50, not 3.00" in told
    assert "The clock said 3.00:" in told  # 6 tokens in a second beside 2
    assert tau_uncertainty(rounds) == pytest.approx(2)  # 2 and 4: deviation 2 ** 0.5, 2 steps
    ax, _ = plots.draw_sweep({"tree": ([4], [3.0], [1.5])}, "drafts")
    bar, = draw_uncertainty(ax, {("tree", 4): rounds}).collections
    assert [point.tolist() for point in bar.get_segments()[0]] == [[4, 1], [4, 5]]


def test_one_is_ahead_if_the_mean_is_two_standard_errors_away(capsys):
    def texts(*taus, seconds=1.0):  # a prompt each; 10 steps
        return [Generation([0] * (1 + 10 * tau), [None] * 10, seconds) for tau in taus]

    chain = texts(2, 2, 2)
    assert ahead(texts(4, 4, 5), chain, "tau") == 1
    assert ahead(chain, texts(4, 4, 5), "tau") == -1
    assert ahead(texts(1, 2, 4), chain, "tau") == 0  # twice or half: no mean, all noise
    assert ahead(texts(3, 3, 3), texts(2, 2, 2), "tau") == 1  # no noise at all
    assert ahead(chain, chain, "tau") == 0
    assert ahead(texts(4, 4, 5, seconds=9), chain, "tokens_per_second") == -1
    print_winners({("toy, tree", 4): texts(4, 4, 5, seconds=9), ("toy, chain", 4): chain,
                   ("toy, tree", 8): texts(1, 2, 4), ("toy, chain", 8): chain}, ["toy"], (4, 8))
    assert [line.split() for line in capsys.readouterr().out.splitlines()[2:]] == [
        ["toy", "tokens", "4", "-", "8"], ["toy", "clock", "-", "4", "8"]]
