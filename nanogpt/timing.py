"""Timing: medians, fair comparisons, and the cost curve c(N).

    python -m nanogpt.timing --size baby

prints how long one target forward takes for N new rows. Speculative decoding lives on that
curve being flat: N drafted tokens are verified for little more than the price of one.
"""

import gc
import statistics
import time

import torch

from nanogpt.device import device_name, synchronize
from nanogpt.generate import collect, collecting


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
    """c(n) for any n, by linear interpolation in the measured {N: ms}.

    Below the smallest N its value stays; above the largest the last slope goes on.
    """
    sizes = sorted(curve)
    if n <= sizes[0]:
        return curve[sizes[0]]
    for low, high in zip(sizes, sizes[1:], strict=False):
        if n <= high or high == sizes[-1]:
            weight = (n - low) / (high - low)
            return curve[low] + weight * (curve[high] - curve[low])
    return curve[sizes[0]]


def predicted_speedup(tau, curve, rows, draft_ms):
    """tau * c(1) / (c(rows) + draft): the speed-up that only drafting and the forward leave.

    curve: {N: ms}; rows: of a verifying forward, the root counted; draft_ms: drafting a round.
    """
    return tau * curve[1] / (interpolate(curve, rows) + draft_ms)


def take_turns(runs, turn):
    """Advance several decoders by `turn` tokens at a time, round after round.

    A machine that is slow for a second or two then is slow for all of them.
    runs: {name: nanogpt.generate.collecting(...)}, no two with a drafter in common.
    -> {name: Generation}
    """
    finished, goal = {}, 0
    while len(finished) < len(runs):
        goal += turn
        for name, run in runs.items():
            try:
                while name not in finished and next(run) < goal:
                    pass
            except StopIteration as end:
                finished[name] = end.value
    return finished


def compare(decoders, prompts, max_new_tokens, turn=None):
    """Decode every prompt with every decoder, in turn, in one process.

    decoders: {name: start}, start(prompt, seed) -> a generator of Steps.
    turn: tokens until the next decoder's turn (see take_turns); default the whole text.
    -> {name: list of Generation, one a prompt}. The first prompt is also decoded once, short and
    unmeasured, to warm up. The order of the decoders rotates, so none always goes first.
    """
    names = list(decoders)
    for name in names:
        collect(decoders[name](prompts[0], 0), min(8, max_new_tokens))
    gc.collect()
    gc.freeze()  # else a collection of everything, 0.2 s long, hits some decoder in mid-step
    results = {name: [] for name in names}
    for i, prompt in enumerate(prompts):
        runs = {name: collecting(decoders[name](prompt, i), max_new_tokens)
                for name in names[i % len(names):] + names[:i % len(names)]}
        for name, generation in take_turns(runs, turn or max_new_tokens).items():
            results[name].append(generation)
    return results


def summarize(generations):
    """Pool generations -> dict: tau, tokens_per_second, ms_per_step, drafted, verb_ms, accepted.

    drafted: tokens a step; verb_ms: {verb: milliseconds a step}, draft, verify, accept, commit;
    accepted: a list, the drafts accepted in each step.
    """
    tokens = sum(len(g.tokens) - 1 for g in generations)
    steps = [step for g in generations for step in g.steps]
    seconds, n = sum(g.seconds for g in generations), max(len(steps), 1)
    return {
        "tau": tokens / n,
        "tokens_per_second": tokens / max(seconds, 1e-12),
        "ms_per_step": 1e3 * seconds / n,
        "drafted": sum(step.drafted for step in steps) / n,
        "verb_ms": {verb: 1e3 * sum(step.seconds.get(verb, 0.0) for step in steps) / n
                    for verb in ("draft", "verify", "accept", "commit")},
        "accepted": [n for g in generations for n in g.accepted],
    }


def speedup(generations, baseline):
    """Median over the prompts of (seconds per token of the baseline) / (of this decoder)."""
    ratios = [g.tokens_per_second / b.tokens_per_second
              for g, b in zip(generations, baseline, strict=True)]
    return statistics.median(ratios)


def main(argv=None):
    from nanogpt.cli import parser, setup
    from nanogpt.precision import PRECISIONS, for_decoding, precision_of
    from nanogpt.report import print_table
    from nanogpt.train import SIZES, get_gpt

    p = parser("Print c(N), the time of one target forward for N new rows.")
    p.add_argument("--size", choices=SIZES, default="baby", help="of the model")
    p.add_argument("--cached", type=int, default=128, help="rows already in the cache")
    args = p.parse_args(argv)
    most = SIZES[args.size].block_size // 2
    if not 1 <= args.cached <= most:
        raise ValueError(f"cached is {args.cached}; it must be in [1, {most}], half the context")
    dataset, device = setup(args)
    model = get_gpt(args.size, dataset, device, args.retrain)
    curves = {}
    for precision in PRECISIONS[1:]:
        try:
            curves[precision] = cost_curve(for_decoding(model, precision), cached=args.cached)
        except ValueError:
            continue  # this machine cannot decode in that precision
    chosen = precision_of(for_decoding(model))
    print(f"\nc(N) of the '{args.size}' target, milliseconds (and c(N) / c(1)), "
          f"{args.cached} rows cached, {device_name(device)}; decoding uses {chosen}")
    header = ["rows N"] + [f"{name}" for name in curves]
    rows = next(iter(curves.values()))
    print_table(header, [
        [n] + [f"{curve[n]:.2f} ({curve[n] / curve[1]:.2f})" for curve in curves.values()]
        for n in rows
    ])


if __name__ == "__main__":
    from nanogpt.cli import run

    run(main)
