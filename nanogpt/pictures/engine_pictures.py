"""What the lesson on the engine draws: a forward's rows, the pages, speed by load."""

from nanogpt.engine_room import BY_LOAD, best_drafts, headline, speeds
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


def fate(seen):
    """The colour of each row of a request in a round."""
    return ([FAINT] * (len(seen.read) - 1) + [ORANGE] + [BLUE] * seen.accepted
            + [GREY] * (len(seen.drafted) - seen.accepted))


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

    A letter is a row of that request; blue: new in this forward and kept, grey: thrown away. A
    page's number stands before it, and below the table of each request.
    """
    rows = -(-count // columns)
    ax, width = new_axes(height=1.1 + 0.42 * rows), size + 1.9
    cells = {}
    for name, seen in scene.items():
        kept = len(seen.read) + len(seen.tokens) - 1  # the last token of a text is unread
        colors = ([FAINT] * seen.length + [BLUE] * kept
                  + [GREY] * (len(seen.read) + len(seen.drafted) - kept))
        for place, color in enumerate(colors):
            cells[seen.table[place // size], place % size] = name, color
    for page in range(count):
        x, y = page % columns * width, -1.25 * (page // columns)
        ax.text(x - 0.2, y + 0.38, page, ha="right", va="center", fontsize=8, color=FAINT)
        for row in range(size):
            name, color = cells.get((page, row), ("", None))
            ax.add_patch(plt.Rectangle(
                (x + row, y), 0.94, 0.8, edgecolor=color or "#D0D0D0", linewidth=0.9,
                facecolor=tint(color, 0.35) if color else "white"))
            ax.text(x + row + 0.47, y + 0.38, name, ha="center", va="center", fontsize=9, **MONO)
    for i, (name, seen) in enumerate(scene.items()):
        ax.text(i % 2 * 1.5 * width, -1.25 * rows + 0.1 - 0.9 * (i // 2),
                f"table of {name}: {', '.join(map(str, seen.table))}", fontsize=10)
    return canvas(ax, "A table finds each text's pages; light grey is thrown away",
                  (-1.2, columns * width - 0.9), (-1.25 * rows - 1.1, 1.1))


def draw_load(found):
    """All readers' tokens a second beside those of one reader; each dot is a number of requests,
    written at the curve without drafts. At the best fixed K its K is written.

    found: as engine_room.sweep has it.
    """
    ax, fast, best = new_axes(height=4.4), speeds(found), best_drafts(found)
    for speed, label, color, style in (
            ({n: row[0] for n, row in fast.items()}, "no drafts, so many readers", FAINT, "-"),
            ({n: speed for n, (_, speed) in best.items()}, "the best fixed K", BLUE, "--"),
            ({n: row[BY_LOAD] for n, row in fast.items()}, "drafts by load", INK, ":")):
        ax.plot(list(speed.values()), [speed[n] / n for n in speed], color=color, linestyle=style,
                label=label, marker="o", markersize=4, linewidth=1.6)
    for n, (k, speed) in best.items():
        for text, x, color, place, side in ((n, fast[n][0], FAINT, (-5, -6), "right"),
                                            (f"K = {k}", speed, BLUE, (6, 6), "left")):
            ax.annotate(text, (x, x / n), xytext=place, textcoords="offset points", ha=side,
                        va="center", fontsize=9, color=color)
    drafts, batch, both = headline(found)
    plain_frame(ax, f"{max(found)} in a batch {batch:.1f}x, drafts alone {drafts:.1f}x, both "
                f"{both:.1f}x", "tokens a second, all readers together",
                "tokens a second for each reader")
    for axis in ("x", "y"):
        getattr(ax, f"set_{axis}scale")("log", base=2)
        getattr(ax, f"{axis}axis").set_major_formatter(lambda value, _: f"{value:.0f}")
    ax.margins(x=0.1)
    ax.legend(fontsize=10, frameon=False, loc="lower left")
    return ax
