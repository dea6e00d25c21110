"""What chapter 01's rule writes if it is told a q that is not the law of its drafts.

A draft comes by some law: drawn from a distribution, chosen for sure, drawn and sometimes hidden.
q'(x) is the probability that x is sent to the judge; with h = 1 - sum(q') nothing is sent, and the
target writes a token of its own. The rule is told any q, which may sum to less than 1, accepts with
a = min(1, p/q), and after a rejection draws from r, the residual of p and q, with fresh dice. With
d = q' - (1 - h) q and S = the sum of d a over all tokens, the text has

    p + d a - S r .

So it has p if q' = (1 - h) q: if q is the law of the drafts that are sent. And where p is nowhere
0 and the told q sums to 1, only then: a judge with the right p and fresh dice needs to know this
law, and nothing else. The walk of chapter 02 is told nothing, for it looks at no draft before it
has drawn.

Proof. A round ends with an accepted draft, with nothing sent, or with a rejection:

    text = q' a + h p + (1 - h - sum(q' a)) r .

But q a = min(p, q), and what p has above q is the rest of p; so p = q a + (1 - sum(q a)) r, for
any q. That 1 - h times, and p itself h times, is

    p = (1 - h) q a + h p + (1 - h - (1 - h) sum(q a)) r .

The text less this is d a - S r. (If silence were a rejection, it would draw from r: the same with
h = 0 throughout.)

Only then: let d a = S r everywhere. Where q > p, r is 0, so d a is 0, and a is not, for p > 0: d is
0. Elsewhere a = 1, so d = S r. The sum of d over all tokens is then S; and if q sums to 1, it is 0.
So S = 0, and d = 0. If q sums to less, other laws can be right: p = (.5, .5), told (.4, .1), sent
(.5, .5). There d = (.1, .4) is accepted, S = .5, and r = (.2, .8), so d a = S r.

Where p(x) = 0, a draft x is never accepted. There mass may move from x to other tokens along r, and
the text stays right: it is as if x had been sent, rejected, and replaced by a draw from r.
"""

import torch

from chain_specdec import acceptance_probability, residual  # chapter 01


def bias(p, q, law):
    """What the rule writes, less p, if it is told q and drafts come by another law: d a - S r.

    p, q, law (V,) -> (V,). law[x]: how often x is sent; it may sum to less than 1, for in h =
    1 - law.sum() of all rounds nothing is sent, and the target writes a token of its own. What is
    told, q, may sum to less than 1, too.

    Example: p = q = (.8, .2), and every draft 1 is hidden, which is the law (.8, 0): h = .2, d =
    (.8, 0) - .8 q = (.16, -.16), a = 1, S = 0: (.16, -.16).
    """
    a = torch.tensor([acceptance_probability(p, q, x) for x in range(len(p))], dtype=p.dtype)
    moved = (law - law.sum() * q) * a  # d a; law.sum() is 1 - h
    return moved - moved.sum() * residual(p, q)


def mend(p, q, shown):
    """What to tell the judge, and what a silent round draws from, if drafts are hidden.

    p, q, shown (V,): x is drawn with q[x], and then sent with shown[x]. -> told, silent, (V,) each:
    the text has p, and no judge of such drafts that keeps p accepts more of them.

    Example: p = q = (.8, .2), and every draft 1 is hidden: told (.8, 0), silent (0, 1).
    """
    law = q * shown  # with a hole where shown is 0
    return law, residual(p, law)  # of p min(p, law) came by drafts; silence is a rejection
