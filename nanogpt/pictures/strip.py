"""What a method brings and what it costs: the strip of every lesson, the closing lesson's two.

    draw_strip(results)    # of nanogpt.bench.compare: plain decoding, 01's chain, this chapter's
"""

from nanogpt.bench import PLAIN, speedup, summarize
from nanogpt.device import device_name, pick_device
from nanogpt.does_it_pay import MEASURED, load_measured
from nanogpt.pictures.plots import (
    BLUE,
    FAINT,
    GREEN,
    GREY,
    INK,
    LOOK,
    ORANGE,
    new_axes,
    plain_frame,
    save,
    tint,
)


def price_of_a_round(generations, baseline):
    """-> tau, the price of a round in plain steps, and their quotient, the speed-up.

    Example: 3 tokens a round at 2.00x: a round takes as long as 1.5 plain steps.
    """
    tau, fast = summarize(generations)["tau"], speedup(generations, baseline)
    return tau, tau / fast, fast


def draw_strip(results, title="A round: the tokens it writes, the time it takes"):
    """A round of each method as two bars on one scale: the tokens that it writes, and the time that
    it takes, in plain steps. Where the upper bar is longer, the method is faster.

    results: {name: list of Generation}, as compare returns it, plain decoding among them.
    """
    lines = {name: price_of_a_round(runs, results[PLAIN])
             for name, runs in results.items() if name != PLAIN}
    ax = new_axes(height=1.4 + 0.95 * len(lines))
    right = max(max(tau, price) for tau, price, _ in lines.values()) / 0.5
    for y, (name, (tau, price, fast)) in enumerate(lines.items()):
        ax.text(0, y - 0.36, name, va="bottom", color=INK, fontweight="bold")
        # the accepted drafts, and the last token, which the target adds
        ax.barh(y - 0.2, tau - 1, 0.26, color=tint(BLUE, 0.75))
        ax.barh(y - 0.2, 1, 0.26, tau - 1, color=tint(ORANGE, 0.85))
        ax.barh(y + 0.1, price, 0.26, color=GREY)
        ax.text(tau, y - 0.2, f" {tau:.2f} tokens", va="center", color=INK)
        ax.text(price, y + 0.1, f" {price:.2f} plain steps", va="center", color=INK)
        ax.text(right, y - 0.05, f"{fast:.2f}x", ha="right", va="center", fontsize=15, color=INK)
        ax.vlines(1, y - 0.36, y + 0.26, color=INK, linewidth=1, linestyle=":", zorder=3)
    ax.text(right, -0.36, "speed-up", ha="right", va="bottom", color=FAINT)
    ax.set_xlabel("blue: accepted drafts, orange: the target's own token,\n"
                  "grey: time; dotted: plain decoding (1 token, 1 step)\n"
                  f"{device_name(pick_device())}", color=FAINT)
    ax.set(xlim=(0, right), ylim=(len(lines) - 0.6, -0.75), xticks=[], yticks=[])
    ax.spines[["top", "right", "bottom"]].set_visible(False)
    ax.set_title(title, color=INK, fontsize=12, loc="left")
    return ax


# ---------------------------------------------------------------- the front page's picture

FRONT = {"plain": "plain decoding", "01 chain of 4, p/q": "4 guesses in a row (chapter 01)",
         "02 tree 2-2-1-1, walk or multi-round": "a tree of 14 guesses (chapter 02)"}
COLORS = (INK, GREEN, ORANGE, BLUE)  # of machines


def draw_front(found, tokens=1000):
    """How long `tokens` tokens take at temperature 1, and how many passes: three bars.

    found: what nanogpt.does_it_pay saved. The chain's bar is blue.
    """
    ms, table = found["plain_ms"]["T = 1"] * tokens, found["tables"]["T = 1"]
    ax = new_axes(height=2.9)
    for y, (name, said) in enumerate(FRONT.items()):
        tau, fast = (table[name][key] if y else 1 for key in ("tau", "speedup"))
        ax.text(0, y - 0.28, said, va="bottom", color=INK)
        ax.barh(y, ms / fast, 0.5, color=tint(BLUE if y == 1 else GREY, 0.75))
        ax.text(ms / fast, y, f"  {ms / fast / 1e3:.2f} s,  {tokens / tau:,.0f} passes",
                va="center", color=INK)
    ax.set(xlim=(0, 1.75 * ms), ylim=(len(FRONT) - 0.7, -0.8))
    ax.axis("off")
    ax.set_title(f"The same model writes {tokens:,} tokens", color=INK, fontsize=13, loc="left")
    return ax


# ---------------------------------------------------------------- machines side by side


def draw_curves(columns):
    """c(N) / c(1) over N, a line a machine. columns: {machine: of does_it_pay.measured}."""
    ax = new_axes()
    for (machine, found), color in zip(columns.items(), COLORS, strict=False):
        rows, ms = zip(*found["curve"], strict=True)
        ax.plot(rows, [value / ms[0] for value in ms], "o-", color=color, label=machine)
    ax.set_xscale("log", base=2)
    ax.set_xticks(rows, [str(n) for n in rows])
    ax.minorticks_off()
    ax.set_ylim(0)
    ax.legend(**LOOK)
    return plain_frame(ax, "The time of N rows, divided by that of one", "rows N in one forward")


def draw_worth(columns):
    """Speed-up over tau at T = 1: a dot for each method, and each chapter's number at the one with
    the most tokens a round.

    On a line through the origin all rounds have one price. columns: as in draw_curves.
    """
    ax = new_axes(height=4.2)
    for price in (1, 2, 4, 8):
        end = min(5, 2.4 * price)
        ax.plot([0, end], [0, end / price], color=GREY, linewidth=1, linestyle="--")
        ax.text(end, end / price, f"price {price}", color=FAINT, ha="right", va="bottom")
    for (machine, found), color in zip(columns.items(), COLORS, strict=False):
        dots = sorted((line["tau"], line["speedup"], name[:2])
                      for name, line in found["tables"]["T = 1"].items())
        tau, fast, _ = zip(*dots, strict=True)
        ax.plot(tau, fast, "o", color=color, markersize=4, label=machine)
        for x, y, chapter in {dot[2]: dot for dot in dots}.values():
            ax.text(x, y, f" {chapter} ", color=color, fontweight="bold",
                    va="top" if chapter == "06" else "bottom",
                    ha="right" if chapter == "05" else "left")
    ax.set(xlim=(0, 5), ylim=(0, 2.6))
    ax.legend(**LOOK, loc="upper left")
    return plain_frame(ax, "The same tokens, another price", "tau, tokens per round", "speed-up")


if __name__ == "__main__":  # python -m nanogpt.pictures.strip: the front page's picture
    pictures = MEASURED.parent.parent / "01_chain_specdec" / "pictures"  # the book takes it along
    print(save(draw_front(load_measured()["cpu"]), pictures / "front.png", dpi=150))
