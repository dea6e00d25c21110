"""What the lesson draws of multi-round rejection, and the round of the step page."""

import torch

from chain_specdec import residual
from nanogpt.packing import precision_of
from nanogpt.pictures.plots import BLUE, GREY, INK, MONO, ORANGE, canvas, new_axes
from nanogpt.pictures.step import VisibleDice, instructive, trace, watch
from nanogpt.sampling import Sampler
from nanogpt.sizes import SIZES
from nanogpt.train import get_pair
from tree_attention import TreeDrafter, TreeGPT, speculate


def draw_turns(p, q, tokens):
    """What multi-round rejection does with the first child, and with the second.

    A panel for each first child that can be rejected; p, q (V,). A bar has three parts: blue and
    grey make up q, blue and orange p.
    """
    panels = {"The first child, drawn from q": (p, q)}
    for x in (q > p).nonzero().flatten().tolist():
        left = q.clone()
        left[x] = 0
        panels[f"After {tokens[x]} was rejected: the second child"] = (
            residual(p, q), left / left.sum())
    axes = new_axes(height=0.3 + 1.45 * len(panels), rows=len(panels))
    for ax, (title, (new_p, new_q)) in zip(axes, panels.items(), strict=True):
        start, accepted = torch.zeros(len(p)), torch.minimum(new_p, new_q)
        for part, color, label in ((accepted, BLUE, "accepted"),
                                   (new_q - accepted, GREY, "rejected"),
                                   (new_p - accepted, ORANGE, "still owed")):
            shown = [f"{round(value, 3):g}".lstrip("0") for value in part.tolist()]
            if ax is axes[0]:
                shown[int(part.argmax())] += f" {label}"
            ax.bar_label(ax.barh(range(len(p)), part, 0.7, start, color=color), shown,
                         label_type="center", color="white" if color == BLUE else INK)
            start = start + part
        for y, token in enumerate(tokens):
            ax.text(-0.02, y, token, va="center", **MONO)
            if new_p[y] == new_q[y] == 0:
                ax.text(0, y, "gone", va="center")
        canvas(ax, title, (-0.02, 0.55), (len(p) - 0.5, -0.5))


def step_round(args, dataset, device, prompt):
    """An instructive round of the walk -> its trace; see nanogpt/pictures/step.py."""
    target, small = get_pair(args, dataset, device)
    sampler, dice, decode = Sampler(1.0), VisibleDice(args.seed), dataset.tokenizer.decode
    steps = speculate(target, TreeDrafter(TreeGPT(small), (2, 2)), prompt, sampler, dice)
    rounds = watch(steps, dice, prompt, args.steps, target.config.block_size)
    return trace(
        instructive(rounds, decode), decode, dataset.vocab_size, chapter="02", title="Draft trees",
        rule="walk", drafted="top", say_draft="They are its two best guesses at each node.",
        subtitle=f"{SIZES[args.size].label} target in {precision_of(target)}, "
        f"{SIZES['draft'].label} drafter, a tree 2-2, the walk, temperature 1",
        say_verify="Siblings do not see each other, and share a position.")
