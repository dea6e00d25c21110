"""Chapter 04: the union of two trees, equal prefixes included, and what its drafters make of it.

Exactness, greedy text and wrong variants of the table's loops: tests/test_loops.py.
"""

import pytest
import torch

import merging_room
from merged_trees import (
    MergedDrafter,
    TrieDrafter,
    accept_paths,
    distinct_prefixes,
    merge,
    prefixes,
    trie_merge,
)
from nanogpt.exact.enumeration import outcomes
from nanogpt.exact.toy_models import ToyModel, random_nodes
from nanogpt.sampling import Dice, Sampler
from test_dual_draft_routing import (
    PROMPT,
    started,
    toy_pair,
)
from tree_attention import Tree, walk


def random_tree(seed, vocab=3, size=9):
    return Tree(*random_nodes(seed, vocab, size))


# ---------------------------------------------------------------- the merge


@pytest.mark.parametrize("seed", range(8))
def test_a_union_is_one_tree_then_the_other_and_neither_sees_the_other(seed):
    first, second = random_tree(seed, size=2 + seed), random_tree(seed + 100, size=7)
    union = merge(first, second)
    assert prefixes(union) == prefixes(first) + prefixes(second)[1:]
    mask = torch.block_diag(torch.ones(1, 1), first.mask[1:, 1:], second.mask[1:, 1:]).bool()
    mask[:, 0] = True  # every row sees the root
    assert torch.equal(union.mask, mask)


# ---------------------------------------------------------------- acceptance


@pytest.mark.parametrize("heads, forget, comes_out", [
    (1, False, (.5, .3, .2)), (2, False, (.5, .3, .2)), (2, True, (.5, .38, .12))])
def test_two_heads_draws_are_judged_by_the_whole_q(heads, forget, comes_out):
    """The table of RESULTS.md, and what the lesson's test convicts."""
    sampler = merging_room.judged(*torch.tensor([[.5, .3, .2], [.8, .1, .1]]), heads, forget)
    written = [0.0] * 3
    for token, share in outcomes(lambda dice: sampler(dice, 0, 0)):
        written[token] += share
    assert written == pytest.approx(comes_out, abs=1e-6)


def test_a_die_that_nobody_looks_at_is_no_fault():
    assert merging_room.judge(*merging_room.VERSIONS["the trie, a die wasted"], 1) < 1e-9


@pytest.mark.parametrize("sampler", [Sampler(0), Sampler(1)], ids=str)
def test_path_matrix_acceptance_is_the_walk_on_the_trie(sampler):
    """Random trees, most of them with equal siblings; same dice, same tokens."""
    model, lengths = ToyModel(5, vocab=3), []

    def judged(accept, tree, seed):  # equal prefixes have equal distributions
        probs = torch.stack([sampler(model.logits(path)) for path in prefixes(tree)])
        path, token = accept(tree, probs, Dice(seed))
        assert tree.parents[path].tolist() == [-1, *path[:-1]]
        return len(path) - 1, token

    def trie(*trees):  # of all prefixes
        return trie_merge(trees, [(-tree.depths).tolist() for tree in trees], 99)[0]

    for seed in range(150):
        pair = random_tree(seed), random_tree(seed + 1000, size=6)
        length, token = judged(accept_paths, merge(*pair), seed)
        assert (length, token) == judged(walk, trie(*pair), seed)
        # It accepts exactly what the better of the two trees would have accepted.
        assert length == max(judged(walk, trie(one), seed)[0] for one in pair)
        lengths.append(length)
    assert max(lengths) >= 3 and min(lengths) == 0


# ---------------------------------------------------------------- the drafters


def test_what_the_drafters_make_of_both_trees():
    """Side by side: one tree, then the other. As a trie: the best of all that each head, with the
    whole budget, has guessed."""
    pair = toy_pair(budget=4)
    for drafter in pair:
        started(drafter.head, PROMPT)
    trees, scores = zip(*(drafter.propose_scored(2, 9) for drafter in pair), strict=True)
    first, second = (prefixes(tree)[1:] for tree in trees)
    assert set(first) - set(second) and set(second) - set(first)  # else it would say nothing
    assert prefixes(MergedDrafter(pair).propose(2, 9))[1:] == [*first, *second]
    assert distinct_prefixes(TrieDrafter(pair, 8).propose(2, 9)) == {*first, *second}
    for budget in (1, 3, 4):
        assert prefixes(TrieDrafter(pair, budget).propose(2, 9)) == prefixes(
            trie_merge(trees, scores, budget)[0])
