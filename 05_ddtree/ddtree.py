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
ranks (here from 0), sigma(rho) its log-probability, here the score, alpha_T the acceptance length,
tau the tokens per round.
"""

import heapq
import math
from itertools import islice

import torch

from block_diffusion import BlockDraft
from tree_attention import Tree  # chapter 02

# ---------------------------------------------------------------- the tree


def best_first(root, children):
    """The nodes of the best draft tree, one by one: a drafter's prefixes, most probable first.

    root: a token; children(prefix) -> log-probabilities of what may follow, best first, and the
    tokens, two lists; prefix: a tuple of tokens that begins with the root; where nothing may
    follow, the lists are empty.
    Yields (token, row of its parent, mass q(u)); the root is row 0, the first node that comes is
    row 1. Ringel and Romano, Algorithm 1, but here whoever asks decides when to stop.

    Worked example, prefixes in ranks from 0: q_1 = (.6, .4), q_2 = (.9, .1), budget 3. The heap
    starts with (0) at .6. Pop it; push its sibling (1) at .4 and its child (0,0) at .54. Pop (0,0);
    push its sibling (0,1) at .06. Pop (1). The tree is {(0), (0,0), (1)}; on average .6 + .54 + .4
    = 1.54 tokens of a draw from q_1 x q_2 lie in it.
    """
    prefixes, scores = [(root,)], [0.0]  # row 0, the root
    below = [children(prefixes[0])]  # of each row, what may follow it: log q and tokens, ranked
    # An entry: (-score, row of the parent, rank). heapq pops the smallest, hence the minus.
    heap = [(-below[0][0][0], 0, 0)] if below[0][0] else []
    while heap:
        minus_score, parent, rank = heapq.heappop(heap)
        ranked, tokens = below[parent]
        row = len(prefixes)
        prefixes.append(prefixes[parent] + (tokens[rank],))
        scores.append(-minus_score)
        yield tokens[rank], parent, math.exp(-minus_score)
        # subtle: these two pushes are enough. A prefix enters the heap when its predecessor leaves
        # it: the sibling one rank better or, for rank 0, its parent. Neither is less probable, so
        # nothing that waits unseen can beat the top of the heap.
        if rank + 1 < len(ranked):
            # From the parent's score, not from the node's own less its last term: that would be
            # the same number, but no rounding errors pile up, and -inf stays -inf.
            score = scores[parent] + ranked[rank + 1]
            heapq.heappush(heap, (-score, parent, rank + 1))
        below.append(children(prefixes[row]))
        if below[row][0]:
            score = scores[row] + below[row][0][0]  # the best token of the next slot
            heapq.heappush(heap, (-score, row, 0))


def tree_of(root, nodes):
    """The root and nodes as `best_first` yields them -> Tree."""
    tokens, parents, _ = zip((root, -1, 1.0), *nodes, strict=True)
    return Tree(tokens, parents)


def best_first_tree(root, children, budget):
    """The `budget` most probable prefixes of a drafter, as a Tree; children: see best_first.

    Root not counted, the tree has min(budget, number of prefixes) nodes, in the order of falling
    probability.
    """
    return tree_of(root, islice(best_first(root, children), budget))


def marginal_children(log_probs, budget=None):
    """The children under independent marginals, for best_first.

    log_probs (L, V): log q_i; budget: B, the pops at most, where it is known.
    """
    # No tree of B nodes needs a token beyond rank B: the better ones would come first.
    vocab = log_probs.shape[1]
    ranked, ids = log_probs.topk(min(budget or vocab, vocab), -1)  # (L, K)
    # The heap handles single numbers, torch is slow there. Below the last slot nothing follows.
    slots = [*zip(ranked.tolist(), ids.tolist(), strict=True), ([], [])]
    # A marginal ignores the tokens of the prefix: only the slot behind it counts.
    return lambda prefix: slots[len(prefix) - 1]


def node_masses(tree, log_probs):
    """The mass q(u) of every node but the root, (N - 1,).

    log_probs (L, V): log q_i. Example: q_1 = (.6, .4), q_2 = (.9, .1), nodes (0), (0, 0), (1):
    .6, .54, .4.
    """
    depths = tree.depths[1:]
    # A depth has one marginal for all its nodes, whatever stands above them.
    own = log_probs[depths - 1, tree.tokens[1:]].double()  # (N - 1,)
    # The tree mask says who is above whom: sum each node's path. A product with the mask would
    # make nan of 0 * -inf.
    return torch.where(tree.mask[1:, 1:], own, 0.0).sum(-1).exp()


def surrogate(tree, log_probs):
    """E[alpha_T] under Q = q_1 x ... x q_L: the sum of the node masses. Proposition 1.

    log_probs (L, V): log q_i.
    """
    # The acceptance length is the number of depths that are reached. A node at depth d is one way
    # to reach d, with probability q(u), and the ways exclude each other.
    return float(node_masses(tree, log_probs).sum())


# ---------------------------------------------------------------- the drafters


def draft_temperature(temperature):
    """The drafter's temperature beside a target that decodes at `temperature`: halfway to 1.

    0 -> 0.5, 0.6 -> 0.8, 1 -> 1; above 1 it is hotter, too. Found by trial, not derived.
    The walk is lossless with any.
    """
    # The network has learned the target's distributions at temperature 1 and is right there. A
    # colder target is surer of its next token, so its tree should be narrower and deeper. But the
    # drafter's errors do not shrink when the target gets colder: hence only halfway.
    return (1 + temperature) / 2


class DDTreeDrafter(BlockDraft):
    """The drafter of this chapter: one pass, then the best tree of `budget` nodes.

    Raises ValueError if budget < 1.
    """

    def __init__(self, network, budget, temperature=1.0):
        if budget < 1:
            raise ValueError(f"budget is {budget}; a tree needs at least 1 draft node")
        super().__init__(network, temperature)
        self.budget = budget

    def children(self, root, room):
        """One pass -> what the heap may ask for, see best_first."""
        return marginal_children(self.marginals(root, room), self.budget)

    def propose(self, root, room):
        return best_first_tree(root, self.children(root, room), self.budget)


class BlockChainDrafter(BlockDraft):
    """Vanilla DFlash: one sequence per pass, the most probable tokens, verified as a chain.

    length: of the chain; default, and at most, all slots of the pass.
    """

    def __init__(self, network, length=None):
        super().__init__(network)
        self.length = min(length or network.config.length, network.config.length)

    def propose(self, root, room):
        # The walk draws the target's own tokens and only compares, so any choice is lossless.
        # A pass over fewer slots would answer differently: it was trained with all of them.
        drafted = self.marginals(root, room)[:self.length].argmax(-1).tolist()  # of (L, V)
        return Tree([root, *drafted], range(-1, len(drafted)))  # each row's parent is the one above
