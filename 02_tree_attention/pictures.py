"""The lesson's pictures: which guess was right, what a rule emits, how far off a rule is.

Blue is a draft that stays, grey is rejected, orange what the target adds itself, black lines are
the target's probabilities; red stands for what is wrong.
"""

from nanogpt.packing import for_decoding, precision_of
from nanogpt.pictures.plots import (
    BLUE,
    GREY,
    INK,
    ORANGE,
    RED,
    SKY,
    draw_ranked,
    new_axes,
    plain_frame,
    tint,
)
from nanogpt.pictures.step import VisibleDice, instructive, trace, watch
from nanogpt.sampling import Sampler
from nanogpt.sizes import SIZES
from nanogpt.train import get_gpt
from tree_attention import TreeDrafter, TreeGPT, multi_round, speculate


def draw_guesses(shares):
    """How often the drafter's first, second, ... guess was the target's token -> the Axes.

    shares: a list; the last one is the share of places where none of the guesses was right.
    """
    ax, n = new_axes(7, 2.9), len(shares) - 1
    names = ["first guess", "second", "third", "fourth", "fifth"][:n] + ["none of these"]
    colors = [BLUE] + [SKY] * (n - 1) + [GREY]
    ax.bar(names, shares, 0.65, color=[tint(color, 0.75) for color in colors])
    for place, share in enumerate(shares):
        ax.text(place, share, f"{100 * share:.0f} %", ha="center", va="bottom", color=INK)
    plain_frame(ax, "which guess of the drafter was the target's token?", None, "share of places")
    ax.margins(y=0.15)
    return ax


def draw_emitted(rules, target_probs):
    """What rules emit, a panel each, beside the target's probabilities -> a list of Axes.

    rules: {name: table (2, V)}, how often a token comes out as a draft that stays, and as the
    target's own; target_probs: (V,).
    """
    axes = new_axes(1 + 3.1 * len(rules), 3.3, columns=len(rules))
    axes, tokens = (axes if len(rules) > 1 else [axes]), range(len(target_probs))
    for ax, (name, table) in zip(axes, rules.items(), strict=True):
        drafts, own = table.tolist()
        ax.bar(tokens, drafts, 0.6, color=BLUE, label="a draft that stays")
        ax.bar(tokens, own, 0.6, drafts, color=ORANGE, label="the target's own token")
        ax.hlines(target_probs.tolist(), [t - 0.38 for t in tokens], [t + 0.38 for t in tokens],
                  color=INK, linewidth=2.4, label="target p", zorder=3)
        ax.set_xticks(tokens, [f"token {t}" for t in tokens])
        ax.set_ylim(0, 1.05)
        plain_frame(ax, name, None, "probability" if ax is axes[0] else None)
    axes[0].figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center",
                          ncols=3, frameon=False, fontsize=9, labelcolor=INK)
    return axes


def draw_biases(biases):
    """How far a rule's text is from the target's, a bar each -> the Axes.

    biases: {name: total variation}.
    """
    ax = draw_ranked(biases, "distance from the target's distribution (total variation)",
                     [RED] * len(biases))
    ax.set_xlim(0, 1)
    return ax


def step_round(args, dataset, device, prompt):
    """An instructive round of multi-round rejection -> its trace; see nanogpt/pictures/step.py."""
    target, small = (for_decoding(get_gpt(size, dataset, device, args.retrain), args.precision)
                     for size in (args.size, "draft"))
    sampler, dice, decode = Sampler(1.0), VisibleDice(args.seed), dataset.tokenizer.decode
    drafter = TreeDrafter(TreeGPT(small), (3, 2, 1), sampler, dice)
    steps = speculate(target, drafter, prompt, sampler, dice, multi_round)
    rounds = watch(steps, dice, prompt, args.steps, target.config.block_size)
    return trace(
        instructive(rounds, decode), decode, dataset.vocab_size, chapter="02", title="Draft trees",
        rule="coins", drafted="drawn", say_draft="No token comes twice after the same node.",
        subtitle=f"{SIZES[args.size].label} target in {precision_of(target)}, "
        f"{SIZES['draft'].label} drafter, a 3-2-1 tree, multi-round rejection, temperature 1",
        say_verify="Siblings do not see each other, and share a position.")
