"""Draft heads as tensor programs, for a round that is one launch; see nanogpt/gpu/rounds.py."""

from dataclasses import dataclass, field
from functools import partial

import torch

from dual_draft_routing import route
from nanogpt.gpu.rounds import Drafts, Reader, ancestors
from tree_grow import BEHIND, GrowsTrees, best_tree, grow_shape, rows_of_best  # chapter 02


@dataclass(frozen=True)
class HeadsReader(Reader):
    """One head or more. They remember nothing but the target's last row."""

    weights: tuple  # drafters have copies of a head, and all copies have these in common
    heads: tuple = field(compare=False)

    @classmethod
    def of(cls, *heads):
        return cls(tuple(head.fuse for head in heads), heads)

    def features(self, hidden):
        return torch.cat([head.features(hidden) for head in self.heads], -1)

    def states(self, now):
        """What each head makes of the text, before it reads the root: (1, W) each."""
        last = now.features[0, now.kept - 1]  # the last path's last row
        return last.split([head.config.width for head in self.heads], -1)

    def level(self, now, tokens, seen, depth):
        """n rows of one level -> logits (n, V), as HeadLevels.level; for one head."""
        (head,) = self.heads
        known = now.notes.get("states")  # of all rows of the levels above
        states = head.advance(self.states(now)[0] if depth == 0 else known[seen[:, 1]], tokens)
        now.notes["states"] = states if depth == 0 else torch.cat([known, states])
        return head.guess(states)

    def tree(self, now, i, depth, top_k, budget):
        """grow_tree of head i -> tokens, parents, scores (N,), see best_rows."""
        head, states = self.heads[i], self.states(now)[i]

        def children(level, tokens, above):
            nonlocal states
            states = head.advance(states[above], tokens)  # (n, W)
            best = head.guess(states).topk(top_k)
            return best.values.masked_fill(level >= now.room, -torch.inf), best.indices

        return best_tree(now.tokens[1:], depth, budget, children)


@dataclass(frozen=True)
class HeadsGrower(GrowsTrees):
    """RoutedDrafter: a tree of each head, and the surer one stays. HeadDrafter: of one head."""

    read: HeadsReader
    depth: int
    top_k: int
    budget: int

    rows = property(lambda self: rows_of_best(self.depth, self.top_k, self.budget))

    def trees(self, now):
        """-> of each head tokens, parents, scores."""
        return [self.read.tree(now, i, self.depth, self.top_k, self.budget)
                for i in range(len(self.read.heads))]

    def grow(self, now):
        best, *others = self.trees(now)
        for other in others:
            # subtle: strictly surer, for of equal ones the first head's wins.
            surer = self.confidence(other) > self.confidence(best)
            best = [torch.where(surer, *pair) for pair in zip(other, best, strict=True)]
        tokens, parents, scores = best
        return Drafts(tokens, parents, ancestors(parents, self.depth), scores.isfinite())

    def confidence(self, tree):
        """What orders heads as mean_confidence does: all their trees have equally many nodes."""
        _, parents, scores = tree
        depths = (ancestors(parents, self.depth) > 0).sum(1)
        return (scores + BEHIND * depths).exp().sum()  # 0 for padding


def grow_heads(target, drafter, budget, sampler, grower=HeadsGrower):
    """The Grower of a HeadDrafter, or of a drafter with two that differ in nothing but the head.

    Raises ValueError if they differ in more, and for another router than `route`.
    """
    drafters = getattr(drafter, "drafters", [drafter])
    shapes = {(one.depth, min(one.top_k, target.config.vocab_size), one.budget) for one in drafters}
    if len(shapes) > 1 or getattr(drafter, "choose", route) is not route:
        raise ValueError("a round in one launch needs heads with trees of equal depth, top_k and "
                         "budget, and the router `route`")
    return grower(HeadsReader.of(*(one.head for one in drafters)), *shapes.pop())


def head_reader(target, levels):
    """The reader of HeadLevels, for any tree that asks a model level by level."""
    return HeadsReader.of(levels.head)


grow_drawn_head = partial(grow_shape, reader=head_reader)  # chapter 02's TreeDrafter on HeadLevels
