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


# ---------------------------------------------------------------- row for row, on verse and code


def accepted(trees, scores, future, kind, n):
    """{method: accepted drafts} of n draft rows, if the text goes on with `future`.

    trees, scores: of a head for verse, one for code, one for both; kind: 0 in verse, 1 in code.
    """
    def best(budget, *heads):  # the best nodes of these heads: accepted drafts, mean confidence
        tree, logs = trie_merge([trees[h] for h in heads], [scores[h] for h in heads], budget)
        return agreement(tree, future), mean_confidence(logs)

    lengths, means = zip(*(best(n, head) for head in range(3)), strict=True)
    return {"code head": lengths[1],
            "each prompt's own head": lengths[kind],
            "trained on both kinds": lengths[2],
            # Every path lies in one of the trees: the union reaches as far as the better one.
            "both trees": max(best(n // 2, head)[0] for head in (0, 1)),
            "routed": lengths[route(means[:2])],
            "trie": best(n, 0, 1)[0]}


def row_for_row(target, kinds, heads, sampler, rows=(16, 32)):
    """The same 24 texts of each kind, written with each method -> {"method, rows": the rounds of
    every text}. kinds, heads: see get_kinds."""
    found = defaultdict(list)
    drafter = BothHeads([HeadDrafter(head, budget=max(rows)) for head in heads.values()])
    for kind, name in enumerate(("verse", "code")):
        for i, prompt in enumerate(held_out_prompts(kinds[name], 24)):
            text = prompt + collect(plain_decode(target, prompt, sampler, Dice(i)), 128).tokens
            lengths = defaultdict(dict)  # method -> {position: accepted drafts}
            for root, trees, scores in trees_everywhere(target, drafter, text, len(prompt)):
                for n in rows:
                    for method, length in accepted(trees, scores, text[root + 1:], kind, n).items():
                        lengths[f"{method}, {n}"][root] = length
            for method, below in lengths.items():
                found[method].append(rounds_of(below))
    return found
