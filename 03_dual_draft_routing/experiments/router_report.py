"""The account of the routers: their table, what the confidence was worth, and two pictures."""

import statistics

from dual_draft_routing import HeadDrafter
from experiments.replay import (
    ORACLE,
    PAPER,
    calibration,
    complementarity,
    propose_everywhere,
    replay,
    routers,
    tau,
)
from nanogpt.pictures import plots
from nanogpt.printing import print_table


def replay_table(target, heads, texts, first, budget, seed):
    """Every router on the same known texts -> {name: list of lists of Proposal}, all Proposals."""
    pair = [HeadDrafter(head, budget=budget) for head in heads]
    known = [propose_everywhere(target, pair, text, first) for text in texts]
    runs = {name: [replay(proposals, choose) for proposals in known]
            for name, choose in routers(seed).items()}
    print_table([f"router, on {len(texts)} known texts", "steps", "tau"], [
        [name, sum(map(len, run)), f"{tau(run):.2f}"] for name, run in runs.items()])
    return runs, [step for proposals in known for step in proposals.values()]


def explain(runs, proposals):
    """The router's account in three sentences: what it brought, how often it was right, and how
    far the heads' confidence can be believed."""
    single, routed, best = (max(tau(runs[f"head {h} alone"]) for h in (1, 2)), tau(runs[PAPER]),
                            tau(runs[ORACLE]))
    print(f"routing brings {routed / single - 1:+.1%} over the better single head; a perfect "
          f"router would bring {best / single - 1:+.1%}")
    shares = complementarity(proposals)
    print(f"at every token: head 1 longer in {shares['head 1 longer']:.0%}, head 2 longer in "
          f"{shares['head 2 longer']:.0%}; where they differ, mu picks the longer one in "
          f"{shares['router right']:.0%}")
    for head in (0, 1):
        expected, accepted, correlation = calibration(proposals, head)
        print(f"head {head + 1} expects {expected:.2f} accepted drafts and gets {accepted:.2f}; "
              f"correlation {correlation:.2f}")


def draw_calibration(proposals, ax=None):
    """N mu, the accepted length that a head expects, against the length accepted."""
    ax = ax or plots.new_axes(5.6, 4)
    for head, color in enumerate(plots.HEADS):
        points = sorted((step.means[head] * step.nodes[head], step.lengths[head])
                        for step in proposals)
        size = max(len(points) // 8, 1)
        bins = [points[i:i + size] for i in range(0, len(points) - size + 1, size)]
        ax.plot([statistics.mean(s for s, _ in b) for b in bins],
                [statistics.mean(n for _, n in b) for b in bins],
                color=color, marker="o", label=f"head {head + 1}, eighths of the proposals")
    top = max(ax.get_xlim()[1], ax.get_ylim()[1])
    ax.plot([0, top], [0, top], color=plots.GREY, linestyle="--", linewidth=1, zorder=1)
    ax.legend(frameon=False, fontsize=9)
    return plots.plain_frame(ax, None, "expected: N times the mean confidence",
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
    return plots.plain_frame(ax, None, "root token of each step", "mean confidence")
