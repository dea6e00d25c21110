"""The lesson's pictures: two heads on one target, and whose guesses reached further.

Green is head 1, pink head 2, orange the token that the target chose.
"""

import math

import matplotlib.pyplot as plt
import torch

from dual_draft_routing import HeadDrafter, RoutedDrafter, mean_confidence
from nanogpt.packing import precision_of
from nanogpt.pictures.plots import (
    FAINT,
    GREY,
    HEADS,
    INK,
    LOOK,
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


def box(ax, place, text, color, strength=0.3):
    """A token or a state in its box."""
    ax.text(*place, text, ha="center", va="center", fontsize=10, color=INK, zorder=3,
            family="DejaVu Sans Mono", parse_math=False,
            bbox={"boxstyle": "round,pad=0.35", "edgecolor": color,
                  "facecolor": tint(color, strength)})


def arrow(ax, start, end, color, gap=11):
    """gap: points between the middle of a box and the arrow's end."""
    ax.annotate("", end, start, zorder=1, arrowprops={
        "arrowstyle": "-|>", "color": color, "shrinkA": gap, "shrinkB": gap, "linewidth": 1.3})


def draw_heads(read, root, chains, layers, ax=None):
    """Two draft heads on one target: what each starts from, and what it guesses.

    read: the texts of the last tokens that the target has read; root: the text of the next one.
    chains: for each head a list of (text, probability), its first guesses; layers: the hidden
    states that the heads look at. -> the Axes
    """
    ax = ax or new_axes(10.5, 4)
    last, first = len(read) - 1, len(read) + 1.2
    ax.add_patch(plt.Rectangle((-0.6, -0.75), len(read) + 0.2, 1.5, facecolor=tint(GREY, 0.2),
                               edgecolor=GREY))
    ax.text(last / 2, 0.5, "read by the target", ha="center", fontsize=9, color=FAINT)
    for place, text in enumerate(read):
        box(ax, (place, 0), visible(text), GREY)
    box(ax, (len(read) + 0.2, 0), visible(root), ORANGE)
    ax.text(len(read) + 0.55, 0, "root: chosen,\nnot read yet", va="center", fontsize=8.5,
            color=FAINT)
    for head, (chain, color) in enumerate(zip(chains, HEADS, strict=True)):
        y = 1.9 if head == 0 else -1.9  # the line of states; the guesses stand further out
        out = y + (0.95 if head == 0 else -0.95)
        box(ax, (last, y), "state", color)
        ax.text(last - 0.5, y, f"head {head + 1}", ha="right", va="center", fontsize=11,
                color=INK, fontweight="bold")
        arrow(ax, (last, 0.75 if head == 0 else -0.75), (last, y), INK)
        ax.text(last - 0.1, y * 0.67, f"hidden states of layers {layers[0]} and {layers[1]}",
                ha="right", va="center", fontsize=8.5, color=FAINT)
        arrow(ax, (last, y), (first, y), color, gap=33)
        arrow(ax, (len(read) + 0.2, 0), (first, y), ORANGE)
        seen = root
        for step, (text, probability) in enumerate(chain):
            x = first + 1.7 * step
            box(ax, (x, y), f"reads {visible(seen)}", color)
            box(ax, (x, out), f"{visible(text)} {two_digits(probability)}", color, 0.08)
            arrow(ax, (x, y), (x, out), color)
            if step + 1 < len(chain):
                arrow(ax, (x, y), (x + 1.7, y), color, gap=33)
            seen = text
        ax.text(first + 1.7 * (len(chain) - 1) + 0.6, out, "its guess, and\nhow sure it is",
                va="center", fontsize=8.5, color=FAINT)
    ax.set_xlim(-1.2, first + 1.7 * max(map(len, chains)) + 0.5)
    ax.set_ylim(-3.4, 3.4)
    ax.axis("off")
    return ax


def draw_further(texts, known, width=64, ax=None):
    """A text whose letters are tinted by the head that reached further below them.

    texts: of every token; known: {position: Proposal}, see bench.propose_everywhere; a token
    without one is context. Returns the Axes.
    """
    ax = ax or new_axes(0.165 * width, 0.27 * math.ceil(len(texts) / width) + 0.5)
    for place, text in enumerate(texts):
        x, y = place % width, place // width
        if place in known:
            one, two = known[place].lengths
            color = HEADS[0] if one > two else HEADS[1] if two > one else GREY
            ax.add_patch(plt.Rectangle((x - 0.5, y - 0.45), 0.96, 0.9, edgecolor="none",
                                       facecolor=tint(color, 0.12 if one == two else 0.6)))
        ax.text(x, y, text.replace("\n", NEWLINE), ha="center", va="center", fontsize=9.5,
                family="DejaVu Sans Mono", parse_math=False,
                color=INK if place in known else FAINT)
    patches = [plt.Rectangle((0, 0), 1, 1, facecolor=tint(color, strength),
                             edgecolor=tint(GREY, 0.5))
               for color, strength in [(HEADS[0], 0.6), (HEADS[1], 0.6), (GREY, 0.12)]]
    ax.figure.legend(patches, ["head 1 reaches further", "head 2 reaches further", "equally far"],
                     loc="outside lower center", ncols=3, **LOOK)
    ax.set_xlim(-0.8, width)
    ax.set_ylim(math.ceil(len(texts) / width) - 0.4, -0.6)
    ax.axis("off")
    return ax


def draw_rivals(trees, scores, text_of_token, titles):
    """Two heads' trees side by side; each edge carries c of the node to which it leads.

    trees, scores: see BothHeads.propose_both -> the two Axes.
    """
    axes = new_axes(12, 3, columns=2)
    for ax, tree, logs, title, color in zip(axes, trees, scores, titles, HEADS, strict=True):
        n = len(tree)
        confidences = torch.zeros(n, n)  # a row is a token of its own here: none comes twice
        for row, parent in enumerate(tree.parents.tolist()[1:], 1):
            confidences[parent, row] = math.exp(logs[row])
        texts = [text_of_token(token).replace("\n", NEWLINE) for token in tree.tokens.tolist()]
        draw_tree(Tree(range(n), tree.parents, confidences), texts.__getitem__,
                  colors=[ORANGE] + [color] * (n - 1), ax=ax)
        ax.texts[-1].set_text("on each edge: c, the head's probability of the path up to there")
        ax.set_title(title, color=INK, fontsize=11)
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
        say_draft="At each edge stands its q.",
        subtitle=f"{SIZES[args.size].label} target in {precision_of(target)}, two heads with 6 "
        "draft nodes each, temperature 1",
        say_verify="The other head's tree is not among them.")
