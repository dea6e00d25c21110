"""What the two lessons draw: the drafter, the heap, toys, sizes.

Blue is what is kept (here: the root and the nodes of the tree), grey what is not.
"""

from itertools import accumulate
from math import prod
from operator import mul

import torch

from ddtree import DDTreeDrafter
from nanogpt.does_it_pay import speedups, table_of
from nanogpt.packing import precision_of
from nanogpt.pictures import maps
from nanogpt.pictures.plots import (
    BLUE,
    FAINT,
    GREEN,
    GREY,
    INK,
    MONO,
    NEWLINE,
    ORANGE,
    RED,
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
from nanogpt.run import trained_cast
from nanogpt.sampling import Sampler
from nanogpt.sizes import SIZES
from tree_attention import Tree, speculate  # chapter 02

# ---------------------------------------------------------------- the drafter, and its slots


def list_letters(ax, x, top, row, text_of_token, color):
    """The three best tokens of a distribution, (V,), below each other, beside bars of their p."""
    for rank, (p, token) in enumerate(zip(*map(torch.Tensor.tolist, row.topk(3)), strict=True)):
        y, name = top - 0.45 * rank, visible(text_of_token(token)).replace("\\n", NEWLINE)
        ax.text(x, y, f"{name} {two_digits(p)}", va="center", **MONO)
        ax.barh(y, 0.32 * p, 0.3, left=x + 0.62, color=tint(color, 0.6))


def draw_drafter(root, log_probs, text_of_token, after):
    """A block of masks goes in, one distribution a slot comes out: the best three tokens of each.
    Below stands what the target says of the second's letter -> the Axes.

    root: a token; log_probs (L, V): one real pass; after: {a title: a distribution of the target,
    (V,)}: on average, and behind two first letters.
    """
    title, probs = "Slot 2 must answer for $the$ and for $to$ at once", log_probs.exp()
    ax = canvas(new_axes(height=4.4), title, (0, len(probs) + 1.1), (-2.3, 4.7))
    draw_cells(ax, 0.8, [visible(text_of_token(root)), *["MASK"] * len(probs)],
               [BLUE, *[SKY] * len(probs)])
    ax.text(0.47, 0.65, "root", ha="center", va="top")
    ax.text(3.5, 0.65, "five slots", ha="center", va="top")
    for slot, row in enumerate(probs, 1):
        ax.annotate("", (slot + 0.47, 2.55), (slot + 0.47, 1.65), arrowprops={"arrowstyle": "->"})
        ax.text(slot + 0.47, 4.15, f"$q_{slot}$", ha="center")
        list_letters(ax, slot, 3.8, row, text_of_token, SKY)
    ax.text(0, -0.9, "The target\nabout\nletter 2:", color=ORANGE, va="top")
    for x, (says, row) in zip((2, 3.5, 5), after.items(), strict=True):
        ax.text(x + 0.45, -0.45, says, ha="center", color=ORANGE)
        list_letters(ax, x, -0.95, row, text_of_token, ORANGE)
    return ax


# ---------------------------------------------------------------- toys


def draw_hole(title, rows):
    """25 rounds: 20 drafts t are sent, and five s are hidden; what stands in their place? -> Axes.

    rows: (on the left, on the right, [(letters, colour), ..]).
    """
    ax = new_axes(height=0.7 + 0.75 * len(rows))
    for i, (left, right, parts) in enumerate(rows):
        y, first = -2 * i, 0
        for letters, color in parts:
            draw_cells(ax, y, letters, [color] * len(letters), first)
            first += len(letters)
        ax.text(0, y + 0.95, left)
        ax.text(25, y + 0.95, right, ha="right", color=color)
    return canvas(ax, title, (0, 25), (y - 0.2, 1.7))


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


def draw_heap(ax, popped, waiting, label, lost=None):
    """One state of the heap: the tree in blue with the order of its pops, dashed what waits; or, if
    there is one, without the order, in red what is lost -> {prefix: its place}."""
    rows = sorted({(), *popped, *waiting}, key=lambda u: (len(u), u))
    heights = tree_rows([[i for i, u in enumerate(rows) if u and u[:-1] == parent]
                         for parent in rows])
    places = {u: (len(u), y) for u, y in zip(rows, heights, strict=True)}
    for u, (x, y) in places.items():
        color, line = (GREY, "--") if u in waiting else (RED if u in (lost or ()) else BLUE, "-")
        if u:
            ax.plot(*zip(places[u[:-1]], (x, y), strict=True), line, color=color, zorder=1)
        ax.text(x, y, label(u), ha="center", va="center",
                bbox={"boxstyle": "round,pad=0.25", "linestyle": line, "edgecolor": color,
                      "facecolor": "white" if u in waiting else tint(color, 0.3)})
    for order, u in enumerate(popped if lost is None else (), 1):
        ax.annotate(order, places[u], (-28, 8), textcoords="offset points", color="white",
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
            f"{''.join(names[rank] for rank in u)} {two_digits(mass(probs, u))}" if u else "root"))
        canvas(ax, title.format(sum(mass(probs, u) for u in popped)), (-0.3, len(probs) + 0.35),
               ax.get_ylim())
        for end, said, x, y, gap in () if len(popped) != 2 else (
                ((2,), "next sibling", 1.07, 1.5, 11), ((1, 0), "first child", 1.19, 0.78, 25)):
            ax.annotate("", places[end], places[1,], arrowprops={
                "arrowstyle": "-|>", "color": INK, "linewidth": 1.8, "shrinkA": gap,
                "shrinkB": gap})
            ax.text(x, y, said, va="center")
    return axes


def draw_lost(names, probs, popped, target):
    """A real tree of the heap, each node with its mass and, in orange, with what the target gives
    it; in red where that is next to nothing -> the Axes.

    names: of each slot the letters by rank; probs, popped: see replay; target: what the target
    gives each prefix, in the order of `popped`.
    """
    ax, kept = new_axes(height=4.8), dict(zip(popped, target, strict=True))
    lost = [u for u in popped if kept[u] < 0.005]
    places = draw_heap(ax, popped, set(), lambda u: "t" if not u else (
        "t" + "".join(slot[rank] for slot, rank in zip(names, u, strict=False))
        + f" {two_digits(mass(probs, u))}"), lost)
    for u, p in kept.items():
        ax.annotate("lost" if u in lost else two_digits(p), places[u], (4 if u[1:] else -4, -17),
                    color=RED if u in lost else ORANGE, textcoords="offset points", ha="center",
                    va="center")
    title = f"Of {len(popped)} rows {len(lost)} go where the target hardly ever does"
    return canvas(ax, title, (-0.3, max(map(len, popped)) + 0.5), ax.get_ylim()), places


# ---------------------------------------------------------------- how many nodes


def price_of_a_row(masses, bend, base):
    """-> the tokens that one more row costs, the number of nodes, and what a round then brings in
    the time of a plain step, if every round has these masses. bend: so many rows take as long as a
    plain step; base: plain steps of a round without a node, its pass included."""
    sizes = range(len(masses) + 1)
    rates = [(1 + sum(masses[:n])) / (base + n / bend) for n in sizes]  # the target's own token too
    n = max(sizes, key=rates.__getitem__)
    return rates[n] / bend, n, rates[n]


def measured_rows(found, T):
    """bend and base of price_of_a_row in a stored contest, twice: straight lines through the prices
    of the heap's trees, and through those of a fixed shape. found: of
    nanogpt.does_it_pay.load_contest."""
    lines, fast = table_of(found, T), speedups(found, T)
    for loop in "DDTree, {} nodes", "fixed tree of the same pass, {} nodes":
        n, price = torch.tensor([[line["budget"], fast[name][1]] for name, line in lines.items()
                                 if line.get("loop") == loop]).double().T
        slope = float(((n - n.mean()) * price).sum() / ((n - n.mean()) ** 2).sum())
        yield 1 / slope, float(price.mean() - slope * n.mean())


def draw_stop(masses, contests, top=0.1, most=30):
    """Masses as falling bars, cut off at `top`, and bands for what a row costs -> the Axes.

    masses: in the heap's order; contests: {run: a stored contest}, read at temperature 1.
    """
    ax, stops = new_axes(height=3.8), []
    ax.bar(range(1, most + 1), masses[:most], 0.8, color=tint(BLUE, 0.6))
    for run, found in contests.items():
        low, high = sorted(price_of_a_row(masses, *fit)[0] for fit in measured_rows(found, 1))
        few, many = (sum(m > price for m in masses) for price in (high, low))
        stops += few, many
        ax.axhspan(low, high, color=INK, alpha=0.3, linewidth=0, zorder=3)
        ax.text(most + 0.9, high, f"price of a row, {run}:\nstop after {few} to {many}",
                ha="right", va="bottom")
    cut = [m for m in masses if m > top]
    for i, _ in enumerate(cut, 1):  # a break: the bar goes on
        ax.plot((i - 0.5, i + 0.5), (0.86 * top, 0.9 * top), color="white", linewidth=3)
    ax.text(len(cut) + 1, 0.97 * top, "these go on to " + " ".join(map(two_digits, cut)), va="top")
    ax.text(len(cut) + 3, masses[len(cut) + 1], "what the drafter promises", color=BLUE,
            va="bottom")
    ax.set(xlim=(0, most + 1), xticks=[1, *stops, most], ylim=(0, top))
    plain_frame(ax, "Stop where the bars sink into the band",
                "node, in the heap's order", "accepted drafts that it brings")
    return ax


# ---------------------------------------------------------------- picked or drawn


def draw_depth(lines):
    """How often a letter of a draft is accepted, letter by letter -> the Axes. lines: {name: (L,)}.
    """
    ax = new_axes(height=3.8)
    for (name, accepted), color, line in zip(lines.items(), (FAINT, GREEN, FAINT, RED, BLUE),
                                             ("o-", "o-", "o--", "o-", "o-"), strict=True):
        ax.plot(range(1, len(accepted) + 1), accepted, line, color=color,
                label=f"{name}: in all {accepted.sum():.2f}")
    ax.legend(loc="upper right", labelcolor="linecolor", frameon=False)
    ax.set(ylim=(-0.05, 1.03), xlim=(0.8, 5.6), xticks=range(1, 6))
    return plain_frame(ax, "Around a drawn path: ahead of the heap at each letter",
                       "letter of the draft", "this letter accepted")


DRAFTED = {  # of section 8's map: a curve's family, style, side, method, {size: its label}
    "head: 4, 8, 12 draws": ("one head", "o-", 1, "03 one head, chain of {}",
                             {4: "", 8: " ", 12: "  "}),
    "4-gram: 4, 8 draws": ("4-gram", "o-", -1, "02 4-gram, chain of {}", {4: "", 8: " "}),
    "": ("block drafter", "o", 1, "05 slots, drawn chain of {}", {3: ""}),
    "head: 4, 8, 16 picks": ("one head", "o--", 1, "03 one head, {} nodes",
                             {4: "", 8: " ", 16: "  "}),
    " ": ("4-gram", "o--", 1, "05 4-gram, {} nodes", {4: "4-gram: picks", 8: "", 16: " "}),
    "our pass: 7, 15 picks": ("block drafter", "o--", 1, "05 DDTree, {} nodes", {7: "", 15: " "}),
}


def draw_drafted(found, T=1):
    """On the map: three drafters, each with draws and with picks -> the Axes. found: a stored
    contest."""
    fast = speedups(found, T)
    ax = maps.draw_lines("Each drafter is faster with draws", {
        name: (maps.FAMILIES[family], style, side, {
            label: fast[method.format(n)][:2] for n, label in labels.items()})
        for name, (family, style, side, method, labels) in DRAFTED.items()},
        (0, 5, 0, 6.6), (1, 1.5))
    ax.annotate("our pass: 3 draws", fast["05 slots, drawn chain of 3"][1::-1], (1.75, 1.3),
                color=maps.FAMILIES["block drafter"], weight="bold",
                arrowprops={"arrowstyle": "-", "relpos": (0.2, 1)})
    return ax


def fastest(found, loop, trees):
    """-> the best speed-up of a loop at temperature 0, and at which size; of a loop of shapes
    either among the trees or among the chains."""
    def size(shape):
        return shape if isinstance(shape, int) else (
            (max(shape) > 1) == trees and sum(accumulate(shape, mul)))

    fast = speedups(found, 0)
    return max((fast[name][2], nodes) for name, line in table_of(found, 0).items()
               if line.get("loop") == loop and (nodes := size(line["budget"])))


AT_ZERO = {  # a drafter's heap, its counted or fixed shape, and its chain, in chapter 02's loop
    "our pass": ("DDTree, {} nodes", "fixed tree of the same pass, {} nodes",
                 "block chain of {}, the favourites"),
    "small GPT": ("", "picked tree {}, 57K GPT", "picked tree {}, 57K GPT"),
    "4-gram": ("4-gram, {} nodes", "", ""),
    "head": ("one head, {} nodes", "", "one head, chain of {}"),
}


def at_zero(found):
    """The rows of a table: speed-ups at temperature 0, each loop at its fastest size."""
    return [[who, *("{:.2f}x ({})".format(*fastest(found, loop, column < 2)) if loop else "-"
                    for column, loop in enumerate(loops))] for who, loops in AT_ZERO.items()]


def step_round(args, dataset, device, prompt):
    """An instructive round of DDTree -> its trace; see nanogpt/pictures/step.py."""
    m = trained_cast(args, dataset, device)
    dice, decode = VisibleDice(args.seed), dataset.tokenizer.decode
    drafter = DDTreeDrafter(m.block, 12)
    marginals = remember(drafter, "marginals")
    steps = speculate(m.target, drafter, prompt, Sampler(1.0), dice)
    one = instructive(watch(steps, dice, prompt, args.steps, m.target.config.block_size,
                            lambda: marginals[-1].exp().tolist()), decode)
    # What the drafter gave below a node depends on its depth alone.
    one["q"] = [(*one["note"], None)[depth]
                for depth in Tree(one["tokens"], one["parents"]).depths.tolist()]
    return trace(
        one, decode, dataset.vocab_size, chapter="05", title="DDTree", rule="walk", drafted="best",
        scores_are="the mass of the whole prefix", say_draft="The number at a node is the mass "
        "that the drafter gives its whole prefix.",
        subtitle=f"{SIZES[args.size].label} target in {precision_of(m.target)}, one "
        "block-diffusion pass, B = 12, temperature 1")
