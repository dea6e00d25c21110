"""Who is wrong, and where? Tests for a decoder on a model that is too large to enumerate.

    replay      every round again: what p and q should have been, from plain forwards of its text;
                the first row whose p is not the plain forward's
    dice        are drafts draws from q, replacements from the residual, and are as many accepted
                as the overlap says?
    counts      one position, many seeds: a chi-square against the exact law; it sees what is wrong
                at this position, and nothing else

They look at the tokens, and at the record that chapter 01's loop leaves of each round
(ChainRound), not at its code. Decode and replay in float32: bfloat16 alone moves probabilities by
a percent.

`suspects` has seven decoders to try them on. One is right, and one is exact but slow.
"""

from dataclasses import dataclass
from statistics import NormalDist

import torch

from nanogpt.chapter import load
from nanogpt.exact.slips import changed, replaced
from nanogpt.sampling import Dice, Sampler

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
    largest distance of a recorded q, drafts a round, `acceptance`, `draws`, `not_owed`.

    start(prompt, seed) -> Steps.
    """
    made = [record(start(prompt, seed), prompt, rounds) for seed in range(texts)]
    again = [replay(found, target, small, sampler) for found in made]
    rounds, replays = sum(made, []), sum(again, [])
    off = max(off for found in replays for off in found.q_off)
    drafts = sum(len(one.drafted) for one in rounds) / len(rounds)
    return (first_wrong_row(again[0]), off, drafts, *acceptance(rounds, replays), draws(rounds),
            not_owed(rounds))


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


# ---------------------------------------------------------------- seven decoders


def stepping(steps, owner, **slips):
    """The same Steps, with slips in the place of the owner's functions while each is made."""
    while True:
        with replaced(owner, **slips):
            step = next(steps)
        yield step


def suspects(target, small, k=4, sampler=None):
    """{"A": start(prompt, seed), ..}: chapter 01's chain, seven times."""
    chain, sampler = load("01").module("chain_specdec"), sampler or Sampler(1)

    def only_liked(drafter, root, k, sampler, dice):
        drafted, probs = draft(drafter, root, k, sampler, dice)
        liked = [float(q[token]) > 0.3 for token, q in zip(drafted, probs, strict=True)]
        keep = [*liked, False].index(False)
        return drafted[:keep], probs[:keep]

    draft, loop = chain.draft, chain.speculate_chain
    slips = {
        "A": {"verify": changed(chain.verify, "context.verify([root, *drafted], sampler)", (
            "context.verify([root, *drafted], sampler, "
            "1 + context.cache.length + torch.arange(len(drafted) + 1))"))},
        "B": {"draft": only_liked},
        "C": {},
        "D": {"draft": changed(draft, "dice.draw(draft_probs[-1])",
                               "dice.draw(draft_probs[-1] ** 1.5)")},
        "E": {"draft": lambda drafter, root, k, _, dice: draft(
            drafter, root, k, Sampler(2), dice)},
        "F": {},
        "G": {"residual": lambda target_probs, _: target_probs},
    }
    loops = {"F": changed(loop, "context.commit(rows, tokens)", (
        "context.commit([*rows, n + 1][:len(drafted) + 1], tokens)"))}

    def start(name):
        return lambda prompt, seed: stepping(loops.get(name, loop)(
            target, chain.GPTDraft(small), prompt, k, sampler, Dice(seed)), chain, **slips[name])

    return {name: start(name) for name in slips}
