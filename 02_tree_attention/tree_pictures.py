"""What the lesson draws: multi-round rejection, what a guess brings; the round of the step page."""

import torch

from chain_specdec import residual
from nanogpt.does_it_pay import speedups
from nanogpt.packing import precision_of
from nanogpt.pictures.maps import draw_lines
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


def draw_turns(p, q, tokens):
    """What multi-round rejection does with the first child, and with the second.

    A panel for each first child that can be rejected, as wide as it is probable; p, q (V,). A bar
    has three parts: blue and grey make up q, blue and orange p. The last panel has all that is
    written: p again.
    """
    panels = {"The first child": (p, q)}
    for x in (q > p).nonzero().flatten().tolist():
        left, often = q.clone(), float(q[x] - p[x])
        left[x] = 0
        panels[f"{tokens[x]} rejected ({short(often)}), second child"] = (
            often * residual(p, q), often * left / left.sum())
    *axes, total = new_axes(height=1.75 + 1.45 * len(panels), rows=len(panels) + 1)
    blue, orange = [], []
    for ax, (title, (new_p, new_q)) in zip(axes, panels.items(), strict=True):
        start, accepted = torch.zeros(len(p)), torch.minimum(new_p, new_q)
        blue.append(accepted)
        orange.append(new_p - accepted)
        title += f": accepted in {short(float(accepted.sum()))} of the rounds"
        for part, color, label in ((accepted, BLUE, "accepted"),
                                   (new_q - accepted, GREY, "rejected"),
                                   (orange[-1], ORANGE, "still owed")):
            shown = [short(value) if value > 0.045 else "" for value in part.tolist()]
            shown[int(part.argmax())] += f" {label}" * (float(part.max()) > 0.16)
            ax.bar_label(ax.barh(range(len(p)), part, 0.7, start, color=color), shown,
                         label_type="center", color="white" if color == BLUE else INK)
            start = start + part
        for y, token in enumerate(tokens):
            ax.text(-0.02, y, token, va="center", **MONO)
            if new_p[y] == new_q[y] == 0:
                ax.text(0, y, "already rejected", va="center")
            if 0 < float(accepted[y]) <= 0.045:  # too narrow for numbers in the bar
                ax.text(float(start[y]) + 0.01, y, va="center",
                        s=f"{short(float(accepted[y]))} + {short(float(orange[-1][y]))}")
        canvas(ax, title, (-0.02, 0.55), (len(p) - 0.5, -0.5))
    start = torch.zeros(len(p))
    for color, parts in (BLUE, blue), (ORANGE, orange[1:]):  # the first orange was shared out
        for part in parts:
            bars = total.barh(range(len(p)), part, 0.7, start, color=color, edgecolor="white")
            start = start + part
    total.bar_label(bars, map(short, start.tolist()), padding=5)
    for y, token in enumerate(tokens):
        total.text(-0.02, y, token, va="center", **MONO)
    canvas(total, "Their sum, all blue and the second children's orange, is p", (-0.02, 0.55),
           (len(p) - 0.5, -0.5))


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
    for line, name in zip(lines, ("two drawn", "one drawn =", "four picked", "two picked",
                                  "one picked"), strict=True):
        drawn = "drawn" in name
        up = {"one drawn =": 0.02, "four picked": -0.02}.get(name, 0)
        color = INK if drawn else FAINT
        ax.plot(temperatures, line, color=color, linewidth=2.5, linestyle="-" if drawn else "--")
        ax.text(1.02, line[-1] + up, name, color=color, va="center")
    ax.plot(1, lines[1][-1], "o", color=INK, markersize=7)
    ax.set(xlim=(0.18, 1.28), ylim=(0.4, 1), xticks=temperatures)
    return plain_frame(ax, "The warmer the text, the less a favourite is worth",
                       "temperature", "a draft is accepted")


def draw_counts(found):
    """At T = 0, where nothing is drawn: 4, 8 and 16 guesses of the table of counts on the map, as a
    tree of its likeliest and as a chain, from the same code. found: see load_contest -> Axes"""
    fast = speedups(found, 0)

    def sizes(name):
        return {str(n): fast[f"05 4-gram, {name.format(n)}"][:2] for n in (4, 8, 16)}

    return draw_lines("T = 0, a table's 4, 8 or 16 guesses: the tree writes more", {
        "tree": (BLUE, "o-", 1, sizes("{} nodes")),
        "chain": (INK, "o--", -1, sizes("the heap's chain of {}"))},
        (0, 2.6, 0, 5.8), rays=(1, 2, 3))
