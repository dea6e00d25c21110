"""Both heads' trees in one, as tensor programs, for a round that is one launch.

See nanogpt/gpu/rounds.py; each head's tree is that of chapter 03's heads_grow.py.
"""

from dataclasses import dataclass
from functools import partial

import torch

from heads_grow import HeadsGrower, grow_heads  # chapter 03
from nanogpt.gpu.rounds import Drafts, ancestors
from tree_grow import best_rows  # chapter 02


@dataclass(frozen=True)
class MergedGrower(HeadsGrower):
    """MergedDrafter: the second tree's drafts stand behind the first tree's."""

    @property
    def rows(self):
        return 2 * super().rows - 1

    def grow(self, now):
        (tokens, parents, scores), (others, above, theirs) = self.trees(now)
        # phi: row i of the second tree stands in row n_1 + i of the union, its root in row 0.
        above = torch.where(above > 0, above + len(tokens) - 1, above)
        parents = torch.cat([parents, above[1:]])
        return Drafts(torch.cat([tokens, others[1:]]), parents, ancestors(parents, self.depth),
                      torch.cat([scores, theirs[1:]]).isfinite())


@dataclass(frozen=True)
class TrieGrower(HeadsGrower):
    """TrieDrafter: a row for each prefix, the best ones of both trees."""

    def grow(self, now):
        (tokens, parents, scores), (others, above, theirs) = self.trees(now)
        n = len(tokens)
        # Where a node of the second tree stands in the union: in the first tree's row of the same
        # prefix, or in a row of its own. Its parent tells, so each turn settles one more level.
        own = n + torch.arange(n, device=tokens.device)
        where = own.masked_fill(own == n, 0)  # both have one root
        for _ in range(self.depth):
            same = (parents == where[above][:, None]) & (tokens == others[:, None])  # (n, n)
            row = torch.where(same.any(1), same.long().argmax(1), own)
            where = row.masked_fill(own == n, 0)
        # Of a prefix that both have, the better score counts, and the second row is left over.
        union = torch.cat([scores, theirs.masked_fill(where < n, -torch.inf)])
        union = union.scatter_reduce(0, where, theirs, "amax")
        tokens, parents, scores = best_rows(
            torch.cat([tokens, others]), torch.cat([parents, where[above]]), union, self.budget)
        return Drafts(tokens, parents, ancestors(parents, self.depth), scores.isfinite())


grow_merged = partial(grow_heads, grower=MergedGrower)
grow_trie = partial(grow_heads, grower=TrieGrower)
