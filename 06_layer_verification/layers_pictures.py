"""Pictures of this chapter: a rule as water in pipes, one round under two rules, what a rule adds.

Blue is what is accepted or flows, grey what could, red what overflows or is missing; hatched is
what was drawn and is never looked at.
"""


import numpy as np
from matplotlib.patheffects import withStroke

from iid_trees import SHAPES, SampledTreeDrafter, shape_parents
from layer_verification import LayerVerification
from nanogpt.exact.trees import all_tuples
from nanogpt.packing import precision_of
from nanogpt.pictures.plots import (
    BLUE,
    FAINT,
    GREY,
    INK,
    RED,
    canvas,
    draw_node,
    new_axes,
    plain_frame,
    tint,
    two_digits,
)
from nanogpt.pictures.step import VisibleDice, remember, trace, watch
from nanogpt.run import trained_cast
from nanogpt.sampling import Sampler
from nanogpt.sizes import SIZES
from single_step_rules import RRS
from tree_attention import TreeGPT, speculate  # chapter 02

WIDE = 0.9  # how wide the flow 1 is, where the sets of tokens are 1 apart
UNSEEN = {"facecolor": "white", "edgecolor": tint(GREY, 0.5), "hatch": "////", "linewidth": 0}


def say(ax, x, y, text, **look):
    """A text whose middle is the point (x, y), if its look does not say otherwise."""
    ax.text(x, y, text, **{"ha": "center", "va": "center", "color": INK, **look})


# ---------------------------------------------------------------- one node as water in pipes


def tuple_flows(local, draft_probs, k):
    """What each set of k drawn tokens sends where, by listing all V^k draws.

    local: a single-step rule, built for this one problem; draft_probs (V,)
    -> {tuple of tokens, ascending: [its probability, the flow to each token (V,)]}.
    """
    flows = {}
    for drawn, mass in all_tuples(draft_probs, k):
        entry = flows.setdefault(tuple(sorted(drawn)), [0.0, np.zeros(len(draft_probs))])
        entry[0] += mass
        np.add.at(entry[1], [*drawn], mass * local.accept(np.array([drawn]))[0])
    return flows


def draw_pipe(ax, start, end, flow, capacity=0, drawn=0, loud=False, grey=0.5, label=True):
    """A stream from start to end, (x, y) each, as wide as its flow, in a grey one of its capacity.

    What the capacity does not hold is red; capacity 0: no limit; drawn: how much there was, the
    hatched pipe around both; loud: what is missing is what the picture wants to say; grey: how
    strong; label: with its numbers.
    """
    (x0, y0), (x1, y1), way = start, end, np.linspace(0, 1, 61)
    x, y = x0 + (x1 - x0) * way, y0 + (y1 - y0) * way ** 2 * (3 - 2 * way)
    fits = min(flow, capacity or flow)
    ax.fill_between(x, y - WIDE * drawn / 2, y + WIDE * drawn / 2, **UNSEEN)
    for top, width, color in ((-capacity / 2, capacity, tint(RED if loud else GREY, grey)),
                              (-flow / 2, fits, tint(BLUE, 0.6)),
                              (fits - flow / 2, flow - fits, RED)):
        ax.fill_between(x, y + WIDE * top, y + WIDE * (top + width), color=color,
                        linewidth=2 * (color == RED and width > 1e-9))  # a thin one is seen, too
    if not label:
        return
    limit = f" of {two_digits(capacity)}" if capacity else ""
    at = y[22:39].min() - 0.17 if 0 < capacity < 0.2 else y[30]  # it would hide a thin pipe
    over = bool(capacity) and flow > capacity + 1e-9
    say(ax, x[30], at, two_digits(flow) + limit, zorder=5, color=RED if over else INK,
        fontweight="bold" if over else "normal",
        path_effects=[withStroke(linewidth=9 if drawn else 3, foreground="white")])
    if loud:
        say(ax, x1 + 0.02, at, two_digits(capacity - flow) + " missing", fontweight="bold",
            color=RED if capacity > flow + 1e-9 else INK)


def side_by_side(widths, middle):
    """Where pipes of these widths leave or arrive, beside each other."""
    return middle + WIDE * (np.cumsum(widths) - np.array(widths) / 2 - sum(widths) / 2)


def draw_flow(ax, rule, draft_probs, target_mass, k, title, unseen=0.0, only=None, behind=""):
    """One node's pipes: drafter, drawn tuples, tokens, accepted; a label is a flow and its limit.

    rule: a single-step rule's class; draft_probs, target_mass (V,); k: 1 or 2. One candidate is
    its own tuple, so that its second column is left out. The title may name {total}, all that
    arrives. unseen: how many of all draws are not in draft_probs, since nobody looks at them. only:
    the token whose water is shown; None: all; behind: the token before, where k is 1.
    """
    local = rule(draft_probs[None], target_mass[None], k)
    flows, out, last = tuple_flows(local, draft_probs, k), local.out[0], k + 1
    shown = np.array([z for z in range(len(out)) if only in (None, z)])
    flows = {X: (mass, np.where(np.isin(np.arange(len(out)), shown), shares, 0))
             for X, (mass, shares) in flows.items() if {*X} & {*shown}}
    level = np.linspace(0, len(flows) - 1, len(shown)) if len(shown) > 1 else np.array(
        [(len(flows) - 1) / 2])
    drawn = 1 + unseen / draft_probs.sum() if unseen else 0  # for each that is offered
    starts = side_by_side([mass * (drawn or 1) for mass, _ in flows.values()], level.mean())
    ends = side_by_side(np.maximum(out, target_mass)[shown], level.mean())
    mouths = [side_by_side([shares[z] for _, shares in flows.values()], at)
              for z, at in zip(shown, level, strict=True)]  # what arrives stands side by side
    for x, name in {1.5: "accepted, of what is wanted"}.items() if k == 1 else {
            0: "drafter", last: "accepted"}.items():
        say(ax, x, -0.3, name, color=FAINT)
    for y, (X, (mass, shares)) in enumerate(flows.items()):
        draw_pipe(ax, (0, starts[y]), (1, y), shares.sum(), mass, mass * drawn,
                  grey=k / 4, label=k > 1)
        draw_node(ax, (1, y), "".join("etm"[z] for z in X), GREY)
        for z, mouth in zip(shown, mouths, strict=True):
            if k > 1 and shares[z]:
                draw_pipe(ax, (1, y), (2, mouth[y]), shares[z])
    if k == 1:
        say(ax, 0, level[-1] + 0.34, f"hatched: {two_digits(unseen)}, rejected before draft 2 is "
            "looked at" if unseen else "grey: drawn", ha="left", color=FAINT)
        draw_node(ax, (-0.03, level.mean()), behind, GREY)
        say(ax, last + 0.17, ends.mean(), two_digits(out.sum()), color=BLUE, fontsize=17,
            fontweight="bold")
    for z, y, end in zip(shown, level, ends, strict=True):
        draw_pipe(ax, (k, y), (last, end), out[z], target_mass[z],
                  loud=k == 1 and z == shown[0])
        if only is not None:  # the walls of the outlet
            for wall in (-out[z] / 2, min(target_mass[z], out[z]) - out[z] / 2):
                ax.plot([k, last], [y + WIDE * wall, end + WIDE * wall], color=INK, linewidth=1.8)
        draw_node(ax, (k, y), "etm"[z], GREY)
    return canvas(ax, title.format(total=two_digits(out.sum())), (-0.3, last + 0.35),
                  (len(flows) - 0.6, -0.4))


# ---------------------------------------------------------------- a chain


def draw_round(names, coins, rules, title):
    """One round of a chain under several rules, with the same coins: which drafts are asked, and
    what comes of them.

    names, coins: of the drafts; a draft says yes where its coin is below its number. rules: {rule:
    (what the numbers are, a number for each draft, from the end?)}. Token by token the first no
    ends the path; from the end, the last yes does. Blue is accepted, red a no, white was not asked;
    a number above 1 is blue, too.
    """
    ax, x = new_axes(height=4.2), np.arange(len(names)) + 0.5

    def row(y, what, cells, look):
        say(ax, -0.15, y, what, ha="right", **look)
        for place, cell in zip(x, cells, strict=True):
            say(ax, place, y, cell, **look)

    row(0, "coin", map(two_digits, coins), {})
    y = 1.0
    for rule, (what, numbers, backwards) in rules.items():
        yes = np.array(coins) < numbers
        stop = [*(yes[::-1] if backwards else ~yes), True].index(True)  # so many before it
        n = len(names) - stop if backwards else stop
        asked = [i >= n - 1 if backwards else i <= n for i in range(len(names))]
        row(y, rule, [""] * len(x), {"fontweight": "bold"})
        say(ax, 1.14 * len(names) + 0.35, y, n, color=BLUE, fontsize=17, fontweight="bold")
        for i, name in enumerate(names):
            color = BLUE if i < n else RED if asked[i] else FAINT
            ax.text(x[i], y, name, ha="center", va="center", family="monospace", color=color if
                    color == FAINT else "white", bbox={"boxstyle": "round,pad=0.4", "facecolor":
                    "white" if color == FAINT else color, "edgecolor": color})
        row(y + 0.5, what, [""] * len(x), {"color": FAINT})
        for place, number in zip(x, numbers, strict=True):
            say(ax, place, y + 0.5, two_digits(number) if number <= 1 else f"{number:.1f}",
                color=FAINT if number <= 1 else BLUE)
        row(y + 0.85, "asked " + ("from the end" if backwards else "from the root"), [
            ("yes" if yes[i] else "no") if asked[i] else "" for i in range(len(names))], {})
        y += 1.6
    say(ax, 1.14 * len(names) + 0.35, 0, "drafts\naccepted", color=FAINT)
    return canvas(ax, title, (-0.55 * len(names) - 0.4, 1.3 * len(names) + 0.4), (y - 0.4, -0.4))


# ---------------------------------------------------------------- a layer as one pipe

def draw_layer(ax, shares, below, title):
    """A layer as a pipe of width 1: a stream for each node, as wide as its share, of which blue
    flows on and grey is not wanted; red is what nobody uses.

    shares: {node: its part of the layer}; below: {node: (q, wanted) of the tokens e and t}.
    """
    at, sent = 0.0, 0.0

    def band(width, fill, text, **look):
        nonlocal at
        ax.fill_between((0.3, 1), at, at + width, color=fill, linewidth=0)
        say(ax, 0.65, at + width / 2, text, **look)
        at += width

    for node, share in shares.items():
        draw_node(ax, (-0.05, at + share / 2), node, GREY)
        say(ax, 0.14, at + share / 2, f"share {two_digits(share)}")
        flows = [min(share * q, wanted) for q, wanted in zip(*below[node], strict=True)]
        for token, flow in zip("et", flows, strict=True):
            band(flow, tint(BLUE, 0.6), f"{token}: {two_digits(flow)}")
        spare, sent = share - sum(flows), sent + sum(flows)
        band(spare, tint(GREY, 0.35), "not wanted" if spare > 0.1 else "", color=FAINT)
        ax.hlines(at, 0.3, 1, color="white", linewidth=3)
    if at < 1 - 1e-9:
        band(1 - at, RED, f"used by nobody: {two_digits(1 - at)}", color="white", fontweight="bold")
    ax.hlines((0, 1), 0.3, 1, color=INK, linewidth=2.2)
    say(ax, 1.13, 0.7, f"unused\n{two_digits(1 - sent)}", color=FAINT)
    say(ax, 1.13, 0.42, "flows", color=FAINT)
    say(ax, 1.13, 0.53, two_digits(sent), color=BLUE, fontsize=17, fontweight="bold")
    return canvas(ax, title, (-0.12, 1.22), (1.05, -0.06))


# ---------------------------------------------------------------- what it gains


def draw_sent(title, curves):
    """Tokens a round over the drafts that are sent. -> Axes

    curves: {name: (drafts, tokens, colour, by how much the name is higher than the curve's end)}.
    """
    ax = new_axes(height=4.6)
    for name, (x, y, color, up) in curves.items():
        ax.plot(x, y, "o-", color=color, linewidth=2.2)
        say(ax, x[-1] + 0.25, y[-1] + up, f"{y[-1]:.2f}  {name}", color=color, ha="left",
            fontweight="bold")
    ax.set(xlim=(0.6, 14), xticks=range(1, 9))
    return plain_frame(ax, title, "drafts sent", "tokens a round")


# ---------------------------------------------------------------- the round of the step page


def step_round(args, dataset, device, prompt):
    """An instructive round of RRS under the layer lift -> its trace; see
    nanogpt/pictures/step.py."""
    m = trained_cast(args, dataset, device)
    # Seed 8 has a round that every layer could have ended.
    dice, rule = VisibleDice(args.seed + 7), LayerVerification(RRS)
    scored, judged = remember(rule, "scores"), remember(rule, "judge")
    drafter = SampledTreeDrafter(TreeGPT(m.small), shape_parents(SHAPES["multi-chain"], 2, 3),
                                 Sampler(1.0, top_k=20), dice)
    steps = speculate(m.target, drafter, prompt, Sampler(1.0), dice, rule)
    rounds = watch(steps, dice, prompt, args.steps, m.target.config.block_size,
                   lambda: (scored[-1][0][0], *(x[0] for x in judged[-1])))
    # Both branches have a score, and the root has a part of the draw, as the path's end has.
    one = max(rounds, key=lambda r: min(*r["note"][0][1:3], *r["note"][1][[0, r["kept"][-1]]]))
    scores, ends, owed = one["note"]
    owed = owed[one["kept"][-1]]
    return trace(
        one, dataset.tokenizer.decode, dataset.vocab_size, chapter="06",
        title="Layer verification", rule="layers", drafted="drawn",
        scores=scores.tolist(), ends=ends.tolist(), owed=(owed / owed.sum()).tolist(),
        scores_are="score: the chance that the path goes through",
        say_draft="The same token may come twice after the same node.",
        subtitle=f"{SIZES[args.size].label} target in {precision_of(m.target)}, "
        f"{SIZES['draft'].label} drafter, two chains of 3, LV + RRS, temperature 1",
        say_verify="Now p and q are known at every node, and the rule can begin.")
