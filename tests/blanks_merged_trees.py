"""The blanks of chapter 04."""

import math

import torch

import merged_trees
from dual_draft_routing import HeadDrafter
from grading import Blank, Script, check_lossless
from merged_trees import MergedDrafter, prefixes
from merged_trees import trie_merge as taught
from nanogpt.exact.toy_models import ToyHead, random_nodes
from tree_attention import Tree, speculate

HEADS = Tree([9, 1, 2, 3], [-1, 0, 1, 1]), Tree([9, 1, 4, 5], [-1, 0, 1, 0])
UNION = Tree([9, 1, 2, 3, 1, 4, 5], [-1, 0, 1, 1, 0, 4, 0])


def each_prefix_once():
    """The trie holds each of the best prefixes in one row, and with it every parent."""
    for seed in range(8):
        pair = [Tree(*random_nodes(seed + i)) for i in (0, 100)]
        scores = [[-depth - i / 9 for i, depth in enumerate(tree.depths.tolist())]
                  for tree in pair]
        for budget in (3, 6):
            trie, _ = merged_trees.trie_merge(pair, scores, budget)
            wanted, _ = taught(pair, scores, budget)
            assert sorted(prefixes(trie)) == sorted(prefixes(wanted)), (
                f"on {pair} with budget {budget} it does not hold the best {budget} prefixes")


def same_text():
    """The whole loop, both subtrees full of equal prefixes, must have the target's distribution."""
    for seeds in ((8, 8), (8, 9)):
        union = MergedDrafter([HeadDrafter(ToyHead(seed), 2, 2, 3) for seed in seeds])
        check_lossless(lambda target, sampler, dice, union=union: speculate(
            target, union, [0, 1], sampler, dice, merged_trees.accept_paths))


def accepted(*tokens):
    """Where the target is sure of these tokens, one for each of the seven rows."""
    def call(f):
        dice = Script()
        return *f(UNION, torch.eye(10)[list(tokens)], dice), len(dice.asked)

    return call


def best_of_both(budget, turn=1):
    """{prefix: probability} of the trie of two trees: s -> a -> b, c and s -> a -> d, s -> e.

    turn: -1 for the second tree first.
    """
    def call(f):
        logs = [[math.log(value) for value in values]
                for values in ((1, 0.6, 0.4, 0.1), (1, 0.8, 0.5, 0.3))]
        trie, scores = f(HEADS[::turn], logs[::turn], budget)
        return {prefix: round(math.exp(score), 3)
                for prefix, score in zip(prefixes(trie), scores, strict=True)}

    return call


BLANKS = [
    Blank(
        "merged_trees:trie_merge",
        """*** Both heads drafted a tree below the same root. Make one tree of their best `budget`
        prefixes, each prefix in one row; the root costs no budget. A prefix that both heads
        guessed has the better of its two scores. You may call prefixes(tree) (the token path of
        every row, in order: [(), (1,), (1, 2)]; the root's is the empty one) and Tree(tokens,
        parents) (two lists, an entry for each row, a parent before its children, -1 as the root's
        parent). Return the Tree and a list with the score of each of its rows.""",
        """A dictionary {prefix: score} holds each prefix once. Sort it by score. A node's token is
        the last of its prefix, and its parent's row is that of the prefix without it.""",
        lines=9, minutes=15, promise=each_prefix_once,
        examples={
            "s-a-b, s-a-c and s-a-d, s-e with the probabilities a .6, b .4, c .1 and a .8, d .5, "
            "e .3; budget 3": (best_of_both(3), {(): 1, (1,): 0.8, (1, 4): 0.5, (1, 2): 0.4}),
            "the other head first, budget 3":
                (best_of_both(3, -1), {(): 1, (1,): 0.8, (1, 4): 0.5, (1, 2): 0.4}),
            "the same, budget 4":
                (best_of_both(4), {(): 1, (1,): 0.8, (1, 4): 0.5, (1, 2): 0.4, (5,): 0.3}),
        }),
    Blank(
        "merged_trees:phi",
        """* In the union the rows of the first tree come first: the root, then its n_first
        draft nodes. Behind them stand the draft nodes of the second tree, in their old order.
        Its root is not stored again, because both trees have the same root. In which row of the
        union does row `row` of the second tree stand? You need Python alone. Return an int.""",
        "The root is shared; n_first counts the first tree's draft nodes only.",
        lines=1, minutes=3,
        examples={
            "row 1, n_first = 3": ((1, 3), 4), "row 0, n_first = 3": ((0, 3), 0),
            "row 2, n_first = 5": ((2, 5), 7),
        }),
    Blank(
        "merged_trees:accept_paths",
        """** Go down all paths of the union at once. In each step the target draws one token
        for the tokens that the remaining paths share so far, and only the paths that carry it
        next remain. If none does, the path ends here and the drawn token is the next token. You
        may call path_matrix(tree) (for instance [[0, 1, 2], [0, 4, -1]]; -1 is no row),
        tree.tokens[row] (the token of a node), target_probs[row] (the target's distribution
        (V,) of the token after that node) and dice.draw(probs) (a token: dice.draw of (0, 1, 0)
        is 1). Return the accepted path, a list of rows that starts with 0, and the next token.
        Where both trees hold the accepted path, either one will do.""",
        """Nodes with equal prefixes have equal distributions: draw in the row of any remaining
        path, but only once. When no path is left, the drawn token is the next root, and the
        path ends before it.""",
        lines=10, minutes=10, promise=same_text,
        examples={
            "tokens (9 1 2 3 1 4 5), parents (-1 0 1 1 0 4 0), the target says 1, 4, 7: path, "
            "next token, how often the dice were asked":
                (accepted(1, 4, 0, 0, 4, 7, 0), ([0, 4, 5], 7, 3)),
            "the target says 1, 2, 7": (accepted(1, 2, 7, 0, 2, 0, 0), ([0, 1, 2], 7, 3)),
            "the target says 8 at once": (accepted(8, 0, 0, 0, 0, 0, 0), ([0], 8, 1)),
            "the target says 5, 5": (accepted(5, 0, 0, 0, 0, 0, 5), ([0, 6], 5, 2)),
        }),
]
