"""Tables and text on the terminal, in plain ASCII."""

import sys
from collections import defaultdict
from types import SimpleNamespace

import torch

from nanogpt.generate import plain_decode
from nanogpt.timing import interpolate, predicted_speedup, speedup, summarize


def print_table(header, rows):
    """Print rows of cells under a header; the first column to the left, the others to the right."""
    cells = [[str(cell) for cell in row] for row in [header, *rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    for number, row in enumerate(cells):
        line = [row[0].ljust(widths[0])]
        line += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        print("  ".join(line).rstrip())
        if number == 0:
            print("  ".join("-" * width for width in widths))


def print_text(text):
    """Print text at once, whatever the console can encode."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, errors="replace").decode(encoding))
    sys.stdout.flush()


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
    return seen[-1]


def histogram(accepted, last=4):
    """Accepted draft tokens of every step -> percent of the steps with 0, 1, .., `last` or more."""
    counts = [0] * (last + 1)
    for n in accepted:
        counts[min(n, last)] += 1
    return " ".join(f"{100 * count / max(len(accepted), 1):2.0f}" for count in counts)


def results_table(results, baseline, greedy=True):
    """Print one line a decoder: what it brings and what it costs.

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


def why_not_faster(name, results, baseline):
    """What stands between a method's tau and its speed-up, and the largest part of it, in words.

    results: {name: list of Generation}. All milliseconds are those of the rounds themselves, so
    the parts add up to what a round takes more than a plain step.
    """
    line, plain = summarize(results[name]), summarize(results[baseline])
    tau, measured = line["tau"], speedup(results[name], results[baseline])
    step_ms, plain_ms, spent = line["ms_per_step"], plain["ms_per_step"], line["verb_ms"]
    parts = {
        "drafting": spent["draft"],
        "verifying more than one row": spent["verify"] - plain_ms,
        "accepting, committing and Python": step_ms - spent["draft"] - spent["verify"],
    }
    worst = max(parts, key=parts.get)
    listed = ", ".join(f"{part} {round(ms, 2) + 0.0:.2f}" for part, ms in parts.items())
    return (f"{name}: {tau:.2f} tokens a forward, {measured:.2f}x. Why not {tau:.2f}x? A round "
            f"takes {step_ms:.2f} ms, a plain step {plain_ms:.2f}; the difference in ms: "
            f"{listed}. The bottleneck is {worst}.")


def print_bottlenecks(results, baseline, curve):
    """Predicted beside measured speed-up of every method, and a sentence on the fastest one.

    results: {name: list of Generation}; baseline: plain decoding's name; curve: c(N), see
    timing.cost_curve. The prediction (timing.predicted_speedup) takes tau from the
    acceptance counts, the drafter's milliseconds from the steps. What the measured value falls
    short of it, accepting, committing and Python between the forwards have taken; it may also
    exceed it, for plain decoding pays for Python and sampling once a token.
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
    print(why_not_faster(max(speedups, key=speedups.get), results, baseline))
