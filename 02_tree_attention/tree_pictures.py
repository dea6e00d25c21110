"""What the lesson draws of multi-round rejection, and the round of the step page."""

import torch

from chain_specdec import residual
from nanogpt.does_it_pay import speedups, table_of
from nanogpt.packing import precision_of
from nanogpt.pictures.maps import FAMILIES, SPARE
from nanogpt.pictures.plots import (
    BLUE,
    GREY,
    INK,
    MONO,
    ORANGE,
    canvas,
    draw_tree,
    new_axes,
    plain_frame,
    two_digits,
)
from nanogpt.pictures.step import VisibleDice, instructive, trace, watch
from nanogpt.sampling import Sampler
from nanogpt.sizes import SIZES
from nanogpt.train import get_pair
from tree_attention import Tree, TreeDrafter, TreeGPT, speculate
from tree_room import LOOPS

FIRST, SECOND = FAMILIES["57K GPT"], SPARE[1]  # the colours of first and of second guesses


def draw_turns(p, q, tokens):
    """What multi-round rejection does with the first child, and with the second.

    A panel for each first child that can be rejected; p, q (V,). A bar has three parts: blue and
    grey make up q, blue and orange p.
    """
    panels = {"The first child, drawn from q": (p, q)}
    for x in (q > p).nonzero().flatten().tolist():
        left = q.clone()
        left[x] = 0
        share = f"{float(q[x] - p[x]):.1g}".lstrip("0")
        panels[f"{tokens[x]} was rejected ({share} of all rounds): the second child"] = (
            residual(p, q), left / left.sum())
    axes = new_axes(height=0.3 + 1.45 * len(panels), rows=len(panels))
    for ax, (title, (new_p, new_q)) in zip(axes, panels.items(), strict=True):
        start, accepted = torch.zeros(len(p)), torch.minimum(new_p, new_q)
        for part, color, label in ((accepted, BLUE, "accepted"),
                                   (new_q - accepted, GREY, "rejected"),
                                   (new_p - accepted, ORANGE, "still owed")):
            shown = [f"{round(value, 3):g}".lstrip("0") for value in part.tolist()]
            if ax is axes[0]:
                shown[int(part.argmax())] += f" {label}"
            ax.bar_label(ax.barh(range(len(p)), part, 0.7, start, color=color), shown,
                         label_type="center", color="white" if color == BLUE else INK)
            start = start + part
        for y, token in enumerate(tokens):
            ax.text(-0.02, y, token, va="center", **MONO)
            if new_p[y] == new_q[y] == 0:
                ax.text(0, y, "gone", va="center")
        canvas(ax, title, (-0.02, 0.55), (len(p) - 0.5, -0.5))


def draw_rows(found, T=1):
    """Tokens a round by the number of drafts: chains, drawn trees, picked trees; at the points the
    speed-up. -> Axes

    found: a stored contest.
    """
    fast, lines, ax = speedups(found, T), table_of(found, T), new_axes(height=4)
    for shape, (color, loop) in {
            "chain": (FIRST, "chain of {}, 57K GPT"), "side shoots": (SECOND, LOOPS[2].name),
            "drawn tree": (SPARE[2], LOOPS[1].name), "picked tree": (SPARE[0], LOOPS[0].name),
            }.items():
        points = sorted((round(lines[name]["drafts"]), *fast[name]) for name in lines
                        if lines[name].get("loop") == loop)
        points = [point for point in points if point[0] in (4, 8, 10, 12, 14, 16, 30)]
        bare = {"chain": (12,), "side shoots": (10, 14)}.get(shape, ())  # no room for a number
        if not points:  # not in this file
            continue
        ax.plot([n for n, *_ in points], [tokens for _, tokens, *_ in points], "o-", color=color,
                markersize=5)
        for n, tokens, _, speed in points:
            if n not in bare:
                below = shape == "drawn tree" or n == 16
                ax.annotate(f"{speed:.2f}x", (n, tokens), (0, -16 if below else 7),
                            textcoords="offset points", color=color, ha="center")
        ax.annotate(shape, points[-1][:2], (10, 0), textcoords="offset points", color=color,
                    va="center")
    ax.set_xscale("log", base=2)
    ax.set(xlim=(3.4, 62), ylim=(1, 5))
    ax.set_xticks((4, 8, 16, 30), (4, 8, 16, 30))
    return plain_frame(ax, "Depth first, then side shoots",
                       f"drafts in a round, T = {T:g}; at the points the speed-up",
                       "tokens a round")


def draw_shape(shape, chances):
    """A tree of this shape; in every node the probability that the round gets there; a
    second guess has another colour than a first. -> Axes"""
    parents, reached, shapes, colors = [-1], [1.0], [shape], [GREY]
    for row, below in enumerate(shapes):  # the list grows while it is read
        for chance, child, color in zip(chances, below, (FIRST, SECOND), strict=False):
            parents.append(row)
            reached.append(reached[row] * chance)
            shapes.append(child)
            colors.append(color)
    return draw_tree(Tree(range(len(parents)), parents),
                     lambda row: two_digits(reached[row]), colors)


def step_round(args, dataset, device, prompt):
    """An instructive round of the walk -> its trace; see nanogpt/pictures/step.py."""
    target, small = get_pair(args, dataset, device)
    sampler, dice, decode = Sampler(1.0), VisibleDice(args.seed), dataset.tokenizer.decode
    steps = speculate(target, TreeDrafter(TreeGPT(small), (2, 2)), prompt, sampler, dice)
    rounds = watch(steps, dice, prompt, args.steps, target.config.block_size)
    return trace(
        instructive(rounds, decode), decode, dataset.vocab_size, chapter="02", title="Draft trees",
        rule="walk", drafted="top", say_draft="They are its two best guesses at each node.",
        subtitle=f"{SIZES[args.size].label} target in {precision_of(target)}, "
        f"{SIZES['draft'].label} drafter, a tree 2-2, the walk, temperature 1",
        say_verify="Siblings do not see each other, and share a position.")
