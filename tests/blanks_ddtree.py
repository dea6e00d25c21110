"""The blanks of chapter 05."""

import heapq

import torch

from grading import Blank
from tree_attention import Tree

Q = torch.tensor([[0.6, 0.4], [0.9, 0.1]], dtype=torch.float64).log()
BUDGET_3 = "root 5, q_1 (.6, .4), q_2 (.9, .1), budget 3: tokens, parents"
MASSES = "q_1 (.6, .4), q_2 (.9, .1), q_3 (.6, .4), nodes (0), (0, 0), (1), (1, 1)"
WIDE = torch.tensor([[0.5, 0.3, 0.2], [0.7, 0.2, 0.1], [0.9, 0.05, 0.05]]).double().log()


def ddtree_law():
    """The heap's tree must be worth as much as the best tree found by trying all."""
    import ddtree
    from test_ddtree import best_value, random_marginals

    for seed in range(3):
        for budget in (1, 3, 5):
            log_probs = random_marginals(seed, 2, 3)
            value = ddtree.surrogate(ddtree.best_first_tree(0, log_probs, budget), log_probs)
            best = best_value(log_probs, budget)
            assert abs(value - best) < 1e-9, (
                f"with budget {budget} the tree is worth {value:.3f}, the best one {best:.3f}")


def observe_tree(f):
    def nodes(log_probs, budget):
        tree = f(5, log_probs, budget)
        return tree.tokens, tree.parents

    return {BUDGET_3: nodes(Q, 3),
            "the same, budget 1": nodes(Q, 1), "the same, budget 99": nodes(Q, 99),
            "root 5, no marginals, budget 3": nodes(Q[:0], 3),
            "q (.5 .3 .2), (.7 .2 .1), (.9 .05 .05), budget 5": nodes(WIDE, 5)}


def slip_tree(extra=0, smallest=False, no_sibling=False, no_child=False, child_rank=False):
    def best_first_tree(root, log_probs, budget):
        ranked, ids = log_probs.topk(min(budget, log_probs.shape[1]), -1)
        ranked, ids = ranked.tolist(), ids.tolist()
        sign = 1 if smallest else -1
        tokens, parents, scores = [root], [-1], [0.0]
        heap = [(sign * ranked[0][0], 0, 0, 0)] if ranked else []
        while heap and len(tokens) <= budget + extra:
            key, level, rank, parent = heapq.heappop(heap)
            row = len(tokens)
            tokens.append(ids[level][rank])
            parents.append(parent)
            scores.append(sign * key)
            if rank + 1 < len(ranked[level]) and not no_sibling:
                heapq.heappush(heap, (sign * (scores[parent] + ranked[level][rank + 1]), level,
                                      rank + 1, parent))
            if level + 1 < len(ranked) and not no_child:
                first = min(rank, len(ranked[level]) - 1) if child_rank else 0
                heapq.heappush(heap, (sign * (scores[row] + ranked[level + 1][first]), level + 1,
                                      first, row))
        return Tree(tokens, parents)

    return best_first_tree


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


SIBLING = {"parent -1, ranked (-.5, -1.5, -2), rank 0": (-1.0, [-0.5, -1.5, -2.0], 0),
           "parent -1, ranked (-.5, -1.5, -2), rank 1": (-1.0, [-0.5, -1.5, -2.0], 1),
           "parent -1, ranked (0, -inf, -inf), rank 1": (-1.0, [0.0, -torch.inf, -torch.inf], 1)}
BLANKS = [
    Blank(
        "ddtree:sibling_score",
        "The score of the next sibling, from the parent's score and the depth's ranked "
        "log-probabilities, a list of floats that may end in -inf.",
        "A node's score is its parent's plus one log-probability; the sibling has the next rank.",
        1, 3, lambda f: {case: f(*args) for case, args in SIBLING.items()},
        dict(zip(SIBLING, (-2.5, -3.0, -torch.inf), strict=True)), ddtree_law,
        {"the old rank is kept": lambda s, r, k: s + r[k],
         "the parent's score is left out": lambda s, r, k: r[k + 1],
         "the old term is subtracted, although the parent's score does not hold it":
            lambda s, r, k: s - r[k] + r[k + 1],
         "the next rank is added to the node's own score": lambda s, r, k: s + r[k] + r[k + 1]}),
    Blank(
        "ddtree:child_score",
        "The score of the first child, from the node's score and the next depth's ranked "
        "log-probabilities, a list of floats.",
        "The child appends the best token of the next position.",
        1, 3, lambda f: {"node -1, next position (-.25, -3)": f(-1.0, [-0.25, -3.0])},
        {"node -1, next position (-.25, -3)": -1.25}, ddtree_law,
        {"the node's score is left out": lambda s, r: r[0],
         "the last token is taken instead of the best": lambda s, r: s + r[-1],
         "the log-probabilities are multiplied": lambda s, r: s * r[0]}),
    Blank(
        "ddtree:best_first_tree",
        "Algorithm 1: pop the best prefix, add it to the tree, push its next sibling and its "
        "first child, until the budget is spent.",
        "heapq pops the smallest, so store minus the score, with depth, rank and parent row. The "
        "root does not count, and without marginals it stands alone.", 18, 20, observe_tree,
        {BUDGET_3: ([5, 0, 0, 1], [-1, 0, 1, 0]),
         "the same, budget 1": ([5, 0], [-1, 0]),
         "the same, budget 99": ([5, 0, 0, 1, 0, 1, 1], [-1, 0, 1, 0, 3, 1, 3]),
         "root 5, no marginals, budget 3": ([5], [-1]),
         # .5, .35, .315, .3, .21: (0), (0,0), (0,0,0), (1), (1,0)
         "q (.5 .3 .2), (.7 .2 .1), (.9 .05 .05), budget 5":
            ([5, 0, 0, 0, 1, 0], [-1, 0, 1, 2, 0, 4])},
        ddtree_law,
        {"the heap pops the worst prefix first": slip_tree(smallest=True),
         "the root counts against the budget": slip_tree(extra=-1),
         "one node too many is added": slip_tree(extra=1),
         "siblings are never pushed": slip_tree(no_sibling=True),
         "children are never pushed": slip_tree(no_child=True),
         "the child takes over its parent's rank": slip_tree(child_rank=True)}),
    Blank(
        "ddtree:node_masses",
        "q(u) of every node: the product of the marginals along its path (Equation 7).",
        "Gather each node's own log-probability; the tree mask says which of them to sum. A "
        "probability may be 0, and 0 times -inf is nan.",
        3, 8, observe_masses,
        {MASSES: [0.6, 0.54, 0.4, 0.04], "the root alone": [],
         "q_1 (1, 0), q_2 (.5, .5), the same nodes": [1, 0.5, 0, 0]}, None,
        {"a node keeps only its own probability": slip_masses(own_only=True),
         "the position is one too deep": slip_masses(depth=1),
         "the root is among the masses": slip_masses(root=True),
         "the logarithms are never exponentiated": slip_masses(logs=True),
         "0 times -inf enters the sum": lambda tree, q: (tree.mask[1:, 1:].double() @ q[
             tree.depths[1:] - 1, tree.tokens[1:]].double()).exp()}),
]
