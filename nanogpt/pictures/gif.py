"""A trace as an animated GIF of at most 12 seconds, for a README, where no key can be pressed.

    pick_shots    which frames of a trace, with which caption, for how long
    draw_shot     one of them -> a figure of 800 x 500 pixels
    save_gif      all of them -> one file

The first picture is complete: the text, the tree with its verdict, what the round brought. The
numbers are those of the page (see step_page.py), from the same trace. A chain (chapter 01) has
its bars below its nodes; a tree has the panel that its verb needs on the right.
"""

import textwrap
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from PIL import Image

from nanogpt.pictures import plots
from nanogpt.pictures.plots import (
    BLUE,
    DRAFTER,
    FAINT,
    GREY,
    INK,
    ORANGE,
    TARGET,
    draw_mask,
    tint,
    tree_rows,
)
from nanogpt.pictures.story import ancestor_rows, several, short
from nanogpt.pictures.tint import NEWLINE

WIDTH, HEIGHT, DPI = 8, 5, 100
LONGEST = 11_900  # milliseconds of a whole GIF
SLIDE = (0.15, 0.35, 0.65, 0.85)  # how far the kept rows have moved, picture by picture
BEFORE = ("draft", "route")  # the verbs before the target has read anything
COLORS = 40  # of the GIF's palette; one more says: as before
# Who drafted a node: anybody, head 1, head 2. The page has the same colours (step_page.html).
HEADS = ("white", tint(plots.HEADS[0], 0.25), tint(plots.HEADS[1], 0.4))
P_INK, Q_INK = "#9A6600", "#2A77A8"  # TARGET and DRAFTER, dark enough for small numbers
EXACT = ("white", INK, FAINT, GREY, BLUE, ORANGE, DRAFTER, P_INK, Q_INK, *HEADS[1:],
         tint(ORANGE, 0.25), tint(GREY, 0.35))
MONO = {"family": "DejaVu Sans Mono", "parse_math": False}
MIDDLE = {"ha": "center", "va": "center"}

# ---------------------------------------------------------------- which pictures, how long


@dataclass
class Shot:
    """One picture: a frame of the trace, its caption, milliseconds.

    whole: the first picture, all of the round at once; moved: how far the kept rows are.
    """

    frame: dict
    caption: str
    ms: int
    whole: bool = False
    moved: float = 0.0


def pick_shots(trace):
    """The frames that have a caption, and first the whole round -> list of Shot, 12 s at most."""
    last = trace["frames"][-1]
    told = [Shot(f, f["gif"], 700 + 16 * len(f["gif"])) for f in trace["frames"] if f["gif"]]
    moves = [Shot(last, last["gif"], 80, moved=share) for share in SLIDE]
    end = Shot(last, last["gif"], 1600, moved=1.0)
    shots = [Shot(last, trace["idea"], 2600, whole=True), *told, *moves, end]
    share = min(1.0, LONGEST / sum(shot.ms for shot in shots))
    for shot in shots:
        shot.ms = int(shot.ms * share / 10) * 10  # a GIF counts in hundredths of a second
    return shots


# ---------------------------------------------------------------- what every picture shows


def new_panel(figure, left, bottom, width, height, title=""):
    """Axes without a frame at a place in the figure, all numbers in shares of it."""
    ax = figure.add_axes((left, bottom, width, height))
    ax.axis("off")
    if title:
        figure.text(left, bottom + height + 0.012, title, fontsize=10, color=FAINT)
    return ax


def draw_head(figure, trace, shot):
    """The chapter, the verb of this picture among all verbs, and the caption."""
    verbs = list(dict.fromkeys(f["verb"] for f in trace["frames"]))
    figure.text(0.02, 0.93, f"{trace['chapter']} {trace['title']}", fontsize=14, color=INK,
                fontweight="bold")
    right = 0.975
    for verb in reversed(verbs):
        now = verb == shot.frame["verb"] and not shot.whole
        right -= 0.0108 * len(verb)
        figure.text(right, 0.945, verb, fontsize=10.5, va="center",
                    color="white" if now else FAINT,
                    bbox={"boxstyle": "round,pad=0.3", "facecolor": BLUE if now else "white",
                          "edgecolor": BLUE if now else GREY})
        right -= 0.03
    figure.text(0.02, 0.885, textwrap.fill(shot.caption, 74), fontsize=14.5, color=INK, va="top",
                parse_math=False, linespacing=1.3)


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
    return [] if everyone or frame["verb"] not in ("accept", "residual") else frame["focus"]


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


def twin(trace, frame, row):
    """Whether an earlier accepted row holds the same prefix (merged trees)."""
    def prefix(row):
        node = trace["nodes"][row]
        return () if row == 0 else (*prefix(node["parent"]), node["token"])

    return any(prefix(other) == prefix(row) for other in frame["accepted"] if other < row)


# ---------------------------------------------------------------- the panel on the right


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


def guess_colors(name):
    """Of q's bars and of its name: the drafter's, or those of the head that is named."""
    for head, color in enumerate(plots.HEADS, 1):
        if name.endswith(f"head {head}"):
            return tint(color, 0.75), color
    return DRAFTER, Q_INK


def draw_law(figure, ax, bars, count):
    """Bars of p, of q or of both; `count` rows, the marked ones among them.

    bars: see Story.bars; numbers that are no distribution are all shown.
    """
    count = count if bars["law"] else max(count, len(bars["rows"]))
    marked = [r for r in bars["rows"] if r["marked"]]
    kept = [r for r in bars["rows"] if not r["marked"]][:max(count - len(marked), 0)]
    rows = [r for r in bars["rows"] if r in marked or r in kept]
    both = [(key, color, ink, name) for key, color, ink, name in (
        ("target", TARGET if bars["law"] else tint(INK, 0.6), P_INK, bars["law"]),
        ("draft", *guess_colors(bars["guess"]), bars["guess"]))
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
             ("rejected, struck out", tint(GREY, 0.35), GREY)]
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


def draw_side(figure, trace, shot):
    """The panel that this picture needs, to the right of the tree."""
    frame, left, bottom, width, height = shot.frame, 0.655, 0.2, 0.33, 0.545
    if shot.whole or frame["verb"] == "commit":
        draw_brought(new_panel(figure, left, bottom, width, height), trace)
    elif frame["verb"] == "verify" or not frame["bars"]:
        draw_lit_mask(new_panel(figure, left, bottom, width, height - 0.02), trace, frame)
    elif frame["verb"] == "draft" and len(frame["bars"]) > 1:
        charts = frame["bars"][:2]
        for place, chart in enumerate(charts):
            draw_law(figure, new_panel(figure, left, bottom + 0.29 * (1 - place), width, 0.21),
                     chart, 4)
    else:
        dice = frame["lines"] and frame["verb"] != "draft"
        up = 0.15 if dice else 0
        draw_law(figure, new_panel(figure, left, bottom + up, width, height - 0.06 - up),
                 frame["bars"][0], 5 if dice else 7)
        if dice:
            draw_dice(new_panel(figure, left, bottom - 0.03, width, 0.13), frame["lines"][0],
                      bool(frame["next"]))


# ---------------------------------------------------------------- a chain's bars, the cache


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
    """A row of the cache, standing upright."""
    ax.add_patch(plt.Rectangle((x + 0.04, y), 0.92, 0.92, facecolor=face, edgecolor=edge,
                               zorder=3))
    ax.text(x + 0.5, y + 0.44, text, fontsize=12, color=ink, zorder=4, **MIDDLE, **MONO)


# ---------------------------------------------------------------- the file


def draw_shot(trace, shot):
    """One picture -> Figure of 8 x 5 inches, its canvas one of pixels."""
    figure = Figure((WIDTH, HEIGHT), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    draw_head(figure, trace, shot)
    if is_chain(trace):
        draw_tree(new_panel(figure, 0.02, 0.6, 0.96, 0.18), trace, shot.frame)
        draw_chain_bars(figure, trace, shot)
    else:
        draw_tree(new_panel(figure, 0.01, 0.2, 0.62, 0.585), trace, shot.frame)
        draw_side(figure, trace, shot)
    if shot.frame["verb"] == "commit" and not shot.whole:
        draw_gather(figure, trace, shot.moved)
    else:
        draw_text(figure, trace, shot.frame)
    return figure


def shared_palette(pictures):
    """The colours that all pictures share, so that nothing flickers -> (COLORS, 3) of 0..255.

    pictures: a list of RGB images. The colours that mean something are kept as they are.
    """
    wide = Image.fromarray(np.concatenate([np.asarray(picture) for picture in pictures]))
    mixed = wide.quantize(COLORS - len(EXACT), Image.Quantize.MEDIANCUT).getpalette()
    exact = [round(255 * part) for color in EXACT for part in to_rgb(color)]
    found = (exact + mixed)[:3 * COLORS]  # few pictures may have few colours: fill up with black
    return np.array(found + [0] * (3 * COLORS - len(found))).reshape(COLORS, 3)


def nearest(picture, palette):
    """RGB image of H x W pixels -> (H, W) indices of the nearest colours, exact ones first."""
    pixels = np.asarray(picture).reshape(-1, 3)
    colors, places = np.unique(pixels @ [65536, 256, 1], return_inverse=True)
    colors = np.stack([colors >> 16, colors >> 8 & 255, colors & 255], 1)
    best = ((colors[:, None] - palette) ** 2).sum(-1).argmin(1)
    return best[places].reshape(picture.height, picture.width).astype(np.uint8)


def changes_only(indices):
    """A list of (H, W) indices -> the same, but COLORS, transparent, where a pixel stays."""
    pairs = zip(indices, indices[1:], strict=False)
    return indices[:1] + [np.where(a == b, np.uint8(COLORS), b) for a, b in pairs]


def save_gif(trace, path):
    """The pictures of a trace -> an endless GIF at path. Makes the folder. -> the path.

    Raises ValueError if the file cannot be written.
    """
    path, shots, pictures = Path(path), pick_shots(trace), []
    for shot in shots:
        canvas = draw_shot(trace, shot).canvas
        canvas.draw()
        pictures.append(Image.frombytes("RGBA", canvas.get_width_height(),
                                        canvas.buffer_rgba()).convert("RGB"))
    palette = shared_palette(pictures)
    first, *rest = [Image.fromarray(indices) for indices in
                    changes_only([nearest(picture, palette) for picture in pictures])]
    for picture in (first, *rest):
        picture.putpalette([*palette.flatten().tolist(), 0, 0, 0])
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        first.save(path, "GIF", save_all=True, append_images=rest, loop=0,
                   duration=[shot.ms for shot in shots], transparency=COLORS, disposal=1,
                   optimize=False)
    except OSError as error:
        raise ValueError(f"picture {path} cannot be written: {error.strerror}") from None
    return path
