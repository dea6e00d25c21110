"""Merged trees: both heads' trees, verified at once.

    draft    both heads grow a tree below the same root; the second tree is shifted behind the first
    verify   one forward over the union: a block-structured mask, positions by depth
    accept   the target's tokens are drawn once for each prefix; every node that carries that
             prefix moves on, in whichever tree it stands
    commit   the rows of one accepted path; both heads advance

Chapter 03 chose one tree before the target had said anything. Here nothing is chosen: in every
step the union accepts what the better of the two trees would have accepted. The price is a wider
verification.

Source: "Merged-Tree Dual Drafting: Verify the Union Once" (2026). Its phi is `phi`, pi_U the
merged parents, M_U the merged mask, R_U `path_matrix`, n_1 and n_2 the draft nodes of the trees.
"""

import torch

from dual_draft_routing import BothHeads, best_nodes, check_counts, keep_rows  # chapter 03
from tree_attention import Tree  # chapter 02

# ---------------------------------------------------------------- the merge


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


def block_mask(first, second):
    """The article's mask M_U, written as blocks, (N, N) bool.

    `merge(first, second).mask` must equal it.
    """
    mask = torch.block_diag(torch.ones(1, 1), first.mask[1:, 1:], second.mask[1:, 1:]).bool()
    mask[:, 0] = True  # every row sees the root
    return mask


def path_matrix(tree):
    """The paths from the root to the leaves, one in each row (the article's matrix R_U).

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
    """Which drafts of a union stay, at any temperature.

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


# ---------------------------------------------------------------- equal prefixes share a node


def trie_merge(trees, scores, budget):
    """The union as a trie: equal prefixes share one node, and the freed budget is refilled.

    trees: two or more below the same root, as large as their heads made them; scores: for each tree
    the list of its nodes' cumulative log-scores; budget: draft nodes of the result.
    -> Tree, scores (a list).

    Example: a -> b and a -> b, c have three draft nodes side by side, and two in the trie (b, c).
    With budget 3 there is room for the next best node of either tree.
    """
    tokens, parents, best = [int(trees[0].tokens[0])], [-1], [0.0]
    rows = {}  # (row of the parent in the trie, token) -> row in the trie
    for tree, tree_scores in zip(trees, scores, strict=True):
        place = [0]  # row in this tree -> row in the trie
        nodes = zip(tree.tokens.tolist(), tree.parents.tolist(), tree_scores, strict=True)
        for token, parent, score in list(nodes)[1:]:
            key = place[parent], token  # a parent's place is known: it stands in an earlier row
            if key not in rows:  # the first tree with this prefix
                rows[key] = len(tokens)
                tokens.append(token)
                parents.append(place[parent])
                best.append(score)
            # Of two scores the better one. So no parent falls below its child: in the tree that
            # gave the child its score, the parent's score was at least as high.
            best[rows[key]] = max(best[rows[key]], score)
            place.append(rows[key])
    # Hence the `budget` best nodes are again a tree. Shared nodes leave room for others.
    return keep_rows(tokens, parents, best, best_nodes(best, budget))


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
