"""Chapter 02: 5 blanks to fill. Grade them with

    python tests/grade.py 02

and ask for a hint with `python tests/grade.py 02 --hint NAME`. Replace each
`raise NotImplementedError` by your own lines; a blank that you leave empty disturbs no other.
"""

import numpy as np
import torch
from chain_specdec import acceptance_probability, residual

# Which n tokens become children? The most probable ones, best first.
# About 1 line, 3 minutes.
# Example: probs (.1, .4, .2, .3), n = 2 -> [1, 3]


def top(probs, n):
    """The n most probable tokens. probs (V,) -> a list; shorter if V < n."""
    raise NotImplementedError("not yet: top")


# Row i may attend to column j if j is i itself or an ancestor of i. Build the mask from the
# parent pointers.
# About 5 lines, 8 minutes.
# Example: parents (-1, 0, 1, 1, 0, 4) -> [[1, 0, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0], [1, 1, 1, 0,
#   0, 0], [1, 1, 0, 1, 0, 0], [1, 0, 0, 0, 1, 0], [1, 0, 0, 0, 1, 1]]


def ancestor_mask(parents):
    """parents (N,) -> (N, N) bool, True where column j is row i itself or an ancestor of it."""
    raise NotImplementedError("not yet: ancestor_mask")


# Draw the target's own token at the node where you stand; if a child carries it, go there.
# About 6 lines, 8 minutes.
# Example: tokens (7 1 2 0 2 1), parents (-1 0 1 1 0 4), the target says 2, then 1, then 0:
#   path, next token -> [[0, 4, 5], 0]


def walk(tree, target_probs, dice):
    """Draw the target's own token; while a child carries it, go there.

    Lossless for ANY tree, however its nodes were chosen.
    tree: N nodes; target_probs (N, V) -> path, a list of rows starting with 0; the next token.
    """
    raise NotImplementedError("not yet: walk")


# Chapter 01's coin for each child in turn. After a rejection the target becomes the residual,
# and the draft distribution loses the rejected token. Where nothing was drafted, the tree is a
# root without draft_probs.
# About 14 lines, 15 minutes.
# Example: children 0 and 1 of the root, draft (.5 .25 .25), target (.25 .35 .4), then (.5 .5
#   0); the first passes: path, token, what the dice were asked -> [[0, 1], 0, [0.5, [0.5, 0.5,
#   0.0]]]


def multi_round(tree, target_probs, dice):
    """Multi-round rejection: chapter 01's coin for each child in turn (Jeon et al., RRS).

    For children drawn without replacement from draft_probs, which a tree with drafts must carry.
    Arguments and result as `walk`.
    """
    raise NotImplementedError("not yet: multi_round")


# Keep the accepted path's rows of the KV cache, in this order, right behind the committed ones.
# self.kv is (n_layer, 2, B, n_head, rows, head_dim), see KVCache in nanogpt/model.py;
# self.length counts the committed rows.
# About 5 lines, 8 minutes.
# Example: length 2, keys 0..7, values 10..17, commit [0, 2, 3]: length, keys and values after
#   -> [5, [[0, 1, 2, 4, 5], [10, 11, 12, 14, 15]]]


def commit(self, rows):
    """Keep the new rows with these indices (0 = first row behind `length`), in this order.

    rows: a list of ints; everything else is forgotten.
    """
    raise NotImplementedError("not yet: commit")
