"""Chapter 05: 6 blanks to fill. Grade them with

    python tests/grade.py 05

and ask for a hint with `python tests/grade.py 05 --hint NAME`. Replace each
`raise NotImplementedError` by your own lines; a blank that you leave empty disturbs no other.
"""

import heapq
import numpy as np
import torch
from tree_attention import Tree

# The score of the next sibling, from the parent's score and the depth's ranked log-
# probabilities, a list of floats that may end in -inf.
# About 1 line, 3 minutes.
# Example: parent -1, ranked (-.5, -1.5, -2), rank 0 -> -2.5


def sibling_score(parent_score, ranked, rank):
    """sigma of the next sibling. ranked: log q_d in falling order, a list; rank: from 0."""
    raise NotImplementedError("not yet: sibling_score")


# The score of the first child, from the node's score and the next depth's ranked log-
# probabilities, a list of floats.
# About 1 line, 3 minutes.
# Example: node -1, next position (-.25, -3) -> -1.25


def child_score(score, ranked_below):
    """sigma of the first child. ranked_below: log q_(d+1) in falling order, a list."""
    raise NotImplementedError("not yet: child_score")


# Algorithm 1: pop the best prefix, add it to the tree, push its next sibling and its first
# child, until the budget is spent.
# About 18 lines, 20 minutes.
# Example: root 5, q_1 (.6, .4), q_2 (.9, .1), budget 3: tokens, parents -> [[5, 0, 0, 1], [-1,
#   0, 1, 0]]


def best_first_tree(root, log_probs, budget):
    """The `budget` most probable prefixes under independent marginals, as a Tree.

    root: the bonus token; log_probs (L, V): log q_i. Root not counted, the tree has
    min(budget, number of prefixes) nodes, in the order of falling probability.
    Ringel and Romano, Algorithm 1.

    Worked example, prefixes in ranks from 1: q_1 = (.6, .4), q_2 = (.9, .1), budget 3. The heap
    starts with (1) at .6. Pop it; push its sibling (2) at .4 and its child (1,1) at .54. Pop (1,1);
    push its sibling (1,2) at .06. Pop (2). The tree is {(1), (1,1), (2)}; on average .6 + .54 + .4
    = 1.54 tokens of a draw from q_1 x q_2 lie in it.
    """
    raise NotImplementedError("not yet: best_first_tree")


# q(u) of every node: the product of the marginals along its path (Equation 7).
# About 3 lines, 8 minutes.
# Example: q_1 (.6, .4), q_2 (.9, .1), q_3 (.6, .4), nodes (0), (0, 0), (1), (1, 1) -> [0.6,
#   0.54, 0.4, 0.04]


def node_masses(tree, log_probs):
    """q(u) of every node but the root, (N - 1,). log_probs (L, V). Equation 7."""
    raise NotImplementedError("not yet: node_masses")


# The children of a node that holds `token`, when they stand in slot level + 1: their log-
# probabilities in falling order, and the tokens, two lists of at most self.most. self.logits
# (L, V) is h, self.table (L, V, V) is W, both numpy, self.temperature divides their sum.
# About 5 lines, 10 minutes.
# Example: slot 1 after token 0 -> [[0.5, 0.3, 0.2], [0, 1, 2]]


def below(self, level, token):
    """-> log q_{level+1}(x | token) in falling order, and the tokens x: two lists."""
    raise NotImplementedError("not yet: below")


# The logits of what follows each of n nodes of one level, (n, V): the q that the p/q rule will
# divide by. parents == [-1] means a new round: run the pass, self.logits(root, self.room) -> h
# (L, V), once, and start at slot 1. Later levels read the next slot. self.table (L, V, V) is W,
# or self.network.transition is None and there is none; self.temperature divides.
# About 7 lines, 12 minutes.
# Example: root 2, then tokens 0 and 1, then a new round with root 0: q of each -> [[[[0.263158,
#   0.631579, 0.105263]], [[0.333333, 0.166667, 0.5], [0.1, 0.6, 0.3]], [[0.5, 0.3, 0.2]]], 2]


def level(self, tokens, parents):
    """n nodes of one level, their tokens -> (n, V) logits of what follows each.

    Raises ValueError below the last slot.
    """
    raise NotImplementedError("not yet: level")
