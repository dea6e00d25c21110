"""Rules that judge whole paths directly, without a single-step rule: BV, GBV, TRV.

`block_verification` is BV for chapter 01's loop, one chain and its coins. The others judge B trees
at once and flip none.

    BV    block verification: one chain; equal to LV of SpS. The optimum there among rules that
          start each round afresh from the target's own p
    GBV   greedy multi-path block verification: picks one of several chains, then BV
    TRV   traversal verification: recursive rejection from the leaves up, on any tree

Sources: BV: Sun et al. 2025 (2403.10444). GBV: Thomas & Pal 2026 (2602.16961). TRV: Weng et al.
2025 (2505.12398), for children drawn with replacement.
"""

import numpy as np
import torch

from chain_specdec import residual  # chapter 01
from layer_verification import TreeRule
from single_step_rules import TINY


def score(weight, target, draft):
    """A drawn token's score, of its parent's, `weight`, and the token's probabilities; numbers, or
    arrays (B,). Example: weight .2, target .9, draft .5: .36."""
    # min(1, weight target / draft). In this order nothing overflows, however small the draft's
    # probability is.
    return np.minimum(draft, weight * target) / np.maximum(draft, TINY)


# ---------------------------------------------------------------- one chain


def block_verification(drafted, draft_probs, target_probs, dice):
    """BV in the place of chapter 01's `accept`: the chain is judged as a whole.

    drafted: K tokens; draft_probs: K rows (V,), what they were drawn from; target_probs (K + 1, V).
    -> n, how many drafts are accepted, and the next token, which is always the target's.
    """
    # a[i]: P[the accepted path goes through draft i | the drafts down to i].
    a = [1.0]
    for i, token in enumerate(drafted):
        p, q = float(target_probs[i][token]), float(draft_probs[i][token])
        a.append(float(score(a[i], p, q)))
    if dice.flip(a[-1]):  # the last draft is asked first: nothing goes on from it
        return len(drafted), dice.draw(target_probs[len(drafted)])
    for n in reversed(range(len(drafted))):
        wanted, q = a[n] * target_probs[n], draft_probs[n]  # (V,), (V,)
        # s: what goes on from draft n, on average; with a = 1 it is chapter 01's alpha.
        sent = float(torch.minimum(wanted, q).sum())
        # h: what is left of its score, among the rounds in which nothing goes on from here. At the
        # root a = 1, so h = 1: it takes all that is left.
        if n == 0 or sent < 1 and dice.flip(max(a[n] - sent, 0.0) / (1 - sent)):
            return n, dice.draw(residual(wanted, q))


def block_verify(tokens, draft_probs, target_probs):
    """BV on B chains of depth H: tokens (B, H+1), probs (B, H+1, V), the root first.

    -> ends (B, H+1): P[the accepted path ends at i]; residual (B, H+1, V).
    """
    B, length = tokens.shape
    every, weight = np.arange(B), np.ones((B, length))
    for i in range(1, length):
        token = tokens[:, i]
        # The joint acceptance of the first i tokens: a weight below 1 may recover, up to 1.
        weight[:, i] = score(weight[:, i - 1], target_probs[every, i - 1, token],
                             draft_probs[every, i - 1, token])
    residual = weight[:, :, None] * target_probs  # (B, H+1, V)
    # Below the last token nothing was drafted, so there the target's own distribution stays.
    residual[:, :-1] = np.maximum(residual[:, :-1] - draft_probs[:, :-1], 0)
    owed = residual.sum(-1)  # (B, H+1)
    # P[stop at i | nothing deeper passed]: what i owes, of all that does not go on from it.
    h = owed / np.maximum(owed + (1 - weight), TINY)
    h[:, -1], h[:, 0] = weight[:, -1], 1
    # The LAST index that passes its coin, not the first that fails.
    missed = np.cumprod(1 - h[:, :0:-1], axis=1)[:, ::-1]  # (B, H): all of i.. missed
    return h * np.concatenate([missed, np.ones((B, 1))], axis=1), residual


class BlockVerification(TreeRule):
    """BV. Raises ValueError if the tree is not a chain."""

    def judge(self, shape, tokens, draft_probs, target_probs):
        if any(len(children) > 1 for children in shape.children):
            raise ValueError("BV judges chains; a node of this tree has several children")
        return block_verify(tokens, draft_probs, target_probs)


# ---------------------------------------------------------------- the best of several chains


def on_paths(paths, ends, residual, N):
    """What BV says on one path (B, H+1) of each tree -> the same for all N nodes."""
    every = np.arange(len(paths))[:, None]
    all_ends, all_residual = np.zeros((len(paths), N)), np.zeros((len(paths), N, residual.shape[2]))
    all_ends[every, paths], all_residual[every, paths] = ends, residual
    return all_ends, all_residual


class GreedyBlockVerification(TreeRule):
    """GBV: of K chains below the root, take the best, and judge it as a draw of the best of K.

    At each node tokens are ranked by target / draft; the best chain is the largest in
    lexicographic order. The maximum of K independent draws has a distribution of its own, in closed
    form from the cumulative draft distribution, and BV judges the chain against it.
    Raises ValueError if a node other than the root has several children.
    """

    def judge(self, shape, tokens, draft_probs, target_probs):
        if any(len(children) > 1 for children in shape.children[1:]):
            raise ValueError("GBV judges chains that part at the root; this tree parts below it")
        leaves = shape.layers[-1].rows
        chains = np.array([shape.path(leaf) for leaf in leaves])  # (K, H+1)
        paths, skewed = self.best(chains, tokens, draft_probs, target_probs)
        every = np.arange(len(tokens))[:, None]
        ends, residual = block_verify(tokens[every, paths], skewed, target_probs[every, paths])
        return on_paths(paths, ends, residual, tokens.shape[1])

    @staticmethod
    def best(chains, tokens, draft_probs, target_probs):
        """-> the best chain's rows (B, H+1); its distribution given its prefix (B, H+1, V)."""
        (K, length), every = chains.shape, np.arange(len(tokens))
        leading = np.ones((len(tokens), K), bool)  # chains that equal the best one so far
        below, joint = np.zeros((2, len(tokens), 1))  # P[one chain < the prefix], P[= the prefix]
        joint += 1
        skewed = np.zeros((len(tokens), length, draft_probs.shape[-1]))
        for t in range(length - 1):
            row = chains[leading.argmax(1), t]  # (B,): the leaders agree so far, any one will do
            draft, target = draft_probs[every, row], target_probs[every, row]  # (B, V)
            # subtle: ties by token id. The order must be strict, and the same for rank and cdf.
            order = np.argsort(target / np.maximum(draft, TINY), axis=-1, kind="stable")
            rank = np.argsort(order, axis=-1)
            cdf = draft[every[:, None], order].cumsum(-1)[every[:, None], rank]  # up to z, with z
            low = below + joint * (cdf - draft)  # P[one chain < prefix + z]
            high = low + joint * draft  # P[one chain <= prefix + z]
            # P[the maximum continues with z] = high^K - low^K, without its cancellation.
            probs = draft * sum(high ** i * low ** (K - 1 - i) for i in range(K))
            skewed[:, t] = probs / np.maximum(probs.sum(-1, keepdims=True), TINY)
            drawn = tokens[:, chains[:, t + 1]]  # (B, K)
            # Of those that lead, the chains with the best next token lead on.
            ranks = np.where(leading, rank[every[:, None], drawn], -1)
            leading = ranks == ranks.max(1, keepdims=True)
            token = drawn[every, leading.argmax(1)]
            below, joint = low[every, token][:, None], joint * draft[every, token][:, None]
        return chains[leading.argmax(1)], skewed


# ---------------------------------------------------------------- a tree, from its leaves up


class TraversalVerification(TreeRule):
    """TRV: visit the tree from its leaves up, and accept the first node that passes.

    A node's weight is its acceptance if all of its subtree is rejected; a rejected child turns the
    node's target into the residual, as in recursive rejection sampling.
    """

    def judge(self, shape, tokens, draft_probs, target_probs):
        every = np.arange(len(tokens))
        ends, residual = np.zeros(tokens.shape), np.zeros(target_probs.shape)
        alive = np.ones(len(tokens))  # P[nothing visited so far was accepted]

        def visit(node, weight):
            nonlocal alive
            left, draft = target_probs[:, node], draft_probs[:, node]  # (B, V)
            for child in shape.children[node]:
                token = tokens[:, child]
                visit(child, score(weight, left[every, token], draft[every, token]))
                # We are back, so all of the child's subtree was rejected: the residual remains.
                left = np.maximum(weight[:, None] * left - draft, 0)
                owed = left.sum(-1)  # (B,)
                left = left / np.maximum(owed, TINY)[:, None]
                # subtle: draft stays as it is, for children are drawn with replacement.
                weight = owed / np.maximum(owed + (1 - weight), TINY)
            weight = weight if node else np.ones(len(tokens))  # at the root there must be an end
            ends[:, node], residual[:, node] = alive * weight, left
            alive = alive * (1 - weight)

        visit(0, np.ones(len(tokens)))
        return ends, residual
