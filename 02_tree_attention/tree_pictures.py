"""What the lesson draws of multi-round rejection, and the round of the step page."""

import torch

from nanogpt import does_it_pay
from chain_specdec import residual
from nanogpt.chapter import written
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
from tree_attention import best_shape, expected_by_shape
from tree_room import CHANCES, LEVEL, LOOPS, drawn_chances


def short(value):
    """0.3 -> '.3'; 0.15 -> '.15'."""
    return f"{round(value, 3):g}".lstrip("0")


def draw_turns(p, q, tokens):
    """What multi-round rejection does with the first child, and with the second.

    A panel for each first child that can be rejected, as wide as it is probable; p, q (V,). A bar
    has three parts: blue and grey make up q, blue and orange p.
    """
    panels = {"The first child": (p, q)}
    for x in (q > p).nonzero().flatten().tolist():
        left, often = q.clone(), float(q[x] - p[x])
        left[x] = 0
        panels[f"{tokens[x]} rejected ({short(often)}), second child"] = (
            often * residual(p, q), often * left / left.sum())
    axes = new_axes(height=0.3 + 1.45 * len(panels), rows=len(panels))
    for ax, (title, (new_p, new_q)) in zip(axes, panels.items(), strict=True):
        start, accepted = torch.zeros(len(p)), torch.minimum(new_p, new_q)
        title += f": accepted in {short(float(accepted.sum()))} of the rounds"
        narrow = [[] for _ in tokens]  # numbers that find no room in their bars
        for part, color, label in ((accepted, BLUE, "accepted"),
                                   (new_q - accepted, GREY, "rejected"),
                                   (new_p - accepted, ORANGE, "still owed")):
            shown = [short(value) if value > 0.045 else "" for value in part.tolist()]
            shown[int(part.argmax())] += f" {label}" * (float(part.max()) > 0.16)
            ax.bar_label(ax.barh(range(len(p)), part, 0.7, start, color=color), shown,
                         label_type="center", color="white" if color == BLUE else INK)
            for numbers, value in zip(narrow, part.tolist(), strict=True):
                numbers += [f"{value:.4f}".lstrip("0")] * (0.001 < value <= 0.045)
            start = start + part
        for y, token in enumerate(tokens):
            ax.text(-0.02, y, token, va="center", **MONO)
            ax.text(float(start[y]) + 0.01, y, " and ".join(narrow[y]), va="center")
            if new_p[y] == new_q[y] == 0:
                ax.text(0, y, "already rejected", va="center")
        canvas(ax, title, (-0.02, 0.55), (len(p) - 0.5, -0.5))


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
    for line, name in zip(lines, ("two drawn", "one drawn", "four picked", "two picked",
                                  "one picked"), strict=True):
        drawn = "drawn" in name
        color, up = INK if drawn else FAINT, {"one drawn": 0.02, "four picked": -0.02}.get(name, 0)
        ax.plot(temperatures, line, color=color, linewidth=2.5, linestyle="-" if drawn else "--")
        ax.text(1.02, line[-1] + up, name, color=color, va="center")
    ax.set(xlim=(0.18, 1.28), ylim=(0.4, 1), xticks=temperatures)
    return plain_frame(ax, "Warm text devalues favourites, not draws",
                       "temperature of the text", "a draft is accepted")


def best_speeds(nodes, chances=CHANCES, level=LEVEL, rest=1.0):
    """What the best chain and the best tree bring, at each price of a node -> two lists of
    (speed-up, drafts, levels).

    A round costs `rest` plain steps, `level` for each of its levels, and a node's price for each
    draft. nodes: prices in plain steps; chances: see tree_attention.expected_by_shape.
    """
    sizes = [(levels, n) for levels in range(1, 13) for n in range(levels, 49)]
    lists = []
    for kind in (chances[:1], chances):
        tokens = {(levels, n): expected_by_shape(best_shape(n, kind, levels), kind)
                  for levels, n in sizes}
        lists.append([max((tokens[levels, n] / (rest + level * levels + node * n), n, levels)
                          for levels, n in sizes) for node in nodes])
    return lists


def picked_shapes(found, T, divisions=100):
    """The fastest picked chain of the 57K GPT in a contest, its speed-up, the same of a tree; and
    by how much the tree is the faster one if both are chosen on one half of the texts and timed on
    the other: the mean over so many random divisions."""
    def fastest(part):
        lines = does_it_pay.table_of(part, T)
        speeds = {written(lines[name]["budget"]): speed
                  for name, (_, _, speed) in does_it_pay.speedups(part, T).items()
                  if "picked tree" in name and "GPT" in name}
        return speeds, [max((shape for shape in speeds if shape[0] == width), key=speeds.get)
                        for width in "12"]

    texts = len(next(iter(does_it_pay.table_of(found, T).values()))["rounds"])
    leads, (speeds, (chain, tree)) = [], fastest(found)
    for seed in range(divisions):
        half = torch.randperm(texts, generator=torch.Generator().manual_seed(seed))[:texts // 2]
        here, there = does_it_pay.divided(found, half.tolist())
        one, two = (fastest(there)[0][shape] for shape in fastest(here)[1])
        leads.append(two / one - 1)
    return chain, speeds[chain], tree, speeds[tree], sum(leads) / divisions
