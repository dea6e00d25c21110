"""Dual draft routing: two heads draft a tree each, only the more confident tree is verified.

    draft    both heads grow a tree below the same root; each tree gets one number, the mean
             confidence of its nodes, and the tree with the larger one is kept
    verify   one forward over that tree, as in chapter 02
    accept   the walk of chapter 02
    commit   BOTH heads take the target's hidden states of the accepted tokens, no matter which head
             drafted them, so either may be chosen in the next step

The target draws every token of the text itself (the walk), so no choice between trees can change
the distribution of the text. Routing changes only how many tokens one forward brings.

Source: "Dual-Draft Routing: Two Trees Enter, One Tree Gets Verified" (2026). Its s_{t+1} is
`root`, s_{h,i} a node's score, c_{h,i} its confidence, mu_h the mean confidence, N_h `budget`.
"""

import math

from tree_attention import Tree  # chapter 02

# ---------------------------------------------------------------- one head's tree


def best_nodes(scores, budget):
    """The rows of the root and of the `budget` best nodes, in rising order.

    scores: one cumulative log-score per row, the root first; equal scores go to the earlier row.

    Example: the scores 0, -1, -2, -1.5, -2 with budget 3 keep the rows 0, 1, 2, 3.
    """
    # subtle: if a node stays, its parent stays too. A child's score is its parent's plus a
    # log-probability, so it is never higher. With equal scores the parent wins as well: it stands
    # in an earlier row, and sorting keeps the order of ties (in Python also with reverse=True).
    ranked = sorted(range(1, len(scores)), key=scores.__getitem__, reverse=True)
    return sorted([0, *ranked[:budget]])  # the root costs no budget


class GrowingTree:
    """A draft tree between two reads: what it wants read next, and how it takes what was read.

    depth, top_k, budget: see grow_tree. The lists tokens, parents, scores have an entry per node.
    """

    def __init__(self, root, depth, top_k, budget):
        self.tokens, self.parents, self.scores = [root], [-1], [0.0]
        self.depth, self.top_k, self.budget = depth, top_k, budget
        self.level = [0] if depth > 0 else []  # rows of the n nodes to read next; [] when done
        self.origin = [0]  # for each of them, the place of its parent in the level before

    @property
    def to_read(self):
        """The tokens of the level, a list of n."""
        return [self.tokens[row] for row in self.level]

    def add(self, values, ids):
        """Take the children of the level's nodes; the best of them are the next level.

        values, ids: lists of n lists, the log-probabilities and tokens of each node's children.
        """
        first, k = len(self.tokens), min(self.top_k, len(ids[0]))  # k children for each node
        # Not strict: when two heads are read at once, the shorter level was filled up.
        for node, logs, tokens in zip(self.level, values, ids, strict=False):
            self.tokens += tokens[:k]
            self.parents += [node] * k
            self.scores += [self.scores[node] + log for log in logs[:k]]  # the article's s_{h,i}
        # A node outside the best `budget` so far has no descendant inside the best `budget` of the
        # whole tree. So at most `budget` nodes per level are read, instead of top_k ** depth.
        self.depth -= 1
        kept = best_nodes(self.scores, self.budget) if self.depth > 0 else []
        self.level = [row for row in kept if row >= first]
        self.origin = [(row - first) // k for row in self.level]

    def cut(self):
        """-> Tree of the `budget` best nodes and the root; their scores, a list."""
        return keep_rows(self.tokens, self.parents, self.scores,
                         best_nodes(self.scores, self.budget))


def keep_rows(tokens, parents, scores, rows):
    """The tree that these rows of a flat tree make; its parents are renumbered.

    tokens, parents, scores: lists, an entry per row; rows: rising, the root first, closed under
    taking parents -> Tree, scores.
    """
    place = {-1: -1} | {row: new for new, row in enumerate(rows)}  # -1, the root's parent, stays
    tree = Tree([tokens[row] for row in rows], [place[parents[row]] for row in rows])
    return tree, [scores[row] for row in rows]


def best_children(log_probs, top_k):
    """log_probs (..., V) -> two nested lists (..., top_k), best child first: values and tokens."""
    best = log_probs.topk(min(top_k, log_probs.shape[-1]), -1)
    return best.values.tolist(), best.indices.tolist()


def grow_tree(head, root, depth, top_k, budget):
    """Top-k expansion to a depth limit, then the `budget` best nodes (the article's section 3).

    head.state: what the head remembers of the committed text, (1, ...);
    head.read(states, tokens) -> log-probabilities of the next token (n, V), new states (n, ...),
    for n nodes at once: states of their parents, and their own tokens.
    -> Tree of at most budget + 1 nodes; scores, a list: of every node, 0.0 for the root.
    """
    tree, states = GrowingTree(root, depth, top_k, budget), head.state
    while tree.level:
        # A head is recurrent: a node starts from the state that its parent's read has left.
        log_probs, states = head.read(states[tree.origin], tree.to_read)  # (n, V), (n, W)
        tree.add(*best_children(log_probs, top_k))
    return tree.cut()


# ---------------------------------------------------------------- the router


def confidence(scores):
    """c = exp(s) of every node but the root, a list: back from log-scores to probabilities.

    scores: as for best_nodes. c of a node is the probability that its head gives to the whole path
    down to it. Source: the article's section 4.
    """
    return [math.exp(score) for score in scores[1:]]


def mean_confidence(scores):
    """One number for a head's tree, in [0, 1]; 0 for a tree that is only a root.

    scores: one cumulative log-score per row, the root's 0.0 first.
    Example: three drafted nodes with the path probabilities .8, .6, .1 make .5.
    Source: mu_h in the article's section 5.
    """
    # mu_h, the mean of c over the drafted nodes. The root is certain for both heads, so it says
    # nothing; where the context length ends, it stands alone.
    c = confidence(scores)
    return sum(c) / len(c) if c else 0.0


def expected_length(scores):
    """Another statistic: the sum of c instead of its mean; scores as for best_nodes.

    It is the number of drafts that the head expects to be accepted.
    """
    # c is the head's probability that a node is accepted, and an accepted path holds one node per
    # level. With equally many nodes in both trees the sum routes as the mean does.
    return sum(confidence(scores))


def route(statistics):
    """Which head's tree is verified: its index; the first head on a tie.

    statistics: one number per head, two or more. Example: .5 and .4 choose head 0.
    Source: the article's section 5.
    """
    # the article's h* = argmax over the heads of mu_h; -h: of equal numbers the first head's wins
    return max(range(len(statistics)), key=lambda h: (statistics[h], -h))


# ---------------------------------------------------------------- both heads in one read


def grow_trees(heads, trees):
    """grow_tree for H heads, with one read a level for all of them.

    heads: as one head, with an axis in front: state (H, 1, ...); read(states (H, n, ...), tokens,
    H lists of n) -> (H, n, V), (H, n, ...). trees: H GrowingTrees, each a root alone.
    -> for each head what grow_tree returns.
    """
    states, top_k = heads.state, max(tree.top_k for tree in trees)  # (H, 1, W)
    # The heads do not wait for each other's guesses, only for their own of the level before.
    while n := max(len(tree.level) for tree in trees):
        rows = [h * states.shape[1] + place  # of each node's parent, head after head
                for h, tree in enumerate(trees) for place in filled_up(tree.origin, n)]
        states = states.flatten(0, 1)[rows].unflatten(0, (len(trees), n))  # (H, n, W)
        tokens = [filled_up(tree.to_read, n) for tree in trees]
        log_probs, states = heads.read(states, tokens)  # (H, n, V), (H, n, W)
        for tree, values, ids in zip(trees, *best_children(log_probs, top_k), strict=True):
            tree.add(values, ids)
    return [tree.cut() for tree in trees]


def filled_up(numbers, n):
    """Levels differ in width, a batch does not. Example: ([5, 3], 4) -> [5, 3, 0, 0]."""
    return numbers + [0] * (n - len(numbers))  # what is read there is not used by any node


# ---------------------------------------------------------------- drafters for chapter 02's loop


def check_counts(**counts):
    """Raises ValueError if one of these counts is below 1."""
    for name, value in counts.items():
        if value < 1:
            raise ValueError(f"{name} is {value}; it must be at least 1")


class HeadDrafter:
    """One head alone: its best tree, every step.

    depth: levels below the root; top_k: children of an expanded node; budget: draft nodes kept.
    Raises ValueError if one of them is below 1.
    """

    def __init__(self, head, depth=6, top_k=3, budget=8):
        check_counts(depth=depth, top_k=top_k, budget=budget)
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
    """What every use of two heads shares: they are read together, and both advance on the accepted
    rows, no matter which head drafted them (the article's interchangeability lemma).

    drafters: two (or more) HeadDrafters, whose heads can be stacked; they keep their own states.
    """

    def __init__(self, drafters):
        self.drafters = drafters
        self.heads = drafters[0].head.stack([drafter.head for drafter in drafters])

    def reset(self):
        self.heads.reset()

    def observe(self, tokens, hidden, rows):
        """These tokens were committed; hidden[layer][:, rows] are the target's states of them."""
        # All heads at once, including the one that was not chosen: it may be chosen next time.
        self.heads.observe(tokens, hidden, rows)

    def propose_both(self, root, room):
        """-> the heads' trees, and for each the scores of its nodes."""
        planted = [GrowingTree(root, min(drafter.depth, room), drafter.top_k, drafter.budget)
                   for drafter in self.drafters]
        return tuple(zip(*grow_trees(self.heads, planted), strict=True))


class RoutedDrafter(BothHeads):
    """The chapter's drafter: both heads grow a tree, one of the trees is returned.

    choose(mu of every head) -> which one; another function makes another router.
    choices: the index chosen in every step so far; means: mu of every head in every step.
    """

    def __init__(self, drafters, choose=route):
        super().__init__(drafters)
        self.choose, self.choices, self.means = choose, [], []

    def propose(self, root, room):
        trees, scores = self.propose_both(root, room)
        self.means.append([mean_confidence(s) for s in scores])
        # Only drafts are looked at. A router that saw the target's draws would bias the text.
        self.choices.append(self.choose(self.means[-1]))
        return trees[self.choices[-1]]


def coin_flip(dice):
    """A router that flips a coin: routing without the confidence."""
    return lambda means: int(dice.flip(0.5))
