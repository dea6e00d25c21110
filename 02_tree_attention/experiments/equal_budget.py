"""Chain against trees at the same number of draft tokens: the fair comparison.

Verifying N rows costs the same whether they form a line or a tree. So the budget, the number of
draft tokens, is held equal, and only the shape differs.
"""

import math
import statistics
from functools import partial

from nanogpt.account import distinct_share, print_bottlenecks, print_differences
from nanogpt.clock import interpolate
from nanogpt.contest import (
    median_round,
    predicted_speedup,
    speedup,
    summarize,
    tau_uncertainty,
    two_standard_errors,
)
from nanogpt.decoding import plain_decode
from nanogpt.pictures import plots
from nanogpt.printing import print_table
from nanogpt.sampling import Dice
from tree_attention import TreeDrafter, multi_round, speculate, walk

PLAIN = "plain"
# budget -> shapes; (2, 2, 1, 1) has 2 + 4 + 4 + 4 = 14 draft tokens. The chain stands first.
SHAPES = {
    4: [(1,) * 4, (2, 1), (4,)],
    8: [(1,) * 8, (2, 1, 1, 1), (4, 1)],
    14: [(1,) * 14, (2, 2, 1, 1), (2, 2, 2)],
    30: [(1,) * 30, (2, 2, 1, 1, 1, 1, 1, 1), (2, 2, 2, 2), (6, 2, 1)],
}


def draft_tokens(branching):
    """How many draft tokens a full tree of this shape holds: (2, 2, 1) -> 2 + 4 + 4 = 10."""
    total, width = 0, 1
    for children in branching:
        width *= children
        total += width
    return total


def shape_name(branching):
    """(1, 1, 1, 1) -> 'chain 4'; (2, 2, 1, 1) -> 'tree 2-2-1-1'."""
    if all(children == 1 for children in branching):
        return f"chain {len(branching)}"
    return "tree " + "-".join(map(str, branching))


def round_in_words(generations, plain, drafts):
    """Why the speed-up is less than tau -> sentences with the median times of a round."""
    tau, (whole, parts) = summarize(generations)["tau"], median_round(generations)
    step, _ = median_round(plain)
    steps = whole / step
    return (f"A round takes {whole:.1f} ms, as long as {steps:.2f} plain steps of {step:.1f} ms: "
            f"{parts['draft']:.1f} ms of drafting,\na forward of {drafts + 1} rows in "
            f"{parts['verify']:.1f} ms, and a little more. "
            f"So {tau:.2f} tokens bring {tau:.2f} / {steps:.2f} = {tau / steps:.2f}, "
            f"not {tau:.2f}.\nThe clock said {speedup(generations, plain):.2f}: it compares whole "
            "texts, slow steps included.")


def ahead(tree, chain, measure):
    """Which of two methods has more, prompt by prompt -> 1: the tree; -1: the chain; 0: too close.

    tree, chain: lists of Generation of the same prompts, two or more; measure: "tau" or
    "tokens_per_second". One is ahead if the mean of the logarithms of tree / chain is further
    from zero than two standard errors.
    """
    logs = [math.log(getattr(t, measure) / getattr(c, measure))
            for t, c in zip(tree, chain, strict=True)]
    mean = statistics.mean(logs)
    return 0 if abs(mean) <= two_standard_errors(logs) else 1 if mean > 0 else -1


def print_winners(results, drafters, budgets):
    """Print the budgets at which tree or chain is ahead, in tokens per forward and by the clock.

    results: {(f"{drafter}, tree", budget): list of Generation, and so for the chain}.
    """
    rows = []
    for drafter in drafters:
        for judge, measure in (("tokens", "tau"), ("clock", "tokens_per_second")):
            found = {n: ahead(results[f"{drafter}, tree", n], results[f"{drafter}, chain", n],
                              measure) for n in budgets}
            rows.append([drafter, judge, *(
                ", ".join(str(n) for n in budgets if found[n] == who) or "-" for who in (1, -1, 0)
            )])
    print_table(["drafter", "judge", "tree ahead at", "chain ahead at", "too close to say"], rows)


def make_decoders(target, draft_model, sampler, accept=walk, shapes=None):
    """Plain decoding and one decoder per shape, for nanogpt.contest.compare.

    draft_model: TreeBigram or TreeGPT; accept: walk (on the top tokens) or multi_round (on drawn
    ones); shapes: a list, default all of SHAPES. -> {name: start(prompt, seed)}
    """
    def plain(prompt, seed):
        return plain_decode(target, prompt, sampler, Dice(seed))

    def tree(branching, prompt, seed):
        dice = Dice(seed)
        drawn = dice if accept is multi_round else None
        drafter = TreeDrafter(draft_model, branching, sampler, drawn)
        return speculate(target, drafter, prompt, sampler, dice, accept)

    if shapes is None:
        shapes = [shape for of_budget in SHAPES.values() for shape in of_budget]
    return {PLAIN: plain} | {shape_name(shape): partial(tree, shape) for shape in shapes}


def contests(draft_models, temperature):
    """Every (draft model's name, rule) that is worth a table at this temperature."""
    # At temperature 0 only one child can be drawn: the sampled tree is a chain.
    rules = [walk] if temperature == 0 else [walk, multi_round]
    return [(name, rule) for rule in rules for name in draft_models]


def chain_and_best_tree(results, curve):
    """What the results say for each budget.

    results: {name: list of Generation} of `make_decoders`; curve: {rows: ms}, the measured c(N).
    -> {budget: {"chain" or "tree": dict}}, the tree being the fastest of its budget, with name,
    tau, speedup, draft_ms (per round), and predicted (contest.predicted_speedup). tau is pooled
    over the prompts, the speed-up is the median over them: with few prompts the two may differ by
    more than the overhead.
    """
    table = {}
    for budget, shapes in SHAPES.items():
        lines = []
        for name in (shape_name(shape) for shape in shapes if shape_name(shape) in results):
            runs = results[name]
            line = summarize(runs)
            tau, draft_ms = line["tau"], line["verb_ms"]["draft"]
            lines.append({
                "name": name, "tau": tau, "draft_ms": draft_ms,
                "speedup": speedup(runs, results[PLAIN]),
                "predicted": predicted_speedup(tau, curve, budget + 1, draft_ms),
            })
        if lines:
            table[budget] = {"chain": lines[0],
                             "tree": max(lines[1:], key=lambda line: line["speedup"])}
    return table


def print_verdict(table, curve):
    """Chain and best tree side by side for each budget; the faster of the two is marked.

    table: of `chain_and_best_tree`; curve: {rows: ms}, the measured c(N).
    """
    rows = []
    for budget, pair in table.items():
        fastest = max(line["speedup"] for line in pair.values())
        for line in pair.values():
            rows.append([
                line["name"], f"{interpolate(curve, budget + 1) / curve[1]:.2f}",
                f"{line['draft_ms']:.2f}", f"{line['tau']:.2f}", f"{line['predicted']:.2f}x",
                f"{line['speedup']:.2f}x" + (" <" if line["speedup"] == fastest else "  "),
            ])
    print_table(["shape", "c(N)/c(1)", "draft ms", "tau", "predicted", "speed-up  "], rows)


def print_heading(temperature, drafter, rule):
    """Print what the next tables are about."""
    children = "drawn children" if rule is multi_round else "the top tokens"
    print(f"\nT = {temperature:g}, {drafter} drafter, {rule.__name__} on {children}\n")


def print_chain_against_trees(results, curve):
    """Print who wins at each budget, and what stands in the way of every shape.

    results: {name: list of Generation} of `make_decoders`; curve: {rows: ms}, the measured c(N).
    """
    print()
    print_verdict(chain_and_best_tree(results, curve), curve)
    print()
    print_bottlenecks(results, PLAIN, curve)


def print_greedy_texts(results, prompts, target):
    """Print where greedy texts leave plain decoding's, and how far those repeat themselves."""
    print_differences(results, PLAIN, prompts, target)
    distinct = statistics.mean(distinct_share(g.tokens) for g in results[PLAIN])
    print(f"share of distinct 6-grams in the plain texts: {distinct:.2f} (repetition flatters tau)")


def draw_uncertainty(ax, results):
    """Two standard errors of tau at each point of the lines in the Axes -> the Axes.

    results: {(label of the line, x of the point): list of Generation}.
    """
    for line in ax.get_lines():
        xs, taus = line.get_data()
        errors = [tau_uncertainty(results[line.get_label(), x]) for x in xs]
        ax.errorbar(xs, taus, errors, fmt="none", ecolor=line.get_color(), elinewidth=1.1,
                    capsize=3, alpha=0.7)
    return ax


def print_conclusion(curve):
    """Print what the tables say, taken together. curve: {rows: ms}, the measured c(N)."""
    rows = max(curve)
    print(f"\nAt an equal budget both shapes verify the same number of rows. A tree asks its "
          "drafter once per level, a chain once per token, so a tree is cheaper to draft. It wins "
          "where its second guesses also keep tau up. A chain wins where the first guess is kept "
          f"so often that depth is worth more than width. {rows} rows cost "
          f"{curve[rows] / curve[1]:.2f} plain steps here: if tau grows more slowly than this "
          "price, a larger budget makes every shape slower.")


def save_figure(all_results, curve, path):
    """tau and speed-up of the walk over the budget, a line for every drafter's chain and best tree.

    all_results: {(drafter, rule): results}; curve: {rows: ms}, the measured c(N).
    """
    lines = {}
    for drafter in (drafter for drafter, rule in all_results if rule is walk):
        table = chain_and_best_tree(all_results[drafter, walk], curve)
        for kind, name in (("chain", "chain"), ("tree", "best tree")):
            best = [pair[kind] for pair in table.values()]
            lines[f"{drafter}, {name}"] = (list(table), [line["tau"] for line in best],
                                           [line["speedup"] for line in best])
    plots.save(plots.draw_sweep(lines, "draft tokens", log2=True)[0], path)
