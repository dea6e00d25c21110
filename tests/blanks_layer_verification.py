"""The blanks of chapter 06."""

import numpy as np

from global_resolution import GR
from grading import Blank
from iid_trees import shape_of
from layer_verification import LayerVerification, TokenVerification
from nanogpt.exact.trees import all_trees, bias_and_length, tables
from single_step_rules import KSEQ, RRS, TINY, positions_asked

DRAFT = np.array([[0.5, 0.3, 0.2]])


STEPS = {"K-SEQ": KSEQ, "RRS": RRS, "GR": GR}


def lossless_promise(rules=tuple(STEPS)):
    """The lifted rules must give the target's own distribution, by enumeration of all trees."""
    lifted = {f"{lift} + {rule}": kind(STEPS[rule]) for rule in rules
              for lift, kind in (("TV", TokenVerification), ("LV", LayerVerification))}
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


# ---------------------------------------------------------------- K-SEQ's rho

RHO = {
    "draft (.5 .3 .2), target (.42 .3 .28), k = 2: shape, rho, is a token overfull?":
        ([[0.42, 0.3, 0.28]], 2),
    "half of that target (the dummy has the rest), k = 2": ([[0.21, 0.15, 0.14]], 2),
    "target equal to the draft, k = 2": ([[0.5, 0.3, 0.2]], 2),
    "the first target again, k = 1": ([[0.42, 0.3, 0.28]], 1),
    "target (.3 .3 .4), k = 3": ([[0.3, 0.3, 0.4]], 3),
}


def overfull(rho, target_mass, k):
    """True if K-SEQ with this rho sends a token more than the target gives it."""
    beta = np.minimum(DRAFT, target_mass / rho).sum(-1, keepdims=True)
    return bool((positions_asked(beta, k) > rho + 1e-12).any())


def observe_rho(f):
    seen = {}
    for case, (target, k) in RHO.items():
        rho = np.asarray(f(DRAFT, np.array(target), k))
        seen[case] = rho.shape, round(float(rho.ravel()[0]), 4), overfull(rho, np.array(target), k)
    both = np.array([RHO[case][0][0] for case in list(RHO)[:2]])
    return seen | {"the first two in one call": f(np.repeat(DRAFT, 2, 0), both, 2).round(4)}


def slip_rho(test=positions_asked, end="high", constant=None):
    def smallest_rho(draft_probs, target_mass, k, rounds=5, parts=16):
        low, high = np.ones((len(draft_probs), 1)), np.full((len(draft_probs), 1), float(k))
        for _ in range(20):
            rho = (low + high) / 2
            beta = np.minimum(draft_probs, target_mass / rho).sum(-1, keepdims=True)
            infeasible = test(beta, k) > rho
            low, high = np.where(infeasible, rho, low), np.where(infeasible, high, rho)
        if constant is not None:
            return np.full_like(low, constant(k))
        return low if end == "low" else high

    return smallest_rho


# ---------------------------------------------------------------- RRS as a flow

ROUNDS = {
    "draft (.5 .3 .2), target (.2 .3 .5), k = 2: coins, flow": ([[0.2, 0.3, 0.5]], 2),
    "half of that target, k = 2": ([[0.1, 0.15, 0.25]], 2),
    "the whole target, k = 1": ([[0.2, 0.3, 0.5]], 1),
    "the whole target, k = 3": ([[0.2, 0.3, 0.5]], 3),
}


def observe_rounds(f):
    seen = {}
    for case, (target, k) in ROUNDS.items():
        coins, out = f(DRAFT, np.array(target), k)
        seen[case] = [c[0] for c in coins], out[0]
    return seen


def slip_rounds(alive_is_target=False, alive_stays=False, alive_forgets=False, target_stays=False,
                by_draft=False):
    def rejection_rounds(draft_probs, target_mass, k):
        left, alive, coins = target_mass, np.ones((len(target_mass), 1)), []
        if alive_is_target:
            alive = target_mass.sum(-1, keepdims=True)
        out = np.zeros_like(target_mass)
        for _ in range(k):
            offered = alive * draft_probs
            taken = np.minimum(offered, np.maximum(left, 0))
            coins.append(taken / np.maximum(draft_probs if by_draft else offered, TINY))
            out = out + taken
            left = left if target_stays else left - taken
            if not alive_stays:
                alive = (1 if alive_forgets else alive) - taken.sum(-1, keepdims=True)
        return coins, out

    return rejection_rounds


# ---------------------------------------------------------------- scores of one layer

KIDS = ("RRS, A = .9, a = (.6 .3), children (0 2), (1 1), draft (.5 .3 .2), targets (.2 .3 .5), "
        "(.6 .3 .1): scores of the children")
LAYER = {
    "A": np.array([0.9]),
    "scores": np.array([[0.6, 0.3]]),
    "tokens": np.array([[[0, 2], [1, 1]]]),
    "draft_probs": np.repeat(DRAFT[None], 2, axis=1),
    "target_probs": np.array([[[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]]]),
}


def observe_children(f):
    kids, flow = f(RRS, *LAYER.values())
    return {KIDS: kids[0], "the same: flow": flow[0],
            "the same with K-SEQ, P[some child of the first node]":
                f(KSEQ, *LAYER.values())[0][0, 0].sum() <= 2 / 3 + 1e-12}


def slip_children(scale="A", share="lambda", out_share=True):
    def score_children(rule, A, scores, tokens, draft_probs, target_probs):
        B, n, k = tokens.shape
        capacity = {"A": A[:, None, None] + 0 * scores[:, :, None], "1": 1 + 0 * scores[:, :, None],
                    "a_v": scores[:, :, None]}[scale]
        part = scores[:, :, None] / (A[:, None, None] if share == "lambda" else 1)
        part = np.ones_like(part) if share == "1" else part
        target_mass = (capacity * target_probs).reshape(B * n, -1)
        local = rule(draft_probs.reshape(B * n, -1), target_mass, k)
        kids = part * local.accept(tokens.reshape(B * n, k)).reshape(B, n, k)
        return kids, (part if out_share else 1) * local.out.reshape(B, n, -1)

    return score_children


# ---------------------------------------------------------------- h_v and the residual

SCORES, FLOW = LAYER["scores"], np.array([[[0.12, 0.18, 0.18], [0.18, 0.09, 0.03]]])


def observe_stop(f):
    nothing = np.zeros_like(FLOW)
    whole = f(np.array([[0.5, 0.5]]), np.array([[[0.25, 0.25, 0], [0.25, 0, 0.25]]]))
    return {"a = (.6, .3), sent on: .48 and .3": f(SCORES, FLOW),
            "a = (.6, .3), leaves": f(SCORES, nothing),
            "a = (.5, .5), all of it sent on: a number": bool(np.isfinite(whole).all())}


def slip_stop(denominator="layer", minus_sent=True, safe=True):
    def stop_probabilities(scores, flow):
        sent = flow.sum(-1)
        below = {"layer": sent.sum(-1, keepdims=True), "own": sent, "none": 0 * sent}[denominator]
        with np.errstate(invalid="ignore", divide="ignore"):
            h = (scores - (sent if minus_sent else 0)) / np.maximum(1 - below, TINY if safe else 0)
        return h

    return stop_probabilities


def observe_owed(f):
    distribution = f(SCORES, LAYER["target_probs"], FLOW)
    rounding = f(np.array([[0.5]]), np.array([[[0.6, 0.4, 0]]]), np.array([[[0.3 + 1e-12, 0, 0]]]))
    return {"a = (.6, .3), targets (.2 .3 .5) and (.6 .3 .1)": distribution[0],
            "a flow that is 1e-12 too large: anything negative?": bool((rounding < 0).any())}


BLANKS = [
    Blank(
        "single_step_rules:rejection_rounds",
        "* Recursive rejection sampling as water in pipes, for n problems at once, a row each: "
        "arrays (n, V). Play k rounds. `left` is what each token can still take; it starts as "
        "target_mass. `alive` (n, 1) is the probability that nothing is accepted yet; it starts "
        "at 1, also where target_mass sums to less (the rest belongs to a dummy token that is "
        "never drafted). In a round, alive times draft_probs is offered, each token takes what it "
        "can, and both `left` and `alive` shrink by what was taken. The round's coin is the share "
        "of the offer that was taken. Return the list of the k coins, (n, V) each, and all that "
        "was taken, (n, V). You may call np.minimum(a, b), np.maximum(a, b), x.sum(-1, "
        "keepdims=True), and TINY, a tiny number to divide by where nothing is offered.",
        "Offered: alive times draft_probs. Taken: the smaller of offered and left. Rounding may "
        "take a little too much: keep alive at 0 or above.",
        7, 12, observe_rounds,
        # whole: takes (.2 .3 .2), leaves (0 0 .3), alive .3; then (0 0 .06) of (.15 .09 .06)
        # a third round: leaves (0 0 .24), alive .24; then (0 0 .048) of (.12 .072 .048)
        # half: takes (.1 .15 .2), leaves (0 0 .05), alive .55; then (0 0 .05) of (0 0 .11)
        {"draft (.5 .3 .2), target (.2 .3 .5), k = 2: coins, flow":
            ([[0.4, 1, 1], [0, 0, 1]], [0.2, 0.3, 0.26]),
         "half of that target, k = 2": ([[0.2, 0.5, 1], [0, 0, 5 / 11]], [0.1, 0.15, 0.25]),
         "the whole target, k = 1": ([[0.4, 1, 1]], [0.2, 0.3, 0.2]),
         "the whole target, k = 3": ([[0.4, 1, 1], [0, 0, 1], [0, 0, 1]], [0.2, 0.3, 0.308])},
        lambda: lossless_promise(("RRS",)),
        {"alive starts at the target's mass, so the dummy is forgotten":
            slip_rounds(alive_is_target=True),
         "alive never shrinks: the residual is not renormalised": slip_rounds(alive_stays=True),
         "alive is 1 minus the last round's take, not what is left of alive":
            slip_rounds(alive_forgets=True),
         "the target is not reduced by what was taken": slip_rounds(target_stays=True),
         "a coin is taken / draft instead of taken / offered": slip_rounds(by_draft=True)}),
    Blank(
        "layer_verification:still_owed",
        "* The accepted path goes through node v with probability a_v (scores), and on average "
        "flow_v(z) of it goes on to a child with token z. If the path ends at v, the target adds "
        "a token of its own. Return how much of each token is still missing at v, not normalised: "
        "scores (B, n), target_probs and flow (B, n, V) -> (B, n, V), for n nodes in each of B "
        "trees. You may call np.maximum(a, b); scores[:, :, None] has shape (B, n, 1). Rounding "
        "must leave nothing below 0.",
        "v is reached with probability a_v only, so the target's part there is a_v times its "
        "distribution.",
        1, 5, observe_owed,
        {"a = (.6, .3), targets (.2 .3 .5) and (.6 .3 .1)": [[0, 0, 0.12], [0, 0, 0]],
         "a flow that is 1e-12 too large: anything negative?": False},
        lossless_promise,
        {"the target is not scaled by a_v":
            lambda a, target, flow: np.maximum(target - flow, 0),
         "the flow is not subtracted": lambda a, target, flow: a[:, :, None] * target,
         "rounding may leave a negative probability":
            lambda a, target, flow: a[:, :, None] * target - flow}),
    Blank(
        "layer_verification:score_children",
        "** The forward stage on one layer of B trees: n nodes with k children each. Run the rule "
        "at every node, on its draft_probs against A times its target_probs, and multiply all "
        "that it says by the node's share of the layer, lambda_v = a_v / A. A is given, for the "
        "layer may have more nodes than these n: you are called once for all nodes with the same "
        "number of children. Return the children's "
        "scores (B, n, k) and the flow (B, n, V). local = rule(draft, mass, k) solves many nodes "
        "in one call: draft and mass are (rows, V), one row per node; local.accept(drawn), with "
        "drawn (rows, k), gives P[child is accepted] (rows, k), and local.out (rows, V) is the "
        "flow. x.reshape(B * n, -1) turns (B, n, V) into rows, and A[:, None, None] has shape (B, "
        "1, 1). A can be 0: divide by np.maximum(A, TINY).",
        "Reshape (B, n, V) to (B n, V), call the rule once, reshape both answers back; both get "
        "the same factor.",
        6, 15, observe_children,
        # Node 1: .9 target = (.18 .27 .45); RRS takes (.18 .27 .20), then (0 0 .07); coins for
        # children 1, 3: .36, and 1 for the rest: (.36, .64) * 2/3.
        # Node 2: .9 target = (.54 .27 .09); takes (.5 .27 .09), then (.04 0 0); the second child
        # is the same token, and has coin 0 in round 2: (.9, 0) * 1/3.
        {KIDS: [[0.24, 0.64 * 2 / 3], [0.3, 0]],
         "the same: flow": [[0.12, 0.18, 0.18], [0.18, 0.09, 0.03]],
         "the same with K-SEQ, P[some child of the first node]": True},
        lossless_promise,
        {"the target is not scaled by A (or is normalised again)": slip_children(scale="1"),
         "the target is scaled by a_v instead of A: lossless, but shorter":
            slip_children(scale="a_v"),
         "the target is scaled by a_v and nothing by lambda_v":
            slip_children(scale="a_v", share="1"),
         "the flow is not scaled by lambda_v": slip_children(out_share=False)}),
    Blank(
        "layer_verification:stop_probabilities",
        "** The backward stage on one layer: the path has not been ended below this layer. With "
        "which probability does it end at v, and not at another node of the layer or above it? "
        "Think of two probabilities, on average over what may be drawn below: that the path goes "
        "through v but not on to v's children, and that it does not go on below this layer at "
        "all. scores (B, n) are the a_v, flow (B, n, V) is what each node sends on to its "
        "children, by token; -> (B, n). You may call flow.sum(-1), x.sum(-1, keepdims=True), "
        "np.maximum(a, b), and TINY, a tiny number to divide by. Where everything goes on, 0 must "
        "not be divided by 0; and rounding must leave no number below 0 and no layer whose sum is "
        "above 1.",
        "The denominator is the same for all nodes of the layer: 1 minus everything that the "
        "layer sends on. Where that is 0, so is the numerator.",
        3, 10, observe_stop,
        # (.6 - .48) / (1 - .48 - .3) = .12 / .22
        {"a = (.6, .3), sent on: .48 and .3": [[6 / 11, 0]],
         "a = (.6, .3), leaves": [[0.6, 0.3]],
         "a = (.5, .5), all of it sent on: a number": True},
        lossless_promise,
        {"the denominator is left out": slip_stop(denominator="none"),
         "the denominator knows of the node's own flow only": slip_stop(denominator="own"),
         "what v sends on stays in its score": slip_stop(minus_sent=False),
         "0 is divided by 0 where everything goes on": slip_stop(safe=False)}),
    Blank(
        "single_step_rules:smallest_rho",
        "*** K-SEQ asks the k children one after the other and accepts token z with min(1, target "
        "/ (rho draft)), the same coin for each. Let beta = sum over z of min(draft, target / "
        "rho), the chance that a child passes. Find the smallest rho in [1, k] with "
        "positions_asked(beta, k) <= rho, for n problems at once: draft_probs and target_mass (n, "
        "V) -> rho (n, 1), within 1e-6 and never below the smallest. If a rho is large enough, so "
        "is every larger one, and k always is. For k = 1 it is 1. You may call "
        "positions_asked(beta, k), how many children are asked on average: for beta = .5 and k = "
        "2 it is 1.5, and arrays work too; np.minimum(a, b), np.where(test, a, b) and x.sum(-1, "
        "keepdims=True). rounds and parts may stay unused.",
        "Bisection: keep a lower end that is too small and an upper end that is large enough, and "
        "return the upper one, a row each. 25 halvings are plenty.",
        8, 15, observe_rho,
        # beta = (.42 + .3) / 1.2 + .2 = .8, and 1 + (1 - .8) = 1.2
        # k = 3: beta = .6 / 1.6099 + .2 = .5727, and 1 + .4273 (1 + .4273) = 1.6099
        # half: beta = .5 / rho, so 2 - .5 / rho = rho, rho = 1 + sqrt(1/2)
        {"draft (.5 .3 .2), target (.42 .3 .28), k = 2: shape, rho, is a token overfull?":
            ((1, 1), 1.2, False),
         "half of that target (the dummy has the rest), k = 2": ((1, 1), 1.7071, False),
         "target equal to the draft, k = 2": ((1, 1), 1.0, False),
         "the first target again, k = 1": ((1, 1), 1.0, False),
         "target (.3 .3 .4), k = 3": ((1, 1), 1.6099, False),
         "the first two in one call": [[1.2], [1.7071]]},
        lambda: lossless_promise(("K-SEQ",)),
        {"rho is always k: lossless, but far too careful": slip_rho(constant=float),
         "rho is left at 1": slip_rho(constant=lambda k: 1.0),
         "the infeasible end of the bisection is returned": slip_rho(end="low"),
         "one position more is counted for any k, 1 + (1 - beta)":
            slip_rho(test=lambda beta, k: 2 - beta),
         "the positions asked are taken for beta times k":
            slip_rho(test=lambda beta, k: beta * k)}),
]
