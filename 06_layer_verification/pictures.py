"""Pictures of this chapter: a node's flow network, a tree with its numbers, what the nodes of a
layer may offer, lengths of rules.

Blue is what is accepted or flows, grey what could, red what overflows, orange what the target
wants, light blue what the drafter offers.
"""

import itertools

import numpy as np

from iid_trees import SHAPES, shape_of, shape_parents
from layer_verification import LayerVerification, decode_layered
from nanogpt.packing import for_decoding, precision_of
from nanogpt.pictures.plots import (
    BLUE,
    FAINT,
    GREY,
    INK,
    LOOK,
    MONO,
    ORANGE,
    RED,
    SKY,
    new_axes,
    plain_frame,
    tint,
    tree_rows,
    two_digits,
)
from nanogpt.pictures.step import VisibleDice, instructive, remember, trace, watch
from nanogpt.sampling import Sampler
from nanogpt.sizes import SIZES
from nanogpt.train import get_gpt
from single_step_rules import KSEQ, SpS, positions_asked
from tree_attention import TreeGPT  # chapter 02

WIDEST = 26  # points of line width for the flow 1


def tuple_flows(rule, draft_probs, target_mass, k):
    """What each set of k drawn tokens sends where, by listing all V^k draws.

    rule: a single-step rule's class; draft_probs, target_mass (V,)
    -> {tuple of tokens, ascending: [its probability, {token: flow}]}.
    """
    local = rule(draft_probs[None], target_mass[None], k)
    flows = {}
    for drawn in itertools.product(range(len(draft_probs)), repeat=k):
        mass = draft_probs[list(drawn)].prod()
        if mass == 0:
            continue
        accept = local.accept(np.array([drawn]))[0]
        entry = flows.setdefault(tuple(sorted(drawn)), [0.0, {}])
        entry[0] += mass
        for token, share in zip(drawn, accept, strict=True):
            entry[1][token] = entry[1].get(token, 0.0) + mass * share
    return flows


class SameCoin(KSEQ):
    """Chapter 01's coin for every candidate, which is K-SEQ with rho = 1: NOT lossless.

    A rule like those of single_step_rules.py, for the picture of a token that overflows.
    """

    def __init__(self, draft_probs, target_mass, k):
        share = np.minimum(draft_probs, target_mass)  # (n, V)
        self.coin = share / draft_probs
        self.out = share * positions_asked(share.sum(-1, keepdims=True), k)


def draw_flow(rule, draft_probs, target_mass, k, names, title, ax=None):
    """One node's network: drafter, drawn tuples, tokens, accepted; on each edge flow / capacity.

    A blue line is as wide as the flow, the grey line under it as the capacity; red is a flow above
    the capacity. rule: a single-step rule's class; draft_probs (V,), target_mass (V,); names: V
    texts; the title may name {total}, all that arrives.
    """
    flows, V = tuple_flows(rule, draft_probs, target_mass, k), len(names)
    out = rule(draft_probs[None], target_mass[None], k).out[0]
    ax = ax or new_axes(9.5, 0.9 + 0.72 * len(flows))
    height = {X: -float(i) for i, X in enumerate(flows)}
    middle = -(len(flows) - 1) / 2
    level = {z: middle + (V - 1 - 2 * z) * (len(flows) - 1) / (2 * V) for z in range(V)}
    for X, (mass, shares) in flows.items():
        draw_edge(ax, (0, middle), (1, height[X]), sum(shares.values()), mass, 0.72)
        for i, (token, flow) in enumerate(shares.items()):
            draw_edge(ax, (1, height[X]), (2.3, level[token]), flow, None, 0.22 + 0.1 * i)
        draw_node(ax, 1, height[X], "".join(names[z] for z in X))
    for z in range(V):
        draw_edge(ax, (2.3, level[z]), (3.3, middle), out[z], target_mass[z], 0.35)
        draw_node(ax, 2.3, level[z], names[z])
    draw_node(ax, 0, middle, "drafter")
    draw_node(ax, 3.3, middle, "accepted")
    ax.set_title(title.format(total=two_digits(out.sum())), fontsize=11, color=INK)
    ax.set_xlim(-0.3, 3.6)
    ax.set_ylim(-len(flows) + 0.4, 0.6)
    ax.axis("off")
    return ax


def draw_edge(ax, start, end, flow, capacity, place):
    """An edge from start to end, (x, y) each; its label is at `place` of the way, 0 to 1.

    capacity None: unlimited, drawn as a thin line.
    """
    xs, ys = zip(start, end, strict=True)
    width = 1 if capacity is None else WIDEST * capacity
    ax.plot(xs, ys, color=tint(GREY, 0.5), linewidth=width, solid_capstyle="butt", zorder=1)
    color = BLUE if capacity is None or flow <= capacity + 1e-9 else RED
    ax.plot(xs, ys, color=tint(color, 0.6), linewidth=WIDEST * flow, solid_capstyle="butt",
            zorder=2)
    if capacity is None and flow < 5e-3:
        return
    text = two_digits(flow) + ("" if capacity is None else f" / {two_digits(capacity)}")
    x, y = (a + place * (b - a) for a, b in (xs, ys))
    ax.text(x, y, text, fontsize=9, color=INK, ha="center", va="center", zorder=3,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.4, "alpha": 0.85})


def draw_node(ax, x, y, text, color=FAINT, strength=0.2):
    """A box with a text at the point (x, y), filled with its colour to that strength, 0 to 1."""
    ax.text(x, y, text, fontsize=10, ha="center", va="center", zorder=4, color=INK, **MONO,
            bbox={"boxstyle": "round,pad=0.35", "edgecolor": color,
                  "facecolor": tint(color, strength)})


def draw_second_step(draft_probs, target_probs, score, names):
    """A chain's second step as pipes: TV plays it anew; beside it the target scaled by the score.

    draft_probs, target_probs (V,); score: P[the first draft is accepted]; names: V texts.
    """
    axes = new_axes(10.5, 2.6, columns=2)
    passes = np.minimum(draft_probs, target_probs).sum() * score
    titles = (f"token by token: {{total}} flows, but the path is here with {two_digits(score)}: "
              f"{two_digits(passes)}", f"the target scaled by {two_digits(score)}: {{total}} flows")
    for ax, title, scale in zip(axes, titles, (1.0, score), strict=True):
        draw_flow(SpS, draft_probs, scale * target_probs, 1, names, title, ax)
    return axes


def draw_numbers(parents, texts, lines, shade):
    """A tree, each node with its row and its token, and lines of text under it.

    texts (N): tokens; lines (N): a list of texts for each node; shade (N,) in [0, 1]: how blue a
    node is.
    """
    shape = shape_of(tuple(parents))
    children, depths = shape.children, shape.depths
    tall = 1 + 0.28 * max(map(len, lines))  # of a leaf with its lines, in heights of a box
    heights = [tall * height for height in tree_rows(children)]
    ax = new_axes(2.9 * (depths.max() + 1), 0.6 + 0.72 * (max(heights) + tall))
    for v, parent in enumerate(parents[1:], start=1):
        ax.plot([depths[parent], depths[v]], [heights[parent], heights[v]], color=GREY, zorder=1)
    for v, text in enumerate(texts):
        draw_node(ax, depths[v], heights[v], f"{v}: {text}", BLUE, 0.8 * float(shade[v]))
        # Under an inner node it ends where the node ends: the edges run to the right.
        inner = bool(children[v])
        ax.text(depths[v] + 0.12 * inner, heights[v] + 0.3, "\n".join(lines[v]), fontsize=9.5,
                ha="right" if inner else "center", va="top", color=INK, linespacing=1.3)
    ax.set_xlim(-0.6, depths.max() + 0.4)
    ax.set_ylim(max(heights) + tall - 0.2, -0.6)
    ax.axis("off")
    return ax


def draw_offers(scores, draft_probs, target_probs, names):
    """What the nodes of a layer may offer: left the share of its draws that each may use, right
    what this lets through at the last of them.

    scores {node: a_v} of a layer; draft_probs, target_probs (V,) at its last node; names: V texts.
    """
    left, right = new_axes(10, 3.2, columns=2)
    A, last = sum(scores.values()), list(scores)[-1]
    shares = {"TV: $a_v$": 1, "LV: $\\lambda_v = a_v / A$": 1 / A}
    for y, scale in enumerate(shares.values()):
        at = 0.0
        for (node, a), strength in zip(scores.items(), (0.55, 0.9), strict=True):
            left.barh(y, scale * a, 0.5, at, color=tint(SKY, strength), edgecolor="white")
            left.text(at + scale * a / 2, y, f"node {node}\n{two_digits(scale * a)}", ha="center",
                      va="center", fontsize=9.5, color=INK)
            at += scale * a
        if at < 1 - 1e-9:
            left.barh(y, 1 - at, 0.5, at, color="none", edgecolor=GREY, hatch="//")
            left.text((1 + at) / 2, y, f"unused\n{two_digits(1 - at)}", ha="center", va="center",
                      fontsize=9.5, color=INK,
                      bbox={"facecolor": "white", "edgecolor": "none", "pad": 1})
    left.set_yticks(range(2), list(shares), fontsize=11)
    left.set_xlim(0, 1)
    left.invert_yaxis()
    plain_frame(left, "How often may a node's draws be used?")
    left.grid(visible=False)
    wanted = scores[last] * target_probs
    for i, (lift, scale) in enumerate((("TV", 1), ("LV", 1 / A))):
        offer = scale * scores[last] * draft_probs
        places = np.arange(len(names)) + 0.27 * (i - 0.5)
        flow = np.minimum(offer, wanted)
        right.bar(places, offer, 0.24, color=tint(SKY, 0.3))
        right.bar(places, flow, 0.24, color=tint(BLUE, (0.45, 0.85)[i]),
                  label=f"{lift}: {two_digits(flow.sum())} flows")
        for x, y in zip(places, offer, strict=True):
            right.text(x, y, two_digits(y), ha="center", va="bottom", fontsize=9, color=INK)
    right.hlines(wanted, np.arange(len(names)) - 0.4, np.arange(len(names)) + 0.4, color=ORANGE,
                 linewidth=2.5, label="the target wants")
    right.set_xticks(range(len(names)), names)
    right.legend(**LOOK, loc="upper right")
    right.margins(y=0.14)
    plain_frame(right, f"Node {last}: what is offered, what is wanted")
    return left, right


def draw_lengths(panels):
    """Who writes more tokens a forward: a line a rule, TV in grey and LV in blue, rules without a
    lift in black; the panels have a scale of their own.

    panels: {title: {rule: {"TV": x, "LV": y}, or {"": x}}} -> the Axes, a list.
    """
    names = list(dict.fromkeys(name for rules in panels.values() for name in rules))
    axes = new_axes(3.1 * len(panels) + 1, 0.9 + 0.42 * len(names), columns=len(panels))
    axes = axes if len(panels) > 1 else [axes]
    for ax, (title, rules) in zip(axes, panels.items(), strict=True):
        values = [x for found in rules.values() for x in found.values()]
        low, high = min(values), max(values)
        for y, name in enumerate(names):
            found = rules.get(name)
            if found is None:
                ax.text(low, y, "chains only", fontsize=9, color=FAINT, va="center")
                continue
            ax.plot(list(found.values()), [y] * len(found), color=tint(BLUE, 0.5), linewidth=3,
                    zorder=1)
            for lift, value in found.items():
                color = {"TV": FAINT, "LV": BLUE, "": INK}[lift]
                ax.scatter(value, y, s=52, color=color, zorder=2)
                right = lift != "TV"
                ax.annotate(f"{lift} {value:.2f}", (value, y), xytext=(7 if right else -7, 0),
                            textcoords="offset points", fontsize=9, color=color, va="center",
                            ha="left" if right else "right")
        ax.set_yticks(range(len(names)), names if ax is axes[0] else [""] * len(names))
        ax.set_ylim(len(names) - 0.4, -0.6)
        room = 0.45 * (high - low)
        ax.set_xlim(low - room, high + room)
        plain_frame(ax, title, "tokens per forward")
    return axes


def step_round(args, dataset, device, prompt):
    """An instructive round of K-SEQ under the layer lift -> its trace; see
    nanogpt/pictures/step.py."""
    target, small = (for_decoding(get_gpt(size, dataset, device, args.retrain), args.precision)
                     for size in (args.size, "draft"))
    dice, decode, rule = VisibleDice(args.seed), dataset.tokenizer.decode, LayerVerification(KSEQ)
    scored, judged = remember(rule, "scores"), remember(rule, "judge")
    steps = decode_layered(target, TreeGPT(small), rule, shape_parents(SHAPES["complete"], 2, 3),
                           prompt, Sampler(1.0), dice, Sampler(1.0, top_k=20))
    one = instructive(watch(steps, dice, prompt, args.steps, target.config.block_size,
                            lambda: (scored[-1][0][0], *(x[0] for x in judged[-1]))), decode)
    scores, ends, owed = one["note"]
    end = one["kept"][-1]
    owed = owed[end] / owed[end].sum() if owed[end].sum() > 0 else np.array(one["p"][end])
    return trace(
        one, decode, dataset.vocab_size, chapter="06", title="Layer verification", rule="layers",
        drafted="drawn", twice=True, scores=scores.tolist(), ends=ends.tolist(),
        owed=owed.tolist(), scores_are="a_v, the chance that the path goes through",
        say_draft="The same token may come twice after the same node.",
        subtitle=f"{SIZES[args.size].label} target in {precision_of(target)}, "
        f"{SIZES['draft'].label} drafter, a complete tree of depth 3, LV + K-SEQ, temperature 1",
        say_verify="Now p and q are known at every node, and the rule can begin.")
