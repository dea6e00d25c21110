"""The blanks of chapter 05."""

import math
from itertools import islice
from types import SimpleNamespace

import numpy as np
import torch

import ddtree
from conditional_marginals import Children
from ddtree import marginal_children
from grading import Blank
from merged_trees import prefixes
from nanogpt.exact.toy_models import ToyModel
from nanogpt.exact.trees import best_mass
from tree_attention import Tree

TWO = torch.tensor([[0.6, 0.4], [0.9, 0.1]], dtype=torch.float64).log()
THREE = torch.cat([TWO, TWO[:1]])
SURE = torch.tensor([[1.0, 0.0], [0.5, 0.5]], dtype=torch.float64).log()
WIDE = torch.tensor([[0.5, 0.3, 0.2], [0.7, 0.2, 0.1], [0.9, 0.05, 0.05]]).double().log()
NODES = Tree([5, 0, 0, 1, 1], [-1, 0, 1, 0, 3])
# h and W of a pass of two slots over three tokens.
H = np.log([[0.5, 0.3, 0.2], [0.2, 0.2, 0.6]])
W = np.log([[[1.0, 1, 1], [1, 1, 1], [1, 4, 1]], [[2.0, 1, 1], [1, 6, 1], [1, 1, 1]]])


def check_best(children, mass, budget):
    """The heap's tree must be worth as much as the best tree found by trying all."""
    found = sum(map(mass, prefixes(ddtree.best_first_tree(0, children, budget))[1:]))
    best = best_mass(mass, 2, 3, budget)
    assert abs(found - best) < 1e-9, (
        f"with budget {budget} the tree is worth {found:.3f}, the best one {best:.3f}")


def best_of_marginals():
    for seed in range(3):
        log_probs = torch.stack([ToyModel(seed, 3).logits((i,)) for i in (0, 1)]).log_softmax(-1)
        for budget in (1, 3, 5):
            check_best(marginal_children(log_probs), lambda prefix, q=log_probs: math.exp(
                sum(q[i, t] for i, t in enumerate(prefix))), budget)


def best_of_conditionals():
    h = np.array([[1.0, 0.5, 0.0], [0.0, 0.2, 0.9]])
    table = np.array([np.eye(3), np.eye(3)[[1, 2, 0]]])

    def mass(prefix, total=1.0, before=0):
        for slot, token in enumerate(prefix):
            weights = np.exp(h[slot] + table[slot, before])
            total, before = total * weights[token] / weights.sum(), token
        return total

    check_best(Children(h, table, 1.0, 4), mass, 4)


def popped(log_probs, pops):
    return lambda f: [(token, parent, round(mass, 6)) for token, parent, mass in islice(
        f(5, marginal_children(log_probs)), pops)]


def children_below(level, token, temperature=1.0, most=3):
    def call(f):
        # As much of a Children as the blank looks at.
        self = SimpleNamespace(logits=H, table=W, temperature=temperature, most=most, ranked={})
        log_probs, tokens = f(self, level, token)
        return np.exp(log_probs).round(6), list(map(int, tokens))

    return call


BLANKS = [
    Blank(
        "ddtree:node_masses",
        """* The mass of every node but the root, (N - 1,), in the order of the rows: the
        product of the probabilities of the tokens on its path. log_probs[i, t] is the logarithm
        of the probability of token t at depth i + 1. You may call torch, tree.tokens,
        tree.parents and tree.depths, (N,) each (row 0 is the root at depth 0, parents stand
        before their children), and tree.mask (N, N), True where the column is the row itself or
        an ancestor. A logarithm may be -inf; no nan may come out.""",
        """A node's mass is its parent's times its own token's probability, row after row; or
        sum the logarithms that the mask shows. 0 times -inf is nan: torch.where helps.""",
        lines=3, minutes=8,
        examples={
            "q_1 (.6, .4), q_2 (.9, .1), q_3 (.6, .4), nodes (0), (0, 0), (1), (1, 1)":
                ((NODES, THREE), [0.6, 0.54, 0.4, 0.04]),
            "the root alone": ((Tree([5], [-1]), THREE), []),
            "q_1 (1, 0), q_2 (.5, .5), the same nodes": ((NODES, SURE), [1, 0.5, 0, 0]),
        }),
    Blank(
        "ddtree:child_score",
        """* A score is the logarithm of a prefix's probability. Return the score of a node's
        first child, the best token of the next slot. score: the node's own; ranked_below: the
        log-probabilities of the next slot, best first, a list of floats. Python alone will do.""",
        "The child appends the best token of the next position.",
        lines=1, minutes=3, promise=best_of_marginals,
        examples={
            "node -1, next position (-.25, -3)": ((-1.0, [-0.25, -3.0]), -1.25),
        }),
    Blank(
        "ddtree:sibling_score",
        """** The score of a node's next sibling: the same parent, the next best token of the
        same slot. parent_score: the score of the parent, not of the node; ranked: the
        log-probabilities of the slot, best first, a list of floats that may end in -inf; rank:
        the node's own, from 0. Python alone will do.""",
        """A node's score is its parent's plus one log-probability; the sibling has the next
        rank.""",
        lines=1, minutes=3, promise=best_of_marginals,
        examples={
            "parent -1, ranked (-.5, -1.5, -2), rank 0": ((-1.0, [-0.5, -1.5, -2.0], 0), -2.5),
            "parent -1, ranked (-.5, -1.5, -2), rank 1": ((-1.0, [-0.5, -1.5, -2.0], 1), -3.0),
            "parent -1, ranked (0, -inf, -inf), rank 1":
                ((-1.0, [0.0, -math.inf, -math.inf], 1), -math.inf),
        }),
    Blank(
        "ddtree:best_first",
        """*** Start with the most probable first token in the heap. Pop the best prefix,
        `yield` it as (token, row of its parent, mass), then push its next sibling and its first
        child, until the heap is empty. The root is row 0 and is not yielded; the first node
        that is yielded is row 1. You may call children(prefix) for a tuple of tokens that
        begins with the root (what may follow it: log-probabilities, best first, and the tokens;
        two empty lists where nothing may), heapq.heappush(heap, entry), heapq.heappop(heap)
        (the smallest entry; tuples compare by their first number), child_score(score,
        ranked_below), sibling_score(parent_score, ranked, rank) and math.exp. A good entry is
        (-score, parent, rank): the parent's row, and the rank from 0.""",
        """Keep three lists, an entry a row: the prefix, its score (the root's is 0) and its
        children. sibling_score asks for the parent's score.""",
        lines=16, minutes=20, promise=best_of_marginals,
        examples={
            "root 5, q_1 (.6, .4), q_2 (.9, .1), 3 pops: token, parent's row, mass":
                (popped(TWO, 3), [(0, 0, 0.6), (0, 1, 0.54), (1, 0, 0.4)]),
            "the same, 99 pops": (popped(TWO, 99), [
                (0, 0, 0.6), (0, 1, 0.54), (1, 0, 0.4), (0, 3, 0.36), (1, 1, 0.06), (1, 3, 0.04)]),
            "root 5, no slots": (popped(TWO[:0], 3), []),
            # (0), (0, 0), (0, 0, 0), (1), (1, 0)
            "q (.5 .3 .2), (.7 .2 .1), (.9 .05 .05), 5 pops": (popped(WIDE, 5), [
                (0, 0, 0.5), (0, 1, 0.35), (0, 2, 0.315), (1, 0, 0.3), (0, 4, 0.21)]),
        }),
    Blank(
        "conditional_marginals:Children.below",
        """*** The children of a node that holds `token`, when they stand in slot level + 1:
        their log-probabilities in falling order, and the tokens, two lists of at most
        self.most. You may call numpy and self.logits (L, V), the pass's logits, row `level` is
        the slot's; self.table (L, V, V), self.table[level, token] is what the token before adds
        to them; self.temperature, which divides the sum before the softmax.
        np.logaddexp.reduce(x) is the logarithm of sum(exp(x)), np.argsort(-x, kind='stable')
        ranks from the largest down.""",
        """Row `token` of the slot's own table is added to the slot's own logits. Normalise over
        all V tokens, then cut.""",
        lines=5, minutes=10, promise=best_of_conditionals,
        examples={
            "level 0, token 2, logits[0] = log (.5, .3, .2), table[0, 2] = log (1, 4, 1), "
            "temperature 1, most 3: exp of the log-probabilities, tokens":
                (children_below(0, 2), ([0.631579, 0.263158, 0.105263], [1, 0, 2])),
            "slot 1 after token 0": (children_below(0, 0), ([0.5, 0.3, 0.2], [0, 1, 2])),
            "slot 2 after token 1": (children_below(1, 1), ([0.6, 0.3, 0.1], [1, 2, 0])),
            "slot 2 after token 0, temperature .5": (
                children_below(1, 0, 0.5), ([0.642857, 0.285714, 0.071429], [2, 0, 1])),
            "slot 2 after token 1, most 2": (children_below(1, 1, most=2), ([0.6, 0.3], [1, 2])),
        }),
]
