"""The one map of all methods: what a round costs across, what it writes upwards.

    draw_map(found, T, title)  # the best loop of each family in colour
    draw_lines(title, lines, window)  # a lesson's own: is a step steeper than the line it leaves?
    draw_left(title, bars)  # and no map: a speed-up that loses what it owes to something else

found: of nanogpt.does_it_pay.load_contest. On a line from the origin all points have one speed-up.
"""

import re
from collections import defaultdict

from nanogpt.chapter import written
from nanogpt.does_it_pay import (
    PLAINLY,
    best_of_all,
    briefly,
    length_of,
    speedups,
    table_of,
)
from nanogpt.pictures.plots import FAINT, GREY, INK, canvas, new_axes, plain_frame, tint

# Each family has one colour on every map; those of plots.py have meanings of their own. A family
# that is not among them has no place on the map of the best.
FAMILIES = {"one head": "#8C1D40", "57K GPT": "#7B3294", "bigram": "#A6611A",
            "4-gram": "#D9730D", "two heads": "#4A6B00", "block drafter": "#1F4E5F",
            "lookup": "#5B74C0", "another drafter": "#444444"}
FASTER = (1, 1.5, 2, 3)  # the lines of equal speed-up
SLOW = 1.3  # up to here a method is no point on the map
WARM = (0.6, 1)  # at T = 0 all texts of a contest run into one phrase, see tests/test_contest.py

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


def fastest(found, T):
    """{family: (its fastest method, the loop)}, those that have a colour."""
    everybody, methods, best = curves(found, T), table_of(found, T), {}
    for loop, points in everybody.items():
        for name in points:
            family, mine = methods[name]["family"], (speed(points, name), name, loop)
            if family in FAMILIES:
                best[family] = max(best.get(family, mine), mine)
    return {family: one[1:] for family, one in best.items()}


# ---------------------------------------------------------------- the map


def draw_rays(ax, window, rays, dashed=()):
    """Lines from the corner, on each of which all points are equally fast; the grey area is slower
    than plain decoding. window: left, right, bottom, top; rays, dashed: speed-ups."""
    left, right, bottom, top = window
    ax.fill_between([0, right], [0, right], color=GREY, alpha=0.2, linewidth=0)
    for fast in (*rays, *dashed):
        end, mine = min(right, top / fast), fast in dashed
        ax.plot([0, end], [0, fast * end], "--" if mine else "-", color=INK if mine else GREY,
                linewidth=1.6 if fast == 1 else 0.8, zorder=1)
        back = end - (0.07 if fast in dashed[1:] else 0.03) * (right - left)
        ax.text(back, fast * back, f"{fast:.2f}x" if mine else f"{fast:g}x",
                color=INK if mine else FAINT, ha="right", va="center",
                bbox={"color": "white", "pad": 1}, zorder=2)
    if left < 1:
        ax.plot(1, 1, "o", color=INK, markersize=7, zorder=5)
        ax.annotate("plain", (1, 1), (0, -8), textcoords="offset points", va="top", ha="center")
    ax.set(xlim=(left, right), ylim=(bottom, top))
    ax.grid(visible=False)


def framed(ax, title):
    """What stands around a map."""
    return plain_frame(ax, title, "price of a round, in plain steps", "tokens a round")


def draw_lines(title, lines, window, rays=FASTER, dashed=()):
    """Some ways to draft, each a curve over more and more guesses -> the Axes.

    lines: {name: (colour, style, side, {label: (tokens, price)})}; a label stands above its point
    on the left, or, if side is -1, below it on the right; the name, at the end of the curve.
    """
    ax = new_axes(height=4.4)
    for name, (color, style, side, points) in lines.items():
        ends = [point[::-1] for point in points.values()]
        ax.plot(*zip(*ends, strict=True), style, color=color, linewidth=2, markersize=5, zorder=4)
        texts = [(label, end, (-5 * side, 5 * side), "normal")
                 for label, end in zip(points, ends, strict=True)]
        for text, end, beside, weight in (*texts, (name, ends[-1], (9, 0), "bold")):
            ax.annotate(text, end, beside, textcoords="offset points", color=color, weight=weight,
                        ha="left" if beside[0] > 0 else "right", zorder=6,
                        va={-5: "top", 0: "center", 5: "bottom"}[beside[1]])
    framed(ax, title)
    draw_rays(ax, window, rays, dashed)
    return ax


def draw_map(found, T, title, marked=None, names=None):
    """Every method is a point. The loop with the fastest method of each family is a curve over its
    budgets, with its name at its end; the fastest of all is the one large dot, and its curve has
    its budgets beside it; grey: what else is above SLOW -> the Axes.

    marked: {method: (a label for its point, where it stands beside it, in points)}; names: {family:
    where its name stands beside the curve's end}.
    """
    everybody, best = curves(found, T), fastest(found, T)
    points = {name: point for curve in everybody.values() for name, point in curve.items()}
    tokens, price = (max(values) for values in zip(*points.values(), strict=True))
    family = max(best, key=lambda family: speed(points, best[family][0]))
    winner = best[family][0]
    ax = new_axes(height=4.6)
    framed(ax, title)
    most = speed(points, winner)
    draw_rays(ax, (0, 1.5 * min(price, tokens), 0, 1.12 * tokens),
              [line for line in FASTER if abs(line - most) > 0.4], [most])
    ax.plot(*zip(*[points[name][::-1] for name in points if speed(points, name) > SLOW],
                 strict=True), "o", color=GREY, markersize=2, zorder=3)

    def label(text, name, beside, color, **how):
        ax.annotate(text, points[name][::-1], beside, textcoords="offset points", va="center",
                    ha="left" if beside[0] > 0 else "right", color=color, zorder=7,
                    bbox={"color": "white", "pad": 0.5}, **how)

    for who, (_, loop) in best.items():
        ax.plot(*list(zip(*everybody[loop].values(), strict=True))[::-1], "o-",
                color=FAMILIES[who], markersize=4, linewidth=2, zorder=4)
        label(who, [*everybody[loop]][-1], (names or {}).get(who, (8, 0)), FAMILIES[who])
    ax.plot(*points[winner][::-1], "o", color=FAMILIES[family], markersize=13, zorder=8)
    said = briefly(winner, family).replace(": ", ",\n").replace(", BV", ",\njudged as a block")
    label(f"the fastest:\n{said}", winner, (-14, 20), FAMILIES[family], weight="bold")
    curve = [*everybody[best[family][1]]]
    for name in curve:  # below the family's name at the end
        label(written(table_of(found, T)[name]["budget"]), name,
              (8, -14) if name == curve[-1] else (11, -6), FAMILIES[family])
    for name, (text, beside) in (marked or {}).items():
        ax.plot(*points[name][::-1], "o", color="none", markeredgecolor=INK, markersize=11,
                zorder=6)
        label(f"{text}: {speed(points, name):.2f}x", name, beside, INK)
    return ax


def draw_left(title, bars):
    """What is left of a speed-up, bar below bar -> the Axes.

    bars: [(text, speed-ups)]: one; or two, between which it lies: the bar ends hatched; or none,
    for a heading. The last bar before the hatched one is the one to quote, and darker.
    """
    ax, color = new_axes(height=0.5 + 0.42 * len(bars)), FAMILIES["one head"]
    quoted = next(y for y, (_, fast) in enumerate(bars) if len(fast) == 2) - 1
    for y, (text, fast) in enumerate(bars):
        if fast:
            ax.barh(y, fast[0], 0.8, color=tint(color, 0.6 if y == quoted else 0.25))
            ax.barh(y, fast[-1] - fast[0], 0.8, fast[0], color="white", edgecolor=tint(color, 0.5),
                    hatch="////", linewidth=0)
            says = " to ".join(f"{value:.{3 - len(fast)}f}" for value in fast)
            ax.text(fast[-1] + 0.03, y, f"{says}x", va="center", weight="bold")
        ax.text(0.03 if fast else 0, y, text, va="center")
    return canvas(ax, title, (0, 3.3), (len(bars) - 0.5, -0.5))


def way_of(line):
    """How a stored method sends its guesses, and who judges them -> its name in a table."""
    loop, shape = line["loop"], line["budget"]
    chain = "chain of" in loop or isinstance(shape, list) and max(shape) == 1
    if not line["drawn"]:
        return "picked chain" if chain else "picked tree (02 to 05)"
    if "two chains" in loop:
        return "two chains (06)"
    if not chain:
        return "drawn tree (02)"
    whole = "BV" in loop or "block verification" in loop
    return "chain, judged as a block (06)" if whole else "chain, draft by draft (01)"


def kind_of(line):
    """Which chapter's loop a method of "loops" ran in, 1 or 2; its way, its family."""
    first = line["chapter"] == "01" or re.search("block verification|chapter 01", line["loop"])
    return 1 if first else 2, way_of(line), line["family"]


def cell(found, *which):
    """The best of a kind, as a table has it: its drafts or its shape and its speed-up at T = 1,
    then at .6; bold if it was the fastest of all or level with it. which: of kind_of."""
    said = []
    for T in sorted(WARM, reverse=True):
        best = best_of_all({"": found}, T, kind_of)
        if which in best:
            name, fast, front = best[which]
            line = table_of(found, T)[name]
            drafts = length_of(line) or written(line["budget"])
            said.append("**" * front + f"{drafts}: {fast['']:.2f}" + "**" * front)
    return ", ".join(said)
