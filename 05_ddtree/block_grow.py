"""Chapter 05's drafts as tensor programs, for a round that is one launch.

See nanogpt/gpu/rounds.py. The heap of ddtree.py has no fixed shape, which a recording needs;
chapter 02's tree_grow.py finds the same tree without it, level by level.
"""

from dataclasses import dataclass, replace
from functools import partial

import torch

from block_diffusion import BlockDrafter
from conditional_marginals import ConditionalTreeDrafter
from nanogpt.gpu.graphs import IndexedCache
from nanogpt.gpu.rounds import Drafts, Reader, ancestors, fixed_tree
from nanogpt.model import KVCache
from tree_grow import GrowsTrees, best_tree, grow_shape, rows_of_best  # chapter 02

# ---------------------------------------------------------------- one pass


@dataclass(frozen=True)
class BlockReader(Reader):
    """A BlockDrafter; it reads the target's features of each accepted path."""

    network: BlockDrafter

    def new_cache(self, target):
        shape = replace(target.config, n_layer=self.network.config.n_layer)
        kv = target.new_cache().kv  # as many rows: one spare row for all
        return KVCache(shape, 1, kv.shape[-2], kv.device, kv.dtype)

    def prefill(self, cache, tokens, hidden):
        # A block of the root alone, any root: only the context's rows stay.
        self.network(self.network.features(hidden), torch.zeros(1, 1, dtype=torch.long),
                     slice(0, len(tokens) + 1), cache)

    def features(self, hidden):
        return self.network.features(hidden)

    def logits(self, now, L):
        """One pass over the last path's features and a block of L slots -> (L, V), as
        BlockDraft.logits. Slots beyond the room are nonsense."""
        network, kv = self.network, now.kv
        block = now.length + torch.arange(L + 1, device=kv.device)  # the root, then the slots
        rows = torch.cat([now.goal, block])
        at = rows.clamp(max=network.target.block_size - 1)
        # Of the block only what fits into the window; behind it lie spare rows and old blocks.
        last = at[-1:]
        visible = (torch.arange(kv.shape[-2], device=kv.device) <= last).expand(1, 1, L + 1, -1)
        logits = network(now.features, now.tokens[None, 1:], at, IndexedCache(kv, rows), visible)
        return logits[0, 0].to(torch.promote_types(logits.dtype, torch.float32))

    def level(self, now, tokens, seen, depth):
        """n rows of one level -> logits (n, V), as BlockLevels.level: one slot, its table."""
        if depth == 0:
            now.notes["slots"] = self.logits(now, self.network.config.length)
        logits, table = now.notes["slots"][depth].expand(len(tokens), -1), self.network.transition
        return logits if table is None else logits + table[depth, tokens]

    def steps(self, now, temperature):
        """log q_k( . | v) of one pass, (L, V, V); without a table all rows v of a slot are equal.
        Slots beyond the room have no probability."""
        table, L = self.network.transition, self.network.config.length
        logits = self.logits(now, L)[:, None]
        logits = logits.expand(-1, logits.shape[-1], -1) if table is None else logits + table
        slots = torch.arange(L, device=logits.device)[:, None, None]
        log_probs = torch.log_softmax(logits / temperature, -1)
        return log_probs.masked_fill(slots >= now.room, -torch.inf)


def marginals(log_probs, root):
    """log_probs (L, V, V), see BlockReader.steps -> (L, V), as BlockDraft.marginals."""
    found = [log_probs[0, root]]  # (1, V): before slot 1 stands the root, for certain
    for step in log_probs[1:]:
        found.append((found[-1].exp() @ step.exp()).log())
    return torch.cat(found)


# ---------------------------------------------------------------- the best tree


@dataclass(frozen=True)
class BestGrower(GrowsTrees):
    """DDTreeDrafter, or ConditionalTreeDrafter: one pass, then the best tree of `budget` nodes."""

    read: BlockReader
    budget: int
    temperature: float
    unconditional: bool  # on the marginals of a network with a table

    depth = property(lambda self: self.read.network.config.length)

    @property
    def rows(self):
        vocab = self.read.network.target.config.vocab_size
        return rows_of_best(self.depth, vocab, self.budget)

    def best(self, now):
        """-> tokens, parents, scores (N,), see best_rows."""
        root = now.tokens[1:]
        log_probs = self.read.steps(now, self.temperature)  # (L, V, V)
        if self.unconditional:  # the token before does not count
            log_probs = marginals(log_probs, root)[:, None].expand_as(log_probs)
        vocab = torch.arange(log_probs.shape[-1], device=root.device)

        def children(level, tokens, above):
            return log_probs[level, tokens], vocab.repeat(len(tokens), 1)  # (n, V) each

        return best_tree(root, self.depth, self.budget, children)

    def grow(self, now):
        tokens, parents, scores = self.best(now)
        # What does not fit into the window has no probability, and comes last.
        return Drafts(tokens, parents, ancestors(parents, self.depth), scores.isfinite())


def grow_best(target, drafter, budget, sampler):
    """The Grower of a DDTreeDrafter or a ConditionalTreeDrafter."""
    unconditional = not isinstance(drafter, ConditionalTreeDrafter)
    return BestGrower(BlockReader(drafter.network), budget, drafter.temperature,
                      unconditional and drafter.network.transition is not None)


# ---------------------------------------------------------------- drawn drafts, and the argmaxes


def block_reader(target, levels):
    """The reader of BlockLevels, for any tree that asks a model level by level."""
    return BlockReader(levels.network)


grow_drawn = partial(grow_shape, reader=block_reader)  # chapter 02's TreeDrafter on BlockLevels


@dataclass(frozen=True)
class ArgmaxGrower(GrowsTrees):
    """BlockChainDrafter: the most probable tokens of the first `depth` slots."""

    read: BlockReader
    depth: int

    rows = property(lambda self: self.depth + 1)

    def grow(self, now):
        root = now.tokens[1:]
        parents, seen, _ = fixed_tree((*range(-1, self.depth),), root.device)
        tokens = marginals(self.read.steps(now, 1.0), root)[:self.depth].argmax(-1)
        alive = torch.arange(self.rows, device=root.device) <= now.room
        return Drafts(torch.cat([root, tokens]), parents, seen, alive)


def grow_argmax(target, drafter, budget, sampler):
    """The Grower of a BlockChainDrafter."""
    return ArgmaxGrower(BlockReader(drafter.network), drafter.length)
