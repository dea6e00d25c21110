"""Chapter 02 on the runner: chain against trees at an equal budget, and the bias of every rule.

Verifying N rows costs the same whether they form a line or a tree. So the budget, the number of
draft tokens, is held equal, and only the shape differs. The biases are exact: they are counted on
small random models.
"""

import math
import statistics

from cautionary_rule import independent_coins
from nanogpt.bench import (
    PLAIN,
    plain,
    predicted_speedup,
    speedup,
    summarize,
    tau_uncertainty,
    two_standard_errors,
)
from nanogpt.cli import print_table
from nanogpt.clock import interpolate
from nanogpt.exact.enumeration import output_distribution, target_distribution, total_variation
from nanogpt.exact.toy_models import ToyDraft, ToyModel, ToyTarget
from nanogpt.pictures import plots
from nanogpt.sampling import Dice, Sampler
from tree_attention import TreeDrafter, multi_round, speculate, walk

# budget -> shapes; (2, 2, 1, 1) has 2 + 4 + 4 + 4 = 14 draft tokens. The chain stands first.
SHAPES = {
    4: [(1,) * 4, (2, 1), (4,)],
    8: [(1,) * 8, (2, 1, 1, 1), (4, 1)],
    14: [(1,) * 14, (2, 2, 1, 1), (2, 2, 2)],
    30: [(1,) * 30, (2, 2, 1, 1, 1, 1, 1, 1), (2, 2, 2, 2), (6, 2, 1)],
}

# ---------------------------------------------------------------- the decoders


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


def registry(target, draft_model, sampler, accept=walk, shapes=None):
    """{name: start(prompt, seed)}: plain decoding and one decoder per shape.

    draft_model: TreeBigram or TreeGPT; accept: walk (on the top tokens) or multi_round (on drawn
    ones); shapes: a list, default all of SHAPES.
    """
    def tree(branching):
        def start(prompt, seed):
            dice = Dice(seed)
            drafter = TreeDrafter(draft_model, branching, sampler,
                                  dice if accept is multi_round else None)
            return speculate(target, drafter, prompt, sampler, dice, accept)
        return start

    shapes = shapes or [shape for of_budget in SHAPES.values() for shape in of_budget]
    return {PLAIN: plain(target, sampler)} | {shape_name(s): tree(s) for s in shapes}


# ---------------------------------------------------------------- chain against trees


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


def chain_and_best_tree(results, curve):
    """What the results of a `registry` say for each budget; curve: {rows: ms}, the measured c(N).

    -> {budget: {"chain" or "tree": dict}}, the tree being the fastest of its budget, with name,
    tau, speedup, draft_ms (per round), and predicted (nanogpt.bench.predicted_speedup).
    """
    table = {}
    for budget, shapes in SHAPES.items():
        lines = []
        for name in (shape_name(shape) for shape in shapes if shape_name(shape) in results):
            line = summarize(results[name])
            tau, draft_ms = line["tau"], line["verb_ms"]["draft"]
            lines.append({
                "name": name, "tau": tau, "draft_ms": draft_ms,
                "speedup": speedup(results[name], results[PLAIN]),
                "predicted": predicted_speedup(tau, curve, budget + 1, draft_ms),
            })
        if lines:
            table[budget] = {"chain": lines[0],
                             "tree": max(lines[1:], key=lambda line: line["speedup"])}
    return table


def print_chain_against_trees(table, curve):
    """Chain and best tree side by side for each budget; the faster of the two is marked.

    table: of `chain_and_best_tree`; curve: {rows: ms}, the measured c(N).
    """
    rows = []
    for budget, pair in table.items():
        best = max(line["speedup"] for line in pair.values())
        for line in pair.values():
            rows.append([
                line["name"], f"{interpolate(curve, budget + 1) / curve[1]:.2f}",
                f"{line['draft_ms']:.2f}", f"{line['tau']:.2f}", f"{line['predicted']:.2f}x",
                f"{line['speedup']:.2f}x" + (" <" if line["speedup"] == best else "  "),
            ])
    print_table(["shape", "c(N)/c(1)", "draft ms", "tau", "predicted", "speed-up  "], rows)


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


def draw_chain_against_trees(tables):
    """tau and speed-up of the walk over the budget, a line for every drafter's chain and best tree.

    tables: {drafter: of chain_and_best_tree}.
    """
    lines = {}
    for drafter, table in tables.items():
        for kind, name in (("chain", "chain"), ("tree", "best tree")):
            best = [pair[kind] for pair in table.values()]
            lines[f"{drafter}, {name}"] = (list(table), [line["tau"] for line in best],
                                           [line["speedup"] for line in best])
    return plots.draw_sweep(lines, "draft tokens", log2=True)[0]


# ---------------------------------------------------------------- the bias of the rules

PROMPT, SAMPLER = (0, 1), Sampler(1)


def round_distribution(accept, model, draft_model, branching, drawn, length, sampler=SAMPLER):
    """The exact distribution of the first `length` tokens that a round of tree speculation emits.

    model, draft_model: nanogpt.exact.toy_models.ToyModel; drawn: children are drawn without
    replacement (else they are the top tokens). What the round leaves short, plain decoding adds.
    -> {tokens: probability}
    """
    *context, root = PROMPT
    target, cache = ToyTarget(model), ToyTarget(model).new_cache()
    cache.text = list(context)
    toy_draft = ToyDraft(draft_model)
    toy_draft.observe(context)
    verified = {}  # a tree's tokens: the tree and target_probs; most runs meet a known tree

    def emit(dice):
        drafter = TreeDrafter(toy_draft, branching, sampler, dice if drawn else None)
        tree = drafter.propose(root, room=length)
        known = tuple(tree.tokens.tolist())
        if known not in verified:
            logits, _ = target(tree.tokens[None], cache.length + tree.depths, tree.mask, cache)
            verified[known] = tree, sampler(logits[0])
        tree, target_probs = verified[known]
        path, token = accept(tree, target_probs, dice)
        return [*tree.tokens[path[1:]].tolist(), token]

    return output_distribution(model, sampler, PROMPT, length, emit)


def first_tokens(distribution, n):
    """The distribution of the first n tokens, from that of more. {tokens: probability}, both."""
    shorter = {}
    for tokens, probability in distribution.items():
        shorter[tokens[:n]] = shorter.get(tokens[:n], 0.0) + probability
    return shorter


def mean_bias(accept, branching, drawn, length, vocab=4, pairs=30, drafter_is_target=False):
    """Total variation, 0..1, between what a round emits and the target, at temperature 1.

    -> a list: for the first token, the first two, ... the first `length`; each the mean over
    so many pairs of random models.
    """
    biases = []
    for seed in range(pairs):
        model = ToyModel(seed, vocab)
        draft_model = model if drafter_is_target else ToyModel(100 + seed, vocab)
        emitted = round_distribution(accept, model, draft_model, branching, drawn, length)
        biases.append([
            total_variation(first_tokens(emitted, n),
                            target_distribution(model, SAMPLER, PROMPT, n))
            for n in range(1, length + 1)
        ])
    return [sum(column) / pairs for column in zip(*biases, strict=True)]


BREAKS = {  # what is looked at: rule, branching, are the children drawn, how many tokens
    "chain of 1, drawn: this is chapter 01": (independent_coins, (1,), True, 1),
    "chain of 1, the top token instead of a draw": (independent_coins, (1,), False, 1),
    "two drawn children, the old coin for the second": (independent_coins, (2,), True, 1),
    "chain of 2, drawn, no residual at its end": (independent_coins, (1, 1), True, 2),
}
RULES = {  # rule, are the children drawn, pairs of models (drawn trees take seconds a pair)
    "independent coins": (independent_coins, False, 30),
    "walk": (walk, False, 30),
    "multi-round": (multi_round, True, 2),
}


def bias_table(branching=(2, 2), drafter_is_target=False, vocab=4):
    """The bias of every rule of the chapter on one shape -> {rule: list as of `mean_bias`}."""
    return {
        name: mean_bias(accept, branching, drawn, len(branching), vocab, pairs, drafter_is_target)
        for name, (accept, drawn, pairs) in RULES.items()
    }


def print_bias_of_the_rules(out):
    """Print the three breaks one by one, then all rules on one tree; draw them into bias.png."""
    print("\nTotal variation between output and target (exact; 0 = lossless), random models of 4 "
          "tokens\n")
    print_table(["one break at a time", "bias"], [
        [name, f"{mean_bias(*case)[-1]:.4f}"] for name, case in BREAKS.items()
    ])
    tables = {"random drafter": bias_table(),
              "drafter = target": bias_table(drafter_is_target=True)}
    print()
    print_table(["branching 2-2", *(f"{who}, {n}" for who in tables for n in (1, 2))], [
        [rule, *(f"{bias:.4f}" for table in tables.values() for bias in table[rule])]
        for rule in RULES
    ])
    groups = {f"{text}\n{who}": {rule: biases[n] for rule, biases in table.items()}
              for who, table in tables.items()
              for n, text in enumerate(("first token", "first two tokens"))}
    plots.save(plots.draw_bars(groups, "distance from the target's distribution"),
               out / "bias.png")
