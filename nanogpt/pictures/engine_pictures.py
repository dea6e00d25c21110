"""What the lesson on the engine draws: a forward's rows, the pages, what drafts bring and
cost."""

from nanogpt.engine_room import speeds
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
    """The rows of one forward in one strip, whose they are, and what each request then writes; of
    one that ends the reader is asked.

    scene: {name: Seen}; text_of(token); notes: {name: what is special about it}.
    """
    ax, x = new_axes(height=2.5), 0
    for line, (name, seen) in enumerate(scene.items()):
        rows = seen.read + seen.drafted
        draw_cells(ax, 0, [text_of(token).replace("\n", NEWLINE) for token in rows], fate(seen), x)
        ax.hlines(-0.3, x + 0.1, x + len(rows) - 0.16, color=INK, linewidth=1.5)  # the bracket
        ax.text(x + len(rows) / 2, -0.5, name, va="top", ha="center", **MONO)
        wrote = "".join(visible(text_of(token)) for token in seen.tokens)
        wrote = "?" if seen.ended else f"\u201c{wrote}\u201d"
        ax.text(0, -2.1 - 0.9 * line, f"{name}: {notes[name]}, writes {wrote}", va="top",
                fontsize=10, parse_math=False)
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


def draw_crowd(found, drafts):
    """How many times as many tokens a second drafts bring, by the number of readers, a line for
    each K, or for another drafter's four. found: as engine_room.sweep has it; drafts: {K or the
    drafter: its colour}."""
    ax, fast = new_axes(height=3), speeds(found)
    ax.axhline(1, color=INK, linewidth=1)
    for k, color in drafts.items():
        gains = [row[k] / row[0] for row in fast.values()]
        says = f"{k}: 4 drafts" if isinstance(k, str) else f"GPT: {k} draft{'s' * (k > 1)}"
        ax.plot(list(fast), gains, "o-", color=color, label=says)
        for n in (0, -1):
            ax.annotate(f"{gains[n]:.2f}x", (list(fast)[n], gains[n]), (5, 5),
                        textcoords="offset points", color=color, fontsize=10)
    ax.legend(frameon=False, labelcolor="linecolor", loc=(0.01, 0.12))
    ax.set(xscale="log", xlim=(0.9, 1.6 * max(fast)), ylim=(0.8, None))
    ax.set_xticks(list(fast), list(fast))
    ax.minorticks_off()
    return plain_frame(ax, "In a crowd drafts bring less, whoever guesses",
                       "readers in the batch", "times as fast as without")
