"""The contest: decode the same prompts with every decoder, in turn, and compare fairly."""

import gc
import statistics

from nanogpt.clock import interpolate
from nanogpt.decoding import collect, collecting, timed

VERBS = ("draft", "verify", "accept", "commit")


def predicted_speedup(tau, curve, rows, draft_ms):
    """tau * c(1) / (c(rows) + draft): the speed-up if only drafting and the forward took time.

    curve: {N: ms}; rows: of a verifying forward, the root counted; draft_ms: drafting per round.
    Example: tau 3, c(1) = 2 ms, c(4) = 3 ms, drafting 1 ms: 3 * 2 / (3 + 1) = 1.5.
    """
    # tau plain steps, c(1) each, against one round that brings the same tokens.
    return tau * curve[1] / (interpolate(curve, rows) + draft_ms)


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


def compare(decoders, prompts, max_new_tokens, turn=None):
    """Decode every prompt with every decoder, in turn, in one process.

    decoders: {name: start}, start(prompt, seed) -> a generator of Steps.
    turn: tokens until the next decoder's turn (see take_turns); default the whole text.
    -> {name: list of Generation, one per prompt}.
    """
    names = list(decoders)
    for name in names:  # warm up: the first calls pay for memory and kernels
        collect(decoders[name](prompts[0], 0), min(8, max_new_tokens))
    gc.collect()
    gc.freeze()  # else a collection of everything, 0.2 s long, hits some decoder in mid-step
    results = {name: [] for name in names}
    for i, prompt in enumerate(prompts):
        # The order rotates, so that none always goes first; prompt i has seed i for everybody.
        runs = {name: collecting(timed(decoders[name](prompt, i)), max_new_tokens)
                for name in names[i % len(names):] + names[:i % len(names)]}
        for name, generation in take_turns(runs, turn or max_new_tokens).items():
            results[name].append(generation)
    return results


def summarize(generations):
    """Pool generations -> dict: tau, tokens_per_second, ms_per_step, drafted, verb_ms, accepted.

    drafted: tokens per step; verb_ms: {verb: milliseconds per step}, draft, verify, accept, commit;
    accepted: a list, the drafts accepted in each step.
    """
    tokens = sum(len(g.tokens) - 1 for g in generations)  # the prefill's token is not counted
    steps = [step for g in generations for step in g.steps]
    seconds, n = sum(g.seconds for g in generations), max(len(steps), 1)
    return {
        "tau": tokens / n,  # sums over sums: a long text counts more than a short one
        "tokens_per_second": tokens / max(seconds, 1e-12),
        "ms_per_step": 1e3 * seconds / n,
        "drafted": sum(step.drafted for step in steps) / n,
        "verb_ms": {verb: 1e3 * sum(step.seconds.get(verb, 0.0) for step in steps) / n
                    for verb in VERBS},
        "accepted": [n for g in generations for n in g.accepted],
    }


def median_round(generations):
    """-> (ms, {verb: ms}): the median of each verb over the steps, and their sum.

    What happens between the verbs is left out.
    """
    steps = [step.seconds for g in generations for step in g.steps]
    verbs = {verb: 1e3 * statistics.median(step.get(verb, 0.0) for step in steps)
             for verb in VERBS}
    return sum(verbs.values()), verbs


def two_standard_errors(values):
    """How uncertain the mean of two or more values is, either way."""
    return 2 * statistics.stdev(values) / len(values) ** 0.5


def tau_uncertainty(generations):
    """Two standard errors of tau, from the tokens that each step brought."""
    return two_standard_errors([len(step.tokens) for g in generations for step in g.steps])


def speedups(generations, baseline):
    """(Seconds per token of the baseline) / (of this decoder), a list with one for each prompt."""
    # Prompt by prompt: both saw the same text and the same moments of the machine.
    return [g.tokens_per_second / b.tokens_per_second
            for g, b in zip(generations, baseline, strict=True)]


def speedup(generations, baseline):
    """The median of the prompts' `speedups`."""
    # One disturbed prompt moves a mean, not the median.
    return statistics.median(speedups(generations, baseline))
