"""What the lesson on the engine draws: a forward's rows, the pages, the gain by load."""

from nanogpt.engine_room import BY_LOAD, gains
from nanogpt.pictures.plots import (
    BLUE,
    FAINT,
    GREY,
    INK,
    MONO,
    NEWLINE,
    ORANGE,
    canvas,
    draw_cells,
    new_axes,
    plain_frame,
    plt,
    tint,
    visible,
)

LINES = {1: ("#7B3294", "-"), 2: ("#A6611A", "--"), 4: ("#4A6B00", "-."), 8: ("#8C1D40", ":"),
         BY_LOAD: (INK, "-"), 0: (FAINT, "-")}


def fate(seen):
    """The colour of each row of a request in a round."""
    kept = min(seen.accepted, len(seen.tokens))
    if seen.ended == "stop" and len(seen.tokens) <= seen.accepted:
        kept = len(seen.tokens)
    return ([FAINT] * (len(seen.read) - 1) + [ORANGE] + [BLUE] * kept
            + [GREY] * (len(seen.drafted) - kept))


def draw_forward(scene, text_of, notes):
    """The rows of one forward, a line for each request, and what each one then writes.

    scene: {name: Seen}; text_of(token); notes: {name: what is special about it}.
    """
    ax, x = new_axes(height=3.5), 0
    for line, (name, seen) in enumerate(scene.items()):
        rows, y = seen.read + seen.drafted, -1.75 * line
        texts = [text_of(token).replace("\n", NEWLINE) for token in rows]
        draw_cells(ax, y, texts, fate(seen), x)
        cut = seen.ended == "stop" and len(seen.tokens) <= seen.accepted
        for row in range(len(seen.read) + len(seen.tokens), len(rows)) if cut else ():
            if row < len(seen.read) + seen.accepted:
                ax.plot([x + row + 0.1, x + row + 0.84], [y + 0.15, y + 0.65], color=INK, lw=1.2)
        wrote = "".join(visible(text_of(token)) for token in seen.tokens)
        note = f"{name}: {notes[name]}, writes \u201c{wrote}\u201d"
        on_the_right = x + len(rows) > 17
        ax.text(x + len(rows) if on_the_right else x, y - 0.1, note, va="top", fontsize=10,
                ha="right" if on_the_right else "left", parse_math=False)
        x += len(rows)
    canvas(ax, f"One forward, {x} rows, four requests", (-0.3, x + 0.3),
           (-1.75 * len(scene) + 0.6, 1.1))
    return ax


def draw_pages(scene, size, count, columns=3):
    """Every page while the forward runs. scene: {name: Seen}; size: rows of a page; count: pages.

    A letter is a row of that request; blue: new in this forward and kept, grey: written over.
    """
    rows = -(-count // columns)
    ax, width = new_axes(height=0.6 + 0.42 * rows), size + 1.2
    cells = {}
    for name, seen in scene.items():
        kept = len(seen.read) + len(seen.tokens) - 1  # the last token of a text is unread
        colors = ([FAINT] * seen.length + [BLUE] * kept
                  + [GREY] * (len(seen.read) + len(seen.drafted) - kept))
        for place, color in enumerate(colors):
            cells[seen.table[place // size], place % size] = name, color
    for page in range(count):
        x, y = page % columns * width, -1.25 * (page // columns)
        for row in range(size):
            name, color = cells.get((page, row), ("", None))
            ax.add_patch(plt.Rectangle(
                (x + row, y), 0.94, 0.8, edgecolor=color or "#D0D0D0", linewidth=0.9,
                facecolor=tint(color, 0.35) if color else "white"))
            ax.text(x + row + 0.47, y + 0.38, name, ha="center", va="center", fontsize=9, **MONO)
    free = count - len({page for page, _ in cells})
    return canvas(ax, f"{count} pages of {size} rows, {free} free; any page will do",
                  (-0.3, columns * width), (-1.25 * rows + 1.1, 1.1))


def draw_load(found):
    """By the number of requests: tokens a second over those of K = 0; a reader's wait.

    found: as engine_room.sweep has it -> two Axes.
    """
    more = gains(found)
    axes = new_axes(height=5.6, rows=2)
    for name in next(iter(found.values())):
        color, style = LINES[name]
        label = name if name == BY_LOAD else f"K = {name}"
        look = {"color": color, "linestyle": style, "label": label, "marker": "o", "markersize": 3,
                "linewidth": 2.4 if name == BY_LOAD else 1.4}
        if name != 0:
            axes[0].plot(list(more), [row[name] for row in more.values()], **look)
        axes[1].plot(list(found), [row[name]["ms_per_token"] for row in found.values()], **look)
    axes[0].axhline(1, color=FAINT, linewidth=0.8)
    first, last = (max((gain, name) for name, gain in more[n].items() if name not in (0, BY_LOAD))
                   for n in (min(more), max(more)))
    plain_frame(axes[0], f"Best K: {first[1]} for one reader ({first[0]:.1f}x), {last[1]} for "
                f"{max(more)} ({last[0]:.1f}x)", "", "tokens a second, over K = 0")
    plain_frame(axes[1], "Each reader waits longer", "requests at once", "ms a token")
    for ax in axes:
        ax.set_xscale("log", base=2)
        ax.set_xticks(list(found), list(map(str, found)))
    axes[1].set_yscale("log")
    axes[0].legend(fontsize=9, ncols=3, frameon=False, loc="lower left")
    return axes
