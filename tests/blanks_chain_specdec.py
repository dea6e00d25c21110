"""The blanks of chapter 01."""

import torch

from chain_specdec import speculate_chain
from grading import Blank, Script, check_lossless
from nanogpt.exact.toy_models import ToyDraft, ToyModel
from nanogpt.sampling import Sampler

TARGET, DRAFT = torch.tensor([[0.5, 0.3, 0.2], [0.6, 0.1, 0.3]]).double()
EVEN, ODD = torch.tensor([[0.5, 0.5], [0.5004, 0.4996]]).double()


def same_text():
    """The whole loop on toy models must have the target's distribution."""
    drafter = ToyDraft(ToyModel(99, 3))
    check_lossless(lambda target, sampler, dice: speculate_chain(
        target, drafter, [0, 1], 2, sampler, dice),
        Sampler(0), Sampler(1), Sampler(0.5, top_k=2))


class Cycle:
    """After token t comes t + 1 with .75, t + 2 with .25."""

    def logits(self, token):
        return torch.tensor([0, 0.75, 0.25, 0]).roll(token).log()


def drafted(sampler, draws=(), k=2):
    def call(f):
        dice = Script(draws)
        tokens, probs = f(Cycle(), 0, k, sampler, dice)
        return tokens, [[round(float(p), 4) for p in row] for row in probs], dice.asked

    return call


def judged(*coins, k=2):
    drafts = torch.tensor([[0.5, 0.5, 0.0], [0.25, 0.25, 0.5]])
    targets = torch.tensor([[0.5, 0.25, 0.25], [0.5, 0.5, 0.0], [0.1, 0.2, 0.7]])

    def call(f):
        dice = Script([], coins)
        return *f([1, 0][:k], list(drafts[:k]), targets[:k + 1], dice), dice.asked

    return call


ROWS = [[0, 0.75, 0.25, 0], [0.25, 0, 0, 0.75]]
GREEDY = [[0, 1, 0, 0], [0, 0, 1, 0]]
BLANKS = [
    Blank(
        "chain_specdec:draft",
        """* Draft k tokens, one by one: the first after the root, each next one after the draft
        before it, and each drawn from the drafter's distribution after temperature. Return the
        list of tokens and the list of distributions that they were drawn from. You may call
        drafter.logits(token) (reads one token, returns the logits (V,) after it),
        sampler(logits) (the distribution (V,) after temperature) and dice.draw(probs) (a token:
        dice.draw of (0, 1, 0) is 1). At the window's end k is 0, and both lists are empty.""",
        "In a loop: logits of the last token, through the sampler, draw, remember both.",
        lines=5, minutes=6, promise=same_text,
        examples={
            "drafter t -> t + 1 (.75) or t + 2 (.25), root 0, the dice say 2 then 3: drafted, "
            "draft_probs, what the dice were asked":
                (drafted(Sampler(1), [2, 3]), ([2, 3], ROWS, ROWS)),
            "the same at temperature 0": (drafted(Sampler(0)), ([1, 2], GREEDY, GREEDY)),
            "k = 0, at the window's end": (drafted(Sampler(1), k=0), ([], [], [])),
        }),
    Blank(
        "chain_specdec:acceptance_probability",
        """* The drafter drew this token from draft_probs. With what probability is it accepted, so
        that it never comes out more often than target_probs wants, and as many drafts as
        possible are accepted? Plain Python will do: target_probs[token] is the target's
        probability of it. Return a number.""",
        "A token that the target likes at least as much as the drafter is always accepted.",
        lines=1, minutes=3, promise=same_text,
        examples={
            "target (.5, .3, .2), draft (.6, .1, .3), token 0": ((TARGET, DRAFT, 0), 5 / 6),
            "target (.5, .3, .2), draft (.6, .1, .3), token 1": ((TARGET, DRAFT, 1), 1.0),
            "target (.5, .3, .2), draft (.6, .1, .3), token 2": ((TARGET, DRAFT, 2), 2 / 3),
        }),
    Blank(
        "chain_specdec:residual",
        """** After a rejection the target draws the next token itself, but not from its own
        distribution: only from what the accepted drafts leave missing of it. Return that
        distribution (V,); it must add up to 1. You may call torch, for instance x.clamp(min=0),
        which turns (.1, -.2) into (.1, 0), and x.sum(). Two equal distributions leave nothing
        missing: return any distribution then, but no nan.""",
        "Subtract, cut off below zero, normalise; think of two equal distributions.",
        lines=3, minutes=5, promise=same_text,
        examples={
            "target (.5, .3, .2), draft (.6, .1, .3)": ((TARGET, DRAFT), [0.0, 1.0, 0.0]),
            "target (.6, .4, 0), draft (.1, .3, .6)": (
                (torch.tensor([0.6, 0.4, 0]).double(), torch.tensor([0.1, 0.3, 0.6]).double()),
                [5 / 6, 1 / 6, 0.0]),
            "target = draft, the sum of what comes back":
                (lambda f: float(f(TARGET, TARGET).sum()), 1.0),
            "target (.5004, .4996), draft (.5, .5)": ((ODD, EVEN), [1.0, 0.0]),
        }),
    Blank(
        "chain_specdec:expected_tokens",
        """** If every draft is accepted with chance alpha, how many tokens does a round of k
        drafts yield on average, the target's own token included? When is there a first token, a
        second, a third? Plain Python will do: alpha ** 2 is the chance that two drafts are
        accepted. Watch out for alpha = 1.""",
        "1 + alpha + alpha^2 + ... + alpha^k, and watch out for alpha = 1.",
        lines=1, minutes=4,
        examples={
            "alpha 0.5, k 2": ((0.5, 2), 1.75), "alpha 0.8, k 1": ((0.8, 1), 1.8),
            "alpha 1.0, k 4": ((1.0, 4), 5.0),
        }),
    Blank(
        "chain_specdec:accept",
        """*** Test the drafts from left to right, one coin each, and stop at the first that
        fails. There, draw the next token from the residual of that position; if none fails, or
        there are no drafts, draw a bonus token. You may call
        acceptance_probability(target_probs[i], draft_probs[i], token) (a number),
        residual(target_probs[i], draft_probs[i]) (a distribution), dice.flip(a) (True with
        probability a) and dice.draw(probs) (a token). Return how many drafts are
        accepted, and the next token.""",
        "There is one more row of target_probs than there are drafts.",
        lines=4, minutes=8, promise=same_text,
        examples={
            "drafted 1, 0; draft (.5 .5 0), (.25 .25 .5); target (.5 .25 .25), (.5 .5 0), "
            "(.1 .2 .7); both coins pass: n, token, what the dice were asked":
                (judged(True, True), (2, 2, [0.5, 1.0, [0.1, 0.2, 0.7]])),
            "the first coin fails": (judged(False), (0, 2, [0.5, [0.0, 0.0, 1.0]])),
            "the second coin fails": (judged(True, False), (1, 0, [0.5, 1.0, [0.5, 0.5, 0.0]])),
            "no drafts": (judged(k=0), (0, 0, [[0.5, 0.25, 0.25]])),
        }),
]
