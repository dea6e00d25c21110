"""What the lesson draws of multi-round rejection, and the round of the step page."""

import re
from pathlib import Path

import torch

from chain_specdec import residual
from nanogpt.cli import print_table
from nanogpt.does_it_pay import behind, speedups, table_of, tau_error
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
    tint,
    two_digits,
)
from nanogpt.pictures.step import VisibleDice, instructive, trace, watch
from nanogpt.run import trained_cast
from nanogpt.sampling import Sampler
from nanogpt.sizes import SIZES
from tree_attention import Tree
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


def equal_drafts():
    """Depth and second guesses at equal drafts, from RESULTS.md
    -> {"depth": {drafts: (tokens a round, speed-up)}, "second guesses": the same}."""
    text = Path(__file__).with_name("RESULTS.md").read_text(encoding="utf-8")
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
    head, *lines = [line for line in lines if line[0] in ("drafter", "57K GPT") and len(line) == 6]
    return {more: {int(drafts.split()[0]): tuple(map(float, re.findall(r"\d+\.\d+", cell)))
                   for drafts, cell in zip(head[2:], cells, strict=True)}
            for _, more, *cells in lines}


def draw_equal_drafts():
    """At equal drafts: the tokens a round of chains and trees, and their speed-ups. -> two Axes

    The fewest drafts are one chain, without a second guess.
    """
    found, axes = equal_drafts(), new_axes(height=5.4, rows=2)
    fewest, *more = found["depth"]
    for i, (ax, title) in enumerate(zip(axes, (
            "Tokens a round: the chain is ahead",
            "Speed-up: the tree is ahead, and four drafts beat both"), strict=True)):
        for kind, name, color, shift, drafts in (
                ("depth", "chain", FIRST, -0.2, [fewest, *more]),
                ("second guesses", "tree", SECOND, 0.2, more)):
            at = [list(found["depth"]).index(n) + shift * (n != fewest) for n in drafts]
            bars = ax.bar(at, [found[kind][n][i] for n in drafts], 0.38, color=tint(color, 0.6))
            ax.bar_label(bars, fmt="%.2f", padding=2)
            for x in at:
                ax.text(x, 0.25, name, ha="center", va="center")
        ax.set_xticks(range(1 + len(more)), [fewest, *more])
        ax.margins(y=0.18)
        plain_frame(ax, title, "drafts of a round", ("tokens a round", "times plain decoding")[i])
    axes[1].axhline(1, color=INK, linewidth=1.4)
    return axes


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
