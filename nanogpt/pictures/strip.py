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
    MARKERS,
    ORANGE,
    PURPLE,
    RED,
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
    ax.set_xlabel("blue: accepted drafts, orange: the target's own token,\n"
                  "grey: time; dotted: plain decoding (1 token, 1 step)\n"
                  f"{device_name(pick_device())}", color=FAINT)
    ax.set(xlim=(0, right), ylim=(len(lines) - 0.6, -0.75), xticks=[], yticks=[])
    ax.spines[["top", "right", "bottom"]].set_visible(False)
    ax.set_title(title, color=INK, fontsize=12, loc="left")
    return ax


# ---------------------------------------------------------------- the front page's picture

FRONT = {"plain": "plain decoding", "01 chain of 4, p/q": "4 guesses in a row\n(chapter 01)",
         "02 tree 2-2-1-1, walk or multi-round": "a tree of 14 guesses\n(chapter 02)"}


def draw_front(found, tokens=1000):
    """How long `tokens` tokens take at temperature 1, and how many forwards: three bars.

    found: what nanogpt.does_it_pay saved.
    """
    ms, table = found["plain_ms"]["T = 1"] * tokens, found["tables"]["T = 1"]
    ax = new_axes(7.6, 2.1)
    for y, name in enumerate(FRONT):
        tau, fast = (table[name][key] for key in ("tau", "speedup")) if y else (1, 1)
        ax.barh(y, ms / fast, 0.62, color=tint(BLUE if y else GREY, 0.75))
        ax.text(ms / fast, y, f"  {ms / fast / 1e3:.1f} s,  {tokens / tau:,.0f} forwards",
                va="center", fontsize=12, color=INK)
    ax.set_yticks(range(len(FRONT)), FRONT.values(), fontsize=12, color=INK)
    ax.set_xticks([])
    ax.set_xlim(0, 1.45 * ms)
    ax.set_ylim(len(FRONT) - 0.5, -0.5)
    ax.tick_params(length=0)
    ax.spines[["top", "right", "bottom"]].set_visible(False)
    ax.set_title(f"The same model writes {tokens:,} tokens", color=INK, fontsize=12.5, loc="left")
    return ax


# ---------------------------------------------------------------- machines side by side


def draw_curves(columns, ax=None):
    """c(N) / c(1) over N, a line a machine. columns: {machine: of does_it_pay.measured}."""
    ax = ax or new_axes(7.2, 3.4)
    colors = (INK, GREEN, PURPLE, RED)
    for i, (machine, found) in enumerate(columns.items()):
        rows, ms = zip(*found["curve"], strict=True)
        ax.plot(rows, [value / ms[0] for value in ms], color=colors[i % 4], marker=MARKERS[i % 8],
                linewidth=1.8, markersize=5.5, linestyle="--" if "eager" in machine else "-",
                label=f"{machine}: c(1) = {ms[0]:.2f} ms")
    ax.set_xscale("log", base=2)
    ax.set_xticks(rows, [str(n) for n in rows])
    ax.minorticks_off()
    ax.set_ylim(0)
    ax.legend(**LOOK)
    return plain_frame(ax, "What N rows cost, in forwards of one row", "rows N in one forward",
                       "c(N) / c(1)")


def draw_worth(columns):
    """Speed-up over tau, a panel a machine, a point a method with its chapter's number.

    On a line through the origin all rounds have one price. columns: as in draw_curves.
    """
    axes = new_axes(min(3.7 * len(columns), 11.5), 3.6, columns=len(columns))
    axes = axes if len(columns) > 1 else [axes]
    lines = [line for found in columns.values() for table in found["tables"].values()
             for line in table.values()]
    longest = 0.4 + max(line["tau"] for line in lines)
    highest = 0.4 + max(line["speedup"] for line in lines)
    for ax, (machine, found) in zip(axes, columns.items(), strict=True):
        for price in (1, 2, 4):
            end = min(longest, highest * price)
            ax.plot([0, end], [0, end / price], color=GREY, linewidth=1, linestyle="--")
            ax.text(end, end / price, f" price {price}", color=FAINT, fontsize=9,
                    va="bottom" if end < longest else "center")
        for (T, table), color in zip(found["tables"].items(), (PURPLE, GREEN), strict=True):
            for name, line in table.items():
                ax.text(line["tau"], line["speedup"], name[:2], color=color, fontsize=9,
                        ha="center", va="center", fontweight="bold")
            ax.plot([], [], linestyle="", marker="s", color=color, label=T)
        ax.axhline(1, color=INK, linewidth=1, linestyle=":")
        ax.set_xlim(0, longest)
        ax.set_ylim(0, highest)
        plain_frame(ax, machine, "tau, tokens per round", "speed-up" if ax is axes[0] else None)
    axes[0].legend(**LOOK, loc="upper left")
    return axes


if __name__ == "__main__":  # python -m nanogpt.pictures.strip: the front page's picture
    pictures = MEASURED.parent.parent / "01_chain_specdec" / "pictures"  # the book takes it along
    print(save(draw_front(load_measured()["cpu"]), pictures / "front.png"))
