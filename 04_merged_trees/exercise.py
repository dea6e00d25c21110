"""Chapter 04: 2 blanks to fill. Grade them with

    python tests/grade.py 04

ask for a hint with `--hint NAME`, for a stronger one with `--hint NAME --more`, and, when some are
done, see them decode beside the taught ones with `--run`. Replace each `raise NotImplementedError`
by your own lines; a blank that you leave empty disturbs no other.

* dice.draw(probs) draws a token, an int, from probs (V,), which need not add up to 1;
  dice.flip(a) is True with probability a.
* a tree has N rows, parents before children; row 0, the root, is a token of the text.
  tree.tokens, .parents (-1 for the root) and .depths are (N,); .mask (N, N) is True where the
  column is the row itself or an ancestor of it; .children[row] is the list of its children's
  rows; .draft_probs (N, V) may be None.
* path_matrix(tree): The paths from the root to the leaves, one in each row. -> (leaves, 1 +
  greatest depth) long: row numbers of the tree, -1 behind the end of a path.
* prefixes(tree): The token path of each node from the root down, a list of tuples; the root's
  is ().
"""

import torch
from merged_trees import path_matrix, prefixes
from tree_attention import Tree

# *** Several heads, or one, drafted a tree each below the same root. Make one tree of their
# best `budget` prefixes, each prefix in one row; the root costs no budget. A prefix that
# several heads guessed has the best of its scores; of equal scores any may stay, but none
# without its parent. prefixes(tree) gives the token path of every row, in order: [(), (1,), (1,
# 2)]; the root's is the empty one. Tree(tokens, parents) takes two lists, an entry for each
# row, a parent before its children, -1 as the root's parent. Return the Tree and a list with
# the score of each of its rows.
# About 9 lines, 15 minutes.
# Example: s-a-b, s-a-c and s-a-d, s-e with the probabilities a .6, b .4, c .1 and a .8, d .5, e
#   .3; budget 3 -> {the root's token: 9, (): 1, (1,): 0.8, (1, 4): 0.5, (1, 2): 0.4}


def trie_merge(trees, scores, budget):
    """One tree of the best prefixes of all trees, each prefix in one row.

    trees: one or more below the same root, as large as their heads made them; scores: for each tree
    the list of its nodes' cumulative log-scores, 0.0 for the root; budget: draft nodes of the
    result -> Tree, scores (a list).

    Example: below the root, one tree guesses b, the other b and c: three nodes, two in the trie.
    With budget 3 there is room for the next best node of either tree.
    """
    raise NotImplementedError("not yet: trie_merge")


# ** Go down all paths of the union at once. In each step the target draws one token for the
# tokens that the remaining paths share so far, and only the paths that carry it next remain. If
# none does, the path ends here and the drawn token is the next token. path_matrix(tree) gives
# the paths from the root to each leaf, for instance [[0, 1, 2], [0, 4, -1]]; -1 is no row.
# Return the accepted path, a list of rows that starts with 0, and the next token. Where both
# trees hold the accepted path, either one will do.
# About 10 lines, 10 minutes.
# Example: tokens (9 1 2 3 1 4 5), parents (-1 0 1 1 0 4 0), the target says 1, 4, 7: path, next
#   token, how often the dice were asked -> [[0, 4, 5], 7, 3]


def accept_paths(tree, target_probs, dice):
    """Which drafts of a union are accepted, at any temperature.

    tree: N nodes, in which siblings may carry the same token; target_probs (N, V): row i is the
    target's distribution of the token after node i -> path, a list of rows that starts with 0; the
    next token.
    Example: the children of the root are rows 1 and 4, both with token 7. If the target draws 7,
    both stay candidates, and its next draw decides between them.
    """
    raise NotImplementedError("not yet: accept_paths")


# make_exercises.py knows by this line whether you have written here: 1ff47958f4a3
