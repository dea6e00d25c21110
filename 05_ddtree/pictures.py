"""What the two lessons draw: the drafter, the heap, slots, sizes.

Blue is what is kept (here: the root and the nodes of the tree), grey what is not.
"""

from importlib import import_module
from math import prod

import torch

from ddtree import DDTreeDrafter, best_first
from nanogpt.bench import summarize, tau_uncertainty
from nanogpt.packing import precision_of
from nanogpt.pictures.plots import (
    BLUE,
    FAINT,
    GREY,
    INK,
    MONO,
    NEWLINE,
    SKY,
    canvas,
    draw_cells,
    new_axes,
    plain_frame,
    tint,
    tree_rows,
    two_digits,
    visible,
)
from nanogpt.pictures.step import VisibleDice, instructive, remember, trace, watch
from nanogpt.sampling import Sampler
from nanogpt.sizes import SIZES
from train_drafter import get_target_and_drafter
from tree_attention import Tree, speculate  # chapter 02

bench = import_module("05_ddtree.bench")  # by this name, for every chapter has a bench.py

# ---------------------------------------------------------------- the drafter, and its slots


def draw_drafter(context, log_probs, text_of_token):
    """A block of masks goes in, one distribution a slot comes out: its five best tokens.

    context: the last few tokens, the root as the last; log_probs (L, V): one real pass.
    """
    *read, root = [visible(text_of_token(token)) for token in context]
    ax, probs = canvas(new_axes(height=4.3), "One pass, five distributions",
                       (0, len(log_probs) + 1), (-0.5, 4.7)), log_probs.exp()
    ax.annotate(f"all read the target's hidden states of .. {' '.join(read)}", (2.97, 0.75),
                (2.97, -0.2), ha="center", arrowprops={"arrowstyle": "->"})
    draw_cells(ax, 0.8, [root, *["MASK"] * len(probs)], [BLUE, *[SKY] * len(probs)])
    ax.text(0.47, 0.65, "root", ha="center", va="top")
    for slot, row in enumerate(probs, 1):
        ax.text(slot + 0.47, 4.4, f"$q_{slot}$", ha="center")
        ax.annotate("", (slot + 0.47, 2.1), (slot + 0.47, 1.65), arrowprops={"arrowstyle": "->"})
        for rank, (p, token) in enumerate(zip(*map(torch.Tensor.tolist, row.topk(5)),
                                              strict=True)):
            y, name = 4.1 - 0.42 * rank, visible(text_of_token(token)).replace("\\n", NEWLINE)
            ax.text(slot + 0.05, y, f"{name} {two_digits(p)}", va="center", **MONO)
            ax.barh(y, 0.9 * p, 0.36, left=slot + 0.02, color=tint(SKY, 0.5))
    return ax


def draw_orders(start, root, trees, text_of_token, watched):
    """The 12 nodes that the heap takes from two kinds of children, in its order -> the Axes.

    start: the root's text; trees: {title: children}, see best_first; watched: {path: its colour},
    blue where the target wants more of it, red where less.
    """
    ax = canvas(new_axes(height=4.6), "The underrated node (blue) rises, the unwanted (red) sink",
                (-0.8, 1.8), (12.5, -1.8))
    orders = []
    for x, (title, children) in enumerate(trees.items()):
        look = {"ha": ("right", "left")[x], "va": "center"}
        ax.text(x, -1.2, title, **look)
        paths = [start]
        for y, (token, parent, mass) in zip(range(12), best_first(root, children), strict=False):
            paths.append(path := paths[parent] + text_of_token(token))
            ax.text(x, y, f" {visible(path)} {two_digits(mass)} ",
                    color=watched.get(path, INK), **look, **MONO)
        orders.append(paths[1:])
    ax.text(1, 12, "  gone", **look)
    for path in orders[0]:
        ax.plot([[*order, path].index(path) for order in orders], color=watched.get(path, GREY),
                linewidth=3 if path in watched else 1)
    return ax


# ---------------------------------------------------------------- drawn drafts


def draw_judged(tables, looks):
    """Tau over the temperature, with two standard errors, a line a method -> the Axes.

    tables: {temperature: results of nanogpt.bench.compare}; looks: {method: colour, line's style},
    from the top of the picture's right edge to its bottom.
    """
    ax, lowest = new_axes(height=4.4), 9.0
    for name, (color, style) in looks.items():
        runs = [results[name] for results in tables.values()]
        taus = [summarize(found)["tau"] for found in runs]
        ax.errorbar(list(tables), taus, [*map(tau_uncertainty, runs)], fmt=style, color=color,
                    capsize=2)
        lowest = min(lowest - 0.14, taus[-1])  # one name under the other
        ax.text(1.03, lowest, f"{taus[-1]:.2f}  {name}", va="center", color=color)
    ax.set(xlim=(0.15, 1.5), xticks=list(tables))
    return plain_frame(ax, "As the text opens, drawn drafts lose less (tau)",
                       "temperature; bars: two standard errors")


# ---------------------------------------------------------------- the heap


def replay(probs, budget):
    """The heap's work on small marginals -> after each pop the prefixes in the tree, in the order
    of their pops, and those that wait. probs: q_1 .. q_L, each in falling order; a token is its
    rank."""
    popped, waiting, frames = [], {(0,)}, []
    while len(popped) < budget:
        popped.append(max(waiting, key=lambda u: mass(probs, u)))
        *above, rank = popped[-1]
        pushed = {(*above, rank + 1), (*above, rank, 0)}
        waiting = {u for u in waiting | pushed if len(u) <= len(probs) and u[-1] < len(probs[0])}
        waiting -= {*popped}
        frames.append(([*popped], waiting))
    return frames


def mass(probs, prefix):
    """q(u) of a prefix in ranks."""
    return prod(row[rank] for row, rank in zip(probs, prefix, strict=False))


def draw_heap(ax, popped, waiting, label):
    """One state of the heap: the tree in blue with the order of its pops, dashed what waits.

    -> {prefix: its place}.
    """
    rows = sorted({(), *popped, *waiting}, key=lambda u: (len(u), u))
    heights = tree_rows([[i for i, u in enumerate(rows) if u and u[:-1] == parent]
                         for parent in rows])
    places = {u: (len(u), y) for u, y in zip(rows, heights, strict=True)}
    for u, (x, y) in places.items():
        color, line = (GREY, "--") if u in waiting else (BLUE, "-")
        if u:
            ax.plot(*zip(places[u[:-1]], (x, y), strict=True), line, color=color, zorder=1)
        ax.text(x, y, label(u), ha="center", va="center",
                bbox={"boxstyle": "round,pad=0.25", "linestyle": line, "edgecolor": color,
                      "facecolor": "white" if u in waiting else tint(BLUE, 0.3)})
    for order, u in enumerate(popped, 1):
        ax.annotate(order, places[u], (-23, 8), textcoords="offset points", color="white",
                    ha="center", va="center",
                    bbox={"boxstyle": "circle,pad=0.15", "edgecolor": BLUE, "facecolor": BLUE})
    ax.set_ylim(max(heights) + 0.5, -0.7)
    return places


def draw_pop(probs, names):
    """The heap before and after its second pop, with the two that are pushed, and after five.

    probs: see replay; names: the tokens' letters -> the Axes, one below the other.
    """
    axes = new_axes(height=8.1, rows=3)
    frames = [replay(probs, 5)[pops - 1] for pops in (1, 2, 5)]
    for ax, (popped, waiting), title in zip(axes, frames, (
            "After 1 pop: of those that wait, b is the heaviest",
            "The 2nd pop takes b and pushes two",
            "After 5 pops: worth {:.2f}"), strict=True):
        places = draw_heap(ax, popped, waiting, lambda u: (
            f"{names[u[-1]]} {two_digits(mass(probs, u))}" if u else "root"))
        canvas(ax, title.format(sum(mass(probs, u) for u in popped)), (-0.3, len(probs) + 0.35),
               ax.get_ylim())
        for end, said, x, y, gap in () if len(popped) != 2 else (
                ((2,), "next sibling", 1.07, 1.5, 11), ((1, 0), "first child", 1.25, 0.78, 25)):
            ax.annotate("", places[end], places[1,], arrowprops={
                "arrowstyle": "-|>", "color": INK, "linewidth": 1.8, "shrinkA": gap,
                "shrinkB": gap})
            ax.text(x, y, said, va="center")
    return axes


# ---------------------------------------------------------------- how many nodes


def draw_budgets(tables, budgets):
    """Tau over the budget, with two standard errors; both chains as level lines -> the Axes.

    tables: {temperature: results of nanogpt.bench.compare}, two of them, a panel each.
    """
    axes = new_axes(height=5.6, rows=2)
    for ax, (temperature, results) in zip(axes, tables.items(), strict=True):
        for name, look, said, x, ha, va in (
                (bench.GPT_CHAIN, "--", "01's chain", 2.7, "left", "bottom"),
                (bench.CHAIN, ":", "own chain", 70, "right", "top")):
            tau = summarize(results[name])["tau"]
            ax.axhline(tau, color=FAINT, linestyle=look)
            ax.text(x, tau, f"{said}: {tau:.2f}", color=FAINT, ha=ha, va=va)
        runs = [results[bench.ddtree_name(b)] for b in budgets]
        taus = [summarize(found)["tau"] for found in runs]
        ax.errorbar(budgets, taus, [*map(tau_uncertainty, runs)], fmt="o-", color=BLUE, capsize=3)
        for budget, tau in zip(budgets, taus, strict=True):
            ax.text(budget, tau - 0.33, f"{tau:.2f}", ha="center", va="center", color=BLUE,
                    bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5})
        ax.set_xscale("log", base=2)
        ax.set_xticks(budgets, budgets)
        ax.minorticks_off()
        ax.set_ylim(1, 4.8)
        plain_frame(ax, f"Temperature {temperature:g}: tokens per forward (tau)")
    axes[-1].set_xlabel("nodes B of the tree (log scale); bars: two standard errors")
    return axes


def draw_sizes(gains):
    """What a round gains with n nodes, a line a machine, its best n marked -> the Axes.

    gains: {machine: gain in tokens with 0, 1, .. nodes}; every line starts at 0.
    """
    ax = new_axes(height=3.5)
    for (machine, values), color, up in zip(gains.items(), (INK, SKY), (-9, 9), strict=True):
        values = [value - values[0] for value in values]
        best = values.index(max(values))
        ax.plot(values, color=color)
        ax.plot(best, values[best], "*", color=color, markersize=13)
        ax.annotate(f"{machine}:\n{best} of {len(values) - 1} nodes", (len(values) - 1, values[-1]),
                    (8, up), color=color, textcoords="offset points", ha="right",
                    va="bottom" if up > 0 else "top")
    sizes = [0, 1, 3, 7, 15, 31, 63]
    ax.set_xscale("symlog", base=2)
    ax.set_xticks(sizes, sizes)
    ax.minorticks_off()
    ax.margins(0.08, 0.3)
    return plain_frame(ax, "Tokens that n nodes bring, their time paid for",
                       "nodes n that the target reads (log scale)")


# ---------------------------------------------------------------- one round


def step_round(args, dataset, device, prompt):
    """An instructive round of DDTree -> its trace; see nanogpt/pictures/step.py."""
    target, network = get_target_and_drafter(args, dataset, device)
    dice, decode = VisibleDice(args.seed), dataset.tokenizer.decode
    drafter = DDTreeDrafter(network, 12)
    marginals = remember(drafter, "marginals")
    steps = speculate(target, drafter, prompt, Sampler(1.0), dice)
    one = instructive(watch(steps, dice, prompt, args.steps, target.config.block_size,
                            lambda: marginals[-1].exp().tolist()), decode)
    # What the drafter gave below a node depends on its depth alone.
    one["q"] = [(*one["note"], None)[depth]
                for depth in Tree(one["tokens"], one["parents"]).depths.tolist()]
    return trace(
        one, decode, dataset.vocab_size, chapter="05", title="DDTree", rule="walk", drafted="best",
        scores_are="the mass of the whole prefix", say_draft="The number at a node is the mass "
        "that the drafter gives its whole prefix.",
        subtitle=f"{SIZES[args.size].label} target in {precision_of(target)}, one block-diffusion "
        "pass, B = 12, temperature 1")
