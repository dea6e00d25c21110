"""Chapter 06: 4 blanks to fill. Grade them with

    python tests/grade.py 06

and ask for a hint with `python tests/grade.py 06 --hint NAME`. Replace each
`raise NotImplementedError` by your own lines; a blank that you leave empty disturbs no other.
"""

import numpy as np
import torch
from single_step_rules import TINY

# * Recursive rejection sampling as water in pipes, for n problems at once, a row each: arrays
# (n, V). Play k rounds. `left` is what each token can still take; it starts as target_mass.
# `alive` (n, 1) is the probability that nothing is accepted yet; it starts at 1, also where
# target_mass sums to less (the rest belongs to a dummy token that is never drafted). In a
# round, alive times draft_probs is offered, each token takes what it can, and both `left` and
# `alive` shrink by what was taken. The round's coin is the share of the offer that was taken.
# Return the list of the k coins, (n, V) each, and all that was taken, (n, V). You may call
# np.minimum(a, b), np.maximum(a, b), x.sum(-1, keepdims=True), and TINY, a tiny number to
# divide by where nothing is offered.
# About 7 lines, 12 minutes.
# Example: draft (.5 .3 .2), target (.2 .3 .5), k = 2: coins, flow -> [[[0.4, 1, 1], [0, 0, 1]],
#   [0.2, 0.3, 0.26]]


def rejection_rounds(draft_probs, target_mass, k):
    """k rounds of accept or reject, as flows -> coins, one (n, V) a round; out (n, V).

    draft_probs, target_mass (n, V): n problems, a row each. Example: draft (.5, .3, .2), target
    (.2, .3, .5), k = 2: the coins are (.4, 1, 1) and (0, 0, 1), out is (.2, .3, .26).
    """
    raise NotImplementedError("not yet: rejection_rounds")


# * The accepted path goes through node v with probability a_v (scores), and on average
# flow_v(z) of it goes on to a child with token z. If the path ends at v, the target adds a
# token of its own. Return how much of each token is still missing at v, not normalised: scores
# (B, n), target_probs and flow (B, n, V) -> (B, n, V), for n nodes in each of B trees. You may
# call np.maximum(a, b); scores[:, :, None] has shape (B, n, 1). Rounding must leave nothing
# below 0.
# About 1 line, 5 minutes.
# Example: a = (.6, .3), targets (.2 .3 .5) and (.6 .3 .1) -> [[0, 0, 0.12], [0, 0, 0]]


def still_owed(scores, target_probs, flow):
    """The distribution of the next token at v, not normalised.

    scores (B, n), target_probs, flow (B, n, V) -> (B, n, V). Example: score .2, target (.9, .1),
    flow (.18, 0): (0, .02).
    """
    raise NotImplementedError("not yet: still_owed")


# ** The way down on one layer of B trees: n nodes with k children each. Run the rule at every
# node, on its draft_probs against A times its target_probs, and multiply all that it says by
# the node's share of the layer, lambda_v = a_v / A. A is given, for the layer may have more
# nodes than these n: you are called once for all nodes with the same number of children. Return
# the children's scores (B, n, k) and the flow (B, n, V). local = rule(draft, mass, k) solves
# many nodes in one call: draft and mass are (rows, V), one row per node; local.accept(drawn),
# with drawn (rows, k), gives P[child is accepted] (rows, k), and local.out (rows, V) is the
# flow. x.reshape(B * n, -1) turns (B, n, V) into rows, and A[:, None, None] has shape (B, 1,
# 1). A can be 0: divide by np.maximum(A, TINY).
# About 6 lines, 15 minutes.
# Example: RRS, A = .9, a = (.6 .3), children (0 2), (1 1), draft (.5 .3 .2), targets (.2 .3
#   .5), (.6 .3 .1): scores of the children -> [[0.24, 0.426667], [0.3, 0]]


def score_children(rule, A, scores, tokens, draft_probs, target_probs):
    """The way down for n nodes of one layer with k children each, in B trees.

    rule: a single-step rule's class; A (B,): what the target is scaled by; scores (B, n): a_v of
    the nodes; tokens (B, n, k): their children; draft_probs, target_probs (B, n, V)
    -> the children's scores (B, n, k), flow_v (B, n, V).
    """
    raise NotImplementedError("not yet: score_children")


# ** The way up on one layer: the path has not been ended below this layer. With which
# probability does it end at v, and not at another node of the layer or above it? Think of two
# probabilities, on average over what may be drawn below: that the path goes through v but not
# on to v's children, and that it does not go on below this layer at all. scores (B, n) are the
# a_v, flow (B, n, V) is what each node sends on to its children, by token; -> (B, n). You may
# call flow.sum(-1), x.sum(-1, keepdims=True), np.maximum(a, b), and TINY, a tiny number to
# divide by. Where everything goes on, 0 must not be divided by 0; and rounding must leave no
# number below 0 and no layer whose sum is above 1.
# About 3 lines, 10 minutes.
# Example: a = (.6, .3), sent on: .48 and .3 -> [[0.545455, 0]]


def stop_probabilities(scores, flow):
    """h_v of one layer: P[the path ends at v | it ends in this layer or above].

    scores (B, n), flow (B, n, V) -> (B, n). Example: scores (.2, .6), of which .18 and .42 flow on
    to the children: (.05, .45).
    """
    raise NotImplementedError("not yet: stop_probabilities")
