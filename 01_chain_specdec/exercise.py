"""Chapter 01: 5 blanks to fill. Grade them with

    python tests/grade.py 01

and ask for a hint with `python tests/grade.py 01 --hint NAME`. Replace each
`raise NotImplementedError` by your own lines; a blank that you leave empty disturbs no other.
"""

import torch

# Draft k tokens after the root, one by one, each drawn from the drafter's own distribution, and
# keep that distribution: the accept rule will divide by it. drafter.logits(token) reads a
# token, sampler(logits) is a distribution, dice.draw(probs) a token. At the window's end k is
# 0.
# About 5 lines, 6 minutes.
# Example: drafter t -> t + 1 (.75) or t + 2 (.25), root 0, the dice say 2 then 3: drafted,
#   draft_probs, what the dice were asked -> [[2, 3], [[0, 0.75, 0.25, 0], [0.25, 0, 0, 0.75]],
#   [[0, 0.75, 0.25, 0], [0.25, 0, 0, 0.75]]]


def draft(drafter, root, k, sampler, dice):
    """Draw k tokens after the root, each from the drafter's own distribution.

    -> drafted, a list of k tokens, and draft_probs, a list of k rows (V,): row i is what token i
    was drawn from.
    """
    raise NotImplementedError("not yet: draft")


# With which probability does a draft token stay?
# About 1 line, 3 minutes.
# Example: target (.5, .3, .2), draft (.6, .1, .3), token 0 -> 0.833333


def acceptance_probability(target_probs, draft_probs, token):
    """min(1, target(x) / draft(x)) for one token. target_probs, draft_probs: (V,)."""
    raise NotImplementedError("not yet: acceptance_probability")


# After a rejection the target speaks, but only about what the drafter gave too little of.
# Return that distribution.
# About 3 lines, 5 minutes.
# Example: target (.5, .3, .2), draft (.6, .1, .3) -> [0.0, 1.0, 0.0]


def residual(target_probs, draft_probs):
    """norm(max(target - draft, 0)): where the drafter put too little. (V,), (V,) -> (V,)

    Worked example: target (.5, .3, .2), draft (.6, .1, .3). The drafter's surplus is .1 on
    token 0 and .1 on token 2; both are rejected that often, .2 in all. What is missing, .2 on
    token 1, is exactly what the residual hands out: (0, 1, 0).
    """
    raise NotImplementedError("not yet: residual")


# Go through the drafts: a coin for each, dice.flip(a), True with the probability a that the
# draft stays. At the first that fails, draw from the residual of that position; if none fails,
# or there are no drafts, draw a bonus token with dice.draw(probs).
# About 4 lines, 8 minutes.
# Example: drafted 1, 0; draft (.5 .5 0), (.25 .25 .5); target (.5 .25 .25), (.5 .5 0), (.1 .2
#   .7); both coins pass: n, token, what the dice were asked -> [2, 2, [0.5, 1.0, [0.1, 0.2,
#   0.7]]]


def accept(drafted, draft_probs, target_probs, dice):
    """Leviathan et al., Algorithm 1, from the coins on.

    drafted: K tokens; draft_probs: K rows (V,); target_probs (K + 1, V).
    -> n, how many drafts stay (a prefix), and the next token, which is always the target's.
    """
    raise NotImplementedError("not yet: accept")


# If every draft stays with chance alpha, how many tokens does a round of k drafts bring?
# About 1 line, 4 minutes.
# Example: alpha 0.5, k 2 -> 1.75


def expected_tokens(alpha, k):
    """Tokens per round, bonus token included, if every draft stays with chance alpha.

    1 + alpha + ... + alpha^k = (1 - alpha^(k+1)) / (1 - alpha). Leviathan et al., Equation 1.
    """
    raise NotImplementedError("not yet: expected_tokens")
