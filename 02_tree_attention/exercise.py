"""Chapter 02: 6 blanks to fill. Grade them with

    python tests/grade.py 02

ask for a hint with `--hint NAME`, for a stronger one with `--hint NAME --more`, and, when some are
done, see them decode beside the taught ones with `--run`. Replace each `raise NotImplementedError`
by your own lines; a blank that you leave empty disturbs no other.

* dice.draw(probs) draws a token, an int, from probs (V,), which need not add up to 1;
  dice.flip(a) is True with probability a.
* sampler(logits) makes of logits (.., V) the distribution after temperature.
* a tree has N rows, parents before children; row 0, the root, is a token of the text.
  tree.tokens, .parents (-1 for the root) and .depths are (N,); .mask (N, N) is True where the
  column is the row itself or an ancestor of it; .children[row] is the list of its children's
  rows; .draft_probs (N, V) may be None.
* acceptance_probability(target_probs, draft_probs, token): The probability with which a draft
  token is accepted. target_probs, draft_probs: (V,).
* residual(target_probs, draft_probs): The distribution that the target draws from after a
  rejection. (V,), (V,) -> (V,)
"""

import numpy as np
import torch
from chain_specdec import acceptance_probability, residual

# ** Row i may attend to column j if j is i itself or an ancestor of i. Build the mask from the
# parents: a torch tensor (N, N) of booleans. parents, (N,) in torch, stands with parents before
# their children; parents[0] is -1.
# About 5 lines, 8 minutes.
# Example: parents (-1, 0, 1, 1, 0, 4) -> [[1, 0, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0], [1, 1, 1, 0,
#   0, 0], [1, 1, 0, 1, 0, 0], [1, 0, 0, 0, 1, 0], [1, 0, 0, 0, 1, 1]]


def ancestor_mask(parents):
    """parents (N,) -> (N, N) bool, True where column j is row i itself or an ancestor of it."""
    raise NotImplementedError("not yet: ancestor_mask")


# ** One forward over the root and all drafts of a tree. What is the position of a row, and what
# may it see? context.verify(tokens, sampler, positions, mask) reads the N tokens, a list,
# behind the context.cache.length rows of the text, to which no column of the mask belongs;
# positions (N,) and mask (N, N) are tensors. It returns target_probs and hidden: hand them on.
# Positions count from 0. (That the tree fits the window is not asked.)
# About 5 lines, 6 minutes.
# Example: 20 rows of text, tokens (7 1 2 0 2 1), parents (-1 0 1 1 0 4): of each row its token,
#   its position, and the rows of the tree that it sees -> [{0: [7, 20, [0]], 1: [1, 21, [0,
#   1]], 2: [2, 22, [0, 1, 2]], 3: [0, 22, [0, 1, 3]], 4: [2, 21, [0, 4]], 5: [1, 22, [0, 4,
#   5]]}, 'hidden']


def verify(context, tree, sampler):
    """One forward over all nodes: tree mask, depth positions.

    -> target_probs (N, V): row i is the target's distribution of the token after node i; hidden:
    see GPT.forward. The cache of the context holds N new rows, none committed.
    Raises ValueError if the tree is deeper than the window has room.
    """
    raise NotImplementedError("not yet: verify")


# ** Keep these new rows of the KV cache, in this order, right behind the committed ones.
# self.kv is (layers, 2, batch, heads, rows, head width); its last axis but one counts the rows.
# self.length says how many are committed: new row 0 lies at index self.length, and at the end
# the kept rows count, too. Any order may be asked for. Nothing is returned.
# About 5 lines, 8 minutes.
# Example: length 2, keys 0..7, values 10..17, commit [0, 2, 3]: length, keys and values after
#   -> [5, [[0, 1, 2, 4, 5], [10, 11, 12, 14, 15]]]


def commit(self, rows):
    """Keep the new rows with these indices (0 = first row behind `length`), in this order.

    rows: a list of ints; everything else is forgotten.
    """
    raise NotImplementedError("not yet: commit")


# ** Judge a tree whose nodes were chosen in any way. Stand at the root and draw the target's
# own token, as plain decoding would, before you look at the children. What if a child has it?
# What if none does? Return the path, a list of rows that starts with 0, and the token that the
# target adds behind it.
# About 6 lines, 8 minutes.
# Example: tokens (7 1 2 0 2 1), parents (-1 0 1 1 0 4), the target says 2, then 1, then 0:
#   path, next token -> [[0, 4, 5], 0]


def walk(tree, target_probs, dice):
    """The target's own draws decide. Lossless for ANY tree, however its nodes were chosen.

    tree: N nodes; target_probs (N, V): row i is the target's distribution after node i.
    -> path, a list of rows starting with 0; the next token, which the target adds behind it.
    """
    raise NotImplementedError("not yet: walk")


# ** Draw n different tokens from probs (V,), one after the other: each from what the tokens
# before it leave. Return them in the order in which they came, a list. There may be fewer than
# n tokens that can come.
# About 5 lines, 5 minutes.
# Example: probs (.5, .3, .2), n = 2: every list that may come, and how often -> {[0, 1]: 0.3,
#   [0, 2]: 0.2, [1, 0]: 0.214286, [1, 2]: 0.085714, [2, 0]: 0.125, [2, 1]: 0.075}


def draw_without_replacement(probs, n, dice):
    """n different tokens, drawn one after the other from what is left. probs (V,) -> a list.

    Shorter if fewer than n tokens have a positive probability.
    """
    raise NotImplementedError("not yet: draw_without_replacement")


# *** Children that were drawn without replacement: go down from the root, and give each child
# in turn chapter 01's coin; take the first accepted. After a rejection two things change before
# the next coin: what does the target still owe, and what was the next child drawn from? If no
# child is accepted, or there is none, draw the next token; from what? Return path, token as
# walk does. `acceptance_probability` and `residual` of chapter 01 are at hand.
# tree.draft_probs[i] is what the children of row i were drawn from; a root without children may
# have no draft_probs (None).
# About 14 lines, 15 minutes.
# Example: children 0 and 1 of the root, draft (.5 .25 .25), target (.25 .35 .4), then (.5 .5
#   0); the first passes: path, token, what the dice were asked -> [[0, 1], 0, [0.5, [0.5, 0.5,
#   0]]]


def multi_round(tree, target_probs, dice):
    """Multi-round rejection (Jeon et al., RRS), lossless for children drawn without replacement.

    They were drawn from tree.draft_probs (N, V). Arguments and result as `walk`.
    """
    raise NotImplementedError("not yet: multi_round")


# make_exercises.py knows by this line whether you have written here: 32051c999c3c
