"""Chapter 04 on the runner: single heads, routing and merging at equal budgets; and what each way
of verifying accepts in the very same rounds.

The target draws every token itself, so the tokens of a round do not depend on who drafted. A tree
would have accepted as many of them as it holds.
"""

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
from nanogpt.bench import PLAIN, plain
from nanogpt.decoding import collect
from nanogpt.pictures.step import remember
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


# ---------------------------------------------------------------- the very same rounds


def accepted(tree, tokens):
    """How many of these tokens, emitted in a round, the tree holds below its root."""
    known, n = distinct_prefixes(tree), 0
    while n < len(tokens) and tuple(tokens[:n + 1]) in known:
        n += 1
    return n


def recorded_rounds(target, heads, sampler, prompts, budget, max_new_tokens):
    """Decode with the union; yields for each round both trees, their scores, the tokens written."""
    for seed, prompt in enumerate(prompts):
        drafter = MergedDrafter([HeadDrafter(head, budget=budget) for head in heads])
        proposals = remember(drafter, "propose_both")
        run = speculate(target, drafter, prompt, sampler, Dice(seed), accept_paths)
        steps = collect(run, max_new_tokens).steps[:-1]  # the last one may have been cut
        for step, (trees, scores) in zip(steps, proposals, strict=False):
            yield trees, scores, step.tokens


def best_part(tree, scores, budget):
    """The tree that the same head grows with a smaller budget; scores: one per row, a list."""
    return keep_rows(tree.tokens.tolist(), tree.parents.tolist(), scores,
                     best_nodes(scores, budget))[0]


def same_rounds(target, heads, sampler, prompts, rows, max_new_tokens):
    """Decode with both heads' trees of `rows` nodes, and ask in each round what every way to verify
    `rows` draft rows would have accepted; last comes the union, which reads twice as many.

    rows: even -> {name: list, the drafts accepted in each round}.
    """
    half, kept = rows // 2, {}
    for trees, scores, tokens in recorded_rounds(target, heads, sampler, prompts, rows,
                                                 max_new_tokens):
        ways = {
            "head 1": trees[0],
            "head 2": trees[1],
            "the router's choice": trees[route([mean_confidence(s) for s in scores])],
            f"side by side, {half} + {half}": merge(*map(best_part, trees, scores, (half, half))),
            f"the trie of {rows}": trie_merge(trees, scores, rows)[0],
            f"both trees, {2 * rows} rows": merge(*trees),
        }
        for name, tree in ways.items():
            kept.setdefault(name, []).append(accepted(tree, tokens))
    return kept
