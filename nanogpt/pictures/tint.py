"""Generated text, tinted by forward: each box is what one target forward brought.

The deeper the shade, the more tokens it brought. Plain decoding is all boxes of one token; the
longer the boxes, the fewer forwards the same text has cost.
"""

from itertools import groupby

import matplotlib.pyplot as plt

from nanogpt.pictures.plots import BLUE, FAINT, INK, new_axes, tint

DEEPEST = 6  # from so many tokens on the shade stays the same
NEWLINE = "\u21b5"


def shade(count):
    """The colour of a forward that brought `count` tokens; white for the prefill's, 0."""
    return tint(BLUE, 0 if count == 0 else 0.1 + 0.6 * (min(count, DEEPEST) - 1) / (DEEPEST - 1))


def letters(generation, decode):
    """Each letter of a text as (letter, number of its forward, tokens of that forward).

    The first token came from the prefill: forward 0, which counts nowhere.
    """
    steps = [(0, 0, generation.tokens[:1])]
    steps += [(n, len(step.tokens), step.tokens) for n, step in enumerate(generation.steps, 1)]
    return [(letter, n, count) for n, count, tokens in steps for letter in decode(tokens)]


def lines(marked, width):
    """Letters -> lines of at most `width` letters, broken after a newline or between words."""
    found, line = [], []
    for one in marked:
        if len(line) == width:
            blank = max((i for i, (letter, _, _) in enumerate(line) if letter == " "), default=-1)
            cut = blank + 1 or width
            found.append(line[:cut])
            line = line[cut:]
        line.append(one)
        if one[0] == "\n":
            found.append(line)
            line = []
    return found + [line] * bool(line)


def draw_tint(generation, decode, title, width=36, ax=None):
    """One text in boxes, a box a forward; its title says how many forwards it took. -> the Axes.

    generation: see collect; decode: tokens -> text; width: letters in a line.
    """
    rows = lines(letters(generation, decode), width)
    ax = ax or new_axes(0.1 * width + 0.3, 0.2 * len(rows) + 0.5)
    for y, row in enumerate(rows):
        x = 0
        for (_, count), run in groupby(row, key=lambda one: one[1:]):
            text = "".join(letter for letter, _, _ in run).replace("\n", NEWLINE)
            ax.add_patch(plt.Rectangle((x, y), len(text) - 0.1, 0.86, facecolor=shade(count),
                                       edgecolor=tint(BLUE, 0.6), linewidth=0.6))
            for place, letter in enumerate(text):
                ax.text(x + place + 0.45, y + 0.45, letter, fontsize=9.5, family="DejaVu Sans Mono",
                        ha="center", va="center", parse_math=False,
                        color=FAINT if letter == NEWLINE else INK)
            x += len(text)
    ax.set_title(f"{title}: {len(generation.steps)} forwards, tau {generation.tau:.2f}",
                 fontsize=10, color=INK, loc="left")
    ax.set_xlim(-0.2, width)
    ax.set_ylim(len(rows) + 0.1, -0.1)
    ax.axis("off")
    return ax


def draw_tints(generations, decode, width=36):
    """Several texts side by side, and what the shades mean. -> the list of Axes.

    generations: {name: Generation}.
    """
    tall = max(len(lines(letters(g, decode), width)) for g in generations.values())
    axes = new_axes((0.092 * width + 0.2) * len(generations), 0.19 * tall + 0.75, len(generations))
    axes = axes if isinstance(axes, list) else [axes]
    for ax, (name, generation) in zip(axes, generations.items(), strict=True):
        draw_tint(generation, decode, name, width, ax)
        ax.set_ylim(tall + 0.1, -0.1)
    patches = [plt.Rectangle((0, 0), 1, 1, facecolor=shade(count), edgecolor=tint(BLUE, 0.5))
               for count in range(1, DEEPEST + 1)]
    names = [*map(str, range(1, DEEPEST)), f"{DEEPEST} or more"]
    axes[0].figure.legend(patches, names, loc="outside lower center", ncols=DEEPEST, frameon=False,
                          fontsize=9, labelcolor=INK, title="tokens that one forward brought",
                          title_fontsize=9)
    return axes
