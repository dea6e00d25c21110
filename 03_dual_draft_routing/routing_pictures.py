"""The lesson's pictures: what each router gains, and one round of two heads on one target."""

import math

from dual_draft_routing import HeadDrafter, RoutedDrafter, mean_confidence
from nanogpt.pictures.plots import (
    BLUE,
    GREY,
    HEADS,
    INK,
    ORANGE,
    RED,
    canvas,
    draw_cells,
    new_axes,
    plain_frame,
)
from nanogpt.pictures.step import VisibleDice, instructive, own_target, remember, trace, watch
from nanogpt.sampling import Sampler
from routing_room import LETTERS, PROMPT, STRETCHES, gain_on
from train_heads import get_kinds
from tree_attention import speculate  # chapter 02

NAMES = "the verse head", "the code head"

LINES = {"one head for both": BLUE, LETTERS: INK, "the surer head": ORANGE, PROMPT: RED}


def draw_wager(title, found, colors):
    """What each of these gains over the better head, with two standard errors; what the last one,
    the oracle, has more than the one before it is luck -> the Axes. found: of
    routing_room.replayed; colors: {name: its colour}."""
    ax, names = new_axes(height=3.6), [*colors]
    gains, errors = zip(*([100 * part for part in gain_on(found, name, "code head", "both")]
                          for name in names), strict=True)
    # The oracle's error, which is printed, would cross the word "luck".
    ax.bar_label(ax.barh(names, gains, 0.68, xerr=[*errors[:-1], 0], ecolor=INK,
                         color=[*colors.values()]), fmt=" %.0f")
    ax.bar_label(ax.barh(names[-1], gains[-1] - gains[-2], 0.68, gains[-2], color="#E0E0E0"),
                 ["luck"], label_type="center")
    ax.axvline(gains[-2], color=INK, linestyle=":", zorder=0)
    ax.text(gains[-2], -0.1, " can be known")
    ax.invert_yaxis()
    ax.set_xlabel("% more tokens a round than the better head")
    ax.figure.suptitle(title, x=0.02, ha="left", fontsize=12)
    return ax


def draw_found(title, found):
    """What each router loses to the one that knows the kind, against how long the text keeps to a
    kind, with two standard errors -> the Axes. found: of routing_room.replayed."""
    ax = new_axes(height=3.8)
    for i, (name, color) in enumerate(LINES.items()):
        xs = [x + 0.06 * (i - 2) for x in range(len(STRETCHES))]
        means, errors = zip(*([100 * one for one in gain_on(found, name, "knows the kind", part)]
                              for part in STRETCHES), strict=True)
        ax.errorbar(xs, means, errors, color=color, marker="o", elinewidth=0.8)
        ax.text(3.25, means[-1], name, color=color, va=("bottom", "top", "center")[min(i, 2)])
    ax.axhline(0, color=GREY)
    ax.set(xticks=range(len(STRETCHES)), xticklabels=STRETCHES, xlim=(-0.3, 4.8),
           yticks=(-15, -10, -5, 0), yticklabels=("-15", "-10", "-5", "told\nthe kind"))
    return plain_frame(ax, title, "letters until the kind changes", "% beside who is told")


def draw_choices(title, lines, routers):
    """A text's lines, once for each router: a letter has the colour of the head that is asked for
    it, green 1, pink 2 -> the Axes. routers: {name: heads, for each line a list}."""
    ax, y = new_axes(height=4.6), 0
    for name, heads in routers.items():
        ax.text(0, y + 0.4, name, va="center")
        for line, asked in zip(lines, heads, strict=True):
            y -= 1
            draw_cells(ax, y, line, [HEADS[head] for head in asked])
        y -= 1.2
    return canvas(ax, title, (-0.1, len(lines[0])), (y + 1, 1))


def step_round(args, dataset, device, prompt):
    """An instructive round of the lesson's 0.8M target, both heads' trees and the choice -> its
    trace; see nanogpt/pictures/step.py."""
    own_target(args)
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
