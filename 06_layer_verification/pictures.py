"""Pictures of this chapter: a rule as water in pipes, a tree with its numbers, whose draws a layer
may use, where a path ends, lengths of rules.

Blue is what is accepted or flows, grey what could, red what overflows, light blue what the drafter
offers.
"""

import itertools

import numpy as np
from matplotlib.patheffects import withStroke

from iid_trees import SHAPES, shape_of, shape_parents
from layer_verification import LayerVerification, decode_layered
from nanogpt.packing import for_decoding, precision_of
from nanogpt.pictures.plots import (
    BLUE,
    FAINT,
    GREY,
    INK,
    MONO,
    RED,
    SKY,
    new_axes,
    tint,
    tree_rows,
    two_digits,
)
from nanogpt.pictures.step import VisibleDice, instructive, remember, trace, watch
from nanogpt.sampling import Sampler
from nanogpt.sizes import SIZES
from nanogpt.train import get_gpt
from single_step_rules import KSEQ, SpS
from tree_attention import TreeGPT  # chapter 02

WIDE = 0.42  # how wide the flow 1 is, where the sets of tokens are 1 apart


def tuple_flows(rule, draft_probs, target_mass, k):
    """What each set of k drawn tokens sends where, by listing all V^k draws.

    rule: a single-step rule's class; draft_probs, target_mass (V,)
    -> {tuple of tokens, ascending: [its probability, {token: flow}]}.
    """
    local = rule(draft_probs[None], target_mass[None], k)
    flows = {}
    for drawn in itertools.product(np.flatnonzero(draft_probs).tolist(), repeat=k):
        mass = draft_probs[list(drawn)].prod()
        entry = flows.setdefault(tuple(sorted(drawn)), [0.0, {}])
        entry[0] += mass
        for token, share in zip(drawn, local.accept(np.array([drawn]))[0], strict=True):
            entry[1][token] = entry[1].get(token, 0.0) + mass * share
    return flows


def canvas(ax, title, xlim, ylim):
    """An Axes without a frame, with a title in words at the left."""
    ax.set_title(title, fontsize=12, color=INK, loc="left")
    ax.set(xlim=xlim, ylim=ylim)
    ax.axis("off")
    return ax


def say(ax, x, y, text, **look):
    """A text whose middle is the point (x, y), if its look does not say otherwise."""
    ax.text(x, y, text, **{"ha": "center", "va": "center", "color": INK, **look})


def draw_node(ax, x, y, text, color=FAINT):
    """A box with a text at the point (x, y)."""
    say(ax, x, y, text, zorder=4, **MONO,
        bbox={"boxstyle": "round,pad=0.3", "edgecolor": color, "facecolor": tint(color, 0.2)})


def ports(widths, middle):
    """Where pipes of these widths meet a box, one below the other around its middle."""
    return middle + np.cumsum(widths) - np.array(widths) / 2 - sum(widths) / 2


def draw_pipe(ax, start, end, flow, capacity=0, wide=WIDE):
    """A stream from start to end, (x, y) each, as wide as its flow, in a grey one of its capacity.

    capacity 0: no limit.
    """
    (x0, y0), (x1, y1), way = start, end, np.linspace(0, 1, 61)
    x, y = x0 + (x1 - x0) * way, y0 + (y1 - y0) * way ** 2 * (3 - 2 * way)
    color = RED if 0 < capacity < flow - 1e-9 else BLUE
    for width, tone in ((capacity, tint(GREY, 0.5)), (flow, tint(color, 0.6))):
        ax.fill_between(x, y - wide * width / 2, y + wide * width / 2, color=tone, linewidth=0)
    limit = f" of {two_digits(capacity)}" if capacity else ""
    say(ax, x[30], y[30], two_digits(flow) + limit, zorder=5,
        path_effects=[withStroke(linewidth=3, foreground="white")])


def draw_flow(rule, draft_probs, target_mass, k, title, ax=None, wide=WIDE):
    """One node's pipes: drafter, drawn tuples, tokens, accepted; a label is a flow and its limit.

    rule: a single-step rule's class; draft_probs, target_mass (V,). One candidate is its own
    tuple, so that its second column is left out. The title may name {total}, all that arrives.
    """
    flows = tuple_flows(rule, draft_probs, target_mass, k)
    out = rule(draft_probs[None], target_mass[None], k).out[0]
    ax, middle = ax or new_axes(height=3.2), (len(flows) - 1) / 2
    level = np.linspace(0, 2 * middle, len(out))
    starts, ends = (ports(wide * np.array(widths), middle) for widths in (
        [mass for mass, _ in flows.values()], np.maximum(out, target_mass)))
    for y, (X, (mass, shares)) in enumerate(flows.items()):
        draw_pipe(ax, (0, starts[y]), (1, y), sum(shares.values()), mass, wide)
        draw_node(ax, 1, y, "".join("etm"[z] for z in X))
        for token, flow in shares.items() if k > 1 else ():
            draw_pipe(ax, (1, y), (2, level[token]), flow, wide=wide)
    last = 3 if k > 1 else 2  # the column of what is accepted
    for z, y in enumerate(level):
        draw_pipe(ax, (last - 1, y), (last, ends[z]), out[z], target_mass[z], wide)
        draw_node(ax, last - 1, y, "etm"[z])
    draw_node(ax, -0.15, middle, "drafter")
    draw_node(ax, last + 0.15, middle, "accepted")
    return canvas(ax, title.format(total=two_digits(out.sum())), (-0.45, last + 0.5),
                  (len(flows) - 0.5, -0.5))


def draw_second_step(draft_probs, target_probs, score):
    """A chain's second step as pipes: the demand is scaled by the score; the offer by TV only.

    draft_probs, target_probs (V,); score: P[the first draft is accepted].
    """
    axes = new_axes(height=4.2, rows=2)
    for ax, title, scale in zip(axes, (
            f"TV offers {two_digits(score)} of the draws: {{total}} flows",
            "All draws are offered: {total} flows"), (score, 1.0), strict=True):
        draw_flow(SpS, scale * draft_probs, score * target_probs, 1, title, ax, wide=0.8)
    return axes


def draw_numbers(parents, names, lines, title):
    """A tree from the root down, a grey band a layer, with lines of text beside each node.

    names (N): of the nodes; lines (N): of each node.
    """
    shape = shape_of(tuple(parents))
    across = tree_rows(shape.children)
    ax = new_axes(height=0.5 + 1.15 * len(shape.layers))
    for depth in range(len(shape.layers)):
        ax.axhspan(depth - 0.41, depth + 0.41, color=tint(GREY, 0.15), zorder=0)
        if depth:
            say(ax, -0.38, depth - 0.37, f"layer {depth}", color=FAINT, ha="left", va="top")
    for v, parent in enumerate(parents):
        x, y = across[v], shape.depths[v]
        if v:
            ax.plot([across[parent], x], [y - 1, y], color=GREY, zorder=1)
        draw_node(ax, x, y, names[v], BLUE)
        say(ax, x + 0.24, y, "\n".join(lines[v]), ha="left", zorder=3)
    return canvas(ax, title, (-0.4, max(across) + 0.95), (shape.depths.max() + 0.45, -0.45))


def draw_offers(scores):
    """Whose draws may be used? For TV and for LV a bar of length 1. scores {node: a_v}."""
    ax, A = new_axes(height=2.4), sum(scores.values())
    for y, (name, scale) in enumerate((("TV: $a_v$", 1), ("LV: $\\lambda_v = a_v / A$", 1 / A))):
        say(ax, 0, y - 0.3, name, ha="left", va="bottom")
        parts, at = {f"node {node}": scale * a for node, a in scores.items()}, 0.0
        for text, width in parts.items():
            ax.barh(y, width, 0.5, at, edgecolor=GREY, color=tint(SKY, 0.6))
            say(ax, at + width / 2, y, f"{text}\n{two_digits(width)}")
            at += width
        if at < 1 - 1e-9:
            say(ax, (at + 1) / 2, y, f"wasted\n{two_digits(1 - at)}", color=RED)
    return canvas(ax, "Whose draws may be used in the next layer?", (0, 1), (1.3, -0.65))


def draw_ends(shape, names, ends, u):
    """Where does the path end? A row a layer, the deepest at the bottom; what is left goes up.

    names (N): of the nodes; ends (N,): P[the path ends at v]; u: the draw, a line from below to
    the end that it hits.
    """
    ax, left = new_axes(height=0.7 + 0.75 * len(shape.layers)), np.cumsum([0.0, *ends])
    hit, low = int(np.searchsorted(left, u, side="right")) - 1, len(shape.layers) - 0.6
    for depth, layer in enumerate(shape.layers):
        first = left[layer.rows[0]]
        ax.barh(depth, first, 0.5, color=tint(GREY, 0.25))
        say(ax, -0.02, depth, f"layer {depth}" if depth else "root", ha="right", color=FAINT)
        if depth:
            say(ax, first / 2, depth, f"goes up: {two_digits(first)}", color=FAINT)
    for v, depth in enumerate(shape.depths):
        ax.barh(depth, ends[v], 0.5, left[v], color=tint(BLUE, 0.85 if v == hit else 0.3),
                edgecolor="white")
        text, middle = f"{ends[v]:.3f}".lstrip("0"), left[v] + ends[v] / 2
        if ends[v] > 0.1:
            say(ax, middle, depth, f"{names[v]}\n{text}", color="white" if v == hit else INK)
        elif ends[v]:
            say(ax, middle, depth - 0.28, f"{names[v]} {text}", va="bottom")
    for edge in left[[hit, hit + 1]]:
        say(ax, edge, shape.depths[hit] + 0.29, f"{edge:.3f}".lstrip("0"), va="top")
    ax.plot([u, u], [low, shape.depths[hit] + 0.25], color=INK, linestyle="--")
    say(ax, u, low, f"u = {two_digits(u)}", va="top")
    return canvas(ax, "From the deepest layer up: does the path end here?", (-0.17, 1),
                  (low + 0.35, -0.4))


def draw_lengths(groups):
    """Who writes more tokens a forward: TV in grey, LV in blue, the gain at the right; all groups
    on one scale.

    groups: {title: what bench.as_panel returns} -> the Axes.
    """
    values = [x for rules in groups.values() for found in rules.values() for x in found[:2]]
    ax, y = new_axes(height=1 + 0.28 * sum(2 + len(rules) for rules in groups.values())), -2
    low, wide = min(values), max(values) - min(values)
    for title, rules in groups.items():
        y += 2
        say(ax, low - 0.45 * wide, y, title, ha="left", fontweight="bold")
        for name, (tv, lv, gained, error) in rules.items():
            y += 1
            say(ax, low - 0.45 * wide, y, name, ha="left")
            ax.plot([tv, lv], [y, y], color=tint(BLUE, 0.5), linewidth=3)
            ax.scatter([tv, lv], [y, y], s=44, color=[FAINT, BLUE], zorder=2)
            say(ax, tv, y, f"{tv:.2f}  ", color=FAINT, ha="right")
            say(ax, lv, y, f"  {lv:.2f}", color=BLUE, ha="left")
            say(ax, low + 1.75 * wide, y, f"+{gained:.1f} \u00b1 {2 * error:.1f} %", ha="right")
    return canvas(ax, "Tokens per forward: TV grey, LV blue, and LV's gain",
                  (low - 0.46 * wide, low + 1.76 * wide), (y + 0.6, -0.6))


def step_round(args, dataset, device, prompt):
    """An instructive round of K-SEQ under the layer lift -> its trace; see
    nanogpt/pictures/step.py."""
    target, small = (for_decoding(get_gpt(size, dataset, device, args.retrain), args.precision)
                     for size in (args.size, "draft"))
    dice, decode, rule = VisibleDice(args.seed), dataset.tokenizer.decode, LayerVerification(KSEQ)
    scored, judged = remember(rule, "scores"), remember(rule, "judge")
    steps = decode_layered(target, TreeGPT(small), rule, shape_parents(SHAPES["multi-chain"], 2, 3),
                           prompt, Sampler(1.0), dice, Sampler(1.0, top_k=20))
    rounds = watch(steps, dice, prompt, args.steps, target.config.block_size,
                   lambda: (scored[-1][0][0], *(x[0] for x in judged[-1])))
    # Both branches have a score, and the draw falls where much is.
    clear = [r for r in rounds if min(r["note"][0][1:3]) > 0.15
             and r["note"][1][r["kept"][-1]] > 0.25]
    one = instructive(clear or rounds, decode)
    scores, ends, owed = one["note"]
    end = one["kept"][-1]
    owed = owed[end] / owed[end].sum() if owed[end].sum() > 0 else np.array(one["p"][end])
    return trace(
        one, decode, dataset.vocab_size, chapter="06", title="Layer verification", rule="layers",
        drafted="drawn", twice=True, scores=scores.tolist(), ends=ends.tolist(),
        owed=owed.tolist(), scores_are="a_v, the chance that the path goes through",
        say_draft="The same token may come twice after the same node.",
        subtitle=f"{SIZES[args.size].label} target in {precision_of(target)}, "
        f"{SIZES['draft'].label} drafter, two chains of 3, LV + K-SEQ, temperature 1",
        say_verify="Now p and q are known at every node, and the rule can begin.")
