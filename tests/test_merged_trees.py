"""Chapter 04: the union of two trees, verified once; exact, equal prefixes included."""

import importlib

import pytest
import torch

from exact import check_as_good_as_new, wrong_variants
from merged_trees import (
    MergedDrafter,
    TrieDrafter,
    accept_paths,
    block_mask,
    distinct_prefixes,
    merge,
    phi,
    prefixes,
)
from nanogpt.exact.toy_models import random_nodes
from nanogpt.sampling import Dice, Sampler
from test_dual_draft_routing import (
    PROMPT,
    SAMPLERS,
    exact_bias,
    head_drafters,
    ragged_pair,
    started,
    toy_pair,
)
from tree_attention import Tree, walk

WRONG = importlib.import_module("04_merged_trees.wrong").WRONG


def random_tree(seed, vocab=3, size=9):
    return Tree(*random_nodes(seed, vocab, size))


# ---------------------------------------------------------------- the merge


@pytest.mark.parametrize("seed", range(8))
def test_invariants_of_the_merge(seed):
    first, second = random_tree(seed, size=2 + seed), random_tree(seed + 100, size=7)
    union, n = merge(first, second), len(first) - 1
    assert len(union) == 1 + n + len(second) - 1 and union.tokens[0] == first.tokens[0]
    assert torch.equal(union.mask, block_mask(first, second))
    # Disjoint below the root: no row sees a row of the other tree.
    assert not union.mask[1:n + 1, n + 1:].any() and not union.mask[n + 1:, 1:n + 1].any()
    assert union.mask[:, 0].all()
    assert union.depths.tolist() == first.depths.tolist() + second.depths.tolist()[1:]
    # Every root path of either tree is there, under its remapped row.
    for row, path in enumerate(prefixes(second)):
        assert prefixes(union)[phi(row, n)] == path
    assert prefixes(union)[:n + 1] == prefixes(first)


# ---------------------------------------------------------------- acceptance


def frontier_walk(tree, target_probs, dice):
    """The walk on the tree itself, whole frontier of matching nodes: the reference."""
    frontier, length = [0], 0
    tokens = tree.tokens.tolist()
    while True:
        token = dice.draw(target_probs[frontier[0]])
        below = [c for node in frontier for c in tree.children[node] if tokens[c] == token]
        if not below:
            return length, token
        frontier, length = below, length + 1


def probs_by_prefix(tree, seed, vocab=3, greedy=False):
    """Equal prefixes have equal distributions, as the mask guarantees."""
    rows = []
    for path in prefixes(tree):
        generator = torch.Generator().manual_seed(seed * 7919 + hash(path) % 100_003)
        probs = torch.rand(vocab, generator=generator, dtype=torch.float64)
        rows.append(torch.eye(vocab)[probs.argmax()] if greedy else probs / probs.sum())
    return torch.stack(rows)


@pytest.mark.parametrize("greedy", [True, False])
def test_path_matrix_acceptance_is_the_walk_on_the_tree(greedy):
    """Random trees, most of them with equal siblings; same dice, same tokens."""
    lengths = []
    for seed in range(150):
        pair = random_tree(seed), random_tree(seed + 1000, size=6)
        tree = merge(*pair)
        probs = probs_by_prefix(tree, seed, greedy=greedy)
        path, token = accept_paths(tree, probs, Dice(seed))
        length, expected = frontier_walk(tree, probs, Dice(seed))
        assert (len(path) - 1, token) == (length, expected)
        # It accepts exactly what the better of the two trees would have accepted.
        assert length == max(frontier_walk(one, probs_by_prefix(one, seed, greedy=greedy),
                                           Dice(seed))[0] for one in pair)
        assert tree.parents[path].tolist() == [-1, *path[:-1]]
        lengths.append(length)
    assert max(lengths) >= 3 and min(lengths) == 0


@pytest.mark.parametrize("sampler", SAMPLERS, ids=str)
def test_merging_is_exactly_lossless(sampler):
    def bias(drafter, accept, rounds=1):
        return exact_bias(lambda dice: drafter, sampler, rounds, accept=accept)

    assert bias(MergedDrafter(toy_pair(budget=3)), accept_paths, rounds=2) < 1e-12
    assert bias(MergedDrafter(ragged_pair()), accept_paths) < 1e-12
    # Both heads the same: every prefix stands in both subtrees.
    assert bias(MergedDrafter(toy_pair(budget=3, seeds=(8, 8))), accept_paths) < 1e-12
    trie = TrieDrafter(toy_pair(budget=4), 4)
    assert bias(trie, accept_paths) < 1e-12
    assert bias(trie, walk, rounds=2) < 1e-12


@pytest.mark.parametrize("name, sentence", wrong_variants(WRONG, "accept_paths", but=(
    "only the first matching child is followed",  # shorter, and lossless
    "-1 is taken for a row, so a path that has ended goes on in the last one")), ids=str)  # rare
def test_wrong_rules_are_caught(name, sentence):
    for seeds in (8, 9), (8, 8):
        pair = toy_pair(budget=3, seeds=seeds)
        for sampler in (Sampler(1), Sampler(0.7, top_p=0.9)):
            assert exact_bias(lambda dice, p=pair: MergedDrafter(p), sampler, 1, 3,
                              accept=WRONG[name][sentence]) > 0.02


# ---------------------------------------------------------------- the drafters


def test_what_the_drafters_make_of_both_trees():
    """Side by side: one tree, then the other. As a trie with room for all: every prefix of either
    head, once; the first head's alone would be too few. With less room: the best of them all."""
    pair = toy_pair(budget=4)
    for drafter in pair:
        started(drafter.head, PROMPT)
    trees, scores = zip(*(drafter.propose_scored(2, 9) for drafter in pair), strict=True)
    first, second = (prefixes(tree)[1:] for tree in trees)
    assert set(first) - set(second) and set(second) - set(first)  # else it would say nothing
    assert prefixes(MergedDrafter(pair).propose(2, 9))[1:] == [*first, *second]
    assert distinct_prefixes(TrieDrafter(pair, 8).propose(2, 9)) == {*first, *second}
    score = {}
    for path, value in [*zip(first, scores[0][1:], strict=True),
                        *zip(second, scores[1][1:], strict=True)]:
        score[path] = max(value, score.get(path, value))
    for budget in (1, 3, 4):
        best = set(sorted(score, key=score.get, reverse=True)[:budget])
        trie = TrieDrafter(pair, budget).propose(2, 9)
        assert distinct_prefixes(trie) == best and len(trie) == 1 + budget  # no prefix twice


def test_after_every_commit_both_drafters_are_as_good_as_new():
    check_as_good_as_new(lambda: MergedDrafter(head_drafters()), accept=accept_paths)
    check_as_good_as_new(lambda: TrieDrafter(head_drafters(), 9))
