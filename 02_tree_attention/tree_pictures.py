"""What the lesson draws of multi-round rejection, and the round of the step page."""

import torch

from chain_specdec import residual
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
from tree_attention import best_shape, expected_by_shape
from tree_room import CHANCES, LEVEL, LOOPS


def draw_turns(p, q, tokens):
    """What multi-round rejection does with the first child, and with the second.

    A panel for each first child that can be rejected, as wide as it is probable; p, q (V,). A bar
    has three parts: blue and grey make up q, blue and orange p.
    """
    panels = {"First child: as much is owed (orange) as rejected (grey)": (p, q)}
    for x in (q > p).nonzero().flatten().tolist():
        left, name, often = q.clone(), tokens[x], float(q[x] - p[x])
        left[x] = 0
        says = f"{often:.1f}".lstrip("0")
        title = f"{name} was rejected ({says} of the rounds): p is the orange, q has no {name}"
        panels[title] = often * residual(p, q), often * left / left.sum()
    axes = new_axes(height=0.3 + 1.45 * len(panels), rows=len(panels))
    for ax, (title, (new_p, new_q)) in zip(axes, panels.items(), strict=True):
        start, accepted = torch.zeros(len(p)), torch.minimum(new_p, new_q)
        narrow = [[] for _ in tokens]  # numbers that find no room in their bars
        for part, color, label in ((accepted, BLUE, "accepted"),
                                   (new_q - accepted, GREY, "rejected"),
                                   (new_p - accepted, ORANGE, "still owed")):
            shown = [f"{round(value, 3):g}".lstrip("0") if value > 0.045 else ""
                     for value in part.tolist()]
            shown[int(part.argmax())] += f" {label}" * (float(part.max()) > 0.16)
            ax.bar_label(ax.barh(range(len(p)), part, 0.7, start, color=color), shown,
                         label_type="center", color="white" if color == BLUE else INK)
            for numbers, value in zip(narrow, part.tolist(), strict=True):
                numbers += [f"{value:.4f}".lstrip("0")] * (0.001 < value <= 0.045)
            start = start + part
        for y, token in enumerate(tokens):
            ax.text(-0.02, y, token, va="center", **MONO)
            ax.text(float(start[y]) + 0.01, y, " and ".join(narrow[y]), va="center")
            if new_p[y] == new_q[y] == 0:
                ax.text(0, y, "already rejected", va="center")
        canvas(ax, title, (-0.02, 0.55), (len(p) - 0.5, -0.5))


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


def best_speeds(nodes, chances=CHANCES, level=LEVEL):
    """What the best chain and the best tree bring, at each price of a node -> two lists of
    (speed-up, drafts, levels).

    A round costs 1 plain step, `level` for each of its levels, and a node's price for each draft.
    nodes: prices in plain steps; chances: see tree_attention.expected_by_shape.
    """
    sizes = [(levels, n) for levels in range(1, 13) for n in range(levels, 49)]
    lists = []
    for kind in (chances[:1], chances):
        tokens = {(levels, n): expected_by_shape(best_shape(n, kind, levels), kind)
                  for levels, n in sizes}
        lists.append([max((tokens[levels, n] / (1 + level * levels + node * n), n, levels)
                          for levels, n in sizes) for node in nodes])
    return lists


def draw_cheap_nodes(machines):
    """The best chain and the best tree over the price of a node. machines: {what the picture says:
    what a node costs there, (low, high)}. -> Axes"""
    nodes = [10 ** (-3 + i / 20) for i in range(41)]
    ax, (chains, trees) = new_axes(height=3.2), best_speeds(nodes)
    for line, color, name, side in ((trees, BLUE, "best tree, computed", "bottom"),
                                    (chains, INK, "best chain, computed", "top")):
        ax.semilogx(nodes, [speed for speed, *_ in line], color=color, linewidth=2.5)
        ax.text(0.0022, line[0][0] - (side == "top") * 0.09, name, color=color, va=side)
    for (says, (low, high)), left in zip(machines.items(), (True, False), strict=True):
        ax.axvspan(low, high, color=GREY, alpha=0.4, linewidth=0)
        ax.text(high * 1.05 if left else low * 0.95, 1.35 if left else 1.1, says, color=FAINT,
                ha="left" if left else "right")
    ax.set(xlim=(nodes[0], nodes[-1]), ylim=(1, 2.9), xticks=[0.001, 0.01, 0.1],
           xticklabels=["1/1000", "1/100", "1/10"])
    return plain_frame(ax, "Trees live on cheap nodes", "price of a node, in plain steps",
                       "times as fast as plain")
