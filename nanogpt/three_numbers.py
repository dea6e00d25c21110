"""Three numbers of yours: a first length for a chain, on a machine and with a drafter of yours.

    >>> d, v, alpha = timed((4, 3.05, 1.6), (8, 3.7, 2.04))  # two chains that you have timed
    >>> {k: round(speed, 2) for k, speed in foretold(d, v, alpha).items() if 2 < k < 9}
    {3: 1.83, 4: 1.91, 6: 1.9, 8: 1.81}

Or without a clock, for the prices of a data sheet:

    draft   the price of one forward of the drafter, in plain steps
    rows    so many more make the target's forward cost one plain step more, from the second row on;
            or c itself, a function: gpu() is that of a large model
    alpha   the chance that a draft is accepted; or alpha_of(tau, k), from a chain that you have run

    >>> best(yours(draft=0.1, rows=50, alpha=0.75))
    ('chain of 4', 2.06)

A round costs its drafter's forwards and one forward of the target. As everywhere,

    speed-up = tokens a round / price of the round in plain steps

That is a first length; measure its neighbours. The contest's chains were slower than it says, and
for trees it was far too kind, at temperature 0 and at 1: `best` names chains only.

What is assumed: drafts are accepted independently, and a second guess, where the first one failed,
is right half as often as a first one: in our contest more often at temperature 0, less at 1. And
nothing but forwards takes time.
"""

from math import comb

CHAINS = (1, 2, 3, 4, 6, 8, 12, 16)
TREES = (2, 4, 8, 16, 32, 64)
DRAFT, BEND = 0.1, 300  # of a large model, see the closing lesson: a draft's price, see gpu
SECOND = 0.5  # how often a second guess is right where the first failed, in parts of alpha


def chain_tokens(alpha, k):
    """Tokens a round of k drafts in a row, the target's own included: 1 + alpha + .. + alpha^k.

    Leviathan et al., Equation 1. Example: alpha .5, k 2: 1.75.
    """
    # alpha^i: i drafts are accepted in a row, so there is a token i + 1.
    return sum(alpha ** i for i in range(k + 1))


def alpha_of(tau, k):
    """The alpha with which chains of k drafts write tau tokens a round.

    Raises ValueError unless tau is in [1, k + 1]. Example: alpha_of(1.75, 2) is .5.
    """
    if not 1 <= tau <= k + 1:
        raise ValueError(f"tau is {tau}; with {k} drafts it must be in [1, {k + 1}]")
    low, high = 0.0, 1.0
    for _ in range(60):  # by halves: tau rises with alpha
        middle = (low + high) / 2
        low, high = (middle, high) if chain_tokens(middle, k) < tau else (low, middle)
    return (low + high) / 2


def timed(short, long):
    """Two chains that were timed -> d, the price of a draft with its row; v, that of the rest of a
    round; alpha. short, long: K, tokens a round, price in plain steps. Chapter 01, section 8.

    Example: 4 drafts with 3.05 tokens for 1.6, 8 with 3.7 for 2.04: d is .11, v 1.16, alpha .75.
    """
    (k, tokens, price), (more, _, dearer) = short, long
    d = (dearer - price) / (more - k)
    return d, price - k * d, alpha_of(tokens, k)


def foretold(d, v, alpha):
    """{K: the speed-up of chains of K drafts}."""
    return {k: chain_tokens(alpha, k) / (k * d + v) for k in CHAINS}


def tree_tokens(alpha, nodes, deepest=None):
    """The best tree of so many nodes, at most two guesses for each position -> its tokens a round,
    its depth. deepest: it may be so deep; default as deep as it has nodes.

    Example: alpha .6, so a second guess is right with .4 * .3 = .12. The most probable of all nodes
    are .6, .36 and .216, a chain; the next two are .1296 and .12, the root's second child.
    """
    second = (1 - alpha) * SECOND * alpha
    # A node at depth d, with second guesses at j places of its path: in comb(d, j) ways.
    kinds = sorted(((alpha ** (d - j) * second ** j, d, comb(d, j))
                    for d in range(1, (deepest or nodes) + 1) for j in range(d + 1)),
                   key=lambda kind: (-kind[0], kind[1]))
    tokens, depth, left = 1.0, 0, nodes
    for mass, d, count in kinds:
        taken = min(count, left)
        if taken and mass > 0:
            tokens, depth, left = tokens + taken * mass, max(depth, d), left - taken
    return tokens, depth


def gpu(users=1, bend=BEND):
    """c(n) of a large model on a GPU, n rows for each of so many users: free up to the bend, while
    fetching the weights takes longer than computing; behind it in proportion. -> a function"""
    return lambda n: max(1, users * n / bend) / max(1, users / bend)


def yours(draft, rows, alpha, one_pass=False):
    """{method: {budget: (tokens a round, price of a round in plain steps)}}.

    one_pass: one forward of the drafter makes all drafts of a round (05), not those of one
    position (01 to 04, 06). Raises ValueError for a draft below 0, rows that are not above 0, an
    alpha outside [0, 1].
    """
    c = rows if callable(rows) else lambda n: 1 + (n - 1) / rows
    if not (draft >= 0 and (callable(rows) or rows > 0) and 0 <= alpha <= 1):
        raise ValueError(f"draft is {draft}, rows {rows}, alpha {alpha}; they must be at least 0, "
                         "above 0, and in [0, 1]")

    def point(tokens, depth, drafts):  # the root's row is a plain step's, too
        return tokens, (1 if one_pass else depth) * draft + c(1 + drafts)

    def tree(n):  # each level costs a pass: as deep as it pays
        return max((point(*tree_tokens(alpha, n, deepest), n) for deepest in range(1, n + 1)),
                   key=lambda found: found[0] / found[1])

    return {"chain of {}": {k: point(chain_tokens(alpha, k), k, k) for k in CHAINS},
            "tree of {} nodes": {n: tree(n) for n in TREES}}


def best(methods):
    """The fastest chain of some methods, or plain decoding -> its name, its speed-up."""
    fast = {name.format(budget): tokens / price for name, curve in methods.items()
            for budget, (tokens, price) in curve.items()
            if not name.startswith("tree")} | {"plain decoding": 1.0}
    name = max(fast, key=fast.get)
    return name, round(fast[name], 2)
