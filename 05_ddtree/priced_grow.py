"""Trees and chains by price, for a round that is one launch; see nanogpt/gpu/rounds.py.

The ledger stays on the host. It tells the device the rate and the trust, the device chooses how
many nodes are worth a row, and what lies behind them is padding.
"""

from dataclasses import dataclass
from functools import cache

import torch

from block_grow import BestGrower, BlockReader, block_reader, grow_best
from nanogpt.gpu.rounds import Drafts, ancestors
from priced_trees import PricedChainDrafter, PricedTreeDrafter
from tree_grow import BEHIND, GrowsTrees, TreeGrower, grow_shape  # chapter 02


@cache  # a recording may not copy from the host: this is made when it warms up
def on_device(values, device):
    """A tuple of numbers as a tensor."""
    return torch.tensor(values, dtype=torch.float64, device=device)


@dataclass(frozen=True)
class PricedGrower(BestGrower):
    """PricedTreeDrafter: worth_verifying on the best nodes of a pass."""

    price: tuple  # of 0, 1, .. nodes

    numbers = 2  # the rate and the trust

    def grow(self, now):
        tokens, parents, scores = self.best(now)
        rate, trust, _ = now.numbers.split(1)
        seen = ancestors(parents, self.depth)
        masses = (scores + BEHIND * (seen > 0).sum(1)).exp()
        # The slopes only tell the heap when to stop popping; here all nodes are there already.
        price = on_device(self.price, rate.device)[:len(tokens)]
        gain = (trust * masses[1:] - rate * price.diff()).cumsum(0)  # (N - 1,)
        best = torch.where(gain.max() > 0, gain.argmax() + 1, 0)  # the shortest of equal ones
        alive = torch.arange(len(tokens), device=rate.device) <= best
        return Drafts(tokens, parents, seen, alive & scores.isfinite(), masses=masses)

    def beside(self, round, drafter):
        return PricedRound(round, drafter.ledger, self)


@dataclass(frozen=True)
class PricedChainGrower(TreeGrower):
    """PricedChainDrafter: how many drafts, the host knows beforehand, and gives them that room."""

    def beside(self, round, drafter):
        return PricedChainRound(round, drafter.ledger, self)


@dataclass(frozen=True)
class BareGrower(GrowsTrees):
    """No drafts: the drafter reads the last path, the target the root."""

    read: BlockReader
    depth: int
    rows = 1

    def grow(self, now):
        self.read.logits(now, 0)
        root = now.tokens[1:]
        parents = torch.full_like(root, -1)
        return Drafts(root, parents, ancestors(parents, 0), now.length > 0)


# ---------------------------------------------------------------- beside a Round


class WithLedger:
    """A drafter by price whose drafter is a Round: a round without drafts is a launch as well."""

    def __init__(self, round, ledger, grower):
        super().__init__(round, ledger)
        self.bare = BareGrower(grower.read, grower.depth)

    def propose(self, root, room):
        tree = super().propose(root, room)
        return tree if self.round[0] else self.drafter.propose(root, room, self.bare)


class PricedRound(WithLedger, PricedTreeDrafter):
    """PricedTreeDrafter on a Round."""

    def draft(self, root, room, rate, trust):
        self.drafter.numbers = rate, trust
        tree = self.drafter.propose(root, room)
        return tree, float(self.drafter.masses[1:].sum())


class PricedChainRound(WithLedger, PricedChainDrafter):
    """PricedChainDrafter on a Round."""


def grow_priced(target, drafter, budget, sampler):
    """The Grower of a PricedTreeDrafter on a DDTreeDrafter or ConditionalTreeDrafter."""
    best = grow_best(target, drafter.drafter, budget, sampler)
    return PricedGrower(best.read, best.budget, best.temperature, best.unconditional,
                        tuple(drafter.ledger.price))


def grow_priced_chain(target, drafter, budget, sampler):
    """The Grower of a PricedChainDrafter on BlockLevels."""
    chain = grow_shape(target, drafter.drafter, budget, sampler, reader=block_reader)
    return PricedChainGrower(chain.read, chain.parents, chain.sampler, chain.drawn)
