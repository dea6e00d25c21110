"""The lesson's pictures: who wrote what, where rejected probability goes, how long rounds are.

Blue is what is accepted, grey what is rejected, orange the target's own, light blue the drafter's.
"""

from matplotlib.patches import Rectangle

from chain_room import LOOPS, foretold
from nanogpt.does_it_pay import speedups, tau_error, taus
from nanogpt.packing import precision_of
from nanogpt.pictures.maps import FAMILIES, draw_lines
from nanogpt.pictures.plots import (
    BLUE,
    GREEN,
    GREY,
    INK,
    MONO,
    NEWLINE,
    ORANGE,
    PURPLE,
    RED,
    SKY,
    canvas,
    draw_cells,
    new_axes,
    plain_frame,
    tint,
)
from nanogpt.pictures.step import VisibleDice, instructive, trace, watch
from nanogpt.run import trained_cast
from nanogpt.sampling import Sampler
from nanogpt.sizes import SIZES


def draw_authors(text, decode):
    """A text, every letter on the colour of its author -> the Axes.

    text: a Generation; decode(tokens) -> a string. Its first token is the prefill's, the target's.
    """
    authors, ax, x, y, widest = [(text.tokens[:1], ORANGE)], new_axes(), 0, 0, 0
    for step in text.steps:
        authors += [(step.tokens[:-1], BLUE), (step.tokens[-1:], ORANGE)]
    for letter, color in [(one, color) for tokens, color in authors for one in decode(tokens)]:
        ax.add_patch(Rectangle((x, y - 0.42), 1, 0.84, facecolor=tint(color, 0.55)))
        ax.text(x + 0.5, y, letter.replace("\n", NEWLINE), ha="center", va="center", **MONO)
        x += 1
        widest = max(widest, x + 1)
        if letter == "\n":
            x, y = 0, y + 1
    ax.figure.set_size_inches(0.076 * widest, 0.3 * y + 1)
    return canvas(ax, f"{len(text.steps)} passes of the large model, not {len(text.tokens) - 1}\n"
                  "(blue: guessed; orange: its own)", (-0.5, widest), (y + 0.6, -0.6))


def draw_repair(title, p, q):
    """How often each token is drafted, in two parts, and what the target still lacks. -> Axes

    p, q (V,): black lines are the target's probabilities; the bars reach up to the drafter's.
    """
    names, ax, kept = [f"token {token}" for token in range(len(p))], new_axes(), p.minimum(q)
    for name, part, below, color in (("accepted", kept, 0 * p, BLUE), ("rejected", q, kept, GREY),
                                     ("missing", p, kept, ORANGE)):
        part = part - below
        ax.bar(names, part, 0.8, below, color=tint(color, 0.75), linestyle="--",
               fill=name != "missing")
        for x in part.nonzero().flatten().tolist():
            ax.text(x, below[x] + part[x] / 2, f"{name} {part[x]:.1f}".replace("0", ""),
                    ha="center", va="center")
            if name == "rejected":
                ax.annotate("", (0.65 + 0.35 * x, 0.26), (0.4 + 0.6 * x, q[x] - 0.05),
                            arrowprops={"arrowstyle": "->"})
    ax.plot(names, p, "_", color=INK, markersize=90, markeredgewidth=2.4)
    ax.text(0.6, 0.53, "bars: q, what the drafter proposes\nlines: p, what the target wants")
    ax.set_ylim(0, 0.65)
    plain_frame(ax, title, None, "probability").grid(visible=False)
    return ax


def draw_roots(ax, row, root, token):
    """On a picture of a cache: the round's root, at `row`, and the next, above the row it gets."""
    for x, y, text in ((row, 2.2, root), (row, 0, root), (row + 4, 1.05, token)):
        draw_cells(ax, y, [text], [ORANGE], x)
    ax.patches[-1].set(facecolor="white", linestyle="--")
    ax.text(row + 5.2, 1, "next root, not yet read:\nwill overwrite the\nrejected draft",
            va="center")
    ax.figure.set_size_inches(7.2, 2.6)
    ax.set_xlim(-1.7, row + 9)
    return ax


def draw_foretold(found, alphas):
    """Tokens a round over K at T = 1: measured, and by one alpha, an overlap of p and q. -> Axes

    found: a stored contest, with two standard errors over the texts; alphas: {family: its alpha}.
    Texts stop where the measured ones do; dashed: endless chains in endless texts.
    """
    ax, worst = new_axes(height=3.4), 0
    for (family, alpha), side in zip(alphas.items(), (-0.3, 0.1), strict=True):
        loop, color = "chain of {}, " + family, FAMILIES[family]
        said = foretold(taus(found, 1, "01", loop), alpha, found["tokens"])
        ks, (curve, points) = list(said), zip(*said.values(), strict=True)
        worst = max(worst, *(abs(tau / line - 1) for line, tau in said.values()))
        ax.plot(ks, curve, color=color)
        ax.errorbar([k + k * side / 6 for k in ks], points, [
            tau_error(found, 1, "01 " + loop.format(k)) for k in ks], fmt="o", color=color,
            markersize=4, capsize=2)
        ax.axhline(1 / (1 - alpha), color=color, linestyle="--", linewidth=1)
        ax.text(1, 1 / (1 - alpha) + side, f"{family}, without an end: {1 / (1 - alpha):.1f}",
                color=color)
    ax.set_xscale("log", base=2)
    ax.set_xticks(ks, ks)
    ax.set(ylim=(0, 5))
    return plain_frame(ax, f"One number, alpha (lines), gives tau (dots) within {worst:.0%}",
                       "K, drafts a round", "tau at T = 1")


def draw_lengths(found):
    """The GPT's chains on the map at T = 1, with a steep step and a flat one; the 4-gram's of four.
    -> Axes"""
    four, eight, count = (speedups(found, 1)[f"01 chain of {name}"] for name in (
        "4, 57K GPT", "8, 57K GPT", "4, 4-gram"))
    ax = draw_lines("Stop when a step is flatter than its line (T = 1)", {
        "57K GPT, 8": (FAMILIES["57K GPT"], "o", 1, {"4": four[:2], "": eight[:2]}),
        "": (FAMILIES["4-gram"], "s", 1, {f"the count, 4: {count[2]:.2f}x": count[:2]}),
    }, (0, 3.3, 0, 4.4), (1,), four[2:])
    for (low, left, speed), (high, right, _), said, color in (
            ((1, 1, 1), four, "{:.1f} > {:.0f}:\ntake it", GREEN),
            (four, eight, "{:.1f} < {:.2f}:\nstop", RED)):
        ax.plot([left, right, right, left], [low, low, high, low], color=color, linewidth=2.5)
        ax.text(right + 0.06, low - 0.1, said.format((high - low) / (right - left), speed),
                color=color, weight="bold", va="bottom")
    return ax


def draw_speeds(found, drafters):
    """What drafters gain at T = 1 in a stored contest. -> Axes

    drafters: {what it is called: (its method judged one by one, and as a block)}.
    """
    ax, fast, colors = new_axes(height=2.8), speedups(found, 1), (PURPLE, GREEN, SKY)
    for y, ((name, ways), color) in enumerate(zip(drafters.items(), colors, strict=True)):
        for way, x, height, shade in zip(ways, (-0.18, 0.2), (0.4, 0.3), (0.8, 0.4), strict=True):
            ax.barh(y + x, fast[way][2], height, color=tint(color, shade))
            ax.text(fast[way][2] + 0.03, y + x, f"{fast[way][2]:.2f}x", va="center")
        ax.text(0.04, y - 0.18, name, va="center")
    ax.text(1.04, -0.18, "judged one by one", va="center")
    ax.text(1.04, 0.2, "judged as a whole", va="center")
    ax.axvline(1, color=INK, linewidth=1.5, ymax=0.88)
    ax.text(1, -0.64, "plain decoding", ha="center", va="center")
    ax.set(yticks=[], ylim=(len(drafters) - 0.5, -0.9), xlim=(0, 2.8), xlabel="speed-up")
    ax.spines["left"].set_visible(False)
    ax.set_title("A table counted in seconds beats the small model;\na head beats both")
    return ax


def step_round(args, dataset, device, prompt):
    """An instructive round of a chain -> its trace; see nanogpt/pictures/step.py."""
    m, loop = trained_cast(args, dataset, device), LOOPS[0].but(form="eager")
    dice, decode = VisibleDice(args.seed), dataset.tokenizer.decode
    steps = loop.steps(m, 4, prompt, Sampler(1.0), dice)
    rounds = watch(steps, dice, prompt, args.steps, m.target.config.block_size)
    return trace(
        instructive(rounds, decode), decode, dataset.vocab_size, chapter="01",
        title="Speculative decoding", rule="coins", drafted="drawn",
        subtitle=f"{SIZES[args.size].label} target in {precision_of(m.target)}, "
        f"{SIZES['draft'].label} drafter, 4 drafts, temperature 1",
        say_verify="Here every row has one child, and the mask is the causal one.")
