"""What a method brings and what it costs: the strip of every lesson, the closing lesson's two.

    draw_strip(results)    # of nanogpt.bench.compare: plain decoding, 01's chain, this chapter's
"""

from nanogpt.bench import PLAIN, summarize
from nanogpt.device import device_name, pick_device
from nanogpt.does_it_pay import MEASURED, fastest, load_measured, one_graph, worth
from nanogpt.pictures.plots import (
    BLUE,
    FAINT,
    GREY,
    INK,
    ORANGE,
    TIMES,
    canvas,
    new_axes,
    plain_frame,
    tint,
)


def draw_strip(results, title="A round: the tokens it writes, the time it takes"):
    """A round of each method as two bars on one scale: the tokens that it writes, and the time that
    it takes, in plain steps. Where the upper bar is longer, the method is faster.

    results: {name: list of Generation}, as compare returns it, plain decoding among them.
    """
    lines = worth({name: {"tau": line["tau"], "round_ms": line["ms_per_step"]}
                   for name, line in zip(results, map(summarize, results.values()), strict=True)})
    del lines[PLAIN]
    ax = new_axes(height=1.4 + 0.95 * len(lines))
    right = max(max(tau, price) for tau, price, _ in lines.values()) / 0.5
    for y, (name, (tau, price, fast)) in enumerate(lines.items()):
        ax.text(0, y - 0.36, name, va="bottom", fontweight="bold")
        # the accepted drafts, and the last token, which the target adds
        ax.barh(y - 0.2, tau - 1, 0.26, color=tint(BLUE, 0.75))
        ax.barh(y - 0.2, 1, 0.26, tau - 1, color=tint(ORANGE, 0.85))
        ax.barh(y + 0.1, price, 0.26, color=GREY)
        ax.text(tau, y - 0.2, f" {tau:.2f} tokens", va="center")
        ax.text(price, y + 0.1, f" {price:.2f} plain steps", va="center")
        ax.text(right, y - 0.05, f"{fast:.2f}x", ha="right", va="center", fontsize=15)
        ax.vlines(1, y - 0.36, y + 0.26, color=INK, linewidth=1, linestyle=":", zorder=3)
    ax.text(right, -0.36, "speed-up", ha="right", va="bottom", color=FAINT)
    ax.text(0, len(lines) - 0.6, "blue: accepted drafts, orange: the target's own token,\n"
            "grey: time; dotted: plain decoding (1 token, 1 step)\n"
            f"{device_name(pick_device())}", va="top", color=FAINT)
    return canvas(ax, title, (0, right), (len(lines) - 0.6, -0.75))


# ---------------------------------------------------------------- the front page's picture

FRONT = {"plain": "plain decoding", "01 chain of 4, p/q": "4 guesses in a row (chapter 01)",
         "02 tree 2-2-1-1, walk or multi-round": "a tree of 14 guesses (chapter 02)"}
COLORS = (INK, "#7B3294", "#A6611A")  # of machines


def draw_front(found, tokens=1000):
    """How long `tokens` tokens take at temperature 1, and how many passes: three bars.

    found: what nanogpt.does_it_pay saved. The chain's bar is blue.
    """
    table = found["tables"]["T = 1"]
    ms, worths = table[PLAIN]["round_ms"] * tokens, worth(table)
    ax = new_axes(height=2.9)
    for y, (name, said) in enumerate(FRONT.items()):
        tau, _, fast = worths[name]
        ax.text(0, y - 0.28, said, va="bottom")
        ax.barh(y, ms / fast, 0.5, color=tint(BLUE if y == 1 else GREY, 0.75))
        ax.text(ms / fast, y, f"  {ms / fast / 1e3:.2f} s,  {tokens / tau:,.0f} passes",
                va="center")
    return canvas(ax, f"The same model writes {tokens:,} tokens, on a CPU", (0, 1.75 * ms),
                  (len(FRONT) - 0.7, -0.8))


# ---------------------------------------------------------------- machines side by side


def draw_curves(columns):
    """c(N) / c(1) over N, a line a machine; dotted: the rows of two methods.

    columns: {machine: of does_it_pay.measured}.
    """
    ax = new_axes()
    for (machine, found), color in zip(columns.items(), COLORS, strict=False):
        rows, ms = zip(*found["curve"], strict=True)
        ax.plot(rows, [value / ms[0] for value in ms], "o-", color=color)
        ax.text(rows[-1], ms[-1] / ms[0] + 0.2, machine, color=color, fontweight="bold", ha="right")
    for n, chapter in ((5, "01"), (16, "05")):
        ax.axvline(n, color=INK, linewidth=1, linestyle=":", zorder=0)
        ax.text(n, 4, f" {chapter}")
    ax.set_xscale("log", base=2)
    ax.set_xticks(rows, map(str, rows))
    ax.set_ylim(0)
    return plain_frame(ax, "What the rows of a forward cost", "rows N in one forward",
                       "c(N) / c(1)")


def draw_worth(columns):
    """Speed-up over tau at T = 1: each chapter's fastest method on the first machine, and the same
    method on the others, a star where its round is one graph. On a line through the origin all
    rounds have one price.

    columns: as in draw_curves.
    """
    ax = new_axes(height=4.4)
    ax.axhline(1, color=INK, linewidth=1)
    ax.text(4.5, 1, "plain decoding", va="bottom", ha="right")
    for price in (1, 2, 4, 8):
        end = min(3.8, 2.3 * price)
        ax.plot([0, end], [0, end / price], color=GREY, linewidth=1, linestyle="--", zorder=0)
        ax.text(end, end / price, f" price {price}", color=FAINT, va="top")
    tables = {machine: found["tables"]["T = 1"] for machine, found in columns.items()}
    first, table = next(iter(tables.items()))
    worths = {machine: worth(found) for machine, found in tables.items()}
    shown = [fastest(table, [name for name in table if name[1] == digit])[0]
             for digit in "123456"]
    for name in shown:  # from machine to machine
        twins = [found[name] for found in worths.values()]
        ax.plot([twin[0] for twin in twins], [twin[2] for twin in twins], color=GREY, zorder=0)
    for y, color, (machine, found) in zip((2.25, 2.1), COLORS, tables.items(), strict=False):
        ax.text(4.5, y, f"\u25cf {machine}", color=color, fontweight="bold", ha="right")
        stars = one_graph(found)
        for name in shown:
            tau, _, fast = worths[machine][name]
            ax.plot(tau, fast, "o", color=color, markersize=21)
            ax.text(tau, fast, name[:2] + "*" * (name in stars), color="white", ha="center",
                    va="center_baseline")
    ax.set(xlim=(1.8, 4.5), ylim=(0, 2.4))
    most = max(table, key=lambda name: table[name]["tau"])
    return plain_frame(
        ax, f"Most tokens: {most[:2]}. Fastest on {first}: {fastest(table)[0][:2]}.",
        "tau, tokens a round", "speed-up")


def draw_rounds(columns, T, names):
    """A plain step and a round of each method, as blocks of time in plain steps; a panel a machine.
    Striped: drafting and verifying in one graph.

    columns: as in draw_curves; names: {of a method: what the picture calls it}.
    """
    panels = new_axes(height=2.9 * len(columns), rows=len(columns))
    colors = [tint(color, 0.75) for color in TIMES.values()]
    longest = max(worth(found["tables"][f"T = {T}"])[name][1] for found in columns.values()
                  for name in names)
    for ax, (machine, found) in zip(panels, columns.items(), strict=True):
        table = found["tables"][f"T = {T}"]
        step, worths = table[PLAIN]["round_ms"], worth(table)
        ax.barh(0, 1, 0.4, color=colors[1])
        ax.text(0, -0.22, f"a plain step: {step:.2f} ms", va="bottom")
        for y, (name, said) in enumerate(names.items(), start=1):
            tau, price, fast = worths[name]
            draft, verify = (table[name]["verb_ms"][verb] / step for verb in ("draft", "verify"))
            both, striped = draft + verify, name in one_graph(table)
            lone = draft * (not striped)
            ax.barh([y] * 3, [lone, both - lone, price - both], 0.4, [0, lone, both], color=colors,
                    edgecolor="white", hatch=["", "//" * striped, ""])
            parts = f"+ verify {both:.2f}" if striped else f"{draft:.2f}, verify {verify:.2f}"
            ax.text(0, y - 0.22, f"{said}: {tau:.2f} / {price:.2f} = {fast:.2f}x\n"
                    f"draft {parts}, rest {price - both:.2f}", va="bottom")
        canvas(ax, f"On {machine}", (0, 1.2 * longest), (len(names) + 0.3, -0.7))
    return panels


if __name__ == "__main__":  # python -m nanogpt.pictures.strip: the front page's picture
    pictures = MEASURED.parent.parent / "01_chain_specdec" / "pictures"  # the book takes it along
    draw_front(load_measured()["cpu"]).figure.savefig(pictures / "front.png", dpi=150)
