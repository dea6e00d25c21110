"""The lesson's pictures: what a row costs, where rejected probability goes, a round's time.

Blue is what is accepted, light blue a draft, grey what is rejected, orange what the target adds;
times have the colours of the verbs.
"""

import torch

from chain_specdec import GPTDraft, speculate_chain
from nanogpt.bench import median_round, summarize
from nanogpt.packing import for_decoding, precision_of
from nanogpt.pictures.plots import (
    BLUE,
    FAINT,
    GREY,
    INK,
    LOOK,
    ORANGE,
    SKY,
    VERBS,
    draw_cells,
    new_axes,
    plain_frame,
    tint,
)
from nanogpt.pictures.step import VisibleDice, instructive, trace, watch
from nanogpt.sampling import Sampler
from nanogpt.sizes import SIZES
from nanogpt.train import get_gpt


def draw_lines(title, lines):
    """Lines of blocks, each below its name, on one scale of time. -> Axes

    lines: {name: [(milliseconds, verb, text), ..]}.
    """
    ax = new_axes(height=0.5 + 0.7 * len(lines))
    for y, (name, blocks) in enumerate(lines.items()):
        ax.text(0, y - 0.3, name, va="bottom", color=INK)
        left = 0.0
        for ms, verb, text in blocks:
            ax.barh(y, ms, 0.5, left, color=tint(VERBS[verb], 0.75), edgecolor="white")
            ax.text(left + ms / 2, y, text, ha="center", va="center", color=INK)
            left += ms
    ax.set_ylim(len(lines) - 0.7, -0.8)
    ax.axis("off")
    ax.set_title(title, color=INK, fontsize=12, loc="left")
    return ax


def draw_five_tokens(curve, draft_ms, k=4):
    """Three lines: k + 1 tokens written, read, and guessed before they are read. -> Axes

    curve: {N: ms}, with N = 1 and k + 1; draft_ms: one draft token, sampler and draw included.
    """
    read = (curve[k + 1], "verify", f"{k + 1}")
    lines = {f"write {k + 1} tokens": [(curve[1], "verify", "1")] * (k + 1),
             f"read {k + 1} tokens": [read],
             f"guess {k}, then read {k + 1}": [(k * draft_ms, "draft", f"{k}"), read]}
    return draw_lines("Reading is cheap, writing is not", {
        f"{name}: {sum(ms for ms, *_ in blocks) / curve[1]:.1f} plain steps": blocks
        for name, blocks in lines.items()})


def draw_repair(target_probs, draft_probs, residual_probs=None):
    """What is accepted, and what is rejected; with residual_probs what is drawn instead. -> Axes

    All (V,). A black line marks the target's probability of each token.
    """
    p, q, tokens = target_probs.tolist(), draft_probs.tolist(), range(len(target_probs))
    kept = torch.minimum(target_probs, draft_probs)
    above, name, color = draft_probs - kept, "rejected", GREY
    if residual_probs is not None:
        above, name, color = above.sum() * residual_probs, "drawn after a rejection", ORANGE
    ax = new_axes()
    ax.bar(tokens, kept.tolist(), 0.6, color=BLUE, label="accepted, min(p, q)")
    ax.bar(tokens, above.tolist(), 0.6, kept.tolist(), color=color, label=name)
    ax.hlines(p, [t - 0.38 for t in tokens], [t + 0.38 for t in tokens], color=INK, linewidth=2.4,
              label="target p")
    ax.set_xticks(tokens, [f"token {t}" for t in tokens])
    ax.set_ylim(0, 1.1 * max(p + q))
    ax.figure.legend(loc="outside lower center", ncols=2, **LOOK)
    return plain_frame(ax, "What is kept of the proposals" if residual_probs is None
                       else "What is emitted: exactly p", None, "probability")


def draw_cut(committed, new, keep):
    """A chain's cache before and after a commit: the same cells, only the line moves. -> Axes

    committed: texts of the last rows of the text; new: texts of the rows of this round, the root
    and the drafts; keep: how many of the new ones stay.
    """
    past, width = len(committed), len(committed) + len(new)
    ax = new_axes(height=2.8)
    rows = {"after the forward": (past, [BLUE] + [SKY] * (len(new) - 1)),
            "after the commit": (past + keep,
                                 [BLUE] + [SKY] * (keep - 1) + [GREY] * (len(new) - keep))}
    for y, (name, (length, colors)) in zip((1.7, 0), rows.items(), strict=True):
        draw_cells(ax, y, committed + new, [FAINT] * past + colors)
        ax.vlines(length - 0.03, y - 0.3, y + 0.85, color=INK, linewidth=3)
        ax.text(0, y + 0.9, f"{name}: length {length}", color=INK, va="bottom")
    ax.set(xlim=(-0.1, width + 0.1), ylim=(-0.3, 3.2))
    ax.axis("off")
    ax.set_title("Commit moves the line, and copies nothing", color=INK, fontsize=12, loc="left")
    return ax


def draw_round(results, name, baseline):
    """A round of one method, part by part, above the plain steps that write as many tokens.

    results: {name: list of Generation}; medians. -> the quotient of the two lengths.
    """
    tau, (end, verbs) = summarize(results[name])["tau"], median_round(results[name])
    step, _ = median_round(results[baseline])
    whole, more = [(step, "verify", f"{step:.1f}")] * int(tau), (tau - int(tau)) * step
    draw_lines(f"{tau:.2f} tokens in {end:.1f} ms instead of {tau * step:.1f} ms", {
        "one round: draft, verify, accept and commit": [
            *((verbs[verb], verb, f"{verbs[verb]:.1f}") for verb in ("draft", "verify")),
            (verbs["accept"] + verbs["commit"], "accept", "")],
        f"{tau:.2f} plain steps": [*whole, *[(more, "verify", "")] * (more > 0.1 * step)]})
    return tau * step / end


def step_round(args, dataset, device, prompt):
    """An instructive round of a chain -> its trace; see nanogpt/pictures/step.py."""
    target, small = (for_decoding(get_gpt(size, dataset, device, args.retrain), args.precision)
                     for size in (args.size, "draft"))
    dice, decode = VisibleDice(args.seed), dataset.tokenizer.decode
    steps = speculate_chain(target, GPTDraft(small), prompt, 5, Sampler(1.0), dice)
    rounds = watch(steps, dice, prompt, args.steps, target.config.block_size)
    return trace(
        instructive(rounds, decode), decode, dataset.vocab_size, chapter="01",
        title="Speculative decoding", rule="coins", drafted="drawn",
        subtitle=f"{SIZES[args.size].label} target in {precision_of(target)}, "
        f"{SIZES['draft'].label} drafter, 5 drafts, temperature 1",
        say_verify="Here every row has one child, and the mask is the causal one.")
