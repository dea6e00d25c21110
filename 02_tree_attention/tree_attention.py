"""Draft trees: several guesses for every position, verified in one forward.

A chain is lost at its first rejected token. A tree hedges: every node may have several children,
so a second guess is waiting where the first one fails. Three things change against the chain of
chapter 01:

    verify   attention follows the tree: a node sees the context, its ancestors and itself, and its
             position is its depth, not its row
    accept   the walk goes down from the root, child by child
    commit   the accepted path's rows lie scattered in the cache and are gathered

A chain is a tree of width 1, and with it this file reproduces chapter 01 bit for bit.

Sources: Miao et al., "SpecInfer" (2023), tree attention and multi-step speculative sampling;
Jeon et al., "Recursive Speculative Decoding" (2024), children without replacement. The article
"Tree-Based Speculative Decoding" builds the same tree, but its accept rule is not lossless: it
stands in cautionary_rule.py.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from chain_specdec import BigramDraft, GPTDraft, acceptance_probability, residual
from nanogpt.decoding import Context, Step, Stopwatch, tokens_on
from nanogpt.sampling import Sampler

# ---------------------------------------------------------------- the tree


def ancestor_mask(parents):
    """parents (N,) -> (N, N) bool, True where column j is row i itself or an ancestor of it.

    A row sees what its parent sees, and itself; a chain gives the causal mask. (In numpy: on rows
    this short, torch would spend its time on starting the operations.)
    """
    parents = parents.numpy()
    mask = np.eye(len(parents), dtype=bool)
    for row in range(1, len(parents)):
        mask[row] |= mask[parents[row]]
    return torch.from_numpy(mask)


@dataclass
class Tree:
    """A draft tree in flat form: row 0 is the root, parents come before their children.

    tokens (N,) long; parents (N,) long, parents[0] = -1 and parents[i] < i; both on the CPU.
    draft_probs (N, V) or None: row i is the draft distribution AT node i, the one that i's
    children were drawn or picked from (the same alignment as target_probs). None if the drafter
    has no such rows to give.
    Raises ValueError if the parents do not make a tree, or the lengths differ.

    The worked example of the article, cur -> c0 -> c2, c3 and cur -> c1 -> c4, c5, depth first:

        row      0    1   2   3   4   5   6
        token   cur  c0  c2  c3  c1  c4  c5
        parent  -1    0   1   1   0   4   4
        depth    0    1   2   2   1   2   2
    """

    tokens: torch.Tensor
    parents: torch.Tensor
    draft_probs: torch.Tensor | None = None

    def __post_init__(self):
        self.tokens, self.parents = torch.as_tensor(self.tokens), torch.as_tensor(self.parents)
        parents = self.parents.tolist()
        given = [len(x) for x in (self.tokens, self.draft_probs) if x is not None]
        if any(n != len(parents) for n in given):
            raise ValueError(f"{len(parents)} parents came with {given} tokens and draft_probs")
        in_order = all(0 <= parent < row for row, parent in enumerate(parents[1:], 1))
        if not parents or parents[0] != -1 or not in_order:
            raise ValueError(
                f"parents are {parents}; the first must be -1 and each other one the row of an "
                "earlier node"
            )

    def __len__(self):
        return len(self.tokens)

    @cached_property
    def mask(self):
        """(N, N) bool: row i may attend to column j, its ancestor or itself."""
        return ancestor_mask(self.parents)

    @cached_property
    def depths(self):
        """(N,) long: the number of proper ancestors. Siblings share a depth, so a position."""
        return self.mask.sum(1) - 1

    @cached_property
    def children(self):
        """For each row the list of its children's rows, in drafting order."""
        children = [[] for _ in range(len(self))]
        for row, parent in enumerate(self.parents.tolist()):
            if parent >= 0:
                children[parent].append(row)
        return children


# ---------------------------------------------------------------- draft


class TreeBigram(BigramDraft):
    """Chapter 01's bigram, asked about a whole level of the tree at once."""

    def level(self, tokens, parents):
        """tokens: n new nodes -> (n, V) logits after each; a bigram looks at nothing else."""
        return self.table[tokens]


class TreeGPT(GPTDraft):
    """Chapter 01's small GPT, drafting a tree with a tree mask of its own."""

    @torch.inference_mode()
    def level(self, tokens, parents):
        """Read n new nodes in one forward -> (n, V) logits after each.

        parents: their rows in the tree, all of earlier levels; [-1] for the root alone.
        """
        if parents == [-1]:
            self.seen = torch.ones(1, 1, dtype=torch.bool)  # (rows, rows): who sees whom
            return self.logits(tokens[0])[None]
        old, n = len(self.seen), len(tokens)
        grown = torch.zeros(old + n, old + n, dtype=torch.bool)
        grown[:old, :old] = self.seen
        grown[old:, :old] = self.seen[parents]  # what the parent sees, ...
        grown[old:, old:] = torch.eye(n, dtype=torch.bool)  # ... and itself
        self.seen = grown
        positions = self.committed + grown[old:].sum(1) - 1  # the depth counts, not the row
        logits, _ = self.model(
            tokens_on(self.model, tokens), positions.to(self.model.device), grown[old:], self.cache
        )
        self.cache.commit(list(range(n)))
        return logits[0]


def top(probs, n):
    """The n most probable tokens. probs (V,) -> a list; shorter if V < n."""
    return probs.topk(min(n, len(probs))).indices.tolist()


def draw_without_replacement(probs, n, dice):
    """n different tokens, drawn one after the other from what is left. probs (V,) -> a list.

    Shorter if fewer than n tokens have a positive probability.
    """
    tokens, left = [], probs.clone()
    while len(tokens) < n and left.sum() > 0:
        tokens.append(dice.draw(left / left.sum()))
        left[tokens[-1]] = 0
    return tokens


class TreeDrafter:
    """Grows trees of a fixed shape from a draft model.

    model: TreeBigram or TreeGPT; branching: children per node for each level, (2, 2, 2) for the
    full binary tree of depth 3, (1, 1, 1) for a chain. With a dice, children are drawn without
    replacement through the sampler, as `multi_round` demands; without, they are the top tokens,
    which only `walk` may judge.
    Raises ValueError for a branching below 1.
    """

    def __init__(self, model, branching, sampler=None, dice=None):
        if any(width < 1 for width in branching):
            raise ValueError(f"branching is {branching}; every level needs 1 child or more")
        self.model, self.branching, self.dice = model, tuple(branching), dice
        # The most probable tokens are the same at any temperature, 0 included.
        self.sampler = sampler if dice is not None else Sampler()
        self.reset, self.observe = model.reset, model.observe

    def propose(self, root, room):
        """root: a token; room: the deepest level that fits the window -> Tree."""
        tokens, parents, draft_probs, level = [root], [-1], [], [0]
        for width in self.branching[:room]:
            logits = self.model.level([tokens[i] for i in level], [parents[i] for i in level])
            for node, probs in zip(level, self.sampler(logits).cpu(), strict=True):
                draft_probs.append(probs)  # (V,)
                picked = (top(probs, width) if self.dice is None
                          else draw_without_replacement(probs, width, self.dice))
                tokens += picked
                parents += [node] * len(picked)
            level = list(range(level[-1] + 1, len(tokens)))
        # The deepest level was never asked; its rows of draft_probs stay zero.
        unasked = [torch.zeros_like(draft_probs[0])] * len(level) if draft_probs else []
        return Tree(tokens, parents, torch.stack(draft_probs + unasked) if draft_probs else None)


# ---------------------------------------------------------------- verify


def verify(target, cache, tree):
    """One forward over all nodes: tree mask, depth positions.

    -> logits (N, V): row i is the target's opinion on the token after node i, given the context
    and the path to i; hidden: see GPT.forward. The cache holds N new rows, none committed.
    """
    positions = cache.length + tree.depths  # (N,)
    device = target.device
    logits, hidden = target(
        tree.tokens[None].to(device), positions.to(device), tree.mask, cache
    )
    return logits[0], hidden


# ---------------------------------------------------------------- accept


def walk(tree, target_probs, dice):
    """Draw the target's own token; while a child carries it, go there.

    Lossless for ANY tree, however its nodes were chosen, because every emitted token is a draw
    from the target at its own prefix; the tree only decides how many draws one forward serves.
    tree: N nodes; target_probs (N, V) -> path, a list of rows starting with 0; the next token.
    """
    path, tokens = [0], tree.tokens.tolist()
    while True:
        token = dice.draw(target_probs[path[-1]])
        matching = [c for c in tree.children[path[-1]] if tokens[c] == token]
        if not matching:
            return path, token
        path.append(matching[0])


def walk_by_coins(tree, target_probs, dice):
    """The walk in other words: offer the children one by one instead of drawing the token.

    Child x stays with probability target(x); if it does not, x is ruled out and the target is
    renormalised. Same law as `walk`, so a deterministic child may be tested against the target's
    probability, but never against a ratio. Arguments and result as `walk`.
    """
    path = [0]
    while True:
        left = target_probs[path[-1]].clone()
        for child in tree.children[path[-1]]:
            if dice.flip(float(left[tree.tokens[child]] / left.sum())):
                path.append(child)
                break
            left[tree.tokens[child]] = 0
        else:
            return path, dice.draw(left / left.sum())


def multi_round(tree, target_probs, dice):
    """Multi-round rejection: chapter 01's coin for each child in turn.

    For children drawn without replacement from draft_probs. After a rejection the target becomes
    the residual, and the draft distribution loses the rejected token; both are normalised, so the
    next child is judged as if it were the first. Accepts more often than the walk where the
    drafter is good. (Jeon et al., recursive rejection sampling.)
    Arguments and result as `walk`; a tree with drafts must carry draft_probs.
    """
    path = [0]
    while True:
        node = path[-1]
        target_left = target_probs[node]
        draft_left = tree.draft_probs[node] if tree.children[node] else None
        for child in tree.children[node]:
            token = int(tree.tokens[child])
            if dice.flip(acceptance_probability(target_left, draft_left, token)):
                path.append(child)
                break
            target_left = residual(target_left, draft_left)
            draft_left = draft_left.clone()
            draft_left[token] = 0
            draft_left = draft_left / draft_left.sum()
        else:
            return path, dice.draw(target_left)


# ---------------------------------------------------------------- the loop


@dataclass
class TreeRound:
    """A round's record, in Step.detail: the tree of N nodes, the accepted rows from 0 on, and
    target_probs (N, V)."""

    tree: Tree
    path: list
    target_probs: torch.Tensor


@torch.inference_mode()
def speculate(target, drafter, prompt, sampler, dice, accept=walk, sync=False):
    """Speculative decoding with trees. Yields a Step per target forward, for ever.

    The first step is the prefill; a later step's detail is a TreeRound.
    drafter: anything with
        reset()                         a new context begins
        observe(tokens, hidden, rows)   these tokens were committed; the target's hidden states of
                                        them are hidden[layer][:, rows]
        propose(root, room) -> Tree     at most `room` deep
    accept: (tree, target_probs, dice) -> (path, token), any rule of this chapter or a later one.
    Raises ValueError if the prompt is empty or a tree is deeper than the window has room.
    """
    context = Context(target, prompt)
    watch = Stopwatch(target.device, sync)
    root = dice.draw(sampler(context.begin(drafter)))
    yield Step([root], seconds=watch.seconds)

    while True:
        watch.start()
        if context.full:
            context.begin(drafter)
        tree = drafter.propose(root, context.room)
        watch.lap("draft")
        depth = int(tree.depths.max())  # makes the mask: the first of what verifying costs
        if depth > context.room:
            raise ValueError(f"the tree is {depth} deep; only {context.room} fit")
        logits, hidden = verify(target, context.cache, tree)
        target_probs = sampler(logits).cpu()  # (N, V)
        watch.lap("verify")
        path, token = accept(tree, target_probs, dice)
        watch.lap("accept")
        tokens = tree.tokens[path].tolist()  # the root and the accepted drafts
        context.commit(path, tokens)
        drafter.observe(tokens, hidden, path)
        watch.lap("commit")
        yield Step([*tokens[1:], token], len(tree) - 1, watch.seconds,
                   detail=TreeRound(tree, path, target_probs))
        root = token
