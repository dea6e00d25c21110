"""Single heads, routing and merging at equal budgets: per head, and in all."""

from collections import defaultdict
from functools import partial
from statistics import mean

from dual_draft_routing import HeadDrafter, RoutedDrafter  # chapter 03
from merged_trees import MergedDrafter, TrieDrafter, accept_paths
from nanogpt.contest import compare, speedup, summarize, tau_uncertainty
from nanogpt.decoding import plain_decode
from nanogpt.printing import print_table
from nanogpt.sampling import Dice
from tree_attention import speculate, walk  # chapter 02


def half_and_twice(budget):
    """The budgets that make one tree and two trees equal in all; `budget` must be even."""
    return budget // 2, 2 * budget


def methods(target, heads, sampler, budget):
    """{name: start(prompt, seed)}; after the name the draft nodes that are verified, at most."""
    def plain(prompt, seed):
        return plain_decode(target, prompt, sampler, Dice(seed))

    def drafted_by(make, nodes, prompt, seed, accept=walk):
        drafter = make([HeadDrafter(head, budget=nodes) for head in heads])
        return speculate(target, drafter, prompt, sampler, Dice(seed), accept)

    def first(pair):
        return pair[0]

    def second(pair):
        return pair[1]

    def trie(pair):
        return TrieDrafter(pair, pair[0].budget)

    merged = partial(drafted_by, MergedDrafter, accept=accept_paths)
    half, twice = half_and_twice(budget)
    return {
        "plain": plain,
        f"head 1, {budget}": partial(drafted_by, first, budget),
        f"head 2, {budget}": partial(drafted_by, second, budget),
        f"routed, {budget}": partial(drafted_by, RoutedDrafter, budget),
        f"merged, {half} + {half}": partial(merged, half),
        f"trie-merged, {budget}": partial(drafted_by, trie, budget),
        f"head 1, {twice}": partial(drafted_by, first, twice),
        f"head 2, {twice}": partial(drafted_by, second, twice),
        f"routed, {twice}": partial(drafted_by, RoutedDrafter, twice),
        f"merged, {budget} + {budget}": partial(merged, budget),
        f"trie-merged, {twice}": partial(drafted_by, trie, twice),
    }


def measure(target, heads, sampler, prompts, names, budget=8, max_new_tokens=96):
    """Some of the `methods`, by name -> as contest.compare."""
    start = methods(target, heads, sampler, budget)
    return compare({name: start[name] for name in names}, prompts, max_new_tokens)


def drafted_trees(name):
    """Who drafts, and how many nodes a head. Example: 'merged, 8 + 8' -> ('both heads', '8')."""
    who, nodes = name.split(", ")
    return who if who.startswith("head ") else "both heads", nodes.split(" + ")[0]


def priced(results, plain_ms):
    """What decides whether a method pays: {name: (tau, draft nodes, drafting in plain steps)}.

    results: {name: list of Generation} of `methods`; "plain" is left out; plain_ms: of a forward
    that reads one row. Methods that draft the same trees get the same price, the mean of theirs.
    """
    sums = {name: summarize(runs) for name, runs in results.items() if name != "plain"}
    took = defaultdict(list)
    for name, line in sums.items():
        took[drafted_trees(name)].append(line["verb_ms"]["draft"])
    return {name: (line["tau"], line["drafted"], mean(took[drafted_trees(name)]) / plain_ms)
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


def print_verdicts(results, budget):
    """The comparisons of the chapter: equal budget per head, equal budget in all."""
    half, twice = half_and_twice(budget)
    rivals = [f"{name}, {budget}" for name in ("head 1", "head 2", "routed")]
    union = f"merged, {budget} + {budget}"
    for title, names in (
            ("equal per head", [*rivals, union]),
            (f"{budget} in all", [*rivals, f"merged, {half} + {half}", f"trie-merged, {budget}"]),
            (f"{twice} in all", [f"head 1, {twice}", f"head 2, {twice}", f"routed, {twice}",
                                 union, f"trie-merged, {twice}"])):
        taus = {name: summarize(results[name])["tau"] for name in names}
        speeds = {name: speedup(results[name], results["plain"]) for name in names}
        longest, fastest = max(taus, key=taus.get), max(speeds, key=speeds.get)
        print(f"{title}: most tokens per forward {longest} ({taus[longest]:.2f}), "
              f"fastest {fastest} ({speeds[fastest]:.2f}x)")
