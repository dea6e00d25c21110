"""Chapter 01: 5 blanks to fill. Grade them with

    python tests/grade.py 01

ask for a hint with `--hint NAME`, for a stronger one with `--hint NAME --more`, and, when some are
done, see them decode beside the taught ones with `--run`. Replace each `raise NotImplementedError`
by your own lines; a blank that you leave empty disturbs no other.

* dice.draw(probs) draws a token, an int, from probs (V,), which need not add up to 1;
  dice.flip(a) is True with probability a.
* sampler(logits) makes of logits (.., V) the distribution after temperature.
* verify(context, root, drafted, sampler): One causal forward over the root and the drafts. ->
  target_probs (K + 1, V), Algorithm 1's p_1 .. p_(K+1): row i is the target's distribution of
  the token after i drafts; hidden: see GPT.forward. The cache of the context holds K + 1 new
  rows, none committed.
"""

import torch
from chain_specdec import ChainRound, verify
from nanogpt.decoding import Context, Step

# * The drafter drew this token from draft_probs. With what probability is it accepted, so that
# it never comes out more often than target_probs wants, and as many drafts as possible are
# accepted? Return a number.
# About 1 line, 3 minutes.
# Example: target (.5, .3, .2), draft (.6, .1, .3), token 0 -> 0.833333


def acceptance_probability(target_probs, draft_probs, token):
    """The probability with which a draft token is accepted. target_probs, draft_probs: (V,).

    Example: target (.5, .3, .2), draft (.6, .1, .3): token 0 has 5/6.
    """
    raise NotImplementedError("not yet: acceptance_probability")


# ** After a rejection the target draws the next token itself, but only from what the accepted
# drafts leave missing of its distribution. Return that distribution (V,); it adds up to 1. Two
# equal distributions leave nothing missing: any distribution will do then, but no nan.
# About 3 lines, 5 minutes.
# Example: target (.5, .3, .2), draft (.6, .1, .3) -> [0, 1, 0]


def residual(target_probs, draft_probs):
    """The distribution that the target draws from after a rejection. (V,), (V,) -> (V,)

    Example: target (.5, .3, .2), draft (.6, .1, .3): (0, 1, 0).
    """
    raise NotImplementedError("not yet: residual")


# * Draft k tokens in a row: the first follows the root, each next one the draft before it.
# drafter.logits(token) reads one token and gives the logits (V,) of the next. Return the
# drafts, and for each of them the distribution that it was really drawn from: two lists. At the
# window's end k is 0.
# About 5 lines, 6 minutes.
# Example: drafter t -> t + 1 (.75) or t + 2 (.25), root 0, the dice say 2 then 3: drafted,
#   draft_probs, what the dice were asked, how many forwards of the drafter -> [[2, 3], [[0,
#   0.75, 0.25, 0], [0.25, 0, 0, 0.75]], [[0, 0.75, 0.25, 0], [0.25, 0, 0, 0.75]], 2]


def draft(drafter, root, k, sampler, dice):
    """Draw k tokens after the root, each from the drafter's distribution after temperature.

    -> drafted, a list of k tokens, and draft_probs, a list of k rows (V,): row i is what token i
    was drawn from.
    """
    raise NotImplementedError("not yet: draft")


# *** Test the drafts from left to right, one coin each, and stop at the first that fails. From
# which distribution does the next token come then? And if none fails, or if there are no
# drafts? `acceptance_probability` and `residual` are at hand. Return how many drafts are
# accepted, and the next token.
# About 4 lines, 8 minutes.
# Example: drafted 1, 0; draft (.5 .5 0), (.25 .25 .5); target (.5 .25 .25), (.5 .5 0), (.1 .2
#   .7); both coins pass: n, token, what the dice were asked -> [2, 2, [0.5, 1, [0.1, 0.2,
#   0.7]]]


def accept(drafted, draft_probs, target_probs, dice):
    """Test the drafts: how many are accepted, which token is next. Algorithm 1 from the coins on.

    drafted: K tokens; draft_probs: K rows (V,); target_probs (K + 1, V).
    -> n, how many drafts are accepted (a prefix), and the next token, which is always the target's.
    """
    raise NotImplementedError("not yet: accept")


# *** The whole loop, a generator. The first Step is the prefill, whose logits give the first
# token. Then, without end, a round: draft at most k tokens after the root, verify, accept,
# commit, and `yield` a Step. Which rows stay in the cache, which token is the next root?
# `draft`, `verify` and `accept` are at hand; `rule`, if it is given, judges instead of
# `accept`. Step(tokens, drafted): what the forward brought, and how many drafts it read; a
# record (detail) is not asked for, and k is 1 or more. Context(target, prompt) is the text so
# far with the target's cache: begin(drafter) reads the text, tells it to the drafter, and
# returns the logits (V,) behind it; full: there is no free row, so begin must be called again
# (the root is drawn already, so these logits go unused); room: so many drafts fit behind the
# root; commit(rows, tokens): these rows of the last forward stay, and so much text was read.
# Drafters hear the same: drafter.observe(tokens, hidden, rows).
# About 15 lines, 15 minutes.
# Example: the target counts 0, 1, .., 9, 0, ..; the drafter says 0 after 4; prompt 0, k = 3: of
#   four steps the tokens and the number of drafts, and what the drafter is told -> [[[[1], 0],
#   [[2, 3, 4, 5], 3], [[6, 7, 8, 9], 3], [[0, 1, 2, 3], 3]], [[0, 'and rows'], [1, 2, 3, 4,
#   'and rows'], [5, 6, 7, 8, 'and rows']]]


@torch.inference_mode()
def speculate_chain(target, drafter, prompt, k, sampler, dice, rule=None):
    """Speculative decoding with chains of k drafts. Yields a Step per round, without end.

    The first step is the prefill. prompt: a list of token ids; sampler serves target and drafter;
    rule: another one with the arguments of `accept`. Raises ValueError if the prompt is empty or
    k < 1.
    """
    raise NotImplementedError("not yet: speculate_chain")


# make_exercises.py knows by this line whether you have written here: 2a896d976ea6
