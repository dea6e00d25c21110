"""The blanks of chapter 01."""

from itertools import islice, pairwise

import torch

import chain_specdec
from grading import Blank, Script, chances, check_lossless
from nanogpt.decoding import collect
from nanogpt.exact.toy_models import ToyDraft, ToyModel, ToyTarget
from nanogpt.sampling import Dice, Sampler

TARGET, DRAFT = torch.tensor([[0.5, 0.3, 0.2], [0.6, 0.1, 0.3]]).double()
EVEN, ODD = torch.tensor([[0.5, 0.5], [0.5004, 0.4996]]).double()


def same_text():
    """The whole loop on toy models must have the target's distribution."""
    drafter = ToyDraft(ToyModel(99, 3))
    check_lossless(lambda target, sampler, dice: chain_specdec.speculate_chain(
        target, drafter, [0, 1], 2, sampler, dice),
        Sampler(0), Sampler(1), Sampler(0.5, top_k=2))


def same_rounds():
    """Two rounds, for the second shows what was committed."""
    drafter = ToyDraft(ToyModel(99, 2))
    check_lossless(lambda target, sampler, dice: chain_specdec.speculate_chain(
        target, drafter, [0, 1], 2, sampler, dice), rounds=2, length=5, model=ToyModel(5, 2))


HIDDEN = "and rows"


class Counting:
    """A target that counts: after 0 comes 1, .., after 9 comes 0. Of a text that does not count
    it knows only 7."""

    vocab = 10

    def logits(self, prefix):
        counts = all((a + 1) % 10 == b for a, b in pairwise(prefix))
        return 50 * torch.eye(10)[(prefix[-1] + 1) % 10 if counts else 7]


class Counter:
    """A drafter that counts, too, but after 4 it says 0. It notes what it is told."""

    def __init__(self):
        self.told = []

    def reset(self):
        """A new window begins."""

    def observe(self, tokens, hidden, rows):
        self.told.append([*tokens, HIDDEN if hidden[0][0, rows, 0].tolist() == tokens else "?"])

    def logits(self, token):
        return 50 * torch.eye(10)[0 if token == 4 else (token + 1) % 10]


def rounds(k, steps, size=64, *rule):
    """The first steps on the target that counts, and what the drafter is told of them. (Of the
    last one it may be told behind `yield`.)"""
    def call(f):
        drafter = Counter()
        loop = f(ToyTarget(Counting(), size), drafter, [0], k, Sampler(0), Dice(0), *rule)
        made = [[list(step.tokens), step.drafted] for step in islice(loop, steps)]
        return made, drafter.told[:steps - 1]

    return call


def reject_all(drafted, draft_probs, target_probs, dice):
    return 0, int(target_probs[0].argmax())


def every_text(f):
    """All texts of five tokens, with their probability, on a toy target whose window slides."""
    def run(dice):
        loop = f(ToyTarget(ToyModel(1, 2), 4), ToyDraft(ToyModel(99, 2)), [0, 1], 1, Sampler(1),
                 dice)
        return collect(loop, 5).tokens

    return chances(run)


class Cycle:
    """After token t comes t + 1 with .75, t + 2 with .25. It counts its forwards."""

    forwards = 0

    def logits(self, token):
        self.forwards += 1
        return torch.tensor([0, 0.75, 0.25, 0]).roll(token).log()


def drafted(sampler, draws=(), k=2):
    def call(f):
        drafter, dice = Cycle(), Script(draws)
        tokens, probs = f(drafter, 0, k, sampler, dice)
        return list(tokens), [[float(p) for p in row] for row in probs], dice.asked, \
            drafter.forwards

    return call


def every_draft(sampler, k):
    """All that may be drafted with a toy model of three tokens, with its probability."""
    def run(f, dice):
        drafter = ToyDraft(ToyModel(7, 3))
        drafter.observe([1])
        tokens, probs = f(drafter, 2, k, sampler, dice)
        return list(tokens), [[round(float(p), 2) for p in row] for row in probs]

    return lambda f: chances(lambda dice: run(f, dice))


def every_judgement(seed, k):
    """All that may come of k drafts of a toy model, with its probability."""
    drafts, targets = (torch.stack([ToyModel(number, 3).logits((row,)).softmax(-1)
                                    for row in range(k + 1)]) for number in (seed, seed + 50))
    drafted = drafts.argmax(-1).tolist()[:k]
    return lambda f: chances(lambda dice: f(drafted, list(drafts[:k]), targets, dice))


def pairs(count=9):
    """Distributions (target, draft) of toy models with three to five tokens; some of 0."""
    yield torch.tensor([0.6, 0.3, 0.1]), torch.tensor([0.8, 0.1, 0.1])  # both like token 0
    for seed in range(count):
        target, draft = (ToyModel(number, 3 + seed % 3).logits(()).softmax(-1)
                         for number in (seed, seed + 50))
        if seed % 2:  # peaked, and with zeros
            target, draft = target ** 3, draft ** 3
            target[seed % 3], draft[(seed + 1) % 3] = 0, 0
        yield target / target.sum(), draft / draft.sum()


def decimals(probs):
    return "(" + " ".join(f"{p:.3f}" for p in probs.tolist()) + ")"


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
        "chain_specdec:acceptance_probability",
        """* The drafter drew this token from draft_probs. With what probability is it accepted, so
        that it never comes out more often than target_probs wants, and as many drafts as
        possible are accepted? Return a number.""",
        ("A token that the target likes at least as much as the drafter is always accepted.",
         "In the example token 0 is drafted in 60 rounds of 100, and wanted in 50."),
        lines=1, minutes=3, promise=same_text,
        examples={
            "target (.5, .3, .2), draft (.6, .1, .3), token 0": ((TARGET, DRAFT, 0), 5 / 6),
            "target (.5, .3, .2), draft (.6, .1, .3), token 1": ((TARGET, DRAFT, 1), 1.0),
            "target (.5, .3, .2), draft (.6, .1, .3), token 2": ((TARGET, DRAFT, 2), 2 / 3),
        },
        more=lambda: {f"target {decimals(p)}, draft {decimals(q)}, token {token}": (p, q, token)
                      for p, q in pairs() for token in range(len(p)) if q[token] > 0}),
    Blank(
        "chain_specdec:residual",
        """** After a rejection the target draws the next token itself, but only from what the
        accepted drafts leave missing of its distribution. Return that distribution (V,); it
        adds up to 1. Two equal distributions leave nothing missing: any distribution will do
        then, but no nan.""",
        ("For each token: how often does it come out as an accepted draft, and how often should "
         "it come out?",
         "Accepted drafts bring the smaller of the two probabilities. What is missing has a sum "
         "below 1, and the sum can be 0."),
        lines=3, minutes=5, promise=same_text,
        examples={
            "target (.5, .3, .2), draft (.6, .1, .3)": ((TARGET, DRAFT), [0.0, 1.0, 0.0]),
            "target (.6, .4, 0), draft (.1, .3, .6)": (
                (torch.tensor([0.6, 0.4, 0]).double(), torch.tensor([0.1, 0.3, 0.6]).double()),
                [5 / 6, 1 / 6, 0.0]),
            "target = draft, the sum of what comes back":
                (lambda f: float(f(TARGET, TARGET).sum()), 1.0),
            "target (.5004, .4996), draft (.5, .5)": ((ODD, EVEN), [1.0, 0.0]),
        },
        more=lambda: {f"target {decimals(p)}, draft {decimals(q)}": (p, q) for p, q in pairs()} | {
            f"target = draft = {decimals(p)}, the sum of what comes back":
                lambda f, p=p: float(f(p, p).sum()) for p, _ in pairs()}),
    Blank(
        "chain_specdec:draft",
        """* Draft k tokens in a row: the first follows the root, each next one the draft before
        it. drafter.logits(token) reads one token and gives the logits (V,) of the next. Return
        the drafts, and for each of them the distribution that it was really drawn from: two
        lists. At the window's end k is 0.""",
        ("Read a token, draw the next one, and read that.",
         "The chapter's rule divides by the probability that the draft really had. Which one is "
         "that, if the sampler has a temperature?"),
        lines=5, minutes=6, promise=same_text,
        examples={
            "drafter t -> t + 1 (.75) or t + 2 (.25), root 0, the dice say 2 then 3: drafted, "
            "draft_probs, what the dice were asked, how many forwards of the drafter":
                (drafted(Sampler(1), [2, 3]), ([2, 3], ROWS, ROWS, 2)),
            "the same at temperature 0": (drafted(Sampler(0)), ([1, 2], GREEDY, GREEDY, 2)),
            "k = 0, at the window's end": (drafted(Sampler(1), k=0), ([], [], [], 0)),
        },
        more=lambda: {f"all that {k} draws from a toy model can give, {sampler}, and how often":
                      every_draft(sampler, k)
                      for k in (1, 3) for sampler in (Sampler(0.7), Sampler(1, top_k=2))}),
    Blank(
        "chain_specdec:accept",
        """*** Test the drafts from left to right, one coin each, and stop at the first that
        fails. From which distribution does the next token come then? And if none fails, or if
        there are no drafts? `acceptance_probability` and `residual` are at hand. Return how many
        drafts are accepted, and the next token.""",
        ("There is one more row of target_probs than there are drafts.",
         "Row i of target_probs and of draft_probs judge draft i. Which row judges no draft? "
         "Behind a rejected draft no coin falls."),
        lines=4, minutes=8, promise=same_text,
        examples={
            "drafted 1, 0; draft (.5 .5 0), (.25 .25 .5); target (.5 .25 .25), (.5 .5 0), "
            "(.1 .2 .7); both coins pass: n, token, what the dice were asked":
                (judged(True, True), (2, 2, [0.5, 1.0, [0.1, 0.2, 0.7]])),
            "the first coin fails": (judged(False), (0, 2, [0.5, [0.0, 0.0, 1.0]])),
            "the second coin fails": (judged(True, False), (1, 0, [0.5, 1.0, [0.5, 0.5, 0.0]])),
            "no drafts": (judged(k=0), (0, 0, [[0.5, 0.25, 0.25]])),
        },
        more=lambda: {f"all that may come of {k} drafts of toy model {seed}, and how often":
                      every_judgement(seed, k) for seed, k in enumerate((1, 2, 3, 3, 3))}),
    Blank(
        "chain_specdec:speculate_chain",
        """*** The whole loop, a generator. The first Step is the prefill, whose logits give the
        first token. Then, without end, a round: draft at most k tokens after the root, verify,
        accept, commit, and `yield` a Step. Which rows stay in the cache, which token is the next
        root? `draft`, `verify` and `accept` are at hand; `rule`, if it is given, judges instead of
        `accept`. Step(tokens, drafted): what the forward brought, and how many drafts it read; a
        record (detail) is not asked for, and k is 1 or more. Context(target, prompt) is the text
        so far with the target's cache: begin(drafter) reads the text, tells it to the drafter, and
        returns the logits (V,) behind it; full: there is no free row, so begin must be called
        again (the root is drawn already, so these logits go unused); room: so many drafts fit
        behind the root; commit(rows, tokens): these rows of the last forward stay, and so much
        text was read. Drafters hear the same: drafter.observe(tokens, hidden, rows).""",
        ("The root is text, but no forward has read it yet: it is the first row of the next one.",
         "If n drafts are accepted, n + 1 rows stay: the root's and theirs. The token behind them "
         "is text as well, and no row has read it."),
        lines=15, minutes=15, promise=same_rounds,
        examples={
            "the target counts 0, 1, .., 9, 0, ..; the drafter says 0 after 4; prompt 0, k = 3: of "
            "four steps the tokens and the number of drafts, and what the drafter is told": (
                rounds(3, 4), ([[[1], 0], [[2, 3, 4, 5], 3], [[6, 7, 8, 9], 3], [[0, 1, 2, 3], 3]],
                               [[0, HIDDEN], [1, 2, 3, 4, HIDDEN], [5, 6, 7, 8, HIDDEN]])),
            "the same with k = 2, six steps": (rounds(2, 6), (
                [[[1], 0], [[2, 3, 4], 2], [[5], 2], [[6, 7, 8], 2], [[9, 0, 1], 2],
                 [[2, 3, 4], 2]], [[0, HIDDEN], [1, 2, 3, HIDDEN], [4, HIDDEN], [5, 6, 7, HIDDEN],
                                   [8, 9, 0, HIDDEN]])),
            "the same with a window of 6 rows, five steps": (rounds(3, 5, 6), (
                [[[1], 0], [[2, 3, 4, 5], 3], [[6], 0], [[7, 8, 9], 2], [[0, 1, 2], 2]],
                [[0, HIDDEN], [1, 2, 3, 4, HIDDEN], [5, HIDDEN], [3, 4, 5, HIDDEN]])),
            "the same with a `rule` that rejects all drafts, three steps": (
                rounds(3, 3, 64, reject_all),
                ([[[1], 0], [[2], 3], [[3], 3]], [[0, HIDDEN], [1, HIDDEN]])),
        },
        more=lambda: {f"k = {k}, a window of {size} rows, {steps} steps": rounds(k, steps, size)
                      for k, size, steps in ((1, 64, 7), (4, 7, 9), (5, 12, 9), (2, 5, 12))} | {
            "all texts of five tokens in a window of 4 rows, and how often": every_text}),
]
