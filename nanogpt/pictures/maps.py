"""The one map of all methods: what a round costs across, what it writes upwards.

    draw_map(found, T, title)  # the best loop of each family in colour

found: of nanogpt.does_it_pay.load_contest. On a line from the origin all points have one speed-up.
"""

from collections import defaultdict

from nanogpt.does_it_pay import PLAINLY, briefly, speedups, table_of
from nanogpt.pictures.plots import FAINT, GREY, INK, new_axes, plain_frame

# Each family has one colour on every map; those of plots.py have meanings of their own. A family
# that is not among them has no place on the map of the best.
FAMILIES = {"one head": "#8C1D40", "57K GPT": "#7B3294", "bigram": "#A6611A",
            "4-gram": "#D9730D", "two heads": "#4A6B00", "block drafter": "#1F4E5F",
            "lookup": "#5B74C0", "another drafter": "#444444"}
FASTER = (0.5, 1, 1.5, 2, 3)  # the lines of equal speed-up
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


def draw_map(found, T, title, marked=None):
    """Every method is a point. The loop with the fastest method of each family is a curve over its
    budgets, numbered, the fastest first, and named below -> the Axes.

    marked: {method: a label for its point}.
    """
    everybody, best = curves(found, T), fastest(found, T)
    points = {name: point for curve in everybody.values() for name, point in curve.items()}
    tokens, price = (max(values) for values in zip(*points.values(), strict=True))
    ranked = sorted(best, key=lambda family: -speed(points, best[family][0]))
    ax = new_axes(height=4.3 + 0.24 * len(ranked))
    draw_ground(ax, 1.1 * min(price, tokens), 1.1 * tokens, speed(points, best[ranked[0]][0]))
    ax.plot([price for _, price in points.values()], [tokens for tokens, _ in points.values()],
            "o", color=GREY, markersize=2, zorder=3)
    taken = []
    for number, family in enumerate(ranked, 1):
        (name, loop), color = best[family], FAMILIES[family]
        ax.plot(*list(zip(*everybody[loop].values(), strict=True))[::-1], "o-", color=color,
                markersize=4, linewidth=2, zorder=4,
                label=f"{number}  {briefly(name, family)}: {speed(points, name):.2f}x")
        draw_number(ax, number, points[name][::-1], taken, color)
    for name, label in (marked or {}).items():
        ax.plot(*points[name][::-1], "o", color="none", markeredgecolor=INK, markersize=12,
                zorder=6)
        ax.annotate(label, points[name][::-1], (-9, 7), textcoords="offset points", ha="right",
                    bbox={"color": "white", "pad": 1}, zorder=7)
    ax.legend(loc="upper left", bbox_to_anchor=(-0.02, -0.13), frameon=False,
              labelcolor="linecolor", borderaxespad=0, labelspacing=0.3, handlelength=1.2)
    plain_frame(ax, title, "price of a round, in plain steps", "tokens a round")
    ax.grid(visible=False)
    return ax


def way_of(line):
    """How a stored method sends its guesses, and who judges them -> its name in a table."""
    loop, shape = line["loop"], line["budget"]
    if not line["drawn"]:
        return "picked tree (02 to 05)"
    if "two chains" in loop:
        return "two chains (06)"
    if "chain of" not in loop and not (isinstance(shape, list) and max(shape) == 1):
        return "drawn tree (02)"
    whole = "BV" in loop or "block verification" in loop
    return "chain, judged as a block (06)" if whole else "chain, draft by draft (01)"
