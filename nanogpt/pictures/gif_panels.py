"""The panels of a GIF's pictures: bars, dice, the mask, what a round brought, the cache."""

import matplotlib.pyplot as plt

from nanogpt.pictures import plots
from nanogpt.pictures.gif_tree import (
    BEFORE,
    HEADS,
    HEIGHT,
    MIDDLE,
    P_INK,
    Q_INK,
    new_panel,
    places,
)
from nanogpt.pictures.plots import (
    BLUE,
    DRAFTER,
    FAINT,
    GREY,
    INK,
    MONO,
    ORANGE,
    TARGET,
    draw_mask,
    tint,
)
from nanogpt.pictures.story import several, short


def draw_lit_mask(ax, trace, frame):
    """The tree's mask, lit as far as it has rows."""
    n, lit = trace["verified"], min(frame["shown"], trace["verified"])
    mask = [[row < lit and column in trace["mask"][row] for column in range(n)]
            for row in range(n)]
    ax.axis("on")
    draw_mask(mask, [node["text"] for node in trace["nodes"][:n]], ax,
              "who sees whom: the attention mask")
    ax.title.set(fontsize=10, color=FAINT)
    cell = 72 * HEIGHT * ax.get_position().height / n  # in points; two letters must fit into it
    ax.tick_params(labelsize=min(10, 0.75 * cell), pad=1)


def head_colors(name, others):
    """Of the bars and the name of a head, if `name` names one; else the others."""
    for head, color in enumerate(plots.HEADS, 1):
        if name.endswith(f"head {head}"):
            return tint(color, 0.75), color
    return others


def draw_distribution(figure, ax, bars, count):
    """Bars of p, of q or of both; `count` rows, the marked ones among them.

    bars: see Story.bars; numbers that are no distribution are all shown.
    """
    count = count if bars["target_name"] else max(count, len(bars["rows"]))
    marked = [r for r in bars["rows"] if r["marked"]]
    kept = [r for r in bars["rows"] if not r["marked"]][:max(count - len(marked), 0)]
    rows = [r for r in bars["rows"] if r in marked or r in kept]
    both = [(key, color, ink, name) for key, color, ink, name in (
        ("target", TARGET if bars["target_name"] else tint(INK, 0.6), P_INK, bars["target_name"]),
        ("draft", *head_colors(bars["guess_name"], (DRAFTER, Q_INK)), bars["guess_name"]))
        if any(row[key] is not None for row in rows)]
    left, top = ax.get_position().x0, ax.get_position().y1
    figure.text(left, top + (0.055 if len(both) > 1 else 0.012), bars["title"], fontsize=10,
                color=INK, **MONO)
    for place, (_, _, ink, name) in enumerate(reversed(both)):
        figure.text(0.985 - 0.17 * place, top + 0.012, name, fontsize=10, color=ink, ha="right",
                    fontweight="bold")
    longest = max([row[key] or 0 for row in rows for key, *_ in both] + [0.01])
    wide = max(len(row["text"]) for row in rows)  # of the names, in letters
    for place, row in enumerate(rows):
        if row["marked"]:
            ax.add_patch(plt.Rectangle((-0.05 - 0.075 * wide, place - 0.46), 2, 0.92,
                                       facecolor=tint(GREY, 0.35)))
        ax.text(-0.03, place, row["text"], fontsize=11, ha="right", va="center", color=INK, **MONO)
        for i, (key, color, _, _) in enumerate(both):
            height, value = 0.68 / len(both), row[key]
            y = place - 0.34 + (i + 0.5) * height
            if value is not None:
                if not bars["target_name"]:  # numbers of the heads, such as their confidence
                    color, _ = head_colors(row["text"], (color, None))
                ax.barh(y, value / longest, height, color=color)
                ax.text(value / longest + 0.02, y, short(value), fontsize=9, va="center",
                        color=INK)
    ax.set_xlim(-0.05 - 0.075 * wide, 1.24)
    ax.set_ylim(max(count, len(rows)) - 0.5, -0.5)


def draw_dice(ax, line, own):
    """The unit interval, and where u fell; own: on the target's own token."""
    left, u = 0.0, line["u"]
    for segment in line["segments"]:
        color = GREY if not segment["hit"] or segment["text"] == "reject" else (
            ORANGE if own else BLUE)
        ax.add_patch(plt.Rectangle((left, 0), segment["p"], 1, edgecolor="white",
                                   facecolor=color if segment["hit"] else tint(color, 0.35)))
        if segment["hit"]:
            said = f"u = {min(u, 0.999):.3f} \u2192 {segment['text']}"
        elif segment["p"] > 0.05 * len(segment["text"]):
            ax.text(left + segment["p"] / 2, 0.48, segment["text"], fontsize=10, color=INK,
                    **MIDDLE, **MONO)
        left += segment["p"]
    ax.plot([u, u], [-0.15, 1.2], color=INK, linewidth=2.6)
    ax.text(min(max(u, 0.33), 0.67), 1.7, said, fontsize=10, color=INK, **MIDDLE, **MONO)
    ax.set_xlim(-0.01, 1.01)
    ax.set_ylim(-0.2, 2.2)


def draw_brought(ax, trace):
    """What the round brought, and what the colours mean."""
    ax.set_xlim(0, 1)
    ax.set_ylim(0, 1)
    count = len(trace["emitted"])
    ax.text(0.5, 0.86, str(count), fontsize=44, color=INK, fontweight="bold", **MIDDLE)
    ax.text(0.5, 0.64, f"{several(count, 'token').partition(' ')[2]} from one forward",
            fontsize=13, color=INK, **MIDDLE)
    names = [("accepted draft", BLUE, BLUE), ("the target's own token", ORANGE, ORANGE),
             ("not accepted, struck out", tint(GREY, 0.35), GREY)]
    names += [(f"drafted by {name}", face, FAINT)
              for name, face in zip(trace["groups"], HEADS[1:], strict=False)]
    for place, (name, face, edge) in enumerate(names):
        y = 0.47 - 0.088 * place
        ax.add_patch(plt.Rectangle((0.07, y - 0.032), 0.08, 0.064, facecolor=face,
                                   edgecolor=edge))
        ax.text(0.2, y, name, fontsize=11, color=INK, va="center")
    y = 0.47 - 0.088 * len(names)
    if trace["frames"][-1]["scores"]:
        ax.text(0.07, y, ".12  the path goes through", fontsize=11, color=INK, va="center")
    else:
        ax.text(0.07, y, ".12  p, target", fontsize=11, color=P_INK, va="center")
        ax.text(0.55, y, ".34  q, drafter", fontsize=11, color=Q_INK, va="center")


def draw_chain_bars(figure, trace, shot):
    """Below each draft of a chain its q, and p beside it once the target has read the drafts."""
    frame, nodes = shot.frame, trace["nodes"]
    judged = frame["verb"] not in BEFORE
    deepest = max(x for x, _ in places(trace))
    ax = new_panel(figure, 0.02, 0.22, 0.96, 0.35)
    ax.set_xlim(-0.3, max(deepest, 3) + 0.4)
    ax.set_ylim(0, 1.18)
    ax.plot([0.6, max(deepest, 3) + 0.4], [0, 0], color=GREY, linewidth=1)
    for place, (name, color, ink) in enumerate((("p, target", TARGET, P_INK),
                                                ("q, drafter", DRAFTER, Q_INK))):
        y = 0.72 - 0.2 * place
        ax.add_patch(plt.Rectangle((-0.28, y - 0.06), 0.1, 0.12, facecolor=color))
        ax.text(-0.13, y, name, fontsize=11.5, color=ink, va="center", fontweight="bold")
    for row in range(1, frame["shown"]):
        for side, key, color in ((-0.17, "p", TARGET), (0.17, "q", DRAFTER)):
            value = nodes[row][key]
            if value is None or key == "p" and not judged:
                continue
            ax.bar(row + side, value, 0.31, color=color)
            ax.text(row + side, value + 0.03, short(value), fontsize=10, color=INK, ha="center",
                    va="bottom")


def draw_gather(figure, trace, moved):
    """The cache: its new rows above, and how those of the path move to their places below."""
    n, kept, past = trace["verified"], trace["kept"], trace["context"][-3:]
    ax = new_panel(figure, 0.02, 0.01, 0.96, 0.16)
    first, width = 1 + len(past), len(past) + n
    draw_cell(ax, 0.02, 1.25, "...", tint(GREY, 0.35), FAINT)
    draw_cell(ax, 0.02, 0, "...", tint(GREY, 0.35), FAINT)
    for i, text in enumerate(past):
        for y in (1.25, 0):
            draw_cell(ax, 1 + i, y, text, tint(GREY, 0.35), INK)
    for row in range(n):
        text = trace["nodes"][row]["text"]
        face = tint(BLUE, 0.3) if row in kept else "white"
        draw_cell(ax, first + row, 1.25, text, face, INK if row in kept else FAINT,
                  BLUE if row in kept else GREY)
    for place, row in enumerate(kept):
        x, y = first + row + moved * (place - row), 1.25 * (1 - moved)
        draw_cell(ax, x, y, trace["nodes"][row]["text"], BLUE, "white", BLUE)
    figure.text(0.02, 0.178, f"the KV cache: {trace['committed']} rows before, then {n} new ones; "
                "below, what it keeps", fontsize=10, color=FAINT)
    ax.set_xlim(0, max(width + 1, 14))
    ax.set_ylim(-0.1, 2.2)


def draw_cell(ax, x, y, text, face, ink, edge=GREY):
    """A row of the cache with its lower left corner at (x, y): a box as wide as a row number."""
    ax.add_patch(plt.Rectangle((x + 0.04, y), 0.92, 0.92, facecolor=face, edgecolor=edge,
                               zorder=3))
    ax.text(x + 0.5, y + 0.44, text, fontsize=12, color=ink, zorder=4, **MIDDLE, **MONO)
