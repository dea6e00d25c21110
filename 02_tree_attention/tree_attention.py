"""Draft trees: several guesses for every position, verified in one forward.

A chain is lost at its first rejected token. A tree hedges: every node may have several children,
so a second guess is waiting where the first one fails. Three things change compared with the chain
of chapter 01:

    verify   attention follows the tree: a node sees the context, its ancestors and itself, and its
             position is its depth, not its row
    accept   the walk goes down from the root, child by child
    commit   the accepted path's rows lie scattered in the cache and are gathered

A chain is a tree of width 1, and with it this file reproduces chapter 01 bit for bit.

Sources: Miao et al., "SpecInfer" (2023), tree attention and multi-step speculative sampling; Jeon
et al., "Recursive Speculative Decoding" (2024), children without replacement. A natural rule that
is not lossless is in tree_room.py.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F

from chain_specdec import BigramDraft, GPTDraft, acceptance_probability, residual  # chapter 01
from nanogpt.decoding import Context, Step
from nanogpt.sampling import Sampler

# ---------------------------------------------------------------- the tree


def ancestor_mask(parents):
    """parents (N,) -> (N, N) bool, True where column j is row i itself or an ancestor of it."""
    parents = parents.numpy()  # on rows this short, starting torch's operations would cost most
    mask = np.eye(len(parents), dtype=bool)  # every row sees itself, ...
    for row in range(1, len(parents)):
        mask[row] |= mask[parents[row]]  # ... and what its parent sees, whose row is complete
    return torch.from_numpy(mask)  # of a chain it is the causal mask


@dataclass
class Tree:
    """A draft tree in flat form: row 0 is the root, parents come before their children.

    draft_probs: row i is what the drafter expects AFTER node i, so what i's children were drawn or
    picked from (target_probs are aligned alike). None if the drafter has no such rows to give.
    Raises ValueError if the parents do not make a tree.

    Two children everywhere, depth 2, one path after the other:

        row       0   1   2   3   4   5   6
        parent   -1   0   1   1   0   4   4
        depth     0   1   2   2   1   2   2
    """

    tokens: torch.Tensor  # (N,) long, on the CPU
    parents: torch.Tensor  # (N,) long, on the CPU; parents[0] = -1 and parents[i] < i
    draft_probs: torch.Tensor | None = None  # (N, V)

    def __post_init__(self):
        self.tokens, self.parents = torch.as_tensor(self.tokens), torch.as_tensor(self.parents)
        parents = self.parents.tolist()
        in_order = all(0 <= parent < row for row, parent in enumerate(parents[1:], 1))
        if not parents or parents[0] != -1 or not in_order:
            raise ValueError(f"parents are {parents}; the first must be -1 and each other one the "
                             "row of an earlier node")

    def __len__(self):
        return len(self.tokens)

    @cached_property
    def mask(self):
        """(N, N) bool: row i may attend to column j, its ancestor or itself."""
        return ancestor_mask(self.parents)

    @cached_property
    def depths(self):
        """(N,) long: the number of proper ancestors. Siblings share a depth, so a position."""
        return self.mask.sum(1) - 1  # a row sees its ancestors, and itself

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
        """tokens: n new nodes -> (n, V) logits after each."""
        return self.table[tokens]  # a bigram looks at nothing else, not even at the parents


class TreeGPT(GPTDraft):
    """Chapter 01's small GPT, drafting a tree with a tree mask of its own."""

    @torch.inference_mode()
    def level(self, tokens, parents):
        """Read n new nodes in one forward -> (n, V) logits after each.

        parents: their rows in the tree, all of earlier levels; [-1] for the root alone.
        """
        n = len(tokens)
        if parents == [-1]:  # the root begins a tree
            self.seen = torch.ones(1, 1, dtype=torch.bool)  # (rows, rows): who sees whom
        else:
            # A new row sees what its parent sees, and itself: the tree's mask, level by level.
            new = torch.cat([self.seen[parents], torch.eye(n, dtype=torch.bool)], 1)
            self.seen = torch.cat([F.pad(self.seen, (0, n)), new])  # older rows see no new one
        new = self.seen[-n:]  # (n, rows)
        if new.all():  # one row that sees all before it, as in a chain: it needs no mask
            return self.logits(tokens[0])[None]  # (1, V)
        positions = self.committed + new.sum(1) - 1  # the depth counts, not the row
        logits, _ = self.model(torch.tensor([tokens]), positions, new,
                               self.cache)  # (1, n, V)
        self.cache.commit(list(range(n)))  # for the next level only; `observe` forgets them again
        return logits[0]


class PickedDraft:
    """A drafter of chapter 01 that picks its drafts in place of drawing them, and says so.

    Chapter 01's coin is then p, and its residual p without the draft: that is the walk.
    """

    def __init__(self, drafter):
        self.drafter, self.reset, self.observe = drafter, drafter.reset, drafter.observe

    def logits(self, token):
        """Read one more token -> (V,), whose softmax is 1 for the favourite: q as it is."""
        logits = self.drafter.logits(token)
        return torch.full_like(logits, -torch.inf).index_fill(0, logits.argmax(), 0)


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
        left[tokens[-1]] = 0  # an equal sibling would only repeat a question that is answered
    return tokens


def full(branching):
    """The shape of a tree with so many children at every node of each level.

    A shape is a tuple with the shapes of a node's children; a leaf's is (). A chain of 2 is
    (((),),), and two children with a leaf below each are (((),), ((),)).
    """
    shape = ()
    for width in reversed(branching):
        shape = (shape,) * width
    return shape


def expected_by_shape(shape, chances):
    """Tokens a round, the target's own included, if at every node child i is accepted with
    chances[i], whatever happened elsewhere."""
    return 1 + sum(chance * expected_by_shape(child, chances)
                   for chance, child in zip(chances, shape, strict=False))


def best_shape(drafts, chances, levels=math.inf):
    """The shape of so many drafts, on so many levels at most, with the most expected tokens.

    chances: see above; they fall.

    Example: chances (.6, .3). The probabilities to get there are .6 and .36 along the chain, and
    .3 for a second guess at the root: three drafts are a chain of 2 with one side shoot.
    """
    found, paths = [(chance, (i,)) for i, chance in enumerate(chances)], set()
    while found and len(paths) < drafts:  # a path: which child, at each node from the root on
        mass, path = best = max(found)
        found.remove(best)
        paths.add(path)
        if len(path) < levels:
            found += [(mass * chance, (*path, i)) for i, chance in enumerate(chances)]

    def below(path):
        return tuple(below((*path, i)) for i in range(len(chances)) if (*path, i) in paths)

    return below(())


class TreeDrafter:
    """Grows trees of a fixed shape from a draft model, level by level.

    model: TreeBigram or TreeGPT; branching: children per node for each level, (2, 2, 2) for the
    full binary tree of depth 3, (1, 1, 1) for a chain; or a shape, see `full`. With a dice,
    children are drawn without replacement, as `multi_round` demands; without, they are the top
    tokens, which only `walk` may judge. Raises ValueError for a branching below 1.
    """

    def __init__(self, model, branching, sampler=None, dice=None):
        self.model, self.shape, self.dice = model, branching, dice
        if isinstance(branching[0], int):
            if min(branching) < 1:
                raise ValueError(f"branching is {branching}; every level needs 1 child or more")
            self.shape = full(branching)
        # The top tokens are the same at any temperature, but a one-hot at temperature 0 knows only
        # the first of them.
        self.sampler = sampler if dice is not None else Sampler()
        self.reset, self.observe = model.reset, model.observe  # the tree itself has no memory

    def propose(self, root, room):
        """root: a token; room: the deepest level that fits the window -> Tree."""
        tokens, parents, draft_probs, level = [root], [-1], [], [0]
        shapes = [self.shape]  # of each node: what grows below it
        for _ in range(room):
            if not any(shapes[node] for node in level):
                break
            # One forward of the drafter for a whole level, where a chain needs one for each token.
            logits = self.model.level([tokens[i] for i in level], [parents[i] for i in level])
            for node, probs in zip(level, self.sampler(logits).cpu(), strict=True):
                draft_probs.append(probs)  # (V,)
                width = len(shapes[node])
                children = (top(probs, width) if self.dice is None
                            else draw_without_replacement(probs, width, self.dice))
                tokens += children
                parents += [node] * len(children)
                shapes += shapes[node][:len(children)]
            level = list(range(level[-1] + 1, len(tokens)))  # the children of the level before
        if not draft_probs:  # no room below the root
            return Tree(tokens, parents)
        # The deepest level has no children, so it was never asked: its rows stay zero.
        return Tree(tokens, parents, F.pad(torch.stack(draft_probs), (0, 0, 0, len(level))))


# ---------------------------------------------------------------- verify


def verify(context, tree, sampler):
    """One forward over all nodes: tree mask, depth positions.

    -> target_probs (N, V): row i is the target's distribution of the token after node i; hidden:
    see GPT.forward. The cache of the context holds N new rows, none committed.
    Raises ValueError if the tree is deeper than the window has room.
    """
    if len(tree) == 1:  # the root alone: a step of plain decoding, which needs no mask
        return context.verify(tree.tokens.tolist(), sampler)
    depth = int(tree.depths.max())
    if depth > context.room:
        raise ValueError(f"the tree is {depth} deep; only {context.room} fit")
    # Siblings are candidates for the same place in the text, so they share its position.
    positions = context.cache.length + tree.depths  # (N,)
    # The mask is (N, N): the context before it is visible to all. So row i answers as if the
    # context and the path to i were the whole text.
    return context.verify(tree.tokens.tolist(), sampler, positions, tree.mask)


# ---------------------------------------------------------------- accept


def walk(tree, target_probs, dice):
    """The target's own draws decide. Lossless for ANY tree, however its nodes were chosen.

    tree: N nodes; target_probs (N, V): row i is the target's distribution after node i.
    -> path, a list of rows starting with 0; the next token, which the target adds behind it.
    """
    path, tokens = [0], tree.tokens.tolist()
    while True:
        # Draw the target's own token, as plain decoding would, and without a look at the children.
        # If one of them has it, go there: the row of the next draw is computed already. The tree
        # only decides how many such draws one forward serves.
        token = dice.draw(target_probs[path[-1]])
        matching = [c for c in tree.children[path[-1]] if tokens[c] == token]
        if not matching:
            return path, token  # nobody guessed it: it is emitted all the same, as the target's own
        path.append(matching[0])  # of equal siblings the first: its row has read the same prefix


def multi_round(tree, target_probs, dice):
    """Multi-round rejection (Jeon et al., RRS), lossless for children drawn without replacement.

    They were drawn from tree.draft_probs (N, V). Arguments and result as `walk`.
    """
    path = [0]
    while True:
        node = path[-1]
        target_left = target_probs[node]  # (V,) what the next token must still be drawn from
        draft_left = tree.draft_probs[node] if tree.children[node] else None  # (V,)
        for child in tree.children[node]:
            token = int(tree.tokens[child])
            # Chapter 01's coin for each child in turn. min(1, p / q) >= p: a drawn first child is
            # accepted at least as often as in the walk.
            if dice.flip(acceptance_probability(target_left, draft_left, token)):
                path.append(child)
                break
            # Rejected. As in chapter 01, the target now owes the residual only, whichever token was
            # rejected. It takes the target's place, and what the next child was drawn from takes
            # the drafter's: the next child is judged as if it were the first.
            target_left = residual(target_left, draft_left)
            draft_left = draft_left.clone()  # the tree keeps its own
            draft_left[token] = 0
            draft_left = draft_left / draft_left.sum()  # 0 / 0 behind the last possible child only
        else:  # no child was accepted; if there was none, target_left is still the target
            return path, dice.draw(target_left)


# ---------------------------------------------------------------- the loop


@dataclass
class TreeRound:
    """A round's record, in Step.detail."""

    tree: Tree  # N nodes
    path: list  # the accepted rows, from the root's 0 on
    target_probs: torch.Tensor  # (N, V)


class Drafter(Protocol):
    """What the loop asks of a drafter, whatever it is."""

    def reset(self):
        """A new context begins."""

    def observe(self, tokens, hidden, rows):
        """These tokens were committed; hidden[layer][:, rows]: the target's states of them."""

    def propose(self, root, room) -> Tree:
        """Drafts below the root, at most `room` deep."""


@torch.inference_mode()
def speculate(target, drafter: Drafter, prompt, sampler, dice, accept=walk):
    """Speculative decoding with trees. Yields a Step per round, without end.

    The first step is the prefill; a later step's detail is a TreeRound.
    accept: (tree, target_probs, dice) -> (path, token), any rule of this chapter or a later one.
    Raises ValueError if the prompt is empty or a tree is deeper than the window has room.
    """
    context = Context(target, prompt)  # the text so far, and the target's KV cache of it
    # Prefill: one forward reads the prompt, the drafter is reset and told what was read, and the
    # logits (V,) after the last token come back.
    root = dice.draw(sampler(context.begin(drafter)))
    yield Step([root])

    while True:
        if context.full:  # no row is free: prefill anew, from the last block_size // 2 tokens
            context.begin(drafter)
        tree = drafter.propose(root, context.room)  # room: positions left behind the root's
        target_probs, hidden = verify(context, tree, sampler)  # (N, V)
        path, token = accept(tree, target_probs, dice)
        tokens = tree.tokens[path].tolist()  # the root and the accepted drafts
        # The cache gathers the path's rows behind its committed ones and forgets the others.
        context.commit(path, tokens)
        drafter.observe(tokens, hidden, path)
        yield Step([*tokens[1:], token], len(tree) - 1,
                   detail=TreeRound(tree, path, target_probs))
        root = token  # chosen, but not yet read
