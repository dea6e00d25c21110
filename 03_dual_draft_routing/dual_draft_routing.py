"""Dual draft routing: two heads draft a tree each, only the more confident tree is verified.

    draft    both heads grow a tree below the same root; each tree gets one number, the mean
             confidence of its nodes, and the tree with the larger one is kept
    verify   one forward over that tree, as in chapter 02
    accept   the walk of chapter 02
    commit   BOTH heads take the target's hidden states of the accepted tokens, no matter which head
             drafted them, so either may be chosen in the next step

The target draws every token of the text itself (the walk), so no choice between trees can change
the distribution of the text. Routing changes only how many tokens one forward brings.

Source: Zbib et al., "TAPS", 2026, arXiv:2603.27027 (code: Moe-Zbeeb/TAPS, ea_model_dual.py).
A node's score is s_{h,i}, its confidence c_{h,i}, the mean confidence mu_h, the budget N_h.
"""

import copy
import math
from collections import deque

import numpy as np
import torch

from nanogpt.bench import by_past
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


def keep_rows(tokens, parents, scores, rows):
    """The tree that these rows of a flat tree make; its parents are renumbered.

    tokens, parents, scores: lists, an entry per row; rows: rising, the root first, closed under
    taking parents -> Tree, scores.
    """
    place = {-1: -1} | {row: new for new, row in enumerate(rows)}  # -1, the root's parent, stays
    tree = Tree([tokens[row] for row in rows], [place[parents[row]] for row in rows])
    return tree, [scores[row] for row in rows]


def grow_tree(head, root, depth, top_k, budget):
    """Top-k expansion to a depth limit, then the `budget` best nodes.

    head.state: what the head remembers of the committed text, (1, ...);
    head.read(states, tokens) -> log-probabilities of the next token (n, V), new states (n, ...),
    for n nodes at once: states of their parents, and their own tokens.
    -> Tree of at most budget + 1 nodes; scores, a list: of every node, 0.0 for the root.
    """
    tokens, parents, scores = [root], [-1], [0.0]
    level, states = [0], head.state  # the rows to read next, and their parents' states
    for _ in range(depth):
        log_probs, states = head.read(states, [tokens[row] for row in level])  # (n, V), (n, ...)
        best = log_probs.topk(min(top_k, log_probs.shape[-1]), -1)  # k children for each node
        first = len(tokens)
        for node, values, ids in zip(level, best.values.tolist(), best.indices.tolist(),
                                     strict=True):
            tokens += ids
            parents += [node] * len(ids)
            scores += [scores[node] + value for value in values]  # s_{h,i}
        # A node outside the best `budget` so far has no descendant inside the best `budget` of the
        # whole tree. So at most `budget` nodes per level are read, instead of top_k ** depth.
        kept = [row for row in best_nodes(scores, budget) if row >= first]
        if not kept:
            break
        # A head is recurrent: a node starts from the state that its parent's read has left.
        states = states[[level.index(parents[row]) for row in kept]]
        level = kept
    return keep_rows(tokens, parents, scores, best_nodes(scores, budget))


# ---------------------------------------------------------------- the router


def confidence(scores):
    """c = exp(s) of every node but the root, a list: back from log-scores to probabilities.

    scores: as for best_nodes. c of a node is the probability that its head gives to the whole path
    down to it.
    """
    return [math.exp(score) for score in scores[1:]]


def mean_confidence(scores):
    """One number for a head's tree, in [0, 1]; 0 for a tree that is only a root.

    scores: one cumulative log-score per row, the root's 0.0 first.
    Example: three drafted nodes with the path probabilities .8, .6, .1 make .5.
    """
    # mu_h, the mean of c over the drafted nodes. The root is certain for both heads, so it says
    # nothing; where the context length ends, it stands alone.
    c = confidence(scores)
    return sum(c) / len(c) if c else 0.0


def route(statistics):
    """Which head's tree is verified: its index; the first head on a tie.

    statistics: one number per head, two or more. Example: .5 and .4 choose head 0.
    """
    # h* = argmax over the heads of mu_h; -h: of equal numbers the first head's wins
    return max(range(len(statistics)), key=lambda h: (statistics[h], -h))


@torch.inference_mode()
def votes(target, heads, text):
    """What each token of a text says for the first of two heads: the logarithm of what this head
    gave to it, less the second's. -> a list; of the two first tokens 0, for no head guessed them.
    """
    _, hidden = target(torch.tensor([text[:-1]]))
    one, two = (head.read(head.features(hidden)[0, :-1], text[1:-1])[0] for head in heads)
    return [0.0, 0.0, *(one - two)[range(len(text) - 2), text[2:]].tolist()]


def odds(votes, change=1 / 32):
    """Bayes' rule, token by token -> after each one the log odds that the *next* token is the first
    head's kind, if the kind changes in front of every token with this chance."""
    found, now, stay = [], 0.0, 1 - change
    for vote in votes:
        now += vote
        now = float(np.logaddexp(now + np.log(stay), np.log(change))
                    - np.logaddexp(now + np.log(change), np.log(stay)))
        found.append(now)
    return found


# ---------------------------------------------------------------- routers, on a finished text


def by_record(steps):
    """by_past, if each round takes the head whose trees hold more of the text so far."""
    def best(past, root):
        # Both heads drafted in each of these rounds, and by now the text says who was right for
        # longer: root - one tokens of it are known. Of equal records, as in the first round, the
        # surer head's.
        return max((0, 1), key=lambda head: (
            sum(min(steps[one].lengths[head], root - one) for one in past),
            steps[root].means[head]))

    return by_past(steps, best)


def odds_of(steps):
    """{position: `odds` when this token is known, of the prompt and the text}."""
    first = min(steps)
    told = odds([*steps[first].before, *(steps[root].vote for root in sorted(steps))])
    return dict(zip(sorted(steps), told[len(steps[first].before):], strict=True))


def by_letters(steps):
    """by_past, if each round takes the head for which the letters speak."""
    told = odds_of(steps)
    return by_past(steps, lambda past, root: int(told[root] < 0))


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
        self.head = copy.copy(head)  # the text so far is this drafter's own, the weights are not
        self.depth, self.top_k, self.budget = depth, top_k, budget

    def reset(self):
        self.head.reset()

    def observe(self, tokens, hidden, rows):
        self.head.observe(tokens, hidden, rows)

    def propose_scored(self, root, room):
        """-> Tree and its scores; see grow_tree."""
        return grow_tree(self.head, root, min(self.depth, room), self.top_k, self.budget)

    def propose(self, root, room):
        return self.propose_scored(root, room)[0]


def drafters(heads, budget=8, **shape):
    """A HeadDrafter for each head."""
    return [HeadDrafter(head, budget=budget, **shape) for head in heads]


class ColderHead:
    """A head, made surer: its distributions at a temperature below 1.

    A head has learned the target's distributions at temperature 1. Beside a colder target its best
    tree is narrower and deeper. The walk is lossless with any.
    """

    def __init__(self, head, temperature):
        self.head, self.temperature = copy.copy(head), temperature  # see HeadDrafter
        self.reset, self.observe = self.head.reset, self.head.observe

    @property
    def state(self):
        return self.head.state

    def read(self, states, tokens):
        """See DraftHead.read."""
        log_probs, states = self.head.read(states, tokens)
        return torch.log_softmax(log_probs / self.temperature, -1), states


def colder(head, temperature):
    """The ColderHead for a target at this temperature. At 1 it is what it has learned; at 0, where
    a quarter wrote the most on held-out prompts, it is nearly sure of its favourite."""
    return ColderHead(head, 0.25 + 0.75 * temperature)


class HeadLevels:
    """One head as a draft model for chapter 02's TreeDrafter: its drafts can be drawn, too.

    So any drawn tree or chain of a head's is judged by the rules that know q (multi_round). It is
    how EAGLE drafts above temperature 0.
    """

    def __init__(self, head):
        self.head = copy.copy(head)  # see HeadDrafter
        self.reset, self.observe = self.head.reset, self.head.observe

    def level(self, tokens, parents):
        """n new nodes, their tokens and their parents' rows -> (n, V) logits after each."""
        if parents == [-1]:  # the root: a new round starts from the text
            self.states, start = self.head.state[:0], self.head.state
        else:
            start = self.states[parents]  # (n, W)
        log_probs, states = self.head.read(start, tokens)  # (n, V), (n, W)
        self.states = torch.cat([self.states, states])  # a row for each node so far
        return log_probs


class HeadDraft:
    """The same for chapter 01's loop, which asks for one token at a time."""

    def __init__(self, head):
        self.levels = HeadLevels(head)
        self.reset = self.levels.reset

    def observe(self, tokens, hidden, rows):
        """These tokens were committed; see chapter 02's Drafter."""
        self.levels.observe(tokens, hidden, rows)
        self.row = -1  # what is read next is a root

    def logits(self, token):
        """Read one more token -> (V,), the logits of the token after it."""
        self.row += 1
        return self.levels.level([token], [self.row - 1])[0]


class BothHeads:
    """What every use of two heads shares: both advance on the accepted rows, no matter which head
    drafted them.

    drafters: two (or more) of one kind.
    """

    def __init__(self, drafters):
        self.drafters = drafters

    def reset(self):
        for drafter in self.drafters:
            drafter.reset()

    def observe(self, tokens, hidden, rows):
        """These tokens were committed; hidden[layer][:, rows] are the target's states of them."""
        # All heads, including the one that was not chosen: it may be chosen next time.
        for drafter in self.drafters:
            drafter.observe(tokens, hidden, rows)

    def propose_both(self, root, room):
        """-> the heads' trees, and for each the scores of its nodes."""
        proposals = (drafter.propose_scored(root, room) for drafter in self.drafters)
        return tuple(zip(*proposals, strict=True))


class RoutedLevels(BothHeads):
    """Routing for drafts that are drawn: one head, chosen before anything is drawn.

    The rules that know q take each draft for a draw from q. So the choice may look at the text, the
    root and what the heads would draw from; who looks at the draws has made another q of them.
    """

    def __init__(self, heads):
        super().__init__([HeadLevels(head) for head in heads])

    def level(self, tokens, parents):
        """n new nodes, see HeadLevels.level -> (n, V) logits of the chosen head."""
        if parents != [-1]:
            return self.chosen.level(tokens, parents)
        rows = [head.level(tokens, parents) for head in self.drafters]  # what they would draw from
        which = self.choose(tokens[0], rows)
        self.chosen = self.drafters[which]  # it alone drafts on
        return rows[which]

    def choose(self, root, rows):
        """-> a head's index. rows: of each head, log-probabilities (1, V) of the token after the
        root. The surer head: how likely is each one's favourite?"""
        return route([float(row.max()) for row in rows])


class RecordLevels(RoutedLevels):
    """RoutedLevels that asks past rounds: which head had given more to the tokens that came?

    last: how many rounds are remembered, default all.
    """

    def __init__(self, heads, last=None):
        super().__init__(heads)
        self.last = last

    def reset(self):
        super().reset()
        self.asked, self.record = None, deque(maxlen=self.last)

    def observe(self, tokens, hidden, rows):
        super().observe(tokens, hidden, rows)
        self.read = list(tokens)  # the root of the last choice, and the drafts accepted below it

    def choose(self, root, rows):
        """See RoutedLevels. Text alone is looked at, and it was written before these draws."""
        if self.asked:
            came = int([*self.read, root][1])  # after the last root
            self.record.append([float(row[0, came]) for row in self.asked])
        self.asked = rows
        # The sum of the logarithms; of equal ones, as in the first round, the surer head's.
        return route([(sum(past[head] for past in self.record), float(row.max()))
                      for head, row in enumerate(rows)])


class RoutedDrafter(BothHeads):
    """The chapter's drafter: both heads grow a tree, one of the trees is returned.

    choose(mu of every head) -> which one; another function makes another router.
    choices: the index chosen in every step so far.
    """

    def __init__(self, drafters, choose=route):
        super().__init__(drafters)
        self.choose, self.choices = choose, []

    def propose(self, root, room):
        trees, scores = self.propose_both(root, room)
        # Only drafts are looked at. A router that saw the target's draws would bias the text.
        self.choices.append(self.choose([mean_confidence(s) for s in scores]))
        return trees[self.choices[-1]]
