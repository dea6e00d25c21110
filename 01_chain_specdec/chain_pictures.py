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


def draw_authors(text, decode, width=58):
    """A text, every letter on the colour of its author -> the Axes.

    text: a Generation; decode(tokens) -> a string. Its first token is the prefill's, the target's.
    """
    authors = [(text.tokens[:1], ORANGE)]
    for step in text.steps:
        authors += [(step.tokens[:-1], BLUE), (step.tokens[-1:], ORANGE)]
    letters = [(letter, color) for tokens, color in authors for letter in decode(tokens)]
    ax, x, y = new_axes(), 0, 0
    for letter, color in letters:
        ax.add_patch(Rectangle((x, y - 0.42), 1, 0.84, facecolor=tint(color, 0.55)))
        ax.text(x + 0.5, y, letter.replace("\n", NEWLINE), ha="center", va="center", **MONO)
        x += 1
        if letter == "\n" or x >= width and letter == " " or x > width + 10:
            x, y = 0, y + 1
    share = sum(color == BLUE for _, color in letters) / len(letters)
    ax.figure.set_figheight(0.3 * (y + 1) + 0.5)
    return canvas(ax, f"{share:.0%} of the letters are the small model's (blue)",
                  (-0.5, width + 10), (y + 0.6, -0.6))


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

    found: a stored contest, with two standard errors over the texts; alphas: {family: its alpha}, a
    panel each. Texts stop where the measured ones do.
    """
    panels, worst = new_axes(height=2.7, columns=len(alphas)), 0
    for ax, (family, alpha) in zip(panels, alphas.items(), strict=True):
        loop = next(loop for loop in LOOPS if loop.family == family)
        said = foretold(taus(found, 1, "01", loop.name), alpha, found["tokens"])
        ks, (curve, points) = list(said), zip(*said.values(), strict=True)
        worst = max(worst, *(abs(tau / line - 1) for line, tau in said.values()))
        ax.plot(ks, curve, color=INK)
        ax.errorbar(ks, points, [tau_error(found, 1, f"01 {loop.title(k)}") for k in ks], fmt="o",
                    color=FAMILIES[family], markersize=4, capsize=2)
        ax.set_xscale("log", base=2)
        ax.set(xticks=[1, 2, 4, 8, 16], xticklabels=[1, 2, 4, 8, 16], ylim=(0, 5))
        ax.text(1, 4.3, f"alpha {alpha:.2f}")
        plain_frame(ax, family, "K, drafts a round")
    panels[0].set_ylabel("tau")
    panels[0].figure.suptitle(
        f"One number (lines) foretells tau (dots) within {worst:.0%}, T = 1", x=0.02, ha="left")
    return panels


def draw_lengths(found, chosen):
    """Longer and longer chains on the map, at T = 1; a ring: the length that is chosen. -> Axes

    found: a stored contest; chosen: {family: ({length: its method}, the chosen length)}.
    """
    fast, lines = speedups(found, 1), {}
    for (family, (chains, _)), side in zip(chosen.items(), (-1, 1), strict=True):
        lines[family] = FAMILIES[family], "o-", side, {
            str(K): fast[name][:2] for K, name in chains.items()}
    steepest = [max(fast[name][2] for name in chains.values()) for chains, _ in chosen.values()]
    ax = draw_lines("The top is flat: neighbours tie (T = 1)", lines, (0, 2.6, 0, 4.8),
                    rays=(1, 1.5), dashed=steepest)
    for chains, K in chosen.values():
        tokens, price, _ = fast[chains[K]]
        ax.plot(price, tokens, "o", color=INK, markersize=13, fillstyle="none", zorder=5)
    return ax


def draw_speeds(found, drafters):
    """What drafters gain at T = 1 in a stored contest. -> Axes

    drafters: {what it is called: (its method judged one by one, and as a block)}.
    """
    ax, fast, colors = new_axes(height=2.6), speedups(found, 1), (PURPLE, GREEN, SKY)
    for y, ((name, ways), color) in enumerate(zip(drafters.items(), colors, strict=True)):
        one, block = (fast[method][2] for method in ways)
        ax.barh(y, block, 0.6, color=tint(color, 0.35))
        ax.barh(y, one, 0.6, color=tint(color, 0.8))
        ax.text(1.05, y, name, va="center")
        ax.text(block + 0.03, y, f"{block:.2f}x", va="center")
    ax.axvline(1, color=INK, linewidth=1.5, ymax=0.86)
    ax.text(1, -0.62, "plain decoding", ha="center", va="center")
    ax.set(yticks=[], ylim=(len(drafters) - 0.5, -0.9), xlim=(0, 2.8),
           xlabel="speed-up. Dark: guesses judged one by one; pale: as a whole")
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
