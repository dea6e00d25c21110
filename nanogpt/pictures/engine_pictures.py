"""What the lesson on the engine draws: a forward's rows, pages, records."""

from nanogpt.pictures.plots import (
    BLUE,
    FAINT,
    GREY,
    INK,
    MONO,
    NEWLINE,
    ORANGE,
    RED,
    canvas,
    draw_cells,
    new_axes,
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
    ax, width = new_axes(height=2), size + 1
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
        ax.plot([end, end], [-0.8, 1], color=INK, linewidth=3)
        ax.text(end, -0.5, "the text ends ", va="center", ha="right", fontsize=10)
    for place, color, meaning, strength in (
            (0, FAINT, "read before", 0.35), (6, ORANGE, "root", 0.35),
            (9.5, BLUE, "accepted, stays", 0.35), (17.5, BLUE, "accepted, does not stay", 0)):
        key(ax, place, -1.5, color, meaning, strength)
    ax.text(0, -2.4, "A text's last token is unread, so its row does not stay.", fontsize=9)
    return canvas(ax, f"{who} stops inside its drafts: hollow rows do not stay",
                  (-0.3, len(seen.table) * width), (-2.7, 2))


def draw_line_up(records):
    """The records of several engines, a row for each: how far p and q are from their replay, round
    by round; how many standard errors too often the drafts were q's favourite; the rest in words.

    records: {name: (the Replays of one text, the `evidence` of six)}.
    """
    axes = iter(new_axes(height=0.3 + 0.7 * len(records), columns=4, rows=len(records)))
    says = ("p as replayed?\noff, by round", "q as replayed?\noff, by round",
            "drawn as q says?\nsurplus favourites", "six seeds:\nsix texts?")
    for name, (replays, found) in records.items():
        drafts, accepted, _, _, drawn, _, texts = found[2:]
        row = [next(axes) for _ in says]
        for ax, off in zip(row, ("p_off", "q_off"), strict=False):
            ax.bar(range(len(replays)), [max(getattr(one, off), default=0) for one in replays],
                   color=RED)
            ax.set(ylim=(0, 1), xlim=(-1, len(replays)), xticks=[], yticks=[])
        row[0].set_ylabel(name, rotation=0, va="center", labelpad=9)
        row[2].barh(0, drawn, 0.5, color=RED)
        row[2].text(9.4, 0, f"{drawn:+.1f}", va="center", ha="right", fontsize=9)
        row[2].vlines((-3, 0, 3), -0.5, 0.5, color=(GREY, INK, GREY))
        canvas(row[2], "", (-3.5, 9.5), (-0.7, 0.7))
        row[3].text(0, 0.5, f"{texts} of 6 texts\n{drafts:.1f} drafts a round\n"
                    f"{accepted:.2f} accepted", va="center", fontsize=9)
        canvas(row[3], "", (0, 1), (0, 1))
        if name == next(iter(records)):
            for ax, say in zip(row, says, strict=True):
                ax.set_title(say, fontsize=9)
    row[0].figure.suptitle("The records of seven engines: who is wrong?", x=0.02, ha="left",
                           fontsize=plt.rcParams["axes.titlesize"])
    return row
