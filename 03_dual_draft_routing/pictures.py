"""The lesson's pictures: two heads on one target, and whose guesses reached further.

Green is the verse head, pink the code head, orange the token that the target chose.
"""

import math

import matplotlib.pyplot as plt

from dual_draft_routing import HeadDrafter, RoutedDrafter, mean_confidence
from nanogpt.pictures.plots import (
    FAINT,
    GREY,
    HEADS,
    INK,
    MONO,
    NEWLINE,
    ORANGE,
    canvas,
    new_axes,
    tint,
    two_digits,
    visible,
)
from nanogpt.pictures.step import VisibleDice, instructive, remember, trace, watch
from nanogpt.sampling import Sampler
from train_heads import get_kinds
from tree_attention import speculate  # chapter 02

NAMES = "verse head", "code head"


def box(ax, x, y, text, color, start=None, gap=12):
    """A token, or what a head does with it, and an arrow from `start` to it.

    gap: points between the middle of a box and the arrow's end.
    """
    ax.text(x, y, text, ha="center", va="center", color=INK, zorder=3, **MONO, bbox={
        "boxstyle": "round,pad=0.3", "edgecolor": color, "facecolor": tint(color, 0.25)})
    if start:
        ax.annotate("", (x, y), start, zorder=1, arrowprops={
            "arrowstyle": "-|>", "color": color, "shrinkA": gap, "shrinkB": gap, "linewidth": 1.3})


def draw_heads(read, trees, scores, text_of_token):
    """Two draft heads on one target: what each starts from, and what it guesses -> the Axes.

    read: the text that the target has read, its end; trees, scores: see BothHeads.propose_both,
    chains of three guesses.
    """
    ax = new_axes(height=4)
    ax.text(0.6, 0.45, "the target read", color=FAINT)
    ax.text(2.65, 0, "the root: chosen,\nnot read yet", va="center", color=FAINT)
    for name, side, tree, logs, color in zip(NAMES, (1, -1), trees, scores, HEADS, strict=True):
        y, out = 1.75 * side, 2.75 * side  # the line of states; the guesses are further out
        texts = [visible(text_of_token(token)) for token in tree.tokens]
        ax.text(-0.25, out, name, va="center", color=INK, fontweight="bold")
        ax.text(0.6, 1.15 * side, "hidden states", va="center", color=FAINT)
        box(ax, 0.5, y, "state", color, (0.5, 0))
        for row, x in enumerate((2.3, 3.4, 4.5)):
            box(ax, x, y, f"reads {texts[row]}", color, (x - 1.1 if row else 0.5, y), gap=30)
            probability = two_digits(math.exp(logs[row + 1] - logs[row]))
            box(ax, x, out, f"{texts[row + 1]} {probability}", color, (x, y))
        box(ax, 2.3, 0, texts[0], ORANGE)
        box(ax, 2.3, y, f"reads {texts[0]}", color, (2.3, 0))
    box(ax, 0.5, 0, visible(read), GREY)
    return canvas(ax, "Each guess, and how sure the head is of it", (-0.35, 5), (-3.2, 3.2))


def draw_further(stories, shown, width=44):
    """Texts whose letters are tinted by the head that reached further below them -> the Axes.

    stories: {title: (texts of every token, {position: Proposal})}, see bench.propose_everywhere; a
    token without one is context; shown: a range of positions.
    """
    ax, y = new_axes(), 2.2
    for head, name in enumerate(NAMES):
        box(ax, 5 + 13 * head, 0.2, name, HEADS[head])
    ax.text(25, 0.2, "white: equally far", va="center", color=FAINT)
    for title, (texts, known) in stories.items():
        ax.text(-0.5, y, title, va="center", color=INK, fontweight="bold")
        x, y = 0, y + 1
        for place in shown:
            one, two = known[place].lengths[:2] if place in known else (0, 0)
            if one != two:
                ax.add_patch(plt.Rectangle((x - 0.5, y - 0.47), 0.98, 0.94, facecolor=tint(
                    HEADS[two > one], 0.5)))
            text = texts[place].replace("\n", NEWLINE).replace("\t", "\u21e5")
            ax.text(x, y, text, ha="center", va="center",
                    color=INK if place in known else FAINT, **MONO)
            x += 1
            if texts[place] == "\n" or x == width:
                x, y = 0, y + 1
        y += 1.6
    ax.figure.set_figheight(0.27 * y + 0.2)
    return canvas(ax, "After each character: whose guesses were right for longer?",
                  (-0.6, width - 0.4), (y - 1, -0.6))


def step_round(args, dataset, device, prompt):
    """An instructive round of the lesson's 0.8M target, both heads' trees and the choice -> its
    trace; see nanogpt/pictures/step.py."""
    kinds, target, heads = get_kinds(device, args.retrain)
    dice, tokenizer = VisibleDice(args.seed), kinds["both"].tokenizer
    prompt = tokenizer.encode(args.prompt)  # in the letters of this target
    drafter = RoutedDrafter([HeadDrafter(heads[kind], budget=6) for kind in ("verse", "code")])
    proposals = remember(drafter, "propose_both")
    steps = speculate(target, drafter, prompt, Sampler(1.0), dice)
    one = instructive(watch(steps, dice, prompt, args.steps, target.config.block_size,
                            lambda: (drafter.choices[-1], proposals[-1])), tokenizer.decode)
    chosen, (trees, scores) = one["note"]
    n, other = len(one["tokens"]), trees[1 - chosen]  # drawn behind the tree that was verified
    one["tokens"] = one["tokens"] + other.tokens.tolist()[1:]
    one["parents"] = one["parents"] + [p and p + n - 1 for p in other.parents.tolist()[1:]]
    logs = [*scores[chosen], *scores[1 - chosen][1:]]
    return trace(
        one, tokenizer.decode, tokenizer.vocab_size, chapter="03", title="Routing", rule="walk",
        drafted="heads", names=[f"the {name}" for name in NAMES],
        groups=[0, *[chosen + 1] * (n - 1), *[2 - chosen] * (len(other) - 1)],
        guesses=[None] + [math.exp(log - logs[parent]) for log, parent
                          in zip(logs[1:], one["parents"][1:], strict=True)],
        confidence=[mean_confidence(s) for s in scores],
        scores_are="c, the probability of the whole path",
        say_draft="The number at a node is its c, the probability that the head gives to the path.",
        subtitle="0.8M target that has learned verse and code, a head for each with 6 draft "
        "nodes, temperature 1",
        say_verify="The other head's tree is not among them.")
