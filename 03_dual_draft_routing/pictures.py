"""The lesson's pictures: two heads on one target, and whose guesses reached further.

Green is head 1, pink head 2, orange the token that the target chose.
"""

import math

import matplotlib.pyplot as plt
import torch

from dual_draft_routing import HeadDrafter, RoutedDrafter, mean_confidence, route
from nanogpt.packing import precision_of
from nanogpt.pictures.plots import (
    FAINT,
    GREY,
    HEADS,
    INK,
    MONO,
    NEWLINE,
    ORANGE,
    draw_tree,
    new_axes,
    tint,
    two_digits,
    visible,
)
from nanogpt.pictures.step import VisibleDice, instructive, remember, trace, watch
from nanogpt.sampling import Sampler
from nanogpt.sizes import SIZES
from train_heads import get_target_and_heads
from tree_attention import (
    Tree,  # chapter 02
    speculate,  # chapter 02
)


def box(ax, x, y, text, color):
    """A token, or what a head does with it."""
    ax.text(x, y, text, ha="center", va="center", color=INK, zorder=3, **MONO, bbox={
        "boxstyle": "round,pad=0.3", "edgecolor": color, "facecolor": tint(color, 0.25)})


def arrow(ax, start, end, color, gap=12):
    """gap: points between the middle of a box and the arrow's end."""
    ax.annotate("", end, start, zorder=1, arrowprops={
        "arrowstyle": "-|>", "color": color, "shrinkA": gap, "shrinkB": gap, "linewidth": 1.3})


def draw_heads(read, root, chains):
    """Two draft heads on one target: what each starts from, and what it guesses -> the Axes.

    read: the texts of the last three tokens that the target has read; root: the text of the next.
    chains: for each head a list of three (text, probability), its first guesses.
    """
    ax = new_axes(height=4)
    ax.add_patch(plt.Rectangle((-0.25, -0.65), 1.75, 1.3, facecolor=tint(GREY, 0.2),
                               edgecolor=GREY))
    ax.text(0.62, 0.38, "the target read", ha="center", va="center", color=FAINT)
    ax.text(2.65, 0, "the root: chosen,\nnot read yet", va="center", color=FAINT)
    box(ax, 2.3, 0, visible(root), ORANGE)
    for place, text in enumerate(read):
        box(ax, 0.1 + 0.5 * place, -0.2, visible(text), GREY)
    for head, (chain, color) in enumerate(zip(chains, HEADS, strict=True)):
        side = 1 if head == 0 else -1
        y = 1.75 * side  # the line of states; the guesses are further out
        ax.text(-0.25, y, f"head {head + 1}", va="center", color=INK, fontweight="bold")
        ax.text(0.95, 1.05 * side, "hidden states", ha="right", va="center", color=FAINT)
        arrow(ax, (1.1, 0.65 * side), (1.1, y), INK, gap=10)
        arrow(ax, (2.3, 0), (2.3, y), ORANGE)
        box(ax, 1.1, y, "state", color)
        arrow(ax, (1.1, y), (2.3, y), color, gap=26)
        seen = root
        for x, (text, probability) in zip((2.3, 3.4, 4.5), chain, strict=True):
            box(ax, x, y, f"reads {visible(seen)}", color)
            box(ax, x, y + side, f"{visible(text)} {two_digits(probability)}", color)
            arrow(ax, (x, y), (x, y + side), color)
            if x < 4.5:
                arrow(ax, (x, y), (x + 1.1, y), color, gap=32)
            seen = text
    ax.set(xlim=(-0.35, 5), ylim=(-3.2, 3.2))
    ax.set_title("Each guess, and how sure the head is of it", color=INK, fontsize=12, loc="left")
    ax.axis("off")
    return ax


def draw_further(texts, known, shown, width=40):
    """A text whose letters are tinted by the head that reached further below them -> the Axes.

    texts: of every token; known: {position: Proposal}, see bench.propose_everywhere; a token
    without one is context; shown: a range of positions.
    """
    lines = math.ceil(len(shown) / width)
    ax = new_axes(height=0.29 * (lines + 1) + 0.55)
    for i, place in enumerate(shown):
        x, y = i % width, i // width
        one, two = known[place].lengths if place in known else (0, 0)
        if one != two:
            ax.add_patch(plt.Rectangle((x - 0.5, y - 0.45), 0.96, 0.9, edgecolor="none",
                                       facecolor=tint(HEADS[two > one], 0.65 - 0.25 * (two > one))))
        ax.text(x, y, texts[place].replace("\n", NEWLINE), ha="center", va="center",
                color=INK if place in known else FAINT, **MONO)
    ax.text(0, lines + 0.2, "green: head 1, pink: head 2, white: both equally far", va="center",
            color=FAINT)
    ax.set_title("After each character: who guessed further?", color=INK, fontsize=12, loc="left")
    ax.set(xlim=(-0.6, width - 0.4), ylim=(lines + 0.7, -0.6))
    ax.axis("off")
    return ax


def draw_rivals(trees, scores, text_of_token):
    """Two heads' trees below each other; each edge shows c of the node to which it leads.

    trees, scores: see BothHeads.propose_both -> the two Axes.
    """
    axes, means = new_axes(height=5.2, rows=2), [mean_confidence(logs) for logs in scores]
    for h, (ax, tree, logs) in enumerate(zip(axes, trees, scores, strict=True)):
        n = len(tree)
        c = torch.zeros(n, n)  # a row is a token of its own here: none comes twice
        c[tree.parents[1:], torch.arange(1, n)] = torch.tensor(logs[1:]).exp()
        texts = [text_of_token(token).replace("\n", NEWLINE) for token in tree.tokens.tolist()]
        draw_tree(Tree(range(n), tree.parents, c), texts.__getitem__,
                  colors=[ORANGE] + [HEADS[h]] * (n - 1), ax=ax)
        ax.texts[-1].set_text("on each edge: c of the node at its right end" if h else "")
        verified = ", so it is verified" if h == route(means) else ""
        ax.set_title(f"head {h + 1}: mean confidence {means[h]:.2f}{verified}", color=INK,
                     fontsize=12, loc="left")
    return axes


def step_round(args, dataset, device, prompt):
    """An instructive round, both heads' trees and the choice -> its trace; see
    nanogpt/pictures/step.py."""
    target, heads = get_target_and_heads(args, dataset, device)
    dice, decode = VisibleDice(args.seed), dataset.tokenizer.decode
    drafter = RoutedDrafter([HeadDrafter(head, budget=6) for head in heads])
    proposals = remember(drafter, "propose_both")
    steps = speculate(target, drafter, prompt, Sampler(1.0), dice)
    one = instructive(watch(steps, dice, prompt, args.steps, target.config.block_size,
                            lambda: (drafter.choices[-1], proposals[-1])), decode)
    chosen, (trees, scores) = one["note"]
    n, other = len(one["tokens"]), trees[1 - chosen]  # drawn behind the tree that was verified
    one["tokens"] = one["tokens"] + other.tokens.tolist()[1:]
    one["parents"] = one["parents"] + [p and p + n - 1 for p in other.parents.tolist()[1:]]
    logs, groups = [*scores[chosen], *scores[1 - chosen][1:]], [chosen + 1] * (n - 1)
    return trace(
        one, decode, dataset.vocab_size, chapter="03", title="Routing", rule="walk",
        drafted="heads", names=["head 1", "head 2"], groups=[0, *groups, *[2 - chosen] * 6],
        guesses=[None] + [math.exp(logs[row] - logs[one["parents"][row]])
                          for row in range(1, len(logs))],
        confidence=[mean_confidence(s) for s in scores],
        scores_are="c, the probability of the whole path",
        say_draft="The number at a node is its c, the probability that the head gives to the path.",
        subtitle=f"{SIZES[args.size].label} target in {precision_of(target)}, two heads with 6 "
        "draft nodes each, temperature 1",
        say_verify="The other head's tree is not among them.")
