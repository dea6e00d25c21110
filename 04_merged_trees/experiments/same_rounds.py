"""What each head, the router and the union accept in the very same rounds.

The target draws every token itself, so the tokens of a round do not depend on who drafted. A tree
would have accepted as many of them as it holds.
"""

from dual_draft_routing import HeadDrafter, mean_confidence, route  # chapter 03
from merged_trees import MergedDrafter, accept_paths, distinct_prefixes, merge
from nanogpt.decoding import collect
from nanogpt.sampling import Dice
from tree_attention import speculate  # chapter 02


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


def same_rounds(target, heads, sampler, prompts, budget, max_new_tokens):
    """Decode with the union, and ask in every round who would have accepted how much.

    -> {name: mean number of accepted drafts}; the share of the union's draft rows that repeat a
    prefix of the other tree; the number of rounds.
    """
    totals, rows, repeated, n = [0, 0, 0, 0], 0, 0, 0
    for seed, prompt in enumerate(prompts):
        drafter = Remembering([HeadDrafter(head, budget=budget) for head in heads])
        run = speculate(target, drafter, prompt, sampler, Dice(seed), accept_paths)
        steps = collect(run, max_new_tokens).steps[:-1]  # the last one may have been cut
        for step, (trees, scores) in zip(steps, drafter.rounds, strict=False):
            union = merge(*trees)
            lengths = [accepted(tree, step.tokens) for tree in trees]
            chosen = lengths[route([mean_confidence(s) for s in scores])]
            lengths += [chosen, accepted(union, step.tokens)]
            totals = [total + length for total, length in zip(totals, lengths, strict=True)]
            rows += len(union) - 1
            repeated += len(union) - 1 - len(distinct_prefixes(union))
        n += len(steps)
    names = ("head 1", "head 2", "the router's choice", "the union")
    means = {name: total / max(n, 1) for name, total in zip(names, totals, strict=True)}
    return means, repeated / max(rows, 1), n
