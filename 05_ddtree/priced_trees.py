"""A tree that knows its price: how many drafts are worth verifying, on this machine and just now.

A budget that suits a CPU wastes a GPU, and one that suits a speech wastes a list of names. But the
heap pops its nodes in falling order of mass, and it may stop at any of them. One more node brings
its mass, the chance that it is accepted, and costs the milliseconds of one more row. So:

    draft    pop as long as a row brings more tokens than its milliseconds bring elsewhere: than
             the rate, the tokens per millisecond of the rounds so far
    verify, accept, commit   as before; then note what the round brought, and what it cost

With n nodes of masses q_1 >= q_2 >= .. this maximises trust * (q_1 + .. + q_n) - rate * c(n + 1).
The same rule says how long a drawn chain should be; there a mass is how often that position was
reached in the past.

Sources: cost-aware budgets, "CaDDTree" (arXiv 2606.01813) and "BASTION" (arXiv 2605.29727). That
the best rate so far is the right exchange rate is the classic argument on ratios (Dinkelbach 1967):
if no round can gain on tokens - rate * ms, no choice of sizes has a higher rate.
"""

from itertools import count, islice

import numpy as np

from conditional_marginals import BlockLevels, ConditionalTreeDrafter
from ddtree import DDTreeDrafter, best_first, draft_temperature, tree_of
from nanogpt.bench import interpolate
from tree_attention import Tree, TreeDrafter, multi_round, speculate  # chapter 02

FORGET = 0.98  # a round counts half after 34 others
PRIOR = 2.0  # rounds that the beginning counts for
DEBT = 2.0  # tokens behind plain decoding from which on the drafter pauses


def prices(curve, cap):
    """[c(1), .., c(cap + 1)]: milliseconds of a forward over the root and n = 0..cap nodes.

    curve: {N: ms}, as measured; between them it is taken as straight. The prices never fall.
    """
    # Fewer rows can always be read as more of them, and a clock errs upwards: if one row seems
    # dearer than two, it is the one that was measured badly.
    price = [interpolate(curve, 1 + n) for n in range(cap + 1)]
    return [min(price[n:]) for n in range(cap + 1)]


def slopes(price):
    """For each n < cap the least milliseconds a row that any larger tree would cost more."""
    # Where c(N) has steps, the next row may be dear and the ones behind it cheap.
    return [min((price[m] - price[n]) / (m - n) for m in range(n + 1, len(price)))
            for n in range(len(price) - 1)]


def worth_verifying(nodes, price, slope, rate, trust=1.0):
    """The first nodes, as many as maximise trust * (sum of their masses) - rate * price[n].

    nodes: (token, parent, mass) in falling order of mass, see best_first; price: milliseconds for
    n = 0, 1, .. nodes; slope: its `slopes`; rate: tokens per millisecond; trust: accepted drafts
    per unit of mass. -> a list, the shortest of equally good ones.

    Worked example: rows cost 0, 2, 2, 5 ms above the first, rate .2, masses .3, .2, .1. The gains
    are 0, .3 - .4 = -.1, .5 - .4 = .1, .6 - 1 = -.4: two nodes, although the first alone loses.
    """
    popped, gain, best_gain, best = [], 0.0, 0.0, 0
    for n, node in enumerate(islice(nodes, len(slope))):
        worth = trust * node[2]
        # No later node is worth more, and none costs less than slope[n] on average: whatever came
        # behind would lose. With the next row's price here, the heap would stop before each step.
        if worth <= rate * slope[n]:
            break
        popped.append(node)
        gain += worth - rate * (price[n + 1] - price[n])
        if gain > best_gain:
            best_gain, best = gain, n + 1
    return popped[:best]


class PricedTreeDrafter:
    """Any drafter with `children`, see DDTreeDrafter; the size of its trees follows their price.

    price: see `prices`; draft_ms: of one pass.
    """

    first_trust = 1.0  # a drafter's masses, taken at their word

    def __init__(self, drafter, price, draft_ms):
        self.drafter, self.price, self.slope = drafter, price, slopes(price)
        self.draft_ms = draft_ms
        # Sums over the past rounds: tokens, milliseconds, accepted drafts, their masses. To begin
        # with, a few plain steps, and drafts as good as their masses say. The milliseconds are the
        # model's, not the clock's: a text has the same trees in every run.
        self.past = self.first = PRIOR * np.array([1, price[0], self.first_trust, 1])

    def reset(self):
        self.drafter.reset()
        self.round = None  # what is observed next is the prefill

    def propose(self, root, room):
        tokens, ms, accepted, mass = self.past
        # Far behind what plain decoding would have made of the same time: no pass, no drafts. The
        # debt is forgotten as all else is, and then it tries again.
        drafts = tokens - ms / self.price[0] > -DEBT
        tree, expected = (self.draft(root, room, tokens / ms, accepted / mass) if drafts
                          else (Tree([root], [-1]), 0.0))
        self.round = self.price[len(tree) - 1] + drafts * self.draft_ms, expected
        return tree

    def draft(self, root, room, rate, trust):
        """-> the tree, and how many of its nodes would be accepted if its masses were right."""
        # It looks at this round's masses and at past rounds, at no draw of the target's: any such
        # tree is lossless under the walk.
        found = best_first(root, self.drafter.children(root, room))
        nodes = worth_verifying(found, self.price, self.slope, rate, trust)
        return tree_of(root, nodes), sum(mass for _, _, mass in nodes)

    def observe(self, tokens, hidden, rows):
        self.drafter.observe(tokens, hidden, rows)
        if self.round is not None:
            ms, expected = self.round
            # Rows: the root's, the accepted drafts'. Emitted: the drafts, and the target's own.
            new = np.array([len(rows), ms, len(rows) - 1, expected])
            self.past = self.first + FORGET * (self.past - self.first) + new


class PricedChainDrafter(PricedTreeDrafter):
    """Drawn chains, at most len(price) - 1 long. drafter: chapter 02's TreeDrafter."""

    first_trust = 0.6  # here trust is alpha, the acceptance rate of chapter 01

    def draft(self, root, room, rate, alpha):
        # subtle: the length follows from the past alone. The p/q rule takes each draft for a draw
        # from q; a chain that ends before the drafts it does not like was drawn from another q.
        reached = ((None, depth - 1, alpha ** depth) for depth in count(1))
        chain = worth_verifying(reached, self.price, self.slope, rate)
        self.drafter.branching = (1,) * len(chain)
        tree = self.drafter.propose(root, room)
        return tree, len(tree) - 1

    def observe(self, tokens, hidden, rows):
        if self.round is not None:  # behind a rejected draft nobody judges
            ms, drafted = self.round
            self.round = ms, min(len(rows), drafted)
        super().observe(tokens, hidden, rows)


# ---------------------------------------------------------------- the loop


def decode_priced(target, network, price, draft_ms, prompt, sampler, dice):
    """DDTree decoding, with as many nodes as pay, at most len(price) - 1. Yields Steps."""
    make = DDTreeDrafter if network.transition is None else ConditionalTreeDrafter
    drafter = make(network, len(price) - 1, draft_temperature(sampler.temperature))
    return speculate(target, PricedTreeDrafter(drafter, price, draft_ms), prompt, sampler, dice)


def decode_priced_chain(target, network, price, draft_ms, prompt, sampler, dice):
    """Decode with a drawn chain, as long as pays, judged by the p/q rule. Yields Steps."""
    chain = TreeDrafter(BlockLevels(network), (), sampler, dice)
    length = network.config.length  # a pass has no more slots
    drafter = PricedChainDrafter(chain, price[:length + 1], draft_ms)
    return speculate(target, drafter, prompt, sampler, dice, multi_round)
