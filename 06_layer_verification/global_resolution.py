"""Global resolution (GR): the single-step rule that accepts the most, and a cheap capped form.

For k children drawn with replacement, the largest flow has a known value (Hu et al. 2025), the
smallest cut of the network: cut a set A of tokens off at the tuples, and the rest at the target,

    optimum = min over A of  P[some child is in A] + target(not in A)
            = min over A of  1 - (1 - draft(A))^k + target(not in A),

and the best A is a prefix of the tokens in descending order of target / draft. A flow that
reaches it needs one weight per token (Thomas & Pal 2026): of a tuple's different tokens T, token
i is chosen with probability w_i / (1 + sum of w over T), where the 1 stands for "none". The best
weights solve a convex problem: each token is filled exactly, or its weight is as large as allowed,

    minimise over w   sum over T of P(T) log(1 + w(T))  -  sum over i of target_i log w_i .

Its gradient in log w_i is (flow of i) - target_i.

By hand, draft (.5, .5), target (.9, .1), k = 2, the tuples {1}, {1,2}, {2} with P = .25, .5, .25:
token 1 can never be filled, so w_1 grows without bound and it takes every tuple that holds it,
.75; token 2 gets the tuple {2} alone, .25 w_2 / (1 + w_2) = .1, so w_2 = 2/3. Total .85.

subtle: weights that are not quite there would overfill a token. Both classes therefore end with a
repair, keep_i = min(1, target_i / flow_i): lossless after any number of iterations, 0 included.

Sources: the value: Hu et al. 2025; the rule: Thomas & Pal 2026 (2511.15898); CappedGR and
DistinctGR are our own.
"""

from functools import lru_cache
from itertools import combinations, combinations_with_replacement, permutations
from math import comb, factorial

import numpy as np

from single_step_rules import TINY, pick

LARGEST_WEIGHT = 1e100  # stands for infinity: next to it, any other weight vanishes
SMALLEST_PART = 1e-150  # of odds: what is rarer needs no better weight, and nothing overflows
LARGEST_TABLE = 20_000_000  # entries, 160 MB


def smallest_cut(draft_probs, target_mass, k):
    """(n, V), (n, V) -> the value of the largest flow (n,); the cut set A (n, V) bool. O(V log V).

    No rule can accept more than this value.
    """
    usable = np.where(draft_probs > 0, target_mass, 0)  # the rest never flows
    # A is a prefix in this order, so V + 1 sets need looking at, not 2^V.
    order = np.argsort(-usable / np.maximum(draft_probs, TINY), axis=-1)
    rows = np.arange(len(order))[:, None]
    draft, target = draft_probs[rows, order].cumsum(-1), usable[rows, order].cumsum(-1)
    hit = 1 - (1 - np.minimum(draft, 1)) ** k  # P[some child is in A]; the sum may round above 1
    cuts = np.concatenate([target[:, -1:], hit + target[:, -1:] - target], axis=1)  # |A| = 0, 1, ..
    in_cut = np.zeros(draft_probs.shape, bool)
    # Back from the order to token ids.
    in_cut[rows, order] = np.arange(draft_probs.shape[1]) < cuts.argmin(1)[:, None]
    return cuts.min(1), in_cut


@lru_cache(maxsize=64)
def tuples(V, k):
    """What k draws from V tokens can give, without their order; S = (V + k - 1 choose k) rows.

    -> tokens (S, k); member (S, V), 1 where the token occurs; orders (S,), how many sequences of
    draws give it. Raises ValueError if the table would not fit.
    """
    check_size(V, k, 1)
    tokens = np.array(list(combinations_with_replacement(range(V), k)))
    counts = (tokens[:, :, None] == np.arange(V)).sum(1)  # (S, V)
    factorials = np.array([factorial(j) for j in range(k + 1)])
    # k! orders of the draws, of which those of equal tokens are the same.
    return tokens, (counts > 0).astype(float), factorial(k) / factorials[counts].prod(1)


@lru_cache(maxsize=64)
def pairs(V, k):
    """(S, V * V): 1 where both tokens occur in the tuple. Raises ValueError as `tuples`."""
    check_size(V, k)
    _, member, _ = tuples(V, k)
    return (member[:, :, None] * member[:, None, :]).reshape(len(member), V * V)


def check_size(V, k, power=2):
    """Raises ValueError if a table of V ** power entries for each row of `tuples` would not fit."""
    entries = comb(V + k - 1, k) * V ** power
    if entries > LARGEST_TABLE:
        raise ValueError(
            f"GR with {V} possible tokens and {k} children needs a table of {entries} entries, and "
            f"{LARGEST_TABLE} is the limit; take fewer children, or truncate the draft "
            "distribution (a smaller top_k)"
        )


def odds(part, whole):
    """part / (whole - part), never 0 / 0."""
    return np.maximum(part, SMALLEST_PART) / np.maximum(whole - part, 1e-18)


def chosen(weight, tokens):
    """P[child i is chosen], each token with odds by its weight, "none" with weight 1.

    weight (n, V), tokens (n, k) -> (n, k). Weights (1, 2, 1): children 1, 2 get 1/4 and 2/4.
    Children 2, 2 get 1/3 each, of 2 / (1 + 2).
    """
    copies = (tokens[:, :, None] == tokens[:, None, :]).sum(-1)  # (n, k)
    # subtle: equal children share their token's probability, and its weight counts once
    # (Algorithm 1, line 13: 1 / #[X_w in X]).
    share = pick(weight, tokens) / copies
    return share / (1 + share.sum(-1, keepdims=True))


class CappedGR:
    """A few cheap iterations towards GR's weights, then the repair."""

    iterations = 8

    def __init__(self, draft_probs, target_mass, k):
        # Only tokens that can be drawn take part: with the top 20 of a large vocabulary the tables
        # of tuples are small. possible (n, K): each problem's own, by falling probability.
        K = int((draft_probs > 0).sum(-1).max(initial=1))
        self.possible = np.argsort(-draft_probs, axis=-1, kind="stable")[:, :K]
        self.draft, self.k = pick(draft_probs, self.possible), k  # (n, K)
        self.target = np.where(self.draft > 0, pick(target_mass, self.possible), 0)
        self.member, self.mass = self.sets()  # (S, K); (n, S): P[the k draws are this]
        # One child is chosen, whatever it is: the repair makes it SpS.
        weight = self.weights() if k > 1 else np.full_like(self.draft, LARGEST_WEIGHT)
        # The repair: what would overfill a token is refused, in the same ratio wherever it comes.
        flow = self.flow(weight)
        self.weight, taken = weight, np.minimum(flow, self.target)
        self.keep = taken / np.maximum(flow, TINY)
        self.out = np.zeros_like(target_mass)
        np.put_along_axis(self.out, self.possible, taken, axis=-1)  # back to token ids

    def sets(self):
        """What k draws can give, without their order: its tokens (S, K); its probability (n, S)."""
        tokens, member, orders = tuples(self.draft.shape[1], self.k)
        return member, orders * self.draft[:, tokens].prod(-1)

    def weights(self):
        """(n, K), for more than one child."""
        self.value, in_cut = smallest_cut(self.draft, self.target, self.k)  # what GR aims at
        in_cut |= self.value[:, None] > 1 - 1e-12  # nothing is rejected, "none" has no weight
        # The tokens of A cannot all be filled, so every tuple that holds one goes to A.
        return self.solve(np.where(in_cut, LARGEST_WEIGHT, 1.0), in_cut)

    def flow(self, weight):
        """(n, K): what each token would take with these weights, before the repair."""
        # sum over T that hold i of P(T) w_i / (1 + w(T)); weight @ member.T is w(T), (n, S)
        return weight * ((self.mass / (1 + weight @ self.member.T)) @ self.member)

    def solve(self, weight, in_cut):
        """Scale the weights (n, K) until every token takes what it should -> (n, K).

        in_cut (n, K) bool: the tokens that the smallest cut leaves full.
        """
        outside = ~in_cut
        untouched = (self.draft * outside).sum(-1, keepdims=True)  # P[one draw misses A]
        rest = untouched ** self.k
        # The most that a token can take: it must be drawn, and outside A no token of A with it.
        drawn = 1 - (1 - self.draft) ** self.k
        most = np.where(in_cut, drawn, rest - np.maximum(untouched - self.draft, 0) ** self.k)
        wanted = odds(self.target, most)
        wanted_rest = odds((self.target * outside).sum(-1, keepdims=True), rest)
        for _ in range(self.iterations):
            # (odds that a token should have) / (odds that it has): exact if there were one tuple.
            weight = np.minimum(weight * wanted / odds(self.flow(weight), most), LARGEST_WEIGHT)
            # "None" is a choice like the others; its weight must stay 1, so all others move.
            # subtle: with what flows NOW; with the old flow a step is made twice and overshoots.
            flow = self.flow(weight)
            none = wanted_rest / odds((flow * outside).sum(-1, keepdims=True), rest)
            weight = np.minimum(np.where(in_cut, weight, weight * none), LARGEST_WEIGHT)
        return weight

    def accept(self, tokens):
        slots = (self.possible[:, None] == tokens[:, :, None]).argmax(-1)  # (n, k): where they are
        return pick(self.keep, slots) * chosen(self.weight, slots)


class DistinctGR(CappedGR):
    """For children drawn WITHOUT replacement, as chapter 02 draws them: they never repeat.

    Other sets of tokens can be drawn, and with other probabilities; each still has one weight.
    """

    iterations = 32

    def sets(self):
        K = self.draft.shape[1]
        check_size(K, self.k, 1)
        tokens = np.array(list(combinations(range(K), self.k)))  # (S, k)
        mass, every = 0, np.arange(len(tokens))
        for order in permutations(tokens.T):  # which of them is drawn first, ..
            chance, left = 1, np.ones((len(tokens), K))
            for token in order:  # (S,)
                # Of what the earlier draws have left. Not 1 - theirs, which rounding may make 0.
                chance = chance * self.draft[:, token] / np.maximum(self.draft @ left.T, TINY)
                left[every, token] = 0
            mass = mass + chance
        return (tokens[:, :, None] == np.arange(K)).sum(1).astype(float), mass

    def weights(self):
        # Each token's odds are moved to what they should be; the repair does the rest.
        weight, most = np.ones_like(self.draft), self.mass @ self.member
        for _ in range(self.iterations):
            step = odds(self.target, most) / odds(self.flow(weight), most)
            weight = np.minimum(weight * step, LARGEST_WEIGHT)
        return weight


class GR(CappedGR):
    """The optimum: damped Newton steps on the convex problem, until the smallest cut is reached."""

    tolerance, most_steps = 1e-13, 60

    def solve(self, weight, in_cut):
        """Newton steps from where the scaling ended, (n, K) -> (n, K)."""
        weight = super().solve(weight, in_cut)  # a start from which Newton needs a few steps
        todo = np.arange(len(weight))  # the problems that are not yet solved
        for _ in range(self.most_steps):
            current, total = weight[todo], 1 + weight[todo] @ self.member.T
            share = self.mass[todo] / total  # (n, S)
            flow = current * (share @ self.member)
            # Not the gradient: a token of A stays unfilled. What arrives must reach the optimum.
            gap = self.value[todo] - np.minimum(flow, self.target[todo]).sum(-1)
            far = gap > self.tolerance
            if not far.any():
                break
            todo = todo[far]
            weight[todo] = self.step(current[far], flow[far], share[far] / total[far],
                                     self.target[todo])
        return weight

    def step(self, weight, flow, curvature, target):
        """One Newton step in log weight, for the tokens that are not at the largest weight.

        weight, flow, target (n, K); curvature (n, S) -> new weights (n, K).
        """
        slope = target - flow  # minus the gradient in log weight
        # A weight at its limit may come back, but not grow; both sides of the system are cut to it.
        free = (weight > 0) & ((weight < LARGEST_WEIGHT) | (slope < 0))
        # Second derivatives: flow on the diagonal, minus sum over T of P(T) w_i w_j / (1 + w(T))^2.
        n, V = weight.shape
        both = (curvature @ pairs(V, self.k)).reshape(n, V, V)
        hessian = -both * (weight * free)[:, :, None] * (weight * free)[:, None, :]
        diagonal = np.arange(V)
        # The 1e-14: singular where a token gets no flow, or where "none" hardly counts any more.
        hessian[:, diagonal, diagonal] += np.where(free, flow + 1e-14, 1)
        step = np.linalg.solve(hessian, (slope * free)[:, :, None])[:, :, 0]
        # Damped so that every step goes down: log(1 + r) / r, with r the range of the step.
        r = np.maximum(step.max(-1), 0) - np.minimum(step.min(-1), 0) + 1e-9
        return np.minimum(weight * np.exp(step * (np.log1p(r) / r)[:, None]), LARGEST_WEIGHT)
