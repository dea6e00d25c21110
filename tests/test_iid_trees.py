"""Chapter 06: the trees of independent draws."""

import torch

from iid_trees import SHAPES, sample_tree, shape_of, shape_parents
from nanogpt.sampling import Dice


def test_shapes():
    widths = {
        (shape, b): [len(layer.rows) for layer in
                     shape_of(tuple(shape_parents(SHAPES[shape], b, 4))).layers]
        for shape in SHAPES for b in (1, 2, 3)
    }
    assert widths["multi-chain", 2] == [1, 2, 2, 2, 2]
    assert widths["tapered", 2] == [1, 2, 3, 4, 5]
    assert widths["tapered", 3] == [1, 3, 6, 10, 15]
    assert widths["complete", 2] == [1, 2, 4, 8, 16]
    assert widths["multi-chain", 1] == widths["tapered", 1] == widths["complete", 1] == [1] * 5


def test_the_drafter_asks_once_a_layer_and_keeps_the_distribution_of_each_node():
    asked = []

    def level(tokens, parents):
        asked.append((list(tokens), list(parents)))
        return torch.tensor([[0.0, 0.25, 0.75]]).repeat(len(tokens), 1)

    parents = shape_parents(SHAPES["tapered"], 2, 3)
    tree = sample_tree(2, parents, level, Dice(0))
    assert tree.parents.tolist() == parents == [-1, 0, 0, 1, 1, 2, 3, 3, 4, 5]
    tokens = tree.tokens.tolist()
    assert asked == [([2], [-1]), (tokens[1:3], [0, 0]), (tokens[3:6], [1, 1, 2])]
    assert 0 not in tokens[1:] and bool((tree.draft_probs[:6, 2] == 0.75).all())
