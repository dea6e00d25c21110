"""Single heads, routing and merging at equal budgets: per head, and in all."""

from functools import partial

from dual_draft_routing import HeadDrafter, RoutedDrafter  # chapter 03
from merged_trees import MergedDrafter, TrieDrafter, accept_paths
from nanogpt.contest import speedup, summarize
from nanogpt.decoding import plain_decode
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
