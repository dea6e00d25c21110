"""Pictures that several chapters share: a draft tree, a mask, the cache, bars of values.

Every function draws into the matplotlib Axes it is given, or makes one, and returns it. A picture
is at most WIDTH inches wide and its text TEXT points high, so that it can be read on a phone; only
a large tree or a mask is wider. Panels stand one below the other.

In the picture of a tree or a round one colour has one meaning: blue is the accepted path and what
is kept, grey what is rejected, orange the target's own (its token, its p, its time), light blue
the drafter's (its q, its time), green head 1, pink head 2, red a mistake. Blue, orange, green, pink
and light blue are Okabe and Ito's, which colour-blind readers can tell apart.
"""

import matplotlib.pyplot as plt
import torch
from matplotlib.colors import to_rgb

WIDTH, TEXT = 5.2, 11.5  # inches and points: on a screen of 360 pixels, letters of 11 pixels
INK, FAINT, GREY = "#222222", "#777777", "#B5B5B5"
BLUE, ORANGE, GREEN, RED = "#0072B2", "#E69F00", "#009E73", "#C7261B"
PURPLE, SKY = "#CC79A7", "#56B4E9"
HEADS = (GREEN, PURPLE)
TIMES = {"draft": SKY, "verify": ORANGE, "rest": "#D8CFC0"}  # of a round
MONO = {"family": "DejaVu Sans Mono", "parse_math": False}  # of tokens
plt.rcParams.update({
    "font.size": TEXT, "axes.titlesize": 12, "axes.titlelocation": "left", "text.color": INK,
    "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK, "axes.spines.top": False,
    "axes.spines.right": False, "axes.axisbelow": True})


def visible(text):
    """A token's text with its white space made visible: blank -> open box, newline -> \\n."""
    shown = text.replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")
    return shown.replace(" ", "\u2423") or "\u2205"


NEWLINE = "\u21b5"  # how a line break is written in a picture


def tint(color, strength=0.3):
    """A colour mixed with white; strength 0 is white, 1 the colour itself."""
    return tuple(1 - strength * (1 - part) for part in to_rgb(color))


def new_axes(width=WIDTH, height=3.2, columns=1, rows=1):
    """One Axes, or a list of them, side by side or below each other; the figure's size in inches.
    """
    figure, axes = plt.subplots(rows, columns, figsize=(width, height), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.08, h_pad=0.08)
    return axes if rows * columns == 1 else list(axes.flat)


def plain_frame(ax, title=None, xlabel=None, ylabel=None):
    """A faint grid behind the data, and what is said around them."""
    ax.grid(axis="y", color="#E5E5E5", linewidth=0.8)
    ax.set(xlabel=xlabel or "", ylabel=ylabel or "", title=title or "")
    return ax


def canvas(ax, title, xlim, ylim):
    """An Axes without a frame, with a title in words at the left."""
    ax.set(title=title, xlim=xlim, ylim=ylim)
    ax.axis("off")
    return ax


def draw_times(title, lines):
    """Lines of blocks, each below its name, on one scale. -> Axes

    lines: {name: [(time, whose it is, a key of TIMES, text), ..]}.
    """
    ax = new_axes(height=0.5 + 0.78 * len(lines))
    scale = 0.07 * max(sum(time for time, *_ in blocks) for blocks in lines.values())
    for y, (name, blocks) in enumerate(lines.items()):
        ax.text(0, y - 0.3, name, va="bottom")
        left = 0.0
        for time, whose, text in blocks:
            ax.barh(y, time, 0.55, left, color=tint(TIMES[whose], 0.75), edgecolor="white")
            if time > scale:
                ax.text(left + time / 2, y, text, ha="center", va="center")
            else:  # too narrow for a text: it stands behind the block, which is the line's last
                ax.text(left + time + 0.03, y, text, va="center")
            left += time
    return canvas(ax, title, None, (len(lines) - 0.7, -0.8))


# ---------------------------------------------------------------- a draft tree


def tree_rows(children):
    """Height of every node: leaves one below the other, parents midway between their children.

    children: for each node the list of its children -> a list of floats, 0 at the top.
    """
    heights, leaves = [0.0] * len(children), 0

    def place(node):
        nonlocal leaves
        if not children[node]:
            heights[node], leaves = float(leaves), leaves + 1
            return
        for child in children[node]:
            place(child)
        heights[node] = (heights[children[node][0]] + heights[children[node][-1]]) / 2

    place(0)
    return heights


def two_digits(p):
    """0.347 -> '.35'; 1.0 -> '1'; below 0.005 -> '0'."""
    return {"0.00": "0", "1.00": "1"}.get(f"{p:.2f}", f"{p:.2f}".lstrip("0"))


def draw_node(ax, place, text, color):
    """A token in its box."""
    ax.text(*place, visible(text), zorder=3, ha="center", va="center", **MONO,
            bbox={"boxstyle": "round,pad=0.3", "edgecolor": color, "facecolor": tint(color, 0.35)})


def draw_tree(tree, text_of_token, colors=None, ax=None):
    """A draft tree from left to right. text_of_token(token) -> str; colors: one for each node (say,
    by the head that drafted it) instead of grey -> the Axes."""
    heights, depths = tree_rows(tree.children), tree.depths.tolist()
    ax = ax or new_axes(min(7.5, 2.05 + 1.25 * max(depths)), 1.3 + 0.42 * max(heights))
    for row, token in enumerate(tree.tokens.tolist()):
        if row:
            parent = int(tree.parents[row])
            ax.plot([depths[parent], depths[row]], [heights[parent], heights[row]], color=GREY,
                    linewidth=1.2, zorder=1)
        draw_node(ax, (depths[row], heights[row]), text_of_token(token),
                  colors[row] if colors else GREY)
    return canvas(ax, "", (-0.4, max(depths) + 0.4), (max(heights) + 0.6, -0.6))


# ---------------------------------------------------------------- mask and cache


def draw_mask_beside_causal(mask, labels, row):
    """The tree mask, and beside it the causal mask with the cells that would leak in red.

    A dark cell at (row, column): the row reads the column. mask (N, N) bool; labels: N texts,
    'row:token'; row: is framed, and what it reads is said below -> the two Axes.
    """
    mask, n = torch.as_tensor(mask).bool(), len(labels)
    axes = new_axes(WIDTH, 1.6 + 0.3 * n, columns=2)
    for ax, title, seen in zip(axes, ("tree mask", "causal mask: red leaks"),
                               (mask, torch.ones_like(mask).tril()), strict=True):
        picture = torch.ones(n, n, 3)
        picture[seen] = torch.tensor(to_rgb(INK))
        picture[seen & ~mask] = torch.tensor(to_rgb(RED))
        ax.imshow(picture.numpy(), interpolation="nearest")
        for ticks in (ax.set_xticks, ax.set_yticks):
            ticks(range(n), [visible(text) for text in labels], parse_math=False)
            ticks([i - 0.5 for i in range(n + 1)], minor=True)
        ax.grid(which="minor", color="#D0D0D0", linewidth=0.8)
        ax.tick_params(which="both", length=0)
        ax.xaxis.tick_top()
        ax.set_title(title)
        ax.add_patch(plt.Rectangle((-0.5, row - 0.5), n, 1, fill=False, edgecolor=BLUE,
                                   linewidth=4, clip_on=False, zorder=3))
        read = [label.split(":")[1] for label, sees in zip(labels, seen[row], strict=True) if sees]
        ax.set_xlabel(f"row {row} reads\n{' '.join(read)}", color=BLUE, **MONO)
    axes[1].set_yticks([])
    return axes


def draw_cells(ax, y, texts, colors, first=0):
    """A row of labelled boxes at height y, the first at x = first."""
    for i, (text, color) in enumerate(zip(texts, colors, strict=True)):
        ax.add_patch(plt.Rectangle((first + i, y), 0.94, 0.8, facecolor=tint(color, 0.35),
                                   edgecolor=color, linewidth=1.2))
        text = visible(text)
        ax.text(first + i + 0.47, y + 0.4, text, ha="center", va="center",
                fontsize=min(TEXT, 44 / len(text)), **MONO)


def draw_cache(committed, new, kept):
    """The KV cache before and after a commit, with arrows if rows move.

    committed: texts of the last committed rows (a few are enough); new: texts of the N rows of
    the tree; kept: the accepted path, row numbers starting with 0.
    """
    past, kept = len(committed), list(kept)
    width = past + len(new)
    ax = new_axes(min(1.4 + 0.5 * width, 7.5), 2.6)
    draw_cells(ax, 2.2, committed, [FAINT] * past)
    draw_cells(ax, 2.2, new, [BLUE if i in kept else GREY for i in range(len(new))], past)
    draw_cells(ax, 0, committed, [FAINT] * past)
    draw_cells(ax, 0, [new[row] for row in kept], [BLUE] * len(kept), past)
    in_place = kept == list(range(len(kept)))  # a chain's: no row moves, and none is wiped out
    if in_place:
        draw_cells(ax, 0, new[len(kept):], [GREY] * (len(new) - len(kept)), past + len(kept))
        for x in range(past + len(kept), width):  # still there, and dead
            ax.plot([x, x + 0.94], [0, 0.8], color=INK, linewidth=1.4)
    for place, row in enumerate([] if in_place else kept):
        ax.annotate("", (past + place + 0.47, 0.84), (past + row + 0.47, 2.16),
                    arrowprops={"arrowstyle": "-|>", "color": BLUE, "linewidth": 1.4})
    for y, end in ((2.2, past), (0, past + len(kept))):
        ax.plot([end - 0.03] * 2, [y - 0.15, y + 0.95], color=INK, linewidth=2)
        ax.text(end, y - 0.22, "length", ha="right", va="top")
    for y, text in ((2.6, "before"), (0.4, "after")):
        ax.text(-0.2, y, text, ha="right", va="center")
    return canvas(ax, "", (-1.7, width + 0.2), (-0.7, 3.1))
