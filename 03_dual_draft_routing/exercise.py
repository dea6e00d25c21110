"""Chapter 03: 2 blanks to fill. Grade them with

    python tests/grade.py 03

ask for a hint with `--hint NAME`, for a stronger one with `--hint NAME --more`, and, when some are
done, see them decode beside the taught ones with `--run`. Replace each `raise NotImplementedError`
by your own lines; a blank that you leave empty disturbs no other.
"""

import torch

# ** A tree is cut to its best nodes. scores holds a cumulative log-score for each row. Which
# rows stay? Row 0, the root, which costs no budget, and the `budget` drafted rows with the
# highest scores; of equal scores the earlier row. Return the rows in rising order; there may be
# fewer than `budget` drafted rows. Nothing here looks at parents: can a node stay while its
# parent goes?
# About 2 lines, 6 minutes.
# Example: scores 0, -1, -2, -1.5, -2, budget 3 -> [0, 1, 2, 3]


def best_nodes(scores, budget):
    """The rows of the root and of the `budget` best nodes, in rising order.

    scores: one cumulative log-score per row, the root first; equal scores go to the earlier row.

    Example: the scores 0, -1, -2, -1.5, -2 with budget 3 keep the rows 0, 1, 2, 3.
    """
    raise NotImplementedError("not yet: best_nodes")


# ** The oracle's replay. A text is finished, and for every position of it somebody has looked
# up how many drafts a round would accept whose root stands there: lengths {position: drafts}.
# Decode the text again. What does each round accept? Return a list, for as long as a root
# stands at a known position. The first root is the first known position.
# About 5 lines, 6 minutes.
# Example: lengths {10: 2, 11: 0, 12: 3, 13: 1, 14: 0, 15: 4} -> [2, 1, 4]


def rounds_of(lengths):
    """Decode a text again -> the accepted drafts of every round, a list.

    lengths: {position: the drafts that would be accepted below it}.
    """
    raise NotImplementedError("not yet: rounds_of")


# make_exercises.py knows by this line whether you have written here: e51af90fd827
