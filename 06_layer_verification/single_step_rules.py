"""Single-step rules: k candidates for one token, of which at most one may be accepted.

A node of the draft tree has k children X = (X_1 .. X_k), drawn independently from the node's draft
distribution. A rule says with which probability each of them is accepted. Read it as a flow:

    source --draft(X)--> tuple X --> each token z in X --target(z)--> sink

The tuple X can send as much as its probability; token z can take as much as the target gives it.
Any flow that respects both limits loses nothing: what token z lacks to its target probability is
made up by the residual, max(target - out, 0), when nothing was accepted.

Every rule is one class, built for n such problems of equal k at once:

    rule = KSEQ(draft_probs, target_mass, k)     # (n, V), (n, V): solves all n flow networks
    rule.out                                     # (n, V): the outgoing flow, what each token takes
    rule.accept(tokens)                          # (n, k) drawn tokens -> (n, k): P[position i | X]

target_mass is the target distribution times a scale s <= 1, the same for the whole row. The rest,
1 - s, belongs to a dummy token that is never drafted (layer verification needs it, Section E.2).
subtle: `out` is the expectation of `accept` over all tuples X, in closed form; it must not depend
on the X that was drawn. A rule with out <= target_mass is lossless, however little it accepts.

By hand, draft (.5, .5), target (.9, .1), k = 2. SpS on one child: out = (.5, .1). With two
children the first token takes .75, all tuples that hold it, and the second .1: the optimum, .85.

Sources: SpS: Leviathan et al. 2023, Chen et al. 2023. K-SEQ: Sun et al., "SpecTr", 2023. RRS: Miao
et al., "SpecInfer", 2023; Jeon et al. 2024. The optimal rule has a file of its own,
global_resolution.py.
"""

import numpy as np

TINY = 1e-300  # a divisor in place of 0, where the numerator is 0 too


def pick(values, tokens):
    """values (n, V), tokens (n, k) -> (n, k): each row's values at its tokens."""
    return values[np.arange(len(values))[:, None], tokens]


def first_accepted(coins):
    """coins (n, k): P[position accepted | asked] -> (n, k): P[it is the first accepted one]."""
    missed = np.cumprod(1 - coins, axis=1)  # (n, k): P[positions 0..i are all refused]
    first = coins.copy()
    first[:, 1:] *= missed[:, :-1]
    return first


class SpS:
    """Speculative sampling: one child, accepted with min(1, target / draft)."""

    def __init__(self, draft_probs, target_mass, k=1):
        if k != 1:
            raise ValueError(f"SpS judges 1 child; a node of this tree has {k}")
        # Drafted with draft(z), accepted with min(1, target(z) / draft(z)): the product.
        self.out = np.minimum(draft_probs, target_mass)
        self.coin = self.out / np.maximum(draft_probs, TINY)

    def accept(self, tokens):
        return pick(self.coin, tokens)


# ---------------------------------------------------------------- K-SEQ


def positions_asked(beta, k):
    """How many positions are asked, on average: 1 + (1 - beta) + .. + (1 - beta)^(k-1)."""
    asked = np.ones_like(beta)
    for _ in range(k - 1):
        # Not (1 - (1 - beta)^k) / beta, its closed form: that is 0 / 0 where beta = 0.
        asked = 1 + (1 - beta) * asked
    return asked


def smallest_rho(draft_probs, target_mass, k, rounds=5, parts=16):
    """The smallest rho in [1, k] with which K-SEQ overfills no token, as (n, 1), by bisection.

    draft_probs, target_mass (n, V): n problems; rounds, parts: how finely to search, any way that
    ends within 1e-6 (k - 1) above it will do. Example: draft (.5, .3, .2), target (.42, .3,
    .28), k = 2: 1.2.
    """
    # rho divides the target, so that every position asked may take its share. With beta = sum
    # min(draft, target / rho), one position's acceptance, token z takes at most target(z) / rho
    # times positions_asked(beta): rho is feasible if positions_asked(beta) <= rho. k always is,
    # and everything above a feasible rho is feasible too. Five rounds end within 1e-6 (k - 1)
    # above the smallest.
    # subtle: where draft = target, rho = 1 + d has only d^k to spare, which rounding hides: d may
    # be 1e-5 for k = 3 and 1e-4 for k = 4. Nothing is lost, for d^k is also the probability that
    # all k are refused.
    low, width = np.ones((len(draft_probs), 1)), k - 1.0  # rho lies in (low, low + width]
    ones = np.ones(draft_probs.shape[1])
    for _ in range(rounds if k > 1 else 0):
        width /= parts  # not halves: numpy charges by the call, not by the number
        rho = low + width * np.arange(1, parts)  # (n, parts - 1)
        share = np.minimum(draft_probs[:, None], target_mass[:, None] / rho[:, :, None])
        infeasible = positions_asked(share @ ones, k) > rho  # share @ ones is beta, (n, parts - 1)
        low = low + width * infeasible.sum(-1, keepdims=True)  # the infeasible ones come first
    # The feasible end. The other one is just as close, but it overfills a token.
    return low + width


class KSEQ:
    """k-sequential selection: each child in turn is accepted with min(1, target / (rho draft)).

    (SpecTr, Algorithm 2.)
    """

    def __init__(self, draft_probs, target_mass, k):
        self.rho = smallest_rho(draft_probs, target_mass, k)
        share = np.minimum(draft_probs, target_mass / self.rho)  # (n, V)
        beta = share.sum(-1, keepdims=True)
        # One coin for all positions: whichever is asked, token z takes share(z) there.
        self.out = share * positions_asked(beta, k)
        self.coin = share / np.maximum(draft_probs, TINY)

    def accept(self, tokens):
        return first_accepted(pick(self.coin, tokens))


# ---------------------------------------------------------------- RRS


def rejection_rounds(draft_probs, target_mass, k):
    """k rounds of accept or reject, as flows -> coins, one (n, V) a round; out (n, V).

    draft_probs, target_mass (n, V): n problems, a row each. Example: draft (.5, .3, .2), target
    (.2, .3, .5), k = 2: the coins are (.4, 1, 1) and (0, 0, 1), out is (.2, .3, .26).
    """
    # `left` is what the tokens can still take, `alive` the probability that nothing is accepted
    # yet; left / alive is the residual distribution that the papers renormalise after each
    # rejection. By hand, for the example: the first child's token takes (.2, .3, .2), alive is .3;
    # the second is offered .3 (.5, .3, .2) and takes (0, 0, .06).
    # subtle: what target_mass lacks of 1 is part of `alive`, which starts at 1, never of `left`.
    left, alive, coins = target_mass, np.ones((len(target_mass), 1)), []
    for _ in range(k):
        offered = alive * draft_probs  # with replacement: each child is a fresh draw
        taken = np.minimum(offered, left)
        coins.append(taken / np.maximum(offered, TINY))
        # Rounding may take a little more than there is: alive must not fall below 0.
        left, alive = left - taken, np.maximum(alive - taken.sum(-1, keepdims=True), 0)
    return coins, target_mass - left


class RRS:
    """Recursive rejection sampling: chapter 01's coin and residual, k times over.

    For children drawn WITH replacement; for chapter 02's, which never repeat: DistinctRRS.
    """

    def __init__(self, draft_probs, target_mass, k):
        self.coins, self.out = rejection_rounds(draft_probs, target_mass, k)

    def accept(self, tokens):
        # Position i has coins of its own, for it meets what the others have left.
        each = [pick(coin, tokens[:, i:i + 1]) for i, coin in enumerate(self.coins)]
        return first_accepted(np.concatenate(each, axis=1))


class DistinctRRS(SpS):
    """Chapter 02's multi_round as a flow: one child, or two drawn WITHOUT replacement."""

    def __init__(self, draft_probs, target_mass, k):
        if k > 2:
            raise ValueError(f"DistinctRRS judges 1 or 2 children; a node of this tree has {k}")
        super().__init__(draft_probs, target_mass)
        if k == 2:
            refused = draft_probs - self.out  # (n, V): the first child is this, and is rejected
            owed = (target_mass - self.out) / np.maximum(1 - self.out.sum(-1, keepdims=True), TINY)
            # (n, V, V), a row for each first child: what the second is then drawn from.
            left = draft_probs[:, None] * (1 - np.eye(draft_probs.shape[1]))
            left /= np.maximum(left.sum(-1, keepdims=True), TINY)
            taken = np.minimum(left, owed[:, None])
            self.second = taken / np.maximum(left, TINY)
            self.out = self.out + (refused[:, :, None] * taken).sum(1)

    def accept(self, tokens):
        coins = [self.coin[np.arange(len(tokens)), tokens[:, 0]]]
        if tokens.shape[1] == 2:
            coins.append(self.second[(np.arange(len(tokens)), *tokens.T)])
        return first_accepted(np.stack(coins, axis=1))
