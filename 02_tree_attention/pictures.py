"""What the lesson draws: what a rule accepts and emits.

The README's pictures of a tree and the round of the step page are made here, too.
"""

import torch

from bench import emitted
from chain_specdec import residual
from nanogpt.packing import precision_of
from nanogpt.pictures.plots import (
    BLUE,
    GREY,
    INK,
    MONO,
    ORANGE,
    SKY,
    draw_cache,
    draw_mask_beside_causal,
    draw_tree,
    new_axes,
    plain_frame,
    save,
)
from nanogpt.pictures.step import VisibleDice, instructive, trace, watch
from nanogpt.sampling import Sampler
from nanogpt.sizes import SIZES
from nanogpt.train import get_pair
from tree_attention import Tree, TreeDrafter, TreeGPT, speculate


def draw_parts(panels, tokens, labels):
    """Bars made of parts, ticks at distributions p and q, and columns of numbers -> the first Axes.

    panels: {title: (parts (n, V), {head of a column: (V,)})}, below each other; tokens: V texts;
    labels: {what a part is: its colour}.
    """
    axes, places = new_axes(height=0.5 + 1.55 * len(panels), rows=len(panels)), range(len(tokens))
    axes, said = axes if len(panels) > 1 else [axes], set()
    for ax, (title, (parts, known)) in zip(axes, panels.items(), strict=True):
        for part, end, (label, color) in zip(parts, parts.cumsum(0), labels.items(), strict=True):
            ax.barh(places, part, 0.62, end - part, color=color)
            widest = int(part.argmax())
            if part[widest] > 0.15 and label not in said:  # the first bar with room for its name
                ax.text(end[widest] - part[widest] / 2, widest, label, ha="center", va="center",
                        color="white" if color == BLUE else INK, zorder=4)
                said.add(label)
            elif len(panels) == 1:  # no bar has room: beside the shortest, behind its tick
                row = int(end.where(part > 0, 1).argmin())
                ax.text(known["p"][row] + 0.02, row, label, va="center", color=color)
        for x, (name, values) in zip((0.78, 0.92), known.items(), strict=False):
            color = SKY if name.endswith("q") else INK
            if name != "out":
                ax.vlines(values, [y - 0.42 for y in places], [y + 0.42 for y in places],
                          color=color, linewidth=3, zorder=3)
            digits = 1 if values.allclose(values.round(decimals=1)) else 3
            shown = [f"{value:.{digits}f}".lstrip("0") if value else "0" for value in values]
            for y, text in enumerate([name, *shown], -1):
                ax.text(x, y, text, ha="right", va="center", color=color, fontweight="bold")
        plain_frame(ax, title)
        ax.set_yticks(places, tokens, **MONO)
        ax.set(xlim=(0, 0.92), xticks=[0, 0.2, 0.4, 0.6])
        ax.invert_yaxis()
        ax.grid(visible=False)
    axes[-1].set_xlabel("probability", loc="left")
    return axes[0]


def draw_emitted(cases, p, q, tokens):
    """What a rule emits, accepted drafts and the target's own, against p -> Axes.

    cases: {title: (rule, are the children drawn)}; {} in a title: the share of accepted drafts.
    """
    found = {title: emitted(*case, p, q) for title, case in cases.items()}
    return draw_parts({title.format(f"{parts[0].sum():.2f}"): (parts, {"out": parts.sum(0), "p": p})
                       for title, parts in found.items()},
                      tokens, {"accepted": BLUE, "target's own": ORANGE})


def draw_turns(p, q, tokens):
    """What multi-round rejection does with the first child, and with the second -> Axes.

    A panel for each first child that can be rejected; p, q (V,).
    """
    def account(mark, p, q):
        accepted = torch.minimum(p, q)
        return (torch.stack([accepted, q - accepted, p - accepted]),
                {f"{mark}p": p, f"{mark}q": q})

    panels = {"The first child, drawn from q": account("", p, q)}
    for x in (q > p).nonzero().flatten().tolist():
        left = q.clone()
        left[x] = 0
        panels[f"{tokens[x]} rejected ({q[x] - p[x]:.1f} of all): second child"] = account(
            "new ", residual(p, q), left / left.sum())
    return draw_parts(panels, tokens, {"accepted": BLUE, "rejected": GREY, "still owed": ORANGE})


def save_examples(out):
    """The README's pictures of a tree 2-2 and its path 0, 2, 5: tree.png, mask.png, cache.png."""
    tree, path = Tree(range(7), [-1, 0, 0, 1, 1, 2, 2]), [0, 2, 5]
    names = [f"{row}:{letter}" for row, letter in enumerate("itlhcld")]
    ax = draw_tree(tree, [*names, "\u2423"].__getitem__, path, next_token=7)
    ax.set_title("A round writes three tokens: l, l, space")
    save(ax, out / "tree.png")
    save(draw_mask_beside_causal(tree.mask, names, 5)[0], out / "mask.png")
    ax = draw_cache(["..."] * 3, names, path)
    ax.set_title("The accepted path moves up, the rest is forgotten")
    save(ax, out / "cache.png")


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
