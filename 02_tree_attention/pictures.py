"""What the lesson draws: what a rule accepts and emits, and what more drafts are worth.

The README's pictures of a tree and the round of the step page are made here, too.
"""

from nanogpt.bench import summarize, tau_uncertainty
from nanogpt.packing import for_decoding, precision_of
from nanogpt.pictures.plots import (
    FAINT,
    INK,
    LOOK,
    MONO,
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
from nanogpt.train import get_gpt
from tree_attention import Tree, TreeDrafter, TreeGPT, speculate

WAYS = ((FAINT, "--", 0.98), ("#6A3D9A", "-", 1.02))  # dashed is a chain, solid a tree


def draw_parts(panels, tokens, labels):
    """Bars made of parts, and a line where the target's probability lies -> a list of Axes.

    panels: {title: (parts (n, V), p (V,))}, below each other; tokens: V texts; labels: {what a
    part is: its colour}.
    """
    axes, places = new_axes(height=1 + 1.45 * len(panels), rows=len(panels)), range(len(tokens))
    for ax, (title, (parts, p)) in zip(axes, panels.items(), strict=True):
        for part, end, (label, color) in zip(parts, parts.cumsum(0), labels.items(), strict=True):
            ax.barh(places, part, 0.62, end - part, color=color, label=label)
        ax.vlines(p, [t - 0.42 for t in places], [t + 0.42 for t in places], color=INK,
                  linewidth=3, label="p", zorder=3)
        plain_frame(ax, title, "probability" if ax is axes[-1] else None)
        ax.set_yticks(places, tokens, **MONO)
        ax.set_xlim(0, 0.78)
        ax.invert_yaxis()
        ax.grid(visible=False)
    axes[0].figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center",
                          ncols=4, handlelength=1.2, columnspacing=1.2, **LOOK)
    return axes


def draw_fork(forks, temperature=1):
    """tau over the drafts: the chain of 4, and then either more depth or second guesses -> Axes

    forks: {title of a panel: of bench.fork}; the bars are two standard errors.
    """
    axes = new_axes(height=5.2, rows=len(forks))
    for ax, (title, ways) in zip(axes, forks.items(), strict=True):
        for (way, texts), (color, dashes, aside) in zip(ways.items(), WAYS, strict=True):
            ax.errorbar([drafts * aside for drafts in texts],  # side by side: both can be seen
                        [summarize(one)["tau"] for one in texts.values()],
                        [tau_uncertainty(one) for one in texts.values()], color=color,
                        linestyle=dashes, marker="o", linewidth=2, elinewidth=1, label=way)
        ax.set_xscale("log", base=2)
        ax.set_xticks(list(texts), list(map(str, texts)))
        ax.minorticks_off()
        plain_frame(ax, title, ylabel="tokens per forward")
        ax.set_ylim(0, max(some.get_ylim()[1] for some in axes))
    axes[0].set_ylim(axes[-1].get_ylim())
    axes[-1].set_xlabel(f"drafts in a round (log scale), T = {temperature:g}")
    axes[0].figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center",
                          ncols=2, **LOOK)
    return axes[0]


def save_examples(out):
    """The README's pictures of a tree 2-2 and its path 0, 2, 5: tree.png, mask.png, cache.png."""
    tree, path = Tree(range(7), [-1, 0, 0, 1, 1, 2, 2]), [0, 2, 5]
    names = [f"{row}:{letter}" for row, letter in enumerate("itlhcld")]
    ax = draw_tree(tree, [*names, "\u2423"].__getitem__, path, next_token=7)
    ax.set_title("A round writes three tokens: l, l, space")
    save(ax, out / "tree.png")
    save(draw_mask_beside_causal(tree.mask, names)[0], out / "mask.png")
    ax = draw_cache(["..."] * 3, names, path)
    ax.set_title("The accepted path moves up, the rest is forgotten")
    save(ax, out / "cache.png")


def step_round(args, dataset, device, prompt):
    """An instructive round of the walk -> its trace; see nanogpt/pictures/step.py."""
    target, small = (for_decoding(get_gpt(size, dataset, device, args.retrain), args.precision)
                     for size in (args.size, "draft"))
    sampler, dice, decode = Sampler(1.0), VisibleDice(args.seed), dataset.tokenizer.decode
    steps = speculate(target, TreeDrafter(TreeGPT(small), (2, 2)), prompt, sampler, dice)
    rounds = watch(steps, dice, prompt, args.steps, target.config.block_size)
    return trace(
        instructive(rounds, decode), decode, dataset.vocab_size, chapter="02", title="Draft trees",
        rule="walk", drafted="top", say_draft="They are its two best guesses at each node.",
        subtitle=f"{SIZES[args.size].label} target in {precision_of(target)}, "
        f"{SIZES['draft'].label} drafter, a tree 2-2, the walk, temperature 1",
        say_verify="Siblings do not see each other, and share a position.")
