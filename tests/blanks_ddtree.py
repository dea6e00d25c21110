"""The blanks of chapter 05."""

import heapq
import math
from itertools import islice
from types import SimpleNamespace

import numpy as np
import torch

import conditional_marginals
import ddtree
from grading import Blank
from nanogpt.exact.toy_models import ToyModel
from nanogpt.exact.trees import best_mass, prefixes
from tree_attention import Tree

Q = torch.tensor([[0.6, 0.4], [0.9, 0.1]], dtype=torch.float64).log()
THREE_POPS = "root 5, q_1 (.6, .4), q_2 (.9, .1), 3 pops: token, parent's row, mass"
MASSES = "q_1 (.6, .4), q_2 (.9, .1), q_3 (.6, .4), nodes (0), (0, 0), (1), (1, 1)"
WIDE = torch.tensor([[0.5, 0.3, 0.2], [0.7, 0.2, 0.1], [0.9, 0.05, 0.05]]).double().log()


def ddtree_promise():
    """The heap's tree must be worth as much as the best tree found by trying all."""
    for seed in range(3):
        log_probs = torch.stack([ToyModel(seed, 3).logits((i,)) for i in (0, 1)]).log_softmax(-1)

        def mass(prefix, q=log_probs):
            return float(sum(q[i, t] for i, t in enumerate(prefix)).exp())

        for budget in (1, 3, 5):
            tree = ddtree.best_first_tree(0, ddtree.marginal_children(log_probs), budget)
            value = ddtree.surrogate(tree, log_probs)
            best = best_mass(mass, 2, 3, budget)
            assert abs(value - best) < 1e-9, (
                f"with budget {budget} the tree is worth {value:.3f}, the best one {best:.3f}")


def observe_nodes(f):
    def nodes(log_probs, pops):
        found = islice(f(5, ddtree.marginal_children(log_probs)), pops)
        return [(token, parent, round(mass, 6)) for token, parent, mass in found]

    return {THREE_POPS: nodes(Q, 3), "the same, 99 pops": nodes(Q, 99),
            "root 5, no slots": nodes(Q[:0], 3),
            "q (.5 .3 .2), (.7 .2 .1), (.9 .05 .05), 5 pops": nodes(WIDE, 5)}


def slip_nodes(smallest=False, no_sibling=False, no_child=False, child_rank=False, root_too=False,
               logs=False):
    def best_first(root, children):
        sign = 1 if smallest else -1
        prefixes, scores, below = [(root,)], [0.0], [children((root,))]
        if root_too:
            yield root, -1, 1.0
        heap = [(sign * below[0][0][0], 0, 0)] if below[0][0] else []
        while heap:
            key, parent, rank = heapq.heappop(heap)
            ranked, tokens = below[parent]
            prefixes.append(prefixes[parent] + (tokens[rank],))
            scores.append(sign * key)
            yield tokens[rank], parent, sign * key if logs else math.exp(sign * key)
            if rank + 1 < len(ranked) and not no_sibling:
                score = scores[parent] + ranked[rank + 1]
                heapq.heappush(heap, (sign * score, parent, rank + 1))
            below.append(children(prefixes[-1]))
            if below[-1][0] and not no_child:
                first = min(rank, len(below[-1][0]) - 1) if child_rank else 0
                score = scores[-1] + below[-1][0][first]
                heapq.heappush(heap, (sign * score, len(scores) - 1, first))

    return best_first


def observe_masses(f):
    tree = Tree([5, 0, 0, 1, 1], [-1, 0, 1, 0, 3])
    q = torch.cat([Q, Q[:1]])
    sure = torch.tensor([[1.0, 0.0], [0.5, 0.5]], dtype=torch.float64).log()
    return {MASSES: f(tree, q), "the root alone": f(Tree([5], [-1]), q),
            "q_1 (1, 0), q_2 (.5, .5), the same nodes": f(tree, sure)}


def slip_masses(own_only=False, depth=0, root=False, logs=False):
    def node_masses(tree, log_probs):
        depths = tree.depths[1:]
        own = log_probs[depths - 1 + depth, tree.tokens[1:]].double()
        if len(own) == 0:
            return torch.ones(1) if root else own
        sums = own if own_only else torch.where(tree.mask[1:, 1:], own, 0.0).sum(-1)
        masses = sums if logs else sums.exp()
        return torch.cat([torch.ones(1).double(), masses]) if root else masses

    return node_masses


BELOW_1 = ("level 0, token 2, logits[0] = log (.5, .3, .2), table[0, 2] = log (1, 4, 1), "
           "temperature 1, most 3: exp of the log-probabilities, tokens")
LEVEL_1 = ("h = log (.5 .3 .2), log (.2 .2 .6); table[0, 2] = log (1 4 1), table[1, 0] = log (2 1 "
           "1), table[1, 1] = log (1 6 1), table[0, 0] = 0; temperature 1; calls ([2], [-1]), ([0, "
           "1], [0, 0]), ([0], [-1]): the softmax of each answer, and the number of passes")
# h and W of a pass of two slots over three tokens, as probabilities.
H = np.log([[0.5, 0.3, 0.2], [0.2, 0.2, 0.6]])
W = np.log([[[1.0, 1, 1], [1, 1, 1], [1, 4, 1]], [[2.0, 1, 1], [1, 6, 1], [1, 1, 1]]])


def stand_in(temperature=1.0, most=3):
    """As much of a Children or a BlockLevels as the blanks look at."""
    return SimpleNamespace(
        logits=H, table=W, temperature=temperature, most=most, ranked={}, room=9)


def observe_below(f):
    def below(level, token, **more):
        log_probs, tokens = f(stand_in(**more), level, token)
        return [round(float(np.exp(x)), 6) for x in log_probs], list(map(int, tokens))

    return {BELOW_1: below(0, 2), "slot 1 after token 0": below(0, 0),
            "slot 2 after token 1": below(1, 1), "slot 2 after token 0, temperature .5":
            below(1, 0, temperature=0.5), "slot 2 after token 1, most 2": below(1, 1, most=2)}


def slip_below(slot=0, turned=False, plain=False, warm=False, rising=False, cut=False,
               probs=False):
    def below(self, level, token):
        row = self.table[(level + slot) % len(self.logits)]
        row = row[:, token] if turned else row[token]
        logits = self.logits[level] + (0 if plain else row)
        logits = logits / (1 if warm else self.temperature)
        log_probs = logits - np.logaddexp.reduce(logits)
        best = np.argsort(log_probs if rising else -log_probs, kind="stable")[:self.most]
        if cut:
            log_probs = logits - np.logaddexp.reduce(logits[best])
        kept = np.exp(log_probs[best]) if probs else log_probs[best]
        return kept.tolist(), best.tolist()

    return below


def below_promise():
    """The heap on these children must be worth as much as the best tree found by trying all."""
    h = np.array([[1.0, 0.5, 0.0], [0.0, 0.2, 0.9]])
    table = np.array([np.eye(3), np.eye(3)[[1, 2, 0]]])

    def mass(prefix, total=1.0, before=0):
        for slot, token in enumerate(prefix):
            weights = np.exp(h[slot] + table[slot, before])
            total, before = total * weights[token] / weights.sum(), token
        return total

    tree = ddtree.best_first_tree(0, conditional_marginals.Children(h, table, 1.0, 4), 4)
    found, best = sum(map(mass, prefixes(tree)[1:])), best_mass(mass, 2, 3, 4)
    assert abs(found - best) < 1e-9, (
        f"with budget 4 the tree is worth {found:.3f}, the best one {best:.3f}")


class Levels(SimpleNamespace):
    """A BlockLevels without a network: `logits` gives h, and counts its passes."""

    def logits(self, root, room):
        self.passes += 1
        return torch.tensor(H)


def observe_level(f):
    def levels(temperature=1.0, table=True):
        network = SimpleNamespace(transition=torch.tensor(W) if table else None)
        self = Levels(network=network, table=torch.tensor(W), temperature=temperature, room=9,
                      passes=0)
        rows = [f(self, [2], [-1]), f(self, [0, 1], [0, 0])]
        rows.append(f(self, [0], [-1]))  # the next round
        probs = [torch.softmax(row.double(), -1) for row in rows]
        return [[[round(float(x), 6) for x in row] for row in some] for some in probs], self.passes

    return {LEVEL_1: levels(), "the same at temperature .5": levels(0.5),
            "without a table": levels(table=False)}


def slip_level(plain=False, slot=0, warm=False, again=False, last=False, stay=False,
               probs=False):
    def level(self, tokens, parents):
        if parents == [-1] or again:
            self.h = self.logits(tokens[0], self.room)
            self.depth = 0 if parents == [-1] else self.depth
        logits = self.h[self.depth].expand(len(tokens), -1)
        if self.network.transition is not None and not plain:
            before = [tokens[-1]] * len(tokens) if last else tokens
            logits = logits + self.table[(self.depth + slot) % len(self.h), before]
        self.depth += not stay
        logits = logits / (1 if warm else self.temperature)
        return torch.softmax(logits, -1) if probs else logits

    return level


SIBLING = {"parent -1, ranked (-.5, -1.5, -2), rank 0": (-1.0, [-0.5, -1.5, -2.0], 0),
           "parent -1, ranked (-.5, -1.5, -2), rank 1": (-1.0, [-0.5, -1.5, -2.0], 1),
           "parent -1, ranked (0, -inf, -inf), rank 1": (-1.0, [0.0, -torch.inf, -torch.inf], 1)}
BLANKS = [
    Blank(
        "ddtree:node_masses",
        "* The mass of every node but the root, (N - 1,), in the order of the rows: the product of "
        "the probabilities of the tokens on its path. log_probs[i, t] is the logarithm of the "
        "probability of token t at depth i + 1. You may call torch, tree.tokens, tree.parents and "
        "tree.depths, (N,) each (row 0 is the root at depth 0, parents stand before their "
        "children), and tree.mask (N, N), True where the column is the row itself or an ancestor. "
        "A logarithm may be -inf; no nan may come out.",
        "A node's mass is its parent's times its own token's probability, row after row; or sum "
        "the logarithms that the mask shows. 0 times -inf is nan: torch.where helps.",
        3, 8, observe_masses,
        {MASSES: [0.6, 0.54, 0.4, 0.04], "the root alone": [],
         "q_1 (1, 0), q_2 (.5, .5), the same nodes": [1, 0.5, 0, 0]}, None,
        {"a node keeps only its own probability": slip_masses(own_only=True),
         "the position is one too deep": slip_masses(depth=1),
         "the root is among the masses": slip_masses(root=True),
         "the logarithms are never exponentiated": slip_masses(logs=True),
         "0 times -inf enters the sum": lambda tree, q: (tree.mask[1:, 1:].double() @ q[
             tree.depths[1:] - 1, tree.tokens[1:]].double()).exp()}),
    Blank(
        "ddtree:child_score",
        "* A score is the logarithm of a prefix's probability. Return the score of a node's first "
        "child, the best token of the next slot. score: the node's own; ranked_below: the "
        "log-probabilities of the next slot, best first, a list of floats. Python alone will "
        "do.",
        "The child appends the best token of the next position.",
        1, 3, lambda f: {"node -1, next position (-.25, -3)": f(-1.0, [-0.25, -3.0])},
        {"node -1, next position (-.25, -3)": -1.25}, ddtree_promise,
        {"the node's score is left out": lambda s, r: r[0],
         "the last token is taken instead of the best": lambda s, r: s + r[-1],
         "the log-probabilities are multiplied": lambda s, r: s * r[0]}),
    Blank(
        "ddtree:sibling_score",
        "** The score of a node's next sibling: the same parent, the next best token of the same "
        "slot. parent_score: the score of the parent, not of the node; ranked: the "
        "log-probabilities of the slot, best first, a list of floats that may end in -inf; rank: "
        "the node's own, from 0. Python alone will do.",
        "A node's score is its parent's plus one log-probability; the sibling has the next rank.",
        1, 3, lambda f: {case: f(*args) for case, args in SIBLING.items()},
        dict(zip(SIBLING, (-2.5, -3.0, -torch.inf), strict=True)), ddtree_promise,
        {"the old rank is kept": lambda s, r, k: s + r[k],
         "the parent's score is left out": lambda s, r, k: r[k + 1],
         "the old term is subtracted, although the parent's score does not hold it":
            lambda s, r, k: s - r[k] + r[k + 1],
         "the next rank is added to the node's own score": lambda s, r, k: s + r[k] + r[k + 1]}),
    Blank(
        "ddtree:best_first",
        "*** Start with the most probable first token in the heap. Pop the best prefix, `yield` it "
        "as (token, row of its parent, mass), then push its next sibling and its first child, "
        "until the heap is empty. The root is row 0 and is not yielded; the first node that is "
        "yielded is row 1. You may call children(prefix) for a tuple of tokens that begins with "
        "the root (what may follow it: log-probabilities, best first, and the tokens; two empty "
        "lists where nothing may), heapq.heappush(heap, entry), heapq.heappop(heap) (the smallest "
        "entry; tuples compare by their first number), child_score(score, ranked_below), "
        "sibling_score(parent_score, ranked, rank) and math.exp. A good entry is (-score, parent, "
        "rank): the parent's row, and the rank from 0.",
        "Keep three lists, an entry a row: the prefix, its score (the root's is 0) and its "
        "children. sibling_score asks for the parent's score.",
        16, 20, observe_nodes,
        {THREE_POPS: [(0, 0, 0.6), (0, 1, 0.54), (1, 0, 0.4)],
         "the same, 99 pops": [(0, 0, 0.6), (0, 1, 0.54), (1, 0, 0.4), (0, 3, 0.36), (1, 1, 0.06),
                               (1, 3, 0.04)],
         "root 5, no slots": [],
         # (0), (0,0), (0,0,0), (1), (1,0)
         "q (.5 .3 .2), (.7 .2 .1), (.9 .05 .05), 5 pops":
            [(0, 0, 0.5), (0, 1, 0.35), (0, 2, 0.315), (1, 0, 0.3), (0, 4, 0.21)]},
        ddtree_promise,
        {"the heap pops the worst prefix first": slip_nodes(smallest=True),
         "the root comes out as a node": slip_nodes(root_too=True),
         "a score comes out where the mass should": slip_nodes(logs=True),
         "siblings are never pushed": slip_nodes(no_sibling=True),
         "children are never pushed": slip_nodes(no_child=True),
         "the child takes over its parent's rank": slip_nodes(child_rank=True)}),
    Blank(
        "conditional_marginals:Children.below",
        "*** The children of a node that holds `token`, when they stand in slot level + 1: their "
        "log-probabilities in falling order, and the tokens, two lists of at most self.most. You "
        "may call numpy and self.logits (L, V), the pass's logits, row `level` is the slot's; "
        "self.table (L, V, V), self.table[level, token] is what the token before adds to them; "
        "self.temperature, which divides the sum before the softmax. np.logaddexp.reduce(x) is "
        "the logarithm of sum(exp(x)), np.argsort(-x, kind='stable') ranks from the largest "
        "down.",
        "Row `token` of the slot's own table is added to the slot's own logits. Normalise over all "
        "V tokens, then cut.",
        5, 10, observe_below,
        {BELOW_1: ([0.631579, 0.263158, 0.105263], [1, 0, 2]),
         "slot 1 after token 0": ([0.5, 0.3, 0.2], [0, 1, 2]),
         "slot 2 after token 1": ([0.6, 0.3, 0.1], [1, 2, 0]),
         "slot 2 after token 0, temperature .5": ([0.642857, 0.285714, 0.071429], [2, 0, 1]),
         "slot 2 after token 1, most 2": ([0.6, 0.3], [1, 2])},
        below_promise,
        {"the table of the wrong slot is read": slip_below(slot=1),
         "the table is read the wrong way round": slip_below(turned=True),
         "the token before is not looked at: a marginal": slip_below(plain=True),
         "the drafter's temperature is ignored": slip_below(warm=True),
         "the worst child comes first": slip_below(rising=True),
         "probabilities are returned instead of their logarithms": slip_below(probs=True),
         "the children that are kept are normalised among themselves": slip_below(cut=True)}),
    Blank(
        "conditional_marginals:BlockLevels.level",
        "*** The logits of what follows each of the n nodes of one level, (n, V), a tensor: their "
        "softmax is the q that the p/q rule divides by. tokens and parents: two lists. "
        "parents == [-1] means that a new round begins: run the pass once, self.logits(root, "
        "self.room) -> h (L, V), keep it on self, and start with slot 1 (row 0 of h). Each later "
        "call reads the next slot. You may call self.table (L, V, V): self.table[k, tokens] "
        "is (n, V), what the nodes' tokens add; there is none if self.network.transition is None. "
        "self.temperature divides the logits.",
        "Keep h and the depth on self. A node's logits are its slot's row of h, the same for all n "
        "nodes, plus the row of its own token in the slot's table.",
        7, 12, observe_level,
        {LEVEL_1:
            ([[[0.263158, 0.631579, 0.105263]], [[0.333333, 0.166667, 0.5], [0.1, 0.6, 0.3]],
              [[0.5, 0.3, 0.2]]], 2),
         "the same at temperature .5":
            ([[[0.144509, 0.83237, 0.023121]], [[0.285714, 0.071429, 0.642857],
                                                [0.021739, 0.782609, 0.195652]],
              [[0.657895, 0.236842, 0.105263]]], 2),
         "without a table": ([[[0.5, 0.3, 0.2]], [[0.2, 0.2, 0.6], [0.2, 0.2, 0.6]],
                              [[0.5, 0.3, 0.2]]], 2)},
        None,
        {"the token before is not looked at: a marginal": slip_level(plain=True),
         "the table of the wrong slot is read": slip_level(slot=1),
         "the drafter's temperature is ignored": slip_level(warm=True),
         "the network runs a pass for every level": slip_level(again=True),
         "all nodes of a level follow the last one's token": slip_level(last=True),
         "probabilities are returned instead of logits": slip_level(probs=True),
         "every level reads slot 1": slip_level(stay=True)}),
]
