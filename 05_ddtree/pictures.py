"""What the two lessons draw: the drafter, the heap, slots, sizes, the paper's table.

Blue is what is kept (here: the root and the nodes of the tree), grey what is not.
"""

import math
from importlib import import_module
from itertools import islice

import torch
from matplotlib.patches import FancyBboxPatch

from ddtree import DDTreeDrafter, best_first, marginal_children
from nanogpt.bench import summarize
from nanogpt.packing import precision_of
from nanogpt.pictures.plots import (
    BLUE,
    FAINT,
    GREY,
    INK,
    LOOK,
    MONO,
    ORANGE,
    SKY,
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


def box(ax, left, bottom, width, height, text, color):
    """A rounded box with a text in its middle."""
    ax.add_patch(FancyBboxPatch(
        (left, bottom), width, height, boxstyle="round,pad=0,rounding_size=0.08",
        facecolor=tint(color, 0.25), edgecolor=color))
    ax.text(left + width / 2, bottom + height / 2, text, ha="center", va="center", color=INK)


def arrows(ax, places, bottom, top):
    """One up-arrow for each x."""
    for x in places:
        ax.annotate("", (x, top), (x, bottom), arrowprops={"arrowstyle": "-|>", "color": FAINT})


def draw_guesses(ax, left, top, title, probs, text_of_token, scale, most=5, color=SKY, bold=()):
    """The `most` probable tokens of one slot, each with its probability on a bar, best first.

    probs (V,); scale: a bar's width at probability 1; bold: tokens in bold letters.
    """
    ax.text(left, top, title, va="center", color=INK)
    best = probs.topk(most)
    for row, (p, token) in enumerate(zip(*map(torch.Tensor.tolist, best), strict=True), 1):
        y = top - 0.3 * row
        ax.barh(y, scale * p, 0.24, left=left, color=tint(color, 0.6))
        ax.text(left + 0.03, y, f"{visible(text_of_token(token))} {two_digits(p)}", va="center",
                color=INK, fontweight="bold" if token in bold else "normal", **MONO)


def blank_axes(width, height):
    """An Axes without a frame, in units of about an inch."""
    ax = new_axes(height=height)
    ax.set_xlim(0, width)
    ax.set_ylim(0, height)
    ax.axis("off")
    return ax


def draw_drafter(context, log_probs, text_of_token):
    """The target's hidden states and a block of masks go in, one distribution a slot comes out.

    context: the last few tokens, the root as the last; log_probs (L, V): one real pass.
    """
    ax, wide, probs = blank_axes(5.2, 5.5), 5.2 / (len(log_probs) + 1), log_probs.exp()
    middles = [wide * (k + 0.5) for k in range(len(log_probs) + 1)]
    for x, token in zip(middles, context[:-1], strict=False):
        box(ax, x - 0.2, 0.3, 0.4, 0.36, visible(text_of_token(token)), GREY)
    arrows(ax, middles[:len(context) - 1], 0.68, 0.94)
    ax.text(0, 0.1, "the text so far", va="center", color=FAINT)
    box(ax, 0, 0.95, 5.2, 0.5, "hidden states of the target, three layers fused", GREY)
    ax.annotate("", (2.6, 1.94), (2.6, 1.46), arrowprops={  # to the block, not to one slot
        "arrowstyle": "simple,head_width=2.4,tail_width=1.2", "color": GREY})
    box(ax, 0, 1.95, 5.2, 1.25, "", SKY)
    ax.text(2.6, 2.93, "the drafter: one pass over the block", ha="center", color=INK)
    box(ax, middles[0] - 0.2, 2.25, 0.4, 0.36, visible(text_of_token(context[-1])), BLUE)
    ax.text(middles[0], 2.1, "root", ha="center", va="center", color=INK)
    arrows(ax, middles[1:], 3.21, 3.5)
    for k, x in enumerate(middles[1:], 1):
        box(ax, x - 0.2, 2.25, 0.4, 0.36, "m", SKY)
        draw_guesses(ax, x - 0.38, 5.25, f"$q_{k}$", probs[k - 1], text_of_token,
                     0.75 / float(probs.max()))
    ax.set_title("One pass, five distributions", color=INK, fontsize=12, loc="left")
    return ax


def draw_slot_views(views, text_of_token, bold):
    """Slot 2 behind each first token: the marginal, the lookup, the target; one scale -> the Axes.

    views: {title: three (V,)}; bold: the tokens to watch.
    """
    ax = blank_axes(5.2, 2.2 * len(views))
    for row, (title, lists) in enumerate(views.items()):
        top = 2.2 * (len(views) - row) - 0.15
        ax.text(0, top, title, va="center", color=INK, fontweight="bold")
        for i, (name, probs) in enumerate(zip(("the marginal", "the lookup", "the target"),
                                              lists, strict=True)):
            draw_guesses(ax, 1.8 * i, top - 0.35, name, probs, text_of_token, 1.5,
                         color=ORANGE if i == 2 else SKY, bold=bold)
    return ax


# ---------------------------------------------------------------- the heap


def mass(probs, ranks):
    """Of a prefix in ranks; probs: q_1 .. q_L as L lists, each in falling order."""
    return math.prod(row[rank] for row, rank in zip(probs, ranks, strict=False))


def replay(probs, budget):
    """The heap's work on small marginals -> after each pop, two lists of prefixes in ranks: those
    that were popped, in this order, and those that wait, the next one first. probs: see mass."""
    prefixes, frames = [()], []
    nodes = best_first(None, marginal_children(torch.tensor(probs, dtype=torch.float64).log()))
    for rank, parent, _ in islice(nodes, budget):  # a token is its own rank here
        prefixes.append((*prefixes[parent], rank))
        pushed = {u for *above, last in prefixes[1:] for u in ((*above, last + 1),
                                                               (*above, last, 0))}
        frames.append((prefixes[1:], sorted(
            (u for u in pushed.difference(prefixes)
             if len(u) <= len(probs) and u[-1] < len(probs[0])),
            key=lambda u: (-mass(probs, u), u))))  # on a tie the heap pops the smaller ranks
    return frames


def draw_heap(ax, popped, waiting, places, label):
    """One state of the heap: popped nodes in blue with the order of their pops, waiting ones
    dashed; the next one in bold."""
    for u in ((), *popped, *waiting):
        (x, y), waits, is_next = places[u], u in waiting, u in waiting[:1]
        color, line = (GREY, "--") if waits else (BLUE, "-")
        if u:
            ax.plot(*zip(places[u[:-1]], (x, y), strict=True), line, color=color, zorder=1)
        ax.text(x, y, label(u), ha="center", va="center", color=INK,
                fontweight="bold" if is_next else "normal",
                bbox={"boxstyle": "round,pad=0.25", "linestyle": line,
                      "edgecolor": INK if is_next else color,
                      "facecolor": "white" if waits else tint(BLUE, 0.3)})
    for order, (x, y) in enumerate(map(places.get, popped), 1):
        ax.text(x - 0.25, y - 0.36, order, color="white", fontsize=11.5, ha="center", va="center",
                bbox={"boxstyle": "circle,pad=0.15", "edgecolor": BLUE, "facecolor": BLUE})
    ax.axis("off")


def draw_frontier(probs, names, after=(1, 3, 5)):
    """The heap after some of its pops, one below the other -> the Axes.

    probs: see mass; names: the tokens' letters.
    """
    frames = replay(probs, max(after))
    rows = sorted({(), *frames[-1][0], *frames[-1][1]}, key=lambda u: (len(u), u))
    heights = tree_rows([[i for i, u in enumerate(rows) if u and u[:-1] == parent]
                         for parent in rows])
    places = {u: (len(u), y) for u, y in zip(rows, heights, strict=True)}
    axes = new_axes(height=2.35 * len(after), rows=len(after))
    for ax, pops in zip(axes, after, strict=True):
        popped, waiting = frames[pops - 1]
        draw_heap(ax, popped, waiting, places, lambda u: (
            f"{names[u[-1]]} {two_digits(mass(probs, u))}" if u else "root"))
        worth = sum(mass(probs, u) for u in popped)
        plain_frame(ax, f"after {pops} pop{'s' * (pops > 1)}: worth {worth:.2f}")
        ax.set_xlim(-0.3, len(probs) + 0.35)
        ax.set_ylim(max(heights) + 0.5, -0.6)
    return axes


# ---------------------------------------------------------------- how many nodes


def draw_budgets(tables, budgets):
    """Tau over the budget, a panel a temperature; both chains as level lines -> the Axes.

    tables: {temperature: results of nanogpt.bench.compare}.
    """
    axes = new_axes(height=0.7 + 2.6 * len(tables), rows=len(tables))
    axes = axes if isinstance(axes, list) else [axes]
    for ax, (temperature, results) in zip(axes, tables.items(), strict=True):
        taus = [summarize(results[bench.ddtree_name(b)])["tau"] for b in budgets]
        ax.plot(budgets, taus, "o-", color=INK, label="DDTree")
        for budget, tau in zip(budgets, taus, strict=True):
            ax.text(budget, tau + 0.22, f"{tau:.2f}", ha="center", color=INK,
                    bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5})
        for name, look, label in ((bench.GPT_CHAIN, "--", "chapter 01's chain of 4"),
                                  (bench.CHAIN, ":", "the same drafter's chain of 5")):
            ax.axhline(summarize(results[name])["tau"], color=FAINT, linestyle=look, label=label)
        ax.set_xscale("log", base=2)
        ax.set_xticks(budgets, [str(b) for b in budgets])
        ax.minorticks_off()
        ax.set_ylim(1, 4.6)
        plain_frame(ax, f"Temperature {temperature:g}: tokens per forward (tau)")
    axes[-1].set_xlabel("nodes B", color=INK)
    axes[0].figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower left", **LOOK)
    return axes


def draw_sizes(gains):
    """What a round gains with n nodes, a line a machine, its largest value marked -> the Axes.

    gains: {machine: gain in tokens with 0, 1, .. nodes}; every line starts at 0.
    """
    ax, sizes = new_axes(height=3.5), [0, 1, 2, 4, 8, 16, 32, 64]
    for (machine, values), look in zip(gains.items(), ("-", "--"), strict=True):
        values = [value - values[0] for value in values]
        best = values.index(max(values))
        ax.plot(values, look, color=INK, label=machine)
        ax.plot(best, values[best], "*", color=INK, markersize=13)
        ax.text(best, values[best] - 0.2, f"{best} nodes", ha="center", va="top", color=INK)
    ax.set_xscale("symlog", base=2)
    ax.set_xticks(sizes, sizes)
    ax.margins(0.1, 0.2)
    ax.legend(**LOOK, loc="lower left")
    return plain_frame(ax, "Tokens gained, net of their price", "nodes n that the target reads")


def draw_paper(rows):
    """Speed and tau of the tree over those of its chain, in the paper's 60 settings -> the Axes.

    rows: of bench.paper_rows.
    """
    ax = new_axes(height=3.2)
    chains, trees = [[row for row in rows if row.method == name] for name in ("DFlash", "DDTree")]
    gains = sorted((tree.speedup / chain.speedup, tree.tau / chain.tau)
                   for chain, tree in zip(chains, trees, strict=True))  # of the same setting
    for found, face, label in zip(zip(*gains, strict=True), (INK, "white"),
                                  ("speed", "tokens per forward"), strict=True):
        ax.scatter(range(1, len(gains) + 1), found, s=20, edgecolor=INK, facecolor=face,
                   label=label)
    ax.set_ylim(1, 1.8)
    ax.legend(**LOOK, loc="upper left")
    return plain_frame(ax, "Real models: the tree divided by its chain",
                       "the 60 settings, sorted by speed")


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
