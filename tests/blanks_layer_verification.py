"""The blanks of chapter 06."""

from functools import partial

import numpy as np

from block_rules import BlockVerification
from global_resolution import GR
from grading import Blank, require
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
                where = f"in {name}, where draft and target are {kind},"
                require(np.isfinite(ends).all(), f"{where} 0 is divided by 0; divide by "
                                                 "np.maximum(.., TINY)")
                least, off = ends.min(), abs(ends.sum(-1) - 1).max()
                rounding = "; this is rounding: np.maximum(.., 0), and a sum <= 1"
                require(least >= 0 and off < 1e-12,
                        f"{where} the probabilities to end at the nodes of a tree go down to "
                        f"{least:.2g}, and their sum is off 1 by {off:.2g}"
                        f"{rounding * bool(least > -1e-9 and off < 1e-9)}")
                bias, _ = bias_and_length(rule, shape, models)
                require(bias < 1e-12, f"{where} the text is off the target by {bias:.1e} in total "
                                      "variation")


def same_block():
    """Block verification of chains must give the target's own distribution."""
    for kind in ("related", "disjoint"):
        bias, _ = bias_and_length(BlockVerification(), shape_of((-1, 0, 1)), tables(kind, 3, 2))
        require(bias < 1e-12, f"with BV, where draft and target are {kind}, the text is off the "
                              f"target by {bias:.1e} in total variation")


ALL_RULES = partial(same_text, KSEQ, RRS, GR)


def rounds(target_mass, k, draft_probs=DRAFT):
    def call(f):
        coins, out = f(draft_probs, target_mass, k)
        # One problem alone is shown without its brackets.
        return ([coin[0] for coin in coins], out[0]) if len(draft_probs) == 1 else (coins, out)

    return call


def toys(seed, *shape):
    """Random distributions over three tokens, (*shape, 3); a few chances are 0."""
    values = np.maximum(np.random.default_rng(seed).random((*shape, 3)) - 0.2, 0)
    values[..., -1] += 0.1
    return values / values.sum(-1, keepdims=True)


def toy_rounds(seed, k):
    draft = (toys(seed + 50, 4) + 0.1) / 1.3  # a coin where nothing is offered may be anything
    return rounds(toys(seed, 4) * [[1], [0.7], [0.3], [1]], k, draft)


def toy_layer(seed):
    """Scores, target and flow of two trees with three nodes; the flow is what a node can send."""
    random = np.random.default_rng(seed)
    scores = random.dirichlet([1, 1, 1, 1], 2)[:, :3] * [[1], [0.3]]
    target = toys(seed, 2, 3)
    return scores, target, scores[:, :, None] * target * random.random((2, 3, 1))


def toy_children(rule, seed, k=2):
    """The way down on two trees with three nodes, which are not the whole layer."""
    scores, target, _ = toy_layer(seed)
    tokens = np.random.default_rng(seed).integers(0, 3, (2, 3, k))
    return rule, np.minimum(1.2 * scores.sum(-1), 1), scores, tokens, toys(seed + 50, 2, 3), target


SCORES = np.array([[0.6, 0.3]])
TARGETS = np.array([[[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]]])
FLOW = np.array([[[0.12, 0.18, 0.18], [0.18, 0.09, 0.03]]])


def children(rule, A=0.9):
    """-> the children's scores and the flow of one layer."""
    return lambda f: [part[0] for part in f(
        rule, np.array([A]), SCORES, np.array([[[0, 2], [1, 1]]]),
        np.repeat(DRAFT[None], 2, axis=1), TARGETS)]


SUM_ABOVE_1 = np.array([[9, 18, 1]]) / 28
# A layer that sends all on: rounding makes its scores a little more than 1, and its flow less.
ROUNDED = np.array([[0.6, 0.4 + 2**-53]]), np.array([[[0.6 - 2**-53, 0, 0], [0.4, 0, 0]]])


def odd_sums(f):
    """Are there numbers below 0, or layers whose sum is above 1, where all is mere rounding?"""
    h = f(*ROUNDED)
    return bool((h < 0).any()), bool(h.sum(-1).max() > 1 + 1e-12)


BLANKS = [
    Blank(
        "block_rules:score",
        """* Block verification in one line. The accepted path goes through a node with probability
        a; below it a token was drawn, with probability q, and the target gives it p. With which
        probability does the path go through both? It is as large as can be: a token is offered
        with q, and wanted where the path gets so far. weight is a, target p, draft q: three
        numbers, or three arrays (B,), a chain each -> the like. Nothing is divided by 0.""",
        ("What is wanted is not p: the path gets to this node with a only.",
         "How much is wanted of this token, and how much is offered, if all its draws are? What "
         "flows is a share of the draws."),
        lines=1, minutes=5, promise=same_block,
        examples={
            "a = 1, p = .1, q = .5; a = .2, p = .9, q = .5; a = .2, p = .1, q = .5": (
                (np.array([1, 0.2, 0.2]), np.array([0.1, 0.9, 0.1]), np.array([0.5, 0.5, 0.5])),
                [0.2, 0.36, 0.04]),
            "a = 1, p = .9, q = .5; a = .8, p = .9, q = .5": (
                (np.array([1, 0.8]), np.array([0.9, 0.9]), np.array([0.5, 0.5])), [1, 1]),
            "a = 1, p = .1, q = .5, as numbers": ((1.0, 0.1, 0.5), 0.2),
            "q = 0, which is never drawn: a number": (lambda f: np.isfinite(f(
                np.array([0.5]), np.array([0.0]), np.array([0.0]))).all(), True),
            "q = 0 as a number: a number": (lambda f: bool(np.isfinite(f(0.5, 0.0, 0.0))), True),
        },
        more=lambda: {f"toy scores, p and q {seed}, four chains": tuple(
            np.random.default_rng(seed).random((3, 4)) + 0.01) for seed in range(6)} | {
            "a = 1, p = 5e-5, q = 1e-4": tuple(map(np.array, ([1.0], [5e-5], [1e-4])))}),
    Blank(
        "single_step_rules:rejection_rounds",
        """* Recursive rejection sampling as water in pipes, for n problems at once, a row each:
        arrays (n, V). In each of k rounds a draft is offered as often as nothing is accepted yet,
        and each token takes what it can still take; at first that is target_mass. What is the
        chance that nothing is accepted yet? It starts at 1, also where target_mass sums to less
        (the rest belongs to a dummy token that is never drafted). A round's coin is the share of
        the offer that was taken. Return the list of the k coins, (n, V) each, and all that was
        taken, (n, V). TINY is a tiny number to divide by where nothing is offered.""",
        ("Two things shrink from round to round: what each token can still take, and the chance "
         "that nothing is accepted yet.",
         "A token can take no more than it is offered, and no more than it can still take. In the "
         "example: what is left behind the first round? No chance is below 0, rounded or not."),
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
            "two problems at once, the whole target and half of it, k = 2": (
                rounds(np.concatenate([TARGET, TARGET / 2]), 2, np.repeat(DRAFT, 2, 0)),
                ([[[0.4, 1, 1], [0.2, 0.5, 1]], [[0, 0, 1], [0, 0, 5 / 11]]],
                 [[0.2, 0.3, 0.26], [0.1, 0.15, 0.25]])),
        },
        more=lambda: {f"toy problems {seed}, four at once, k = {k}": toy_rounds(seed, k)
                      for seed in range(3) for k in (1, 2, 4)} | {
            # these sum to 1 + 2e-16
            "draft and target (9/28, 18/28, 1/28), k = 2: is a coin below 0": lambda f: any(
                (coin < 0).any() for coin in f(SUM_ABOVE_1, SUM_ABOVE_1, 2)[0])}),
    Blank(
        "layer_verification:score_children",
        """** The way down on one layer of B trees: n nodes with k children each. The rule runs at
        every node, on its draft_probs against A times its target_probs; of what it says, a node
        gets its share of the layer, lambda_v = a_v / A. A is given, for the layer may have more
        nodes than these n: you are called once for all nodes with the same number of children.
        Return the children's scores (B, n, k) and the flow (B, n, V). local = rule(draft, mass, k)
        solves many nodes in one call, a row (V,) each; local.accept(drawn), with drawn (rows, k),
        is P[child is accepted] (rows, k), and local.out (rows, V) is the flow. A can be 0.""",
        ("All B n nodes are rows of one call. What the rule says of a node, it says as if all "
         "draws of the layer were this node's.",
         "The scores and the flow get the same factor, a_v / A, with A as it is given; and TINY is "
         "there to divide by."),
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
            # The layer has more nodes: A is not .6 + .3. Node 1: the target itself; RRS takes
            # (.2 .3 .2), then (0 0 .06); coins .4, 1: (.4, .6) * .6. Node 2: (.5 .3 .1), then
            # (.05 0 0); its second child is the same token, and has coin 0: (1, 0) * .3.
            "the same with A = 1: scores of the children":
                (lambda f: children(RRS, 1)(f)[0], [[0.24, 0.36], [0.3, 0]]),
            "the same with A = 1: flow":
                (lambda f: children(RRS, 1)(f)[1], [[0.12, 0.18, 0.156], [0.165, 0.09, 0.03]]),
            "the same with K-SEQ, P[some child of the first node]":
                (lambda f: children(KSEQ)(f)[0][0].sum() <= 2 / 3 + 1e-12, True),
        },
        more=lambda: {f"{rule.__name__}, toy layer {seed}, two trees, {k} children a node":
                      toy_children(rule, seed, k)
                      for seed, k in enumerate((2, 1, 3, 2)) for rule in (RRS, KSEQ)}),
    Blank(
        "layer_verification:stop_probabilities",
        """** The way up on one layer: the path has not been ended below this layer.
        With which probability does it end at v, and not at another node of the layer or above
        it? Think of two probabilities, on average over what may be drawn below: that the path
        goes through v but not on to v's children, and that it does not go on below this layer
        at all. scores (B, n) are the a_v, flow (B, n, V) is what each node sends on to its
        children, by token; -> (B, n). Where everything goes on, 0 must not be divided by 0; and
        rounding must leave no number below 0 and no layer whose sum is above 1.""",
        ("A conditional probability: of the rounds that come back to this layer, in which do they "
         "end at v?",
         "Of the two probabilities one belongs to the node, the other to the whole layer. Where "
         "the second is 0, so is the first."),
        lines=3, minutes=10, promise=ALL_RULES,
        examples={
            # (.6 - .48) / (1 - .48 - .3) = .12 / .22
            "a = (.6, .3), sent on: .48 and .3": ((SCORES, FLOW), [[6 / 11, 0]]),
            "a = (.6, .3), leaves": ((SCORES, 0 * FLOW), [[0.6, 0.3]]),
            "a = (.5, .5), all of it sent on: a number": (lambda f: np.isfinite(f(
                np.array([[0.5, 0.5]]), np.array([[[0.25, 0.25, 0], [0.25, 0, 0.25]]]))).all(),
                True),
            "a = (.6, .4 + 1e-16), sent on: .6 - 1e-16 and .4: anything below 0, a sum above 1":
                (odd_sums, (False, False)),
        },
        more=lambda: {f"toy layer {seed}, two trees with three nodes":
                      toy_layer(seed)[::2] for seed in range(4)}),
]
