"""What goes wrong in chapter 04: {function: {what was done: the function that does it}}."""

import merged_trees
from merged_trees import accept_paths, draw_in_both_keep_longer, path_matrix, phi
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


PLACE = "matrix[i, tree.depths[row]]"
WRONG = {
    "phi": slips(phi, {
        "the root is shifted as well": ("0 if row == 0 else ", ""),
        "the root is counted among the first tree's nodes": ("n_first + row", "n_first + 1 + row"),
    }),
    "path_matrix": slips(path_matrix, {
        "missing entries hold the root instead of -1": ("), -1)", "), 0)"),
        "the paths run from the leaf to the root": (
            PLACE, "matrix[i, tree.depths[leaves[i]] - tree.depths[row]]"),
        "-1 stands in front of a shorter path instead of behind it": (
            PLACE, "matrix[i, tree.depths[row] - tree.depths[leaves[i]] - 1]"),
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
