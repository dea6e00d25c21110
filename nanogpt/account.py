"""The account of a contest: who is faster, whose texts agree, and what stands in the way.

results, everywhere: {name: list of Generation}, one per prompt, from `contest.compare`.
"""

from collections import defaultdict
from types import SimpleNamespace

import torch

from nanogpt.clock import interpolate
from nanogpt.contest import median_round, predicted_speedup, speedup, summarize
from nanogpt.decoding import plain_decode
from nanogpt.device import device_name
from nanogpt.packing import precision_of
from nanogpt.printing import print_table
from nanogpt.sizes import SIZES


def print_setting(args, target, more=""):
    """What a table was measured on: the model, the machine, the prompts; `more` of the chapter's.

    args: the flags of cli.decoding_flags.
    """
    print(f"\n{SIZES[args.size].label} target in {precision_of(target)} on "
          f"{device_name(target.device)}{more}; {args.prompts} held-out prompts of 64 tokens, "
          f"{args.max_new_tokens} new tokens each; tau counts the bonus token")


def first_difference(tokens, reference):
    """The position of the first token in which two texts differ; None if there is none.

    Where one text is longer, its end is not looked at.
    """
    return next((i for i, (a, b) in enumerate(zip(tokens, reference, strict=False)) if a != b),
                None)


def distinct_share(tokens, n=6):
    """Share of distinct n-grams in a text, 0..1: near 0, the text repeats itself.

    A text shorter than n repeats nothing: 1.
    """
    grams = [tuple(tokens[i:i + n]) for i in range(len(tokens) - n + 1)]
    return len(set(grams)) / len(grams) if grams else 1.0


def texts_agree(generations, baseline):
    """'6/6' if all texts equal the baseline's, else how many do."""
    equal = sum(g.tokens == b.tokens for g, b in zip(generations, baseline, strict=True))
    return f"{equal}/{len(baseline)}"


@torch.inference_mode()
def print_differences(results, baseline, prompts, target):
    """Where greedy texts leave the baseline's, who does, and how close the two best logits are.

    A rule that loses nothing can differ only at a near-tie, where the last bits decide.
    results: {name: list of Generation}, one per prompt.
    """
    partings = defaultdict(list)  # (prompt, place): the methods that part there
    for name, generations in results.items():
        for i, (ours, plain) in enumerate(zip(generations, results[baseline], strict=True)):
            place = first_difference(ours.tokens, plain.tokens)
            if place is not None:
                partings[i, place].append(name)
    for (i, place), names in sorted(partings.items()):
        logits = logits_before(target, prompts[i], results[baseline][i].tokens[:place])
        best = logits.topk(2).values
        print(f"prompt {i} differs at token {place}, where the two best logits are "
              f"{float(best[0] - best[1]):.4f} apart: {'; '.join(names)}")


def logits_before(target, prompt, tokens):
    """The logits (V,) after prompt + tokens, as plain decoding saw them: its window has slid where
    the text was long."""
    seen = []
    replay = SimpleNamespace(draw=lambda logits: [*tokens, 0][len(seen) - 1])
    steps = plain_decode(target, prompt, lambda logits: seen.append(logits) or logits, replay)
    for _ in range(len(tokens) + 1):
        next(steps)
    return seen[-1].flatten()  # (V,) after the prefill, (1, V) after a round


def histogram(accepted, last=4):
    """Accepted draft tokens of every step -> percent of the steps with 0, 1, .., `last` or more."""
    counts = [0] * (last + 1)
    for n in accepted:
        counts[min(n, last)] += 1
    return " ".join(f"{100 * count / max(len(accepted), 1):2.0f}" for count in counts)


def print_results(results, baseline, greedy=True):
    """Print one line per decoder: what it brings and what it costs.

    results: {name: list of Generation}; baseline: the name that speed-ups refer to.
    greedy: add how many texts equal the baseline's (random texts need not).
    The acceptance histogram in short: percent of the steps that accepted 0, 1, 2, 3, 4 or more.
    """
    rows = []
    for name, generations in results.items():
        line = summarize(generations)
        rows.append([
            name, f"{line['drafted']:.1f}", f"{line['tau']:.2f}", histogram(line["accepted"]),
            f"{line['tokens_per_second']:.0f}", f"{speedup(generations, results[baseline]):.2f}x",
            *([texts_agree(generations, results[baseline])] if greedy else []),
        ])
    header = ["method", "drafted", "tau", "accepted 0 1 2 3 4+, %", "tokens/s", "speed-up"]
    print_table(header + (["same text"] if greedy else []), rows)


def extra_ms(generations, baseline):
    """What a round takes more than a plain step, in milliseconds, part by part -> {part: ms}.

    Example: a plain step of 2 ms, all of it verifying; a round of 6 ms, of which 1 is drafting, 3
    verifying, 1 accepting, .5 committing: 1, 1, 1.5, and the loop .5; 4 ms in all.
    """
    line, plain = summarize(generations), summarize(baseline)
    # Both book the same thing under the same verb, so verb by verb they may be subtracted.
    more = {verb: ms - plain["verb_ms"][verb] for verb, ms in line["verb_ms"].items()}
    return {
        "drafting": more["draft"],
        "verifying more than one row": more["verify"],
        "accepting and committing": more["accept"] + more["commit"],
        # What no verb booked: the loop itself, and handing the tokens on.
        "the loop": line["ms_per_step"] - plain["ms_per_step"] - sum(more.values()),
    }


def why_not_faster(name, results, baseline):
    """What stands between a method's tau and its speed-up, and the largest part of it, in words."""
    line, plain = summarize(results[name]), summarize(results[baseline])
    tau, measured = line["tau"], speedup(results[name], results[baseline])
    parts = extra_ms(results[name], results[baseline])
    listed = ", ".join(f"{part} {round(ms, 2) + 0.0:.2f}" for part, ms in parts.items())
    told = (f"{name}: {tau:.2f} tokens per forward, {measured:.2f}x. A round takes "
            f"{line['ms_per_step']:.2f} ms, a plain step {plain['ms_per_step']:.2f}; the "
            f"difference in ms: {listed}.")
    # Compared as printed: 2.001 ms beside 2.000 is no loss that anybody could see.
    costs_more = round(line["ms_per_step"], 2) > round(plain["ms_per_step"], 2)
    lost = round(measured, 2) < round(tau, 2)
    if costs_more and lost:
        return (f"{told} That is why the speed-up is not {tau:.2f}x. The largest part is "
                f"{max(parts, key=parts.get)}.")
    if not costs_more and not lost:
        return f"{told} A round costs no more than a plain step, so nothing of tau is lost."
    # One prompt may be unlike the others.
    return f"{told} Tau pools the prompts and the speed-up is their median: here that differs more."


def print_change_of_load(contest_ms, curve_ms):
    """Print a line if a plain forward took another time in the contest than c(1) says.

    Both are medians; they may differ by a fifth, since the contest's includes the sampler.
    """
    low, high = sorted((contest_ms, curve_ms))
    if high > 1.2 * low:
        print(f"Verifying one token took {contest_ms:.2f} ms in the contest and {curve_ms:.2f} ms "
              "when c(N) was measured. If it is not the sampler that makes the difference, the "
              "load of this machine changed: run it again when nothing else runs, before you "
              "compare predicted with measured.")


def print_bottlenecks(results, baseline, curve):
    """Predicted beside measured speed-up of every method, and a sentence on the fastest one.

    baseline: plain decoding's name; curve: c(N), see clock.cost_curve. The prediction is
    contest.predicted_speedup. Where the measured value falls short of it, accepting, committing and
    Python between the forwards took the rest; it may also exceed it, for plain decoding pays for
    Python and sampling once a token.
    """
    rows, speedups = [], {}
    for name, generations in results.items():
        if name == baseline:
            continue
        line = summarize(generations)
        draft_ms = line["verb_ms"]["draft"]
        n = 1 + line["drafted"]
        predicted = predicted_speedup(line["tau"], curve, n, draft_ms)
        speedups[name] = speedup(generations, results[baseline])
        rows.append([name, f"{line['tau']:.2f}", f"{draft_ms:.2f}", f"{interpolate(curve, n):.2f}",
                     f"{line['ms_per_step']:.2f}", f"{predicted:.2f}x", f"{speedups[name]:.2f}x"])
    print_table(["method", "tau", "draft ms", "c(N) ms", "step ms", "predicted", "measured"], rows)
    _, medians = median_round(results[baseline])
    print_change_of_load(medians["verify"], curve[1])
    print(why_not_faster(max(speedups, key=speedups.get), results, baseline))
