"""The lesson's pictures: which guess was right, what a rule emits, how far off a rule is, and what
more drafts are worth; and what the README shows of a tree.

Blue is an accepted draft, grey is rejected, orange what the target adds itself, black lines are
the target's probabilities; red stands for what is wrong. Drafters have hues of their own.
"""

from nanogpt.bench import summarize, tau_uncertainty
from nanogpt.packing import for_decoding, precision_of
from nanogpt.pictures.plots import (
    BLUE,
    FAINT,
    GREY,
    INK,
    LOOK,
    ORANGE,
    RED,
    SKY,
    draw_cache,
    draw_mask_beside_causal,
    draw_ranked,
    draw_tree,
    new_axes,
    plain_frame,
    save,
    tint,
)
from nanogpt.pictures.step import VisibleDice, instructive, trace, watch
from nanogpt.sampling import Sampler
from nanogpt.sizes import SIZES
from nanogpt.train import get_gpt
from tree_attention import Tree, TreeDrafter, TreeGPT, multi_round, speculate

DRAFTERS = ("#6A3D9A", FAINT)  # a hue for each; dashed is a chain, solid a tree


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
    plain_frame(ax, "Which guess of the drafter was the target's token?", None,
                "share of positions")
    ax.margins(y=0.15)
    return ax


def draw_emitted(rules, target_probs):
    """What rules emit, a panel each, beside the target's probabilities -> a list of Axes.

    rules: {name: table (2, V)}, how often a token comes out as an accepted draft, and as the
    target's own; target_probs: (V,).
    """
    axes = new_axes(1 + 3.1 * len(rules), 3.3, columns=len(rules))
    axes, tokens = (axes if len(rules) > 1 else [axes]), range(len(target_probs))
    for ax, (name, table) in zip(axes, rules.items(), strict=True):
        drafts, own = table.tolist()
        ax.bar(tokens, drafts, 0.6, color=BLUE, label="an accepted draft")
        ax.bar(tokens, own, 0.6, drafts, color=ORANGE, label="the target's own token")
        ax.hlines(target_probs.tolist(), [t - 0.38 for t in tokens], [t + 0.38 for t in tokens],
                  color=INK, linewidth=2.4, label="target p", zorder=3)
        ax.set_xticks(tokens, [f"token {t}" for t in tokens])
        ax.set_ylim(0, 1.05)
        plain_frame(ax, name, None, "probability" if ax is axes[0] else None)
    axes[0].figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center",
                          ncols=3, **LOOK)
    return axes


def draw_biases(biases):
    """How far a rule's text is from the target's, a bar each -> the Axes.

    biases: {name: total variation}.
    """
    ax = draw_ranked(biases, "distance from the target's distribution (total variation)",
                     [RED] * len(biases), title="One break at a time, then all three")
    ax.set_xlim(0, 1)
    return ax


def draw_fork(forks, temperature=1):
    """tau over the drafts: the chain of 4, and then either more depth or second guesses -> the Axes

    forks: {drafter: of bench.fork}; the bars are two standard errors.
    """
    ax = new_axes(7.6, 4.2)
    for (drafter, ways), hue in zip(forks.items(), DRAFTERS, strict=True):
        for (way, texts), dashes in zip(ways.items(), ("--", "-"), strict=True):
            ax.errorbar(list(texts), [summarize(one)["tau"] for one in texts.values()],
                        [tau_uncertainty(one) for one in texts.values()], color=hue,
                        linestyle=dashes, marker="o", markersize=5, linewidth=2, elinewidth=1,
                        capsize=3, label=f"{drafter}, {way}")
    ax.set_xscale("log", base=2)
    ax.set_xticks(list(texts), list(map(str, texts)))
    ax.minorticks_off()
    ax.set_ylim(bottom=1)  # a forward writes one token at least
    ax.legend(**LOOK, handlelength=4)  # dashes need room to be seen
    return plain_frame(ax, "Four drafts, then more of them: deeper, or wider?", "drafts",
                       f"tokens per forward, T = {temperature:g}")


def save_examples(out):
    """The README's pictures of a tree 2-2 and its path 0, 4, 5: tree.png, mask.png, cache.png."""
    tree = Tree(range(7), [-1, 0, 1, 1, 0, 4, 4])
    names, path = list(map(str, range(7))), [0, 4, 5]
    save(draw_tree(tree, str, path, next_token=7), out / "tree.png")
    save(draw_mask_beside_causal(tree.mask, names)[0], out / "mask.png")
    save(draw_cache(["..."] * 3, names, path), out / "cache.png")


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
