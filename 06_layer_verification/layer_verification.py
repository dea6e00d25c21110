"""Layer verification: accept along whole layers of the tree instead of token by token.

A single-step rule says which of a node's k children to accept. To judge a whole tree it has to be
lifted. The usual lift, token verification (TV), walks down from the root and stops at the first
node where no child is accepted; the rest of the tree is lost. Layer verification (LV) keeps every
branch in play. It gives each node an inclusion score

    a_v = P[the accepted path goes through v | the tree down to the layer of v]

in a forward stage, and turns the scores into one accepted path in a backward stage.

Forward, from the root (a = 1) down, one layer at a time. Let A be the sum of a_v over the nodes of
the layer that have children, and lambda_v = a_v / A. At each of them the single-step rule runs on

    draft_probs of v   against   A target_probs of v,

and its flow is scaled by lambda_v: children get a_w = lambda_v * accept(w), and v sends on
flow_v = lambda_v * out, which stays below a_v target_probs because out stays below A target_probs.

Why A and lambda? TV runs the rule against the whole target and scales its flow by a_v; that fits as
well, but it never reaches for more than a share a_v of v's draws. LV reaches for lambda_v, a larger
share, and asks each draw for less: a smaller target is filled more easily. The shares of a layer
add up to 1, so whatever is drawn, its scores add up to at most 1. Shares of 1 and a target of
a_v would break that. Shares of lambda_v and a target of a_v would not, and lose nothing but length,
0.1 to 1.2 tokens at the setting of Table 1: the bug that no test of losslessness can see.
On a chain lambda is 1 and A is a_v, and LV of any rule is block verification.

By hand, a chain of two: draft (.5, .5), target (.9, .1) at both nodes, token 2 drawn first, SpS.
a = min(1, .1 / .5) = .2. TV: the next token is accepted with .2 * (1 or .2), .12 on average.
LV: A = .2, out = min((.5, .5), (.18, .02)) = (.18, .02), .2 on average.

Backward, from the deepest layer up: stop at v with probability h_v, given that nothing deeper was
chosen; the next token comes from what v still owes, a_v target_probs - flow_v.

Source: "Layer Verification Accelerates Speculative Tree Decoding" (2026), Section 4, Algorithms 1
and 4, Equations 1 and 2, Section E.2. In the paper's letters p is the draft and q the target.
"""

import numpy as np
import torch

from single_step_rules import TINY
from tree_rule import Drafted, TreeRule


def score_children(rule, A, scores, tokens, draft_probs, target_probs):
    """Lines 7 to 13 of Algorithm 1, for n nodes of one layer with k children each, in B trees.

    A (B,): what the target is scaled by; scores (B, n): a_v of the nodes; tokens (B, n, k): their
    children; draft_probs, target_probs (B, n, V) -> the children's scores (B, n, k), flow_v
    (B, n, V).
    """
    B, n, k = tokens.shape
    share = (scores / np.maximum(A, TINY)[:, None])[:, :, None]  # lambda_v
    # Not normalised: the missing 1 - A is the dummy token's, which no draft can be.
    target_mass = A[:, None, None] * target_probs
    local = rule(draft_probs.reshape(B * n, -1), target_mass.reshape(B * n, -1), k)
    accepted = local.accept(tokens.reshape(B * n, k)).reshape(B, n, k)
    return share * accepted, share * local.out.reshape(B, n, -1)


def inclusion_scores(rule, capacity, shape, tokens, draft_probs, target_probs):
    """The forward stage (Algorithm 1) -> scores a_v (B, N), flow_v (B, N, V); leaves send 0.

    rule: a single-step rule's class; capacity(scores of the inner nodes of a layer (B, n)) -> (B,)
    is A, what the target is scaled by.
    """
    scores, flow = np.zeros(tokens.shape), np.zeros(target_probs.shape)
    scores[:, 0] = 1
    for layer in shape.layers[:-1]:
        # subtle: leaves above the deepest layer have a score, but no part in A.
        A = capacity(scores[:, layer.inner])  # (B,)
        for parents, kids in layer.families:  # (n,), (n, k)
            scores[:, kids], flow[:, parents] = score_children(
                rule, A, scores[:, parents], tokens[:, kids],
                draft_probs[:, parents], target_probs[:, parents])
    return scores, flow


def stop_probabilities(scores, flow):
    """h_v of one layer (Equation 1): P[the path ends at v | it ends in this layer or above].

    scores (B, n), flow (B, n, V) -> (B, n). What is left of v's score after all that v sends on,
    divided by P[the path does not go on below this layer].
    """
    sent = flow.sum(-1)  # (B, n): P[the path goes on below v | ..]
    h = np.maximum(scores - sent, 0) / np.maximum(1 - sent.sum(-1, keepdims=True), TINY)
    return h / np.maximum(h.sum(-1, keepdims=True), 1)  # 0 / 0 where everything goes on


def still_owed(scores, target_probs, flow):
    """The law of the next token at v, not normalised (Equation 2): scores (B, n) -> (B, n, V).

    The target's share of a_v, less what v's children receive on average.
    """
    return np.maximum(scores[:, :, None] * target_probs - flow, 0)


def end_probabilities(shape, scores, flow):
    """The backward stage (Algorithm 4) as a law -> (B, N): P[the accepted path ends at v]."""
    ends, alive = np.zeros_like(scores), np.ones((len(scores), 1))
    for layer in reversed(shape.layers[1:]):
        h = stop_probabilities(scores[:, layer.rows], flow[:, layer.rows])
        ends[:, layer.rows] = alive * h
        alive = np.maximum(alive * (1 - h.sum(-1, keepdims=True)), 0)
    ends[:, :1] = alive  # h of the root is 1, also where Equation 1 would say 0 / 0
    return ends


class LayerVerification(TreeRule):
    """LV of a single-step rule: LayerVerification(KSEQ)(tree, target_probs, dice)."""

    def __init__(self, rule):
        self.rule = rule

    def capacity(self, scores):
        """A_t, the same for all nodes of the layer: (B, n) -> (B,)."""
        return scores.sum(-1)

    def scores(self, *trees):
        return inclusion_scores(self.rule, self.capacity, *trees)

    def judge(self, shape, tokens, draft_probs, target_probs):
        scores, flow = self.scores(shape, tokens, draft_probs, target_probs)
        return end_probabilities(shape, scores, flow), still_owed(scores, target_probs, flow)

    def expected_length(self, *trees):
        """The sum of the scores: right on average over drawn trees, and steadier than the ends.

        subtle: a score knows the layers down to its own node and no deeper, so for one tree the
        sum is not the expectation given that whole tree, which is TreeRule's ends @ depths.
        """
        scores, _ = self.scores(*trees)
        return scores[:, 1:].sum(-1)


class TokenVerification(LayerVerification):
    """TV of a single-step rule: the same forward stage with A = 1, so that lambda_v = a_v.

    Only the nodes on the accepted path are ever solved when it is called for one tree.
    """

    def capacity(self, scores):
        return np.ones(len(scores))

    def __call__(self, tree, target_probs, dice):
        drafted, row = Drafted(tree, target_probs), 0
        shape, draft, target = drafted.shape, drafted.draft_probs[0], drafted.target_probs[0]
        while kids := shape.children[row]:
            local = self.rule(draft[[row]], target[[row]], len(kids))
            accept = local.accept(drafted.tokens[:, kids])[0]  # (k,)
            none = max(1 - accept.sum(), 0)
            choice = dice.draw(torch.tensor([*accept, none], dtype=torch.float64))
            if choice == len(kids):
                owed = np.maximum(target[row] - local.out[0], 0)
                return shape.path(row), dice.draw(drafted.residual(row, owed))
            row = kids[choice]
        return shape.path(row), dice.draw(drafted.residual(row, target[row]))
