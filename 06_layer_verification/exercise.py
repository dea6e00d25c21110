"""Chapter 06: 5 blanks to fill. Grade them with

    python tests/grade.py 06

and ask for a hint with `python tests/grade.py 06 --hint NAME`. Replace each
`raise NotImplementedError` by your own lines; a blank that you leave empty disturbs no other.
"""

import numpy as np
import torch
from single_step_rules import TINY, positions_asked

# K-SEQ's rho: the smallest rho in [1, k] with positions_asked(beta, k) <= rho, where beta = sum
# min(draft, target / rho).
# About 8 lines, 15 minutes.
# Example: draft (.5 .3 .2), target (.42 .3 .28), k = 2: shape, rho, is a token overfull? ->
#   [[1, 1], 1.2, False]


def smallest_rho(draft_probs, target_mass, k, rounds=5, parts=16):
    """The smallest rho in [1, k] with which K-SEQ overfills no token, as (n, 1), by bisection.

    rho divides the target, so that every position asked may take its share. With beta = sum
    min(draft, target / rho), one position's acceptance, token z takes at most target(z) / rho
    times positions_asked(beta): rho is feasible if positions_asked(beta) <= rho. k always is, and
    everything above a feasible rho is feasible too.

    Five rounds end within 1e-6 (k - 1) above it. subtle: where draft = target, rho = 1 + d has
    only d^k to spare, which rounding hides: d may be 1e-5 for k = 3 and 1e-4 for k = 4. Nothing is
    lost, for d^k is also the probability that all k are refused.
    """
    raise NotImplementedError("not yet: smallest_rho")


# Recursive rejection sampling as a flow: in each round the living draws are offered to the
# tokens, which take what they can.
# About 7 lines, 12 minutes.
# Example: draft (.5 .3 .2), target (.2 .3 .5), k = 2: coins, flow -> [[[0.4, 1, 1], [0, 0, 1]],
#   [0.2, 0.3, 0.26]]


def rejection_rounds(draft_probs, target_mass, k):
    """k rounds of accept or reject, as flows -> coins, one (n, V) a round; out (n, V).

    `left` is what the tokens can still take, `alive` the probability that nothing is accepted yet;
    left / alive is the residual distribution that the papers renormalise after each rejection.
    By hand, draft (.5, .3, .2), target (.2, .3, .5): the first child's token takes (.2, .3, .2),
    alive is .3; the second is offered .3 (.5, .3, .2) and takes (0, 0, .06).
    subtle: the dummy token's mass 1 - s is part of `alive`, which starts at 1, and never of `left`.
    """
    raise NotImplementedError("not yet: rejection_rounds")


# The forward stage on one layer: run the rule on draft against A target, and scale what it
# accepts and what it sends by lambda_v = a_v / A.
# About 6 lines, 15 minutes.
# Example: RRS, A = .9, a = (.6 .3), children (0 2), (1 1), draft (.5 .3 .2), targets (.2 .3
#   .5), (.6 .3 .1): scores of the children -> [[0.24, 0.426667], [0.3, 0]]


def score_children(rule, A, scores, tokens, draft_probs, target_probs):
    """Algorithm 1, lines 5 to 13, for n nodes of one layer with k children each, in B trees.

    A (B,): what the target is scaled by; scores (B, n): a_v of the nodes; tokens (B, n, k): their
    children; draft_probs, target_probs (B, n, V) -> the children's scores (B, n, k), flow_v
    (B, n, V).
    """
    raise NotImplementedError("not yet: score_children")


# h_v of Equation 1 for one layer: what a_v keeps after all it sends on, given that the path
# does not go on below this layer.
# About 3 lines, 10 minutes.
# Example: a = (.6, .3), sent on: .48 and .3 -> [[0.545455, 0]]


def stop_probabilities(scores, flow):
    """h_v of one layer (Equation 1): P[the path ends at v | it ends in this layer or above].

    scores (B, n), flow (B, n, V) -> (B, n). What is left of v's score after all that v sends on,
    divided by P[the path does not go on below this layer].
    """
    raise NotImplementedError("not yet: stop_probabilities")


# The residual of Equation 2, not normalised: what the target owes at v and the children do not
# receive.
# About 1 line, 5 minutes.
# Example: a = (.6, .3), targets (.2 .3 .5) and (.6 .3 .1) -> [[0, 0, 0.12], [0, 0, 0]]


def still_owed(scores, target_probs, flow):
    """The distribution of the next token at v (Equation 2), not normalised.

    scores (B, n), target_probs, flow (B, n, V) -> (B, n, V).
    """
    raise NotImplementedError("not yet: still_owed")
