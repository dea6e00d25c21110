"""The chapter's pictures: the trap, the trie of two heads' trees, a real round.

Green is head 1 and pink head 2, half and half what both guessed; blue is the accepted path, orange
the target's own token, red the mistake.
"""

import math

import matplotlib.pyplot as plt

from dual_draft_routing import HeadDrafter  # chapter 03
from merged_trees import TrieDrafter, distinct_prefixes, prefixes, trie_merge
from nanogpt.packing import precision_of
from nanogpt.pictures import plots
from nanogpt.pictures.step import VisibleDice, instructive, remember, trace, watch
from nanogpt.sampling import Sampler
from nanogpt.sizes import SIZES
from train_heads import get_target_and_heads  # chapter 03
from tree_attention import Tree, speculate  # chapter 02

NAMES = "sabcdefg"
# What each head guessed (a, ab, ac, f; a, ad, e, ag), with the probability of each path.
TREES = Tree([0, 1, 2, 3, 6], [-1, 0, 1, 1, 0]), Tree([0, 1, 4, 5, 7], [-1, 0, 1, 0, 1])
SCORES = [[math.log(value) for value in values]
          for values in ((1, 0.8, 0.4, 0.2, 0.1), (1, 0.7, 0.45, 0.25, 0.15))]


def owners(tree, trees):
    """Who guessed the prefix of each row: 1 or 2 for a head, 3 for both, 0 for the root's."""
    ours, theirs = map(distinct_prefixes, trees)
    return [(path in ours) + 2 * (path in theirs) for path in prefixes(tree)]


def draw_trap():
    """Two draws with p(a) = .5 as a square, its areas their probabilities: where a is written."""
    ax = plots.new_axes(height=4.6)
    ax.set_aspect("equal")
    for x, y, height, color, text in (
            (0, 0, 1, plots.BLUE, "a is written\n.50"),
            (0.5, 0.5, 0.5, plots.RED, "a is written:\na second chance\n.25"),
            (0.5, 0, 0.5, plots.GREY, "b or c is written\n.25")):
        ax.add_patch(plt.Rectangle((x, y), 0.5, height, edgecolor=plots.INK,
                                   facecolor=plots.tint(color, 0.4)))
        ax.text(x + 0.25, y + height / 2, text, ha="center", va="center", fontsize=13)
    for place, text in ((0.25, "a, .5"), (0.75, "b or c, .5")):
        ax.text(place, 1.02, f"1st draw: {text}", ha="center")
        ax.text(-0.02, 1 - place, f"2nd draw:\n{text}", ha="right", va="center")
    return plots.canvas(ax, "Both heads guess a: it is written with .50 + .25 = .75",
                        (-0.27, 1.01), (-0.01, 1.1))


def draw_trie(trees, scores, trie, trie_scores):
    """Two heads' trees, and below them what the trie keeps, with the probability of each path.

    Struck out: no row is left for it; half green, half pink: both guessed it -> the three Axes.
    """
    figure = plt.figure(figsize=(plots.WIDTH, 4.4), layout="constrained")
    axes = list(figure.subplot_mosaic("12;33", height_ratios=(3, 4)).values())
    titles = "head 1 guesses", "head 2 guesses", f"the trie of the best {len(trie) - 1}"
    groups = [1] * len(trees[0]), [2] * len(trees[1]), owners(trie, trees)
    for ax, tree, logs, group, title in zip(axes, [*trees, trie], [*scores, trie_scores], groups,
                                            titles, strict=True):
        paths, heights = prefixes(tree), plots.tree_rows(tree.children)
        texts = [f"{NAMES[path[-1]]}\u2009{plots.two_digits(math.exp(log))}" if path else "s"
                 for path, log in zip(paths, logs, strict=True)]
        colors = [plots.HEADS[who == 2] if path and path in prefixes(trie) else plots.GREY
                  for path, who in zip(paths, group, strict=True)]
        plots.draw_tree(Tree(list(range(len(tree))), tree.parents), texts.__getitem__, ax=ax,
                        colors=colors)
        for path, y in zip(paths, heights, strict=True):
            if path not in prefixes(trie):
                ax.plot([len(path) - 0.35, len(path) + 0.35], [y, y], color=plots.INK, zorder=4)
        for row in [row for row, who in enumerate(group) if who == 3]:  # its right half in pink
            x, y = len(paths[row]), heights[row]
            plots.draw_node(ax, (x, y), texts[row], plots.HEADS[1], False, False, False, True)
            ax.texts[-1].set(clip_on=True, clip_path=plt.Rectangle((x, y - 1), 1, 2,
                                                                   transform=ax.transData))
        ax.set_title(title, fontsize=12)
    return axes


def draw_row_for_row(taus):
    """tau of each method from 16 draft rows, dark, and from 32, light -> the Axes.

    taus: {"method, rows": tau}, those that draft with one head first, three of each.
    """
    ax = plots.new_axes(height=4.6)
    for i, name in enumerate(list(taus)[:6]):
        name = name.removesuffix(", 16")
        few, many = taus[f"{name}, 16"], taus[f"{name}, 32"]
        y, color = i + i // 3, plots.BLUE if i > 2 else plots.FAINT
        for tau, strength in ((many, 0.2), (few, 0.45)):
            ax.barh(y, tau, 0.8, color=plots.tint(color, strength))
        ax.text(0.06, y, name, va="center")
        ax.text(few, y, f"{few:.2f} ", va="center", ha="right")
        ax.text(many, y, f" {many:.2f}", va="center")
    for y, text in ((-0.8, "one head drafts"), (3.2, "both heads draft")):
        ax.text(0, y, text, va="center", fontweight="bold")
    ax.text(0, 7.2, "tokens a round; dark: 16 draft rows, light: 32", va="center",
            color=plots.FAINT)
    return plots.canvas(ax, "With equal rows, the trie makes the most of two heads", (0, 4.9),
                        (7.6, -1.3))


def step_round(args, dataset, device, prompt):
    """An instructive round of the trie of both heads' trees -> its trace; see
    nanogpt/pictures/step.py."""
    target, heads = get_target_and_heads(args, dataset, device)
    dice, decode = VisibleDice(args.seed), dataset.tokenizer.decode
    drafter = TrieDrafter([HeadDrafter(head, budget=8) for head in heads], 8)
    proposals = remember(drafter, "propose_both")
    steps = speculate(target, drafter, prompt, Sampler(1.0), dice)
    rounds = watch(steps, dice, prompt, args.steps, target.config.block_size,
                   lambda: proposals[-1])
    for one in rounds:
        tree, logs = trie_merge(*one["note"], 8)
        one["groups"] = owners(tree, one["note"][0])
        one["guesses"] = [None] + [math.exp(log - logs[parent]) for log, parent
                                   in zip(logs[1:], one["parents"][1:], strict=True)]

    def parting(one):  # first both heads had guessed what is accepted, then only one of them
        kept = {one["groups"][row] for row in one["kept"][1:]}
        return 3 in kept and len(kept) > 1 and {1, 2} <= set(one["groups"])

    one = instructive(list(filter(parting, rounds)) or rounds, decode)
    # Shared prefixes first, then each head's own: parents still come before their children.
    order = sorted(range(len(one["tokens"])), key=lambda row: (0, 2, 3, 1)[one["groups"][row]])
    for key in ("tokens", "p", "groups", "guesses", "parents"):
        one[key] = [one[key][row] for row in order]
    one["parents"] = [-1] + [order.index(row) for row in one["parents"][1:]]
    one["kept"] = [order.index(row) for row in one["kept"]]
    return trace(
        one, decode, dataset.vocab_size, chapter="04", title="Merged trees", rule="walk",
        drafted="heads", names=["head 1", "head 2", "both heads"], groups=one["groups"],
        guesses=one["guesses"], say_draft="At each edge stands the q of the surer head.",
        subtitle=f"{SIZES[args.size].label} target in {precision_of(target)}, the best 8 guesses "
        "of two heads, temperature 1",
        say_verify="What both heads guessed is read once: one draw will serve both.")
