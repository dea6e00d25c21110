"""What goes wrong in chapter 06: {function: {what was done: the function that does it}}."""

from block_rules import GreedyBlockVerification, TraversalVerification, block_verify
from global_resolution import CappedGR
from layer_verification import (
    end_probabilities,
    inclusion_scores,
    score_children,
    still_owed,
    stop_probabilities,
)
from nanogpt.exact.slips import slips
from single_step_rules import KSEQ, rejection_rounds, smallest_rho

SHRINK = "left, alive = left - taken, np.maximum(alive - taken"
SHARE = "(scores / np.maximum(A, TINY)[:, None])[:, :, None]"
BELOW = "np.maximum(1 - sent.sum(-1, keepdims=True), TINY)"
END = "return low + width"
WRONG = {
    "rejection_rounds": slips(rejection_rounds, {
        "alive starts at the target's mass, so the dummy is forgotten": (
            "np.ones((len(target_mass), 1))", "target_mass.sum(-1, keepdims=True)"),
        "alive never shrinks: the residual is not renormalised": (
            SHRINK, "left, _ = left - taken, np.maximum(alive - taken"),
        "alive is 1 minus the last round's take, not what is left of alive": (
            SHRINK, "left, alive = left - taken, np.maximum(1 - taken"),
        "the target is not reduced by what was taken": (
            SHRINK, "_, alive = left - taken, np.maximum(alive - taken",
            "coins, target_mass - left", "coins, sum(c * draft_probs for c in coins)"),
        "a coin is taken / draft instead of taken / offered": (
            "np.maximum(offered, TINY)", "np.maximum(draft_probs, TINY)"),
    }),
    "still_owed": slips(still_owed, {
        "the target is not scaled by a_v": ("scores[:, :, None] * ", ""),
        "the flow is not subtracted": (" - flow", ""),
        "rounding may leave a negative probability": ("np.maximum(", "(lambda x, _: x)("),
    }),
    "score_children": slips(score_children, {
        "the target is not scaled by A (or is normalised again)": ("A[:, None, None] * ", ""),
        "the target is scaled by a_v and nothing by lambda_v": (
            "A[:, None, None] *", "scores[:, :, None] *", SHARE, "1"),
        "the target is scaled by a_v instead of A: lossless, but shorter": (
            "A[:, None, None] *", "scores[:, :, None] *"),
        "the flow is not scaled by lambda_v": ("share * local.out", "local.out"),
        "equal children each get the whole probability of their token": (
            "share * accepted,", "share * np.einsum('bnj,bnij->bni', accepted, "
            "tokens[..., None] == tokens[:, :, None]),"),
    }),
    "stop_probabilities": slips(stop_probabilities, {
        "the denominator is left out": (f" / {BELOW}", ""),
        "the denominator knows of the node's own flow only": (BELOW, "np.maximum(1 - sent, TINY)"),
        "what v sends on stays in its score": ("scores - sent", "scores"),
        "0 is divided by 0 where everything goes on": (BELOW, "(1 - sent.sum(-1, keepdims=True))"),
    }),
    # ---- what is no blank
    "smallest_rho": slips(smallest_rho, {
        "rho is always k: lossless, but far too careful": (END, "return 0 * low + k"),
        "rho is left at 1": (END, "return 0 * low + 1"),
        "the infeasible end of the bisection is returned": (
            "rounds=5", "rounds=1", END, "return low"),
    }),
    "KSEQ": slips(KSEQ, {
        "the coins belong to another rho than the flow": (
            "self.coin = share", "self.coin = np.minimum(draft_probs, target_mass / k)"),
    }),
    "CappedGR": slips(CappedGR, {
        "equal children each get the whole probability of their token": (
            "return pick", "return (slots[:, :, None] == slots[:, None]).sum(-1) * pick"),
        "nothing is repaired: a token may get more than the target gives": (
            "iterations = 8", "iterations = 1", "np.minimum(flow, self.target)", "flow"),
        "the flow is repaired, and what is accepted is not": (
            "iterations = 8", "iterations = 1", "pick(self.keep, slots) * ", ""),
    }),
    "inclusion_scores": slips(inclusion_scores, {
        "leaves have a part in A: lossless, but shorter": ("layer.inner", "layer.rows"),
    }),
    "end_probabilities": slips(end_probabilities, {
        "0 is divided by 0 at the root": (
            "ends[:, :1] = alive", "sent = flow[:, :1].sum(-1)\n"
            "    ends[:, :1] = alive * (scores[:, :1] - sent) / (1 - sent)"),
    }),
    "block_verify": slips(block_verify, {
        "the path stops at the first failure, not behind the last success": (
            "h * np.concatenate([missed, np.ones((B, 1))], axis=1)",
            "-np.diff(np.cumprod(h, axis=1), append=0)"),
        "each weight knows of its own token only": ("coin(weight[:, i - 1]", "coin(1"),
        "the residual is not scaled by the weight": (
            "weight[:, :, None] * target_probs", "1 * target_probs"),
    }),
    "GreedyBlockVerification": slips(GreedyBlockVerification, {
        "tokens of equal ratio share a rank, and the first chain wins": (
            "rank[every[:, None], drawn]",
            "np.round((target / np.maximum(draft, TINY))[every[:, None], drawn], 9)"),
        "the best chain is judged as if it were a plain draw": (
            "probs / np.maximum(probs.sum(-1, keepdims=True), TINY)", "draft"),
    }),
    "TraversalVerification": slips(TraversalVerification, {
        "a node keeps its first weight when a child was rejected": (
            "weight = owed / np.maximum(owed + (1 - weight), TINY)", "pass"),
    }),
}
