"""Pictures of this chapter: a node's flow network, a tree with its scores, the bias of rules."""

import itertools

import numpy as np

from iid_trees import shape_of
from nanogpt.pictures.plots import (
    BLUE,
    FAINT,
    GREY,
    INK,
    ORANGE,
    RED,
    new_axes,
    plain_frame,
    tint,
    tree_rows,
)

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


def draw_flow(rule, draft_probs, target_mass, k, names, ax=None):
    """One node's network: source, drawn tuples, tokens, sink; on each edge flow / capacity.

    A blue line is as wide as the flow, the grey line under it as the capacity. rule: a single-step
    rule's class; draft_probs (V,), target_mass (V,); names: V texts.
    """
    flows, V = tuple_flows(rule, draft_probs, target_mass, k), len(names)
    out = rule(draft_probs[None], target_mass[None], k).out[0]
    ax = ax or new_axes(9.5, 0.9 + 0.72 * len(flows))
    height = {X: -float(i) for i, X in enumerate(flows)}
    middle = -(len(flows) - 1) / 2
    level = {z: middle + (V - 1 - 2 * z) * (len(flows) - 1) / (2 * V) for z in range(V)}
    for X, (mass, shares) in flows.items():
        sent = sum(shares.values())
        draw_edge(ax, (0, middle), (1, height[X]), sent, mass, 0.72)
        for i, (token, flow) in enumerate(shares.items()):
            draw_edge(ax, (1, height[X]), (2.3, level[token]), flow, None, 0.22 + 0.1 * i)
        draw_node(ax, 1, height[X], "".join(names[z] for z in X))
    for z in range(V):
        draw_edge(ax, (2.3, level[z]), (3.3, middle), out[z], target_mass[z], 0.35)
        draw_node(ax, 2.3, level[z], names[z])
    draw_node(ax, 0, middle, "source")
    draw_node(ax, 3.3, middle, "sink")
    ax.set_title(f"{rule.__name__}: {out.sum():.3f} of {target_mass.sum():.2f} arrives",
                 fontsize=11, color=INK)
    ax.set_xlim(-0.25, 3.5)
    ax.set_ylim(-len(flows) + 0.4, 0.6)
    ax.axis("off")
    return ax


def draw_edge(ax, start, end, flow, capacity, place):
    """An edge from start to end, (x, y) each; its label stands at `place` of the way, 0 to 1.

    capacity None: unlimited, drawn as a thin line.
    """
    xs, ys = zip(start, end, strict=True)
    width = 1 if capacity is None else WIDEST * capacity
    ax.plot(xs, ys, color=tint(GREY, 0.5), linewidth=width, solid_capstyle="butt", zorder=1)
    ax.plot(xs, ys, color=tint(BLUE, 0.6), linewidth=WIDEST * flow, solid_capstyle="butt", zorder=2)
    if capacity is None and flow < 5e-4:
        return
    text = f"{flow:.3f}" + ("" if capacity is None else f" / {capacity:.3f}")
    x, y = (a + place * (b - a) for a, b in (xs, ys))
    ax.text(x, y, text, fontsize=7.5, color=INK, ha="center", va="center", zorder=3,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.4, "alpha": 0.85})


def draw_node(ax, x, y, text, color=FAINT, strength=0.2):
    """A box with a text at the point (x, y), filled with its colour to that strength, 0 to 1."""
    ax.text(x, y, text, fontsize=10, ha="center", va="center", zorder=4, color=INK,
            family="DejaVu Sans Mono", parse_math=False,
            bbox={"boxstyle": "round,pad=0.35", "edgecolor": color,
                  "facecolor": tint(color, strength)})


def draw_scores(parents, texts, numbers, shade, ax=None):
    """A tree, each node with its row, its token and a line of numbers under it.

    texts (N): tokens; numbers: {label: (N,)}; shade (N,) in [0, 1]: how blue a node is. Where it
    is 0 the numbers are orange.
    """
    children, depths = shape_of(tuple(parents)).children, shape_of(tuple(parents)).depths
    heights = tree_rows(children)
    ax = ax or new_axes(2.6 * (depths.max() + 1), 1.0 + 0.85 * (max(heights) + 1))
    for v, parent in enumerate(parents[1:], start=1):
        ax.plot([depths[parent], depths[v]], [heights[parent], heights[v]], color=GREY, zorder=1)
    for v, text in enumerate(texts):
        draw_node(ax, depths[v], heights[v], f"{v}: {text}", BLUE, 0.8 * float(shade[v]))
        line = "  ".join(f"{label} {values[v]:.3f}" for label, values in numbers.items())
        ax.text(depths[v], heights[v] + 0.36, line, fontsize=8, ha="center", va="center",
                color=ORANGE if shade[v] < 5e-4 else INK, zorder=3,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.4})
    ax.set_xlim(-0.5, depths.max() + 0.5)
    ax.set_ylim(max(heights) + 0.8, -0.6)
    ax.axis("off")
    return ax


def draw_bias(bias, ax=None):
    """Total variation to the target on a logarithmic axis: blue is rounding, red a wrong rule.

    bias: {name: total variation}.
    """
    ax = ax or new_axes(8, 0.9 + 0.36 * len(bias))
    for place, value in enumerate(bias.values()):
        color = BLUE if value < 1e-12 else RED
        end = max(value, 1e-17)
        ax.barh(place, end, color=color, height=0.7)
        ax.text(1.3 * end, place, f"{value:.0e}", va="center", fontsize=9, color=color)
    ax.set_yticks(range(len(bias)), list(bias))
    ax.set_xscale("log")
    ax.set_xlim(1e-17, 30)
    ax.invert_yaxis()
    plain_frame(ax, None, "total variation between the output's distribution and the target's")
    ax.grid(visible=False)
    return ax
