"""The lesson's pictures: who wrote what, where rejected probability goes, how long rounds are.

Blue is what is accepted, grey what is rejected, orange the target's own, light blue the drafter's.
"""

from matplotlib.patches import Rectangle

from chain_room import LOOPS, foretold
from nanogpt.does_it_pay import behind, speedups, tau_error, taus
from nanogpt.packing import precision_of
from nanogpt.pictures.maps import FAMILIES, draw_rays, framed
from nanogpt.pictures.plots import (
    BLUE,
    GREEN,
    GREY,
    INK,
    MONO,
    NEWLINE,
    ORANGE,
    PURPLE,
    SKY,
    canvas,
    new_axes,
    plain_frame,
    tint,
)
from nanogpt.pictures.step import VisibleDice, instructive, trace, watch
from nanogpt.run import trained_cast
from nanogpt.sampling import Sampler
from nanogpt.sizes import SIZES
from nanogpt.three_numbers import chain_tokens


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


def draw_repair(title, target_probs, parts):
    """How often each token comes out, in parts on top of each other. -> Axes

    parts: {"accepted": (V,), ..}; black lines: the target's probabilities (V,). What is rejected
    reaches up to the drafter's.
    """
    colors = {"accepted": BLUE, "rejected": GREY, "residual": ORANGE}
    names = [f"token {token}" for token in range(len(target_probs))]
    ax, below = new_axes(), 0 * target_probs
    for name, part in parts.items():
        ax.bar(names, part, 0.6, below, color=tint(colors[name], 0.75))
        most = int(part.argmax())
        ax.text(most, below[most] + part[most] / 2, name, ha="center", va="center")
        below = below + part
    ax.plot(names, target_probs, "_", color=INK, markersize=75, markeredgewidth=2.4)
    heights = {"p, what the target wants": target_probs}
    if "rejected" in parts:
        heights["q, what the drafter proposes"] = below
        ax.text(1, 0.2, "missing", ha="center", va="center")  # of the lesson's token 1
    for name, height in heights.items():
        ax.text(0.35, float(height[0]), name, va="center")
    ax.set_ylim(0, 0.65)
    return plain_frame(ax, title, None, "probability")


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
        ax.text(1, 1 / (1 - alpha) + side, f"{family}: 1 / (1 - {alpha:.2f})", color=color)
    ax.set_xscale("log", base=2)
    ax.set(xticks=[1, 2, 4, 8, 16], xticklabels=[1, 2, 4, 8, 16], ylim=(0, 5))
    return plain_frame(ax, f"One number, alpha (lines), gives tau (dots) within {worst:.0%}",
                       "K, drafts a round", "tau at T = 1")


def draw_lengths(found, alphas, chosen):
    """Longer and longer chains on the map, at T = 1. -> Axes

    Dots are measured, filled if level with four drafts, the square; thin lines are the formula's,
    a ring its choice. found: a stored contest; alphas, chosen: see chain_room.chosen_lengths.
    """
    fast, ax = speedups(found, 1), new_axes(height=4.4)
    framed(ax, "No length beats four beyond its error (T = 1)")
    for (family, (chains, best, d, rest)), side in zip(chosen.items(), (1, -1), strict=True):
        color, more = FAMILIES[family], behind(found, 1, chains[4])
        prices, tokens = zip(*((rest + K * d, chain_tokens(alphas[family], K))
                               for K in range(1, 9)), strict=True)
        ax.plot(prices, tokens, color=color, linewidth=1)
        ax.step(prices[1:3], tokens[1:3], color=INK, where="post")
        ax.plot(*fast[chains[best]][1::-1], "o", color=INK, markersize=14, fillstyle="none")
        for K, name in chains.items():
            ax.plot(*fast[name][1::-1], "s" if K == 4 else "o", color=color, markersize=7, zorder=4,
                    markerfacecolor=color if more[name][0] <= more[name][1] else "white")
        ax.text(prices[-1] + 0.1 * side, tokens[-1], f"8: {family}", color=color, va="center",
                ha="left" if side > 0 else "right")
    ax.text(1.54, 2.5, "the third draft:\na steep step", va="center")
    ax.text(1.25, 0.3, "square: four drafts\nfilled: level with them\nline, ring: the formula")
    draw_rays(ax, (0, 2.6, 0, 4.8), (1,), [fast[chains[4]][2] for chains, *_ in chosen.values()])
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
