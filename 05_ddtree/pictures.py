"""What the two lessons and the README draw: the drafter, the heap, slots, sizes, the paper.

    python 05_ddtree/pictures.py      # the README's, into 05_ddtree/figures; minutes

Blue is what is kept (here: the root and the nodes of the tree), grey what is not.
"""

import math
import sys
from importlib import import_module
from itertools import islice
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))  # so that a plain clone runs, too

import torch
from matplotlib.patches import FancyBboxPatch

from nanogpt import cli
from ddtree import DDTreeDrafter, best_first, marginal_children
from nanogpt.bench import summarize, tau_uncertainty
from nanogpt.data import held_out_prompts
from nanogpt.packing import precision_of
from nanogpt.pictures.plots import (
    BLUE,
    FAINT,
    GREY,
    INK,
    LOOK,
    MONO,
    SKY,
    new_axes,
    plain_frame,
    save,
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

# ---------------------------------------------------------------- the drafter


def box(ax, place, size, text, color, fontsize=9):
    """A rounded box with a text in its middle; place: its lower left corner."""
    (x, y), (width, height) = place, size
    ax.add_patch(FancyBboxPatch(
        (x, y), width, height, boxstyle="round,pad=0,rounding_size=0.12",
        facecolor=tint(color, 0.25), edgecolor=color, linewidth=1.3))
    ax.text(x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=fontsize,
            color=INK)


def cell(ax, left, bottom, text, color):
    """A token in a small box of width 0.8."""
    box(ax, (left, bottom), (0.8, 0.6), "", color)
    ax.text(left + 0.4, bottom + 0.3, visible(text), ha="center", va="center", fontsize=10,
            color=INK, **MONO)


def arrow(ax, start, end, color=FAINT):
    """An arrow between two places."""
    ax.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": color, "linewidth": 1.2})


def draw_slot(ax, x, y, number, probs, text_of_token, full, most=4):
    """The `most` probable tokens of one slot as small bars, above the slot.

    probs (V,); full: the probability that a bar of full length stands for.
    """
    best = probs.topk(most)
    for place, (p, token) in enumerate(zip(best.values.tolist(), best.indices.tolist(),
                                           strict=True)):
        height = y + 0.42 * (most - 1 - place)
        ax.barh(height, 0.45 * p / full, 0.3, left=x + 0.27, color=SKY)
        ax.text(x + 0.2, height, visible(text_of_token(token)), ha="right", va="center",
                fontsize=9, color=INK, **MONO)
        ax.text(x + 0.77, height, two_digits(p), ha="left", va="center", fontsize=8, color=INK)
    ax.text(x + 0.4, y + 0.42 * most - 0.02, f"$q_{number}$", ha="center", fontsize=11, color=INK)


def draw_drafter(context, log_probs, text_of_token):
    """The target's features and a block of masks go in, one distribution a slot comes out.

    context: the last few tokens, the root as the last; log_probs (L, V): one real pass.
    """
    ax, length, read = new_axes(8.6, 4.7), len(log_probs), len(context) - 1
    for i, token in enumerate(context[:-1]):
        cell(ax, i, 0, text_of_token(token), GREY)
        arrow(ax, (i + 0.4, 0.65), (i + 0.4, 1.1))
    box(ax, (0, 1.1), (read - 0.2, 2.4), "the target, frozen", GREY)
    first, wide = read + 2.9, 1.2  # the block's left edge, a slot's width
    for height, layer in ((1.6, "a third"), (2.3, "two thirds"), (3.0, "last layer")):
        arrow(ax, (read - 0.2, height), (read + 0.55, 2.3))
        ax.text(read - 0.28, height, layer, ha="right", va="center", fontsize=8, color=FAINT)
    box(ax, (read + 0.55, 1.9), (1.0, 0.8), "fuse", SKY)
    arrow(ax, (read + 1.55, 2.3), (first, 2.3))
    ax.text((read + 1.55 + first) / 2, 2.38, "keys,\nvalues", ha="center", va="bottom",
            fontsize=8, color=FAINT)
    cell(ax, first, 0, text_of_token(context[-1]), BLUE)
    highest = float(log_probs.max().exp())  # all slots on one scale
    for k in range(1, length + 1):
        cell(ax, first + wide * k, 0, "m", SKY)
        draw_slot(ax, first + wide * k, 4.2, k, log_probs[k - 1].exp(), text_of_token, highest)
    for k in range(length + 1):
        arrow(ax, (first + wide * k + 0.4, 0.65), (first + wide * k + 0.4, 1.1))
        if k:
            arrow(ax, (first + wide * k + 0.4, 3.5), (first + wide * k + 0.4, 4.0))
    box(ax, (first, 1.1), (wide * length + 0.8, 2.4), "the drafter:\nattention over the context "
        "and the whole block,\nleft and right; then the target's output matrix", SKY)
    for x, text in ((read / 2, "the text that the target has read"),
                    (first + wide * length / 2 + 0.4, "the block: the root, and masks")):
        ax.text(x, -0.35, text, ha="center", va="top", fontsize=9, color=FAINT)
    ax.set_xlim(-0.2, first + wide * length + 1.1)
    ax.set_ylim(-0.8, 6.2)
    ax.axis("off")
    return ax


# ---------------------------------------------------------------- the heap


def replay(probs, budget):
    """The heap's work on small marginals, with what waits in it after each pop.

    probs: q_1 .. q_L as L lists, (L, V), each in falling order -> [(popped, waiting)], a pair of
    lists of (mass, ranks) after each pop.
    """
    rows, waiting, frames = [()], {}, []
    # In rows of falling order a token is its own rank.
    nodes = best_first(None, marginal_children(torch.tensor(probs, dtype=torch.float64).log()))
    for rank, parent, mass in islice(nodes, budget):
        rows.append(ranks := (*rows[parent], rank))
        waiting.pop(ranks, None)
        for new in ((*ranks[:-1], rank + 1), (*ranks, 0)):  # what this pop pushes
            if len(new) <= len(probs) and new[-1] < len(probs[0]):
                waiting[new] = math.prod(row[r] for row, r in zip(probs, new, strict=False))
        popped = [*(frames[-1][0] if frames else []), (mass, ranks)]
        frames.append((popped, [(m, ranks) for ranks, m in waiting.items()]))
    return frames


def places_of(nodes):
    """{ranks: (depth, height)} of a set of prefixes drawn as a tree; the root is ()."""
    rows = sorted({(), *nodes}, key=lambda u: (len(u), u))
    children = [[i for i, u in enumerate(rows) if u and u[:-1] == parent] for parent in rows]
    return dict(zip(rows, zip(map(len, rows), tree_rows(children), strict=True), strict=True))


def draw_frontier_panel(ax, popped, waiting, places, names):
    """One state of the heap: popped nodes in blue with the order of their pops, waiting ones
    dashed; the heaviest of those is the next."""
    order = {ranks: i for i, (_, ranks) in enumerate(popped, 1)}
    # As in the heap: on a tie the smaller ranks come first. An empty heap has no next.
    following = min(((-mass, ranks) for mass, ranks in waiting), default=(0, None))[1]
    for mass, ranks in [*popped, *waiting]:
        (x0, y0), (x1, y1), kept = places[ranks[:-1]], places[ranks], ranks in order
        color = BLUE if kept else GREY
        ax.plot([x0, x1], [y0, y1], color=color, linestyle="-" if kept else "--", linewidth=1.3,
                zorder=1)
        ax.text(x1, y1, f"{names[ranks[-1]]} {two_digits(mass)}", ha="center", va="center",
                fontsize=8.5, zorder=3, color=INK,
                fontweight="bold" if ranks == following else "normal",
                bbox={"boxstyle": "round,pad=0.3", "edgecolor": INK if ranks == following else
                      color, "linestyle": "-" if kept else "--",
                      "facecolor": tint(BLUE, 0.3) if kept else "white"})
        if kept:
            ax.text(x1 - 0.2, y1 - 0.32, str(order[ranks]), fontsize=8, color=BLUE,
                    fontweight="bold", ha="center")
    ax.text(*places[()], "root", ha="center", va="center", fontsize=8.5, color=INK, zorder=3,
            bbox={"boxstyle": "round,pad=0.3", "edgecolor": BLUE, "facecolor": tint(BLUE, 0.3)})
    ax.axis("off")


def draw_frontier(probs, names, after=(1, 3, 5)):
    """The heap after some of its pops, from left to right -> the Axes.

    probs: see replay; names: the tokens' letters.
    """
    frames = replay(probs, max(after))
    places = places_of([ranks for part in frames[-1] for _, ranks in part])
    axes = new_axes(9, 3.4, columns=len(after))
    for ax, pops in zip(axes, after, strict=True):
        popped, waiting = frames[pops - 1]
        draw_frontier_panel(ax, popped, waiting, places, names)
        ax.set_title(f"after {pops} pop{'s' * (pops > 1)}: worth "
                     f"{sum(mass for mass, _ in popped):.2f}", color=INK, fontsize=11)
        ax.set_xlim(-0.35, len(probs) + 0.4)
        ax.set_ylim(max(y for _, y in places.values()) + 0.7, -0.7)
    return axes


# ---------------------------------------------------------------- two views of a slot


def draw_slot_views(views, text_of_token, most=6):
    """The most probable tokens of one slot, a panel a view, all on one scale -> the Axes.

    views: {title: probs (V,)}.
    """
    axes = new_axes(3.3 * len(views), 2.6, columns=len(views))
    highest = max(float(probs.max()) for probs in views.values())
    for ax, (title, probs) in zip(axes, views.items(), strict=True):
        best = probs.topk(most)
        values, tokens = best.values.tolist(), best.indices.tolist()
        ax.barh(range(most), values, 0.7, color=SKY)
        for place, value in enumerate(values):
            ax.text(value + 0.01, place, two_digits(value), va="center", fontsize=8, color=INK)
        ax.set_yticks(range(most), [visible(text_of_token(t)) for t in tokens], **MONO)
        ax.set_xlim(0, 1.2 * highest)
        ax.invert_yaxis()
        plain_frame(ax, title)
        ax.grid(visible=False)
    return axes

# ---------------------------------------------------------------- how many nodes


def draw_budgets(tables, budgets):
    """Tau over the budget, a panel a temperature; both chains as level lines -> the Axes.

    tables: {temperature: results of nanogpt.bench.compare}. The bars are two standard errors.
    """
    axes = new_axes(5 * len(tables), 3.8, columns=len(tables))
    axes = axes if isinstance(axes, list) else [axes]
    most = max(summarize(runs)["tau"] for results in tables.values() for runs in results.values())
    for ax, (temperature, results) in zip(axes, tables.items(), strict=True):
        trees = [results[bench.ddtree_name(b)] for b in budgets]
        taus = [summarize(runs)["tau"] for runs in trees]
        ax.errorbar(budgets, taus, [tau_uncertainty(runs) for runs in trees], color=INK,
                    marker="o", elinewidth=1, label="DDTree, B nodes")
        for name, look, label in ((bench.GPT_CHAIN, "--", "chapter 01's chain of 4"),
                                  (bench.CHAIN, ":", "the drafter's own chain")):
            ax.axhline(summarize(results[name])["tau"], color=FAINT, linestyle=look, label=label)
        ax.set_xscale("log", base=2)
        ax.set_xticks(budgets, [str(b) for b in budgets])
        ax.minorticks_off()
        ax.set_ylim(1, 1.15 * most)
        plain_frame(ax, f"temperature {temperature:g}", "draft nodes B", "tokens per forward (tau)")
    axes[0].figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center",
                          ncols=3, **LOOK)
    return axes


def draw_sizes(gains):
    """What a round gains with n nodes, a line a machine, its largest value marked -> the Axes.

    gains: {machine: gain in tokens with 0, 1, .. nodes}; every line starts at 0.
    """
    ax = new_axes(7.2, 3.6)
    for (machine, values), look in zip(gains.items(), ("-", "--", ":"), strict=False):
        values = [value - values[0] for value in values]
        best = values.index(max(values))
        ax.plot(range(len(values)), values, look, color=INK, label=machine)
        ax.plot(best, values[best], "*", color=INK, markersize=13)
        ax.annotate(f"{best} nodes", (best, values[best]), (0, 9), textcoords="offset points",
                    ha="center", fontsize=9, color=INK)
    ax.set_xscale("symlog", base=2)
    ax.set_xticks([0, 1, 2, 4, 8, 16, 32, 64], ["0", "1", "2", "4", "8", "16", "32", "64"])
    ax.margins(y=0.18)
    ax.legend(**LOOK, loc="lower left")
    return plain_frame(ax, "Where to stop", "nodes n that the target reads",
                       "tokens gained, net of their price")


def draw_paper(rows):
    """Tau and speed-up of the paper's 60 settings: from the chain to the tree -> the Axes.

    rows: of bench.paper_rows.
    """
    ax, pairs = new_axes(6.6, 4.2), {}
    for row in rows:
        pairs.setdefault((row.model, row.dataset, row.temperature), {})[row.method] = row
    for pair in pairs.values():
        chain, tree = pair["DFlash"], pair["DDTree"]
        ax.plot([chain.tau, tree.tau], [chain.speedup, tree.speedup], color=GREY, linewidth=0.8,
                zorder=1)
    for method, face in (("DFlash", "white"), ("DDTree", INK)):
        found = [row for row in rows if row.method == method]
        ax.scatter([r.tau for r in found], [r.speedup for r in found], s=18, edgecolor=INK,
                   facecolor=face, zorder=2, label={"DFlash": "chain", "DDTree": "tree"}[method])
    for price, look in ((1, ":"), (1.4, "--")):
        ax.plot([0, 11], [0, 11 / price], color=FAINT, linestyle=look, linewidth=1, zorder=0,
                label=f"a round costs {price:g} plain step{'s' * (price > 1)}")
    ax.set_xlim(0, 11.2)
    ax.set_ylim(0, 9)
    ax.legend(**LOOK, loc="upper left")
    return plain_frame(ax, "Real models: each tree beats its chain", "tokens per forward (tau)",
                       "speed-up over plain decoding")


def draw_calibration(found):
    """Mass against the share of accepted nodes -> the Axes. found: {name: (masses, shares)}."""
    ax = new_axes(5.4, 4.2)
    ax.plot([0.003, 1], [0.003, 1], color=GREY, linestyle="--", linewidth=1, label="as promised")
    for (name, (masses, shares)), look in zip(found.items(), ("s-", "o-"), strict=False):
        ax.plot(masses, shares, look, color=INK if look == "o-" else FAINT, label=name)
    ax.set_xscale("log")
    ax.set_yscale("log", nonpositive="mask")
    ax.legend(**LOOK)
    return plain_frame(ax, None, "mass of a node", "share of such nodes that were accepted")


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


def main(argv=None):
    p = cli.parser(__doc__.splitlines()[0])
    cli.decoding_flags(p, Path(__file__).resolve().parent / "figures")
    args = p.parse_args(argv)
    dataset, device = cli.setup(args)
    cli.check_decoding(args, dataset)
    print(save(draw_paper(bench.paper_rows()), args.out / "paper.png"))
    models, prompts = get_target_and_drafter(args, dataset, device), held_out_prompts(dataset, 8)
    found = {f"temperature {t}": bench.calibration(*models, Sampler(t), prompts, 96)
             for t in (0, 1)}
    print(save(draw_calibration(found), args.out / "calibration.png"))


if __name__ == "__main__":
    cli.run(main)
