"""Chapter 03: 4 blanks to fill. Grade them with

    python tests/grade.py 03

and ask for a hint with `python tests/grade.py 03 --hint NAME`. Replace each
`raise NotImplementedError` by your own lines; a blank that you leave empty disturbs no other.
"""

import torch
from dual_draft_routing import confidence

# Which rows stay? The root and the `budget` nodes with the best cumulative scores.
# About 2 lines, 5 minutes.
# Example: scores 0, -1, -2, -1.5, -2, budget 3 -> [0, 1, 2, 3]


def best_nodes(scores, budget):
    """The rows of the root and of the `budget` best nodes, in rising order.

    scores: one cumulative log-score a row, the root first; equal scores go to the earlier row.

    Example: the scores 0, -1, -2, -1.5, -2 with budget 3 keep the rows 0, 1, 2, 3.
    """
    raise NotImplementedError("not yet: best_nodes")


# One number for a tree: the mean of c = exp(s) over its drafted nodes.
# About 2 lines, 5 minutes.
# Example: path probabilities .8, .6, .1 -> 0.5


def mean_confidence(scores):
    """mu_h, the mean of c over the retained nodes, in [0, 1]; 0 for a tree that is only a root.

    scores: as for best_nodes. Source: section 5.
    Example: three nodes with the path probabilities .8, .6, .1 make mu = .5.
    """
    raise NotImplementedError("not yet: mean_confidence")


# These tokens were committed. Who must hear of it?
# About 1 line, 4 minutes.
# Example: head 2 was chosen; tokens (5 2), rows (0 3) are committed: what each head was told ->
#   [[[[5, 2], [0, 3]]], [[[5, 2], [0, 3]]]]


def observe(self, tokens, hidden, rows):
    """These tokens were committed; hidden[layer][:, rows] are the target's states of them."""
    raise NotImplementedError("not yet: observe")


# Which head's tree is verified? The one with the larger mean; the first on a tie.
# About 1 line, 3 minutes.
# Example: mu = [0.5, 0.4] -> 0


def route(statistics):
    """h* = argmax over the heads of mu_h; the first head on a tie. Source: section 5."""
    raise NotImplementedError("not yet: route")
