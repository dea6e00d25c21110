"""What the lesson draws of multi-round rejection, and the round of the step page."""

import torch

from chain_specdec import residual
from nanogpt.cli import print_table
from nanogpt.does_it_pay import behind, speedups, table_of, tau_error
from nanogpt.packing import precision_of
from nanogpt.pictures.maps import FAMILIES, SPARE, draw_ground
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
    panels = {"The first child. Blue and grey: q, blue and orange: p": (p, q)}
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
                ax.text(0, y, "already rejected", va="center")
        canvas(ax, title, (-0.02, 0.55), (len(p) - 0.5, -0.5))


def draw_prices(found, T=1):
    """A round's price and tokens: chapter 01's chains, and the shapes of this chapter. -> Axes

    found: a stored contest. At a point stands the number of drafts; a bar is two standard errors.
    """
    fast, lines, ax = speedups(found, T), table_of(found, T), new_axes(height=5)
    chain = f"02 {LOOPS[1].title((1,) * 4)}"  # in this chapter's code; all shapes begin with it
    for label, (color, loop, end, shift) in {  # at which end its label stands, and how far off
            "chain": (FIRST, "chain of {}, 57K GPT", 0, (-36, -16)),
            "side shoots": (SECOND, LOOPS[2].name, -1, (8, -3)),
            "tree": (SPARE[2], LOOPS[1].name, -1, (24, -14))}.items():
        names = {name for name in lines if lines[name].get("loop") == loop}
        names = sorted(names | ({chain} if label == "side shoots" else set()),
                       key=lambda name: lines[name]["drafts"])
        y, x, _ = zip(*map(fast.get, names), strict=True)
        ax.errorbar(x, y, [tau_error(found, T, name) for name in names], fmt="o-", color=color,
                    markersize=5, ecolor=(color, 0.35))
        right = label != "chain"  # its numbers stand at the right, and below
        for name, at in zip(names, zip(x, y, strict=True), strict=True):
            ax.annotate(f"{lines[name]['drafts']:.0f}", at, (3, -14) if right else (-3, 6),
                        textcoords="offset points", color=color, ha="left" if right else "right")
        ax.annotate(label, (x[end], y[end]), shift, textcoords="offset points", color=color)
    draw_ground(ax, 6.6, 5.2, fast[chain][2])  # its ray is dashed
    return plain_frame(ax, "Second guesses add tokens,\nand cost more than they add",
                       f"price of a round, in plain steps, T = {T:g}", "tokens a round")


def print_second_guesses(files, T=1):
    """What a token takes more than with the chain of 4 in this chapter's code, text by text.

    files: {name: a stored contest}, all with temperature T and the same texts.
    """
    chain, rows = f"02 {LOOPS[1].title((1,) * 4)}", []
    found = next(iter(files.values()))
    for name, line in table_of(found, T).items():
        if line.get("loop") in (LOOPS[1].name, LOOPS[2].name) and name != chain:
            more = [value for file in files.values() for value in behind(file, T, chain)[name]]
            rows.append([name[3:].removesuffix(", 57K GPT"), *(f"{value:.2f}" for value in (
                speedups(found, T)[name][0], tau_error(found, T, name), *more))])
    print_table(["shape", "tokens", "+-", *(head for name in files
                                            for head in (f"ms more, {name}", "+-"))], rows)


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
