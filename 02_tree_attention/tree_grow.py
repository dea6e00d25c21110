"""Trees as tensor programs, for a round that is one launch: chapter 02's, of a fixed shape, and for
later chapters the best nodes of a drafter.

See nanogpt/gpu/rounds.py; the readers are those of chapter 01's chain_grow.py, or any like them.
"""

from dataclasses import dataclass
from itertools import groupby, pairwise

import torch

from chain_grow import reader_of  # chapter 01
from nanogpt.gpu.rounds import Drafts, Grower, Reader, fixed_tree
from nanogpt.sampling import Sampler
from tree_attention import Tree, TreeRound


class GrowsTrees(Grower):
    """A Grower for this chapter's loop, whatever tree it grows."""

    def drafts(self, tokens, parents, draft_probs):
        return Tree(tokens, parents, draft_probs)

    def judge(self, tree, target_probs, dice, rule):
        path, token = rule(tree, target_probs, dice)
        return path, tree.tokens[path[1:]].tolist(), token, TreeRound(tree, path, target_probs)


# ---------------------------------------------------------------- a fixed shape


@dataclass(frozen=True)
class TreeGrower(GrowsTrees):
    """TreeDrafter: one forward of the drafter for each level, then the children of all its rows."""

    read: Reader
    parents: tuple  # of the whole tree, level by level
    sampler: Sampler
    drawn: bool  # without replacement; else the top tokens

    rows = property(lambda self: len(self.parents))
    depth = property(lambda self: len(fixed_tree(self.parents, "cpu")[2]) - 1)
    draws = property(lambda self: self.drawn * (len(self.parents) - 1))

    def grow(self, now):
        parents, seen, levels = fixed_tree(self.parents, now.length.device)
        tokens, alive, draft_probs = [now.tokens[1:]], [now.length > 0], []
        for depth, (rows, below) in enumerate(pairwise(levels)):
            logits = self.read.level(now, tokens[depth], seen[rows], depth)
            draft_probs.append(self.sampler(logits))  # (n, V)
            children, found = self.below(now, draft_probs[depth], alive[depth], depth,
                                         parents[below] - rows.start)
            tokens.append(children.flatten())
            alive.append(found.flatten())
        unasked = draft_probs[0].new_zeros(len(tokens[-1]), draft_probs[0].shape[1])
        return Drafts(torch.cat(tokens), parents, seen, torch.cat(alive),
                      torch.cat([*draft_probs, unasked]))

    def below(self, now, probs, alive, depth, parents):
        """The children of a level's n rows: tokens and who is alive, in the order of their rows.

        probs (n, V); alive (n,); parents (m,): of each child, which of the n it stands below.
        """
        rows = fixed_tree(self.parents, "cpu")[2][depth]
        counts = [self.parents.count(row) for row in range(rows.start, rows.stop)]
        found, end = [], 0
        for k, equal in groupby(counts):  # rows with equally many children, in one go
            some = slice(end, end := end + len(list(equal)))
            if k:
                found.append(self.children(now, probs[some], alive[some], depth, k))
        return tuple(torch.cat([x.flatten() for x in part]) for part in zip(*found, strict=True))

    def children(self, now, probs, alive, depth, k):
        """k children of each of n rows, (n, k): tokens, and who is alive."""
        if self.drawn:
            return now.draw(probs, alive, depth, k)
        fits = (alive & (depth < now.room))[:, None].expand(-1, k)
        return probs.topk(k).indices, fits


def parents_of(shape, vocab):
    """The parents of a tree of this shape, level by level; no node has more than `vocab` children.
    """
    shapes, parents = [shape], [-1]
    for row, children in enumerate(shapes):  # the list grows while it is read
        shapes += children[:vocab]
        parents += [row] * len(children[:vocab])
    return tuple(parents)


def grow_shape(target, drafter, budget, sampler, reader=reader_of):
    """The Grower of a TreeDrafter. reader(target, model) -> a reader of its model."""
    parents = parents_of(drafter.shape, target.config.vocab_size)
    return TreeGrower(reader(target, drafter.model), parents, drafter.sampler,
                      drafter.dice is not None)


# ---------------------------------------------------------------- the best nodes, level by level

BEHIND = 1e-5  # a sure child is as probable as its parent, and the parent must come first


def best_tree(root, depth, budget, children):
    """A drafter's `budget` most probable prefixes, in operations whose shapes are known beforehand.

    root (1,); children(level, tokens, above) -> log-probabilities of k children of n nodes, and
    their tokens, (n, k) each; tokens (n,): of the nodes; above (n,): each one's parent among those
    that were asked for before.
    -> tokens, parents, scores, see best_rows.

    The best B prefixes of all lie among the best B of every level; and their parents, who are no
    worse, lie among the best B as well. So each level needs B prefixes of the one before.
    """
    above, first = torch.zeros_like(root), 0
    levels = [(root, above, torch.zeros(1, device=root.device))]
    for level in range(depth):
        tokens, _, scores = levels[-1]
        log_probs, ids = children(level, tokens, above)
        below = (scores[:, None] + log_probs - BEHIND).flatten()  # (n k,)
        scores, best = below.topk(min(budget, len(below)), sorted=False)
        above = best // log_probs.shape[1]
        # Prefixes are numbered through all levels; `first` is the number of the first one above.
        levels.append((ids.flatten()[best], above + first, scores))
        first += len(tokens)
    return best_rows(*map(torch.cat, zip(*levels, strict=True)), budget)


def best_rows(tokens, parents, scores, budget):
    """The root, and the best nodes of a flat tree whose root is its row 0, with score 0.

    tokens, parents, scores (M,): log q(u), a child's below its parent's.
    -> the same of N = min(budget + 1, M) rows, in the order of falling scores.
    """
    scores, best = scores.topk(min(budget + 1, len(scores)))
    rows = torch.arange(len(best), device=best.device)
    row = torch.zeros_like(tokens)  # of the tree's old rows; one that is left out has no child
    row[best] = rows
    return tokens[best], row[parents[best].clamp(min=0)] - (rows == 0).long(), scores


def rows_of_best(depth, k, budget):
    """How many rows best_tree's trees have: budget + 1, if there are so many prefixes."""
    rows = level = 1
    for _ in range(depth):
        level = min(budget, level * k)
        rows += level
    return min(budget + 1, rows)
