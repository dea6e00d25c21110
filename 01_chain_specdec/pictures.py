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


def strip(ax, y, blocks):
    """A line of blocks one after another at height y. blocks: (milliseconds, colour, text)."""
    left = 0.0
    for ms, color, text in blocks:
        ax.barh(y, ms, left=left, height=0.6, color=tint(color, 0.75),
                edgecolor="white", linewidth=0.6)
        ax.text(left + ms / 2, y, text, ha="center", va="center", fontsize=8, color=INK)
        left += ms
    return left


def draw_five_tokens(curve, draft_ms, k=4):
    """Three bars: k + 1 tokens written, read, and guessed before they are read. -> Axes

    curve: {N: ms}, with N = 1 and k + 1; draft_ms: one draft token, sampler and draw included.
    """
    ax, verify = new_axes(9, 2.5), VERBS["verify"]
    written, read = [(curve[1], verify, "1")] * (k + 1), (curve[k + 1], verify, f"{k + 1}")
    drafts = (k * draft_ms, VERBS["draft"], f"{k}")
    bars = {f"write {k + 1} tokens": written, f"read {k + 1} tokens": [read],
            f"guess {k}, read {k + 1}": [drafts, read]}
    for y, blocks in enumerate(reversed(bars.values())):
        ms = strip(ax, y, blocks)
        ax.text(ms, y, f"  {ms / curve[1]:.1f} plain steps", va="center", fontsize=9, color=INK)
    ax.set_yticks(range(3), reversed(bars), fontsize=10)
    ax.set_xlim(0, 1.16 * (k + 1) * curve[1])
    plain_frame(ax, "Reading is cheap, writing is not", "milliseconds")
    ax.grid(visible=False)
    return ax


def draw_repair(target_probs, draft_probs, residual_probs=None):
    """Left: what is drafted, accepted, rejected. Right: what is emitted, with the target's marks.

    All (V,); without residual_probs only the left panel is drawn. -> the Axes, a list.
    """
    p, q = target_probs.tolist(), draft_probs.tolist()
    kept = torch.minimum(target_probs, draft_probs).tolist()
    axes = new_axes(5 if residual_probs is None else 9.5, 3.4, 1 if residual_probs is None else 2)
    axes = [axes] if residual_probs is None else axes
    tokens, most = range(len(p)), 1.1 * max(p + q)
    titles = ["What the drafter proposes", "What is emitted"]
    for ax, title in zip(axes, titles, strict=False):
        ax.bar(tokens, kept, 0.6, color=BLUE, label="accepted, min(p, q)")
        ax.hlines(p, [t - 0.38 for t in tokens], [t + 0.38 for t in tokens], color=INK,
                  linewidth=2.4, label="target p", zorder=3)
        ax.set_xticks(tokens, [f"token {t}" for t in tokens])
        ax.set_ylim(0, most)
        plain_frame(ax, title, None, "probability")
    surplus = [a - b for a, b in zip(q, kept, strict=True)]
    axes[0].bar(tokens, surplus, 0.6, kept, color=GREY, label="rejected")
    if residual_probs is not None:
        added = (sum(surplus) * residual_probs).tolist()
        axes[1].bar(tokens, added, 0.6, kept, color=ORANGE, label="drawn after a rejection")
    names = {name: handle for ax in axes
             for handle, name in zip(*ax.get_legend_handles_labels(), strict=True)}
    axes[0].figure.legend(names.values(), names.keys(), loc="outside lower center", **LOOK,
                          ncols=len(names))
    return axes


def draw_cut(committed, new, keep):
    """A chain's cache before and after a commit: the same cells, only the length moves. -> Axes

    committed: texts of the last rows of the text; new: texts of the rows of this round, the root
    and the drafts; keep: how many of the new ones stay.
    """
    past, width = len(committed), len(committed) + len(new)
    ax = new_axes(1.6 + 0.6 * width, 2.4)
    stays = [FAINT] * past + [BLUE] * keep
    draw_cells(ax, 1.9, committed + new, [FAINT] * past + [BLUE] + [SKY] * (len(new) - 1))
    draw_cells(ax, 0, committed + new, stays + [GREY] * (len(new) - keep))
    for y, length, text in ((1.9, past, "read"), (0, past + keep, "committed")):
        ax.plot([length - 0.03] * 2, [y - 0.15, y + 0.95], color=INK, linewidth=2)
        ax.text(length, y - 0.2, f"length {length}", color=INK, fontsize=8, ha="center", va="top")
        ax.text(-0.2, y + 0.4, text, ha="right", va="center", fontsize=10, color=INK)
    for left, right, text in ((past, past + 1, "root"), (past + 1, width, "drafts")):
        ax.text((left + right) / 2, 2.85, text, ha="center", va="bottom", fontsize=8, color=FAINT)
    if keep < len(new):
        ax.text(past + keep + 0.1, 0.95, "overwritten by the next forward", fontsize=8,
                color=FAINT)
    ax.set_xlim(-1.9, width + 1.6)
    ax.set_ylim(-0.6, 3.3)
    ax.axis("off")
    return ax


def draw_round(results, name, baseline):
    """A round of one method, part by part, above the plain steps that write as many tokens.

    results: {name: list of Generation}; medians. -> the Axes, and the quotient of the two lengths.
    """
    tau, (end, verbs) = summarize(results[name])["tau"], median_round(results[name])
    step, _ = median_round(results[baseline])
    ax = new_axes(9, 2.4)
    rest, left = verbs["accept"] + verbs["commit"], tau - int(tau)
    strip(ax, 1, [(verbs["draft"], VERBS["draft"], f"draft {verbs['draft']:.1f}"),
                  (verbs["verify"], VERBS["verify"], f"verify {verbs['verify']:.1f}"),
                  (rest, VERBS["accept"], "")])
    ax.text(end, 1, f"  accept, commit {rest:.1f}", va="center", fontsize=9, color=INK)
    strip(ax, 0, [(step, VERBS["verify"], f"{step:.1f}")] * int(tau)
          + [(left * step, VERBS["verify"], "")])
    ax.set_yticks([1, 0], [f"one round\n{name}", f"{tau:.2f} plain steps"], fontsize=10)
    plain_frame(ax, f"{tau:.2f} tokens: one round, or {tau:.2f} plain steps", "milliseconds")
    ax.grid(visible=False)
    ax.set_xlim(0, max(1.03 * tau * step, 1.4 * end))
    return ax, tau * step / end


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
