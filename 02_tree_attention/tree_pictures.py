"""What the lesson draws: multi-round rejection, what a guess brings; the round of the step page."""

import torch

from chain_specdec import residual
from nanogpt.does_it_pay import speedups
from nanogpt.packing import precision_of
from nanogpt.pictures.plots import (
    BLUE,
    FAINT,
    GREY,
    INK,
    MONO,
    ORANGE,
    canvas,
    new_axes,
    plain_frame,
)
from nanogpt.pictures.step import VisibleDice, instructive, trace, watch
from nanogpt.run import trained_cast
from nanogpt.sampling import Sampler
from nanogpt.sizes import SIZES
from tree_room import LOOPS, drawn_chances


def short(value):
    """0.3 -> '.3'; 0.15 -> '.15'."""
    return f"{round(value, 4):g}".lstrip("0")


def stack(ax, title, tokens, parts):
    """Bars whose parts, (values, color, what stands on each), lie end to end; a line a token."""
    start = torch.zeros(len(tokens))
    for values, color, shown in parts:
        bars = ax.barh(range(len(tokens)), values, 0.7, start, color=color, edgecolor="white")
        ax.bar_label(bars, shown, label_type="center", color="white" if color == BLUE else INK)
        start = start + values
    for y, token in enumerate(tokens):
        ax.text(-0.02, y, token, va="center", **MONO)
    canvas(ax, title, (-0.02, 0.56), (len(tokens) - 0.5, -0.5))


def draw_turns(p, q, tokens):
    """What multi-round rejection does with the first child, and with the second.

    A panel for each first child that can be rejected, A, B, ..., as wide as it is probable; p, q
    (V,). Blue is accepted, grey rejected, orange still owed. In the first panel the orange is cut
    by who inherits it; in the last one each part stands in its place, and paid.
    """
    def numbers(values, word=""):
        shown = [short(value) if value > 0.045 else "" for value in values.tolist()]
        shown[int(values.argmax())] += word
        return shown

    def often(values):
        return short(float(values.sum()))

    accepted, rejected = torch.minimum(p, q), (q - p).clamp(min=0)
    heirs = rejected.nonzero().flatten().tolist()
    first, *axes, total = new_axes(height=1.7 + 1.45 * (len(heirs) + 1), rows=len(heirs) + 2)
    above, paid = [], [(accepted, BLUE, numbers(accepted))]
    for name, x, ax in zip("ABCD", heirs, axes, strict=False):
        new_p, left = rejected[x] * residual(p, q), q.clone()
        left[x] = 0
        new_q = rejected[x] * left / left.sum()
        same = torch.minimum(new_p, new_q)
        above.append((new_p, ORANGE, [name * (value > 0) for value in new_p.tolist()]))
        paid += [(part, color, [name * (value > 0.03) for value in part.tolist()])
                 for part, color in ((same, BLUE), (new_p - same, ORANGE))]
        stack(ax, f"{name}: {tokens[x]} rejected ({often(rejected[x])}), second child "
              f"accepted in {often(same)} of the rounds", tokens, [
                  (part, color, numbers(part)) for part, color in (
                      (same, BLUE), (new_q - same, GREY), (new_p - same, ORANGE))])
        ax.text(0, x, "already rejected", va="center")
    stack(first, f"First child: accepted in {often(accepted)}; A and B inherit the orange debt",
          tokens, [(accepted, BLUE, numbers(accepted, " accepted")),
                   (rejected, GREY, numbers(rejected, " rejected")), *above])
    stack(total, "In the end A and B have paid it: all of p is written", tokens, paid)
    for y, value in enumerate(p.tolist()):
        total.text(value + 0.01, y, short(value), va="center")


def step_round(args, dataset, device, prompt):
    """An instructive round of the walk -> its trace; see nanogpt/pictures/step.py."""
    m, loop = trained_cast(args, dataset, device), LOOPS[0].but(form="eager")
    dice, decode = VisibleDice(args.seed), dataset.tokenizer.decode
    steps = loop.steps(m, (2, 2), prompt, Sampler(1.0), dice)
    rounds = watch(steps, dice, prompt, args.steps, m.target.config.block_size)
    return trace(
        instructive(rounds, decode), decode, dataset.vocab_size, chapter="02", title="Draft trees",
        rule="walk", drafted="top", say_draft="They are its two best guesses at each node.",
        subtitle=f"{SIZES[args.size].label} target in {precision_of(m.target)}, "
        f"{SIZES['draft'].label} drafter, a tree 2-2, the walk, temperature 1",
        say_verify="Siblings do not see each other, and share a position.")


def draw_by_temperature(target_logits, draft_logits):
    """How often is a draft accepted, at T = .2 to 1: one drawn child or one of two, by p/q and
    multi-round rejection; one of so many picked ones, by the walk. (n, V) each -> Axes"""
    temperatures, favourites = (0.2, 0.4, 0.6, 0.8, 1), draft_logits.argsort(-1, descending=True)
    lines = [[] for _ in range(5)]
    for T in temperatures:
        one, more = drawn_chances(target_logits, draft_logits, T)
        picked = Sampler(T)(target_logits).gather(1, favourites).mean(0).cumsum(0)
        for line, value in zip(lines, (one + more, one, picked[3], picked[1], picked[0]),
                               strict=True):
            line.append(float(value))
    ax = new_axes(height=3.1)
    for line, name, color, up in zip(
            lines, ("two drawn", "one drawn", "four picked", "two picked", "one picked"),
            (BLUE, INK, FAINT, BLUE, INK), (0, 0.02, -0.02, 0, 0), strict=True):
        drawn = "drawn" in name
        ax.plot(temperatures, line, "-" if drawn else "--", color=color,
                linewidth=1.2 if color == FAINT else 2.5)
        ax.text(1.02, line[-1] + up, name, color=color, va="center")
    ax.set(xlim=(0.18, 1.26), ylim=(0.4, 1), xticks=temperatures)
    return plain_frame(ax, "Row for row, a drawn guess is accepted more often",
                       "temperature", "a draft is accepted")


def draw_counts(found):
    """At T = 0, where nothing is drawn: 4, 8 and 16 guesses of the table of counts, as a tree of
    its likeliest and as a chain, from the same code. found: see load_contest -> Axes"""
    fast, ax = speedups(found, 0), new_axes(height=2.7)
    for side, color, name in (-0.2, BLUE, "{} nodes"), (0.2, GREY, "the heap's chain of {}"):
        found = [fast[f"05 4-gram, {name.format(n)}"][2] for n in (4, 8, 16)]
        bars = ax.barh([y + side for y in range(3)], found, 0.38, color=color)
        ax.bar_label(bars, [f"{speed:.2f}x" for speed in found], padding=4)
        ax.text(0.08, side, "tree" if color == BLUE else "chain", va="center",
                color="white" if color == BLUE else INK)
    for y, n in enumerate((4, 8, 16)):
        ax.text(-0.08, y, f"{n} guesses", ha="right", va="center")
    return canvas(ax, "At T = 0 a table's eight guesses pay best as a tree", (-0.75, 3.4),
                  (2.5, -0.5))
