"""A tree that knows its price: its size is the best one, and nothing is lost by choosing it."""

import importlib

import numpy as np
import pytest
import torch

from ddtree import best_first, marginal_children
from exact import ToyDraft, ToyModel, loop_bias, wrong_variants
from nanogpt.sampling import Sampler
from priced_trees import (
    PricedChainDrafter,
    PricedTreeDrafter,
    prices,
    slopes,
    worth_verifying,
)
from test_ddtree import ToyBlock
from tree_attention import TreeDrafter, speculate

wrong = importlib.import_module("05_ddtree.wrong")
WRONG = wrong.WRONG

# ---------------------------------------------------------------- how many nodes


def check_best(worth):
    """On small cases, ties and steps among them, the choice is the maximum of the objective."""
    for seed in range(300):
        random = np.random.default_rng(seed)
        masses = sorted(random.integers(0, 9, random.integers(0, 6)) / 8, reverse=True)
        price = random.integers(1, 9, random.integers(2, 7)) / 4  # eighths and quarters are exact
        price = price if seed % 3 else np.sort(price)
        rate, trust = random.choice([0.25, 0.5, 1.0]), random.choice([0.5, 1.0, 2.0])
        nodes = [(token, token - 1, mass) for token, mass in enumerate(masses)]
        gains = [trust * sum(masses[:n]) - rate * price[n]
                 for n in range(min(len(masses), len(price) - 1) + 1)]
        assert worth(iter(nodes), price, slopes(price), rate, trust) == nodes[:np.argmax(gains)]


def test_the_choice_is_the_best_by_brute_force():
    check_best(worth_verifying)


@pytest.mark.parametrize("name, sentence", wrong_variants(WRONG, "worth_verifying"))
def test_wrong_choices_are_caught(name, sentence):
    with pytest.raises(AssertionError):
        check_best(WRONG[name][sentence])


@pytest.mark.parametrize("curve, log_probs, chosen", [
    ({1: 2.0, 64: 2.0}, [[0.5, 0.5]] * 4, 30),  # rows are free: up to the heap's end
    ({1: 2.0, 8: 2.0, 9: 99.0}, [[0.5, 0.5]] * 4, 7),  # and up to the wall
    ({1: 2.0, 41: 74.0}, [[0.95, 0.05]] * 4, 2),  # steep: a chain, ...
    ({1: 2.0, 41: 86.0}, [[0.95, 0.05]] * 4, 0),  # ... or nothing
    ({1: 2.0, 41: 22.0}, [[0.6, 0.4]], 2), ({1: 2.0, 41: 22.0}, [], 0)])  # one slot; no slot
def test_the_price_of_a_row_decides(curve, log_probs, chosen):
    nodes = best_first(0, marginal_children(torch.tensor(log_probs).reshape(-1, 2).log()))
    price = prices(curve, 40)
    assert len(worth_verifying(nodes, price, slopes(price), rate=0.5)) == chosen


# ---------------------------------------------------------------- losslessness


@pytest.mark.parametrize("sampler", [Sampler(1), Sampler(0.7, top_p=0.8)], ids=str)
def test_trees_by_price_lose_nothing(sampler):
    sizes = set()

    def start(target, dice):
        drafter = PricedTreeDrafter(ToyBlock(4, slots=2), [1, 1.1, 1.25, 1.45, 1.7, 2.0], 0.3)
        for step in speculate(target, drafter, [0, 1], sampler, dice):
            sizes.add(step.drafted)
            yield step

    assert loop_bias(start, sampler, rounds=2) < 1e-12
    assert len(sizes) > 2


@pytest.mark.parametrize("sampler", [Sampler(1), Sampler(0.6)], ids=str)
def test_drawn_chains_by_price_lose_nothing(sampler):
    bias, lengths = wrong.chain_bias(PricedChainDrafter.draft, sampler)
    assert bias < 1e-12 and len(lengths) > 1  # the second's length depends on the first's luck


@pytest.mark.parametrize("name, sentence", wrong_variants(WRONG, "draft"))
def test_a_chain_cut_before_a_draft_is_biased_and_behind_it_is_not(name, sentence):
    assert wrong.chain_bias(WRONG[name][sentence], Sampler(1))[0] > 0.05
    assert wrong.chain_bias(wrong.LENGTHS["ends after it"], Sampler(1))[0] < 1e-12


# ---------------------------------------------------------------- the past


def rounds(drafter, accepted, count):
    """The sizes of `count` rounds, in each of which so many drafts are accepted."""
    drafter.reset()
    drafter.observe([0, 1], None, [0, 1])  # the prefill
    sizes = []
    for _ in range(count):
        sizes.append(len(drafter.propose(0, 9)) - 1)
        rows = list(range(1 + min(accepted, sizes[-1])))
        drafter.observe([0] * len(rows), None, rows)
    return sizes


def test_a_drafter_that_does_not_pay_pauses_and_tries_again():
    sizes = rounds(PricedTreeDrafter(ToyBlock(1, slots=2), [1, 1, 1], 10), 0, 300)
    passes = [i for i, size in enumerate(sizes) if size]
    assert passes[0] == 0 and 2 < len(passes) < 8


def test_luck_makes_longer_chains():
    price = [1, 1.5, 2.0, 2.5, 3.0]
    unlucky, lucky = (
        rounds(PricedChainDrafter(TreeDrafter(ToyDraft(ToyModel(1, 3)), ()), price, 0), n, 30)
        for n in (0, 9))
    assert max(unlucky[5:]) < min(lucky[5:]) == 4
