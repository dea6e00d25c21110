"""The blanks of chapter 01."""

import torch

from exact import (
    ToyDraft,
    ToyModel,
    ToyTarget,
    loop_distribution,
    target_distribution,
    total_variation,
)
from grading import Blank
from nanogpt.sampling import Sampler

TARGET, DRAFT = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.6, 0.1, 0.3])


class Script:
    """A Dice that follows a script and notes what it was asked."""

    def __init__(self, draws=(), coins=()):
        self.draws, self.coins, self.asked = list(draws), list(coins), []

    def draw(self, probs):
        self.asked.append([round(float(p), 4) for p in probs])
        return self.draws.pop(0) if self.draws else int(probs.argmax())

    def flip(self, p):
        self.asked.append(round(float(p), 4))
        return self.coins.pop(0)


def chain_promise():
    """The whole loop on toy models must have the target's distribution."""
    from chain_specdec import speculate_chain

    for sampler in (Sampler(0), Sampler(1), Sampler(0.5, top_k=2)):
        model, drafter = ToyModel(5, 3), ToyDraft(ToyModel(99, 3))
        emitted = loop_distribution(
            lambda dice, s=sampler, d=drafter, m=model: speculate_chain(
                ToyTarget(m), d, [0, 1], 2, s, dice), model, sampler, [0, 1], 1, 4)
        distance = total_variation(emitted, target_distribution(model, sampler, [0, 1], 4))
        assert distance < 1e-6, (  # an answer may compute in float32
            "the text no longer has the target's distribution at temperature "
            f"{sampler.temperature}: total variation {distance:.1e} instead of 0")


def observe_probability(f):
    return {f"target (.5, .3, .2), draft (.6, .1, .3), token {t}": float(
        f(TARGET.double(), DRAFT.double(), t)) for t in range(3)}


def observe_residual(f):
    a, b = TARGET.double(), DRAFT.double()
    c, d = torch.tensor([0.6, 0.4, 0.0]).double(), torch.tensor([0.1, 0.3, 0.6]).double()
    return {"target (.5, .3, .2), draft (.6, .1, .3)": f(a, b).round(decimals=6),
            "target (.6, .4, 0), draft (.1, .3, .6)": f(c, d).round(decimals=6),
            "target = draft, the sum of what comes back": float(f(a, a).sum()),
            "target (.5004, .4996), draft (.5, .5)": f(
                torch.tensor([0.5004, 0.4996]).double(), torch.tensor([0.5, 0.5]).double()
            ).round(decimals=6)}


def observe_draft(f):
    class Cycle:  # after token t comes t + 1 with .75, t + 2 with .25
        def logits(self, token):
            probs = torch.zeros(4)
            probs[(token + 1) % 4], probs[(token + 2) % 4] = 0.75, 0.25
            return probs.log()

    def run(sampler, draws, k=2):
        dice = Script(draws)
        tokens, probs = f(Cycle(), 0, k, sampler, dice)
        return tokens, [[round(float(p), 4) for p in row] for row in probs], dice.asked

    return {CYCLE: run(Sampler(1), [2, 3]), "the same at temperature 0": run(Sampler(0), []),
            "k = 0, at the window's end": run(Sampler(1), [], 0)}


def observe_accept(f):
    drafts = [torch.tensor([0.5, 0.5, 0.0]), torch.tensor([0.25, 0.25, 0.5])]
    targets = torch.tensor([[0.5, 0.25, 0.25], [0.5, 0.5, 0.0], [0.1, 0.2, 0.7]])

    def run(coins, k=2):
        dice = Script([], coins)
        return *f([1, 0][:k], drafts[:k], targets[:k + 1], dice), dice.asked

    return {COINS: run([True, True]), "the first coin fails": run([False]),
            "the second coin fails": run([True, False]), "no drafts": run([], 0)}


def slip_accept(no_residual=False, bonus=0, go_on=False, upside_down=False, position=False):
    def accept(drafted, draft_probs, target_probs, dice):
        from chain_specdec import residual

        n = 0
        for i, token in enumerate(drafted):
            judged = i if position else token
            ratio = float(target_probs[i][judged]) / max(float(draft_probs[i][judged]), 1e-9)
            if dice.flip(min(1.0, 1 / max(ratio, 1e-9) if upside_down else ratio)):
                n += 1
            elif not go_on:
                left = residual(target_probs[i], draft_probs[i])
                return i, dice.draw(target_probs[i] if no_residual else left)
        return n, dice.draw(target_probs[len(drafted) + bonus])

    return accept


def slip_draft(root_only=False, untempered=False):
    def draft(drafter, root, k, sampler, dice):
        drafted, rows, token = [], [], root
        for _ in range(k):
            logits = drafter.logits(token)
            rows.append(sampler(logits))
            drafted.append(dice.draw(rows[-1]))
            if untempered:
                rows[-1] = Sampler(1)(logits)
            token = root if root_only else drafted[-1]
        return drafted, rows

    return draft


def argmax_draft(drafter, root, k, sampler, dice):
    drafted, rows, token = [], [], root
    for _ in range(k):
        rows.append(sampler(drafter.logits(token)))
        token = int(rows[-1].argmax())
        drafted.append(token)
    return drafted, rows


CYCLE = ("drafter t -> t + 1 (.75) or t + 2 (.25), root 0, the dice say 2 then 3: drafted, "
         "draft_probs, what the dice were asked")
COINS = ("drafted 1, 0; draft (.5 .5 0), (.25 .25 .5); target (.5 .25 .25), (.5 .5 0), (.1 .2 .7); "
         "both coins pass: n, token, what the dice were asked")
ROWS = [[0, 0.75, 0.25, 0], [0.25, 0, 0, 0.75]]
GREEDY = [[0, 1, 0, 0], [0, 0, 1, 0]]
BLANKS = [
    Blank(
        "chain_specdec:draft",
        "* Draft k tokens, one by one: the first after the root, each next one after the draft "
        "before it, and each drawn from the drafter's own distribution. Return the list of tokens "
        "and the list of distributions that they were drawn from. You may call "
        "drafter.logits(token) (reads one token, returns the logits (V,) after it), "
        "sampler(logits) (a distribution (V,)) and dice.draw(probs) (a token: dice.draw of "
        "(0, 1, 0) is 1). At the window's end k is 0, and both lists are empty.",
        "In a loop: logits of the last token, through the sampler, draw, remember both.",
        5, 6, observe_draft,
        {CYCLE: ([2, 3], ROWS, ROWS),
         "the same at temperature 0": ([1, 2], GREEDY, GREEDY),
         "k = 0, at the window's end": ([], [], [])},
        chain_promise,
        {"every token is drafted from the root": slip_draft(root_only=True),
         "the kept distribution ignores the sampler": slip_draft(untempered=True),
         "the tokens are argmaxes instead of draws": argmax_draft}),
    Blank(
        "chain_specdec:acceptance_probability",
        "* The drafter drew this token from draft_probs. With what probability may it stay, so "
        "that it never comes out more often than target_probs wants, and as many drafts as "
        "possible stay? Plain Python will do: target_probs[token] is the target's probability of "
        "it. Return a number.",
        "A token that the target likes at least as much as the drafter always stays.",
        1, 3, observe_probability,
        dict(zip(observe_probability(lambda a, b, t: 0.0), (5 / 6, 1.0, 2 / 3), strict=True)),
        chain_promise,
        {"the ratio is upside down": lambda p, q, t: min(1.0, float(q[t]) / float(p[t])),
         "the draft probability is left out": lambda p, q, t: float(p[t]),
         "the ratio is not capped at 1": lambda p, q, t: float(p[t]) / float(q[t])}),
    Blank(
        "chain_specdec:residual",
        "** After a rejection the target draws the next token itself, but not from its own "
        "distribution: only from what the kept drafts leave missing of it. Return that "
        "distribution (V,); it must add up to 1. You may call torch, for instance x.clamp(min=0), "
        "which turns (.1, -.2) into (.1, 0), and x.sum(). Two equal distributions leave nothing "
        "missing: return any distribution then, but no nan.",
        "Subtract, cut off below zero, normalise; think of two equal distributions.",
        3, 5, observe_residual,
        {"target (.5, .3, .2), draft (.6, .1, .3)": [0.0, 1.0, 0.0],
         "target (.6, .4, 0), draft (.1, .3, .6)": [0.833333, 0.166667, 0.0],
         "target = draft, the sum of what comes back": 1.0,
         "target (.5004, .4996), draft (.5, .5)": [1.0, 0.0]},
        chain_promise,
        {"the residual is not normalised": lambda p, q: (p - q).clamp(min=0),
         "the residual is the target itself": lambda p, q: p,
         "the difference is taken the wrong way round":
            lambda p, q: (q - p).clamp(min=0) / (q - p).clamp(min=0).sum(),
         "the absolute difference is taken": lambda p, q: (p - q).abs() / (p - q).abs().sum(),
         "equal distributions are divided by zero":
            lambda p, q: (p - q).clamp(min=0) / (p - q).clamp(min=0).sum()}),
    Blank(
        "chain_specdec:expected_tokens",
        "** If every draft stays with chance alpha, how many tokens does a round of k drafts bring "
        "on average, the target's own token included? When is there a first token, a second, a "
        "third? Plain Python will do: alpha ** 2 is the chance that two drafts stay. Mind "
        "alpha = 1.",
        "1 + alpha + alpha^2 + ... + alpha^k, and mind alpha = 1.",
        1, 4,
        lambda f: {f"alpha {a}, k {k}": float(f(a, k)) for a, k in ((0.5, 2), (0.8, 1), (1.0, 4))},
        {"alpha 0.5, k 2": 1.75, "alpha 0.8, k 1": 1.8, "alpha 1.0, k 4": 5.0}, None,
        {"the bonus token is left out": lambda a, k: sum(a ** i for i in range(1, k + 1)),
         "the sum ends one term early": lambda a, k: float(sum(a ** i for i in range(k))),
         "alpha = 1 divides by zero": lambda a, k: (1 - a ** (k + 1)) / (1 - a)}),
    Blank(
        "chain_specdec:accept",
        "*** Test the drafts from left to right, one coin each, and stop at the first that fails. "
        "There, draw the next token from the residual of that position; if none fails, or there "
        "are no drafts, draw a bonus token. You may call acceptance_probability(target_probs[i], "
        "draft_probs[i], token) (a number), residual(target_probs[i], draft_probs[i]) (a "
        "distribution), dice.flip(a) (True with probability a) and dice.draw(probs) (a token). "
        "Return how many drafts stay, and the next token.",
        "There is one more row of target_probs than there are drafts.",
        4, 8, observe_accept,
        {COINS: (2, 2, [0.5, 1.0, [0.1, 0.2, 0.7]]),
         "the first coin fails": (0, 2, [0.5, [0.0, 0.0, 1.0]]),
         "the second coin fails": (1, 0, [0.5, 1.0, [0.5, 0.5, 0.0]]),
         "no drafts": (0, 0, [[0.5, 0.25, 0.25]])},
        chain_promise,
        {"a rejected position draws from the target, without the residual":
            slip_accept(no_residual=True),
         "the bonus token comes from the row before the last": slip_accept(bonus=-1),
         "the drafts behind a rejected one are still judged": slip_accept(go_on=True),
         "the ratio is upside down": slip_accept(upside_down=True),
         "the position in the chain is taken for the token": slip_accept(position=True)}),
]
