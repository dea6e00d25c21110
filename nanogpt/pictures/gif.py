"""A trace as an animated GIF of at most 12 seconds, for a README, where no key can be pressed.

    pick_shots    which frames of a trace, with which caption, for how long
    draw_shot     one of them -> a figure of 800 x 500 pixels
    save_gif      all of them -> one file

The first picture is complete: the text, the tree with its verdict, what the round brought. The
numbers are those of the page (see step_page.py), from the same trace. A chain (chapter 01) has
its bars below its nodes; a tree has the panel that its verb needs on the right.
"""

import textwrap
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from PIL import Image

from nanogpt.pictures import plots
from nanogpt.pictures.gif_panels import (
    draw_brought,
    draw_chain_bars,
    draw_dice,
    draw_distribution,
    draw_gather,
    draw_lit_mask,
)
from nanogpt.pictures.gif_tree import (
    DPI,
    HEADS,
    HEIGHT,
    P_INK,
    Q_INK,
    WIDTH,
    draw_text,
    draw_tree,
    is_chain,
    new_panel,
)
from nanogpt.pictures.plots import (
    BLUE,
    DRAFTER,
    FAINT,
    GREY,
    INK,
    ORANGE,
    tint,
)

LONGEST = 11_900  # milliseconds of a whole GIF
SLIDE = (0.15, 0.35, 0.65, 0.85)  # how far the kept rows have moved, picture by picture
COLORS = 44  # of the GIF's palette; one more says: as before
EXACT = ("white", INK, FAINT, GREY, BLUE, ORANGE, DRAFTER, P_INK, Q_INK, *HEADS[1:],
         *plots.HEADS, *(tint(head, 0.75) for head in plots.HEADS), tint(ORANGE, 0.25),
         tint(GREY, 0.35))

@dataclass
class Shot:
    """One picture: a frame of the trace, its caption, milliseconds.

    whole: the first picture, all of the round at once; moved: how far the kept rows are.
    """

    frame: dict
    caption: str
    ms: int
    whole: bool = False
    moved: float = 0.0


def pick_shots(trace):
    """The frames that have a caption, and first the whole round -> list of Shot, 12 s at most."""
    last = trace["frames"][-1]
    told = [Shot(f, f["gif"], 700 + 16 * len(f["gif"])) for f in trace["frames"] if f["gif"]]
    moves = [Shot(last, last["gif"], 80, moved=share) for share in SLIDE]
    end = Shot(last, last["gif"], 1600, moved=1.0)
    shots = [Shot(last, trace["idea"], 2600, whole=True), *told, *moves, end]
    share = min(1.0, LONGEST / sum(shot.ms for shot in shots))
    for shot in shots:
        shot.ms = int(shot.ms * share / 10) * 10  # a GIF counts in hundredths of a second
    return shots


def draw_head(figure, trace, shot):
    """The chapter, the verb of this picture among all verbs, and the caption."""
    verbs = list(dict.fromkeys(f["verb"] for f in trace["frames"]))
    figure.text(0.02, 0.93, f"{trace['chapter']} {trace['title']}", fontsize=14, color=INK,
                fontweight="bold")
    right = 0.975
    for verb in reversed(verbs):
        now = verb == shot.frame["verb"] and not shot.whole
        right -= 0.0108 * len(verb)
        figure.text(right, 0.945, verb, fontsize=10.5, va="center",
                    color="white" if now else FAINT,
                    bbox={"boxstyle": "round,pad=0.3", "facecolor": BLUE if now else "white",
                          "edgecolor": BLUE if now else GREY})
        right -= 0.03
    figure.text(0.02, 0.885, textwrap.fill(shot.caption, 74), fontsize=14.5, color=INK, va="top",
                parse_math=False, linespacing=1.3)


def draw_side(figure, trace, shot):
    """The panel that this picture needs, to the right of the tree."""
    frame, left, bottom, width, height = shot.frame, 0.655, 0.2, 0.33, 0.545
    if shot.whole or frame["verb"] == "commit":
        draw_brought(new_panel(figure, left, bottom, width, height), trace)
    elif frame["verb"] == "verify" or not frame["bars"]:
        draw_lit_mask(new_panel(figure, left, bottom, width, height - 0.02), trace, frame)
    elif frame["verb"] == "draft" and len(frame["bars"]) > 1:
        charts = frame["bars"][:2]
        for place, chart in enumerate(charts):
            panel = new_panel(figure, left, bottom + 0.29 * (1 - place), width, 0.21)
            draw_distribution(figure, panel, chart, 4)
    else:
        dice = frame["lines"] and frame["verb"] != "draft"
        up = 0.15 if dice else 0
        panel = new_panel(figure, left, bottom + up, width, height - 0.06 - up)
        draw_distribution(figure, panel, frame["bars"][0], 5 if dice else 7)
        if dice:
            draw_dice(new_panel(figure, left, bottom - 0.03, width, 0.13), frame["lines"][0],
                      bool(frame["next"]))


def draw_shot(trace, shot):
    """One picture -> Figure of 8 x 5 inches, its canvas one of pixels."""
    figure = Figure((WIDTH, HEIGHT), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    draw_head(figure, trace, shot)
    if is_chain(trace):
        draw_tree(new_panel(figure, 0.02, 0.6, 0.96, 0.18), trace, shot.frame)
        draw_chain_bars(figure, trace, shot)
    else:
        draw_tree(new_panel(figure, 0.01, 0.2, 0.62, 0.585), trace, shot.frame)
        draw_side(figure, trace, shot)
    if shot.frame["verb"] == "commit" and not shot.whole:
        draw_gather(figure, trace, shot.moved)
    else:
        draw_text(figure, trace, shot.frame)
    return figure


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
    """The pictures of a trace -> an endless GIF at path. Makes the folder. -> the path.

    Raises ValueError if the file cannot be written.
    """
    path, shots, pictures = Path(path), pick_shots(trace), []
    for shot in shots:
        canvas = draw_shot(trace, shot).canvas
        canvas.draw()
        pictures.append(Image.frombytes("RGBA", canvas.get_width_height(),
                                        canvas.buffer_rgba()).convert("RGB"))
    palette = shared_palette(pictures)
    first, *rest = [Image.fromarray(indices) for indices in
                    changes_only([nearest(picture, palette) for picture in pictures])]
    for picture in (first, *rest):
        picture.putpalette([*palette.flatten().tolist(), 0, 0, 0])
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        first.save(path, "GIF", save_all=True, append_images=rest, loop=0,
                   duration=[shot.ms for shot in shots], transparency=COLORS, disposal=1,
                   optimize=False)
    except OSError as error:
        raise ValueError(f"picture {path} cannot be written: {error.strerror}") from None
    return path
