"""Merged trees: both heads' trees, verified at once.

    draft    both heads grow a tree below the same root; the second tree is shifted behind the first
    verify   one forward over the union: a block-structured mask, positions by depth
    accept   the target's tokens are drawn once for each prefix; every node that carries that
             prefix moves on, in whichever tree it stands
    commit   the rows of one accepted path; both heads advance

Chapter 03 chose a tree before it knew what the target would say. Here nothing is chosen: the union
accepts what the better of the two would have accepted, in every step, for a wider verification.

Source: "Merged-Tree Dual Drafting: Verify the Union Once" (2026). Its phi is `phi`, pi_U the
merged parents, M_U the merged mask, R_U `path_matrix`, n_1 and n_2 the draft nodes of the trees.
"""

import torch

from dual_draft_routing import BothHeads, best_nodes, keep_rows
from tree_attention import Tree

# ---------------------------------------------------------------- the merge


def phi(row, n_first):
    """Where row `row` of the second tree stands in the union: the root stays, all others shift.

    n_first: draft nodes of the first tree, root not counted. Section 4.1.
    Example with n_first = 3: 0 -> 0, 1 -> 4, 2 -> 5, 3 -> 6.
    """
    return 0 if row == 0 else n_first + row


def merge(first, second):
    """Two trees below one root -> their union, N = 1 + n_1 + n_2 rows, first tree first.

    Rows of the first tree keep their numbers, rows of the second are moved by phi, pointers
    included. Mask, depths and positions then follow from the parents, as for any tree: a block
    for each tree on the diagonal, the root's column before them, nothing between them.
    Raises ValueError if the roots differ.
    """
    if int(first.tokens[0]) != int(second.tokens[0]):
        raise ValueError(f"the roots are {int(first.tokens[0])} and {int(second.tokens[0])}; "
                         "two trees merge only below the same root")
    n_first = len(first) - 1
    moved = [phi(parent, n_first) for parent in second.parents.tolist()[1:]]
    return Tree(torch.cat([first.tokens, second.tokens[1:]]), first.parents.tolist() + moved)


def block_mask(first, second):
    """M_U of section 4.2, written as the blocks of the paper, (N, N) bool.

    Row 0 is the root; every row sees the root's column. `merge(...).mask` must equal it.
    """
    mask = torch.block_diag(torch.ones(1, 1), first.mask[1:, 1:], second.mask[1:, 1:]).bool()
    mask[:, 0] = True
    return mask


def path_matrix(tree):
    """R_U of section 4.4: one row for each leaf, the path from the root to it, -1 behind its end.

    -> (paths, 1 + greatest depth) long; every row starts with 0.
    Example: the chain 0 -> 1 -> 2 and the leaf 0 -> 3 give [[0, 1, 2], [0, 3, -1]].
    """
    leaves = [row for row, below in enumerate(tree.children) if not below]
    matrix = torch.full((len(leaves), 1 + int(tree.depths.max())), -1)
    for i, row in enumerate(leaves):
        while row >= 0:
            matrix[i, tree.depths[row]] = row
            row = int(tree.parents[row])
    return matrix


# ---------------------------------------------------------------- acceptance


def accept_paths(tree, target_probs, dice):
    """Acceptance over the rows of the path matrix, greedy and sampled alike (section 6).

    Column by column: the paths that are still alive all carry the same tokens so far, in whatever
    subtree they stand. Draw the target's token ONCE for that prefix; the paths whose next node
    carries it stay alive. When none does, the drawn token is the next root. At temperature 0 the
    draw is the argmax and the survivor is the path of the longest match.
    tree: N nodes, in which siblings may carry the same token; target_probs (N, V)
    -> path, a list of rows starting with 0; the next token.

    subtle: two nodes with the same prefix have the same target distribution, for the mask shows
    them the same text. So it does not matter in whose row the token is drawn, only that it is
    drawn once: a second draw would be a second chance for the longer path.
    """
    paths = path_matrix(tree)  # (L, D)
    depth = 0
    while True:
        row = int(paths[0, depth])  # any of the living paths: they agree up to here
        token = dice.draw(target_probs[row])
        depth += 1
        alive = paths[:, depth] if depth < paths.shape[1] else torch.full((len(paths),), -1)
        matches = (alive >= 0) & (tree.tokens[alive.clamp(min=0)] == token)
        if not matches.any():
            return paths[0, :depth].tolist(), token
        paths = paths[matches]


def draw_in_both_keep_longer(n_first):
    """NOT lossless, a warning: walk in each subtree with draws of its own, keep the longer.

    If both subtrees hold the same token under the same prefix, it gets two chances to be drawn,
    and a path is kept because it is long, so drafted tokens come out too often.
    n_first: draft nodes of the first tree -> an accept rule.
    """
    def accept(tree, target_probs, dice):
        results = []
        for mine in (lambda row: row <= n_first, lambda row: row > n_first):
            path = [0]
            while True:
                token = dice.draw(target_probs[path[-1]])
                matching = [c for c in tree.children[path[-1]]
                            if mine(c) and int(tree.tokens[c]) == token]
                if not matching:
                    break
                path.append(matching[0])
            results.append((path, token))
        return max(results, key=lambda result: len(result[0]))

    return accept


# ---------------------------------------------------------------- equal prefixes share a node


def trie_merge(trees, scores, budget):
    """The union as a trie: equal prefixes share one node, and the freed budget is refilled.

    trees: two or more below the same root, as large as their heads care to grow them; scores: for
    each tree the list of its nodes' cumulative log-scores; budget: draft nodes of the result.
    A shared node takes the better of its scores, so parents still never score below their
    children, and the `budget` best nodes are again a tree. -> Tree, scores (a list).
    Raises ValueError if budget < 1 or the roots differ.

    Example: a -> b and a -> b, c have three draft nodes side by side, and two in the trie (b, c).
    With budget 3 there is room for the next best node of either tree.
    """
    if budget < 1:
        raise ValueError(f"budget is {budget}; a tree needs at least 1 draft node")
    if len({int(tree.tokens[0]) for tree in trees}) > 1:
        raise ValueError("the roots differ; trees merge only below the same root")
    tokens, parents, best = [int(trees[0].tokens[0])], [-1], [0.0]
    rows = {}  # (row of the parent in the trie, token) -> row in the trie
    for tree, tree_scores in zip(trees, scores, strict=True):
        place = [0]  # row in this tree -> row in the trie
        nodes = zip(tree.tokens.tolist(), tree.parents.tolist(), tree_scores, strict=True)
        for token, parent, score in list(nodes)[1:]:
            key = place[parent], token
            if key not in rows:
                rows[key] = len(tokens)
                tokens.append(token)
                parents.append(place[parent])
                best.append(score)
            best[rows[key]] = max(best[rows[key]], score)
            place.append(rows[key])
    return keep_rows(tokens, parents, best, best_nodes(best, budget))


def distinct_prefixes(tree):
    """The set of token paths that the nodes stand for, the root's own left out."""
    paths = [()]
    for token, parent in list(zip(tree.tokens.tolist(), tree.parents.tolist(), strict=True))[1:]:
        paths.append(paths[parent] + (token,))
    return set(paths[1:])


# ---------------------------------------------------------------- drafters for chapter 02's loop


class MergedDrafter(BothHeads):
    """Both heads' trees side by side; the drafters' budgets add up to the verified draft nodes.

    For two drafters, no more.
    """

    def propose(self, root, room):
        first, second = (drafter.propose(root, room) for drafter in self.drafters)
        return merge(first, second)


class TrieDrafter(BothHeads):
    """The trie of both heads' trees, cut to `budget` nodes in all.

    drafters: two HeadDrafters, each with the whole budget, so that there is enough to refill from.
    Raises ValueError if budget < 1.
    """

    def __init__(self, drafters, budget):
        if budget < 1:
            raise ValueError(f"budget is {budget}; a tree needs at least 1 draft node")
        super().__init__(drafters)
        self.budget = budget

    def propose(self, root, room):
        trees, scores = self.propose_both(root, room)
        return trie_merge(trees, scores, self.budget)[0]
