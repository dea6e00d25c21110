"""Chapter 06: 4 blanks to fill. Grade them with

    python tests/grade.py 06

ask for a hint with `--hint NAME`, for a stronger one with `--hint NAME --more`, and, when some are
done, see them decode beside the taught ones with `--run`. Replace each `raise NotImplementedError`
by your own lines; a blank that you leave empty disturbs no other.
"""

import numpy as np
import torch
from block_rules import TINY

# * Block verification in one line. The accepted path goes through a node with probability a;
# below it a token was drawn, with probability q, and the target gives it p. With which
# probability does the path go through both? It is as large as can be: a token is offered with
# q, and wanted where the path gets so far. weight is a, target p, draft q: three numbers, or
# three arrays (B,), a chain each -> the like. Nothing is divided by 0.
# About 1 line, 5 minutes.
# Example: a = 1, p = .1, q = .5; a = .2, p = .9, q = .5; a = .2, p = .1, q = .5 -> [0.2, 0.36,
#   0.04]


def score(weight, target, draft):
    """A drawn token's score, of its parent's, `weight`, and the token's probabilities; numbers, or
    arrays (B,). Example: weight .2, target .9, draft .5: .36."""
    raise NotImplementedError("not yet: score")


# * Recursive rejection sampling as water in pipes, for n problems at once, a row each: arrays
# (n, V). In each of k rounds a draft is offered as often as nothing is accepted yet, and each
# token takes what it can still take; at first that is target_mass. What is the chance that
# nothing is accepted yet? It starts at 1, also where target_mass sums to less (the rest belongs
# to a dummy token that is never drafted). A round's coin is the share of the offer that was
# taken. Return the list of the k coins, (n, V) each, and all that was taken, (n, V). TINY is a
# tiny number to divide by where nothing is offered.
# About 7 lines, 12 minutes.
# Example: draft (.5 .3 .2), target (.2 .3 .5), k = 2: coins, flow -> [[[0.4, 1, 1], [0, 0, 1]],
#   [0.2, 0.3, 0.26]]


def rejection_rounds(draft_probs, target_mass, k):
    """k rounds of accept or reject, as flows -> coins, one (n, V) a round; out (n, V).

    draft_probs, target_mass (n, V): n problems, a row each. Example: draft (.5, .3, .2), target
    (.2, .3, .5), k = 2: the coins are (.4, 1, 1) and (0, 0, 1), out is (.2, .3, .26).
    """
    raise NotImplementedError("not yet: rejection_rounds")


# ** The way down on one layer of B trees: n nodes with k children each. The rule runs at every
# node, on its draft_probs against A times its target_probs; of what it says, a node gets its
# share of the layer, lambda_v = a_v / A. A is given, for the layer may have more nodes than
# these n: you are called once for all nodes with the same number of children. Return the
# children's scores (B, n, k) and the flow (B, n, V). local = rule(draft, mass, k) solves many
# nodes in one call, a row (V,) each; local.accept(drawn), with drawn (rows, k), is P[child is
# accepted] (rows, k), and local.out (rows, V) is the flow. A can be 0.
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
# a_v, flow (B, n, V) is what each node sends on to its children, by token; -> (B, n). Where
# everything goes on, 0 must not be divided by 0; and rounding must leave no number below 0 and
# no layer whose sum is above 1.
# About 3 lines, 10 minutes.
# Example: a = (.6, .3), sent on: .48 and .3 -> [[0.545455, 0]]


def stop_probabilities(scores, flow):
    """h_v of one layer: P[the path ends at v | it ends in this layer or above].

    scores (B, n), flow (B, n, V) -> (B, n). Example: scores (.2, .6), of which .18 and .42 flow on
    to the children: (.05, .45).
    """
    raise NotImplementedError("not yet: stop_probabilities")


# make_exercises.py knows by this line whether you have written here: 3beda423744b
