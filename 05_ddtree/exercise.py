"""Chapter 05: 5 blanks to fill. Grade them with

    python tests/grade.py 05

ask for a hint with `--hint NAME`, for a stronger one with `--hint NAME --more`, and, when some are
done, see them decode beside the taught ones with `--run`. Replace each `raise NotImplementedError`
by your own lines; a blank that you leave empty disturbs no other.

* a tree has N rows, parents before children; row 0, the root, is a token of the text.
  tree.tokens, .parents (-1 for the root) and .depths are (N,); .mask (N, N) is True where the
  column is the row itself or an ancestor of it; .children[row] is the list of its children's
  rows; .draft_probs (N, V) may be None.
* in d a - S r, the bias: d is how much more often a token is sent than the judge believes,
  among as many drafts; a, how often it is accepted; S, the sum of all d a; r, what is drawn
  from after a rejection.
* acceptance_probability(target_probs, draft_probs, token): The probability with which a draft
  token is accepted. target_probs, draft_probs: (V,).
* residual(target_probs, draft_probs): The distribution that the target draws from after a
  rejection. (V,), (V,) -> (V,)
"""

import heapq
import math
import torch
from chain_specdec import acceptance_probability, residual

# * The mass of every node but the root, (N - 1,), in the order of the rows: the product of the
# probabilities of the tokens on its path. log_probs[i, t] is the logarithm of the probability
# of token t at depth i + 1; the root is at depth 0. A logarithm may be -inf; no nan may come
# out.
# About 3 lines, 8 minutes.
# Example: q_1 (.6, .4), q_2 (.9, .1), q_3 (.6, .4), nodes (0), (0, 0), (1), (1, 1) -> [0.6,
#   0.54, 0.4, 0.04]


def node_masses(tree, log_probs):
    """The mass q(u) of every node but the root, (N - 1,).

    log_probs (L, V): log q_i. Example: q_1 = (.6, .4), q_2 = (.9, .1), nodes (0), (0, 0), (1):
    .6, .54, .4.
    """
    raise NotImplementedError("not yet: node_masses")


# *** Start with the most probable first token in the heap. Pop the best prefix, `yield` it as
# (token, row of its parent, mass), then push its next sibling and its first child, until the
# heap is empty. The root is row 0 and is not yielded; the first node that is yielded is row 1.
# Scores are logarithms, so they add up: what is a sibling's score, what a first child's?
# heapq.heappop gives the smallest entry; a good one is (-score, parent, rank): the parent's
# row, and the rank from 0.
# About 16 lines, 20 minutes.
# Example: root 5, q_1 (.6, .4), q_2 (.9, .1), 3 pops: token, parent's row, mass -> [[0, 0,
#   0.6], [0, 1, 0.54], [1, 0, 0.4]]


def best_first(root, children):
    """The nodes of the best draft tree, one by one: a drafter's prefixes, most probable first.

    root: a token; children(prefix) -> log-probabilities of what may follow, best first, and the
    tokens, two lists; prefix: a tuple of tokens that begins with the root; where nothing may
    follow, the lists are empty.
    Yields (token, row of its parent, mass q(u)); the root is row 0, the first node that comes is
    row 1. Ringel and Romano, Algorithm 1, but here whoever asks decides when to stop.

    Worked example, prefixes in ranks from 0: q_1 = (.6, .4), q_2 = (.9, .1), budget 3. The heap
    starts with (0) at .6. Pop it; push its sibling (1) at .4 and its child (0,0) at .54. Pop (0,0);
    push its sibling (0,1) at .06. Pop (1). The tree is {(0), (0,0), (1)}; on average .6 + .54 + .4
    = 1.54 tokens of a draw from q_1 x q_2 lie in it.
    """
    raise NotImplementedError("not yet: best_first")


# ** How many nodes pay? masses are those of the nodes, falling; ms[n] is what a round with n
# nodes takes, ms[0] without any; rate is how many tokens a millisecond of the past rounds has
# brought. Milliseconds that are spent here are missing elsewhere: what are they worth? Return
# n, the smallest of equally good ones.
# About 2 lines, 6 minutes.
# Example: masses .3, .2, .1, ms 5, 7, 7, 10, rate .2 -> 2


def best_size(masses, ms, rate):
    """How many nodes a round should have, if all their masses are known.

    masses: falling; ms[n]: what a round with n nodes takes, ms[0] without any; rate: tokens per
    millisecond of the rounds so far. -> n, the smallest of equally good ones.
    """
    raise NotImplementedError("not yet: best_size")


# ** A drafter draws x from q, and sends it with probability shown[x]. What must the p/q rule be
# told, and what does the target draw from in rounds without a draft? Choose both so that the
# text has p and as many drafts as possible are accepted. p, q, shown and both answers are (V,).
# After a rejection the rule draws from the residual of p and of what it was told.
# About 2 lines, 5 minutes.
# Example: p = q = (.8, .2), every draft 1 is hidden: what is written, what is accepted -> [0.8,
#   0.2, 0.8]


def mend(p, q, shown):
    """What to tell the judge, and what a silent round draws from, if drafts are hidden.

    p, q, shown (V,): x is drawn with q[x], and then sent with shown[x]. -> told, silent, (V,) each:
    the text has p, and no judge of such drafts that keeps p accepts more of them.

    Example: p = q = (.8, .2), and every draft 1 is hidden: told (.8, 0), silent (0, 1).
    """
    raise NotImplementedError("not yet: mend")


# ** By how much is the text wrong? Chapter 01's rule is told q, but its drafts come by another
# law: law[x] is how often x is sent, and in the other rounds the target writes a token of its
# own. Return how often each token comes out, less its p: d a - S r. p, q, law and the answer
# are (V,).
# About 3 lines, 6 minutes.
# Example: p = q = (.8, .2), every draft 1 is hidden: law (.8, 0) -> [0.16, -0.16]


def bias(p, q, law):
    """What the rule writes, less p, if it is told q and drafts come by another law: d a - S r.

    p, q, law (V,) -> (V,). law[x]: how often x is sent; it may sum to less than 1, for in h =
    1 - law.sum() of all rounds nothing is sent, and the target writes a token of its own. What is
    told, q, may sum to less than 1, too.

    Example: p = q = (.8, .2), and every draft 1 is hidden, which is the law (.8, 0): h = .2, d =
    (.8, 0) - .8 q = (.16, -.16), a = 1, S = 0: (.16, -.16).
    """
    raise NotImplementedError("not yet: bias")


# make_exercises.py knows by this line whether you have written here: 4ab78793c7d8
