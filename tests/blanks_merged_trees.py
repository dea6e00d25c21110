"""The blanks of chapter 04."""

import torch

from grading import Blank
from merged_trees import path_matrix
from tree_attention import Tree, walk

FIRST = Tree([9, 1, 2, 3], [-1, 0, 1, 1])
SECOND = Tree([9, 1, 4, 5], [-1, 0, 1, 0])
UNION = Tree([9, 1, 2, 3, 1, 4, 5], [-1, 0, 1, 1, 0, 4, 0])


def observe_phi(f):
    return {f"row {row}, n_first = 3": f(row, 3) for row in range(4)}


def observe_paths(f):
    return {"parents (-1, 0, 1, 1, 0, 4, 0)": f(UNION),
            "only a root": f(Tree([1], [-1]))}


def observe_accept(f):
    seen = {}
    for name, tokens in CASES.items():
        seen[name] = f(UNION, torch.eye(10)[tokens], RowDice())
    return seen


class RowDice:
    """Draws the only possible token."""

    def draw(self, probs):
        return int(probs.argmax())


CASES = {  # the target's token after each of the seven rows
    "the target says 1, 4, 7": [1, 4, 0, 0, 4, 7, 0],
    "the target says 1, 2, 7": [1, 2, 7, 0, 2, 0, 0],
    "the target says 8 at once": [8, 0, 0, 0, 0, 0, 0],
}


def no_padding(tree):
    return path_matrix(tree).clamp(min=0)


BLANKS = [
    Blank(
        "merged_trees:phi", "Where does a row of the second tree stand in the union?",
        "The root is shared; n_first counts the first tree's draft nodes only.", 1, 3, observe_phi,
        {"row 0, n_first = 3": 0, "row 1, n_first = 3": 4, "row 2, n_first = 3": 5,
         "row 3, n_first = 3": 6}, None,
        {"the root is shifted as well": lambda row, n: n + row,
         "the root is counted among the first tree's nodes":
            lambda row, n: 0 if row == 0 else n + 1 + row}),
    Blank(
        "merged_trees:path_matrix",
        "One row for each leaf: the path from the root to it, -1 behind its end.",
        "A leaf has no children; climb by the parents, and write each row at its depth.", 7, 10,
        observe_paths,
        {"parents (-1, 0, 1, 1, 0, 4, 0)": [[0, 1, 2], [0, 1, 3], [0, 4, 5], [0, 6, -1]],
         "only a root": [[0]]}, None,
        {"missing entries hold the root instead of -1": no_padding,
         "the paths run from the leaf to the root": lambda tree: path_matrix(tree).flip(1)}),
    Blank(
        "merged_trees:accept_paths",
        "Walk the columns of the path matrix: draw the target's token once for the prefix that all "
        "living paths share, and keep the paths that carry it.",
        "When no path is left, the drawn token is the next root, and the path ends before it.",
        10, 15, observe_accept,
        {"the target says 1, 4, 7": ([0, 4, 5], 7), "the target says 1, 2, 7": ([0, 1, 2], 7),
         "the target says 8 at once": ([0], 8)}, None,
        {"only the first matching child is followed": walk,
         "the path does not start with the root":
            lambda tree, probs, dice: (walk(tree, probs, dice)[0][1:], 0)}),
]
