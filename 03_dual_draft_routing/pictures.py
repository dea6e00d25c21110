"""The lesson's pictures: two heads on one target, and whose guesses reached further.

Green is the verse head (or head 1), pink the code head (or head 2), orange the token that the
target chose.
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
    canvas,
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
from tree_attention import Tree, speculate  # chapter 02

NAMES = "verse head", "code head"


def box(ax, x, y, text, color):
    """A token, or what a head does with it."""
    ax.text(x, y, text, ha="center", va="center", color=INK, zorder=3, **MONO, bbox={
        "boxstyle": "round,pad=0.3", "edgecolor": color, "facecolor": tint(color, 0.25)})


def arrow(ax, start, end, color, gap=12):
    """gap: points between the middle of a box and the arrow's end."""
    ax.annotate("", end, start, zorder=1, arrowprops={
        "arrowstyle": "-|>", "color": color, "shrinkA": gap, "shrinkB": gap, "linewidth": 1.3})


def draw_heads(read, trees, scores, text_of_token):
    """Two draft heads on one target: what each starts from, and what it guesses -> the Axes.

    read: the text that the target has read, its end; trees, scores: see BothHeads.propose_both,
    chains of three guesses.
    """
    ax = new_axes(height=4)
    box(ax, 0.5, 0, visible(read), GREY)
    ax.text(0.6, 0.45, "the target read", color=FAINT)
    box(ax, 2.3, 0, visible(text_of_token(trees[0].tokens[0])), ORANGE)
    ax.text(2.65, 0, "the root: chosen,\nnot read yet", va="center", color=FAINT)
    for head, (tree, logs, color) in enumerate(zip(trees, scores, HEADS, strict=True)):
        side = 1 if head == 0 else -1
        y = 1.75 * side  # the line of states; the guesses are further out
        ax.text(-0.25, y + side, NAMES[head], va="center", color=INK, fontweight="bold")
        ax.text(0.6, 1.15 * side, "hidden states", va="center", color=FAINT)
        arrow(ax, (0.5, 0), (0.5, y), INK)
        arrow(ax, (2.3, 0), (2.3, y), ORANGE)
        box(ax, 0.5, y, "state", color)
        texts = [visible(text_of_token(token)) for token in tree.tokens]
        for row, (x, before) in enumerate(((2.3, 0.5), (3.4, 2.3), (4.5, 3.4))):
            arrow(ax, (before, y), (x, y), color, gap=30)
            box(ax, x, y, f"reads {texts[row]}", color)
            probability = two_digits(math.exp(logs[row + 1] - logs[row]))
            box(ax, x, y + side, f"{texts[row + 1]} {probability}", color)
            arrow(ax, (x, y), (x, y + side), color)
    return canvas(ax, "Each guess, and how sure the head is of it", (-0.35, 5), (-3.2, 3.2))


def lines_of(texts, places, width):
    """The positions of a text line by line: a line ends with a line break, or is full."""
    lines = [[]]
    for place in places:
        lines[-1].append(place)
        if texts[place] == "\n" or len(lines[-1]) == width:
            lines.append([])
    return [line for line in lines if line]


def draw_further(stories, shown, width=44):
    """Texts whose letters are tinted by the head that reached further below them -> the Axes.

    stories: {title: (texts of every token, {position: Proposal})}, see bench.propose_everywhere; a
    token without one is context; shown: a range of positions.
    """
    wrapped = {title: lines_of(texts, shown, width) for title, (texts, _) in stories.items()}
    y, height = 2.2, 2 + sum(len(lines) + 1.6 for lines in wrapped.values())
    ax = new_axes(height=0.27 * height + 0.4)
    for head, name in enumerate(NAMES):
        box(ax, 5 + 13 * head, 0.2, name, HEADS[head])
    ax.text(25, 0.2, "white: equally far", va="center", color=FAINT)
    for title, (texts, known) in stories.items():
        ax.text(-0.5, y, title, va="center", color=INK, fontweight="bold")
        for line in wrapped[title]:
            y += 1
            for x, place in enumerate(line):
                one, two = known[place].lengths[:2] if place in known else (0, 0)
                if one != two:
                    ax.add_patch(plt.Rectangle((x - 0.5, y - 0.47), 0.98, 0.94, facecolor=tint(
                        HEADS[two > one], 0.5)))
                text = texts[place].replace("\n", NEWLINE).replace("\t", "\u21e5")
                ax.text(x, y, text, ha="center", va="center",
                        color=INK if place in known else FAINT, **MONO)
        y += 1.6
    return canvas(ax, "After each character: whose guesses were right for longer?",
                  (-0.6, width - 0.4), (height, -0.6))


def draw_rivals(trees, scores, text_of_token):
    """Two heads' trees below each other; each edge shows c of the node to which it leads.

    trees, scores: see BothHeads.propose_both -> the two Axes.
    """
    axes, means = new_axes(height=5.2, rows=2), [mean_confidence(logs) for logs in scores]
    for h, (ax, tree, logs) in enumerate(zip(axes, trees, scores, strict=True)):
        n = len(tree)
        c = torch.zeros(n, n)  # a row is a token of its own here: none comes twice
        c[tree.parents[1:], torch.arange(1, n)] = torch.tensor(logs[1:]).exp()
        texts = [text_of_token(token) for token in tree.tokens.tolist()]
        draw_tree(Tree(range(n), tree.parents, c), texts.__getitem__,
                  colors=[ORANGE] + [HEADS[h]] * (n - 1), ax=ax)
        ax.texts[-1].set_text("on each edge: c of the node at its right end" if h else "")
        verified = ", so it is verified" if h == route(means) else ""
        canvas(ax, f"{NAMES[h]}: mean confidence {means[h]:.2f}{verified}",
               ax.get_xlim(), ax.get_ylim())
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
