"""What the lesson draws: multi-round rejection, what a guess brings; the round of the step page."""

import torch

from chain_specdec import residual
from nanogpt.packing import precision_of
from nanogpt.pictures.plots import (
    BLUE,
    FAINT,
    GREY,
    INK,
    MONO,
    ORANGE,
    canvas,
    new_axes,
    plain_frame,
)
from nanogpt.pictures.step import VisibleDice, instructive, trace, watch
from nanogpt.run import trained_cast
from nanogpt.sampling import Sampler
from nanogpt.sizes import SIZES
from tree_room import LOOPS, drawn_chances


def short(value):
    """0.3 -> '.3'; 0.15 -> '.15'."""
    return f"{round(value, 4):g}".lstrip("0")


def stack(ax, title, tokens, parts):
    """Bars whose parts, (values, color, what stands on each), lie end to end; a line a token."""
    start = torch.zeros(len(tokens))
    for values, color, shown in parts:
        bars = ax.barh(range(len(tokens)), values, 0.7, start, color=color, edgecolor="white")
        ax.bar_label(bars, shown, label_type="center", color="white" if color == BLUE else INK)
        start = start + values
    for y, token in enumerate(tokens):
        ax.text(-0.02, y, token, va="center", **MONO)
    canvas(ax, title, (-0.02, 0.56), (len(tokens) - 0.5, -0.5))


def draw_turns(p, q, tokens):
    """Multi-round rejection of p, q (V,): the first child; the second where the first of the tokens
    that can be rejected was, A; and what all of it makes up. Blue is accepted, grey rejected,
    orange still owed: by A, B, ..., of which each is as wide as its rejection is probable."""
    def numbers(values, name=""):
        return [f"{name}{short(value)}" if value > 0.045 else "" for value in values.tolist()]

    accepted, rejected = torch.minimum(p, q), (q - p).clamp(min=0)
    first, second, total = new_axes(height=6, rows=3)
    parts = [(accepted, BLUE, numbers(accepted)), (rejected, GREY, numbers(rejected))]
    paid = torch.zeros(len(p))
    for name, x in zip("ABCD", rejected.nonzero().flatten().tolist(), strict=False):
        new_p, left = rejected[x] * residual(p, q), q.clone()
        left[x] = 0
        new_q = rejected[x] * left / left.sum()
        same = torch.minimum(new_p, new_q)
        paid += same
        parts.append((new_p, ORANGE, numbers(new_p, f"{name} ")))
        if name == "A":
            stack(second, f"A: {tokens[x]} rejected ({short(float(rejected[x]))}), the second child"
                  f" pays {short(float(same.sum()))}", tokens, [
                      (part, color, numbers(part)) for part, color in (
                          (same, BLUE), (new_q - same, GREY), (new_p - same, ORANGE))])
            second.text(0, x, "already rejected", va="center")
    stack(first, "First child: blue accepted, grey rejected, orange owed", tokens, parts)
    stack(total, "First child, second child, a last draw: together all of p", tokens, [
        (part, color, [word * (value > 0.03) for value in part.tolist()]) for part, color, word in (
            (accepted, BLUE, "1st"), (paid, BLUE, "2nd"), (p - accepted - paid, ORANGE, "last"))])
    for y, value in enumerate(p.tolist()):
        total.plot([value, value], [y - 0.45, y + 0.45], color=INK, linewidth=2.5)
        total.text(value + 0.01, y, short(value), va="center")


def step_round(args, dataset, device, prompt):
    """An instructive round of the walk -> its trace; see nanogpt/pictures/step.py."""
    m, loop = trained_cast(args, dataset, device), LOOPS[0].but(form="eager")
    dice, decode = VisibleDice(args.seed), dataset.tokenizer.decode
    steps = loop.steps(m, (2, 2), prompt, Sampler(1.0), dice)
    rounds = watch(steps, dice, prompt, args.steps, m.target.config.block_size)
    return trace(
        instructive(rounds, decode), decode, dataset.vocab_size, chapter="02", title="Draft trees",
        rule="walk", drafted="top", say_draft="They are its two best guesses at each node.",
        subtitle=f"{SIZES[args.size].label} target in {precision_of(m.target)}, "
        f"{SIZES['draft'].label} drafter, a tree 2-2, the walk, temperature 1",
        say_verify="Siblings do not see each other, and share a position.")


def draw_by_temperature(target_logits, draft_logits):
    """How often is a draft accepted, at T = .2 to 1: one drawn child or one of two, by p/q and
    multi-round rejection; one of so many picked ones, by the walk. (n, V) each -> Axes"""
    temperatures, favourites = (0.2, 0.4, 0.6, 0.8, 1), draft_logits.argsort(-1, descending=True)
    lines = [[] for _ in range(5)]
    for T in temperatures:
        one, more = drawn_chances(target_logits, draft_logits, T)
        picked = Sampler(T)(target_logits).gather(1, favourites).mean(0).cumsum(0)
        for line, value in zip(lines, (one + more, one, picked[3], picked[1], picked[0]),
                               strict=True):
            line.append(float(value))
    ax = new_axes(height=3.1)
    for line, name, color, up in zip(
            lines, ("two drawn", "one drawn", "four picked", "two picked", "one picked"),
            (BLUE, INK, FAINT, BLUE, INK), (0, 0.02, -0.02, 0, 0), strict=True):
        drawn = "drawn" in name
        ax.plot(temperatures, line, "-" if drawn else "--", color=color, linewidth=2.5)
        ax.text(1.02, line[-1] + up, name, color=color, va="center")
    ax.plot(1, lines[1][-1], "o", color=INK, markersize=9)
    ax.set(xlim=(0.18, 1.26), ylim=(0.4, 1), xticks=temperatures)
    return plain_frame(ax, "At T = 1 one drawn guess is worth four picked ones",
                       "temperature", "a draft is accepted")
