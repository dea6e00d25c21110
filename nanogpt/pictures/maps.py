"""The one map of all methods: what a round costs across, what it writes upwards.

    draw_map(found, T)                    # the best loop of each family
    draw_map(found, T, highlight="05")    # a chapter's, or those whose name holds these words
    draw_yours(draft, bend, alpha)        # from three numbers of your own
    main(path of a contest)               # map.png for the front page, map.json for the live one

found: of nanogpt.does_it_pay.load. On a line from the origin all points have one speed-up.
"""

import json
import sys
from collections import defaultdict
from itertools import cycle
from pathlib import Path

from nanogpt.does_it_pay import PLAINLY, leaders, load, speedups, table_of
from nanogpt.pictures.plots import FAINT, GREY, INK, new_axes, plain_frame
from nanogpt.three_numbers import best, yours

# Each family has one colour on every map; those of plots.py have meanings of their own. A family
# that is not among them has no place on the map of the best.
FAMILIES = {"one head": "#8C1D40", "57K GPT": "#7B3294", "bigram": "#A6611A",
            "two heads": "#4A6B00", "block drafter": "#1F4E5F", "lookup": "#5B74C0",
            "another drafter": "#444444"}
SPARE = ("#C2185B", "#7F6000", "#00796B", "#6B4C9A", "#B04A00", "#546E7A", "#9E5F8A")  # more loops
FASTER = (0.5, 1, 1.5, 2, 3)  # the lines of equal speed-up

# ---------------------------------------------------------------- what is on it


def curves(found, T):
    """Each loop over its budgets -> {(chapter, loop): {method: (tokens, price)}}."""
    fast, lines = speedups(found, T), defaultdict(dict)
    for name, line in table_of(found, T).items():
        if line["family"] != PLAINLY:
            lines[line["chapter"], line["loop"]][name] = fast[name][:2]
    return dict(lines)


def speed(points, name):
    """Of one of these points. points: {method: (tokens, price)}."""
    tokens, price = points[name]
    return tokens / price


def chosen(found, T, highlight=None):
    """Which loops have a colour, and what the colour stands for -> {(chapter, loop): key}.

    See draw_map. Raises ValueError if the highlight means none.
    """
    everybody, methods = curves(found, T), table_of(found, T)
    if highlight:
        words = (highlight,) if isinstance(highlight, str) else highlight
        kept = {loop: loop for loop in everybody if any(word in " ".join(loop) for word in words)}
        if not kept:
            raise ValueError(f"highlight is '{highlight}'; it must be a chapter's number, or words "
                             "of a loop's name")
        return kept
    fastest = {}  # of each family: (speed-up, loop); a colour stays with a family
    for loop, points in everybody.items():
        for name in points:
            family = methods[name]["family"]
            fastest[family] = max(fastest.get(family, (0,)), (speed(points, name), loop))
    return {loop: family for family, (_, loop) in fastest.items() if family in FAMILIES}


def colors_of(found, T, loops):
    """{loop: its family's colour; a further loop of the family has one to itself}."""
    families = {(line["chapter"], line["loop"]): line["family"]
                for line in table_of(found, T).values() if line["family"] != PLAINLY}
    colors, spare = {}, cycle(SPARE)
    for loop in loops:
        own = FAMILIES.get(families[loop])
        colors[loop] = next(spare) if own is None or own in colors.values() else own
    return colors


# ---------------------------------------------------------------- the map


def draw_ground(ax, right, top):
    """Lines of equal speed-up, up to these prices and tokens; below 1x it is slower than plain."""
    ax.fill_between([0, right], [0, right], color=GREY, alpha=0.2, linewidth=0)
    for fast in FASTER:
        end = min(right, top / fast)
        ax.plot([0, end], [0, fast * end], color=GREY, linewidth=1.6 if fast == 1 else 0.8,
                zorder=1)
        ax.text(0.97 * end, 0.97 * fast * end, f"{fast:g}x", color=FAINT, ha="right", va="center",
                bbox={"color": "white", "pad": 1}, zorder=2)
    ax.plot(1, 1, "o", color=INK, markersize=7, zorder=5)
    ax.annotate("plain", (1, 1), (6, -4), textcoords="offset points", va="top")
    ax.set(xlim=(0, right), ylim=(0, top))


def draw_loops(ax, loops, colors, title, notes=None):
    """Curves over budgets; those with a colour are numbered, the fastest first, named below.

    loops: {loop: {method: (tokens, price)}}; colors: {loop: its colour}; notes: {method: what is
    said behind its speed-up}.
    """
    points = [point for curve in loops.values() for point in curve.values()]
    tokens, price = (max(values) for values in zip(*points, strict=True))
    draw_ground(ax, 1.1 * min(price, tokens), 1.1 * tokens)
    for loop, curve in loops.items():
        if loop not in colors:
            ax.plot(*list(zip(*curve.values(), strict=True))[::-1], "o-", color=GREY,
                    markersize=2.5, linewidth=0.9, zorder=3)
    tops = {loop: max(loops[loop], key=lambda name, loop=loop: speed(loops[loop], name))
            for loop in colors}
    ranked = sorted(tops, key=lambda loop: -speed(loops[loop], tops[loop]))
    for number, loop in enumerate(ranked, 1):
        name, color = tops[loop], colors[loop]
        label = f"{number}  {name}: {speed(loops[loop], name):.2f}x{(notes or {}).get(name, '')}"
        ax.plot(*list(zip(*loops[loop].values(), strict=True))[::-1], "o-", color=color,
                markersize=4, linewidth=2, zorder=4, label=label)
        y, x = loops[loop][name]
        ax.plot(x, y, "o", color=color, markersize=16, zorder=6)
        ax.text(x, y, number, color="white", ha="center", va="center_baseline", zorder=7)
    ax.legend(loc="upper left", bbox_to_anchor=(-0.02, -0.13), frameon=False,
              labelcolor="linecolor", borderaxespad=0, labelspacing=0.3, handlelength=1.2)
    plain_frame(ax, title, "price of a round, in plain steps", "tokens a round")
    ax.grid(visible=False)
    return ax


def draw_map(found, T, highlight=None, ax=None, title=None):
    """Every loop of the contest over its budgets; some in colour, with their names below.

    highlight: a chapter's number, or words of a loop's name, or several of these; default the best
    loop of each family; title: default, who is fastest.
    -> the Axes. Raises ValueError if the highlight means none.
    """
    shown = chosen(found, T, highlight)
    colors = colors_of(found, T, shown)
    ax = ax or new_axes(height=4.3 + 0.24 * len(shown))
    fast = speedups(found, T)
    winner, level = leaders(found, T, list(fast))
    return draw_loops(ax, curves(found, T), colors,
                      title or f"T = {T:g}, the fastest is on the steepest line:\n{winner}, "
                      f"{fast[winner][2]:.2f}x", dict.fromkeys(level, ", level with it"))


def draw_yours(draft, bend, alpha, one_pass=False, found=None, T=1):
    """The map for a drafter and a machine of yours, see three_numbers.yours; found: with it, the
    contest's methods in grey. -> the Axes"""
    mine = {loop: {loop.format(budget): point for budget, point in curve.items()}
            for loop, curve in yours(draft, bend, alpha, one_pass).items()}
    name, fast = best(yours(draft, bend, alpha, one_pass))
    others = curves(found, T) if found else {}
    return draw_loops(new_axes(height=4.8), others | mine, dict(zip(mine, SPARE, strict=False)),
                      f"A draft at {draft:.2g}, {bend:.3g} rows for a step, alpha {alpha:.2g}:\n"
                      f"{name}, {fast:.2f}x")


def for_page(found):
    """{temperature: {loop: [[price, tokens], ...]}}: what the live page draws."""
    return {T: {" ".join(loop): [[round(price, 3), round(tokens, 3)]
                                 for tokens, price in points.values()]
                for loop, points in curves(found, float(T)).items()} for T in found["tables"]}


def main(path, folder=Path(__file__).parent):
    found = load(path)
    ax = draw_map(found, 1, ax=new_axes(height=6))
    ax.figure.savefig(folder / "map.png", dpi=200)
    (folder / "map.json").write_text(json.dumps(for_page(found)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
