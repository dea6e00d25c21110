"""The chapter's pictures: the trap, the trie of two heads' trees, a real round.

Green is head 1 and pink head 2, half and half what both guessed; blue is the accepted path, orange
the target's own token, red the mistake.
"""

import math

import matplotlib.pyplot as plt

from dual_draft_routing import HeadDrafter  # chapter 03
from merged_trees import TrieDrafter, distinct_prefixes, prefixes, trie_merge
from nanogpt.pictures import plots
from nanogpt.pictures.step import VisibleDice, instructive, own_target, remember, trace, watch
from nanogpt.sampling import Sampler
from train_heads import get_kinds  # chapter 03
from tree_attention import Tree, speculate  # chapter 02

# What each head guessed (x, xy, xz, u; x, xw, v, xt), with the probability of each path.
TREES = Tree([0, 1, 2, 3, 6], [-1, 0, 1, 1, 0]), Tree([0, 1, 4, 5, 7], [-1, 0, 1, 0, 1])
SCORES = [[math.log(value) for value in values]
          for values in ((1, 0.8, 0.4, 0.2, 0.1), (1, 0.7, 0.45, 0.25, 0.15))]


def owners(tree, trees):
    """Who guessed the prefix of each row: 1 or 2 for a head, 3 for both, 0 for the root's."""
    ours, theirs = map(distinct_prefixes, trees)
    return [(path in ours) + 2 * (path in theirs) for path in prefixes(tree)]


def draw_trap():
    """One draw with p(a) = .5 as a square, and the better of two draws, both heads' guess being a:
    areas are probabilities."""
    written, other = "a written\n.50", "b or c\nwritten\n"
    for ax, title, heights, texts in zip(
            plots.new_axes(height=3.4, columns=2),
            ("one draw:\na has .50", "the better of two:\na has .50 + .25 = .75"),
            ((1, 1), (1, 0.5, 0.5)),
            ((written, f"{other}.50"), (written, f"{other}.25", "a gets a\nsecond\nchance\n.25")),
            strict=True):
        n = len(heights)
        areas = ax.bar((0, 1, 1)[:n], heights, 1, (0, 0, 0.5)[:n], edgecolor=plots.INK, alpha=0.4,
                       color=(plots.BLUE, plots.GREY, plots.RED)[:n])
        ax.bar_label(areas, texts, label_type="center")
        ax.set(xticks=(0, 1), xticklabels=("draw a", "draw b, c"), yticks=(), title=title)
        ax.tick_params(length=0)
        ax.set_frame_on(False)
    ax.yaxis.tick_right()
    ax.set(xticklabels=("1st: a", "1st: b, c"), yticks=(0.75, 0.25), yticklabels=(
        "2nd: a", "2nd: b, c"))


def draw_trie(trees, scores, trie):
    """Two heads' trees, and below them what the trie keeps, with the probability of each path.

    Half green, half pink: both heads guessed it; dashed: it has no row; grey: the root.
    """
    axes = plt.figure(figsize=(plots.WIDTH, 4.6), layout="constrained").subplot_mosaic(
        "12;33", height_ratios=(3, 5))

    def draw(panel, title, tree, logs, colors):
        dropped = [row for row in range(1, len(tree)) if colors[row] == plots.GREY]
        texts = ["s"] + [
            f"{'sxyzwvut'[tree.tokens[row]]}\u2009{plots.two_digits(math.exp(logs[row]))}"
            + ",\u2009no\u2009row" * (row in dropped) for row in range(1, len(tree))]
        plots.draw_tree(Tree(range(len(tree)), tree.parents), texts.__getitem__, colors,
                        axes[panel]).set_title(title)
        for row in dropped:
            axes[panel].texts[row].get_bbox_patch().set(linestyle="--", facecolor="white")
            axes[panel].lines[row - 1].set(linestyle="--")
        return texts

    for head, (tree, logs) in enumerate(zip(trees, scores, strict=True)):
        draw(str(head + 1), f"head {head + 1} guesses", tree, logs,
             [plots.GREY] + (len(tree) - 1) * [plots.HEADS[head]])
    whole, logs = trie_merge(trees, scores, 99)  # the trie's rows come first
    groups = owners(whole, trees)
    texts = draw("3", "the trie: one row for x, so t gets in", whole, logs, [
        (plots.GREY, *plots.HEADS, plots.GREEN)[who * (row < len(trie))]
        for row, who in enumerate(groups)])
    row = groups.index(3)  # the one that both guessed: its right half in pink
    x, y = whole.depths[row], plots.tree_rows(whole.children)[row]
    plots.draw_node(axes["3"], (x, y), texts[row], plots.PURPLE)
    axes["3"].texts[-1].set(clip_on=True, clip_path=plt.Rectangle(
        (x, y - 1), 1, 2, transform=axes["3"].transData))


def step_round(args, dataset, device, prompt):
    """An instructive round of the lesson's 0.8M target and the trie of both heads' trees -> its
    trace; see nanogpt/pictures/step.py."""
    own_target(args)
    kinds, target, heads = get_kinds(device, args.retrain)
    dice, tokenizer = VisibleDice(args.seed), kinds["both"].tokenizer
    prompt = tokenizer.encode(args.prompt)  # in the letters of this target
    drafter = TrieDrafter([HeadDrafter(heads[kind], budget=8) for kind in ("verse", "code")], 8)
    proposals = remember(drafter, "propose_both")
    rounds = watch(speculate(target, drafter, prompt, Sampler(1.0), dice), dice, prompt,
                   args.steps, target.config.block_size, lambda: proposals[-1])
    for one in rounds:
        tree, scores = trie_merge(*one["note"], 8)
        one["c"] = [math.exp(score) for score in scores]
        one["groups"] = owners(tree, one["note"][0])
        # A token's q is that of the head which is surer of its whole prefix.
        heads_logs = [dict(zip(prefixes(own), scores, strict=True))
                      for own, scores in zip(*one["note"], strict=True)]
        one["guesses"] = [None]
        for prefix in prefixes(tree)[1:]:
            surer = max((logs for logs in heads_logs if prefix in logs), key=lambda x: x[prefix])
            one["guesses"].append(math.exp(surer[prefix] - surer[prefix[:-1]]))
    # Here both heads had guessed the first accepted tokens, and only one of them the last.
    parting = [one for one in rounds if {1, 2} <= set(one["groups"])
               and len({one["groups"][row] for row in one["kept"][1:]}) > 1]
    one = instructive(parting or rounds, tokenizer.decode)
    return trace(
        one, tokenizer.decode, tokenizer.vocab_size, chapter="04", title="Merged trees",
        rule="walk", drafted="heads", names=["the verse head", "the code head", "both heads"],
        groups=one["groups"], guesses=one["guesses"], c=one["c"],
        scores_are="c of the path, the higher of two",
        subtitle="0.8M target, the best 8 guesses of a head for verse and one for code",
        say_verify="What both heads guessed is read once: one draw will serve both.")
