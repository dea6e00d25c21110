"""Conditional marginals: let the tokens of one drafter pass know each other a little.

A marginal q_k knows the text, but not the tokens drafted before it. Where the text may go on with
"to" or "an", q_1 offers t and a, q_2 offers o and n, and the tree drafts "tn" and "ao" as gladly.
A transition table for each slot mends the nearest part of this:

    q_k(x | v) = softmax(l_k + W_k[v])[x]     l (L, V): the pass's logits; W (L, V, V): learned

where v is the token before slot k: the root for slot 1, the parent in the tree for the others. The
table is trained with the network, in the same time (train_drafter.py). A prefix now has the
probability q(u_1 .. u_d) = q_1(u_1 | root) q_2(u_2 | u_1) ... , a Markov chain. One pass still
serves the whole tree, because W is looked up, not computed.

    draft    DDTree's heap, but a node's children are those of its token, not of its depth; or
             sampled: a chain or a tree drawn from the conditionals
    accept   the walk for the heap's tree; for sampled drafts the p/q rule of chapter 01 on a chain
             and multi-round rejection (chapter 02) on a tree, with q the conditional that the
             token was really drawn from

Large models do the same with a table of low rank (the "Markov head" of DSpark, 2026).
"""

import numpy as np

from block_diffusion import BlockDraft
from ddtree import DDTreeDrafter

# ---------------------------------------------------------------- the heap, by token


class Children:
    """The children that the heap may ask for: for each slot and token before it, the best first.

    logits (L, V): l of one pass; table (L, V, V): W; temperature: of the drafter, > 0; most: how
    many children a node can have at all. numpy arrays.
    """

    def __init__(self, logits, table, temperature, most):
        self.logits, self.table = logits, table
        self.temperature, self.most = temperature, min(most, logits.shape[-1])
        self.ranked = {}  # (level, token): made when the heap first asks for it

    def __call__(self, prefix):
        """The children of a prefix, see ddtree.best_first."""
        level, token = len(prefix) - 1, prefix[-1]
        if level == len(self.logits):  # below the last slot
            return [], []
        # A tree of B nodes visits few of the L x V lists, so only those are ranked.
        if (level, token) not in self.ranked:
            self.ranked[level, token] = self.below(level, token)
        return self.ranked[level, token]

    def below(self, level, token):
        """-> log q_{level+1}(x | token), best first, and the tokens x: two lists.

        level: from 0; token: the one before the slot.
        """
        # In numpy: on rows this short, torch would spend its time on starting the operations.
        logits = (self.logits[level] + self.table[level, token]) / self.temperature  # (V,)
        best = np.argsort(-logits, kind="stable")
        log_sum = np.logaddexp.reduce(logits)  # of the softmax, over all V
        best = best[:self.most]
        return (logits[best] - log_sum).tolist(), best.tolist()


class ConditionalTreeDrafter(DDTreeDrafter):
    """DDTree on conditionals: one pass, then the best tree of `budget` nodes.

    network: a BlockDrafter with a transition table.
    """

    def __init__(self, network, budget, temperature=1.0):
        super().__init__(network, budget, temperature)
        self.table = transitions_of(network).cpu().numpy()

    def children(self, root, room):
        logits = self.logits(root, room).numpy()  # (L, V)
        return Children(logits, self.table, self.temperature, self.budget)


def transitions_of(network):
    """W (L, V, V) of a drafter."""
    return network.transition.detach().float()  # bfloat16 on a GPU, which numpy does not know


# ---------------------------------------------------------------- sampled drafts


class BlockLevels(BlockDraft):
    """One pass as a draft model for chapter 02's TreeDrafter and chapter 06's sampled trees.

    Such a drafter grows its tree level by level and asks `level` for each. Here the first question
    runs the pass, and the others look up the table: level k of the tree reads slot k.
    """

    def __init__(self, network):
        super().__init__(network)
        table = network.transition
        self.table = None if table is None else table.detach().cpu()

    def slots(self, root):
        """One pass -> (L, V): its logits, to which the table's row is added."""
        return self.logits(root, self.room)

    def level(self, tokens, parents):
        """n nodes of one level, their tokens -> (n, V) logits of what follows each.

        Raises ValueError below the last slot.
        """
        if parents == [-1]:  # the root: a new round
            self.h, self.depth = self.slots(tokens[0]), 0
        if self.depth == len(self.h):
            raise ValueError(f"the tree is deeper than the {self.depth} slots of the pass")
        logits = self.h[self.depth].expand(len(tokens), -1)  # (n, V): the same for every node, ...
        if self.table is not None:
            logits = logits + self.table[self.depth, tokens]  # ... but for the token before
        self.depth += 1
        return logits

    @property
    def room(self):
        """How many tokens may follow the root inside the window."""
        return self.network.target.block_size - 1 - self.cache.length - self.unread.shape[1]


class SlotLevels(BlockLevels):
    """The same pass without its table: what is drawn in a slot knows nothing of the draws before
    it. DDTree's marginals, drawn instead of ranked.
    """

    def __init__(self, network):
        super().__init__(network)
        self.table = None

    def slots(self, root):
        """One pass -> (L, V): the logarithms of its marginals."""
        return self.marginals(root, self.room)
