"""Chapter 04: 3 blanks to fill. Grade them with

    python tests/grade.py 04

and ask for a hint with `python tests/grade.py 04 --hint NAME`. Replace each
`raise NotImplementedError` by your own lines; a blank that you leave empty disturbs no other.
"""

import torch

# Where does a row of the second tree stand in the union?
# About 1 line, 3 minutes.
# Example: row 1, n_first = 3 -> 4


def phi(row, n_first):
    """Where row `row` of the second tree stands in the union: the root stays, all others shift.

    n_first: draft nodes of the first tree, root not counted. Section 4.1.
    Example with n_first = 3: 0 -> 0, 1 -> 4, 2 -> 5, 3 -> 6.
    """
    raise NotImplementedError("not yet: phi")


# One row for each leaf, in the order of the leaves' rows: the path from the root to it, -1
# behind its end.
# About 7 lines, 10 minutes.
# Example: parents (-1, 0, 1, 1, 0, 4, 0) -> [[0, 1, 2], [0, 1, 3], [0, 4, 5], [0, 6, -1]]


def path_matrix(tree):
    """R_U of section 4.4: one row for each leaf, the path from the root to it, -1 behind its end.

    -> (paths, 1 + greatest depth) long; every row starts with 0.
    Example: the chain 0 -> 1 -> 2 and the leaf 0 -> 3 give [[0, 1, 2], [0, 3, -1]].
    """
    raise NotImplementedError("not yet: path_matrix")


# Walk the columns of the path matrix: draw the target's token once for the prefix that all
# living paths share, and keep the paths that carry it.
# About 10 lines, 15 minutes.
# Example: tokens (9 1 2 3 1 4 5), parents (-1 0 1 1 0 4 0), the target says 1, 4, 7: path, next
#   token, how often the dice were asked -> [[0, 4, 5], 7, 3]


def accept_paths(tree, target_probs, dice):
    """Acceptance over the rows of the path matrix, greedy and sampled alike (section 6).

    tree: N nodes, in which siblings may carry the same token; target_probs (N, V)
    -> path, a list of rows starting with 0; the next token.
    """
    raise NotImplementedError("not yet: accept_paths")
