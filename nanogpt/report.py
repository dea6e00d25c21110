"""Tables and text on the terminal, in plain ASCII."""

import sys

import torch

from nanogpt.generate import Context
from nanogpt.timing import speedup, summarize


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


def same_text(tokens, reference):
    """'yes', or the position of the first token in which two texts differ."""
    for i, (a, b) in enumerate(zip(tokens, reference, strict=False)):
        if a != b:
            return f"differs at {i}"
    return "yes"


def distinct_share(tokens, n=6):
    """Share of distinct n-grams in a text, 0..1: near 0, the text repeats itself."""
    grams = [tuple(tokens[i:i + n]) for i in range(len(tokens) - n + 1)]
    return len(set(grams)) / max(len(grams), 1)


def texts_agree(generations, baseline):
    """'6/6' if all texts equal the baseline's, else how many do."""
    equal = sum(g.tokens == b.tokens for g, b in zip(generations, baseline, strict=True))
    return f"{equal}/{len(baseline)}"


@torch.inference_mode()
def print_differences(results, baseline, prompts, target):
    """Where a greedy text leaves the baseline's: the place, and how close the two best logits are.

    A rule that loses nothing can differ only at a near-tie, where the last bits decide.
    results: {name: list of Generation}, one per prompt.
    """
    for name, generations in results.items():
        for i, (ours, plain) in enumerate(zip(generations, results[baseline], strict=True)):
            places = [k for k, (a, b) in enumerate(zip(ours.tokens, plain.tokens, strict=False))
                      if a != b]
            if not places:
                continue
            text = prompts[i] + plain.tokens[:places[0]]
            best = Context(target, text).prefill()[1].topk(2).values
            print(f"{name}: prompt {i} differs at token {places[0]}, where the two best logits "
                  f"are {float(best[0] - best[1]):.4f} apart")


def results_table(results, baseline, greedy=True):
    """Print one line a decoder: what it brings and what it costs.

    results: {name: list of Generation}; baseline: the name that speed-ups refer to.
    greedy: add how many texts equal the baseline's (random texts need not).
    """
    rows = []
    for name, generations in results.items():
        line = summarize(generations)
        rows.append([
            name, f"{line['drafted']:.1f}", f"{line['tau']:.2f}",
            f"{line['tokens_per_second']:.0f}", f"{speedup(generations, results[baseline]):.2f}x",
            *([texts_agree(generations, results[baseline])] if greedy else []),
        ])
    header = ["method", "drafted", "tau", "tokens/s", "speed-up"]
    print_table(header + (["same text"] if greedy else []), rows)


def why_not_faster(name, tau, drafted, plain_ms, draft_ms, verify_ms, measured):
    """One sentence on what holds a method back: what it would reach if one thing were free.

    tau: tokens a step, bonus included; drafted: draft tokens a step, so tau <= drafted + 1;
    plain_ms = c(1); draft_ms, verify_ms: of a whole step, in milliseconds; measured: speed-up.
    """
    step = draft_ms + verify_ms
    ideal = tau * plain_ms / step
    wishes = {
        f"drafting were free ({draft_ms:.2f} ms of a step of {step:.2f} ms)":
            tau * plain_ms / verify_ms,
        f"verification cost no more than a plain step ({verify_ms:.2f} against {plain_ms:.2f} ms)":
            tau * plain_ms / (draft_ms + plain_ms),
        f"every draft were accepted (tau is {tau:.2f} of {drafted + 1:g})":
            (drafted + 1) * plain_ms / step,
    }
    wish = max(wishes, key=wishes.get)
    return (f"Why is {name} not faster than {measured:.2f}x? Its costs and tau allow "
            f"{ideal:.2f}x; it would be {wishes[wish]:.2f}x if {wish}. That is the bottleneck.")
