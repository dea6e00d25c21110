"""Chapter 04 on the runner: single heads, routing and merging at equal budgets. And on chapter 03's
texts of verse and code: what each method's draft rows would have brought.
"""

from collections import defaultdict

from dual_draft_routing import (  # chapter 03
    BothHeads,
    HeadDrafter,
    RoutedDrafter,
    mean_confidence,
    route,
)
from merged_trees import MergedDrafter, TrieDrafter, accept_paths, trie_merge
from nanogpt.bench import PLAIN, agreement, plain, rounds_of, trees_everywhere
from nanogpt.data import held_out_prompts
from nanogpt.decoding import collect, plain_decode
from nanogpt.sampling import Dice
from tree_attention import speculate, walk  # chapter 02


def registry(target, heads, sampler, budget):
    """{name: start(prompt, seed)}; after the name the draft nodes that are verified, at most.

    budget: of one head's tree, even; all methods also with two trees' budget.
    """
    def decode_with(drafter, accept=walk):
        return lambda prompt, seed: speculate(target, drafter, prompt, sampler, Dice(seed), accept)

    def pair(nodes):  # for each decoder one of its own, for they take turns
        return [HeadDrafter(head, budget=nodes) for head in heads]

    starts = {PLAIN: plain(target, sampler)}
    for n in (budget, 2 * budget):
        starts |= {
            f"head 1, {n}": decode_with(pair(n)[0]),
            f"head 2, {n}": decode_with(pair(n)[1]),
            f"routed, {n}": decode_with(RoutedDrafter(pair(n))),
            f"merged, {n // 2} + {n // 2}": decode_with(MergedDrafter(pair(n // 2)), accept_paths),
            f"trie-merged, {n}": decode_with(TrieDrafter(pair(n), n)),
        }
    return starts


# ---------------------------------------------------------------- row for row, on verse and code


def in_turn(scores):
    """Scores of which only their order is left: 0 for the best node, -1 for the next, and so on."""
    order = sorted(scores, reverse=True)
    return [-order.index(score) for score in scores]


def accepted(trees, scores, future, kind, n):
    """{method: accepted drafts, mean confidence} of n draft rows, if `future` comes next.

    trees, scores: of a head for verse, one for code, one for both; kind: 0 in verse, 1 in code.
    """
    def best(scores, *heads, budget=n):
        tree, logs = trie_merge([trees[h] for h in heads], [scores[h] for h in heads], budget)
        return agreement(tree, future), mean_confidence(logs)

    alone = [best(scores, head) for head in range(3)]
    return {"code head": alone[1],
            "prompt's own head": alone[kind],
            "trained on both": alone[2],
            # Every path lies in one of the trees: the union reaches as far as the better one.
            "side by side": max(best(scores, head, budget=n // 2) for head in (0, 1)),
            "routed": alone[route([mean for _, mean in alone[:2]])],
            "trie in turns": best([in_turn(logs) for logs in scores], 0, 1),
            "trie": best(scores, 0, 1)}


def row_for_row(target, kinds, heads, sampler, n):
    """The same 24 texts of each kind, written with each method -> {method: rounds of every text}.

    kinds, heads: see get_kinds; n: draft rows.
    """
    found = defaultdict(list)
    drafter = BothHeads([HeadDrafter(head, budget=n) for head in heads.values()])
    for kind, name in enumerate(("verse", "code")):
        for i, prompt in enumerate(held_out_prompts(kinds[name], 24)):
            text = prompt + collect(plain_decode(target, prompt, sampler, Dice(i)), 128).tokens
            steps = {root: accepted(trees, scores, text[root + 1:], kind, n) for root, trees, scores
                     in trees_everywhere(target, drafter, text, len(prompt))}
            for method in steps[len(prompt)]:
                found[method].append(rounds_of({root: step[method][0]
                                                for root, step in steps.items()}))
    return found
