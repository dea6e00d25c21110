"""The blanks of chapter 04."""

import torch

from dual_draft_routing import HeadDrafter
from grading import Blank
from merged_trees import accept_paths, block_mask, draw_in_both_keep_longer, merge, path_matrix
from nanogpt.exact.toy_models import loop_bias
from nanogpt.exact.toy_models import ToyHead, ToyModel, ToyTarget, random_nodes
from nanogpt.sampling import Sampler
from tree_attention import Tree, speculate, walk

FIRST = Tree([9, 1, 2, 3], [-1, 0, 1, 1])
SECOND = Tree([9, 1, 4, 5], [-1, 0, 1, 0])
SMALL = Tree([9, 1, 2, 3, 4], [-1, 0, 0, 2, 2])
UNION = Tree([9, 1, 2, 3, 1, 4, 5], [-1, 0, 1, 1, 0, 4, 0])


def observe_phi(f):
    return {f"row {row}, n_first = 3": f(row, 3) for row in range(4)}


def observe_paths(f):
    matrix = f(UNION)  # a tensor, an array or lists: what counts is what stands in it
    return {"parents (-1, 0, 0, 2, 2)": f(SMALL), "parents (-1, 0, 1, 1, 0, 4, 0)": matrix,
            "only a root": f(Tree([1], [-1])),
            "the entries are whole numbers": not torch.as_tensor(matrix).is_floating_point()}


def observe_accept(f):
    seen = {}
    for name, tokens in CASES.items():
        dice = RowDice()
        seen[name] = *f(UNION, torch.eye(10)[tokens], dice), dice.draws
    return seen


class RowDice:
    """Draws the only possible token, and counts."""

    draws = 0

    def draw(self, probs):
        self.draws += 1
        return int(probs.argmax())


def merge_promise():
    """The union's mask is the paper's: a block for each tree, the root's column before them."""
    for seed in range(8):
        first = Tree(*random_nodes(seed))
        second = Tree(*random_nodes(seed + 100, size=2 + seed))
        union = merge(first, second)
        assert torch.equal(union.mask, block_mask(first, second)), (
            f"on parents {first.parents.tolist()} and {second.parents.tolist()} the union's mask "
            "is not a block for each tree below the root")


def paths_promise():
    """Every leaf once, and along a row each node is the next one's parent."""
    import merged_trees

    for seed in range(8):
        tree = Tree(*random_nodes(seed))
        paths = [[row for row in path if row >= 0]
                 for path in torch.as_tensor(merged_trees.path_matrix(tree)).tolist()]
        leaves = [row for row, below in enumerate(tree.children) if not below]
        assert sorted(path[-1] for path in paths) == leaves, (
            f"on parents {tree.parents.tolist()} the rows do not end in every leaf once")
        assert all(tree.parents[path].tolist() == [-1, *path[:-1]] for path in paths), (
            f"on parents {tree.parents.tolist()} a row is not a path of parents and children")


def accept_promise():
    """The whole loop, both subtrees full of equal prefixes, must have the target's distribution."""
    import merged_trees

    for seeds in ((8, 8), (8, 9)):
        drafter = merged_trees.MergedDrafter(
            [HeadDrafter(ToyHead(seed), 2, 2, 3) for seed in seeds])
        model, sampler = ToyModel(5, 3), Sampler(1)
        bias = loop_bias(
            lambda dice, d=drafter, m=model, s=sampler: speculate(
                ToyTarget(m), d, [0, 1], s, dice, merged_trees.accept_paths),
            model, sampler, [0, 1], 1, 4)
        assert bias < 1e-6, (  # an answer may compute in float32
            "the text no longer has the target's distribution: total variation "
            f"{bias:.1e} instead of 0")


UNION_SAYS = ("tokens (9 1 2 3 1 4 5), parents (-1 0 1 1 0 4 0), the target says 1, 4, 7: path, "
              "next token, how often the dice were asked")
CASES = {  # the target's token after each of the seven rows
    UNION_SAYS: [1, 4, 0, 0, 4, 7, 0],
    "the target says 1, 2, 7": [1, 2, 7, 0, 2, 0, 0],
    "the target says 8 at once": [8, 0, 0, 0, 0, 0, 0],
    "the target says 5, 5": [5, 0, 0, 0, 0, 0, 5],
}


def no_padding(tree):
    return path_matrix(tree).clamp(min=0)


def padded_in_front(tree):
    """A path that is shorter than the others stands at the right."""
    paths = path_matrix(tree)
    for row, length in enumerate((paths >= 0).sum(1).tolist()):
        paths[row] = paths[row].roll(paths.shape[1] - length)
    return paths


def from_the_leaf(tree):
    paths = path_matrix(tree)
    for row, length in enumerate((paths >= 0).sum(1).tolist()):
        paths[row, :length] = paths[row, :length].flip(0)
    return paths


def without_root(tree, target_probs, dice):
    path, token = accept_paths(tree, target_probs, dice)
    return path[1:], token


def each_path_draws(tree, target_probs, dice):
    """The trap of the chapter, path by path: the longest is kept."""
    results = []
    for path in path_matrix(tree).tolist():
        kept, token = [0], dice.draw(target_probs[0])
        for row in path[1:]:
            if row < 0 or int(tree.tokens[row]) != token:
                break
            kept, token = [*kept, row], dice.draw(target_probs[row])
        results.append((kept, token))
    return max(results, key=lambda result: len(result[0]))


def past_the_end(tree, target_probs, dice):
    paths, depth = path_matrix(tree), 0
    while True:
        token = dice.draw(target_probs[paths[0, depth]])
        depth += 1
        going_on = depth < paths.shape[1] and tree.tokens[paths[:, depth]] == token
        if not torch.as_tensor(going_on).any():
            return paths[0, :depth].tolist(), token
        paths = paths[going_on]


BLANKS = [
    Blank(
        "merged_trees:phi",
        "* In the union the rows of the first tree come first: the root, then its n_first draft "
        "nodes. Behind them stand the draft nodes of the second tree, in their old order. Its root "
        "is not stored again, because both trees have the same root. In which row of the union "
        "does row `row` of the second tree stand? You need Python alone. Return an int.",
        "The root is shared; n_first counts the first tree's draft nodes only.", 1, 3, observe_phi,
        {"row 1, n_first = 3": 4, "row 0, n_first = 3": 0, "row 2, n_first = 3": 5,
         "row 3, n_first = 3": 6}, merge_promise,
        {"the root is shifted as well": lambda row, n: n + row,
         "the root is counted among the first tree's nodes":
            lambda row, n: 0 if row == 0 else n + 1 + row}),
    Blank(
        "merged_trees:path_matrix",
        "** List the paths from the root to the leaves: one row for each leaf, in the order of the "
        "leaves' rows, the root's 0 first and -1 behind the end of a shorter path. You may use "
        "tree.children[row] (the rows of a node's children: [2, 3], or [] for a leaf), "
        "tree.parents[row] (the row of its parent, -1 for the root), tree.depths[row] (0 for the "
        "root, 1 for its children), len(tree) (the number of rows) and torch, for instance "
        "torch.full((2, 3), -1).",
        "A leaf has no children; climb by the parents, and write each row at its depth.", 7, 10,
        observe_paths,
        {"parents (-1, 0, 0, 2, 2)": [[0, 1, -1], [0, 2, 3], [0, 2, 4]],
         "parents (-1, 0, 1, 1, 0, 4, 0)": [[0, 1, 2], [0, 1, 3], [0, 4, 5], [0, 6, -1]],
         "only a root": [[0]], "the entries are whole numbers": True}, paths_promise,
        {"missing entries hold the root instead of -1": no_padding,
         "the paths run from the leaf to the root": from_the_leaf,
         "-1 stands in front of a shorter path instead of behind it": padded_in_front}),
    Blank(
        "merged_trees:accept_paths",
        "*** Go down all paths of the union at once. In each step the target draws one token for "
        "the tokens that the remaining paths share so far, and only the paths that carry it next "
        "remain. If none does, the path ends here and the drawn token is the next token. You may "
        "call path_matrix(tree) (for instance [[0, 1, 2], [0, 4, -1]]; -1 is no row), "
        "tree.tokens[row] (the token of a node), target_probs[row] (the target's distribution "
        "(V,) of the token after that node) and dice.draw(probs) (a token: dice.draw of (0, 1, 0) "
        "is 1). Return the accepted path, a list of rows that starts with 0, and the next token. "
        "Where both trees hold the accepted path, either one will do.",
        "Nodes with equal prefixes have equal distributions: draw in the row of any remaining "
        "path, but only once. When no path is left, the drawn token is the next root, and the path "
        "ends before it.",
        10, 15, observe_accept,
        {UNION_SAYS: ([0, 4, 5], 7, 3), "the target says 1, 2, 7": ([0, 1, 2], 7, 3),
         "the target says 8 at once": ([0], 8, 1), "the target says 5, 5": ([0, 6], 5, 2)},
        accept_promise,
        {"only the first matching child is followed": walk,
         "each subtree draws for itself, and the longer path is kept": draw_in_both_keep_longer(3),
         "each path draws for itself, and the longest is kept: a guess in both trees gets a second "
         "chance (section 1 of the lesson)": each_path_draws,
         "-1 is taken for a row, so a path that has ended goes on in the last one": past_the_end,
         "the path does not start with the root": without_root}),
]
