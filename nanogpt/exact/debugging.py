"""Who is wrong, and where? Tests for a decoder on a model that is too large to enumerate.

    replay      every round again: what p and q should have been, from plain forwards of its text;
                the first row whose p is not the plain forward's
    dice        are drafts draws from q, replacements from the residual, and are as many accepted
                as the overlap says?
    counts      one position, many seeds: a chi-square against the exact law; it sees what is wrong
                at this position, and nothing else

They look at the tokens, and at a record of each round as chapter 01's loop leaves it
(ChainRound), not at the code. Decode and replay in float32: bfloat16 alone moves probabilities by
a percent.

`suspects` has seven engines to try them on. One is right, and one is exact but slow.
"""

from dataclasses import dataclass
from statistics import NormalDist

import torch

from nanogpt.chapter import load
from nanogpt.decoding import Step
from nanogpt.drafting import GPTDrafter
from nanogpt.engine import Engine, Request
from nanogpt.exact.batches import standing
from nanogpt.paging import PagedModel, Pages
from nanogpt.sampling import Sampler

# ---------------------------------------------------------------- what a decoder did


@dataclass
class Recorded:
    """One round of a decoder. text: all tokens before the drafts, the root last; drafted,
    draft_probs, target_probs: see ChainRound; tokens: what it emitted."""

    text: list
    drafted: list
    draft_probs: list
    target_probs: torch.Tensor
    tokens: list


def record(steps, prompt, rounds):
    """Run a decoder -> its first `rounds` rounds. steps: a generator of Steps with ChainRounds.

    The text must stay inside the window: a replay reads all of it.
    """
    found, text = [], prompt + next(steps).tokens
    for _ in range(rounds):
        step = next(steps)
        found.append(Recorded(text, step.detail.drafted, step.detail.draft_probs,
                              step.detail.target_probs, step.tokens))
        text = text + step.tokens
    return found


# ---------------------------------------------------------------- replay, and its dice


def distance(probs, others):
    """Total variation, row by row: (n, V), (n, V) -> a list of n."""
    return (0.5 * (probs - others).abs().sum(-1)).tolist()


@torch.inference_mode()
def plain_rows(model, sampler, text, drafted):
    """The distributions after the text and after each draft, (len(drafted) + 1, V), from one
    forward without a cache: nothing of earlier rounds can be wrong in it."""
    logits, _ = model(torch.tensor([text + drafted]))
    return sampler(logits[0, len(text) - 1:]).cpu()


@dataclass
class Replay:
    """A round beside its replay. p_off, q_off: total variation of what was recorded, row by row;
    overlap: for each draft sum(min(p, q)) of the replay, the chance that it is accepted."""

    p_off: list
    q_off: list
    overlap: list


def replay(rounds, target, small, sampler):
    """What p and q should have been -> a list of Replay, one a round."""
    found = []
    for made in rounds:
        p = plain_rows(target, sampler, made.text, made.drafted)
        q = plain_rows(small, sampler, made.text, made.drafted)[:-1]
        found.append(Replay(
            distance(made.target_probs, p),
            distance(torch.stack(made.draft_probs), q) if made.drafted else [],
            torch.minimum(p[:-1], q).sum(-1).tolist()))
    return found


def first_wrong_row(replays, tolerance=1e-3):
    """-> (number of the round, row) of the first p that is not the plain forward's, or None."""
    for number, found in enumerate(replays):
        for row, off in enumerate(found.p_off):
            if off > tolerance:
                return number, row
    return None


def tested(made):
    """How many drafts of a round had a coin: the accepted ones, and the first that was not."""
    return min(len(made.tokens), len(made.drafted))


def acceptance(rounds, replays):
    """-> the share of the tested drafts that were accepted, its standard error; what the overlap of
    p and q says, the mean of 1 - total variation(p, q) over the same drafts."""
    coins = sum(map(tested, rounds))
    accepted = sum(len(made.tokens) - 1 for made in rounds)
    overlap = sum(sum(found.overlap[:tested(made)])
                  for made, found in zip(rounds, replays, strict=True))
    share = accepted / coins
    return share, (share * (1 - share) / coins) ** 0.5, overlap / coins


def draws(rounds):
    """Are the drafts draws from the recorded q? -> how many standard deviations more often than q
    says the draft was q's favourite."""
    more = variance = 0.0
    for made in rounds:
        for token, q in zip(made.drafted, made.draft_probs, strict=True):
            best = float(q.max())
            more += (int(q.argmax()) == token) - best
            variance += best * (1 - best)
    return more / max(variance, 1e-12) ** 0.5


def not_owed(rounds):
    """Are the tokens behind a rejection draws from the residual of the recorded p and q? -> of how
    many nothing was owed, for p was not above q, and how many there are."""
    owed = []
    for made in rounds:
        n, token = len(made.tokens) - 1, made.tokens[-1]  # n drafts were accepted
        if n < len(made.drafted):
            owed.append(bool(made.target_probs[n][token] > made.draft_probs[n][token]))
    return owed.count(False), len(owed)


def evidence(start, prompt, target, small, sampler, texts=6, rounds=12):
    """All of this for a decoder, from some texts of it -> first wrong row of the first text, the
    largest distance of a recorded q, drafts a round, `acceptance`, `draws`, `not_owed`, how many of
    the texts are different.

    start(prompt, seed) -> Steps.
    """
    made = [record(start(prompt, seed), prompt, rounds) for seed in range(texts)]
    again = [replay(found, target, small, sampler) for found in made]
    rounds, replays = sum(made, []), sum(again, [])
    off = max(off for found in replays for off in found.q_off)
    drafts = sum(len(one.drafted) for one in rounds) / len(rounds)
    return (first_wrong_row(again[0]), off, drafts, *acceptance(rounds, replays), draws(rounds),
            not_owed(rounds), len({tuple(found[-1].text) for found in made}))


# ---------------------------------------------------------------- counts at one position


@torch.inference_mode()
def second_token_law(target, sampler, prompt):
    """The exact distribution (V,) of the second new token: the first one that was speculated."""
    first = plain_rows(target, sampler, prompt, [])[0]  # (V,)
    texts = torch.tensor([prompt + [token] for token in range(len(first))])
    return first @ sampler(target(texts)[0][:, -1]).cpu()


def cells(law, samples, least=5.0):
    """The tokens that are counted by themselves: each is expected at least `least` times. The
    others share one cell, the last -> a list of lists of tokens."""
    own = [token for token, p in enumerate(law.tolist()) if samples * p >= least]
    rest = [token for token in range(len(law)) if token not in own]
    return [[token] for token in own] + [rest] * bool(rest)


def chi_square(law, tokens):
    """Pearson's test of a list of tokens -> the chance of counts that are as far off or farther."""
    parts = cells(law, len(tokens))
    statistic = sum((sum(map(tokens.count, part)) - expected) ** 2 / expected for part in parts
                    for expected in [len(tokens) * float(law[part].sum())])
    freedom = len(parts) - 1
    # Wilson and Hilferty: the cube root of chi-square / freedom is nearly normal.
    spread = 2 / (9 * freedom)
    return 1 - NormalDist().cdf(((statistic / freedom) ** (1 / 3) - 1 + spread) / spread ** 0.5)


def second_tokens(start, prompt, samples):
    """The second new token under so many seeds. start(prompt, seed) -> Steps."""
    found = []
    for seed in range(samples):
        steps = start(prompt, seed)
        next(steps)
        found.append(next(steps).tokens[0])
    return found


# ---------------------------------------------------------------- seven engines

SUSPECTS = {
    "A": "a page is given out twice",
    "B": "a chain is cut behind the drafts that q likes",
    "C": None,
    "D": "all drafts are drawn with the first request's sampler",
    "E": "the drafter's cache is not cut back",
    "F": "who is sent back believes that its rows are still there",
    "G": "each has dice of its own, all with seed 0",
}


def in_company(target, small, prompt, seed, sampler, k):
    """One reader's Steps in an engine that serves two others, too. He comes last, so he is sent
    back when there are no pages left; when the others have ended, he goes on."""
    chain, shown = load("01").module("chain_specdec"), []
    pages = Pages(11 * len(prompt) // 8 + 9, 8)

    def judge(*judged):
        shown[:] = judged  # at the end of a round: what the last one was judged by
        return chain.accept(*judged)

    engine = Engine(PagedModel(target, pages), GPTDrafter(small, pages), judge)
    engine.submit(Request(4 * prompt, Sampler(0.3), 101, 30, k=k))
    engine.submit(Request(6 * prompt, sampler, 102, 30, k=k))
    reader = Request(prompt, sampler, seed, 64, k=k)
    engine.submit(reader)
    while engine.busy:
        served, tokens = engine.round()[-1]
        if served is reader:
            yield Step(tokens, detail=chain.ChainRound(*shown[:3], len(tokens) - 1))


def suspects(target, small, k=4, sampler=None):
    """{"A": start(prompt, seed), ..}: one reader in company, in seven engines."""
    def start(sentence):
        def steps(prompt, seed):
            reader = in_company(target, small, prompt, seed, sampler or Sampler(1), k)
            while True:
                with standing(sentence):
                    step = next(reader)
                yield step

        return steps

    return {name: start(sentence) for name, sentence in SUSPECTS.items()}
