"""What the lesson on the engine draws: a forward's rows, pages, prices, the gain."""

from nanogpt.pictures.maps import FAMILIES
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


def key(ax, x, y, color, meaning, strength=0.35):
    """What a box of this colour means; strength 0: a hollow one."""
    ax.scatter(x + 0.4, y, marker="s", s=64, color=tint(color, strength), edgecolor=color)
    ax.text(x + 0.9, y, meaning, va="center", fontsize=9)


def draw_forward(scene, text_of):
    """The rows of one forward in one strip, whose they are, and below what each request writes; of
    one that ends the reader is asked.

    scene: {name: Seen}; text_of(token).
    """
    ax, x = new_axes(height=1.6), 0
    for name, seen in scene.items():
        rows = seen.read + seen.drafted
        draw_cells(ax, 0, [text_of(token).replace("\n", NEWLINE) for token in rows], fate(seen), x)
        ax.hlines(0.4, x + len(seen.read) + seen.accepted, x + len(rows), color=INK)
        ax.hlines(-0.3, x + 0.1, x + len(rows) - 0.16, color=INK, linewidth=1.5)  # the bracket
        wrote = "".join(visible(text_of(token)) for token in seen.tokens)
        ax.text(x + len(rows) / 2, -0.5, f"{name}\n{'?' if seen.ended else wrote}", va="top",
                ha="center", **MONO)
        x += len(rows)
    for place, color, meaning in ((0, FAINT, "prompt"), (4.2, ORANGE, "root"),
                                  (7.4, BLUE, "accepted draft"),
                                  (14, GREY, "struck: rejected, or behind it")):
        key(ax, place, -2.5, color, meaning)
    return canvas(ax, f"One forward of {x} rows; below, what each request writes",
                  (-0.3, x + 0.3), (-2.9, 1.1))


def draw_pages(seen, size, text_of, who):
    """The pages of one request after the forward, in the order of its text.

    seen: its Seen; size: rows of a page; text_of(token); who: its name. Colours as in draw_forward;
    filled: the row stays. A bar stands where the text ends, if it has ended.
    """
    ax, width = new_axes(height=1.8), size + 1
    tokens, colors = seen.past + seen.read + seen.drafted, [FAINT] * len(seen.past) + fate(seen)
    kept = len(seen.past + seen.read + seen.tokens) - 1  # the last token of a text is unread
    for i, page in enumerate(seen.table):
        ax.text(i * width, 1.1, f"page {page}", fontsize=10)
        for place in range(i * size, (i + 1) * size):
            x = place + i
            has = place < len(tokens)
            color = colors[place] if has else "#D0D0D0"
            ax.add_patch(plt.Rectangle((x, 0), 0.94, 0.8, edgecolor=color, linewidth=1.2,
                                       facecolor=tint(color, 0.35 * (place < kept))))
            if has:
                ax.text(x + 0.47, 0.4, visible(text_of(tokens[place]).replace("\n", NEWLINE)),
                        ha="center", va="center", **MONO)
    if seen.ended:  # behind the first row that does not stay: a text's last token is unread
        end = kept + kept // size + 0.97
        ax.plot([end, end], [-0.2, 1], color=INK, linewidth=3)
        ax.text(end, 1.1, "the text ends", fontsize=10)
    for place, color, meaning, strength in (
            (0, FAINT, "read before", 0.35), (6, ORANGE, "root", 0.35),
            (9.5, BLUE, "accepted, stays", 0.35), (17.5, BLUE, "accepted, does not stay", 0)):
        key(ax, place, -0.9, color, meaning, strength)
    ax.text(0, -1.9, "A text's last token is unread, so its row does not stay.", fontsize=9)
    return canvas(ax, f"{who} stops inside its drafts: hollow rows do not stay",
                  (-0.3, len(seen.table) * width), (-2.2, 2))


def draw_prices(parts):
    """A round with four drafts, in plain rounds of the same readers; a bar for each number of them.

    parts: {readers: the milliseconds of his share of what is paid once, his own, his drafts'}.
    """
    ax, says = new_axes(height=2.6), ("paid once", "for the reader", "for four drafts")
    for y, (n, ms) in enumerate(parts.items()):
        left, plain = 0.0, sum(ms[:2])
        for i, part in enumerate(ms):
            bar = ax.barh(y, part / plain, 0.5, left, color=(GREY, FAINT, FAMILIES["4-gram"])[i],
                          edgecolor="white", label=None if y else says[i])
            ax.bar_label(bar, [f"{part / plain:.2f}"[1:]], label_type="center", fontsize=9)
            left += part / plain
        ax.text(0, y - 0.32, f"{n} reader{'s' * (n > 1)}", va="bottom")
        ax.text(left + 0.02, y, f"{left:.2f} plain rounds", va="center", fontsize=10)
    ax.legend(loc="lower center", ncols=3, fontsize=9, frameon=False, handlelength=1)
    return canvas(ax, "Four drafts look small alone, and large in a crowd", (0, 2.5),
                  (y + 0.9, -0.75))


def draw_gains(title, lines):
    """What drafts are worth in larger and larger crowds -> the Axes.

    lines: {name: {readers: (times as many tokens as without drafts, drafts)}}.
    """
    ax = plain_frame(new_axes(height=3.4), title, "readers", "times as many tokens")
    styles = ("ko-", "center"), ("kD:", "bottom"), ("C5s-", "top"), ("C4^-", "center")
    for (name, gains), (style, va) in zip(lines.items(), styles, strict=True):
        best, _ = zip(*gains.values(), strict=True)
        ax.plot([*gains], best, style)
        ax.text(33, best[-1], name, va=va, fontsize=9)
    ax.set(ylim=1, xlim=(0, 49), xticks=(1, 4, 8, 16, 32))  # below 1 drafts would not pay
    return ax
