"""The blanks of chapter 04."""

import torch

import merged_trees
from dual_draft_routing import HeadDrafter
from grading import Blank, Script, check_lossless
from merged_trees import MergedDrafter, block_mask, merge
from nanogpt.exact.toy_models import ToyHead, random_nodes
from tree_attention import Tree, speculate

SMALL = Tree([9, 1, 2, 3, 4], [-1, 0, 0, 2, 2])
UNION = Tree([9, 1, 2, 3, 1, 4, 5], [-1, 0, 1, 1, 0, 4, 0])


def a_block_for_each_tree():
    """The union's mask is the paper's: a block for each tree, the root's column before them."""
    for seed in range(8):
        first = Tree(*random_nodes(seed))
        second = Tree(*random_nodes(seed + 100, size=2 + seed))
        union = merge(first, second)
        assert torch.equal(union.mask, block_mask(first, second)), (
            f"on parents {first.parents.tolist()} and {second.parents.tolist()} the union's mask "
            "is not a block for each tree below the root")


def paths_to_all_leaves():
    """Every leaf once, and along a row each node is the next one's parent."""
    for seed in range(8):
        tree = Tree(*random_nodes(seed))
        paths = [[row for row in path if row >= 0]
                 for path in torch.as_tensor(merged_trees.path_matrix(tree)).tolist()]
        leaves = [row for row, below in enumerate(tree.children) if not below]
        assert sorted(path[-1] for path in paths) == leaves, (
            f"on parents {tree.parents.tolist()} the rows do not end in every leaf once")
        assert all(tree.parents[path].tolist() == [-1, *path[:-1]] for path in paths), (
            f"on parents {tree.parents.tolist()} a row is not a path of parents and children")


def same_text():
    """The whole loop, both subtrees full of equal prefixes, must have the target's distribution."""
    for seeds in ((8, 8), (8, 9)):
        union = MergedDrafter([HeadDrafter(ToyHead(seed), 2, 2, 3) for seed in seeds])
        check_lossless(lambda target, sampler, dice, union=union: speculate(
            target, union, [0, 1], sampler, dice, merged_trees.accept_paths))


def accepted(*tokens):
    """Where the target is sure of these tokens, one for each of the seven rows."""
    def call(f):
        dice = Script()
        return *f(UNION, torch.eye(10)[list(tokens)], dice), len(dice.asked)

    return call


def whole_numbers(f):
    return not torch.as_tensor(f(UNION)).is_floating_point()


BLANKS = [
    Blank(
        "merged_trees:phi",
        """* In the union the rows of the first tree come first: the root, then its n_first
        draft nodes. Behind them stand the draft nodes of the second tree, in their old order.
        Its root is not stored again, because both trees have the same root. In which row of the
        union does row `row` of the second tree stand? You need Python alone. Return an int.""",
        "The root is shared; n_first counts the first tree's draft nodes only.",
        lines=1, minutes=3, promise=a_block_for_each_tree,
        examples={
            "row 1, n_first = 3": ((1, 3), 4), "row 0, n_first = 3": ((0, 3), 0),
            "row 2, n_first = 3": ((2, 3), 5), "row 3, n_first = 3": ((3, 3), 6),
        }),
    Blank(
        "merged_trees:path_matrix",
        """** List the paths from the root to the leaves: one row for each leaf, in the order of
        the leaves' rows, the root's 0 first and -1 behind the end of a shorter path. You may
        use tree.children[row] (the rows of a node's children: [2, 3], or [] for a leaf),
        tree.parents[row] (the row of its parent, -1 for the root), tree.depths[row] (0 for the
        root, 1 for its children), len(tree) (the number of rows) and torch, for instance
        torch.full((2, 3), -1).""",
        "A leaf has no children; climb by the parents, and write each row at its depth.",
        lines=7, minutes=10, promise=paths_to_all_leaves,
        examples={
            "parents (-1, 0, 0, 2, 2)": ((SMALL,), [[0, 1, -1], [0, 2, 3], [0, 2, 4]]),
            "parents (-1, 0, 1, 1, 0, 4, 0)":
                ((UNION,), [[0, 1, 2], [0, 1, 3], [0, 4, 5], [0, 6, -1]]),
            "only a root": ((Tree([1], [-1]),), [[0]]),
            "the entries are whole numbers": (whole_numbers, True),
        }),
    Blank(
        "merged_trees:accept_paths",
        """*** Go down all paths of the union at once. In each step the target draws one token
        for the tokens that the remaining paths share so far, and only the paths that carry it
        next remain. If none does, the path ends here and the drawn token is the next token. You
        may call path_matrix(tree) (for instance [[0, 1, 2], [0, 4, -1]]; -1 is no row),
        tree.tokens[row] (the token of a node), target_probs[row] (the target's distribution
        (V,) of the token after that node) and dice.draw(probs) (a token: dice.draw of (0, 1, 0)
        is 1). Return the accepted path, a list of rows that starts with 0, and the next token.
        Where both trees hold the accepted path, either one will do.""",
        """Nodes with equal prefixes have equal distributions: draw in the row of any remaining
        path, but only once. When no path is left, the drawn token is the next root, and the
        path ends before it.""",
        lines=10, minutes=15, promise=same_text,
        examples={
            "tokens (9 1 2 3 1 4 5), parents (-1 0 1 1 0 4 0), the target says 1, 4, 7: path, "
            "next token, how often the dice were asked":
                (accepted(1, 4, 0, 0, 4, 7, 0), ([0, 4, 5], 7, 3)),
            "the target says 1, 2, 7": (accepted(1, 2, 7, 0, 2, 0, 0), ([0, 1, 2], 7, 3)),
            "the target says 8 at once": (accepted(8, 0, 0, 0, 0, 0, 0), ([0], 8, 1)),
            "the target says 5, 5": (accepted(5, 0, 0, 0, 0, 0, 5), ([0, 6], 5, 2)),
        }),
]
