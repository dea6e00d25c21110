"""Chapter 04 on the runner: single heads, routing and merging at equal budgets."""

from dual_draft_routing import HeadDrafter, RoutedDrafter  # chapter 03
from merged_trees import MergedDrafter, TrieDrafter, accept_paths
from nanogpt.bench import PLAIN, plain
from nanogpt.sampling import Dice
from tree_attention import speculate, walk  # chapter 02


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
