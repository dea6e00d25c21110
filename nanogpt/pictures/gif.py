"""A trace as an animated GIF, for a README, where no key can be pressed.

    draw_frame    one frame of a trace -> a figure of 800 x 600 pixels
    save_gif      all frames -> one file; each stays as long as its sentence takes to read

The numbers are those of the page (see stepper.py), from the same trace. Each kind of frame has its
own function: while drafting the mask grows, then the laws are compared, in the end the cache.
"""

import textwrap
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
    FAINT,
    GREEN,
    GREY,
    INK,
    ORANGE,
    RED,
    draw_cache,
    draw_cells,
    draw_mask,
    tint,
    tree_rows,
)
from nanogpt.pictures.story import ancestor_rows, short

WIDTH, HEIGHT, DPI = 8, 6, 100
COLORS = 40  # of the GIF's palette; one more says: as before
# Who drafted a node: anybody, head 1, head 2. The page has the same colours (stepper.html).
HEADS = ("white", tint(plots.HEADS[0], 0.25), tint(plots.HEADS[1], 0.4))
EXACT = ("white", INK, FAINT, GREY, BLUE, ORANGE, GREEN, RED, *HEADS[1:], tint(ORANGE, 0.25),
         tint(GREY, 0.35))
MONO = {"family": "DejaVu Sans Mono", "parse_math": False}
MIDDLE = {"ha": "center", "va": "center"}

# ---------------------------------------------------------------- what every frame shows


def new_panel(figure, left, bottom, width, height, title=""):
    """Axes without a frame at a place in the figure, all numbers in shares of it."""
    ax = figure.add_axes((left, bottom, width, height))
    ax.axis("off")
    if title:
        figure.text(left, bottom + height + 0.008, title, fontsize=9, color=FAINT)
    return ax


def draw_head(figure, trace, index):
    """The chapter, what was run, the verb of this frame among all verbs, and the sentence."""
    frame, verbs = trace["frames"][index], list(dict.fromkeys(f["verb"] for f in trace["frames"]))
    figure.text(0.02, 0.952, f"{trace['chapter']} {trace['title']}", fontsize=14, color=INK,
                fontweight="bold")
    figure.text(0.98, 0.957, trace["subtitle"], fontsize=7.5, color=FAINT, ha="right")
    left = 0.028
    for verb in verbs:
        now = verb == frame["verb"]
        figure.text(left, 0.905, verb, fontsize=10.5, va="center",
                    color="white" if now else FAINT,
                    bbox={"boxstyle": "round,pad=0.3", "facecolor": BLUE if now else "white",
                          "edgecolor": BLUE if now else GREY})
        left += 0.028 + 0.0115 * len(verb)
    figure.text(0.98, 0.905, f"{index + 1} / {len(trace['frames'])}", fontsize=10, color=FAINT,
                ha="right", va="center")
    for place, name in enumerate(trace["groups"]):
        figure.text(0.03 + 0.09 * place, 0.75, name, fontsize=9, color=INK,
                    bbox={"boxstyle": "round,pad=0.25", "facecolor": HEADS[place + 1],
                          "edgecolor": FAINT})
    figure.text(0.02, 0.868, textwrap.fill(frame["text"], 94), fontsize=11, color=INK, va="top",
                parse_math=False, linespacing=1.35)


def places(trace):
    """Where each node stands, (depth, line), and last the target's own token."""
    nodes, after = trace["nodes"], trace["frames"][-1]["next"]["parent"]
    parents = [node["parent"] for node in nodes] + [after]
    children = [[r for r, p in enumerate(parents) if p == row] for row in range(len(parents))]
    deep = [len(seen) - 1 for seen in ancestor_rows(parents)]
    return list(zip(deep, tree_rows(children), strict=True))


def node_look(trace, frame, row):
    """-> the colours of a node: face, edge, text."""
    if row in frame["accepted"]:
        return BLUE, BLUE, "white"
    if row in frame["gone"]:
        return "white", tint(GREY, 0.4), tint(GREY, 0.5)
    if row in frame["rejected"]:
        return "white", GREY, GREY
    return HEADS[trace["nodes"][row]["group"]], FAINT, INK


def pointed(trace, frame):
    """The rows to ring: none if the frame speaks of all of them."""
    everyone = len(frame["focus"]) >= trace["verified"] or frame["verb"] == "commit"
    return [] if everyone else frame["focus"]


def draw_tree(ax, trace, frame):
    """The tree so far, in the place that it will have in the end."""
    at, after = places(trace), frame["next"]
    deepest, lowest = max(x for x, _ in at), max(y for _, y in at)
    shown = list(range(frame["shown"])) + [len(trace["nodes"])] * bool(after)
    for row in shown[1:]:
        own = row == len(trace["nodes"])
        parent = after["parent"] if own else trace["nodes"][row]["parent"]
        kept = row in frame["accepted"]
        color = ORANGE if own else BLUE if kept else node_look(trace, frame, row)[1]
        ax.plot(*zip(at[parent], at[row], strict=True), color=color, zorder=1,
                linewidth=3 if kept else 1.8 if own else 1, linestyle="--" if own else "-")
    ax.text(-0.42, at[0][1], "".join(trace["context"]), fontsize=10.5, color=FAINT, ha="right",
            va="center", **MONO)
    for row in shown:
        own = row == len(trace["nodes"])
        face, edge, ink = (ORANGE, ORANGE, INK) if own else node_look(trace, frame, row)
        text = after["text"] if own else trace["nodes"][row]["text"]
        x, y = at[row]
        if row in pointed(trace, frame):
            ax.text(x, y, text, fontsize=12, color=(0, 0, 0, 0), zorder=2, **MIDDLE, **MONO,
                    bbox={"boxstyle": "round,pad=0.55", "facecolor": "none", "edgecolor": ORANGE,
                          "linewidth": 2.4})
        ax.text(x, y, text, fontsize=12, color=ink, zorder=3, **MIDDLE, **MONO,
                bbox={"boxstyle": "round,pad=0.32", "facecolor": face, "edgecolor": edge})
        if row in frame["rejected"]:
            ax.plot([x - 0.13, x + 0.13], [y, y], color=FAINT, linewidth=1.4, zorder=4)
        if own:
            continue
        ax.annotate(str(row), (x, y), (13, -11), textcoords="offset points", fontsize=7.5,
                    color=FAINT, zorder=2, ha="center", va="center",
                    bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.4})
        if frame["scores"] and frame["scores"][row] is not None:
            ax.annotate(short(frame["scores"][row]), (x, y), (-15, 0), fontsize=8, color=INK,
                        textcoords="offset points", ha="right", va="center", zorder=2,
                        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8})
    ax.set_xlim(-1.35, max(deepest, 3) + 0.4)
    ax.set_ylim(max(lowest, 3) + 0.6, -0.6 if lowest > 3 else -1)


def draw_lit_mask(ax, trace, frame):
    """The mask's rows that are lit so far, the one in question ringed."""
    n, lit = trace["verified"], min(frame["shown"], trace["verified"])
    mask = [[row < lit and column in trace["mask"][row] for column in range(n)]
            for row in range(n)]
    ax.axis("on")
    draw_mask(mask, [node["text"] for node in trace["nodes"][:n]], ax, "the attention mask")
    ax.title.set(fontsize=9, color=FAINT)
    cell = 72 * HEIGHT * ax.get_position().height / n  # in points; two letters must fit into it
    ax.tick_params(labelsize=min(9, 0.75 * cell))
    for row in pointed(trace, frame):
        if row < lit:
            ax.add_patch(plt.Rectangle((-0.5, row - 0.5), n, 1, fill=False, edgecolor=ORANGE,
                                       linewidth=2.4, zorder=5))


def draw_law(figure, ax, bars, count):
    """Bars of the target's law, the drafter's, or both; `count` tokens, the marked one among them.

    bars: see Story.bars; numbers that are no law are all shown.
    """
    if bars is None:
        return
    count = count if bars["law"] else max(count, len(bars["rows"]))
    marked = [r for r in bars["rows"] if r["marked"]]
    kept = [r for r in bars["rows"] if not r["marked"]][:count - len(marked)]
    rows = [r for r in bars["rows"] if r in marked or r in kept]
    both = [(key, color, name) for key, color, name in (
        ("target", BLUE, bars["law"]), ("draft", GREEN, bars["guess"]))
        if any(row[key] is not None for row in rows)]
    left, top = ax.get_position().x0, ax.get_position().y1
    figure.text(left, top + 0.008, bars["title"], fontsize=9, color=INK, **MONO)
    right = 0.98
    for _, color, name in reversed(both):
        figure.text(right, top + 0.008, name, fontsize=9, color=color, ha="right",
                    fontweight="bold")
        right -= 0.03 + 0.0105 * len(name)
    longest = max([row[key] or 0 for row in rows for key, _, _ in both] + [0.01])
    for place, row in enumerate(rows):
        if row["marked"]:
            ax.add_patch(plt.Rectangle((-0.2, place - 0.46), 1.5, 0.92,
                                       facecolor=tint(ORANGE, 0.25)))
        ax.text(-0.03, place, row["text"], fontsize=10, ha="right", va="center", color=INK, **MONO)
        for i, (key, color, _) in enumerate(both):
            height, value = 0.66 / len(both), row[key]
            y = place - 0.33 + (i + 0.5) * height
            if value is not None:
                ax.barh(y, value / longest, height, color=color)
            said = "not known" if value is None else short(value)
            ax.text((value or 0) / longest + 0.02, y, said, fontsize=8, va="center", color=FAINT)
    ax.set_xlim(-0.2, 1.22)
    ax.set_ylim(count - 0.5, -0.5)


def draw_dice(figure, line):
    """The unit interval, and where u fell."""
    ax = new_panel(figure, 0.03, 0.035, 0.94, 0.125)
    left, u = 0.0, line["u"]
    for segment in line["segments"]:
        color = GREY if not segment["hit"] else RED if segment["text"] == "reject" else BLUE
        ax.add_patch(plt.Rectangle((left, 0), segment["p"], 1, edgecolor="white",
                                   facecolor=color if segment["hit"] else tint(color, 0.35)))
        if segment["hit"]:
            said = f"u = {min(u, 0.999):.3f} \u2192 {segment['text']}"
        elif segment["p"] > 0.012 * len(segment["text"]):
            ax.text(left + segment["p"] / 2, 0.48, segment["text"], fontsize=10, color=INK,
                    **MIDDLE, **MONO)
        left += segment["p"]
    ax.plot([u, u], [-0.1, 1.25], color=ORANGE, linewidth=2.6)
    ax.text(min(max(u, 0.09), 0.91), 1.75, said, fontsize=10, color=INK, **MIDDLE, **MONO)
    for end in (0, 1):
        ax.text(end, -0.6, str(end), fontsize=9, color=FAINT, **MIDDLE)
    ax.set_xlim(-0.01, 1.01)
    ax.set_ylim(-1, 2.2)


# ---------------------------------------------------------------- one function a kind of frame


def draw_drafting(figure, trace, frame):
    """A node appears: its row of the mask is lit; below, what the drafter gave it."""
    draw_lit_mask(new_panel(figure, 0.62, 0.44, 0.36, 0.25), trace, frame)
    draw_law(figure, new_panel(figure, 0.62, 0.19, 0.36, 0.19), frame["bars"], 4)


def draw_verifying(figure, trace, frame):
    """One forward: the whole mask, and the rows that the cache now holds beyond its length."""
    draw_lit_mask(new_panel(figure, 0.6, 0.22, 0.38, 0.45), trace, frame)
    past, new = trace["context"], [node["text"] for node in trace["nodes"][:trace["verified"]]]
    ax = new_panel(figure, 0.03, 0.03, 0.94, 0.08,
                   f"The cache: {trace['committed']} committed rows, then {len(new)} new ones")
    draw_cells(ax, 0, past + new, [FAINT] * len(past) + [GREY] * len(new))
    ax.set_xlim(-0.2, max(len(past) + len(new), 16))
    ax.set_ylim(-0.1, 0.9)


def draw_judging(figure, trace, frame):
    """A coin, a draw, a residual, a score: the laws that decide, at full height."""
    draw_law(figure, new_panel(figure, 0.62, 0.2, 0.36, 0.5), frame["bars"], 7)


def draw_committing(figure, trace, frame):
    """The cache before and after."""
    new = [node["text"] for node in trace["nodes"][:trace["verified"]]]
    draw_cache(trace["context"], new, frame["kept"], new_panel(figure, 0.02, 0, 0.96, 0.2))


KINDS = {"draft": draw_drafting, "verify": draw_verifying, "commit": draw_committing}


def draw_frame(trace, index):
    """One frame of a trace -> Figure of 8 x 6 inches, its canvas one of pixels."""
    frame = trace["frames"][index]
    figure = Figure((WIDTH, HEIGHT), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    draw_head(figure, trace, index)
    draw_tree(new_panel(figure, 0.01, 0.2, 0.58, 0.54), trace, frame)
    KINDS.get(frame["verb"], draw_judging)(figure, trace, frame)
    if frame["line"]:
        draw_dice(figure, frame["line"])
    return figure


# ---------------------------------------------------------------- the file


def reading_time(text, last=False):
    """Milliseconds that a frame stays: about 28 letters a second; longer at the end."""
    return int(min(max(1600, 700 + 36 * len(text)), 6000)) + 4000 * last


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
    """All frames of a trace -> an endless GIF at path. Makes the folder. -> the path.

    Raises ValueError if the file cannot be written.
    """
    path, frames, pictures = Path(path), trace["frames"], []
    for index in range(len(frames)):
        canvas = draw_frame(trace, index).canvas
        canvas.draw()
        pictures.append(Image.frombytes("RGBA", canvas.get_width_height(),
                                        canvas.buffer_rgba()).convert("RGB"))
    palette = shared_palette(pictures)
    first, *rest = [Image.fromarray(indices) for indices in
                    changes_only([nearest(picture, palette) for picture in pictures])]
    for picture in (first, *rest):
        picture.putpalette([*palette.flatten().tolist(), 0, 0, 0])
    times = [reading_time(f["text"], f is frames[-1]) for f in frames]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        first.save(path, "GIF", save_all=True, append_images=rest, duration=times, loop=0,
                   transparency=COLORS, disposal=1, optimize=False)
    except OSError as error:
        raise ValueError(f"picture {path} cannot be written: {error.strerror}") from None
    return path
