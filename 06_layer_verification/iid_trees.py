"""Draft trees whose children are drawn independently, in the three shapes of the paper.

    multi-chain   b chains that part at the root
    tapered       b children at the root; below it the i-th of m siblings has max(m - i, 1)
    complete      b children everywhere

By hand, tapered with b = 2: the first child has 2 children, the second 1; layers of 1, 2, 3, 4.

Source: "Layer Verification ..." (2026), Appendix G. A node's number of children may depend on the
path to it (Appendix D.1), here it does not; it must be settled before they are drawn.
"""

import torch

from tree_attention import Tree
from tree_rule import shape_of


def multi_chain(branching, depth, index, family):
    """Children of a node: `branching` at the root, one below; see shape_parents."""
    return branching if depth == 0 else 1


def tapered(branching, depth, index, family):
    """Children of a node: the earlier among its `family` siblings, the more; see shape_parents."""
    return branching if depth == 0 else max(family - index, 1)


def complete(branching, depth, index, family):
    """Children of a node: `branching` everywhere; see shape_parents."""
    return branching


LARGEST_TREE = 4096  # nodes; far beyond what one forward should verify
SHAPES = {"multi-chain": multi_chain, "tapered": tapered, "complete": complete}


def shape_parents(children_of, branching, depth):
    """The parents of a tree of the given depth, layer by layer -> a list, -1 first.

    children_of(branching, depth of the node, its index among its siblings, their number) -> how
    many children the node gets: one of SHAPES, or any function like them.
    Raises ValueError for a branching or depth below 1, or more than LARGEST_TREE nodes.
    """
    for name, value in (("branching", branching), ("depth", depth)):
        if value < 1:
            raise ValueError(f"{name} is {value}; it must be at least 1")
    parents, layer = [-1], [(0, 0, 1)]  # of each node: row, index among its siblings, their number
    for t in range(depth):
        below = []
        for row, index, family in layer:
            k = children_of(branching, t, index, family)
            below += [(len(parents) + i, i, k) for i in range(k)]
            parents += [row] * k
            if len(parents) > LARGEST_TREE:
                raise ValueError(f"branching {branching} and depth {depth} make a tree of more "
                                 f"than {LARGEST_TREE} nodes")
        layer = below
    return parents


def sample_tree(root, parents, level, dice):
    """Draw the tokens of a tree of the given shape, one layer at a time -> Tree.

    root: a token; parents: of shape_parents; level(tokens, parents) -> (n, V): the draft
    distributions at n new nodes of one depth, given their tokens and the rows of their parents.
    It is asked once a layer, so that a network can answer with one forward; never for the deepest.
    """
    shape = shape_of(tuple(parents))
    tokens, draft_probs = [root], []
    for layer in shape.layers[:-1]:
        rows = layer.rows.tolist()
        for row, probs in zip(rows, level([tokens[v] for v in rows], [parents[v] for v in rows]),
                              strict=True):
            draft_probs.append(probs)  # (V,)
            tokens += [dice.draw(probs) for _ in shape.children[row]]
    if not draft_probs:
        return Tree(tokens, parents)
    unasked = [torch.zeros_like(draft_probs[0])] * (len(parents) - len(draft_probs))
    return Tree(tokens, parents, torch.stack(draft_probs + unasked))


class SampledTreeDrafter:
    """Chapter 02's TreeDrafter with independent children, for chapter 02's loop `speculate`.

    model: TreeBigram or TreeGPT (anything with reset, observe and level); children_of, branching,
    depth: see shape_parents; sampler: of the draft distribution, truncated or not.
    Raises ValueError if depth < 1, and for a bad branching.
    """

    def __init__(self, model, children_of, branching, depth, sampler, dice):
        if depth < 1:
            raise ValueError(f"depth is {depth}; a tree needs at least 1 layer of drafts")
        self.shapes = [shape_parents(children_of, branching, d) for d in range(1, depth + 1)]
        self.model, self.sampler, self.dice = model, sampler, dice
        self.reset, self.observe = model.reset, model.observe

    def propose(self, root, room):
        """root: a token; room: the deepest layer that fits the window -> Tree."""
        parents = [-1] if room < 1 else self.shapes[min(room, len(self.shapes)) - 1]
        return sample_tree(root, parents, self.level, self.dice)

    def level(self, tokens, parents):
        return self.sampler(self.model.level(tokens, parents)).cpu()
