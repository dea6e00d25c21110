"""The chapter's pictures: the paper's worked example, a real step, and when a merge pays.

Green is head 1 and pink head 2, blue the accepted path, orange the target's own token. What both
heads drafted is dark.
"""

import math
from importlib import import_module

from dual_draft_routing import HeadDrafter  # chapter 03
from merged_trees import MergedDrafter, accept_paths, block_mask, distinct_prefixes, merge, prefixes
from nanogpt.decoding import collect
from nanogpt.packing import precision_of
from nanogpt.pictures import plots
from nanogpt.pictures.step import VisibleDice, instructive, remember, trace, watch
from nanogpt.sampling import Dice, Sampler
from nanogpt.sizes import SIZES
from train_heads import get_target_and_heads  # chapter 03
from tree_attention import Tree, speculate  # chapter 02

estimated_speedup = import_module("04_merged_trees.bench").estimated_speedup
FIRST = Tree([0, 1, 2, 3], [-1, 0, 1, 1])  # the paper's figure, n_1 = 3
SECOND = Tree([0, 1, 4, 5], [-1, 0, 1, 0])
# The same heads with one guess more each, and the score of every node: the sum of log q above it.
FIRST_LONG = Tree([0, 1, 2, 3, 6], [-1, 0, 1, 1, 0])
SECOND_LONG = Tree([0, 1, 4, 5, 7], [-1, 0, 1, 0, 1])
SCORES = [0, -0.2, -1.0, -1.5, -2.2], [0, -0.3, -0.9, -1.4, -1.9]
NAMES = ["s", "a", "b", "c", "d", "e", "f", "g"]
# What holds both heads' drafts is black; the router, which gives one of two trees away, is grey.
STYLES = {"head 1": (plots.HEADS[0], "o", "--"), "routed": (plots.FAINT, "s", "--"),
          "merged": (plots.INK, "^", ":"), "trie-merged": (plots.INK, "D", "--")}


def head_colors(tree, n_first):
    """A colour for each row: the root's, n_first of head 1, the rest of head 2."""
    return [plots.INK] + [plots.HEADS[row > n_first] for row in range(1, len(tree))]


def save_figures(target, heads, prompt, tokenizer, out):
    """Tree and mask of the worked example; a real step."""
    union = merge(FIRST, SECOND)
    plots.save(plots.draw_tree(union, NAMES.__getitem__, colors=head_colors(union, 3)),
               out / "example.png")
    labels = [f"{row}:{NAMES[int(token)]}" for row, token in enumerate(union.tokens)]
    plots.save(plots.draw_mask(block_mask(FIRST, SECOND), labels, title="M of the union"),
               out / "mask.png")
    plots.save(draw_real_step(target, heads, prompt, tokenizer), out / "tree.png")


def draw_real_step(target, heads, prompt, tokenizer, seed=1):
    """The step of a real decoding that accepted most, one colour a head."""
    drafter = MergedDrafter([HeadDrafter(head, budget=6) for head in heads])
    run = speculate(target, drafter, prompt, Sampler(), Dice(seed), accept_paths)
    step = max(collect(run, 60).steps[:-1], key=lambda step: len(step.tokens))
    tree, path, target_probs = step.detail.tree, step.detail.path, step.detail.target_probs
    colors = head_colors(tree, (len(tree) - 1) // 2)  # both trees hold equally many nodes
    return plots.draw_tree(tree, lambda token: tokenizer.decode([token]), path, target_probs,
                           colors=colors, next_token=step.tokens[-1])


def numbered(tree, names):
    """The tree with its rows as tokens, and what to write on each: '4:a' in row 4."""
    texts = [f"{row}:{names[int(token)]}" for row, token in enumerate(tree.tokens)]
    return Tree(list(range(len(tree))), tree.parents), texts.__getitem__


def draw_row_numbers(trees, titles, colors, names=NAMES):
    """Trees side by side, the row number in front of each token.

    trees: a list of Tree; colors: for each tree a colour a row -> the Axes, a list.
    """
    axes = plots.new_axes(3.3 * len(trees), 2.3, columns=len(trees))
    for ax, tree, title, shades in zip(axes, trees, titles, colors, strict=True):
        rows, text = numbered(tree, names)
        plots.draw_tree(rows, text, ax=ax, colors=shades)
        ax.set_title(title, color=plots.INK, fontsize=10)
    return axes


def draw_two_trees():
    """The worked example before the merge."""
    return draw_row_numbers([FIRST, SECOND], ["head 1's tree", "head 2's tree"],
                            [head_colors(FIRST, 3), head_colors(SECOND, 0)])


def draw_merge_and_mask(union):
    """The worked example after the merge: the tree, and who may attend to whom."""
    left, right = plots.new_axes(8.6, 3.4, columns=2)
    rows, text = numbered(union, NAMES)
    plots.draw_tree(rows, text, ax=left, colors=head_colors(union, 3))
    left.set_title("the union", color=plots.INK, fontsize=11)
    labels = [text(row) for row in range(len(union))]
    plots.draw_mask(union.mask, labels, right, "row (left) sees column (top)")
    return left, right


def draw_shared(sides, trie, n_first, second):
    """The union side by side, and as a trie, in which a shared node is dark.

    sides: n_first draft nodes of head 1, then head 2's; second: head 2's tree, with the guesses
    that are new in the trie.
    """
    theirs = distinct_prefixes(second)
    ours = distinct_prefixes(Tree(sides.tokens[:n_first + 1], sides.parents[:n_first + 1]))
    paths, known = prefixes(trie), distinct_prefixes(sides)
    shades = [plots.INK if path in ours and path in theirs or not path
              else plots.HEADS[path in theirs] for path in paths]
    new = [NAMES[path[-1]] for path in paths[1:] if path not in known]
    return draw_row_numbers(
        [sides, trie], [f"side by side: {len(sides) - 1} draft rows",
                        f"as a trie: {len(trie) - 1} draft rows"
                        + f", new: {', '.join(new)}" * bool(new)],
        [head_colors(sides, n_first), shades])


def draw_same_rounds(means):
    """Accepted drafts per round, had head 1, head 2, the router or the union been verified there.

    means: {name: mean number of accepted drafts}, in this order -> the Axes.
    """
    return plots.draw_ranked(means, "accepted drafts per round",
                             [*plots.HEADS, plots.FAINT, plots.INK],
                             title="the same rounds, four ways to verify")


def draw_price_of_rows(lines, here):
    """Speed-up against the price of a row: on the left drafting is free, on the right as measured.

    lines: as merge_budgets.priced gives them, {name: (tau, draft nodes, drafting in plain steps)};
    here: what one more row costs on this machine, in plain steps. Solid lines verify as many nodes
    as the first one, broken lines more. -> the two Axes.
    """
    axes = plots.new_axes(10, 3.9, columns=2)
    most = max(0.06, 1.25 * here)
    prices = [most * i / 60 for i in range(61)]
    fewest = next(iter(lines.values()))[1]
    titles = ("drafting is free", "drafting costs what it costs here")
    for ax, part, title in zip(axes, (0, 1), titles, strict=True):
        for name, line in lines.items():
            color, marker, broken = STYLES[name.split(",")[0]]
            speedups = [estimated_speedup(line, price, part) for price in prices]
            ax.plot([100 * price for price in prices], speedups, color=color, marker=marker,
                    linestyle="-" if line[1] < 1.5 * fewest else broken, markevery=15, label=name)
        ax.axvline(100 * here, color=plots.GREY, linewidth=1.4, zorder=0)
        ax.text(100 * here, 0.98, " this machine", color=plots.FAINT, fontsize=8, va="top",
                transform=ax.get_xaxis_transform())
        plots.plain_frame(ax, title, "price of one more row, % of a plain step", "speed-up")
    low, high = (pick(side(ax.get_ylim()) for ax in axes)  # one scale for both
                 for pick, side in ((min, min), (max, max)))
    for ax in axes:
        ax.set_ylim(low, high)
    axes[0].figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center",
                          ncols=len(lines), **plots.LOOK)
    return axes


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
