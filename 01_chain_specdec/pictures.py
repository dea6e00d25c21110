"""The lesson's pictures: what a row costs, where rejected probability goes, a round's time.

Blue is what is kept, light blue a draft, grey what is rejected, orange what the target adds; times
have the colours of the verbs, and the two drafters colours that mean nothing else.
"""

import torch

from chain_specdec import GPTDraft, speculate_chain
from nanogpt.bench import (
    median_round,
    speedups,
    summarize,
    tau_uncertainty,
    two_standard_errors,
)
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

# Colour, marker and shift of each drafter's curve: at one K the two error bars stand side by side.
DRAFTERS = (("#8C5A2B", "o", 0.975), ("#6A4FA3", "s", 1.025))


def strip(ax, y, blocks):
    """A line of blocks one after another at height y. blocks: (milliseconds, colour, text)."""
    left = 0.0
    for ms, color, text in blocks:
        ax.barh(y, ms, left=left, height=0.6, color=tint(color, 0.75),
                edgecolor="white", linewidth=0.6)
        ax.text(left + ms / 2, y, text, ha="center", va="center", fontsize=8, color=INK)
        left += ms
    return left


def draw_cost_and_timeline(curve, draft_ms, k=4):
    """Left: c(N) beside N forwards. Right: k + 1 plain steps beside a round that keeps all drafts.

    curve: {N: ms}, with N = 1 and k + 1; draft_ms: one draft token. -> the two Axes.
    """
    left, right = new_axes(11, 3.6, columns=2)
    rows, one, verify = sorted(curve), curve[1], VERBS["verify"]
    left.plot(rows, rows, color=GREY, linestyle="--", label="N forwards of one token")
    left.plot(rows, [curve[n] / one for n in rows], color=verify, marker="o", linewidth=2,
              label="one forward of N tokens, measured here")
    left.set_xscale("log", base=2)
    left.set_yscale("log", base=2)
    left.set_xticks(rows, [str(n) for n in rows])
    left.set_yticks(rows, [str(n) for n in rows])
    left.minorticks_off()
    left.legend(**LOOK)
    plain_frame(left, "time of a forward, c(N) / c(1)", "new tokens N")
    strip(right, 1, [(one, verify, "1")] * (k + 1))
    drafts = [(draft_ms, VERBS["draft"], "")] * k
    end = strip(right, 0, [*drafts, (curve[k + 1], verify, f"{k + 1} at once")])
    # The drafts are short: their number stands below them, with a line to the place.
    right.annotate(f"{k} drafts", (k * draft_ms / 2, -0.3), (0.03 * (k + 1) * one, -0.62),
                   fontsize=8, color=INK, arrowprops={"arrowstyle": "-", "color": FAINT})
    right.text(end, 0, "  one forward reads all drafts", va="center", fontsize=8, color=FAINT)
    right.set_yticks([1, 0], ["plain", "drafted"])
    plain_frame(right, f"{k + 1} tokens, if every draft is right", "milliseconds")
    right.grid(visible=False)
    right.set_ylim(-0.8, 1.5)
    return left, right


def draw_repair(target_probs, draft_probs, residual_probs=None):
    """Left: what is drafted, kept and rejected. Right: what is emitted, beside the target's marks.

    All (V,); without residual_probs only the left panel is drawn. -> the Axes, a list.
    """
    p, q = target_probs.tolist(), draft_probs.tolist()
    kept = torch.minimum(target_probs, draft_probs).tolist()
    axes = new_axes(5 if residual_probs is None else 9.5, 3.4, 1 if residual_probs is None else 2)
    axes = [axes] if residual_probs is None else axes
    tokens, most = range(len(p)), 1.1 * max(p + q)
    for ax, title in zip(axes, ["what the drafter proposes", "what is emitted"], strict=False):
        ax.bar(tokens, kept, 0.6, color=BLUE, label="kept, min(p, q)")
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


def count_steps(generations):
    """The rounds of all texts together."""
    return sum(len(g.steps) for g in generations)


def speedup_uncertainty(generations, baseline):
    """Two standard errors of a speed-up, from its spread over the prompts; 0 for one prompt."""
    ratios = speedups(generations, baseline)
    return two_standard_errors(ratios) if len(ratios) > 1 else 0.0


def draw_k_sweep(lines, results, baseline):
    """Two panels over K, each point with its uncertainty: tau on the left, speed-up on the right.

    lines: {name: bench.Line}; results: {name: list of Generation}; baseline: the
    name of plain decoding in it. -> the two Axes.
    """
    left, right = new_axes(10, 3.7, columns=2)
    drafters = dict.fromkeys(line.drafter for line in lines.values())
    for drafter, (color, marker, shift) in zip(drafters, DRAFTERS, strict=True):
        own = {name: line for name, line in lines.items() if line.drafter == drafter}
        xs = [line.k * shift for line in own.values()]
        for ax, ys, errors in (
                (left, [line.tau for line in own.values()],
                 [tau_uncertainty(results[name]) if count_steps(results[name]) > 1 else 0
                  for name in own]),
                (right, [line.measured for line in own.values()],
                 [speedup_uncertainty(results[name], results[baseline]) for name in own])):
            ax.errorbar(xs, ys, errors, color=color, marker=marker, markersize=5.5, linewidth=1.8,
                        elinewidth=1, capsize=3, label=drafter)
    right.axhline(1, color=INK, linewidth=1, linestyle=":")
    plain_frame(left, "tokens per target forward (tau)", "drafted tokens K")
    plain_frame(right, "speed-up over plain decoding", "drafted tokens K")
    ticks = sorted({line.k for line in lines.values()})
    for ax in (left, right):
        ax.set_xscale("log", base=2)
        ax.set_xticks(ticks, [str(k) for k in ticks])
        ax.minorticks_off()
    left.legend(**LOOK, loc="upper left")
    return left, right


def draw_round(results, name, baseline):
    """A round of one method, part by part, above the plain steps that write as many tokens.

    results: {name: list of Generation}. Medians, since a machine's load varies. -> the Axes, and
    the quotient of the two lengths, about the speed-up.
    """
    tau, (end, verbs) = summarize(results[name])["tau"], median_round(results[name])
    step, _ = median_round(results[baseline])
    ax = new_axes(9, 2.4)
    rest, longest = verbs["accept"] + verbs["commit"], max(end, tau * step)
    draft, beside = f"draft {verbs['draft']:.1f}", f"accept, commit {rest:.1f}"
    if verbs["draft"] < 0.12 * longest:  # narrow parts have their words beside the bar
        draft, beside = "", f"{draft}; {beside}"
    strip(ax, 1, [(verbs["draft"], VERBS["draft"], draft),
                  (verbs["verify"], VERBS["verify"], f"verify {verbs['verify']:.1f}"),
                  (rest, VERBS["accept"], "")])
    ax.text(end, 1, f"  {beside}", va="center", fontsize=8, color=FAINT)
    steps = [(step, VERBS["verify"], f"{step:.1f}")] * int(tau)
    strip(ax, 0, [*steps, ((tau - int(tau)) * step, VERBS["verify"], "")])
    ax.set_yticks([1, 0], [f"one round\n{name}", f"{tau:.2f} plain steps"])
    plain_frame(ax, f"one round of {tau:.2f} tokens, and {tau:.2f} plain steps", "milliseconds")
    ax.grid(visible=False)
    ax.set_xlim(0, max(1.03 * longest, 1.4 * end))
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
