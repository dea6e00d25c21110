"""Draft trees whose children are independent draws: their shapes, their tokens, their arrays.

    multi-chain   b chains that part at the root
    tapered       b children at the root; below it the i-th of m siblings has max(m - i, 1)
    complete      b children everywhere

By hand, tapered with b = 2: the first child has 2 children, the second 1; layers of 1, 2, 3, 4.

Every rule of this chapter judges B trees of one shape at once (B = 1 when decoding, many in the
toy experiment), given as three arrays:

    tokens (B, N)
    draft_probs (B, N, V)    row v: the distribution that v's children were drawn from
    target_probs (B, N, V)   row v: the target's distribution after the path to v

Source: "Layer Verification ..." (2026), Appendix G for the shapes, Appendix D.1 for what is free:
a node's number of children may depend on the path to it, but not on the children drawn.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from single_step_rules import TINY
from tree_attention import Tree  # chapter 02

# ---------------------------------------------------------------- the shape: a tree without tokens


@dataclass(frozen=True)
class Layer:
    """The nodes of one depth."""

    rows: np.ndarray  # all of them
    inner: np.ndarray  # those with children
    families: list  # of (parents (n,), kids (n, k)): those with equally many children together


class Shape:
    """parents, children and depths (N,) of every row, and the layers from the root down."""

    def __init__(self, parents):
        tree = Tree([0] * len(parents), parents)  # any tokens will do
        self.parents, self.children, self.depths = parents, tree.children, tree.depths.numpy()
        self.layers = [self.layer(np.flatnonzero(self.depths == t))
                       for t in range(self.depths.max() + 1)]

    def layer(self, rows):
        """The Layer of these rows, its inner nodes grouped by their number of children."""
        inner = [v for v in rows.tolist() if self.children[v]]
        families = []
        # A single-step rule takes problems of equal k, so nodes of equal k are solved in one call.
        for k in sorted({len(self.children[v]) for v in inner}):
            parents = [v for v in inner if len(self.children[v]) == k]
            families.append((np.array(parents), np.array([self.children[v] for v in parents])))
        return Layer(rows, np.array(inner, dtype=int), families)

    def path(self, row):
        """The rows from the root to a row, both included."""
        path = [int(row)]
        while self.parents[path[-1]] >= 0:
            path.append(self.parents[path[-1]])
        return path[::-1]


@lru_cache(maxsize=256)  # a drafter repeats its few shapes
def shape_of(parents):
    """The Shape of a tuple of parents."""
    return Shape(parents)


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
SHAPES = {"multi-chain": multi_chain, "tapered": tapered, "complete": complete}  # the paper's


def shape_parents(children_of, branching, depth):
    """The parents of a tree of the given depth, layer by layer -> a list, -1 first.

    children_of(branching, depth of the node, its index among its siblings, their number) -> how
    many children the node gets: one of SHAPES, or any function like them.
    Raises ValueError for a branching or depth below 1, or more than LARGEST_TREE nodes.
    """
    for name, value in (("branching", branching), ("depth", depth)):
        if value < 1:
            raise ValueError(f"{name} is {value}; it must be at least 1")
    parents = [-1]
    layer = [(0, 0, 1)]  # of each node: row, index among its siblings, their number
    for t in range(depth):
        below = []
        for row, index, family in layer:
            k = children_of(branching, t, index, family)  # settled before anything is drawn
            if len(parents) + k > LARGEST_TREE:
                raise ValueError(f"branching {branching} and depth {depth} make a tree of more "
                                 f"than {LARGEST_TREE} nodes")
            below += [(len(parents) + i, i, k) for i in range(k)]
            parents += [row] * k  # siblings get neighbouring rows
        layer = below
    return parents


# ---------------------------------------------------------------- draft: draw the tokens


def sample_tree(root, parents, level, dice):
    """Draw the tokens of a tree of the given shape, one layer at a time -> Tree.

    root: a token; parents: of shape_parents; level(tokens, parents) -> (n, V): the draft
    distributions at n new nodes of one depth, given their tokens and the rows of their parents.
    """
    shape = shape_of(tuple(parents))
    tokens, draft_probs = [root], []
    for layer in shape.layers[:-1]:
        rows = layer.rows.tolist()
        # Asked once a layer, so that a network answers with one forward: (n, V)
        answers = level([tokens[v] for v in rows], [parents[v] for v in rows])
        for row, probs in zip(rows, answers, strict=True):
            draft_probs.append(probs)  # (V,)
            # With replacement: siblings may carry the same token, and the rules know it.
            tokens += [dice.draw(probs) for _ in shape.children[row]]
    if not draft_probs:
        return Tree(tokens, parents)
    # The deepest layer has no children, so it is never asked; its rows stay zero.
    unasked = [torch.zeros_like(draft_probs[0])] * (len(parents) - len(draft_probs))
    return Tree(tokens, parents, torch.stack(draft_probs + unasked))


class SampledTreeDrafter:
    """Chapter 02's TreeDrafter with independent children, for chapter 02's loop `speculate`.

    model: TreeBigram or TreeGPT (anything with reset, observe and level); parents: the shape of the
    trees, see shape_parents; sampler: of the draft distribution, truncated or not.
    """

    def __init__(self, model, parents, sampler, dice):
        self.model, self.parents, self.sampler, self.dice = model, parents, sampler, dice
        self.depths = shape_of(tuple(parents)).depths
        self.reset, self.observe = model.reset, model.observe

    def propose(self, root, room):
        """root: a token; room: the deepest layer that fits the window -> Tree."""
        # Layer by layer the shape stands in the list: near the window's end its deepest ones go.
        rows = int((self.depths <= room).sum())
        return sample_tree(root, self.parents[:rows], self.level, self.dice)

    def level(self, tokens, parents):
        # subtle: rules need the distribution drawn from, so after temperature, top-k and top-p.
        return self.sampler(self.model.level(tokens, parents)).cpu()


# ---------------------------------------------------------------- one drafted tree as arrays


def as_rows(probs):
    """(N, V) tensor -> float64 array (1, N, V), each row summing to 1 (a leaf's may stay 0)."""
    rows = probs.detach().cpu().double().numpy()
    # float32 rows sum to 1 within 1e-7 only, and a rule would take the rest for the dummy's.
    return rows[None] / np.maximum(rows.sum(-1, keepdims=True), TINY)


def as_arrays(tree, target_probs):
    """A drafted tree as the rules want it -> Shape, tokens, draft_probs, target_probs, with B = 1.

    target_probs (N, V). Raises ValueError if the tree has drafts, but no draft_probs.
    """
    if tree.draft_probs is None and len(tree) > 1:
        raise ValueError("the tree has no draft_probs; these rules judge sampled trees only")
    # A root alone comes without them, near the end of the window: it has no children.
    draft_probs = target_probs if tree.draft_probs is None else tree.draft_probs
    return (shape_of(tuple(tree.parents.tolist())), tree.tokens.numpy()[None],
            as_rows(draft_probs), as_rows(target_probs))
