"""Chapter 05: 5 blanks to fill. Grade them with

    python tests/grade.py 05

and ask for a hint with `python tests/grade.py 05 --hint NAME`. Replace each
`raise NotImplementedError` by your own lines; a blank that you leave empty disturbs no other.
"""

import heapq
import math
import numpy as np
import torch

# * The mass of every node but the root, (N - 1,), in the order of the rows: the product of the
# probabilities of the tokens on its path. log_probs[i, t] is the logarithm of the probability
# of token t at depth i + 1. You may call torch, tree.tokens, tree.parents and tree.depths, (N,)
# each (row 0 is the root at depth 0, parents stand before their children), and tree.mask (N,
# N), True where the column is the row itself or an ancestor. A logarithm may be -inf; no nan
# may come out.
# About 3 lines, 8 minutes.
# Example: q_1 (.6, .4), q_2 (.9, .1), q_3 (.6, .4), nodes (0), (0, 0), (1), (1, 1) -> [0.6,
#   0.54, 0.4, 0.04]


def node_masses(tree, log_probs):
    """The mass q(u) of every node but the root, (N - 1,).

    log_probs (L, V): log q_i. Example: q_1 = (.6, .4), q_2 = (.9, .1), nodes (0), (0, 0), (1):
    .6, .54, .4.
    """
    raise NotImplementedError("not yet: node_masses")


# * A score is the logarithm of a prefix's probability. Return the score of a node's first
# child, the best token of the next slot. score: the node's own; ranked_below: the log-
# probabilities of the next slot, best first, a list of floats. Python alone will do.
# About 1 line, 3 minutes.
# Example: node -1, next position (-.25, -3) -> -1.25


def child_score(score, ranked_below):
    """The score of a node's first child.

    score: of the node; ranked_below: log q of the next slot, best first, a list.
    Example: node -1, next slot (-.25, -3): -1.25.
    """
    raise NotImplementedError("not yet: child_score")


# ** The score of a node's next sibling: the same parent, the next best token of the same slot.
# parent_score: the score of the parent, not of the node; ranked: the log-probabilities of the
# slot, best first, a list of floats that may end in -inf; rank: the node's own, from 0. Python
# alone will do.
# About 1 line, 3 minutes.
# Example: parent -1, ranked (-.5, -1.5, -2), rank 0 -> -2.5


def sibling_score(parent_score, ranked, rank):
    """The score, log q(u), of a node's next sibling.

    parent_score: of the parent; ranked: the slot's log q, best first, a list; rank: the node's,
    from 0. Example: parent -1, ranked (-.5, -1.5, -2), rank 0: -2.5.
    """
    raise NotImplementedError("not yet: sibling_score")


# *** Start with the most probable first token in the heap. Pop the best prefix, `yield` it as
# (token, row of its parent, mass), then push its next sibling and its first child, until the
# heap is empty. The root is row 0 and is not yielded; the first node that is yielded is row 1.
# You may call children(prefix) for a tuple of tokens that begins with the root (what may follow
# it: log-probabilities, best first, and the tokens; two empty lists where nothing may),
# heapq.heappush(heap, entry), heapq.heappop(heap) (the smallest entry; tuples compare by their
# first number), child_score(score, ranked_below), sibling_score(parent_score, ranked, rank) and
# math.exp. A good entry is (-score, parent, rank): the parent's row, and the rank from 0.
# About 16 lines, 20 minutes.
# Example: root 5, q_1 (.6, .4), q_2 (.9, .1), 3 pops: token, parent's row, mass -> [[0, 0,
#   0.6], [0, 1, 0.54], [1, 0, 0.4]]


def best_first(root, children):
    """The nodes of the best draft tree, one by one: a drafter's prefixes, most probable first.

    root: a token; children(prefix) -> log-probabilities of what may follow, best first, and the
    tokens, two lists; prefix: a tuple of tokens that begins with the root; where nothing may
    follow, the lists are empty.
    Yields (token, row of its parent, mass q(u)); the root is row 0, the first node that comes is
    row 1. Ringel and Romano, Algorithm 1, but here whoever asks decides when to stop.

    Worked example, prefixes in ranks from 0: q_1 = (.6, .4), q_2 = (.9, .1), budget 3. The heap
    starts with (0) at .6. Pop it; push its sibling (1) at .4 and its child (0,0) at .54. Pop (0,0);
    push its sibling (0,1) at .06. Pop (1). The tree is {(0), (0,0), (1)}; on average .6 + .54 + .4
    = 1.54 tokens of a draw from q_1 x q_2 lie in it.
    """
    raise NotImplementedError("not yet: best_first")


# *** The children of a node that holds `token`, when they stand in slot level + 1: their log-
# probabilities in falling order, and the tokens, two lists of at most self.most. You may call
# numpy and self.logits (L, V), the pass's logits, row `level` is the slot's; self.table (L, V,
# V), self.table[level, token] is what the token before adds to them; self.temperature, which
# divides the sum before the softmax. np.logaddexp.reduce(x) is the logarithm of sum(exp(x)),
# np.argsort(-x, kind='stable') ranks from the largest down.
# About 5 lines, 10 minutes.
# Example: level 0, token 2, logits[0] = log (.5, .3, .2), table[0, 2] = log (1, 4, 1),
#   temperature 1, most 3: exp of the log-probabilities, tokens -> [[0.631579, 0.263158,
#   0.105263], [1, 0, 2]]


def below(self, level, token):
    """-> log q_{level+1}(x | token), best first, and the tokens x: two lists.

    level: from 0; token: the one before the slot.
    """
    raise NotImplementedError("not yet: below")
