"""Chapter 04 on the runner: single heads, routing and merging at equal budgets, and what each of
them accepts in the very same rounds.

The target draws every token itself, so the tokens of a round do not depend on who drafted. A tree
would have accepted as many of them as it holds.
"""

import statistics
from collections import defaultdict

from dual_draft_routing import (  # chapter 03
    HeadDrafter,
    RoutedDrafter,
    best_nodes,
    keep_rows,
    mean_confidence,
    route,
)
from merged_trees import (
    MergedDrafter,
    TrieDrafter,
    accept_paths,
    distinct_prefixes,
    merge,
    trie_merge,
)
from nanogpt.bench import PLAIN, plain, summarize, tau_uncertainty, two_standard_errors
from nanogpt.cli import print_table
from nanogpt.decoding import collect
from nanogpt.sampling import Dice
from tree_attention import speculate, walk  # chapter 02

# ---------------------------------------------------------------- the decoders


def registry(target, heads, sampler, budget):
    """{name: start(prompt, seed)}; after the name the draft nodes that are verified, at most.

    budget: of one head's tree, even; all methods also with two trees' budget.
    """
    def drafted_by(make, nodes, accept=walk):
        def start(prompt, seed):
            drafter = make([HeadDrafter(head, budget=nodes) for head in heads])
            return speculate(target, drafter, prompt, sampler, Dice(seed), accept)
        return start

    starts = {PLAIN: plain(target, sampler)}
    for n in (budget, 2 * budget):
        starts |= {
            f"head 1, {n}": drafted_by(lambda pair: pair[0], n),
            f"head 2, {n}": drafted_by(lambda pair: pair[1], n),
            f"routed, {n}": drafted_by(RoutedDrafter, n),
            f"merged, {n // 2} + {n // 2}": drafted_by(MergedDrafter, n // 2, accept_paths),
            f"trie-merged, {n}": drafted_by(lambda pair: TrieDrafter(pair, pair[0].budget), n),
        }
    return starts


# ---------------------------------------------------------------- what decides whether it pays


def drafted_trees(name):
    """Who drafts, and how many nodes a head. Example: 'merged, 8 + 8' -> ('both heads', '8')."""
    who, nodes = name.split(", ")
    return who if who.startswith("head ") else "both heads", nodes.split(" + ")[0]


def priced(results, plain_ms):
    """What decides whether a method pays: {name: (tau, draft nodes, drafting in plain steps)}.

    results: {name: list of Generation} of a `registry`; plain_ms: of a forward of one row.
    Methods that draft the same trees get the same price, the mean of theirs.
    """
    sums = {name: summarize(runs) for name, runs in results.items() if name != PLAIN}
    took = defaultdict(list)
    for name, line in sums.items():
        took[drafted_trees(name)].append(line["verb_ms"]["draft"])
    prices = {trees: statistics.mean(ms) / plain_ms for trees, ms in took.items()}
    return {name: (line["tau"], line["drafted"], prices[drafted_trees(name)])
            for name, line in sums.items()}


def estimated_speedup(line, row_price, part=1):
    """The lesson's formula: tau / (1 + n * row_price + part * drafting).

    line: one of `priced`; row_price: in plain steps; part: of the price of drafting, 0 to 1.
    Example: tau 3, 8 draft nodes at .125, drafting 1: 3 / (1 + 1 + 1) = 1.
    """
    tau, nodes, drafting = line
    return tau / (1 + nodes * row_price + part * drafting)


def print_speedups(lines, row_price, results):
    """The formula where nothing costs time, rows, drafting, or both; a star at the fastest.

    lines, results: as in `priced`; below the table, how uncertain their tau is.
    """
    table = []
    for paid, price, part in (("nothing", 0, 0), ("rows", row_price, 0), ("drafting", 0, 1),
                              ("rows and drafting", row_price, 1)):
        gains = [estimated_speedup(line, price, part) for line in lines.values()]
        table.append([paid, *("* " * (gain == max(gains)) + f"{gain:.2f}x" for gain in gains)])
    print_table(["what costs time", *lines], table)
    error = max(tau_uncertainty(results[name]) for name in lines)
    print(f"\nOne more row costs {row_price:.1%} of a plain step. "
          f"Two standard errors of tau are {error:.2f} at most.")


# ---------------------------------------------------------------- the very same rounds


class Remembering(MergedDrafter):
    """A MergedDrafter that keeps every round's two trees, with their scores."""

    def __init__(self, drafters):
        super().__init__(drafters)
        self.rounds = []

    def propose_both(self, root, room):
        """As `BothHeads.propose_both`; what comes back is kept."""
        self.rounds.append(super().propose_both(root, room))
        return self.rounds[-1]


def accepted(tree, tokens):
    """How many of these tokens, emitted in a round, the tree holds below its root."""
    known, n = distinct_prefixes(tree), 0
    while n < len(tokens) and tuple(tokens[:n + 1]) in known:
        n += 1
    return n


def recorded_rounds(target, heads, sampler, prompts, budget, max_new_tokens):
    """Decode with the union; yields for each round both trees, their scores, the tokens written."""
    for seed, prompt in enumerate(prompts):
        drafter = Remembering([HeadDrafter(head, budget=budget) for head in heads])
        run = speculate(target, drafter, prompt, sampler, Dice(seed), accept_paths)
        steps = collect(run, max_new_tokens).steps[:-1]  # the last one may have been cut
        for step, (trees, scores) in zip(steps, drafter.rounds, strict=False):
            yield trees, scores, step.tokens


def same_rounds(target, heads, sampler, prompts, budget, max_new_tokens):
    """Decode with the union, and ask in every round who would have accepted how much.

    -> {name: mean number of accepted drafts}; the share of the union's draft rows that repeat a
    prefix of the other tree; the number of rounds.
    """
    totals, rows, repeated, n = [0, 0, 0, 0], 0, 0, 0
    for trees, scores, tokens in recorded_rounds(target, heads, sampler, prompts, budget,
                                                 max_new_tokens):
        union = merge(*trees)
        lengths = [accepted(tree, tokens) for tree in trees]
        chosen = lengths[route([mean_confidence(s) for s in scores])]
        lengths += [chosen, accepted(union, tokens)]
        totals = [total + length for total, length in zip(totals, lengths, strict=True)]
        rows += len(union) - 1
        repeated += len(union) - 1 - len(distinct_prefixes(union))
        n += 1
    names = ("head 1", "head 2", "the router's choice", "the union")
    means = {name: total / max(n, 1) for name, total in zip(names, totals, strict=True)}
    return means, repeated / max(rows, 1), n


def best_part(tree, scores, budget):
    """The tree that the same head grows with a smaller budget; scores: one per row, a list."""
    return keep_rows(tree.tokens.tolist(), tree.parents.tolist(), scores,
                     best_nodes(scores, budget))[0]


def equal_rows(target, heads, sampler, prompts, rows, max_new_tokens):
    """Three ways to verify `rows` draft rows (an even number), in the very same rounds.

    -> {name: list, the drafts accepted in each round}, names as in merge_budgets.methods.
    """
    half = rows // 2
    kept = {f"routed, {rows}": [], f"merged, {half} + {half}": [], f"trie-merged, {rows}": []}
    for trees, scores, tokens in recorded_rounds(target, heads, sampler, prompts, rows,
                                                 max_new_tokens):
        rivals = (trees[route([mean_confidence(s) for s in scores])],
                  merge(*map(best_part, trees, scores, (half, half))),
                  trie_merge(trees, scores, rows)[0])
        for lengths, tree in zip(kept.values(), rivals, strict=True):
            lengths.append(accepted(tree, tokens))
    return kept


def print_gaps(columns):
    """The first method's accepted drafts per round; how many more the others have, with two
    standard errors. columns: {title: what equal_rows returns}."""
    table = {name: [name] for name in next(iter(columns.values()))}
    for kept in columns.values():
        first = next(iter(kept.values()))
        for name, lengths in kept.items():
            gaps = [length - base for length, base in zip(lengths, first, strict=True)]
            table[name].append(f"{statistics.mean(gaps):+.2f} +- {two_standard_errors(gaps):.2f}"
                               if lengths is not first else f"{statistics.mean(first):.2f}")
    print_table(["accepted drafts per round", *columns], table.values())
