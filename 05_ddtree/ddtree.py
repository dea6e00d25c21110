"""DDTree: the best draft tree that a single block-diffusion pass can give.

    draft    one drafter pass gives L marginals q_1..q_L; a best-first heap turns them into the
             tree of the B most probable prefixes (Algorithm 1)
    verify   one target forward over the tree, as in chapter 02
    accept   the walk of chapter 02
    commit   as in chapter 02; the drafter takes the new rows' target features

A block-diffusion drafter does not know which tokens it picks: q_i is the distribution of the i-th
token whatever the earlier ones turn out to be. So a prefix u = (u_1, .., u_d) has the draft
probability q(u) = q_1(u_1) * ... * q_d(u_d), and every node at one depth has the same children to
choose from. Vanilla DFlash verifies one sequence per pass; DDTree verifies the B best prefixes.

Source: Ringel, Romano, "Accelerating Speculative Decoding with Block Diffusion Draft Trees"
(arXiv 2604.12989). Their B is `budget`, L the number of marginals, K = min(B, V), rho a tuple of
ranks, sigma(rho) its log-probability, alpha_T the acceptance length, tau the tokens per round.
"""

import heapq
from dataclasses import replace

import torch

from nanogpt.model import KVCache
from tree_attention import Tree, speculate  # chapter 02

# ---------------------------------------------------------------- the tree


def best_first_tree(root, log_probs, budget):
    """The `budget` most probable prefixes under independent marginals, as a Tree.

    root: the bonus token; log_probs (L, V): log q_i. Root not counted, the tree has
    min(budget, number of prefixes) nodes, in the order of falling probability.
    Ringel and Romano, Algorithm 1.

    Worked example, prefixes in ranks from 1: q_1 = (.6, .4), q_2 = (.9, .1), budget 3. The heap
    starts with (1) at .6. Pop it; push its sibling (2) at .4 and its child (1,1) at .54. Pop (1,1);
    push its sibling (1,2) at .06. Pop (2). The tree is {(1), (1,1), (2)}; on average .6 + .54 + .4
    = 1.54 tokens of a draw from q_1 x q_2 lie in it.

    subtle: two pushes per pop are enough. A prefix enters the heap when its predecessor leaves
    it: the sibling one rank better or, for rank 1, its parent. Neither is less probable, so
    nothing that waits unseen can beat the top of the heap.
    """
    length, vocab = log_probs.shape
    ranked, ids = log_probs.topk(min(budget, vocab), -1)  # (L, K): log q_i^(k) and v_i^(k)
    ranked, ids = ranked.tolist(), ids.tolist()
    tokens, parents, scores = [root], [-1], [0.0]
    # An entry: (-sigma, depth - 1, rank - 1, parent)
    heap = [(-ranked[0][0], 0, 0, 0)] if length and budget else []
    while heap and len(tokens) <= budget:
        minus_score, level, rank, parent = heapq.heappop(heap)
        row = len(tokens)
        tokens.append(ids[level][rank])
        parents.append(parent)
        scores.append(-minus_score)
        if rank + 1 < len(ranked[level]):
            score = sibling_score(scores[parent], ranked[level], rank)
            heapq.heappush(heap, (-score, level, rank + 1, parent))
        if level + 1 < length:
            score = child_score(scores[row], ranked[level + 1])
            heapq.heappush(heap, (-score, level + 1, 0, row))
    return Tree(tokens, parents)


def sibling_score(parent_score, ranked, rank):
    """sigma of the next sibling: the parent's score plus the next rank's log-probability.

    ranked: log q_d in falling order. The paper subtracts the old term and adds the new one; from
    the parent the sum is the same, without rounding errors that pile up, and -inf stays -inf.
    """
    return parent_score + ranked[rank + 1]


def child_score(score, ranked_below):
    """sigma of the first child: the best token of the next position is appended."""
    return score + ranked_below[0]


def node_masses(tree, log_probs):
    """q(u) of every node but the root, (N - 1,). log_probs (L, V). Equation 7."""
    depths = tree.depths[1:]
    own = log_probs[depths - 1, tree.tokens[1:]].double()  # (N - 1,)
    return torch.where(tree.mask[1:, 1:], own, 0.0).sum(-1).exp()  # no product: 0 * -inf is nan


def surrogate(tree, log_probs):
    """E[alpha_T] under Q = q_1 x ... x q_L: the sum of the node masses. Proposition 1.

    A node at depth d is one way to accept at least d tokens, and the ways exclude each other.
    log_probs (L, V): log q_i.
    """
    return float(node_masses(tree, log_probs).sum())


# ---------------------------------------------------------------- the drafters


def draft_temperature(temperature):
    """The drafter's temperature beside a target that decodes at `temperature`: halfway to 1.

    0 -> 0.5, 0.6 -> 0.8, 1 -> 1; above 1 it is hotter, too.

    The network has learned the target's distributions at temperature 1, and there its marginals
    are right as they are. A colder target is surer of its next token, so a tree for it should be
    narrower and deeper; what the drafter does not know of the target does not cool with it, hence
    only halfway. Measured, not derived: see the README. The walk is lossless with any.
    """
    return (1 + temperature) / 2


class BlockDraft:
    """Runs the block-diffusion network beside the target: its context cache and its marginals.

    The cache keeps the contract of the target's: the context's keys and values are committed once
    and never computed again; the block's own lie behind them until the next pass.
    temperature: > 0, divides the logits before they become marginals (draft_temperature).
    Raises ValueError for another temperature.
    """

    def __init__(self, network, temperature=1.0):
        if not temperature > 0:
            raise ValueError(f"the drafter's temperature is {temperature}; it must be above 0")
        self.network, self.temperature = network, temperature
        target = network.target
        shape = replace(target.config, n_layer=network.config.n_layer)
        rows = target.block_size + network.config.length + 1
        self.cache = KVCache(shape, 1, rows, target.device, network.mask.dtype)
        self.reset()

    def reset(self):
        self.cache.length = 0
        width = len(self.network.config.feature_layers) * self.network.target.config.n_embd
        self.unread = self.cache.kv.new_zeros(1, 0, width)  # features that no pass has read yet

    @torch.inference_mode()
    def observe(self, tokens, hidden, rows):
        """Take over the target's features of newly committed tokens: hidden[layer][:, rows]."""
        index = torch.tensor(rows, device=self.cache.kv.device)
        new = self.network.features(hidden).index_select(1, index)
        self.unread = torch.cat([self.unread, new], 1)

    @torch.inference_mode()
    def marginals(self, root, room):
        """One drafter pass over the unread features and the block.

        -> log q_1..q_L, (L, V) on the CPU; fewer rows if room < L.
        """
        length = min(self.network.config.length, room)
        if length < 1:
            return torch.zeros(0, self.network.target.config.vocab_size)
        start, T = self.cache.length, self.unread.shape[1]
        roots = torch.tensor([[root]], device=self.unread.device)
        positions = slice(start, start + T + length + 1)
        logits = self.network(self.unread, roots, positions, self.cache)
        self.cache.commit(list(range(T)))
        self.unread = self.unread[:, T:]
        return torch.log_softmax(logits[0, 0].float() / self.temperature, -1).cpu()


class DDTreeDrafter(BlockDraft):
    """The drafter of this chapter: one pass, then the best tree of `budget` nodes.

    Raises ValueError if budget < 1 or the temperature is not above 0.
    """

    def __init__(self, network, budget, temperature=1.0):
        if budget < 1:
            raise ValueError(f"budget is {budget}; a tree needs at least 1 draft node")
        super().__init__(network, temperature)
        self.budget = budget

    def propose(self, root, room):
        return best_first_tree(root, self.marginals(root, room), self.budget)


class BlockChainDrafter(BlockDraft):
    """Vanilla DFlash: one sequence per pass, verified as a chain.

    With a dice each position is drawn from its own marginal, through the sampler; else it is the
    most probable token. Either way the walk judges it, so any choice is lossless.
    """

    def __init__(self, network, sampler=None, dice=None):
        super().__init__(network)
        self.sampler, self.dice = sampler, dice

    def propose(self, root, room):
        log_probs = self.marginals(root, room)
        if self.dice is None:
            drafted = log_probs.argmax(-1).tolist()
        else:
            drafted = [self.dice.draw(probs) for probs in self.sampler(log_probs)]
        return Tree([root, *drafted], range(-1, len(drafted)))


class BlockTopTreeDrafter(BlockDraft):
    """Chapter 02's top-W shape filled from the same marginals: what the heap is compared with."""

    def __init__(self, network, branching):
        super().__init__(network)
        self.branching = branching

    def propose(self, root, room):
        log_probs = self.marginals(root, room)
        tokens, parents, level = [root], [-1], [0]
        for width, row in zip(self.branching, log_probs, strict=False):
            best = row.topk(min(width, len(row))).indices.tolist()
            first = len(tokens)
            tokens += best * len(level)
            parents += [node for node in level for _ in best]
            level = range(first, len(tokens))
        return Tree(tokens, parents)


# ---------------------------------------------------------------- the loop


def decode_ddtree(target, network, budget, prompt, sampler, dice):
    """DDTree decoding: chapter 02's loop around this chapter's drafter. Yields Steps."""
    drafter = DDTreeDrafter(network, budget, draft_temperature(sampler.temperature))
    return speculate(target, drafter, prompt, sampler, dice)
