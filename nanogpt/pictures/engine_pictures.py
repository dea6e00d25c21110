"""What the lesson on the engine draws: a forward's rows, the pages, what drafts bring and
cost."""

from nanogpt.engine_room import prices
from nanogpt.pictures.plots import (
    BLUE,
    FAINT,
    GREY,
    INK,
    MONO,
    NEWLINE,
    ORANGE,
    TIMES,
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
    """The rows of one forward in one strip, whose they are, and what each request then writes.

    scene: {name: Seen}; text_of(token); notes: {name: what is special about it}.
    """
    ax, x = new_axes(height=2.5), 0
    for line, (name, seen) in enumerate(scene.items()):
        rows = seen.read + seen.drafted
        draw_cells(ax, 0, [text_of(token).replace("\n", NEWLINE) for token in rows], fate(seen), x)
        cut = seen.ended == "stop" and len(seen.tokens) <= seen.accepted
        for row in range(len(seen.read) + len(seen.tokens), len(rows)) if cut else ():
            if row < len(seen.read) + seen.accepted:
                ax.plot([x + row + 0.1, x + row + 0.84], [0.15, 0.65], color=INK, lw=1.2)
        ax.hlines(-0.3, x + 0.1, x + len(rows) - 0.16, color=INK, linewidth=1.5)  # the bracket
        ax.text(x + len(rows) / 2, -0.5, name, va="top", ha="center", **MONO)
        wrote = "".join(visible(text_of(token)) for token in seen.tokens)
        ax.text(0, -2.1 - 0.9 * line, f"{name}: {notes[name]}, writes \u201c{wrote}\u201d",
                va="top", fontsize=10, parse_math=False)
        x += len(rows)
    for place, color, meaning in ((0, FAINT, "prompt"), (4.5, ORANGE, "root"),
                                  (8, BLUE, "accepted draft"), (15, GREY, "rejected draft")):
        ax.scatter(place + 0.4, -1.55, marker="s", s=64, color=tint(color, 0.35), edgecolor=color)
        ax.text(place + 0.9, -1.55, meaning, va="center", fontsize=9)
    return canvas(ax, f"One forward of {x} rows serves four requests", (-0.3, x + 0.3),
                  (-2.1 - 0.9 * len(scene), 1.1))


def draw_pages(scene, size, count, text_of, columns=3):
    """Every page after the forward. scene: {name: Seen}; size: rows of a page; count: pages;
    text_of(token).

    Colours as in draw_forward; filled: the row stays. Before a page stand its number and whose it
    is, below the table of each request.
    """
    rows = -(-count // columns)
    ax, width = new_axes(height=1.1 + 0.42 * rows), size + 2.3
    cells, owners = {}, {}
    for name, seen in scene.items():
        tokens = seen.past + seen.read + seen.drafted
        colors = [FAINT] * len(seen.past) + fate(seen)
        kept = len(seen.past + seen.read + seen.tokens) - 1  # the last token of a text is unread
        owners |= dict.fromkeys(seen.table, name)
        for place, (token, color) in enumerate(zip(tokens, colors, strict=True)):
            page = seen.table[place // size]
            cells[page, place % size] = text_of(token), color, 0.35 * (place < kept)
    for page in range(count):
        x, y = page % columns * width, -1.25 * (page // columns)
        ax.text(x - 0.9, y + 0.38, page, ha="right", va="center", fontsize=8, color=FAINT)
        ax.text(x - 0.2, y + 0.38, owners.get(page, ""), ha="right", va="center", **MONO)
        for row in range(size):
            text, color, strength = cells.get((page, row), ("", "#D0D0D0", 0))
            ax.add_patch(plt.Rectangle((x + row, y), 0.94, 0.8, edgecolor=color, linewidth=0.9,
                                       facecolor=tint(color, strength)))
            ax.text(x + row + 0.47, y + 0.38, visible(text.replace("\n", NEWLINE)) if text else "",
                    ha="center", va="center", fontsize=9, **MONO)
    for i, (name, seen) in enumerate(scene.items()):
        ax.text(i % 2 * 1.5 * width, -1.25 * rows + 0.1 - 0.9 * (i // 2),
                f"table of {name}: {', '.join(map(str, seen.table))}", fontsize=10)
    return canvas(ax, "After the forward: filled rows stay, hollow ones do not",
                  (-1.9, columns * width - 1.3), (-1.25 * rows - 1.1, 1.1))


def draw_prices(found, drafts=(4, 8)):
    """What drafts bring beside what a round takes, the forward and the drafting on top of it, by
    the number of readers, a panel for each K. found: as engine_room.sweep has it."""
    axes, readers = new_axes(height=3.3, columns=len(drafts)), list(found)
    for ax, k in zip(axes, drafts, strict=True):
        brings, costs, forward = prices(found, k)
        ax.fill_between(readers, forward, color=tint(TIMES["verify"], 0.45), linewidth=0)
        ax.fill_between(readers, forward, costs, color=tint(TIMES["draft"], 0.45), linewidth=0)
        ax.plot(readers, costs, color=INK, linewidth=1.2)
        ax.plot(readers, brings, marker="o", markersize=4, color=BLUE)
        for i, side in ((0, "left"), (-2, "center")):
            ax.text(readers[i], max(brings[i], costs[i]) + 0.2, f"{brings[i] / costs[i]:.2f}x",
                    ha=side, fontsize=10)
        plain_frame(ax, f"{k} drafts", "readers in the batch")
        ax.set(xscale="log", ylim=(0, 5.2))
        ax.set_xticks(readers, readers)
        ax.minorticks_off()
        ax.text(readers[0] * 1.15, 0.5, "forward, judging", va="center")
        ax.text(readers[0] * 1.15, (forward[0] + costs[0]) / 2, "drafting", va="center")
    axes[0].text(readers[0], 4.5, "tokens of a reader", color=BLUE)
    axes[0].set_ylabel("tokens; time in plain rounds")
    axes[0].figure.suptitle("In a crowd the drafts bring the same, and their rounds cost more",
                            x=0.02, ha="left", fontsize=12)
    return axes
