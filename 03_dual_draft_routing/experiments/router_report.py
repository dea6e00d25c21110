"""The routers compared: the methods, their table, what the confidence was worth, pictures."""

import statistics
from functools import partial

from dual_draft_routing import HeadDrafter, RoutedDrafter, coin_flip
from experiments.replay import ORACLE, PAPER, calibration, complementarity, tau
from nanogpt.decoding import plain_decode
from nanogpt.pictures import plots
from nanogpt.printing import print_table
from nanogpt.sampling import Dice
from tree_attention import speculate  # chapter 02


def methods(target, heads, sampler, budget):
    """{name: start(prompt, seed)} for every method that can really run."""
    def plain(prompt, seed):
        return plain_decode(target, prompt, sampler, Dice(seed))

    def drafted_by(make, prompt, seed):
        drafter = make([HeadDrafter(head, budget=budget) for head in heads], seed)
        return speculate(target, drafter, prompt, sampler, Dice(seed))

    def by_coin(pair, seed):
        return RoutedDrafter(pair, coin_flip(Dice(seed + 1)))  # chance of its own

    return {
        "plain": plain,
        "head 1 alone": partial(drafted_by, lambda pair, seed: pair[0]),
        "head 2 alone": partial(drafted_by, lambda pair, seed: pair[1]),
        "coin flip": partial(drafted_by, by_coin),
        "routed": partial(drafted_by, lambda pair, seed: RoutedDrafter(pair)),
    }


def print_routers(replayed):
    """Every router's tau, and the account in sentences: what the paper's rule brought, how often
    it was right, and how far the heads' confidence can be believed."""
    runs, proposals = replayed.runs, replayed.proposals
    print_table([f"router, on {len(runs[PAPER])} known texts", "steps", "tau"], [
        [name, sum(map(len, run)), f"{tau(run):.2f}"] for name, run in runs.items()])
    single = max(tau(runs[f"head {h} alone"]) for h in (1, 2))
    print(f"routing brings {tau(runs[PAPER]) / single - 1:+.1%} over the better single head; a "
          f"perfect router would bring {tau(runs[ORACLE]) / single - 1:+.1%}")
    shares = complementarity(proposals)
    print(f"at every token: head 1 longer in {shares['head 1 longer']:.0%}, head 2 longer in "
          f"{shares['head 2 longer']:.0%}; where they differ, mu picks the longer one in "
          f"{shares['router right']:.0%}")
    print_expectations(proposals)


def print_expectations(proposals):
    """A line for each head: how many accepted drafts it expects, and gets, on average."""
    for head in (0, 1):
        expected, accepted, correlation = calibration(proposals, head)
        print(f"head {head + 1} expects {expected:.2f} accepted drafts and gets {accepted:.2f}; "
              f"correlation {correlation:.2f}")


def save_figures(replayed, text, tokenizer, out, temperature):
    """The calibration of both heads; the choices along the first text."""
    plots.save(draw_calibration(replayed.proposals), out / f"calibration_T{temperature:g}.png")
    choices = draw_choices(replayed.runs[PAPER][0][:40], lambda t: tokenizer.decode([t]), text)
    plots.save(choices, out / f"choices_T{temperature:g}.png")


def draw_calibration(proposals, ax=None):
    """N mu, the accepted length that a head expects, against the length accepted.

    A point is the average of an eighth of the proposals, the least confident first.
    """
    ax = ax or plots.new_axes(5.6, 4)
    for head, color in enumerate(plots.HEADS):
        points = sorted((step.means[head] * step.nodes[head], step.lengths[head])
                        for step in proposals)
        size = max(len(points) // 8, 1)
        bins = [points[i:i + size] for i in range(0, len(points) - size + 1, size)]
        ax.plot([statistics.mean(s for s, _ in b) for b in bins],
                [statistics.mean(n for _, n in b) for b in bins],
                color=color, marker="o", label=f"head {head + 1}")
    top = max(ax.get_xlim()[1], ax.get_ylim()[1])
    ax.plot([0, top], [0, top], color=plots.GREY, linestyle="--", linewidth=1, zorder=1)
    ax.legend(frameon=False, fontsize=9)
    return plots.plain_frame(ax, None, "expected: number of nodes times mean confidence",
                             "accepted draft tokens")


def draw_choices(steps, text_of_token, text, ax=None):
    """Both confidences over the text; below, who was chosen and who would have been right."""
    ax = ax or plots.new_axes(11, 3.6)
    places, top = range(len(steps)), max(max(s.means) for s in steps)
    chosen, right = -0.2 * top, -0.4 * top
    for head, color in enumerate(plots.HEADS):
        ax.plot(places, [s.means[head] for s in steps], color=color, marker="o", markersize=4,
                label=f"mean confidence of head {head + 1}")
        mine = [i for i in places if steps[i].chosen == head]
        ax.scatter(mine, [chosen] * len(mine), color=color, marker="s", s=26)
        longer = [i for i in places if steps[i].lengths[head] > steps[i].lengths[1 - head]]
        ax.scatter(longer, [right] * len(longer), color=color, marker="^", s=30)
    ax.set_xticks(places, [plots.visible(text_of_token(text[s.position])) for s in steps],
                  fontsize=8, family="DejaVu Sans Mono", parse_math=False)
    ticks = [tick for tick in ax.get_yticks() if 0 <= tick <= top]
    ax.set_yticks([right, chosen, *ticks],
                  ["would have been longer", "was chosen", *(f"{t:.2g}" for t in ticks)])
    ax.set_ylim(-0.5 * top, 1.3 * top)
    ax.legend(frameon=False, fontsize=9, ncols=2, loc="upper center")
    plots.plain_frame(ax, None, "root of each round", "mean confidence")
    ax.yaxis.set_label_coords(-0.05, 0.56)  # beside the numbers of the two lines
    return ax
