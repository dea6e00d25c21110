"""What goes wrong in chapter 04: {function: {what was done: the function that does it}}; and the
lesson's table, in which one loop is the trap."""

import merged_trees
from dual_draft_routing import HeadDrafter
from merged_trees import (
    MergedDrafter,
    TrieDrafter,
    accept_paths,
    draw_in_both_keep_longer,
    path_matrix,
    phi,
    trie_merge,
)
from nanogpt.cli import print_table
from nanogpt.exact.enumeration import (
    loop_distribution,
    outcomes,
    target_distribution,
    total_variation,
)
from nanogpt.exact.slips import replaced, slips
from nanogpt.exact.toy_models import ToyHead, ToyModel, ToyTarget
from nanogpt.sampling import Sampler
from tree_attention import speculate, walk


def each_path_draws(tree, target_probs, dice):
    """The trap of the chapter, path by path: the longest is kept."""
    results = []
    for path in path_matrix(tree):
        alone = path[path >= 0][None]
        with replaced(merged_trees, path_matrix=lambda _, alone=alone: alone):
            results.append(accept_paths(tree, target_probs, dice))
    return max(results, key=lambda result: len(result[0]))


WRONG = {
    "trie_merge": slips(trie_merge, {
        "the root takes a place of the budget": ("[:1 + budget]", "[:budget]"),
        "of two equal prefixes the first head's score is kept": (
            "max(score, best.get(prefix, score))", "best.get(prefix, score)"),
        "of two equal prefixes the last head's score is kept": (
            "max(score, best.get(prefix, score))", "score"),
        "the scores of two equal prefixes are added": (
            "max(score, best.get(prefix, score))", "score + best.get(prefix, 0.0)"),
    }),
    "phi": slips(phi, {
        "the root is shifted as well": ("0 if row == 0 else ", ""),
        "the root is counted among the first tree's nodes": ("n_first + row", "n_first + 1 + row"),
    }),
    "accept_paths": slips(accept_paths, {
        "only the first matching child is followed": walk,
        "each subtree draws for itself, and the longer path is kept": draw_in_both_keep_longer(3),
        "each path draws for itself, and the longest is kept: a guess in both trees gets a second "
        "chance (section 1 of the lesson)": each_path_draws,
        "-1 is taken for a row, so a path that has ended goes on in the last one": (
            "(alive >= 0) & (tree.tokens[alive.clamp(min=0)] == token)",
            "(tree.tokens[alive] == token) & (depth < paths.shape[1])"),
        "the path does not start with the root": ("paths[0, :depth]", "paths[0, 1:depth]"),
    }),
}


def judge(make, accept, temperature):
    """-> total variation to plain decoding; the mean tokens and rows of a round; all exact.

    make(pair) -> a drafter of two toy heads with 3 draft nodes each.
    """
    model, sampler, start = ToyModel(5, vocab=3), Sampler(temperature), [0, 1]
    drafter = make([HeadDrafter(ToyHead(seed), depth=2, top_k=2, budget=3) for seed in (8, 9)])

    def loop(dice):
        return speculate(ToyTarget(model), drafter, start, sampler, dice, accept)

    def one_round(dice):
        steps = loop(dice)
        next(steps)  # the prefill
        step = next(steps)
        return len(step.tokens), len(step.detail.tree)

    emitted = loop_distribution(loop, model, sampler, start, rounds=1, length=4)
    return (total_variation(emitted, target_distribution(model, sampler, start, 4)),
            *(sum(probability * found[i] for found, probability in outcomes(one_round))
              for i in range(2)))


VERSIONS = {
    "the trie": (lambda pair: TrieDrafter(pair, 6), walk),
    "one draw": (MergedDrafter, accept_paths),
    "first copy": (MergedDrafter, walk),
    "two draws": (MergedDrafter, draw_in_both_keep_longer(3)),
}


def print_versions():
    """Three right loops and the trap: how far off, how many rows and tokens a round."""
    table = []
    for name, version in VERSIONS.items():
        (greedy, *_), (sampled, tokens, rows) = judge(*version, 0), judge(*version, 1)
        table.append([name, *(f"{bias:.2f}" if bias > 1e-9 else "0" for bias in (greedy, sampled)),
                      f"{rows:.2f}", f"{tokens:.2f}"])
    print_table(["version", "TV, T=0", "TV, T=1", "rows", "tokens"], table)
