"""The one map of all methods: what a round costs across, what it writes upwards.

    draw_map(found, T)                    # the best loop of each family
    draw_map(found, T, highlight="05")    # a chapter's, or those whose name holds these words
    draw_ladder(files, "05")              # the best of all chapters, one below the other
    python -m nanogpt.pictures.maps FILE  # map.png for the front page, map.json for the live one

found: of nanogpt.does_it_pay.load_contest. On a line from the origin all points have one speed-up.
"""

import json
from collections import defaultdict
from itertools import cycle
from pathlib import Path

import matplotlib.pyplot as plt

from nanogpt.does_it_pay import (
    PLAINLY,
    briefly,
    by_chapter,
    leaders,
    load_contest,
    over_hours,
    speedups,
    table_of,
)
from nanogpt.pictures.plots import BLUE, FAINT, GREY, INK, WIDTH, new_axes, plain_frame
from nanogpt.terminal import Parser, run

# Each family has one colour on every map; those of plots.py have meanings of their own. A family
# that is not among them has no place on the map of the best.
FAMILIES = {"one head": "#8C1D40", "57K GPT": "#7B3294", "bigram": "#A6611A",
            "4-gram": "#D9730D", "two heads": "#4A6B00", "block drafter": "#1F4E5F",
            "lookup": "#5B74C0", "another drafter": "#444444"}
SPARE = ("#00796B", "#7F6000", "#C2185B", "#6B4C9A", "#B04A00", "#546E7A", "#9E5F8A")  # more loops
FASTER = (0.5, 1, 1.5, 2, 3)  # the lines of equal speed-up
FRONT = {"one head": "one head that reads the target's states", "two heads": "two such heads",
         "57K GPT": "a small GPT",
         "block drafter": "one pass for all guesses", "bigram": "a table of letter pairs",
         "4-gram": "a table of what followed three letters"}

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


def draw_ground(ax, right, top, steepest):
    """Lines of equal speed-up, up to these prices and tokens, and that of the fastest method, which
    is dashed; below 1x it is slower than plain."""
    ax.fill_between([0, right], [0, right], color=GREY, alpha=0.2, linewidth=0)
    for fast in (*FASTER, steepest):
        end, mine = min(right, top / fast), fast is steepest
        ax.plot([0, end], [0, fast * end], "--" if mine else "-", color=INK if mine else GREY,
                linewidth=1.6 if fast == 1 else 0.8, zorder=1)
        at = (0.89 if mine else 0.97) * end
        ax.text(at, fast * at, f"{fast:.2f}x" if mine else f"{fast:g}x",
                color=INK if mine else FAINT, ha="right", va="center",
                bbox={"color": "white", "pad": 1}, zorder=2)
    ax.plot(1, 1, "o", color=INK, markersize=7, zorder=5)
    ax.annotate("plain", (1, 1), (0, -8), textcoords="offset points", va="top", ha="center")
    ax.set(xlim=(0, right), ylim=(0, top))


def draw_number(ax, number, point, taken, color):
    """A dot at its point (price, tokens), and its number beside it, at the end of a thin line: off
    the rays, so that nobody takes the number's place for a point. taken: grows."""
    right, top = ax.get_xlim()[1], ax.get_ylim()[1]
    # Away from the ray, further and further, on its upper side first.
    steps = [side * n for n in range(1, 9) for side in (1, -1)]
    places = [(point[0] - 0.035 * right * n, point[1] + 0.045 * top * n) for n in steps]
    place = next((p for p in places if 0 < p[0] < right and 0 < p[1] < top and not any(
        abs(p[0] - x) < 0.05 * right and abs(p[1] - y) < 0.06 * top for x, y in taken)), places[0])
    taken += [place, point]
    ax.plot(*zip(point, place, strict=True), color=color, linewidth=1, zorder=5)
    ax.plot(*point, "o", color=color, markersize=8, zorder=6)
    ax.plot(*place, "o", color="white", markeredgecolor=color, markersize=15, zorder=7)
    ax.text(*place, number, color=color, ha="center", va="center_baseline", zorder=8)


def draw_loops(ax, loops, colors, title, notes=None, names=None, dots=False):
    """Curves over budgets; those with a colour are numbered, the fastest first, named below.

    loops: {loop: {method: (tokens, price)}}; colors: {loop: its colour}; notes: {method: what is
    said behind its speed-up}; names: {its fastest method, or the loop: what stands below for it};
    dots: the others are points, without curves.
    """
    points = [point for curve in loops.values() for point in curve.values()]
    tokens, price = (max(values) for values in zip(*points, strict=True))
    draw_ground(ax, 1.1 * min(price, tokens), 1.1 * tokens,
                max(speed(curve, name) for curve in loops.values() for name in curve))
    for loop, curve in loops.items():
        if loop not in colors:
            ax.plot(*list(zip(*curve.values(), strict=True))[::-1], "o" if dots else "o-",
                    color=GREY, markersize=2 if dots else 2.5, linewidth=0.9, zorder=3)
    tops = {loop: max(loops[loop], key=lambda name, loop=loop: speed(loops[loop], name))
            for loop in colors}
    ranked = sorted(tops, key=lambda loop: -speed(loops[loop], tops[loop]))
    taken = []
    for number, loop in enumerate(ranked, 1):
        name, color = tops[loop], colors[loop]
        said = (names or {}).get(loop, (names or {}).get(name, name))
        label = (f"{number}  {said}: {speed(loops[loop], name):.2f}x{(notes or {}).get(name, '')}")
        ax.plot(*list(zip(*loops[loop].values(), strict=True))[::-1], "o-", color=color,
                markersize=4, linewidth=2, zorder=4, label=label)
        draw_number(ax, number, loops[loop][name][::-1], taken, color)
    ax.legend(loc="upper left", bbox_to_anchor=(-0.02, -0.13), frameon=False,
              labelcolor="linecolor", borderaxespad=0, labelspacing=0.3, handlelength=1.2)
    plain_frame(ax, title, "price of a round, in plain steps", "tokens a round")
    ax.grid(visible=False)
    return ax


def draw_map(found, T, highlight=None, ax=None, title=None):
    """Every loop of the contest over its budgets; some in colour, with their names below.

    highlight: a chapter's number, or words of a loop's name, or several of these; default the best
    loop of each family, and of all others only the points; title: default, who is fastest.
    -> the Axes. Raises ValueError if the highlight means none.
    """
    shown = chosen(found, T, highlight)
    colors = colors_of(found, T, shown)
    ax = ax or new_axes(height=4.3 + 0.24 * len(shown))
    fast = speedups(found, T)
    winner, level = leaders(found, T, list(fast))
    names = {} if highlight else {name: briefly(name, line["family"])
                                  for name, line in table_of(found, T).items()}
    return draw_loops(ax, curves(found, T), colors,
                      title or f"T = {T:g}, the fastest is on the dashed line:\n{winner}, "
                      f"{fast[winner][2]:.2f}x", dict.fromkeys(level, ", level with it"),
                      names=names, dots=not highlight)


def draw_by_guesses(found, T, loops, title):
    """Speed-up over the number of guesses, a line a loop.

    loops: {a loop's name: what stands at its line}, with numbers as budgets -> the Axes
    """
    ax, fast = new_axes(height=3.4), speedups(found, T)
    for (loop, says), color in zip(loops.items(), (INK, *SPARE), strict=False):
        line = {row["budget"]: fast[name][2] for name, row in table_of(found, T).items()
                if row.get("loop") == loop}
        ax.plot(list(line), list(line.values()), "o-", color=color)
        ax.annotate(says, (max(line), line[max(line)]), (8, -7), color=color, va="center",
                    textcoords="offset points")
    ax.set_ylim(bottom=0)
    return plain_frame(ax, title, "guesses a round", "speed-up over plain decoding")


# ---------------------------------------------------------------- the ladder


def rungs(files, T):
    """The best method of each chapter with each kind of drafter, the slowest first
    -> [(method, family, lowest and highest speed-up)]; see nanogpt.does_it_pay.over_hours."""
    parts = {(chapter, family) for found in files.values() if f"{T:g}" in found["tables"]
             for chapter, families in by_chapter(found, T).items() for family in families}
    best = [(*over_hours(files, T, part)[:3], part[1]) for part in parts]
    return [(name, family, low, high) for name, low, high, family
            in sorted(best, key=lambda rung: (rung[1] + rung[2], rung[0]))]


def rung_label(name, family):
    """Example: '06 chain of 4, block verification' of the 57K GPT is '06 chain of 4, BV (57K GPT)'.
    """
    short = name.replace("block verification", "BV")
    return short if any(word in name for word in family.split()) else f"{short} ({family})"


def draw_ladder(files, chapter=None, temperatures=(0, 1)):
    """All chapters' best methods, the fastest on top, from the lowest to the highest speed-up of
    several contests; those of one chapter in colour, T = 0 above T = 1.

    files: {name: of load_contest}; chapter: its number, "03", or None -> a list of Axes, one a
    temperature
    """
    found = {T: rungs(files, T) for T in temperatures}
    heights = [len(lines) for lines in found.values()]
    _, axes = plt.subplots(len(found), figsize=(WIDTH, 0.9 + 0.23 * sum(heights)), sharex=True,
                           layout="constrained", height_ratios=heights, squeeze=False)
    for (ax,), (T, lines) in zip(axes, found.items(), strict=True):
        labels = [rung_label(name, family) for name, family, *_ in lines]
        ax.set_yticks(range(len(lines)), labels, fontsize=9)
        for row, (label, (name, _, low, high)) in enumerate(
                zip(ax.get_yticklabels(), lines, strict=True)):
            mine = name[:2] == chapter
            color = BLUE if mine else FAINT
            ax.plot([low, high], [row, row], "o-", color=color, linewidth=3, markersize=5)
            ax.annotate(f"{(low + high) / 2:.1f}x", (high, row), (7, 0), va="center", color=color,
                        textcoords="offset points", fontsize=9)
            label.set(color=color if mine else INK, weight="bold" if mine else "normal")
        ax.axvline(1, color=INK, linewidth=1)
        plain_frame(ax, f"T = {T:g}").grid(visible=False)
        ax.spines["left"].set_visible(False)
        ax.tick_params(length=0)
    if chapter:
        axes[0, 0].set_title(f"Chapter {chapter} in blue. T = {temperatures[0]:g}")
    ax.set_xlabel("times as fast as plain decoding", loc="right")
    ax.set_xlim(right=0.4 + max(high for lines in found.values() for *_, high in lines))
    return list(axes.flat)


def for_page(found):
    """{temperature: {loop: [[price, tokens], ...]}}: what the live page draws."""
    return {T: {" ".join(loop): [[round(price, 3), round(tokens, 3)]
                                 for tokens, price in points.values()]
                for loop, points in curves(found, float(T)).items()} for T in found["tables"]}


def main(argv=None, folder=Path(__file__).parent):
    p = Parser("Draw the map of the front page, and write what the live page draws.")
    p.add_argument("contest", help="a file that nanogpt.does_it_pay has saved")
    found = load_contest(p.parse_args(argv).contest)
    shown = {loop: family for loop, family in chosen(found, 1).items() if family in FRONT}
    ax = draw_loops(
        new_axes(height=5.6), curves(found, 1), colors_of(found, 1, shown),
        f"Steeper is faster. Temperature 1, grey: all other methods\n({found['machine']})",
        dots=True, names={loop: FRONT[family] for loop, family in shown.items()})
    ax.figure.savefig(folder / "map.png", dpi=200)
    (folder / "map.json").write_text(json.dumps(for_page(found)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    run(main)
