"""Merged trees: both heads' guesses in one tree, verified at once.

    draft    both heads grow a tree below the same root, and the two become one: a trie, in which
             equal prefixes share a row, or the union side by side, the second tree behind the first
    verify   one forward over it: the mask and the positions of any tree
    accept   the target's token is drawn once for each prefix; whoever guessed it moves on
    commit   the rows of one accepted path; both heads advance

Chapter 03 chose one tree before the target had said anything. Here nothing is chosen: in every
step the union accepts what the better of the two trees would have accepted.

Source of the union side by side: "TAPS: Task Aware Proposal Distributions for Speculative
Sampling", arXiv 2603.27027, and its code, Moe-Zbeeb/TAPS, `ea_model_dual.py`: shifted indices
(`phi`), a mask with a block for each tree, paths with -1 behind their end (`path_matrix`). The trie
is the token tree merge of Miao et al., "SpecInfer" (2023), Definition 3.2.
"""

import torch

from dual_draft_routing import BothHeads, check_counts  # chapter 03
from tree_attention import Tree  # chapter 02

# ---------------------------------------------------------------- the trie: a row for each prefix


def prefixes(tree):
    """The token path of each node from the root down, a list of tuples; the root's is ()."""
    paths = [()]
    for token, parent in list(zip(tree.tokens.tolist(), tree.parents.tolist(), strict=True))[1:]:
        paths.append(paths[parent] + (token,))
    return paths


def distinct_prefixes(tree):
    """The token paths of all nodes, a set of tuples; the root's is left out.

    Example: the tree 0 -> 1 -> 2 with the tokens s, a, b gives {(a,), (a, b)}.
    """
    return set(prefixes(tree)[1:])


def trie_merge(trees, scores, budget):
    """One tree of the best prefixes of all trees, each prefix in one row.

    trees: one or more below the same root, as large as their heads made them; scores: for each tree
    the list of its nodes' cumulative log-scores, 0.0 for the root; budget: draft nodes of the
    result -> Tree, scores (a list).

    Example: below the root, one tree guesses b, the other b and c: three nodes, two in the trie.
    With budget 3 there is room for the next best node of either tree.
    """
    best = {}  # prefix -> the better of its scores
    for tree, tree_scores in zip(trees, scores, strict=True):
        for prefix, score in zip(prefixes(tree), tree_scores, strict=True):
            best[prefix] = max(score, best.get(prefix, score))
    # The best ones are again a tree: no parent scores below its child, in either tree. Of equal
    # scores the parent comes first, for it was met first, and sorting keeps that order.
    kept = sorted(best, key=best.get, reverse=True)[:1 + budget]  # the root () costs no budget
    row = {prefix: i for i, prefix in enumerate(kept)}
    tokens = [int(trees[0].tokens[0])] + [prefix[-1] for prefix in kept[1:]]
    parents = [-1] + [row[prefix[:-1]] for prefix in kept[1:]]
    return Tree(tokens, parents), [best[prefix] for prefix in kept]


# ---------------------------------------------------------------- the union side by side


def phi(row, n_first):
    """The row in the union of a node that stands in row `row` of the second tree.

    n_first: draft nodes of the first tree, the root not counted -> int
    Example with n_first = 3: row 1 -> 4.
    """
    # phi(0) = 0: both trees have one root. phi(i) = n_1 + i: the others stand behind the first
    # tree's n_1 draft nodes.
    return 0 if row == 0 else n_first + row


def merge(first, second):
    """Two trees below one root -> their union, N = 1 + n_1 + n_2 rows, first tree first."""
    n_first = len(first) - 1
    # The union's parents: rows of the first tree keep theirs; in the second tree the parents move
    # as the rows do. [1:] drops the second root, which is the same token as the first.
    moved = [phi(parent, n_first) for parent in second.parents.tolist()[1:]]
    # Mask, depths and positions follow from the parents, as for any tree. The mask gets a block for
    # each tree on the diagonal, the root's column before them, and nothing between them.
    return Tree(torch.cat([first.tokens, second.tokens[1:]]), first.parents.tolist() + moved)


def path_matrix(tree):
    """The paths from the root to the leaves, one in each row.

    -> (leaves, 1 + greatest depth) long: row numbers of the tree, -1 behind the end of a path.
    Example: the chain 0 -> 1 -> 2 and the leaf 0 -> 3 give [[0, 1, 2], [0, 3, -1]].
    """
    # A leaf is a node without children, and each leaf ends exactly one path.
    leaves = [row for row, below in enumerate(tree.children) if not below]
    matrix = torch.full((len(leaves), 1 + int(tree.depths.max())), -1)  # (L, D)
    for i, row in enumerate(leaves):
        while row >= 0:  # climb from the leaf; the root's parent is -1
            matrix[i, tree.depths[row]] = row
            row = int(tree.parents[row])
    return matrix


# ---------------------------------------------------------------- acceptance


def accept_paths(tree, target_probs, dice):
    """Which drafts of a union are accepted, at any temperature.

    tree: N nodes, in which siblings may carry the same token; target_probs (N, V): row i is the
    target's distribution of the token after node i -> path, a list of rows that starts with 0; the
    next token.
    Example: the children of the root are rows 1 and 4, both with token 7. If the target draws 7,
    both stay candidates, and its next draw decides between them.
    """
    paths = path_matrix(tree)  # (L, D); all of them are alive, for all begin with the root
    depth = 0
    while True:
        # The living paths carry the same tokens so far, so the mask shows their nodes the same
        # text, and their target distributions are equal: any of their rows will do.
        row = int(paths[0, depth])
        # subtle: draw ONCE for the prefix, not once for each subtree. A second draw would be a
        # second chance for the longer path. At temperature 0 the draw is the argmax.
        token = dice.draw(target_probs[row])
        depth += 1
        alive = paths[:, depth] if depth < paths.shape[1] else torch.full((len(paths),), -1)  # (L,)
        # A path that has ended holds -1 here, which as an index would mean the last node.
        matches = (alive >= 0) & (tree.tokens[alive.clamp(min=0)] == token)
        if not matches.any():
            return paths[0, :depth].tolist(), token  # nobody has it: it is the next root
        paths = paths[matches]  # in whichever subtree they stand


def draw_in_both_keep_longer(n_first):
    """NOT lossless, a warning: walk in each subtree with draws of its own, keep the longer path.

    n_first: draft nodes of the first tree -> an accept rule.
    """
    def accept(tree, target_probs, dice):
        results = []
        for mine in (lambda row: row <= n_first, lambda row: row > n_first):
            path = [0]
            while True:
                # The mistake: for a prefix that both subtrees hold, the target draws twice.
                token = dice.draw(target_probs[path[-1]])
                matching = [c for c in tree.children[path[-1]]
                            if mine(c) and int(tree.tokens[c]) == token]
                if not matching:
                    break
                path.append(matching[0])
            results.append((path, token))
        # And a path is kept because it is long, so drafted tokens are written too often.
        return max(results, key=lambda result: len(result[0]))

    return accept


# ---------------------------------------------------------------- drafters for chapter 02's loop


class MergedDrafter(BothHeads):
    """Both heads' trees side by side: as many draft nodes as both drafters' budgets together.

    For two drafters, no more.
    """

    def propose(self, root, room):
        (first, second), _ = self.propose_both(root, room)
        return merge(first, second)


class TrieDrafter(BothHeads):
    """The trie of both heads' trees, cut to `budget` nodes in all; budget as for trie_merge."""

    def __init__(self, drafters, budget):
        check_counts(budget=budget)  # now, not in the first step
        super().__init__(drafters)
        self.budget = budget

    def propose(self, root, room):
        # Each drafter has the whole budget, so that there is enough to refill from.
        trees, scores = self.propose_both(root, room)
        return trie_merge(trees, scores, self.budget)[0]
