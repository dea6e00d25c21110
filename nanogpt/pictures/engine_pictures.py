"""What the lesson on the engine draws: a forward's rows, the pages, what drafts bring by load."""

from nanogpt.engine_room import BY_LOAD, best_drafts, speeds
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


def draw_gains(found):
    """How many times as many tokens a second drafts bring, by the number of readers: a line for
    each K, and for drafts by load. found: as engine_room.sweep has it."""
    ax, fast, best = new_axes(height=3.9), speeds(found), best_drafts(found)
    names = [name for name in next(iter(fast.values())) if name != 0]
    colors = dict(zip(names, ("#7B3294", "#8C510A", "#01665E", "#969696"), strict=False))
    for name in names:
        style = (dict(color=INK, linestyle=":", linewidth=2.6) if name == BY_LOAD else
                 dict(color=colors[name], linewidth=1.8))
        ax.plot(list(fast), [row[name] / row[0] for row in fast.values()], marker="o",
                markersize=4, label=name if name == BY_LOAD else f"K = {name}", **style)
    ax.axhline(1, color=FAINT, linewidth=1)
    gains = [best[readers][1] / row[0] for readers, row in fast.items()]
    plain_frame(ax, f"The best number of drafts brings {min(gains):.1f}x to {max(gains):.1f}x",
                "readers in the batch", "tokens a second, over K = 0")
    ax.set_xscale("log", base=2)
    ax.set_xticks(list(fast), list(fast))
    ax.legend(fontsize=10, frameon=False, ncols=len(names), loc="upper center", handlelength=1.2,
              columnspacing=1, bbox_to_anchor=(0.5, -0.2))
    return ax
