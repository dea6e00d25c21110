"""What the verification rules of this chapter share: a tree as arrays, and how a rule is called.

A rule judges B trees of one shape at once (B = 1 when decoding, many in the toy experiment):

    tokens (B, N); draft_probs (B, N, V), row v the law that v's children were drawn from;
    target_probs (B, N, V), row v the target's law after the path to v

and answers, for each tree, with the law of the node at which the accepted path ends and with the
residual that the next token is drawn from. Both are exact: the only chance left is two draws.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from single_step_rules import TINY

# ---------------------------------------------------------------- the shape of a tree


@dataclass(frozen=True)
class Layer:
    """The nodes of one depth. inner: those with children. families: those with equally many
    children k together, as pairs of parents (n,) and kids (n, k)."""

    rows: np.ndarray
    inner: np.ndarray
    families: list


class Shape:
    """A tree without its tokens: parents, children, depths (N,), and the layers from the root."""

    def __init__(self, parents):
        self.parents = parents
        self.children = [[] for _ in parents]
        depths = [0]
        for row, parent in enumerate(parents[1:], start=1):
            self.children[parent].append(row)
            depths.append(depths[parent] + 1)
        self.depths = np.array(depths)
        self.layers = [self.layer(np.flatnonzero(self.depths == t))
                       for t in range(self.depths.max() + 1)]

    def layer(self, rows):
        """The Layer of these rows, its inner nodes grouped by their number of children."""
        inner = [v for v in rows.tolist() if self.children[v]]
        families = []
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


@lru_cache(maxsize=256)
def shape_of(parents):
    """The Shape of a tuple of parents; kept, because a drafter repeats its few shapes."""
    return Shape(parents)


# ---------------------------------------------------------------- one drafted tree as arrays


def as_rows(probs):
    """(N, V) tensor -> float64 array, each row summing to 1 (a leaf's unused row may stay 0)."""
    rows = probs.detach().cpu().double().numpy()
    return rows / np.maximum(rows.sum(-1, keepdims=True), TINY)


class Drafted:
    """A drafted tree for the rules: only the tokens that the drafter could have drawn.

    With a truncated draft (top-20) of a vocabulary of thousands, nothing can flow to most tokens.
    Each node keeps its K possible tokens in slots 0..K-1, by token id, and all the others together
    in slot K, with draft probability 0 and the rest of the target's: exact, since no rule tells
    two tokens apart that are never drafted.

    tokens (1, N): each node's slot at its parent; draft_probs, target_probs (1, N, K + 1).
    Raises ValueError if the tree has no draft_probs, or holds a token of draft probability 0, or if
    draft and target speak of different vocabularies.
    """

    def __init__(self, tree, target_probs):
        if tree.draft_probs is None and len(tree) > 1:
            raise ValueError("the tree has no draft_probs; these rules judge sampled trees only")
        self.shape = shape_of(tuple(tree.parents.tolist()))
        self.target = as_rows(target_probs)  # (N, V)
        draft = np.zeros_like(self.target) if len(tree) == 1 else as_rows(tree.draft_probs)
        N, V = draft.shape
        if self.target.shape != (N, V) or not bool(((tree.tokens >= 0) & (tree.tokens < V)).all()):
            raise ValueError(f"draft_probs are {N} x {V}, target_probs "
                             f"{' x '.join(map(str, self.target.shape))}, and the tokens go up to "
                             f"{int(tree.tokens.max())}; they must be of one vocabulary")
        pairs = np.flatnonzero(draft)  # v V + token for every token possible at v, ascending
        self.rows, self.possible = pairs // V, pairs % V
        starts = np.searchsorted(self.rows, np.arange(N))
        self.slots = np.arange(len(pairs)) - starts[self.rows]
        K = int(self.slots.max(initial=0)) + 1
        self.draft_probs, self.target_probs = np.zeros((2, 1, N, K + 1))
        self.draft_probs[0, self.rows, self.slots] = draft.ravel()[pairs]
        self.target_probs[0, self.rows, self.slots] = self.target.ravel()[pairs]
        self.target_probs[0, :, K] = np.maximum(1 - self.target_probs[0].sum(-1), 0)
        drawn = tree.parents[1:].numpy() * V + tree.tokens[1:].numpy()
        found = np.searchsorted(pairs, drawn)
        wrong = np.append(pairs, -1)[found] != drawn
        if wrong.any():
            raise ValueError(
                f"row {int(wrong.argmax()) + 1} of the tree holds a token of draft probability 0; "
                "the tree must be drawn from its draft_probs"
            )
        self.tokens = np.concatenate([[0], self.slots[found]])[None]

    def residual(self, row, in_slots):
        """in_slots (K + 1,), not normalised -> a law over the vocabulary (V,), for the dice."""
        here = self.rows == row
        outside = self.target[row].copy()
        outside[self.possible[here]] = 0
        law = outside * (in_slots[-1] / max(outside.sum(), TINY))
        law[self.possible[here]] = in_slots[self.slots[here]]
        # A residual without mass belongs to a node where nothing is rejected: never drawn from.
        law = law if law.sum() > 0 else self.target[row]
        return torch.from_numpy(law / law.sum())


# ---------------------------------------------------------------- a rule


class TreeRule:
    """A verification rule, callable as the loop of chapter 02 wants it.

    A subclass defines judge(shape, tokens, draft_probs, target_probs), on B trees of one shape
    -> ends (B, N): P[the accepted path ends at v | tree], each row summing to 1
    -> residual (B, N, V): the law of the next token there, not normalised.
    """

    def __call__(self, tree, target_probs, dice):
        """tree with draft_probs, N nodes; target_probs (N, V) -> path (rows, from 0), next token.

        Raises ValueError if the tree is not one that this rule can judge.
        """
        drafted = Drafted(tree, target_probs)
        ends, residual = self.judge(
            drafted.shape, drafted.tokens, drafted.draft_probs, drafted.target_probs
        )
        end = dice.draw(torch.from_numpy(ends[0]))
        return drafted.shape.path(end), dice.draw(drafted.residual(end, residual[0, end]))

    def expected_length(self, shape, tokens, draft_probs, target_probs):
        """Expected number of accepted tokens (B,) given the trees; the next token not counted.

        The coins of the rule are averaged out, nothing else.
        """
        ends, _ = self.judge(shape, tokens, draft_probs, target_probs)
        return ends @ shape.depths
