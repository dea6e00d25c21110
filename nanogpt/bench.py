"""The runner: decode the same prompts with every decoder, in turn, and say who is faster and why.

A decoder is start(prompt, seed) -> a generator of Steps. Plain decoding has the name PLAIN, the
others come from the chapters' LOOPS, see decoders in chapter.py.

    results = compare(starts, prompts, 128)      # {name: list of Generation, one per prompt}
    print_results(results, curve)                # the table
    print_account(results)                       # where a round's milliseconds go
    cost_curve(target)                           # c(N): the time of N rows

At its end, without a clock: a finished text is decoded again with other drafts (chapters 03, 04).
Sums over sums everywhere, tau and speed-ups alike: a long text counts more than a short one.
"""

import gc
import statistics
import time
from dataclasses import dataclass, replace

import numpy as np
import torch
from tqdm import tqdm

from nanogpt.cli import print_table
from nanogpt.decoding import collect, collecting, plain_decode, timed
from nanogpt.device import device_name, synchronize
from nanogpt.gpu.graphs import captured
from nanogpt.gpu.plain import plain_in_launches
from nanogpt.packing import precision_of
from nanogpt.sampling import Dice
from nanogpt.sizes import SIZES

PLAIN = "plain"
VERBS = ("draft", "verify", "accept", "commit")
TURN = 16  # tokens that a decoder writes before the next one has its turn

# ---------------------------------------------------------------- the clock


def median_ms(call, device, repeats=30, warmup=5, before=None):
    """Median wall time of `call()` in milliseconds, the device synchronised around each call.

    before(): called ahead of every call, untimed; it leaves the caches as they will be found.
    """
    laps = []
    for i in range(warmup + repeats):
        if before is not None:
            before()
        synchronize(device)
        start = time.perf_counter()
        call()
        synchronize(device)
        if i >= warmup:
            laps.append(time.perf_counter() - start)
    return 1e3 * statistics.median(laps)


@torch.inference_mode()
def cost_curve(target, rows=(1, 2, 4, 8, 16, 32, 64, 128), cached=128, repeats=30):
    """c(N): milliseconds of one forward of N new rows on a cache of `cached` rows.

    Sizes are measured in turn, round after round, so a slow moment hits all of them alike.
    -> {N: median milliseconds}; row counts that do not fit into the window are left out.
    """
    cached = min(cached, target.block_size // 2)
    rows = [n for n in rows if cached + n <= target.block_size]
    cache = target.new_cache()
    target(torch.zeros(1, cached, dtype=torch.long, device=target.device), cache=cache)
    cache.commit(list(range(cached)))
    laps = {n: [] for n in rows}
    for _ in range(repeats):
        for n in rows:
            tokens = torch.zeros(1, n, dtype=torch.long, device=target.device)
            laps[n].append(median_ms(lambda t=tokens: target(t, cache=cache), target.device,
                                     repeats=1, warmup=1))
    return {n: statistics.median(values) for n, values in laps.items()}


def interpolate(curve, n):
    """c(n) for any n, by linear interpolation in the measured {N: ms}, N rising.

    Outside of what was measured the nearest value stays.
    """
    return float(np.interp(n, list(curve), list(curve.values())))


# ---------------------------------------------------------------- the contest


def plain(target, sampler):
    """The decoder that every table begins with: one forward, one token. On a GPU it is told of
    several tokens at once, as it is of the drafts of a round (gpu/plain.py)."""
    decode = plain_in_launches if captured(target) else plain_decode
    return lambda prompt, seed: decode(target, prompt, sampler, Dice(seed))


def plains(target, sampler, name=PLAIN):
    """{name: `plain`}; on a GPU beside it the form that waits for every token."""
    found = {name: plain(target, sampler)}
    if captured(target):
        found[f"{name}, token by token"] = lambda prompt, seed: plain_decode(
            target, prompt, sampler, Dice(seed))
    return found


def take_turns(runs, turn):
    """Advance several decoders by `turn` tokens at a time, round after round.

    runs: {name: nanogpt.decoding.collecting(...)}, no two with a drafter in common.
    -> {name: Generation}
    """
    finished, goal = {}, 0
    while len(finished) < len(runs):
        goal += turn  # short turns: a machine that is slow for a second is slow for all of them
        for name, run in runs.items():
            try:
                while name not in finished and next(run) < goal:
                    pass  # tokens so far; a step may overshoot, the next turn is then shorter
            except StopIteration as end:
                finished[name] = end.value
    return finished


def compare(starts, prompts, max_new_tokens, turn=None, progress=None):
    """Decode every prompt with every decoder, in turn, in one process.

    turn: tokens until the next decoder's turn (see take_turns); default the whole text;
    progress: what stands before a bar that shows how many prompts are done; default no bar.
    -> {name: list of Generation, one per prompt}.
    """
    names = list(starts)
    for name in names:  # warm up: the first calls pay for memory and kernels
        collect(starts[name](prompts[0], 0), min(8, max_new_tokens))
    gc.collect()
    gc.freeze()  # else a collection of everything, 0.2 s long, hits some decoder in mid-step
    results = {name: [] for name in names}
    try:
        for i, prompt in enumerate(tqdm(prompts, progress, disable=progress is None)):
            # The order rotates, so that none always goes first; prompt i has seed i for everybody.
            runs = {name: collecting(timed(starts[name](prompt, i)), max_new_tokens)
                    for name in names[i % len(names):] + names[:i % len(names)]}
            for name, generation in take_turns(runs, turn or max_new_tokens).items():
                results[name].append(generation)
    finally:
        gc.unfreeze()
    return results


# ---------------------------------------------------------------- numbers


def summarize(generations):
    """Pool generations -> dict: tau, tokens_per_second, ms_per_step, drafted, verb_ms, accepted.

    drafted: tokens per step; verb_ms: {verb: milliseconds per step}, draft, verify, accept, commit;
    accepted: a list, the drafts accepted in each step.
    """
    tokens = sum(len(g.tokens) - 1 for g in generations)  # the prefill's token is not counted
    steps = [step for g in generations for step in g.steps]
    seconds, n = sum(g.seconds for g in generations), max(len(steps), 1)
    return {
        "tau": tokens / n,
        "tokens_per_second": tokens / max(seconds, 1e-12),
        "ms_per_step": 1e3 * seconds / n,
        "drafted": sum(step.drafted for step in steps) / n,
        "verb_ms": {verb: 1e3 * sum(step.seconds.get(verb, 0.0) for step in steps) / n
                    for verb in VERBS},
        "accepted": [n for g in generations for n in g.accepted],
    }


def two_standard_errors(values):
    """How uncertain the mean of two or more independent values is, either way."""
    return 2 * float(np.std(values, ddof=1)) / len(values) ** 0.5


def ratio_error(tokens, rounds):
    """Two standard errors of sum(tokens) / sum(rounds), from the spread over the texts (nan if
    there is only one). tokens, rounds: a number for each text.

    Example: texts of 6 and of 2 tokens, 2 rounds each: the ratio is 2, each text 2 tokens off: 2.
    """
    n, ratio = len(rounds), sum(tokens) / max(sum(rounds), 1)
    if n < 2:
        return float("nan")
    off = sum((ours - ratio * theirs) ** 2 for ours, theirs in zip(tokens, rounds, strict=True))
    return 2 * (off * n / (n - 1)) ** 0.5 / sum(rounds)


def tau_uncertainty(generations):
    """Two standard errors of tau, see ratio_error.

    The rounds of one text are not independent: where it loops, all of them do well.
    """
    return ratio_error([len(g.tokens) - 1 for g in generations],
                       [len(g.steps) for g in generations])


def paired(ours, theirs):
    """How much larger `ours` is than `theirs`, text by text -> the mean, two standard errors of it.

    Both: lists with a value for each text, in one order. That a text is hard for both cancels.
    """
    differences = [a - b for a, b in zip(ours, theirs, strict=True)]
    return statistics.fmean(differences), two_standard_errors(differences)


def verdict(more, error, ahead="ahead", behind="behind"):
    """What somebody is who takes so much more, with two standard errors, see paired."""
    return "level" if abs(more) <= error else behind if more > 0 else ahead


def speedup(generations, baseline):
    """Tokens a second, divided by those of the baseline: all texts together."""
    ours, theirs = (summarize(texts)["tokens_per_second"] for texts in (generations, baseline))
    return ours / theirs


def predicted_speedup(tau, curve, rows, draft_ms):
    """tau * c(1) / (c(rows) + draft): the speed-up if only drafting and the forward took time.

    curve: {N: ms}; rows: of a verifying forward, the root counted; draft_ms: drafting per round.
    Example: tau 3, c(1) = 2 ms, c(4) = 3 ms, drafting 1 ms: 3 * 2 / (3 + 1) = 1.5.
    """
    # tau plain steps, c(1) each, against one round that brings the same tokens.
    return tau * curve[1] / (interpolate(curve, rows) + draft_ms)


# ---------------------------------------------------------------- the table


def histogram(accepted, last=4):
    """Accepted draft tokens of every step -> percent of the steps with 0, 1, .., `last` or more."""
    counts = [0] * (last + 1)
    for n in accepted:
        counts[min(n, last)] += 1
    return " ".join(f"{100 * count / max(len(accepted), 1):2.0f}" for count in counts)


def print_results(results, curve=None, greedy=False):
    """Print one line per decoder: what it brings and what it costs.

    curve: c(N), see cost_curve; with it, how many drafts were accepted, and the predicted speed-up
    beside the measured one. Where that falls short, accepting, committing and Python between the
    forwards took the rest; it may also exceed it, for plain decoding pays for Python once a token.
    (A round that is one CUDA graph has no drafting time of its own: there it promises too much.)
    greedy: add how many texts equal plain decoding's (random texts need not).
    """
    rows = []
    for name, generations in results.items():
        line = summarize(generations)
        row = [name, f"{line['drafted']:.1f}", f"{line['tau']:.2f}",
               f"{tau_uncertainty(generations):.2f}"]
        if curve:
            row += [histogram(line["accepted"]), "" if name == PLAIN else "{:.2f}x".format(
                predicted_speedup(line["tau"], curve, 1 + line["drafted"],
                                  line["verb_ms"]["draft"]))]
        row += [f"{line['tokens_per_second']:.0f}", f"{speedup(generations, results[PLAIN]):.2f}x"]
        if greedy:
            equal = sum(g.tokens == b.tokens
                        for g, b in zip(generations, results[PLAIN], strict=True))
            row.append(f"{equal}/{len(generations)}")
        rows.append(row)
    print_table(["method", "drafts", "tau", "+-", *["0 1 2 3 4+, %", "predicted"] * bool(curve),
                 "tokens/s", "speed-up", *["same"] * greedy], rows)


def print_account(results):
    """Where a round's milliseconds go, method by method; between the verbs the loop itself runs."""
    lines = {name: summarize(generations) for name, generations in results.items()}
    print_table(["milliseconds", "a round", *VERBS], [
        [name, f"{line['ms_per_step']:.2f}", *(f"{ms:.2f}" for ms in line["verb_ms"].values())]
        for name, line in lines.items()])


# ---------------------------------------------------------------- a script's tables


def print_contest(results, temperature, curve):
    """All that is said of one contest: its table, and where the time goes."""
    print(f"\ntemperature {temperature:g}; c(N), ms: "
          + ", ".join(f"{n}: {ms:.2f}" for n, ms in curve.items()) + "\n")
    print_results(results, curve, greedy=temperature == 0)
    print()
    print_account(results)


def print_tables(args, target, prompts, samplers, starts_of, more="", turn=TURN):
    """A contest and its tables for every sampler -> {temperature: results}.

    args: the flags of cli.decoding_flags; starts_of(sampler) -> {name: start};
    more: what the chapter adds to the line on the setting; turn: see compare.
    """
    print(f"\n{SIZES[args.size].label} target in {precision_of(target)} on "
          f"{device_name(target.device)}{more}; {len(prompts)} held-out prompts of "
          f"{len(prompts[0])} tokens, {args.max_new_tokens} new tokens each; tau counts the bonus "
          "token, +- is two standard errors over the prompts")
    tables = {}
    for sampler in samplers:
        curve = cost_curve(target, repeats=15)  # anew for each table: a machine's load changes
        results = tables[sampler.temperature] = compare(
            starts_of(sampler), prompts, args.max_new_tokens, turn)
        print_contest(results, sampler.temperature, curve)
    return tables


# ---------------------------------------------------------------- a finished text, decoded again

# What other drafters would have brought: the walk emits the target's own draws, so the text does
# not depend on who drafts, and a tree accepts as many tokens as its deepest path agrees with it.


def plain_texts(target, prompts, sampler):
    """The prompts, each with 128 tokens of plain decoding behind it; prompt i from Dice(i)."""
    return [prompt + collect(plain_decode(target, prompt, sampler, Dice(i)), 128).tokens
            for i, prompt in enumerate(prompts)]


@torch.inference_mode()
def trees_everywhere(target, drafter, text, first):
    """What a drafter of chapter 03 or 04 would have proposed below every token from text[first] on:
    yields its position, the trees, their scores. The text must fit into the window.
    """
    _, hidden = target(torch.tensor([text[:-1]]))
    for root in range(first, len(text) - 1):
        drafter.observe(text[root - 1:root], hidden, [root - 1])  # what was read before the root
        yield root, *drafter.propose_both(text[root], len(text) - 1 - root)


def agreement(tree, future):
    """Accepted length of a tree without equal siblings if the text goes on with `future`."""
    row, length = 0, 0
    for token in future:
        below = [c for c in tree.children[row] if int(tree.tokens[c]) == token]
        if not below:
            break
        row, length = below[0], length + 1
    return length


def rounds_of(lengths):
    """Decode a text again -> the accepted drafts of every round, a list.

    lengths: {position: the drafts that would be accepted below it}.
    """
    accepted, root = [], min(lengths)
    while root in lengths:
        accepted.append(lengths[root])
        root += 1 + accepted[-1]
    return accepted


@dataclass
class Proposal:
    """Several drafters' trees below one token of a text: for each the accepted drafts (the target's
    own token not counted) and the mean confidence. kind: of the text; due: how many
    drafts of each tree the target expects to accept, if it was asked; future: the tokens that come
    next, for who asks for them; vote: this token's, see `votes`; before: those of all before it."""

    lengths: list
    means: list
    kind: int = 0
    due: list = (0, 0)
    future: list = ()
    vote: float = 0.0
    before: list = ()


def by_past(steps, choose):
    """Decode a text again -> the accepted drafts of every round. steps: {position: Proposal};
    choose(past, root) -> the head of this round; past: the roots of the rounds before."""
    accepted, past, root = [], [], min(steps)
    while root in steps:
        accepted.append(steps[root].lengths[choose(past, root)])
        past.append(root)
        root += 1 + accepted[-1]
    return accepted


def in_pieces(texts, every):
    """One text out of several: `every` positions of the first, of the next, and so on, then the
    first goes on -> {position: Proposal}. texts: a list of such; a draft ends with its piece."""
    steps, texts = [], [[text[root] for root in sorted(text)] for text in texts]
    for start in range(0, max(map(len, texts)), every):
        for text in texts:
            piece = text[start:start + every]
            steps += [replace(step, lengths=[min(n, left) for n in step.lengths],
                              future=step.future[:left])
                      for left, step in zip(range(len(piece))[::-1], piece, strict=True)]
    return dict(enumerate(steps))


def tau(rounds):
    """Tokens per round of some texts' replays, the target's own token included."""
    return 1 + sum(map(sum, rounds)) / sum(map(len, rounds))


def gain(rounds, others, kinds=1):
    """By how much tau is larger than another router's on the same texts -> share, two standard
    errors (the jackknife's: every text is left out once).

    kinds: the texts are so many equal groups, and the i-th of each group are left out together: how
    many there are of a kind is no accident.
    """
    n = len(rounds) // kinds

    def without(i):
        one, other = ([text for j, text in enumerate(texts) if j % n != i]
                      for texts in (rounds, others))
        return tau(one) / tau(other)

    without = [without(i) for i in range(n)]
    return tau(rounds) / tau(others) - 1, 2 * statistics.stdev(without) * (n - 1) / n ** 0.5
