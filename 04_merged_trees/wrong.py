"""What goes wrong in chapter 04: {function: {what was done: the function that does it}}."""

import merged_trees
from merged_trees import accept_paths, draw_in_both_keep_longer, path_matrix, phi, trie_merge
from nanogpt.exact.slips import replaced, slips
from tree_attention import walk


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
