"""The lesson's pictures: what each router gains, and one round of two heads on one target."""

import math

from dual_draft_routing import HeadDrafter, RoutedDrafter, mean_confidence
from nanogpt.pictures.plots import BLUE, GREY, INK, ORANGE, RED, new_axes, plain_frame
from nanogpt.pictures.step import VisibleDice, instructive, own_target, remember, trace, watch
from nanogpt.sampling import Sampler
from routing_room import COUNT, LETTERS, PROMPT, STRETCHES, gain_on
from train_heads import get_kinds
from tree_attention import speculate  # chapter 02

NAMES = "the verse head", "the code head"

LINES = {  # of draw_found: {method: its colour, and where its name stands}
    "one head for both": (BLUE, (0.08, 0.5)), LETTERS: (INK, (1.04, -1.9)),
    COUNT: (INK, (2.15, -4.7)), "the surer head": (ORANGE, (1.15, -8.1)),
    PROMPT: (RED, (1.15, -14.9))}


def draw_found(found, baseline="knows the kind"):
    """What each router gains over another, against how long the text keeps to a kind, with two
    standard errors -> the Axes. found: of routing_room.replayed."""
    ax, parts = new_axes(height=4.6), (*STRETCHES, "both")
    for i, (name, (color, place)) in enumerate(LINES.items()):
        gains = [gain_on(found, name, baseline, part) for part in parts]
        xs = [x + 0.05 * (i - 2) for x in range(len(parts))]
        means, errors = ([100 * one[which] for one in gains] for which in (0, 1))
        ax.errorbar(xs, means, errors, color=color, marker="o", markersize=4, elinewidth=0.8,
                    linestyle="none")
        # A kind that stays is no further length: no line leads there.
        ax.plot(xs[:-1], means[:-1], color=color, linestyle="--" if name == COUNT else "-")
        ax.text(*place, name.removesuffix(" for both"), color=color, fontsize="small")
    ax.axhline(0, color=GREY, linewidth=1.4)
    ax.text(4.35, 1.9, PROMPT, color=RED, fontsize="small", ha="right")
    ax.set(xticks=range(len(parts)), xticklabels=[*STRETCHES, "it stays"],
           yticks=range(-15, 1, 5), yticklabels=range(15, -1, -5))
    return plain_frame(ax, "Letters tell the kind, but late",
                       "tokens until the kind changes",
                       f"% behind a router that {baseline}")


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
