"""The blanks of chapter 06."""

from functools import partial

import numpy as np

from global_resolution import GR
from grading import Blank
from iid_trees import shape_of
from layer_verification import LayerVerification, TokenVerification
from nanogpt.exact.trees import all_trees, bias_and_length, tables
from single_step_rules import KSEQ, RRS

DRAFT, TARGET = np.array([[0.5, 0.3, 0.2]]), np.array([[0.2, 0.3, 0.5]])


def same_text(*rules):
    """The lifted rules must give the target's own distribution, by enumeration of all trees."""
    lifted = {f"{lift.__name__[0]}V + {rule.__name__}": lift(rule)
              for rule in rules for lift in (TokenVerification, LayerVerification)}
    # Two chains; a leaf above the others.
    for shape in map(shape_of, ((-1, 0, 0, 1, 2), (-1, 0, 0, 1, 1))):
        for kind in ("related", "equal", "disjoint"):
            models = tables(kind, 3, 2)
            _, trees, *_ = all_trees(shape, models)
            for name, rule in lifted.items():
                ends, _ = rule.judge(shape, *trees)
                assert np.isfinite(ends).all(), (
                    f"{name} divides 0 by 0 where draft and target are {kind}; divide by "
                    "np.maximum(.., TINY)")
                assert ends.min() >= 0 and abs(ends.sum(-1) - 1).max() < 1e-12, (
                    f"{name} has probabilities down to {ends.min():.1e} that add up to "
                    f"{ends.sum(-1).max():.3f}; rounding wants np.maximum(.., 0), and a sum <= 1")
                bias, _ = bias_and_length(rule, shape, models)
                assert bias < 1e-12, f"{name} is off the target by {bias:.1e} in total variation"


ALL_RULES = partial(same_text, KSEQ, RRS, GR)


def rounds(target_mass, k):
    def call(f):
        coins, out = f(DRAFT, target_mass, k)
        return [coin[0] for coin in coins], out[0]

    return call


SCORES = np.array([[0.6, 0.3]])
TARGETS = np.array([[[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]]])
FLOW = np.array([[[0.12, 0.18, 0.18], [0.18, 0.09, 0.03]]])


def children(rule):
    """-> the children's scores and the flow of one layer, A = .9."""
    return lambda f: [part[0] for part in f(
        rule, np.array([0.9]), SCORES, np.array([[[0, 2], [1, 1]]]),
        np.repeat(DRAFT[None], 2, axis=1), TARGETS)]


BLANKS = [
    Blank(
        "single_step_rules:rejection_rounds",
        """* Recursive rejection sampling as water in pipes, for n problems at once, a row each:
        arrays (n, V). Play k rounds. `left` is what each token can still take; it starts as
        target_mass. `alive` (n, 1) is the probability that nothing is accepted yet; it starts
        at 1, also where target_mass sums to less (the rest belongs to a dummy token that is
        never drafted). In a round, alive times draft_probs is offered, each token takes what it
        can, and both `left` and `alive` shrink by what was taken. The round's coin is the share
        of the offer that was taken. Return the list of the k coins, (n, V) each, and all that
        was taken, (n, V). You may call np.minimum(a, b), np.maximum(a, b), x.sum(-1,
        keepdims=True), and TINY, a tiny number to divide by where nothing is offered.""",
        """Offered: alive times draft_probs. Taken: the smaller of offered and left. Rounding
        may take a little too much: keep alive at 0 or above.""",
        lines=7, minutes=12, promise=partial(same_text, RRS),
        examples={
            # takes (.2 .3 .2), leaves (0 0 .3), alive .3; then (0 0 .06) of (.15 .09 .06)
            "draft (.5 .3 .2), target (.2 .3 .5), k = 2: coins, flow":
                (rounds(TARGET, 2), ([[0.4, 1, 1], [0, 0, 1]], [0.2, 0.3, 0.26])),
            # takes (.1 .15 .2), leaves (0 0 .05), alive .55; then (0 0 .05) of (0 0 .11)
            "half of that target, k = 2":
                (rounds(TARGET / 2, 2), ([[0.2, 0.5, 1], [0, 0, 5 / 11]], [0.1, 0.15, 0.25])),
            "the whole target, k = 1": (rounds(TARGET, 1), ([[0.4, 1, 1]], [0.2, 0.3, 0.2])),
            # a third round: leaves (0 0 .24), alive .24; then (0 0 .048) of (.12 .072 .048)
            "the whole target, k = 3": (
                rounds(TARGET, 3), ([[0.4, 1, 1], [0, 0, 1], [0, 0, 1]], [0.2, 0.3, 0.308])),
        }),
    Blank(
        "layer_verification:still_owed",
        """* The accepted path goes through node v with probability a_v (scores), and on average
        flow_v(z) of it goes on to a child with token z. If the path ends at v, the target adds
        a token of its own. Return how much of each token is still missing at v, not normalised:
        scores (B, n), target_probs and flow (B, n, V) -> (B, n, V), for n nodes in each of B
        trees. You may call np.maximum(a, b); scores[:, :, None] has shape (B, n, 1). Rounding
        must leave nothing below 0.""",
        """v is reached with probability a_v only, so the target's part there is a_v times its
        distribution.""",
        lines=1, minutes=5, promise=ALL_RULES,
        examples={
            "a = (.6, .3), targets (.2 .3 .5) and (.6 .3 .1)":
                (lambda f: f(SCORES, TARGETS, FLOW)[0], [[0, 0, 0.12], [0, 0, 0]]),
            "a flow that is 1e-12 too large: anything negative?": (lambda f: (f(
                np.array([[0.5]]), np.array([[[0.6, 0.4, 0]]]), np.array([[[0.3 + 1e-12, 0, 0]]])
            ) < 0).any(), False),
        }),
    Blank(
        "layer_verification:score_children",
        """** The way down on one layer of B trees: n nodes with k children each. Run the
        rule at every node, on its draft_probs against A times its target_probs, and multiply
        all that it says by the node's share of the layer, lambda_v = a_v / A. A is given, for
        the layer may have more nodes than these n: you are called once for all nodes with the
        same number of children. Return the children's scores (B, n, k) and the flow (B, n, V).
        local = rule(draft, mass, k) solves many nodes in one call: draft and mass are (rows,
        V), one row per node; local.accept(drawn), with drawn (rows, k), gives P[child is
        accepted] (rows, k), and local.out (rows, V) is the flow. x.reshape(B * n, -1) turns (B,
        n, V) into rows, and A[:, None, None] has shape (B, 1, 1). A can be 0: divide by
        np.maximum(A, TINY).""",
        """Reshape (B, n, V) to (B n, V), call the rule once, reshape both answers back; both
        get the same factor.""",
        lines=6, minutes=15, promise=ALL_RULES,
        examples={
            # Node 1: .9 target = (.18 .27 .45); RRS takes (.18 .27 .20), then (0 0 .07); coins for
            # children 1, 3: .36, and 1 for the rest: (.36, .64) * 2/3.
            # Node 2: .9 target = (.54 .27 .09); takes (.5 .27 .09), then (.04 0 0); the second
            # child is the same token, and has coin 0 in round 2: (.9, 0) * 1/3.
            "RRS, A = .9, a = (.6 .3), children (0 2), (1 1), draft (.5 .3 .2), targets "
            "(.2 .3 .5), (.6 .3 .1): scores of the children":
                (lambda f: children(RRS)(f)[0], [[0.24, 0.64 * 2 / 3], [0.3, 0]]),
            "the same: flow": (lambda f: children(RRS)(f)[1], FLOW[0]),
            "the same with K-SEQ, P[some child of the first node]":
                (lambda f: children(KSEQ)(f)[0][0].sum() <= 2 / 3 + 1e-12, True),
        }),
    Blank(
        "layer_verification:stop_probabilities",
        """** The way up on one layer: the path has not been ended below this layer.
        With which probability does it end at v, and not at another node of the layer or above
        it? Think of two probabilities, on average over what may be drawn below: that the path
        goes through v but not on to v's children, and that it does not go on below this layer
        at all. scores (B, n) are the a_v, flow (B, n, V) is what each node sends on to its
        children, by token; -> (B, n). You may call flow.sum(-1), x.sum(-1, keepdims=True),
        np.maximum(a, b), and TINY, a tiny number to divide by. Where everything goes on, 0 must
        not be divided by 0; and rounding must leave no number below 0 and no layer whose sum is
        above 1.""",
        """The denominator is the same for all nodes of the layer: 1 minus everything that the
        layer sends on. Where that is 0, so is the numerator.""",
        lines=3, minutes=10, promise=ALL_RULES,
        examples={
            # (.6 - .48) / (1 - .48 - .3) = .12 / .22
            "a = (.6, .3), sent on: .48 and .3": ((SCORES, FLOW), [[6 / 11, 0]]),
            "a = (.6, .3), leaves": ((SCORES, 0 * FLOW), [[0.6, 0.3]]),
            "a = (.5, .5), all of it sent on: a number": (lambda f: np.isfinite(f(
                np.array([[0.5, 0.5]]), np.array([[[0.25, 0.25, 0], [0.25, 0, 0.25]]]))).all(),
                True),
        }),
]
