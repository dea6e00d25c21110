"""Layer verification: accept along whole layers of the tree instead of token by token.

A single-step rule says which of a node's k children to accept. To judge a whole tree it has to be
lifted. The usual lift, token verification (TV), goes down from the root and stops at the first
node where no child is accepted; the rest of the tree is lost. Layer verification (LV) keeps every
branch in play. It gives each node a score (the paper's inclusion score)

    a_v = P[the accepted path goes through v | the tree down to the layer of v]

Down, from the root (a = 1), one layer at a time. Let A be the sum of a_v over the nodes of
the layer that have children, and lambda_v = a_v / A. At each of them the single-step rule runs on

    draft_probs of v   against   A target_probs of v,

and all that it says is scaled by lambda_v: children get a_w = lambda_v * accept(w), and v sends on
flow_v = lambda_v * out, which stays below a_v target_probs because out stays below A target_probs.

Up, from the deepest layer: stop at v with probability h_v, given that nothing deeper was
chosen; the next token comes from what v still owes, a_v target_probs - flow_v.

Why this gains: TV is the same with A = 1, so lambda_v = a_v. TV uses at most a fraction a_v of v's
draws; LV uses the larger fraction lambda_v, against a smaller target. On a chain lambda is 1 and A
is a_v, and LV of any rule is block verification.

By hand, a chain of two: draft (.5, .5), target (.9, .1) at both nodes, token 2 drawn first, SpS.
a = min(1, .1 / .5) = .2. TV: the next token is accepted with .2 * (1 or .2), .12 on average.
LV: A = .2, out = min((.5, .5), (.18, .02)) = (.18, .02), .2 on average.

Read the chapter in this order: single_step_rules.py (one node), iid_trees.py (the trees), this file
(the whole tree); then global_resolution.py (the best rule for one node), block_rules.py (rivals).

Source: "Layer Verification Accelerates Speculative Tree Decoding" (2026), Section 4, Algorithms 1
and 4, Equations 1 and 2, Section E.2. Letters, in this chapter as in the others: p is the target
and q the drafter. Most papers on these rules swap them:

    theirs        p_v           q_v            a_v   A_t   flow_v   P[v | ..] = h_v
    in the code   draft_probs   target_probs   scores  A   flow     stop_probabilities
"""

import numpy as np
import torch

from iid_trees import as_arrays
from single_step_rules import TINY

# ---------------------------------------------------------------- a rule, as the loop calls it


class TreeRule:
    """A verification rule, callable as the loop of chapter 02 wants it.

    A subclass defines judge(shape, tokens, draft_probs, target_probs), on B trees of one shape (the
    arrays of iid_trees.py)
    -> ends (B, N): P[the accepted path ends at v | tree], each row summing to 1
    -> residual (B, N, V): the distribution of the next token there, not normalised.
    """

    def __call__(self, tree, target_probs, dice):
        """tree with draft_probs, N nodes; target_probs (N, V) -> path (rows, from 0), next token.

        Raises ValueError if the tree is not one that this rule can judge.
        """
        shape, tokens, draft_probs, target_probs = as_arrays(tree, target_probs)
        ends, residual = self.judge(shape, tokens, draft_probs, target_probs)
        # Both answers are exact, so two draws are all the chance there is.
        end = dice.draw(torch.from_numpy(ends[0]))
        return shape.path(end), next_token(residual[0, end], target_probs[0, end], dice)

    def expected_length(self, shape, *arrays):
        """Expected number of accepted tokens (B,) given the trees; the next token not counted."""
        ends, _ = self.judge(shape, *arrays)
        return ends @ shape.depths


def next_token(residual, target_probs, dice):
    """Draw from a residual (V,), not normalised."""
    # One without mass belongs to a node where nothing is rejected: the path ends there only by
    # rounding, and any answer will do.
    return dice.draw(torch.from_numpy(residual if residual.sum() > 0 else target_probs))


# ---------------------------------------------------------------- down: scores


def score_children(rule, A, scores, tokens, draft_probs, target_probs):
    """The way down for n nodes of one layer with k children each, in B trees.

    rule: a single-step rule's class; A (B,): what the target is scaled by; scores (B, n): a_v of
    the nodes; tokens (B, n, k): their children; draft_probs, target_probs (B, n, V)
    -> the children's scores (B, n, k), flow_v (B, n, V).
    """
    B, n, k = tokens.shape  # Algorithm 1, lines 5 to 13
    # Line 5. The shares of a layer add up to 1, so whatever is drawn, its scores add up to <= 1.
    share = (scores / np.maximum(A, TINY)[:, None])[:, :, None]  # lambda_v, (B, n, 1)
    # Lines 8 and 9: a_v / lambda_v is A. Not normalised: the missing 1 - A is the dummy token's.
    target_mass = A[:, None, None] * target_probs
    # Lines 7 and 10: all B n flow problems in one call.
    local = rule(draft_probs.reshape(B * n, -1), target_mass.reshape(B * n, -1), k)
    # Line 13: each drawn child's chance to be accepted; `accept` has settled it among copies.
    accepted = local.accept(tokens.reshape(B * n, k)).reshape(B, n, k)
    # Line 11: the flow over all tuples that might have been drawn, not only over this one.
    return share * accepted, share * local.out.reshape(B, n, -1)


def inclusion_scores(rule, capacity, shape, tokens, draft_probs, target_probs):
    """The way down (Algorithm 1) -> scores a_v (B, N), flow_v (B, N, V).

    rule: a single-step rule's class; capacity(scores of the inner nodes of a layer (B, n)) -> (B,)
    is A, what the target is scaled by.
    """
    scores, flow = np.zeros(tokens.shape), np.zeros(target_probs.shape)  # line 2: leaves send 0
    scores[:, 0] = 1  # line 1
    for layer in shape.layers[:-1]:  # line 3
        # Line 4. subtle: leaves above the deepest layer have a score, but no part in A.
        A = capacity(scores[:, layer.inner])  # (B,)
        for parents, kids in layer.families:  # line 6; (n,), (n, k)
            scores[:, kids], flow[:, parents] = score_children(
                rule, A, scores[:, parents], tokens[:, kids],
                draft_probs[:, parents], target_probs[:, parents])
    return scores, flow


# ---------------------------------------------------------------- up: one path


def stop_probabilities(scores, flow):
    """h_v of one layer: P[the path ends at v | it ends in this layer or above].

    scores (B, n), flow (B, n, V) -> (B, n). Example: scores (.2, .6), of which .18 and .42 flow on
    to the children: (.05, .45).
    """
    # Equation 1. What is left of v's score after all that v sends on, divided by P[the path does
    # not go on below this layer].
    sent = flow.sum(-1)  # (B, n): P[the path goes on below v | ..]
    # One denominator for the whole layer. Where it is 0, everything goes on, and so is the top.
    h = np.maximum(scores - sent, 0) / np.maximum(1 - sent.sum(-1, keepdims=True), TINY)
    # Where both are mere rounding, their ratio is anything; as probabilities h may sum to 1.
    return h / np.maximum(h.sum(-1, keepdims=True), 1)


def still_owed(scores, target_probs, flow):
    """The distribution of the next token at v, not normalised.

    scores (B, n), target_probs, flow (B, n, V) -> (B, n, V). Example: score .2, target (.9, .1),
    flow (.18, 0): (0, .02).
    """
    # Equation 2. The target wants a_v of its probability here; v's children receive flow_v on
    # average.
    return np.maximum(scores[:, :, None] * target_probs - flow, 0)


def end_probabilities(shape, scores, flow):
    """The way up (Algorithm 4) -> (B, N): P[the accepted path ends at v].

    shape: of N nodes; scores (B, N), flow (B, N, V).
    """
    # alive: P[no deeper layer has stopped the path]. Algorithm 4 draws layer by layer; we multiply
    # its stages, so that the whole path takes one draw.
    ends, alive = np.zeros_like(scores), np.ones((len(scores), 1))
    for layer in reversed(shape.layers[1:]):  # line 2
        h = stop_probabilities(scores[:, layer.rows], flow[:, layer.rows])  # line 3
        ends[:, layer.rows] = alive * h
        alive = np.maximum(alive * (1 - h.sum(-1, keepdims=True)), 0)  # line 4
    # subtle: h of the root is 1, there must be an end; Equation 1 may say 0 / 0 there.
    ends[:, :1] = alive
    return ends


# ---------------------------------------------------------------- the two lifts


class LiftedRule(TreeRule):
    """A single-step rule on a whole tree. TV and LV differ in two methods, which they define:

    capacity(scores of a layer's inner nodes (B, n)) -> (B,): A, what the target is scaled by
    ends(shape, scores (B, N), flow (B, N, V)) -> (B, N): P[the accepted path ends at v]
    """

    def __init__(self, rule):
        self.rule = rule  # a class of single_step_rules.py or global_resolution.py

    def scores(self, *trees):
        """a_v (B, N), flow_v (B, N, V) of B trees: shape, tokens, draft_probs, target_probs."""
        return inclusion_scores(self.rule, self.capacity, *trees)

    def judge(self, shape, tokens, draft_probs, target_probs):
        scores, flow = self.scores(shape, tokens, draft_probs, target_probs)
        return self.ends(shape, scores, flow), still_owed(scores, target_probs, flow)

    def expected_length(self, *trees):
        """As in TreeRule, but averaged over what is drawn below each node: the same mean over
        trees, and less spread."""
        scores, _ = self.scores(*trees)
        return scores[:, 1:].sum(-1)


class LayerVerification(LiftedRule):
    """LV of a single-step rule: LayerVerification(KSEQ)(tree, target_probs, dice)."""

    def capacity(self, scores):
        """(B, n) -> (B,): A_t, the same for all nodes of the layer."""
        return scores.sum(-1)

    def ends(self, shape, scores, flow):
        """See end_probabilities."""
        return end_probabilities(shape, scores, flow)


class TokenVerification(LiftedRule):
    """TV of a single-step rule: down from the root; it stops where no child is accepted."""

    def capacity(self, scores):
        """(B, n) -> (B,): the whole target at every node, so that lambda_v = a_v."""
        return np.ones(len(scores))

    def ends(self, shape, scores, flow):
        """(B, N), (B, N, V) -> (B, N): the path comes to v, and accepts no child of v."""
        ends = scores.copy()
        for row, parent in enumerate(shape.parents[1:], start=1):
            ends[:, parent] -= scores[:, row]
        return np.maximum(ends, 0)

    def __call__(self, tree, target_probs, dice):
        shape, (tokens,), (draft,), (target,) = as_arrays(tree, target_probs)
        row = 0
        # What judge says, drawn step by step: only the nodes on the path need solving.
        while kids := shape.children[row]:
            local = self.rule(draft[[row]], target[[row]], len(kids))
            accept = local.accept(tokens[None, kids])[0]  # (k,)
            none = max(1 - accept.sum(), 0)
            choice = dice.draw(torch.tensor([*accept, none], dtype=torch.float64))
            if choice == len(kids):
                owed = np.maximum(target[row] - local.out[0], 0)
                return shape.path(row), next_token(owed, target[row], dice)
            row = kids[choice]
        return shape.path(row), next_token(target[row], target[row], dice)
