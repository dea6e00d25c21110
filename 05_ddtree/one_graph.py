"""A round of DDTree as one CUDA graph: draft, tree and verification with no word from the host.

    host    the root, the path of the last round
       |
    graph   commit that path; one drafter pass; the best tree, level by level;
       |    one target forward over the tree
    host    the walk over the tree's tokens, parents and target distributions

On a GPU a small model's forwards are short, and most of a round is Python: a heap that pops node
after node, tensors that travel. Here nothing travels but a few numbers at either end. The heap of
ddtree.py has no fixed shape, which a graph needs; `best_tree` finds the same tree without it.
"""

import torch
import torch.nn.functional as F

from block_diffusion import BlockDraft
from ddtree import draft_temperature
from nanogpt.decoding import Context, Step
from nanogpt.graphs import Capture, IndexedCache
from nanogpt.model import KVCache
from tree_attention import Tree, TreeRound, walk  # chapter 02

# A sure child is as probable as its parent, and the parent must come first.
BEHIND = 1e-5

# ---------------------------------------------------------------- the tree, level by level


def best_tree(log_probs, root, budget):
    """The tree of ddtree.best_first_tree, in operations whose shapes are known beforehand.

    log_probs (L, V, V): row v of slot k is log q_k( . | v); root: (1,).
    -> tokens, parents (row 0 is the root), depths, scores log q(u), each (B,), in
    the order of falling scores, and seen (B, L + 1), the rows that each node's row may see.

    The best B prefixes of all lie among the best B of every level; and their parents, who are no
    worse, lie among the best B as well. So each level needs B prefixes of the one before.
    """
    V, device = log_probs.shape[-1], log_probs.device
    tokens, scores = root, log_probs.new_zeros(1)
    above = root.new_zeros(1, 1)  # of each prefix of a level the numbers of its nodes; root: 0
    levels, found = [], 1
    for depth, slot in enumerate(log_probs, 1):
        below = (scores[:, None] + slot[tokens]).flatten()  # (n V,)
        scores, best = below.topk(min(budget, len(below)))
        parents, tokens = best // V, best % V
        numbers = torch.arange(found, found + len(best), device=device)
        above = torch.cat([above[parents], numbers[:, None]], 1)  # (n, depth + 1)
        found += len(best)
        rest = above[:, -1:].expand(-1, len(log_probs) - depth)  # to one width: itself once more
        levels.append((tokens, above[:, -2], torch.full_like(tokens, depth), scores,
                       torch.cat([above, rest], 1)))
    tokens, parents, depths, scores, seen = map(torch.cat, zip(*levels, strict=True))
    best = (scores - BEHIND * depths).topk(min(budget, len(scores))).indices
    row = root.new_zeros(found)  # number -> row; who is not in the tree has no row, and no child
    row[best + 1] = torch.arange(1, len(best) + 1, device=device)
    return tokens[best], row[parents[best]], depths[best], scores[best], row[seen[best]]


# ---------------------------------------------------------------- the graph


class PathCache(KVCache):
    """The target's cache; what a commit keeps is moved to its place by the next round's graph."""

    path = ()  # rows of the last tree, already counted in `length`

    def commit(self, rows):
        self.path = rows
        self.length += len(rows)


class OneGraph(Capture):
    """Draft and verification of a round, recorded for trees of `budget` nodes.

    network: a captured BlockDrafter with a transition table; temperature: of the drafter.
    Its own storage, lent like a cache, holds the features of the last tree's rows.
    """

    def __init__(self, network, budget, temperature):
        super().__init__(network)
        self.budget, self.temperature = budget, temperature

    def run(self, root, length, room, path, source, goal, places, positions):
        """What is recorded. All are tensors of whole numbers on the device.

        root, length, room: (1,), the rows committed, the last path included, and how deep drafts
        may lie; path, source, goal: (L + 1,) rows of the last tree, where they lie in the cache and
        where they go; places: (2L + 2,) rows of the drafter's cache, for the path and the block;
        positions: theirs.
        """
        network, target, L = self.model, self.model.target, self.model.config.length
        kv, drafter_kv = target.forward.kv, network.forward.kv
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
        tokens, parents, depths, scores, seen = best_tree(log_probs, root, self.budget)
        # The tree's rows, the root's first. Each sees the text, the root and its own path.
        seen = torch.cat([torch.zeros_like(seen[:1]), seen])  # (N + 1, L + 1)
        depths = torch.cat([torch.zeros_like(root), depths])
        mask = torch.arange(kv.shape[-2], device=kv.device) < length  # (rows,)
        mask = mask.repeat(len(seen), 1).scatter_(1, length + seen, True)
        bias = torch.zeros(mask.shape, dtype=kv.dtype, device=kv.device)
        bias = bias.masked_fill_(~mask, -torch.inf)
        positions = (length + depths).clamp(max=target.block_size - 1)
        rows = length + torch.arange(len(seen), device=kv.device)
        logits, hidden = target.layers(
            torch.cat([root, tokens])[None], target.cos[positions], target.sin[positions], bias,
            IndexedCache(kv, rows))
        self.kv[:, :len(seen)] = network.features(hidden)
        return (tokens, parents, scores, logits[0]), None

    def recipe(self, _):
        """-> run, its host buffers and {}: see Graph."""
        L, spare = self.model.config.length, self.spare
        ends = {"root": (1,), "length": (1,), "room": (1,), "path": (L + 1,)}
        host = {name: torch.zeros(shape, dtype=torch.long) for name, shape in ends.items()}
        host["length"] += spare[0] - self.budget  # the first inputs write behind all text
        return self.run, host | {
            "source": torch.full((L + 1,), spare[0]), "goal": torch.full((L + 1,), spare[0]),
            "places": torch.full((2 * L + 2,), spare[1]),
            "positions": torch.zeros(2 * L + 2, dtype=torch.long)}, {}

    @property
    def spare(self):
        """The last rows of target's and drafter's cache: nobody sees them, padding goes there."""
        return [model.forward.kv.shape[-2] - 1 for model in (self.model.target, self.model)]


class GraphTarget:
    """What Context takes for a target: its forward grows the tree that it verifies."""

    def __init__(self, network, budget, temperature):
        self.network, self.target, self.drafter = network, network.target, BlockDraft(network)
        self.block_size = self.target.block_size
        graphs, what = network.forward.graphs, (budget, temperature)
        if what not in graphs:
            graphs[what] = OneGraph(network, *what)
        self.graph = graphs[what]
        self.kv = network.mask.new_zeros(1, budget + 1, network.width)  # features, see OneGraph

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
        graph = self.graph.graph("round")
        put, (spare, drafter_spare) = graph.host, self.graph.spare
        past, n, pad = cache.length - len(cache.path), len(cache.path), L + 1 - len(cache.path)
        put["root"][:], put["length"][:], put["room"][:] = int(tokens), cache.length, room
        put["path"][:n] = cache.path
        put["source"][:] = [past + row for row in cache.path] + [spare] * pad
        put["goal"][:] = [*range(past, past + n), *[spare] * pad]
        block = range(cache.length, cache.length + L + 1)  # the root, then the masked slots
        put["places"][:] = [*range(past, past + n), *[drafter_spare] * pad, *block]
        put["positions"][:] = put["places"].clip(max=self.block_size - 1)
        (nodes, parents, scores, logits), _ = graph.replay()
        n = int(scores.isfinite().sum())  # what does not fit into the window stands behind
        tree = Tree(torch.cat([tokens[0], nodes[:n]]), F.pad(parents[:n], (1, 0), value=-1))
        return logits[None, :n + 1], tree


@torch.inference_mode()
def decode_in_one_graph(target, network, budget, prompt, sampler, dice):
    """DDTree on conditionals (conditional_marginals.py) on a GPU: the same trees and texts.

    target, network: captured, see nanogpt/graphs.py. Yields Steps.
    """
    whole = GraphTarget(network, budget, draft_temperature(sampler.temperature))
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
