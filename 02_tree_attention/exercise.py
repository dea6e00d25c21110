"""Chapter 02: 4 blanks to fill. Grade them with

    python tests/grade.py 02

and ask for a hint with `python tests/grade.py 02 --hint NAME`. Replace each
`raise NotImplementedError` by your own lines; a blank that you leave empty disturbs no other.
"""

import numpy as np
import torch
from chain_specdec import acceptance_probability, residual

# ** Row i may attend to column j if j is i itself or an ancestor of i. Build the mask from the
# parents: a torch tensor (N, N) of booleans. Parents stand before their children; parents[0] is
# -1. You may call torch and numpy, for instance torch.eye(3, dtype=torch.bool), True on the
# diagonal, and mask[4] |= mask[0], which makes row 4 True where row 0 is True. Do not write
# into parents.
# About 5 lines, 8 minutes.
# Example: parents (-1, 0, 1, 1, 0, 4) -> [[1, 0, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0], [1, 1, 1, 0,
#   0, 0], [1, 1, 0, 1, 0, 0], [1, 0, 0, 0, 1, 0], [1, 0, 0, 0, 1, 1]]


def ancestor_mask(parents):
    """parents (N,) -> (N, N) bool, True where column j is row i itself or an ancestor of it."""
    raise NotImplementedError("not yet: ancestor_mask")


# ** Judge a tree whose nodes were chosen in any way. Stand at the root and draw the target's
# own token, as plain decoding would, before you look at the children. What if a child has it?
# What if none does? Return the path, a list of rows that starts with 0, and the token that the
# target adds behind it. You may call dice.draw(probs) (a token: dice.draw of (0, 1, 0) is 1),
# tree.children[0] (a list with the rows of row 0's children), int(tree.tokens[4]) (the token in
# row 4) and target_probs[4] (the target's distribution (V,) of the token after row 4).
# About 6 lines, 8 minutes.
# Example: tokens (7 1 2 0 2 1), parents (-1 0 1 1 0 4), the target says 2, then 1, then 0:
#   path, next token -> [[0, 4, 5], 0]


def walk(tree, target_probs, dice):
    """The target's own draws decide. Lossless for ANY tree, however its nodes were chosen.

    tree: N nodes; target_probs (N, V): row i is the target's distribution after node i.
    -> path, a list of rows starting with 0; the next token, which the target adds behind it.
    """
    raise NotImplementedError("not yet: walk")


# ** Keep these new rows of the KV cache, in this order, right behind the committed ones.
# self.kv is (layers, 2, batch, heads, rows, head width); its last axis but one counts the rows.
# self.length says how many are committed: new row 0 lies at index self.length, and at the end
# the kept rows count, too. Any order may be asked for, so copy before you overwrite. You may
# call torch, for instance self.kv.index_select(-2, index), which copies the rows that a tensor
# names, and self.kv[..., a:b, :] = x. Nothing is returned.
# About 5 lines, 8 minutes.
# Example: length 2, keys 0..7, values 10..17, commit [0, 2, 3]: length, keys and values after
#   -> [5, [[0, 1, 2, 4, 5], [10, 11, 12, 14, 15]]]


def commit(self, rows):
    """Keep the new rows with these indices (0 = first row behind `length`), in this order.

    rows: a list of ints; everything else is forgotten.
    """
    raise NotImplementedError("not yet: commit")


# *** Children that were drawn without replacement: go down from the root, and give each child
# in turn chapter 01's coin; take the first accepted. After a rejection two things change before
# the next coin: the target still owes the residual only, and the next child was drawn from the
# drafter's distribution without the rejected token. If no child is accepted, or there is none,
# draw the next token; from what? Return path, token as walk does. You may call
# acceptance_probability(p, q, token) (the coin), residual(p, q), dice.flip(a) (True with
# probability a), dice.draw(probs) (a token), tree.children[0] (a list of rows),
# int(tree.tokens[1]), and tree.draft_probs[0], what row 0's children were drawn from, (V,):
# work on a copy, q.clone(). A root without children may have no draft_probs (None).
# About 14 lines, 15 minutes.
# Example: children 0 and 1 of the root, draft (.5 .25 .25), target (.25 .35 .4), then (.5 .5
#   0); the first passes: path, token, what the dice were asked -> [[0, 1], 0, [0.5, [0.5, 0.5,
#   0.0]]]


def multi_round(tree, target_probs, dice):
    """Multi-round rejection (Jeon et al., RRS), lossless for children drawn without replacement.

    They were drawn from tree.draft_probs (N, V). Arguments and result as `walk`.
    """
    raise NotImplementedError("not yet: multi_round")
