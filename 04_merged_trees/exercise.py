"""Chapter 04: 3 blanks to fill. Grade them with

    python tests/grade.py 04

and ask for a hint with `python tests/grade.py 04 --hint NAME`. Replace each
`raise NotImplementedError` by your own lines; a blank that you leave empty disturbs no other.
"""

import torch

# * In the union the rows of the first tree come first: the root, then its n_first draft nodes.
# Behind them stand the draft nodes of the second tree, in their old order. Its root is not
# stored again, because both trees have the same root. In which row of the union does row `row`
# of the second tree stand? You need Python alone. Return an int.
# About 1 line, 3 minutes.
# Example: row 1, n_first = 3 -> 4


def phi(row, n_first):
    """The row in the union of a node that stands in row `row` of the second tree.

    n_first: draft nodes of the first tree, the root not counted -> int
    Example with n_first = 3: row 1 -> 4.
    """
    raise NotImplementedError("not yet: phi")


# ** List the paths from the root to the leaves: one row for each leaf, in the order of the
# leaves' rows, the root's 0 first and -1 behind the end of a shorter path. You may use
# tree.children[row] (the rows of a node's children: [2, 3], or [] for a leaf),
# tree.parents[row] (the row of its parent, -1 for the root), tree.depths[row] (0 for the root,
# 1 for its children), len(tree) (the number of rows) and torch, for instance torch.full((2, 3),
# -1).
# About 7 lines, 10 minutes.
# Example: parents (-1, 0, 0, 2, 2) -> [[0, 1, -1], [0, 2, 3], [0, 2, 4]]


def path_matrix(tree):
    """The paths from the root to the leaves, one in each row (the article's matrix R_U).

    -> (leaves, 1 + greatest depth) long: row numbers of the tree, -1 behind the end of a path.
    Example: the chain 0 -> 1 -> 2 and the leaf 0 -> 3 give [[0, 1, 2], [0, 3, -1]].
    """
    raise NotImplementedError("not yet: path_matrix")


# *** Go down all paths of the union at once. In each step the target draws one token for the
# tokens that the remaining paths share so far, and only the paths that carry it next remain. If
# none does, the path ends here and the drawn token is the next token. You may call
# path_matrix(tree) (for instance [[0, 1, 2], [0, 4, -1]]; -1 is no row), tree.tokens[row] (the
# token of a node), target_probs[row] (the target's distribution (V,) of the token after that
# node) and dice.draw(probs) (a token: dice.draw of (0, 1, 0) is 1). Return the accepted path, a
# list of rows that starts with 0, and the next token. Where both trees hold the accepted path,
# either one will do.
# About 10 lines, 15 minutes.
# Example: tokens (9 1 2 3 1 4 5), parents (-1 0 1 1 0 4 0), the target says 1, 4, 7: path, next
#   token, how often the dice were asked -> [[0, 4, 5], 7, 3]


def accept_paths(tree, target_probs, dice):
    """Which drafts of a union stay, at any temperature.

    tree: N nodes, in which siblings may carry the same token; target_probs (N, V): row i is the
    target's distribution of the token after node i -> path, a list of rows that starts with 0; the
    next token.
    Example: the children of the root are rows 1 and 4, both with token 7. If the target draws 7,
    both stay candidates, and its next draw decides between them.
    """
    raise NotImplementedError("not yet: accept_paths")
