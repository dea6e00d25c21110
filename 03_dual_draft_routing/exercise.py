"""Chapter 03: 3 blanks to fill. Grade them with

    python tests/grade.py 03

and ask for a hint with `python tests/grade.py 03 --hint NAME`. Replace each
`raise NotImplementedError` by your own lines; a blank that you leave empty disturbs no other.
"""

import torch
from dual_draft_routing import confidence

# * A head has drafted a tree, which needs one number: how confident is the head in the drafted
# nodes, on average? scores is a list, one cumulative log-score per node, the root first. You
# may call confidence(scores), which returns the list of c = exp(score) of all nodes but the
# root: it turns the scores 0, log .8, log .6 into .8, .6. A tree that is only a root has the
# number 0. Return a number.
# About 2 lines, 4 minutes.
# Example: path probabilities .8, .6, .1 -> 0.5


def mean_confidence(scores):
    """One number for a head's tree, in [0, 1]; 0 for a tree that is only a root.

    scores: one cumulative log-score per row, the root's 0.0 first.
    Example: three drafted nodes with the path probabilities .8, .6, .1 make .5.
    """
    raise NotImplementedError("not yet: mean_confidence")


# * Which head's tree is verified? statistics holds one number per head, two or more. Choose the
# head with the largest one, and of equal ones the first. Python alone will do, for instance
# max(numbers, key=...). Return the index of the head.
# About 1 line, 3 minutes.
# Example: mu = [0.5, 0.4] -> 0


def route(statistics):
    """Which head's tree is verified: its index; the first head on a tie.

    statistics: one number per head, two or more. Example: .5 and .4 choose head 0.
    """
    raise NotImplementedError("not yet: route")


# ** A tree is cut to its best nodes. scores holds a cumulative log-score for each row. Which
# rows stay? Row 0, the root, which costs no budget, and the `budget` drafted rows with the
# highest scores; of equal scores the earlier row. You may call sorted(rows, key=...), which
# keeps rows with equal keys in their order. Return the rows in rising order; there may be fewer
# than `budget` drafted rows.
# About 2 lines, 6 minutes.
# Example: scores 0, -1, -2, -1.5, -2, budget 3 -> [0, 1, 2, 3]


def best_nodes(scores, budget):
    """The rows of the root and of the `budget` best nodes, in rising order.

    scores: one cumulative log-score per row, the root first; equal scores go to the earlier row.

    Example: the scores 0, -1, -2, -1.5, -2 with budget 3 keep the rows 0, 1, 2, 3.
    """
    raise NotImplementedError("not yet: best_nodes")
