"""The chapter's pictures: the trie of two heads' trees, the union side by side, a real round.

Green is head 1 and pink head 2, dark what both guessed; blue is the accepted path, orange the
target's own token.
"""

import math

import matplotlib.pyplot as plt

from dual_draft_routing import HeadDrafter  # chapter 03
from merged_trees import TrieDrafter, distinct_prefixes, prefixes, trie_merge
from nanogpt.bench import two_standard_errors
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


def shades(groups):
    """The colours of groups of `owners`."""
    return [(plots.INK, *plots.HEADS, plots.INK)[group] for group in groups]


def draw_trie(trees, scores, trie, trie_scores):
    """Two heads' trees, and below them what the trie keeps, with the probability of each path.
    """
    figure = plt.figure(figsize=(plots.WIDTH, 4.2), layout="constrained")
    axes = figure.subplot_mosaic("12;33", height_ratios=(3, 4))
    groups = [0] + [1] * 9, [0] + [2] * 9, owners(trie, trees)
    titles = "head 1 guesses", "head 2 guesses", f"the trie of the best {len(trie) - 1}"
    for ax, tree, logs, group, title in zip(axes.values(), [*trees, trie], [*scores, trie_scores],
                                            groups, titles, strict=True):
        texts = [f"{NAMES[int(token)]}\u2009{plots.two_digits(math.exp(log))}" if row else "s"
                 for row, (token, log) in enumerate(zip(tree.tokens, logs, strict=True))]
        plots.draw_tree(Tree(list(range(len(tree))), tree.parents), texts.__getitem__, ax=ax,
                        colors=shades(group))
        ax.set_title(title, color=plots.INK, fontsize=12)
    return list(axes.values())


def draw_union_and_mask(union, n_first):
    """Both trees side by side below one root, each row with its number; who may attend to whom."""
    above, below = plots.new_axes(height=6.4, rows=2)
    labels = [f"{row}:{NAMES[int(token)]}" for row, token in enumerate(union.tokens)]
    groups = [0] + [1 + (row > n_first) for row in range(1, len(union))]
    plots.draw_tree(Tree(list(range(len(union))), union.parents), labels.__getitem__, ax=above,
                    colors=shades(groups))
    above.set_title("both trees, each row with its number", color=plots.INK, fontsize=12)
    plots.draw_mask(union.mask, labels, below, "row (left) sees column (top)")
    return above, below


def draw_losses(kept):
    """How many drafts a round each way to verify misses of those that both trees would bring.

    kept: see bench.same_rounds: head 1, head 2, the router, ways to merge; both trees -> the Axes.
    """
    *ways, both = kept
    ax = plots.new_axes(height=3.4)
    colors = [*plots.HEADS, plots.FAINT] + [plots.INK] * len(ways)
    for place, (way, color) in enumerate(zip(ways, colors, strict=False)):
        missed = [most - n for n, most in zip(kept[way], kept[both], strict=True)]
        mean, error = sum(missed) / len(missed), two_standard_errors(missed)
        ax.barh(place, mean, 0.62, xerr=error, color=plots.tint(color, 0.7), ecolor=plots.INK)
        ax.text(mean + error, place, f"  {mean:.2f}", va="center", color=plots.INK)
    ax.set_yticks(range(len(ways)), ways)
    ax.invert_yaxis()
    ax.margins(x=0.2)
    return plots.plain_frame(ax, "Drafts lost by reading 16 rows, not 32",
                             "drafts a round, with two standard errors")


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
