"""Chapter 01: 5 blanks to fill. Grade them with

    python tests/grade.py 01

and ask for a hint with `python tests/grade.py 01 --hint NAME`. Replace each
`raise NotImplementedError` by your own lines; a blank that you leave empty disturbs no other.
"""

import torch

# * Draft k tokens, one by one: the first after the root, each next one after the draft before
# it, and each drawn from the drafter's distribution after temperature. Return the list of
# tokens and the list of distributions that they were drawn from. You may call
# drafter.logits(token) (reads one token, returns the logits (V,) after it), sampler(logits)
# (the distribution (V,) after temperature) and dice.draw(probs) (a token: dice.draw of (0, 1,
# 0) is 1). At the window's end k is 0, and both lists are empty.
# About 5 lines, 6 minutes.
# Example: drafter t -> t + 1 (.75) or t + 2 (.25), root 0, the dice say 2 then 3: drafted,
#   draft_probs, what the dice were asked -> [[2, 3], [[0, 0.75, 0.25, 0], [0.25, 0, 0, 0.75]],
#   [[0, 0.75, 0.25, 0], [0.25, 0, 0, 0.75]]]


def draft(drafter, root, k, sampler, dice):
    """Draw k tokens after the root, each from the drafter's distribution after temperature.

    -> drafted, a list of k tokens, and draft_probs, a list of k rows (V,): row i is what token i
    was drawn from.
    """
    raise NotImplementedError("not yet: draft")


# * The drafter drew this token from draft_probs. With what probability is it accepted, so that
# it never comes out more often than target_probs wants, and as many drafts as possible are
# accepted? Plain Python will do: target_probs[token] is the target's probability of it. Return
# a number.
# About 1 line, 3 minutes.
# Example: target (.5, .3, .2), draft (.6, .1, .3), token 0 -> 0.833333


def acceptance_probability(target_probs, draft_probs, token):
    """The probability with which a draft token is accepted. target_probs, draft_probs: (V,).

    Example: target (.5, .3, .2), draft (.6, .1, .3): token 0 has 5/6.
    """
    raise NotImplementedError("not yet: acceptance_probability")


# ** After a rejection the target draws the next token itself, but not from its own
# distribution: only from what the accepted drafts leave missing of it. Return that distribution
# (V,); it must add up to 1. You may call torch, for instance x.clamp(min=0), which turns (.1,
# -.2) into (.1, 0), and x.sum(). Two equal distributions leave nothing missing: return any
# distribution then, but no nan.
# About 3 lines, 5 minutes.
# Example: target (.5, .3, .2), draft (.6, .1, .3) -> [0.0, 1.0, 0.0]


def residual(target_probs, draft_probs):
    """The distribution that the target draws from after a rejection. (V,), (V,) -> (V,)

    Example: target (.5, .3, .2), draft (.6, .1, .3): (0, 1, 0).
    """
    raise NotImplementedError("not yet: residual")


# ** If every draft is accepted with chance alpha, how many tokens does a round of k drafts
# yield on average, the target's own token included? When is there a first token, a second, a
# third? Plain Python will do: alpha ** 2 is the chance that two drafts are accepted. Watch out
# for alpha = 1.
# About 1 line, 4 minutes.
# Example: alpha 0.5, k 2 -> 1.75


def expected_tokens(alpha, k):
    """Tokens per round, bonus token included, if every draft is accepted with chance alpha.

    Leviathan et al., Equation 1. Example: alpha .5, k 2: 1.75 tokens.
    """
    raise NotImplementedError("not yet: expected_tokens")


# *** Test the drafts from left to right, one coin each, and stop at the first that fails.
# There, draw the next token from the residual of that position; if none fails, or there are no
# drafts, draw a bonus token. You may call acceptance_probability(target_probs[i],
# draft_probs[i], token) (a number), residual(target_probs[i], draft_probs[i]) (a distribution),
# dice.flip(a) (True with probability a) and dice.draw(probs) (a token). Return how many drafts
# are accepted, and the next token.
# About 4 lines, 8 minutes.
# Example: drafted 1, 0; draft (.5 .5 0), (.25 .25 .5); target (.5 .25 .25), (.5 .5 0), (.1 .2
#   .7); both coins pass: n, token, what the dice were asked -> [2, 2, [0.5, 1.0, [0.1, 0.2,
#   0.7]]]


def accept(drafted, draft_probs, target_probs, dice):
    """Test the drafts: how many are accepted, which token is next. Algorithm 1 from the coins on.

    drafted: K tokens; draft_probs: K rows (V,); target_probs (K + 1, V).
    -> n, how many drafts are accepted (a prefix), and the next token, which is always the target's.
    """
    raise NotImplementedError("not yet: accept")
