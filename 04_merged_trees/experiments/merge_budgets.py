"""Single heads, routing and merging at equal budgets: per head, and in all."""

from dual_draft_routing import HeadDrafter, RoutedDrafter
from merged_trees import MergedDrafter, TrieDrafter, accept_paths
from nanogpt.contest import speedup, summarize
from nanogpt.decoding import plain_decode
from nanogpt.sampling import Dice
from tree_attention import speculate, walk


def half_and_twice(budget):
    """The budgets that make one tree and two trees equal in all; `budget` must be even."""
    return budget // 2, 2 * budget


def decoders(target, heads, sampler, budget):
    """{name: start(prompt, seed)}; after the name the draft nodes that are verified, at most."""
    def pair(nodes):
        return [HeadDrafter(head, budget=nodes) for head in heads]

    def decoder(make, accept=walk):
        return lambda prompt, seed: speculate(target, make(), prompt, sampler, Dice(seed), accept)

    half, twice = half_and_twice(budget)
    return {
        "plain": lambda prompt, seed: plain_decode(target, prompt, sampler, Dice(seed)),
        f"head 1, {budget}": decoder(lambda: pair(budget)[0]),
        f"head 2, {budget}": decoder(lambda: pair(budget)[1]),
        f"routed, {budget}": decoder(lambda: RoutedDrafter(pair(budget))),
        f"merged, {half} + {half}": decoder(lambda: MergedDrafter(pair(half)), accept_paths),
        f"trie-merged, {budget}": decoder(lambda: TrieDrafter(pair(budget), budget)),
        f"head 1, {twice}": decoder(lambda: pair(twice)[0]),
        f"head 2, {twice}": decoder(lambda: pair(twice)[1]),
        f"merged, {budget} + {budget}": decoder(lambda: MergedDrafter(pair(budget)), accept_paths),
        f"trie-merged, {twice}": decoder(lambda: TrieDrafter(pair(twice), twice)),
    }


def conclude(results, budget):
    """The two comparisons of the chapter: equal budget per head, equal budget in all."""
    half, twice = half_and_twice(budget)
    rivals = [f"{name}, {budget}" for name in ("head 1", "head 2", "routed")]
    union = f"merged, {budget} + {budget}"
    for title, names in (
            ("equal per head", [*rivals, union]),
            (f"{budget} in all", [*rivals, f"merged, {half} + {half}", f"trie-merged, {budget}"]),
            (f"{twice} in all", [f"head 1, {twice}", f"head 2, {twice}", union,
                                 f"trie-merged, {twice}"])):
        values = {name: (summarize(results[name])["tau"], speedup(results[name], results["plain"]))
                  for name in names}
        longest, fastest = (max(values, key=lambda n, i=i: values[n][i]) for i in (0, 1))
        print(f"{title}: most tokens a forward {longest} ({values[longest][0]:.2f}), "
              f"fastest {fastest} ({values[fastest][1]:.2f}x)")
