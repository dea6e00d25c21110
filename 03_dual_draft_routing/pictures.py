"""The lesson's pictures: whose guesses reached further, and one round of two heads on one target.

Green is the verse head, pink the code head.
"""

import math

import matplotlib.pyplot as plt

from dual_draft_routing import HeadDrafter, RoutedDrafter, mean_confidence
from nanogpt.pictures.plots import (
    FAINT,
    HEADS,
    INK,
    MONO,
    NEWLINE,
    canvas,
    new_axes,
    tint,
)
from nanogpt.pictures.step import VisibleDice, instructive, remember, trace, watch
from nanogpt.sampling import Sampler
from train_heads import get_kinds
from tree_attention import speculate  # chapter 02

NAMES = "the verse head", "the code head"


def draw_further(stories, shown, width=44):
    """Texts whose letters are tinted by the head that reached further below them -> the Axes.

    stories: {title: (texts of every token, {position: Proposal})}, see bench.propose_everywhere; a
    token without one is context; shown: a range of positions.
    """
    ax, y = new_axes(), 2.2
    for x, name, color in zip((0, 14), NAMES, HEADS, strict=True):
        ax.text(x, 0.2, name, va="center", color=INK, backgroundcolor=tint(color, 0.5))
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
            if text == NEWLINE or x >= width - 6 * (text == " "):
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
        drafted="heads", names=NAMES,
        groups=[0, *[chosen + 1] * (n - 1), *[2 - chosen] * (len(other) - 1)],
        guesses=[None] + [math.exp(log - logs[parent]) for log, parent
                          in zip(logs[1:], one["parents"][1:], strict=True)],
        confidence=[mean_confidence(s) for s in scores],
        scores_are="c, the probability of the whole path",
        say_draft="The number at a node is its c, the probability that the head gives to the path.",
        subtitle="0.8M target that has learned verse and code, a head for each with 6 draft "
        "nodes, temperature 1",
        say_verify="The other head's tree is not among them.")
