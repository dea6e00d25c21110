"""Chapter 05: the heap's tree is the best one, its size by price, too, and nothing is lost."""

import importlib
import itertools

import numpy as np
import pytest
import torch

import ddtree
import merged_trees
from block_diffusion import BlockConfig, BlockDrafter
from conditional_marginals import BlockLevels, ConditionalTreeDrafter, decode_conditional
from ddtree import (
    BlockChainDrafter,
    DDTreeDrafter,
    best_first,
    best_first_tree,
    decode_ddtree,
    marginal_children,
    surrogate,
)
from exact import (
    GPTModel,
    ToyDraft,
    ToyModel,
    check_as_good_as_new,
    loop_bias,
    random_gpt,
    wrong_variants,
)
from grading import Script
from nanogpt.decoding import collect
from nanogpt.exact.slips import replaced
from nanogpt.exact.trees import best_mass
from nanogpt.sampling import Dice, Sampler
from ngram import LookupDrafter
from priced_trees import (
    PricedChainDrafter,
    PricedTreeDrafter,
    prices,
    slopes,
    worth_verifying,
)
from tree_attention import TreeDrafter, speculate

wrong = importlib.import_module("05_ddtree.wrong")
WRONG = wrong.WRONG


def random_marginals(seed, length, vocab, ties=False):
    """log q_1..q_L; with ties, probabilities are multiples of 1/8, so many prefixes are equal."""
    generator = torch.Generator().manual_seed(seed)
    if not ties:
        logits = torch.randn(length, vocab, generator=generator, dtype=torch.float64)
        return torch.log_softmax(logits, -1)
    counts = torch.ones(length, vocab)
    counts += torch.bincount(
        torch.randint(length * vocab, (8 * length,), generator=generator),
        minlength=length * vocab,
    ).view(length, vocab)
    return (counts / counts.sum(-1, keepdim=True)).double().log()


def prefixes(tree):
    """The nodes of a tree as token tuples, the root left out, in row order."""
    return merged_trees.prefixes(tree)[1:]


def surrogate_and_best(log_probs, budget):
    """The surrogate of the heap's tree, and the largest of any tree, by trying all."""
    tree = ddtree.best_first_tree(0, marginal_children(log_probs), budget)
    best = best_mass(lambda u: float(sum(log_probs[i, t] for i, t in enumerate(u)).exp()),
                     *log_probs.shape, budget)
    return surrogate(tree, log_probs), best


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("length, vocab", [(2, 2), (2, 3), (3, 2)])
def test_the_heap_is_optimal_by_brute_force(length, vocab, ties):
    for seed, budget in itertools.product(range(4), (1, 2, 3, 4, 5)):
        log_probs = random_marginals(seed, length, vocab, ties)
        found, best = surrogate_and_best(log_probs, budget)
        assert found == pytest.approx(best, abs=1e-12)


@pytest.mark.parametrize("name, sentence", wrong_variants(
    WRONG, "child_score", "sibling_score", "best_first", but=(
        "the root comes out as a node",  # which makes no tree
        "a score comes out where the mass should")), ids=str)  # and the tree is the same
def test_wrong_heaps_are_caught(name, sentence):
    with replaced(ddtree, **{name: WRONG[name][sentence]}):
        pairs = [surrogate_and_best(random_marginals(seed, 2, 3), budget)
                 for seed in range(4) for budget in (3, 4, 5)]
    assert max(best - found for found, best in pairs) > 0.01


def test_zero_probabilities_do_not_disturb_the_order():
    log_probs = torch.tensor([[1.0, 0, 0], [0.5, 0.5, 0]]).log()
    assert prefixes(best_first_tree(0, marginal_children(log_probs), 3)) == [(0,), (0, 0), (0, 1)]
    assert len(prefixes(best_first_tree(0, marginal_children(log_probs), 12))) == 12


def test_surrogate_is_the_expected_acceptance_length():
    """E[alpha_T] by summing over every continuation (Proposition 1)."""
    for seed in range(5):
        log_probs = random_marginals(seed, 3, 3)
        tree = best_first_tree(0, marginal_children(log_probs), 3 + 2 * seed)
        nodes = set(prefixes(tree))
        expected = 0.0
        for y in itertools.product(range(3), repeat=3):
            probability = float(sum(log_probs[i, t] for i, t in enumerate(y)).exp())
            expected += probability * sum(y[:d] in nodes for d in (1, 2, 3))
        assert surrogate(tree, log_probs) == pytest.approx(expected, abs=1e-12)


# ---------------------------------------------------------------- losslessness


class ToyBlock(ToyDraft):
    """Random marginals for every text, as one pass would give them."""

    def __init__(self, seed, budget=99, slots=3):
        super().__init__(ToyModel(seed, 3))
        self.budget, self.slots = budget, slots

    def children(self, root, room):
        rows = [self.model.logits((*self.text, root, slot))
                for slot in range(min(self.slots, room))]
        return marginal_children(torch.stack(rows).log_softmax(-1))

    def propose(self, root, room):
        return best_first_tree(root, self.children(root, room), self.budget)


@pytest.mark.parametrize("temperature, budget, rounds", [
    (0, 9, 2), (0.7, 1, 2), (1, 4, 2), (1, 9, 1), (0.7, 30, 1)])
def test_output_distribution_is_the_targets_exactly(temperature, budget, rounds):
    for sampler in (Sampler(temperature), Sampler(temperature, top_p=0.8)):
        bias = loop_bias(lambda target, dice, s=sampler: speculate(
            target, ToyBlock(4, budget), [0, 1], s, dice), sampler, rounds, 4, ToyModel(11, 3))
        assert bias < 1e-12


def random_drafter(target, seed, length=4, n_layer=2, transition=False):
    torch.manual_seed(seed)
    config = BlockConfig(length, n_layer, (0, 1, 2), transition=transition)
    drafter = BlockDrafter(target, config).double().eval()
    for parameter in drafter.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return drafter


@pytest.mark.parametrize("sampler", [Sampler(1), Sampler(0.7, top_p=0.8)], ids=str)
def test_the_output_distribution_of_real_networks_is_the_targets_exactly(sampler):
    target = random_gpt(1, vocab=3)
    network = random_drafter(target, 1)
    assert loop_bias(lambda _, dice: decode_ddtree(target, network, 6, [1, 2, 0], sampler, dice),
                     sampler, 1, 4, GPTModel(target), [1, 2, 0]) < 1e-12


# ---------------------------------------------------------------- the drafters


DRAFTERS = {
    "DDTree": lambda network: DDTreeDrafter(network, 40),
    "chain": BlockChainDrafter,
    "top tree": lambda network: TreeDrafter(BlockLevels(network), (4, 3, 2)),
    "text so far": lambda network: LookupDrafter(40),
}


@pytest.mark.parametrize("name", DRAFTERS)
def test_after_every_commit_a_drafter_is_as_good_as_new(name):
    """Bugs here would cost tokens, not exactness. The text slides out of the window of 32."""
    target = random_gpt(1)
    network = random_drafter(target, 1)
    check_as_good_as_new(lambda: DRAFTERS[name](network), target)


MARGINALS = torch.tensor([[0.1, 0.6, 0.3], [0.5, 0.1, 0.4], [0.2, 0.3, 0.5]]).log()


def test_what_is_drafted_from_marginals_by_hand(monkeypatch):
    """The best prefixes have .6, .6 * .5 or .3, and .6 * .4; a chain takes each slot's best token,
    or draws it from the slot's own marginal."""
    network, dice = random_drafter(random_gpt(0), 0), Script([2, 0, 1])

    def drafted(drafter, room=3):
        monkeypatch.setattr(drafter, "marginals", lambda root, room: MARGINALS[:room])
        return prefixes(drafter.propose(7, room))

    for budget in (1, 3, 4):
        best = [(1,), (1, 0), (2,), (1, 2)][:budget]
        assert set(drafted(DDTreeDrafter(network, budget))) == set(best)
    for room in (0, 1, 3):
        assert drafted(BlockChainDrafter(network), room) == [(1,), (1, 0), (1, 0, 2)][:room]
    drawn = drafted(BlockChainDrafter(network, Sampler(1, top_k=2), dice))
    assert drawn == [(2,), (2, 0), (2, 0, 1)]
    assert dice.asked == [[0, 0.6667, 0.3333], [0.5556, 0, 0.4444], [0, 0.375, 0.625]]


@pytest.mark.parametrize("decode, make", [
    (decode_ddtree, DDTreeDrafter), (decode_conditional, ConditionalTreeDrafter)])
@pytest.mark.parametrize("temperature", [0, 1.5])
def test_the_drafters_temperature_follows_the_targets(decode, make, temperature):
    target, sampler = random_gpt(1), Sampler(temperature)
    network = random_drafter(target, 1, transition=True)

    def trees(steps):
        return [prefixes(step.detail.tree) for step in collect(steps, 12).steps]

    def of(drafter):
        return trees(speculate(target, drafter, [1, 2, 3], sampler, Dice(0)))

    ours = trees(decode(target, network, 9, [1, 2, 3], sampler, Dice(0)))
    assert ours == of(make(network, 9, {0: 0.5, 1.5: 1.25}[temperature]))
    assert ours != of(make(network, 9, 1.0))


# ---------------------------------------------------------------- trees by price: how many nodes


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


def test_prices_never_fall():
    assert prices({1: 3.0, 2: 2.0, 4: 6.0, 5: 5.0}, 5) == [2, 2, 4, 5, 5, 5]


# ---------------------------------------------------------------- trees by price: losslessness


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


# ---------------------------------------------------------------- trees by price: the past


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
