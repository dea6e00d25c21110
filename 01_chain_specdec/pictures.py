"""The lesson's pictures: what a round costs, where rejected probability goes, every K.

Blue is what is accepted, grey what is rejected, orange the target's own, light blue the drafter's.
"""

from bench import CHAIN, round_in_steps
from chain_specdec import GPTDraft, speculate_chain
from nanogpt.packing import precision_of
from nanogpt.pictures.plots import (
    BLUE,
    GREY,
    INK,
    ORANGE,
    TIMES,
    canvas,
    draw_ranked,
    new_axes,
    plain_frame,
    tint,
)
from nanogpt.pictures.step import VisibleDice, instructive, trace, watch
from nanogpt.sampling import Sampler
from nanogpt.sizes import SIZES
from nanogpt.train import get_pair


def draw_times(title, lines):
    """Lines of blocks, each below its name, on one scale. -> Axes

    lines: {name: [(time, whose it is, a key of TIMES, text), ..]}.
    """
    ax = new_axes(height=0.5 + 0.78 * len(lines))
    for y, (name, blocks) in enumerate(lines.items()):
        ax.text(0, y - 0.3, name, va="bottom")
        left = 0.0
        for time, whose, text in blocks:
            ax.barh(y, time, 0.55, left, color=tint(TIMES[whose], 0.75), edgecolor="white")
            ax.text(left + time / 2, y, text, ha="center", va="center")
            left += time
    return canvas(ax, title, None, (len(lines) - 0.7, -0.8))


def draw_reading(curve):
    """Five tokens written, and read, in forwards of one row; curve: c(1) and c(5). -> Axes"""
    read = curve[5] / curve[1]
    return draw_times("Reading is cheap, writing is not", {
        "write 5 tokens: 5 c(1)": [(1, "verify", "1 row")] * 5,
        f"read 5 tokens: {read:.2f} c(1)": [(read, "verify", "5 rows")]})


def draw_round(results):
    """An average round of the lesson's chain, and as many tokens one by one; as in bench. -> Axes
    """
    tau, draft, verify, price = round_in_steps(results, CHAIN)
    rest = price - draft - verify
    return draw_times(f"{tau:.2f} tokens / {price:.2f} plain steps = {tau / price:.2f}x", {
        f"one round: {draft:.2f} + {verify:.2f} + {rest:.2f} = {price:.2f} plain steps": [
            (draft, "draft", f"draft\n{draft:.2f}"), (verify, "verify", f"verify\n{verify:.2f}"),
            (rest, "rest", "")],
        f"{tau:.2f} tokens by plain decoding": [(tau, "verify", f"{tau:.2f} plain steps")]})


def draw_repair(title, target_probs, parts):
    """How often each token comes out, in parts on top of each other. -> Axes

    parts: {"accepted": (V,), ..}; black lines: the target's probabilities (V,).
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
    ax.set_ylim(0, 0.65)
    return plain_frame(ax, title, None, "probability")


def draw_every_k(results):
    """The speed-up of every method of a `registry`, a bar each, the longest in blue. -> Axes"""
    speed = {}
    for name in results:
        tau, _, _, price = round_in_steps(results, name)
        speed[f"{name}: {tau:.2f} / {price:.2f} ="] = tau / price
    best = max(speed, key=speed.get)
    ax = draw_ranked(speed, "tau / price = speed-up",
                     [BLUE if name == best else GREY for name in speed],
                     title=f"Fastest here: {best.split(':')[0]}")
    drafters = [name.split(",")[0] for name in results]
    for y in range(1, len(drafters)):
        if drafters[y] != drafters[y - 1]:
            ax.axhline(y - 0.5, -0.9, color=GREY, linewidth=0.8, clip_on=False)
    return ax


def step_round(args, dataset, device, prompt):
    """An instructive round of a chain -> its trace; see nanogpt/pictures/step.py."""
    target, small = get_pair(args, dataset, device)
    dice, decode = VisibleDice(args.seed), dataset.tokenizer.decode
    steps = speculate_chain(target, GPTDraft(small), prompt, 4, Sampler(1.0), dice)
    rounds = watch(steps, dice, prompt, args.steps, target.config.block_size)
    return trace(
        instructive(rounds, decode), decode, dataset.vocab_size, chapter="01",
        title="Speculative decoding", rule="coins", drafted="drawn",
        subtitle=f"{SIZES[args.size].label} target in {precision_of(target)}, "
        f"{SIZES['draft'].label} drafter, 4 drafts, temperature 1",
        say_verify="Here every row has one child, and the mask is the causal one.")
