"""Conditional marginals: the heap by token is optimal, sampled drafts lose nothing, bugs show."""

import itertools

import pytest
import torch

from block_diffusion import BlockDraft
from conditional_marginals import (
    BlockLevels,
    Children,
    ConditionalTreeDrafter,
    decode_sampled,
)
from ddtree import best_first_tree, marginal_children
from exact import GPTModel, check_as_good_as_new, loop_bias, outcomes, random_gpt
from nanogpt.exact.trees import best_mass
from nanogpt.sampling import Dice, Sampler
from test_ddtree import prefixes, random_drafter
from tree_attention import TreeDrafter, multi_round, speculate


def random_slots(seed, length, vocab):
    """h (L, V) and W (L, V, V) of a pass, float64."""
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(length, vocab, generator=generator, dtype=torch.float64),
            torch.randn(length, vocab, vocab, generator=generator, dtype=torch.float64))


def probability(h, W, root, prefix, temperature=1.0):
    """q(u_1 .. u_d) by the definition, one factor after the other."""
    total, before = 1.0, root
    for slot, token in enumerate(prefix):
        total *= float(torch.softmax((h[slot] + W[slot, before]) / temperature, -1)[token])
        before = token
    return total


def tree_of(h, W, root, budget, temperature=1.0):
    children = Children(h.numpy(), W.numpy(), temperature, budget)
    return best_first_tree(root, children, budget)


# ---------------------------------------------------------------- the heap


@pytest.mark.parametrize("shape", [(2, 2), (2, 3), (3, 2)], ids=str)
def test_the_heap_is_optimal_by_brute_force(shape):
    """No prefix-closed set of B nodes has more mass than the heap's tree."""
    length, vocab = shape
    for seed, budget in itertools.product(range(4), (1, 2, 3, 5)):
        h, W = random_slots(seed, length, vocab)

        def mass(prefix, h=h, W=W, root=seed % vocab):
            return probability(h, W, root, prefix)

        found = prefixes(tree_of(h, W, seed % vocab, budget))
        best = best_mass(mass, length, vocab, budget)
        assert sum(map(mass, found)) == pytest.approx(best, abs=1e-12)


def test_without_transitions_it_is_algorithm_1():
    h, W = random_slots(3, 4, 6)
    for budget in (1, 5, 30):
        paper = best_first_tree(1, marginal_children(torch.log_softmax(h, -1)), budget)
        assert prefixes(tree_of(h, 0 * W, 1, budget)) == prefixes(paper)


# ---------------------------------------------------------------- losslessness


def drawn_bias(sampler, branching, make=TreeDrafter):
    """Total variation between text from drafts that a real network draws and the target's own."""
    target = random_gpt(1, vocab=3)
    network = random_drafter(target, 1, transition=True)
    network.transition.data *= 5  # the token before decides
    levels = BlockLevels(network)
    return loop_bias(lambda _, dice: speculate(
        target, make(levels, branching, sampler, dice), [1, 2, 0], sampler, dice, multi_round),
        sampler, 1, 4, GPTModel(target), [1, 2, 0])


@pytest.mark.parametrize("branching", [(1, 1, 1), (2, 1), (3,)], ids=str)
def test_sampled_drafts_lose_nothing(branching):
    """Chains under the p/q rule, trees under multi-round rejection."""
    for sampler in (Sampler(1), Sampler(0.5, top_k=2), Sampler(0.8, top_p=0.8)):
        assert drawn_bias(sampler, branching) < 1e-12


class Misreporting(TreeDrafter):
    """Draws from the conditionals, and tells the accept rule the marginals of the slots."""

    def propose(self, root, room):
        marginals = self.model.marginals(root, room).exp()
        tree = super().propose(root, room)
        tree.draft_probs = marginals[tree.depths.clamp(max=len(marginals) - 1)]
        return tree


def test_a_wrong_draft_distribution_is_noticed():
    assert drawn_bias(Sampler(1), (1, 1, 1), Misreporting) > 0.01


def test_a_drawn_draft_is_judged_by_p_over_q():
    """It is kept with the sum of min(p, q), exactly; the walk would keep it with the sum of p q."""
    target, sampler = random_gpt(1, vocab=3), Sampler(1)
    network = random_drafter(target, 1, transition=True)

    def first_round(dice):
        steps = decode_sampled(target, network, (1,), [1, 2, 0], sampler, dice)
        return [next(steps) for _ in range(2)][1].detail

    kept = by_ratio = by_walk = 0.0
    for drawn, probability in outcomes(first_round):
        p, q = drawn.target_probs[0], drawn.tree.draft_probs[0]
        kept += probability * (len(drawn.path) - 1)
        by_ratio += probability * float(torch.minimum(p, q).sum())
        by_walk += probability * float(p @ q.double())
    assert kept == pytest.approx(by_ratio, abs=1e-6) and by_walk < 0.9 * kept


# ---------------------------------------------------------------- on the network


def observed(draft, text, pieces):
    """The draft after reading the text in pieces, a pass behind each but the last."""
    _, hidden = draft.network.target(torch.tensor([text]))
    start = 0
    for size in pieces:
        rows = list(range(start, start + size))
        draft.observe([text[i] for i in rows], hidden, rows)
        start += size
        if start < len(text):
            draft.logits(text[start], 30)
    return draft


def test_a_drafter_forgets_its_rounds():
    """After any commits it proposes what a fresh one proposes that reads the whole text."""
    target = random_gpt(1)
    network = random_drafter(target, 1, transition=True)
    check_as_good_as_new(lambda: ConditionalTreeDrafter(network, 30), target)
    check_as_good_as_new(lambda: TreeDrafter(
        BlockLevels(network), (3, 2), Sampler(1), Dice(3)), target, multi_round)


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_marginals_are_the_conditionals_summed(temperature):
    target = random_gpt(2, block_size=64)
    network, text = random_drafter(target, 5, length=3, transition=True), [1, 5, 2, 7]
    h, W = observed(BlockDraft(network), text, [4]).logits(6, 30), network.transition.detach()
    marginals = observed(BlockDraft(network, temperature), text, [4]).marginals(6, 30).exp()
    for slot in range(3):
        summed = torch.zeros(11, dtype=torch.float64)
        for prefix in itertools.product(range(11), repeat=slot):
            before = prefix[-1] if prefix else 6
            step = torch.softmax((h[slot] + W[slot, before]) / temperature, -1)
            summed += probability(h, W, 6, prefix, temperature) * step
        torch.testing.assert_close(marginals[slot], summed, rtol=0, atol=1e-6)


def test_bad_input():
    target = random_gpt(0)
    levels = observed(BlockLevels(random_drafter(target, 0, 2, transition=True)), [1, 5], [2])
    for tokens in ([3], [4]):
        levels.level(tokens, [-1] if tokens == [3] else [0])
    with pytest.raises(ValueError, match="deeper than the 2 slots"):
        levels.level([5], [1])
