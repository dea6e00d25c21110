"""Dual draft routing: two heads draft a tree each, only the more confident tree is verified.

    draft    both heads grow a tree below the same root; each tree gets one number, the mean
             confidence of its nodes, and the tree with the larger one is kept
    verify   one forward over that tree, as in chapter 02
    accept   the walk of chapter 02
    commit   BOTH heads take the target's hidden states of the accepted tokens, whoever drafted
             them, so either may be chosen in the next step

The target draws every emitted token itself (the walk), so no choice of tree can change the law of
the text. Routing changes only how many tokens one forward brings.

Source: "Dual-Draft Routing: Two Trees Enter, One Tree Gets Verified" (2026). Its s_{t+1} is
`root`, s_{h,i} a node's score, c_{h,i} its confidence, mu_h the mean confidence, N_h `budget`.
"""

import torch

from tree_attention import Tree

# ---------------------------------------------------------------- one head's tree


def best_nodes(scores, budget):
    """The rows of the root and of the `budget` best nodes, in rising order.

    scores: one cumulative log-score a row, the root first; equal scores go to the earlier row.

    subtle: whoever keeps a node keeps its parent. A child's score is its parent's plus a
    log-probability, so never higher, and parents stand in earlier rows, so a tie is theirs too.

    Example: the scores 0, -1, -2, -1.5, -2 with budget 3 keep the rows 0, 1, 2, 3.
    """
    ranked = sorted(range(1, len(scores)), key=lambda row: (-scores[row], row))
    return sorted([0, *ranked[:budget]])


def grow_tree(head, root, depth, top_k, budget):
    """Top-k expansion to a depth limit, then the `budget` best nodes (section 3 of the paper).

    head.state: what the head remembers of the committed text, (1, ...);
    head.read(states, tokens) -> log-probabilities of the next token (n, V), new states (n, ...),
    for n nodes at once: states of their parents, and their own tokens.
    -> Tree of at most budget + 1 nodes; scores, a list: s_{h,i} of every node, 0.0 for the root.

    subtle: a node outside the best `budget` of the tree grown so far can have no descendant inside
    the best `budget` of the whole tree. So only nodes that are still in are expanded, and the
    result is that of the full expansion, with at most `budget` nodes read a level instead of
    top_k ** depth.
    """
    tokens, parents, scores = [root], [-1], [0.0]
    level, states = [0], head.state  # the nodes to expand, and their parents' states
    for _ in range(depth):
        log_probs, states = head.read(states, [tokens[row] for row in level])  # (n, V)
        best = log_probs.topk(min(top_k, log_probs.shape[-1]), -1)  # n lists of top_k
        children = zip(level, best.values.tolist(), best.indices.tolist(), strict=True)
        origin = {}  # row of a new node -> which row of `states` belongs to its parent
        for i, (node, values, ids) in enumerate(children):
            for value, token in zip(values, ids, strict=True):
                origin[len(tokens)] = i
                tokens.append(token)
                parents.append(node)
                scores.append(scores[node] + value)
        level = [row for row in best_nodes(scores, budget) if row in origin]
        if not level:
            break
        states = states[[origin[row] for row in level]]
    return keep_rows(tokens, parents, scores, best_nodes(scores, budget))


def keep_rows(tokens, parents, scores, rows):
    """The part of a flat tree that these rows make; a parent's row is looked up anew.

    tokens, parents, scores: lists, an entry a row; rows: rising, the root first, closed under
    taking parents -> Tree, scores.
    """
    place = {-1: -1} | {row: new for new, row in enumerate(rows)}
    tree = Tree([tokens[row] for row in rows], [place[parents[row]] for row in rows])
    return tree, [scores[row] for row in rows]


# ---------------------------------------------------------------- the router


def confidence(scores):
    """c = exp(s) of every node but the root, (N - 1,): back from log-scores to probabilities.

    Source: section 4. c of a node is the probability that its head gives to the whole path.
    """
    return torch.tensor(scores[1:], dtype=torch.float64).exp()


def mean_confidence(scores):
    """mu_h, the mean of c over the retained nodes, in [0, 1]; 0 for a tree that is only a root.

    scores: as for best_nodes. Source: section 5.
    Example: three nodes with the path probabilities .8, .6, .1 make mu = .5.
    """
    c = confidence(scores)
    return float(c.mean()) if len(c) else 0.0


def expected_length(scores):
    """Another statistic: the sum of c instead of its mean; scores as for best_nodes.

    c of a node is the head's probability that the node is accepted, and an accepted path holds
    one node a level, so the sum is the number of drafts that the head expects to be accepted. With
    equally many nodes in both trees it routes as the mean does.
    """
    return float(confidence(scores).sum())


def route(statistics):
    """h* = argmax over the heads of mu_h; the first head on a tie. Source: section 5."""
    return max(range(len(statistics)), key=lambda h: (statistics[h], -h))


# ---------------------------------------------------------------- drafters for chapter 02's loop


class HeadDrafter:
    """One head alone: its best tree, every step.

    depth: levels below the root; top_k: children of an expanded node; budget: draft nodes kept.
    Raises ValueError if one of them is below 1.
    """

    def __init__(self, head, depth=6, top_k=3, budget=8):
        for name, value in (("depth", depth), ("top_k", top_k), ("budget", budget)):
            if value < 1:
                raise ValueError(f"{name} is {value}; it must be at least 1")
        self.head, self.depth, self.top_k, self.budget = head, depth, top_k, budget

    def reset(self):
        self.head.reset()

    def observe(self, tokens, hidden, rows):
        self.head.observe(tokens, hidden, rows)

    def propose_scored(self, root, room):
        """-> Tree and its scores; see grow_tree."""
        return grow_tree(self.head, root, min(self.depth, room), self.top_k, self.budget)

    def propose(self, root, room):
        return self.propose_scored(root, room)[0]


class BothHeads:
    """What every use of two heads shares: both advance on the accepted rows, whoever drafted them.

    That is the interchangeability lemma, section 7. drafters: two (or more) HeadDrafters.
    """

    def __init__(self, drafters):
        self.drafters = drafters

    def reset(self):
        for drafter in self.drafters:
            drafter.reset()

    def observe(self, tokens, hidden, rows):
        """These tokens were committed; hidden[layer][:, rows] are the target's states of them."""
        for drafter in self.drafters:
            drafter.observe(tokens, hidden, rows)

    def propose_both(self, root, room):
        """-> the heads' trees, and for each the scores of its nodes."""
        return zip(*(d.propose_scored(root, room) for d in self.drafters), strict=True)


class RoutedDrafter(BothHeads):
    """The chapter's drafter: both trees are grown, one is returned.

    choose(list of scores) -> which one, by default the paper's rule; another function makes
    another router.
    choices: the index chosen in every step so far; means: mu of every head in every step.
    """

    def __init__(self, drafters, choose=None):
        super().__init__(drafters)
        self.choose = choose or (lambda scores: route([mean_confidence(s) for s in scores]))
        self.choices, self.means = [], []

    def propose(self, root, room):
        trees, scores = self.propose_both(root, room)
        self.means.append([mean_confidence(s) for s in scores])
        self.choices.append(self.choose(list(scores)))
        return trees[self.choices[-1]]


def coin_flip(dice):
    """A router that asks a coin: what is left of routing without the confidence."""
    return lambda scores: int(dice.flip(0.5))
