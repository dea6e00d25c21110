"""A tree that knows its price: how many drafts are worth verifying, on this machine and just now.

A budget that suits a CPU wastes a GPU, and one that suits a speech wastes a list of names. But the
heap pops its nodes in falling order of mass, and it may stop at any of them. One more node brings
its mass, the chance that it is accepted, and costs the milliseconds of one more row. So:

    draft    no drafts where plain decoding is faster; else pop as long as a row brings more tokens
             than its milliseconds bring elsewhere: than the rate, the tokens per millisecond of
             the rounds so far
    verify, accept, commit   as before; then note what the round brought, and how long it took

With n nodes of masses q_1 >= q_2 >= .. this maximises trust * (q_1 + .. + q_n) - rate * c(n + 1).
The same rule says how long a drawn chain should be; there a mass is how often that position was
reached in the past.

Sources: cost-aware budgets, "CaDDTree" (arXiv 2606.01813) and "BASTION" (arXiv 2605.29727). That
the best rate so far is the right exchange rate is the classic argument on ratios (Dinkelbach 1967):
if no round can gain on tokens - rate * ms, no choice of sizes has a higher rate.
"""

import time
from itertools import islice

import numpy as np

from ddtree import best_first, tree_of
from tree_attention import Tree  # chapter 02

# ---------------------------------------------------------------- how many nodes


def prices(curve, cap):
    """[c(1), .., c(cap + 1)]: milliseconds of a forward over the root and n = 0..cap nodes.

    curve: {N: ms}, as measured; between them it is taken as straight. The prices never fall.
    """
    rows = np.arange(1, cap + 2)
    price = np.interp(rows, list(curve), list(curve.values()))
    # Fewer rows can always be read as more of them, and a clock errs upwards: if one row seems
    # dearer than two, it is the one that was measured badly.
    return [float(price[n:].min()) for n in range(cap + 1)]


def slopes(price):
    """For each n < cap the least milliseconds a row that any larger tree would cost more."""
    # Where c(N) has steps, the next row may be dear and the ones behind it cheap.
    return [min((price[m] - price[n]) / (m - n) for m in range(n + 1, len(price)))
            for n in range(len(price) - 1)]


def best_size(masses, ms, rate):
    """How many nodes a round should have, if all their masses are known.

    masses: falling; ms[n]: what a round with n nodes takes, ms[0] without any; rate: tokens per
    millisecond of the rounds so far. -> n, the smallest of equally good ones.
    """
    # What the first n nodes bring, and what their time would bring elsewhere. A node may lose and
    # the next one win it back, so all n are looked at.
    gains = [sum(masses[:n]) - rate * ms[n] for n in range(len(ms))]
    return gains.index(max(gains))


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


# ---------------------------------------------------------------- what a round costs and brings

FORGET = 0.98  # a round counts half after 34 others
PRIOR = 5.0  # rounds that the beginning counts for
SHARE = 0.005  # of the tokens: so many may be lost on trying what seems slower
DISTURBED = 2.0  # a round that took so many times what was expected did not take it by itself


class Ledger:
    """What rounds cost on this machine and what they bring, learned from those that were played.

    price: see `prices`; draft_ms: of one pass. Both are guesses, which the rounds correct.
    trust: accepted drafts per unit of mass, to begin with. clock() -> seconds; None: every round
    takes as long as expected, so that a run can be repeated.
    One ledger serves one method at one temperature, text after text.
    """

    def __init__(self, price, draft_ms, trust=1.0, clock=time.perf_counter):
        self.price, self.slope, self.clock = price, slopes(price), clock
        self.plain_ms, self.plain_rounds = price[0], 1.0  # without drafts; the guess counts as one
        # With drafts, sums over the rounds: how many, tokens, milliseconds, accepted drafts, their
        # masses. To begin with, a few rounds with one node of mass 1.
        self.past = PRIOR * np.array([1, 1 + trust, price[1] + draft_ms, trust, 1])
        # Such a round takes rest + scale * price: a line through the past rounds, by least squares.
        # (2, 3): its normal equations. A weak guess stays in them, as much as a 25th of a round.
        self.rest, self.scale = draft_ms, 1.0
        weight = np.diag([0.04 / price[0] ** 2, 0.04])
        self.line = self.guess = np.column_stack([weight, weight @ [draft_ms, 1.0]])
        self.drafting, self.run = True, 0  # for so many tokens all rounds had drafts, or none

    @property
    def trust(self):
        return self.past[3] / self.past[4]

    @property
    def rate(self):
        """Tokens per millisecond, with or without drafts, whichever are more."""
        return max(self.past[1] / self.past[2], 1 / self.plain_ms)

    def expected_ms(self, drafting, nodes):
        """What a round takes, with a drafter's pass or without."""
        with_pass = self.rest + self.scale * self.price[nodes]
        return max(with_pass, self.plain_ms) if drafting else self.plain_ms

    def drafts(self):
        """Shall the next round have drafts?"""
        rounds, tokens, ms = self.past[:3].tolist()
        gain = (tokens - ms / self.plain_ms) / rounds  # tokens, against plain decoding as long
        # Nobody knows for long what he never tries. The slower way is tried as soon as a small
        # share of the tokens since the last time has paid for what one round is expected to lose.
        lost = self.plain_ms * tokens / ms - 1 if gain > 0 else -gain
        due = self.drafting == (gain > 0) and SHARE * self.run >= lost
        return (gain > 0) != due

    def begin(self):
        """A round begins."""
        self.start = self.clock() if self.clock else 0.0

    def note(self, drafting, nodes, expected, tokens):
        """It is over: had it a pass, how many nodes, how many of them were expected to be accepted,
        how many tokens it brought."""
        self.run = tokens + (self.run if drafting == self.drafting else 0)
        self.drafting = drafting
        usual = self.expected_ms(drafting, nodes)
        ms = min(1e3 * (self.clock() - self.start), DISTURBED * usual) if self.clock else usual
        if drafting:
            # A round whose drafter had nothing to offer says nothing of trust.
            fading = np.array([1, 1, 1, expected > 0, expected > 0])
            new = np.array([1, tokens, ms, tokens - 1, expected])
            self.past = FORGET ** fading * self.past + new
            x = np.array([1, self.price[nodes]]) / usual  # long rounds have large errors
            equations = np.outer(x, [*x, ms / usual])
            self.line = self.guess + FORGET * (self.line - self.guess) + equations
            self.rest, scale = np.linalg.solve(self.line[:, :2], self.line[:, 2]).tolist()
            self.scale = max(scale, 0.0)  # more rows are never cheaper
        else:
            self.plain_rounds = FORGET * self.plain_rounds + 1
            self.plain_ms += (ms - self.plain_ms) / self.plain_rounds


class PricedTreeDrafter:
    """Any drafter with `children`, see DDTreeDrafter; the size of its trees follows their price.

    ledger: a Ledger, with prices for as many nodes as a tree may have.
    """

    def __init__(self, drafter, ledger):
        self.drafter, self.ledger = drafter, ledger

    def reset(self):
        self.drafter.reset()
        self.round = None  # what is observed next is the prefill

    def propose(self, root, room):
        # A round's time ends with `observe`: what comes behind it, a slide of the window or the
        # turns of others, is not its own.
        book = self.ledger
        book.begin()
        drafting = book.drafts()
        tree, expected = (self.draft(root, room, book.rate * book.scale, book.trust) if drafting
                          else (Tree([root], [-1]), 0.0))
        self.round = drafting, len(tree) - 1, expected
        return tree

    def draft(self, root, room, rate, trust):
        """-> the tree, and how many of its nodes would be accepted if its masses were right."""
        # It looks at this round's masses and at past rounds, at no draw of the target's: any such
        # tree is lossless under the walk.
        found = best_first(root, self.drafter.children(root, room))
        nodes = worth_verifying(found, self.ledger.price, self.ledger.slope, rate, trust)
        return tree_of(root, nodes), sum(mass for _, _, mass in nodes)

    def observe(self, tokens, hidden, rows):
        self.drafter.observe(tokens, hidden, rows)
        if self.round is not None:
            # Rows: the root's, the accepted drafts'. Emitted: the drafts, and the target's own.
            self.ledger.note(*self.round, len(rows))


class PricedChainDrafter(PricedTreeDrafter):
    """Drawn chains. drafter: chapter 02's TreeDrafter, of the longest chain; ledger: its trust is
    alpha, the acceptance rate of chapter 01."""

    def draft(self, root, room, rate, alpha):
        # subtle: the length follows from the past alone. The p/q rule takes each draft for a draw
        # from q; a chain that ends before the drafts it does not like was drawn from another q.
        longest = len(self.ledger.price) - 1
        reached = ((None, depth - 1, alpha ** depth) for depth in range(1, longest + 1))
        chain = worth_verifying(reached, self.ledger.price, self.ledger.slope, rate)
        tree = self.drafter.propose(root, min(room, len(chain)))
        return tree, len(tree) - 1

    def observe(self, tokens, hidden, rows):
        if self.round is not None:  # behind a rejected draft nobody judges
            *others, drafted = self.round
            self.round = *others, min(len(rows), drafted)
        super().observe(tokens, hidden, rows)
