"""A round of DDTree as one CUDA graph: draft, tree and verification with no word from the host.

    host    the root, the path of the last round
       |
    graph   commit that path; one drafter pass; the best tree, level by level;
       |    one target forward over the tree
    host    the walk over the tree's tokens, parents and target logits (N, V)

On a GPU a small model's forwards are short, and most of a round is Python: a heap that pops node
after node, tensors that travel. Here nothing travels but a few numbers at either end. The heap of
ddtree.py has no fixed shape, which a graph needs; `best_tree` finds the same tree without it.
"""

import numpy as np
import torch

from block_diffusion import BlockDraft
from ddtree import draft_temperature
from nanogpt.decoding import Context, Step
from nanogpt.graphs import Capture, IndexedCache, forward_at
from nanogpt.model import KVCache
from tree_attention import Tree, TreeRound, walk  # chapter 02

BEHIND = 1e-5  # a sure child is as probable as its parent, and the parent must come first

# ---------------------------------------------------------------- the tree, level by level


def best_tree(log_probs, root, budget):
    """The tree of ddtree.best_first_tree, in operations whose shapes are known beforehand.

    log_probs (L, V, V): row v of slot k is log q_k( . | v); root: (1,).
    -> tokens, parents, scores log q(u), each (N,), row 0 the root, then in the order of falling
    scores, N = budget + 1; and seen (N, L + 1): for each row itself, its parent, .., the root.

    The best B prefixes of all lie among the best B of every level; and their parents, who are no
    worse, lie among the best B as well. So each level needs B prefixes of the one before.
    """
    V, log_probs = log_probs.shape[-1], log_probs - BEHIND
    levels, first = [(root, torch.zeros_like(root), log_probs.new_zeros(1))], 0
    for slot in log_probs:
        tokens, _, scores = levels[-1]
        below = (scores[:, None] + slot[tokens]).flatten()  # (n V,)
        scores, best = below.topk(min(budget, len(below)), sorted=False)
        # Prefixes are numbered through all levels; `first` is the number of the first one above.
        levels.append((best % V, best // V + first, scores))
        first += len(tokens)
    tokens, parents, scores = map(torch.cat, zip(*levels, strict=True))
    # The root has score 0, all others less: it is the first of them.
    scores, best = scores.topk(min(budget + 1, len(scores)))
    rows = torch.arange(len(best), device=root.device)
    row = torch.zeros_like(tokens)  # number -> row; who is not in the tree has no row, and no child
    row[best] = rows
    parents = row[parents[best]] - (rows == 0).long()
    seen = [rows]
    for _ in log_probs:
        seen.append(parents[seen[-1]].clamp(min=0))
    return tokens[best], parents, scores, torch.stack(seen, 1)


# ---------------------------------------------------------------- the graph


class PathCache(KVCache):
    """The target's cache; what a commit keeps is moved to its place by the next round's graph."""

    path = ()  # rows of the last tree, already counted in `length`

    def commit(self, rows):
        self.path = rows
        self.length += len(rows)


class TreeGraph(Capture):
    """Draft and verification of a round, recorded for trees of `budget` nodes.

    network: a captured BlockDrafter with a transition table; temperature: of the drafter.
    Its own storage, lent like a cache, holds the features of the last tree's rows.
    """

    def __init__(self, network, budget, temperature):
        super().__init__(network)
        self.budget, self.temperature = budget, temperature

    def run(self, numbers):
        """What is recorded. numbers (7 R + 3,), R = L + 1: see `parts`; on the device."""
        network, target, L = self.model, self.model.target, self.model.config.length
        kv, drafter_kv = target.forward.kv, network.forward.kv
        root, length, room, path, source, goal, places, positions = numbers.split(self.parts)
        kv.index_copy_(-2, goal, kv.index_select(-2, source))  # commit
        # Of the block only what fits into the window, as in BlockDraft.logits.
        rows = torch.arange(drafter_kv.shape[-2], device=kv.device)
        visible = (rows <= length + room.clamp(max=L)).expand(1, 1, L + 1, -1)
        logits = self.eager(self.kv[:, path], root[None], positions,
                            IndexedCache(drafter_kv, places), visible)[0, 0]  # (L, V)
        steps = (logits.float()[:, None] + network.transition.float()) / self.temperature
        log_probs = torch.log_softmax(steps, -1)  # (L, V, V)
        slots = torch.arange(L, device=kv.device)
        log_probs = log_probs.masked_fill((slots >= room)[:, None, None], -torch.inf)
        tokens, parents, scores, seen = best_tree(log_probs, root, self.budget)
        # A row sees the text and its own path, the root's row first.
        mask = torch.arange(kv.shape[-2], device=kv.device) < length  # (rows,)
        mask = mask.repeat(len(seen), 1).scatter_(1, length + seen, True)
        at = (length + (seen > 0).sum(1)).clamp(max=target.block_size - 1)  # depth positions
        logits, hidden = forward_at(target, kv, tokens, at, length + seen[:, 0], mask)
        self.kv[:, :len(seen)] = network.features(hidden)
        return (tokens, parents, scores, logits), None

    @property
    def parts(self):
        """How many numbers of each kind the graph is told: root, length, ..; see TreeTarget."""
        R = self.model.config.length + 1  # rows of a path, and of a block
        return [1, 1, 1, R, R, R, 2 * R, 2 * R]

    @property
    def spare(self):
        """The last rows of target's and drafter's cache: nobody sees them, padding goes there."""
        return [model.forward.kv.shape[-2] - 1 for model in (self.model.target, self.model)]

    def recipe(self, _):
        """-> run, its host buffer and {}: see Graph."""
        spare, drafter_spare = self.spare
        # The first inputs write behind all text.
        values = [0, spare - self.budget, 0, 0, spare, spare, drafter_spare, 0]
        numbers = [x for x, n in zip(values, self.parts, strict=True) for _ in range(n)]
        return self.run, {"numbers": torch.tensor(numbers)}, {}


class TreeTarget:
    """What Context takes for a target: its forward grows the tree that it verifies."""

    def __init__(self, network, budget, temperature):
        self.network, self.target, self.drafter = network, network.target, BlockDraft(network)
        self.block_size = self.target.block_size
        graphs, what = network.forward.graphs, (budget, temperature)
        self.graph = graphs.setdefault(what, TreeGraph(network, *what))  # recorded once
        # Features of the last tree's rows, not keys and values; lent as if they were a cache.
        self.kv = network.mask.new_zeros(1, budget + 1, network.width)  # (1, B + 1, F*C)

    def new_cache(self):
        kv = self.target.new_cache().kv
        return PathCache(self.target.config, 1, kv.shape[-2], kv.device, kv.dtype)

    def __call__(self, tokens, positions=None, mask=None, cache=None):
        """A prefill, where the cache is empty; else a round from a root, tokens (1, 1).

        -> target logits (1, N, V), and the tree of N nodes (of a prefill: hidden, see GPT.forward).
        """
        if not cache.length:
            return self.target(tokens, cache=cache)
        L, room = self.network.config.length, self.block_size - 1 - cache.length
        if self.drafter.unread.shape[1]:  # a prefill's features; its rows lie where they belong
            self.drafter.logits(int(tokens), room)
            cache.path = []
        self.target.forward.lend(cache)
        self.network.forward.lend(self.drafter.cache)
        self.graph.lend(self)
        graph, (spare, drafter_spare) = self.graph.graph("round"), self.graph.spare
        # The path: rows of the last tree, where they lie in the cache and where they go; then the
        # rows of the drafter's cache for the path and the block, and their positions.
        path, past = cache.path, cache.length - len(cache.path)
        pad, goal = L + 1 - len(path), [*range(past, cache.length)]
        block = [*range(cache.length, cache.length + L + 1)]  # the root, then the masked slots
        last = self.block_size - 1
        graph.host["numbers"][:] = [
            int(tokens), cache.length, room, *path, *[0] * pad,
            *[past + row for row in path], *[spare] * pad, *goal, *[spare] * pad,
            *goal, *[drafter_spare] * pad, *block,
            *goal, *[0] * pad, *[min(place, last) for place in block]]
        (tokens, parents, scores, logits), _ = graph.replay()
        cache.path = []  # it lies in its place now
        n = int(np.isfinite(scores.numpy()).sum())  # what does not fit into the window comes last
        return logits[:, :n], Tree(tokens[:n].clone(), parents[:n].clone())


@torch.inference_mode()
def tree_in_one_graph(target, network, budget, prompt, sampler, dice):
    """DDTree on conditionals (conditional_marginals.py) on a GPU: the same texts, and but for nodes
    that are nearly as probable the same trees.

    target, network: captured, see nanogpt/graphs.py; budget below SIZES[-1] there. Yields Steps.
    Raises ValueError if the network drafts for another target.
    """
    if target is not network.target:
        raise ValueError("the network drafts for another target")
    whole = TreeTarget(network, budget, draft_temperature(sampler.temperature))
    context = Context(whole, prompt)
    root = dice.draw(sampler(context.begin(whole.drafter)))
    yield Step([root])

    while True:
        if context.full:
            context.begin(whole.drafter)
        target_probs, tree = context.verify([root], sampler)  # (N, V): draft and verify at once
        path, token = walk(tree, target_probs, dice)
        tokens = tree.tokens[path].tolist()
        context.commit(path, tokens)
        yield Step([*tokens[1:], token], len(tree) - 1,
                   detail=TreeRound(tree, path, target_probs))
        root = token
