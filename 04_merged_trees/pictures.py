"""The chapter's pictures: the trie of two heads' trees, the union side by side, a real round.

Green is head 1 and pink head 2, dark what both guessed; blue is the accepted path, orange the
target's own token.
"""

import math

from dual_draft_routing import HeadDrafter  # chapter 03
from merged_trees import (
    MergedDrafter,
    TrieDrafter,
    accept_paths,
    distinct_prefixes,
    prefixes,
    trie_merge,
)
from nanogpt.decoding import collect
from nanogpt.packing import precision_of
from nanogpt.pictures import plots
from nanogpt.pictures.step import VisibleDice, instructive, remember, trace, watch
from nanogpt.sampling import Dice, Sampler
from nanogpt.sizes import SIZES
from train_heads import get_target_and_heads  # chapter 03
from tree_attention import Tree, speculate  # chapter 02

NAMES = "sabcdefg"
# What each head guessed (a, ab, ac, f; a, ad, e, ag), with the probability of each path.
TREES = Tree([0, 1, 2, 3, 6], [-1, 0, 1, 1, 0]), Tree([0, 1, 4, 5, 7], [-1, 0, 1, 0, 1])
SCORES = [[math.log(value) for value in values]
          for values in ((1, 0.8, 0.4, 0.2, 0.1), (1, 0.7, 0.45, 0.25, 0.15))]


def save_figures(target, heads, prompt, tokenizer, out):
    """The trie of the worked example; a real round."""
    plots.save(draw_trie(TREES, SCORES, *trie_merge(TREES, SCORES, 6))[0],
               out / "example.png")
    plots.save(draw_real_round(target, heads, prompt, tokenizer), out / "tree.png")


def by_head(tree, trees):
    """A colour for each row: head 1's, head 2's, or dark, where both heads guessed the prefix."""
    ours, theirs = map(distinct_prefixes, trees)
    return [plots.INK if path in ours and path in theirs or not path
            else plots.HEADS[path in theirs] for path in prefixes(tree)]


def draw_labelled(trees, titles, colors, texts):
    """Trees side by side, with a text on each row -> the Axes, a list.

    trees: a list of Tree; titles, colors, texts: an entry for each tree, the last two a list.
    """
    axes = plots.new_axes(3.6 * len(trees), 2.3, columns=len(trees))
    for ax, tree, title, shades, words in zip(axes, trees, titles, colors, texts, strict=True):
        rows = Tree(list(range(len(tree))), tree.parents)
        plots.draw_tree(rows, words.__getitem__, ax=ax, colors=shades)
        ax.set_title(title, color=plots.INK, fontsize=10)
    return axes


def draw_trie(trees, scores, trie, trie_scores):
    """Two heads' trees and what the trie keeps of them, the probability of each path beside it."""
    every, logs = [*trees, trie], [*scores, trie_scores]
    texts = [[f"{NAMES[int(token)]}\u2009{math.exp(log):.2f}".replace("0.", ".") if row else "s"
              for row, (token, log) in enumerate(zip(tree.tokens, values, strict=True))]
             for tree, values in zip(every, logs, strict=True)]
    return draw_labelled(every, [f"head 1: {len(trees[0]) - 1} guesses",
                                 f"head 2: {len(trees[1]) - 1} guesses",
                                 f"the trie: the best {len(trie) - 1} of both"],
                         [[plots.INK] + [color] * 9 for color in plots.HEADS]
                         + [by_head(trie, trees)], texts)


def draw_union_and_mask(union, n_first):
    """Both trees side by side below one root, each row with its number; who may attend to whom."""
    left, right = plots.new_axes(8.6, 3.4, columns=2)
    labels = [f"{row}:{NAMES[int(token)]}" for row, token in enumerate(union.tokens)]
    colors = [plots.INK] + [plots.HEADS[row > n_first] for row in range(1, len(union))]
    plots.draw_tree(Tree(list(range(len(union))), union.parents), labels.__getitem__, ax=left,
                    colors=colors)
    left.set_title("the union side by side", color=plots.INK, fontsize=11)
    plots.draw_mask(union.mask, labels, right, "row (left) sees column (top)")
    return left, right


def draw_real_round(target, heads, prompt, tokenizer, seed=5):
    """The round of a sampled text that accepted most, its trie coloured by who guessed what."""
    drafter = TrieDrafter([HeadDrafter(head, budget=10) for head in heads], 10)
    proposals = remember(drafter, "propose_both")
    run = speculate(target, drafter, prompt, Sampler(), Dice(seed))
    step, (trees, _) = max(zip(collect(run, 60).steps[:-1], proposals, strict=False),
                           key=lambda found: len(found[0].tokens))
    seen = step.detail
    return plots.draw_tree(seen.tree, lambda token: tokenizer.decode([token]), seen.path,
                           seen.target_probs, colors=by_head(seen.tree, trees),
                           next_token=step.tokens[-1])


def draw_same_rounds(means):
    """Accepted drafts per round in the same rounds, for each way to verify -> the Axes.

    means: {name: mean number of accepted drafts}: head 1, head 2, the router, ways to merge.
    """
    merged = [plots.INK] * (len(means) - 3)
    return plots.draw_ranked(means, "accepted drafts per round",
                             [*plots.HEADS, plots.FAINT, *merged],
                             title="the same rounds, verified in different ways")


def step_round(args, dataset, device, prompt):
    """An instructive round of the union of both heads' trees -> its trace; see
    nanogpt/pictures/step.py."""
    target, heads = get_target_and_heads(args, dataset, device)
    dice, decode = VisibleDice(args.seed), dataset.tokenizer.decode
    drafter = MergedDrafter([HeadDrafter(head, budget=6) for head in heads])
    proposals = remember(drafter, "propose_both")
    steps = speculate(target, drafter, prompt, Sampler(1.0), dice, accept_paths)
    rounds = watch(steps, dice, prompt, args.steps, target.config.block_size,
                   lambda: proposals[-1][1])

    def shared(one):  # accepted drafts that both trees held
        paths = prefixes(Tree(one["tokens"], one["parents"]))
        return sum(paths.count(paths[row]) > 1 for row in one["kept"][1:])

    # First both trees hold the accepted prefix, then only one of them does.
    parting = [one for one in rounds if 0 < shared(one) < len(one["kept"]) - 1]
    one = instructive(parting or rounds, decode)
    first, second = one["note"]
    logs = [*first, *second[1:]]
    return trace(
        one, decode, dataset.vocab_size, chapter="04", title="Merged trees", rule="walk",
        drafted="heads", names=["head 1", "head 2"],
        groups=[0] + [1 + (row >= len(first)) for row in range(1, len(logs))],
        guesses=[None] + [math.exp(logs[row] - logs[one["parents"][row]])
                          for row in range(1, len(logs))],
        say_draft="At each edge stands its q.",
        subtitle=f"{SIZES[args.size].label} target in {precision_of(target)}, two heads with 6 "
        "draft nodes each, temperature 1",
        say_verify="Between the two heads' blocks the mask is empty.")
