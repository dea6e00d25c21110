"""The parts that every picture of a GIF shows: the tree with its verdict, and the text so far."""


import matplotlib.pyplot as plt

from nanogpt.pictures import plots
from nanogpt.pictures.plots import BLUE, FAINT, GREY, INK, MONO, ORANGE, tint, tree_rows
from nanogpt.pictures.story import ancestor_rows, short
from nanogpt.pictures.tint import NEWLINE

BEFORE = ("draft", "route")  # the verbs before the target has read anything
# Who drafted a node: anybody, head 1, head 2. The page has the same colours (step_page.html).
HEADS = ("white", tint(plots.HEADS[0], 0.25), tint(plots.HEADS[1], 0.4))
P_INK, Q_INK = "#9A6600", "#2A77A8"  # TARGET and DRAFTER, dark enough for small numbers
WIDTH, HEIGHT, DPI = 8, 5, 100
MIDDLE = {"ha": "center", "va": "center"}


def twin(trace, frame, row):
    """Whether an earlier accepted row holds the same prefix (merged trees)."""
    def prefix(row):
        node = trace["nodes"][row]
        return () if row == 0 else (*prefix(node["parent"]), node["token"])

    return any(prefix(other) == prefix(row) for other in frame["accepted"] if other < row)


def new_panel(figure, left, bottom, width, height):
    """Axes without a frame at a place in the figure, all numbers in shares of it."""
    ax = figure.add_axes((left, bottom, width, height))
    ax.axis("off")
    return ax


def places(trace):
    """Where each node stands, (depth, line), and last the target's own token."""
    nodes, after = trace["nodes"], trace["frames"][-1]["next"]["parent"]
    parents = [node["parent"] for node in nodes] + [after]
    children = [[r for r, p in enumerate(parents) if p == row] for row in range(len(parents))]
    deep = [len(seen) - 1 for seen in ancestor_rows(parents)]
    return list(zip(deep, tree_rows(children), strict=True))


def is_chain(trace):
    """Whether no node has two children."""
    parents = [node["parent"] for node in trace["nodes"]]
    return len(set(parents)) == len(parents)


def node_look(trace, frame, row):
    """-> the colours of a node: face, edge, text."""
    if row in frame["accepted"]:
        return BLUE, BLUE, "white"
    group = trace["nodes"][row]["group"]
    if row in frame["gone"]:
        return HEADS[group], tint(GREY, 0.5), tint(GREY, 0.9)
    if row in frame["rejected"]:  # one still sees which head it came from
        return HEADS[group] if group else tint(GREY, 0.35), GREY, FAINT
    return HEADS[group], FAINT, INK


def pointed(trace, frame):
    """The rows to ring: none if the frame speaks of all of them."""
    everyone = len(frame["focus"]) >= trace["verified"]
    return [] if everyone or frame["verb"] != "accept" else frame["focus"]


def draw_box(ax, place, text, face, edge, ink, struck=False, ring=False):
    """A token in its box; struck: a stroke behind the letter, which stays readable."""
    if ring:
        ax.text(*place, text, fontsize=13, color=(0, 0, 0, 0), zorder=2, **MIDDLE, **MONO,
                bbox={"boxstyle": "round,pad=0.55", "facecolor": "none", "edgecolor": INK,
                      "linewidth": 2.2})
    ax.text(*place, text, fontsize=13, color=ink, zorder=3, **MIDDLE, **MONO,
            bbox={"boxstyle": "round,pad=0.32", "facecolor": face, "edgecolor": edge,
                  "linestyle": ":" if struck else "-"})
    if struck:  # from corner to corner, past the letter
        stroke(ax, place, (-12, -9), (-6, -4.5))
        stroke(ax, place, (6, 4.5), (12, 9))


def stroke(ax, place, start, end):
    """A short line near a place, its ends in points from there."""
    shift = ax.figure.dpi_scale_trans
    x, y = ax.transData.transform(place) / ax.figure.dpi
    line = plt.Line2D([x + start[0] / 72, x + end[0] / 72], [y + start[1] / 72, y + end[1] / 72],
                      transform=shift, color=FAINT, linewidth=1.6, zorder=4)
    ax.figure.add_artist(line)


def draw_numbers(ax, trace, frame, row, start, end):
    """On an edge: q while the tree grows, then p and q."""
    node = trace["nodes"][row]
    if row in frame["gone"]:
        return
    (x0, y0), (x1, y1) = start, end
    at = (x0 + 0.56 * (x1 - x0), y0 + 0.56 * (y1 - y0))
    judged = frame["verb"] not in BEFORE and node["p"] is not None
    parts = [(node["p"], P_INK)] * judged + [(node["q"], Q_INK)] * (node["q"] is not None)
    for place, (value, color) in enumerate(parts):
        side = "center" if len(parts) == 1 else ("right", "left")[place]
        gap = " " * (side == "right")  # white, so that no line runs between the two
        ax.annotate(short(value) + gap, at, (0, 0), textcoords="offset points", fontsize=8.5,
                    color=color, ha=side, va="center", zorder=2.6 - 0.1 * place,
                    bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8})


def draw_tree(ax, trace, frame):
    """The tree so far, in the place that it will have in the end."""
    at, after = places(trace), frame["next"]
    deepest, lowest = max(x for x, _ in at), max(y for _, y in at)
    ax.set_xlim(-0.3, max(deepest, 3) + 0.4)
    ax.set_ylim(lowest + 0.55, -0.75 if frame["scores"] else -0.55)
    shown = list(range(frame["shown"])) + [len(trace["nodes"])] * bool(after)
    for row in shown[1:]:
        own = row == len(trace["nodes"])
        parent = after["parent"] if own else trace["nodes"][row]["parent"]
        kept = row in frame["accepted"]
        color = ORANGE if own else BLUE if kept else node_look(trace, frame, row)[1]
        ax.plot(*zip(at[parent], at[row], strict=True), color=color, zorder=1,
                linewidth=3 if kept else 2 if own else 1, linestyle="--" if own else "-")
        if not own and not frame["scores"] and not is_chain(trace):
            draw_numbers(ax, trace, frame, row, at[parent], at[row])
    for row in shown:
        own = row == len(trace["nodes"])
        face, edge, ink = (ORANGE, ORANGE, INK) if own else node_look(trace, frame, row)
        text = after["text"] if own else trace["nodes"][row]["text"]
        draw_box(ax, at[row], text, face, edge, ink, row in frame["rejected"],
                 row in pointed(trace, frame))
        if not own and row and frame["scores"] and frame["scores"][row] is not None:
            ax.annotate(short(frame["scores"][row]), at[row], (-13, 0), fontsize=9, color=INK,
                        textcoords="offset points", ha="right", va="center", zorder=2.6,
                        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8})


def draw_text(figure, trace, frame, left=0.02, bottom=0.045):
    """The text so far, the accepted drafts in blue, the target's own token in orange."""
    ax = new_panel(figure, left, bottom, 0.96, 0.085)
    ax.set_xlim(0, 62)
    ax.set_ylim(0, 1)
    figure.text(left, bottom + 0.1, "the text so far", fontsize=10, color=FAINT)
    before = trace["text"].replace("\n", NEWLINE)
    words = [(letter, None, INK) for letter in before]
    words += [(trace["nodes"][row]["text"], BLUE if row else None, "white" if row else INK)
              for row in frame["accepted"] or [0]
              if row < trace["verified"] and not twin(trace, frame, row)]
    if frame["next"]:
        words.append((frame["next"]["text"], ORANGE, INK))
    x = 0.4
    for text, color, ink in words:
        wide = len(text) + (0.5 if color else 0)
        if color:
            ax.add_patch(plt.Rectangle((x - 0.1, 0.04), wide, 0.92, facecolor=color))
        ax.text(x + wide / 2 - 0.1, 0.48, text, fontsize=15.5, color=ink, **MIDDLE, **MONO)
        x += wide + (0.15 if color else 0)
