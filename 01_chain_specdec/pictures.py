"""The lesson's pictures: what a round costs, one coin, where rejected probability goes, every K.

Blue is what is accepted, grey what is rejected, orange what the target adds; times have the colours
of the verbs.
"""

import torch

from bench import CHAIN, round_in_steps
from chain_specdec import GPTDraft, speculate_chain
from nanogpt.packing import precision_of
from nanogpt.pictures.plots import (
    BLUE,
    GREY,
    INK,
    ORANGE,
    VERBS,
    canvas,
    draw_ranked,
    new_axes,
    plain_frame,
    tint,
    visible,
)
from nanogpt.pictures.step import VisibleDice, instructive, trace, watch
from nanogpt.sampling import Sampler
from nanogpt.sizes import SIZES
from nanogpt.train import get_pair

COLORS = VERBS | {"text": tint(GREY), "root": "white", "accepted": BLUE, "rejected": GREY,
                  "own": ORANGE, "nothing": "white"}


def draw_lines(title, lines):
    """Lines of blocks, each below its name, on one scale. -> Axes

    lines: {name: [(length, what it is, text), ..]}; what it is: a key of COLORS.
    """
    ax = new_axes(height=0.5 + 0.78 * len(lines))
    for y, (name, blocks) in enumerate(lines.items()):
        ax.text(0, y - 0.3, name, va="bottom", color=INK)
        left = 0.0
        for length, kind, text in blocks:
            framed = kind == "root"
            ax.barh(y, length, 0.55, left, color=tint(COLORS[kind], 0.75),
                    edgecolor=INK if framed else "white", zorder=2 + framed)
            ax.text(left + length / 2, y, text, ha="center", va="center", color=INK)
            left += length
    return canvas(ax, title, None, (len(lines) - 0.7, -0.8))


def draw_five_tokens(curve, results):
    """Five tokens written, read, and guessed before they are read, in forwards of one row. -> Axes

    curve: c(1) and c(5), see cost_curve; results: as in bench.
    """
    _, draft, verify, _ = round_in_steps(results, CHAIN)
    read = curve[5] / curve[1]
    both, reading = read * (1 + draft / verify), (read, "verify", "5 rows")
    return draw_lines("Reading is cheap, writing is not", {
        "write 5 tokens: 5 c(1)": [(1, "verify", "1 row")] * 5,
        f"read 5 tokens: {read:.2f} c(1)": [reading],
        f"guess 4 (brown), then read 5: {both:.2f} c(1)": [(both - read, "draft", ""), reading]})


def draw_round(results):
    """The third line of `draw_five_tokens` with its coins, above as many tokens one by one."""
    tau, draft, read, rest = round_in_steps(results, CHAIN)
    price = draft + read + rest
    ax = draw_lines(f"{tau:.2f} tokens / {price:.2f} plain steps = {tau / price:.2f}x", {
        f"one round, guess 4 (brown) and read 5: {price:.2f} plain steps": [
            (draft, "draft", f"{draft:.2f}"), (read, "verify", f"{read:.2f}"),
            (rest, "accept", "")],
        f"{tau:.2f} tokens by plain decoding: {tau:.2f} plain steps": [(tau, "verify", "")]})
    ax.text(price, 0, f" {rest:.2f}: coins, commit, loop", va="center", color=INK)
    return ax


def draw_coin(title, ratio, u, instead):
    """The coin of one draft, which fell at u, beyond its ratio p / q. instead: what came. -> Axes
    """
    ax = draw_lines(title, {
        "a coin u, anywhere between 0 and 1:": [
            (ratio, "accepted", f"accepted: u < p / q = {ratio:.2f}"),
            (1 - ratio, "rejected", "rejected")],
        "the target writes a token of its own:": [
            (ratio, "nothing", ""), (1 - ratio, "own", instead)]})
    ax.text(u, -0.3, f"u = {u:.2f}\n\u25bc", ha="center", color=INK)
    return ax


def draw_repair(target_probs, draft_probs, residual_probs=None):
    """What is accepted, and what is rejected; with residual_probs what is drawn instead. -> Axes

    All (3,). A black line marks the target's probability of each token.
    """
    kept = torch.minimum(target_probs, draft_probs)
    title, more, name, color = "What is kept of the drafts", draft_probs - kept, "rejected", GREY
    if residual_probs is not None:
        title, more = "What is emitted: exactly p", more.sum() * residual_probs
        name, color = "after a\nrejection", ORANGE
    ax, tokens = new_axes(), torch.arange(3)
    ax.bar(tokens, kept, 0.6, color=BLUE)
    ax.bar(tokens, more, 0.6, kept, color=color)
    ax.hlines(target_probs, tokens - 0.38, tokens + 0.38, color=INK, linewidth=2.4)
    most = int(more.argmax())
    for x, y, text, ink in ((0, 0.25, "accepted", "white"), (2.43, target_probs[2], "p", INK),
                            (most, kept[most] + more[most] / 2, name, INK)):
        ax.text(x, y, text, ha="center", va="center", color=ink)
    ax.set_xticks(tokens, ["token 0", "token 1", "token 2"])
    ax.set_ylim(0, 0.65)
    return plain_frame(ax, title, None, "probability")


def draw_cut(past, root, accepted, rejected):
    """A chain's cache: a commit moves its length over the rows that are kept. -> Axes

    past: rows before the round; root, accepted, rejected: the texts of its rows, a letter each.
    """
    rows, end = {"root": root, "accepted": accepted, "rejected": rejected}, past + 1 + len(accepted)
    ax = draw_lines("Commit moves the line, and copies nothing", {
        f"The length is {past} (left line), after the commit {end} (right)": [
            (1.4, "text", f"{past} rows\nof text"),
            *((max(len(texts), 1.25), kind, f"{kind}\n{'   '.join(map(visible, texts))}")
              for kind, texts in rows.items())]})
    ax.vlines([1.4, 2.65 + len(accepted)], -0.28, 0.4, color=INK, linewidth=4, zorder=3)
    return ax


def draw_every_k(results):
    """The speed-up of every method, a bar each, the longest in blue. results: as in bench, the same
    K's for two drafters. -> Axes"""
    speed = {}
    for name in results:
        tau, *parts = round_in_steps(results, name)
        speed[f"{name}: {tau:.2f} / {sum(parts):.2f} ="] = tau / sum(parts)
    best = max(speed, key=speed.get)
    ax = draw_ranked(speed, "tau / price = speed-up",
                     [BLUE if name == best else GREY for name in speed],
                     title=f"Fastest here: {best.split(':')[0]}")
    for y in (0.5, len(speed) / 2):  # below plain decoding, and between the drafters
        ax.axhline(y, color=GREY)
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
