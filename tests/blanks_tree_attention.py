"""The blanks of chapter 02."""

from functools import partial

import torch

import tree_attention
from grading import Blank, Script, check_lossless
from nanogpt.exact.enumeration import outcomes
from nanogpt.exact.toy_models import ToyDraft, ToyModel
from nanogpt.model import GPTConfig, KVCache
from tree_attention import Tree, TreeDrafter, speculate

PARENTS = torch.tensor([-1, 0, 1, 1, 0, 4])  # root -> 1 -> 2, 3 and root -> 4 -> 5
TREE = Tree([7, 1, 2, 0, 2, 1], PARENTS)
TWINS = Tree([0, 0, 1], [-1, 0, 0], torch.tensor([[0.5, 0.25, 0.25], [0.0] * 3, [0.0] * 3]))


class Sure(Script):
    """A Script for distributions that leave nothing to chance, whether by draws or by coins."""

    def flip(self, p):
        return float(p) > 0.5


def same_text(rule="walk"):
    """The whole loop with a tree must have the target's distribution."""
    draft = ToyDraft(ToyModel(99, 3))
    check_lossless(lambda target, sampler, dice: speculate(
        target, TreeDrafter(draft, (2, 1), sampler, dice if rule == "multi_round" else None),
        [0, 1], sampler, dice, getattr(tree_attention, rule)))


def walked(*tokens, tree=TREE):
    """The walk where the target is sure of these tokens, one for each row."""
    return lambda f: f(tree, torch.eye(len(tokens))[list(tokens)], Sure())


def chance_of_acceptance(f):
    """How often f accepts a child of the root, over every result of its draws or coins."""
    probs = torch.tensor([0.5, 0.3, 0.2]).repeat(3, 1)
    runs = outcomes(lambda dice: f(TWINS, probs, dice))
    return round(sum(probability for (path, _), probability in runs if len(path) > 1), 3)


def judged(*coins, tree=TWINS):
    def call(f):
        dice = Script([], coins)
        target = torch.tensor([[0.25, 0.35, 0.4], [0.5, 0.5, 0.0], [0.0, 0.5, 0.5]])
        return *f(tree, target[:len(tree)], dice), dice.asked

    return call


def kept(*rows):
    def call(f):
        cache = KVCache(GPTConfig(3, 8, 1, 1, 1), 1, 8, "cpu", torch.float32)
        cache.kv[:] = torch.arange(8.0)[:, None]
        cache.kv[:, 1] += 10
        cache.length = 2
        f(cache, list(rows))
        return cache.length, cache.kv[0, :, 0, 0, :cache.length, 0]

    return call


BLANKS = [
    Blank(
        "tree_attention:ancestor_mask",
        """** Row i may attend to column j if j is i itself or an ancestor of i. Build the mask
        from the parents: a torch tensor (N, N) of booleans. Parents stand before their
        children; parents[0] is -1. You may call torch and numpy, for instance torch.eye(3,
        dtype=torch.bool), True on the diagonal, and mask[4] |= mask[0], which makes row 4 True
        where row 0 is True. Do not write into parents.""",
        """Start with the identity. A row sees what its parent sees, and itself; parents come
        first.""",
        lines=5, minutes=8, promise=same_text,
        examples={
            "parents (-1, 0, 1, 1, 0, 4)": ((PARENTS,), [
                [1, 0, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0], [1, 1, 0, 1, 0, 0],
                [1, 0, 0, 0, 1, 0], [1, 0, 0, 0, 1, 1]]),
            "the chain (-1, 0, 1, 2)": (
                (torch.arange(-1, 3),), torch.ones(4, 4).tril().int()),
            "the mask's dtype": (lambda f: str(f(PARENTS).dtype), "torch.bool"),
        }),
    Blank(
        "tree_attention:walk",
        """** Judge a tree whose nodes were chosen in any way. Stand at the root and draw the
        target's own token, as plain decoding would, before you look at the children. What if a
        child has it? What if none does? Return the path, a list of rows that starts with 0,
        and the token that the target adds behind it. You may call dice.draw(probs) (a token:
        dice.draw of (0, 1, 0) is 1), tree.children[0] (a list with the rows of row 0's
        children), int(tree.tokens[4]) (the token in row 4) and target_probs[4] (the target's
        distribution (V,) of the token after row 4).""",
        """The path starts with row 0, and row i of target_probs speaks of the token AFTER node
        i.""",
        lines=6, minutes=8, promise=same_text,
        examples={
            "tokens (7 1 2 0 2 1), parents (-1 0 1 1 0 4), the target says 2, then 1, then 0: "
            "path, next token": (walked(2, 0, 0, 0, 1, 0), ([0, 4, 5], 0)),
            "the target says 1, then 1": (walked(1, 1, 0, 0, 0, 0), ([0, 1], 1)),
            "the target says 0 at once": (walked(0, 1, 1, 1, 1, 1), ([0], 0)),
            "row i of target_probs says token i": (
                walked(0, 1, 2, 3, 4, 5, tree=Tree([0, 0, 1, 5], [-1, 0, 1, 1])), ([0, 1, 2], 2)),
            "children 0 and 1 of the root, target (.5 .3 .2): how often a draft is accepted":
                (chance_of_acceptance, 0.8),
        }),
    Blank(
        "nanogpt.model:KVCache.commit",
        """** Keep these new rows of the KV cache, in this order, right behind the committed
        ones. self.kv is (layers, 2, batch, heads, rows, head width); its last axis but one
        counts the rows. self.length says how many are committed: new row 0 lies at index
        self.length, and at the end the kept rows count, too. Any order may be asked for, so
        copy before you overwrite. You may call torch, for instance self.kv.index_select(-2,
        index), which copies the rows that a tensor names, and self.kv[..., a:b, :] = x. Nothing
        is returned.""",
        """Row 0 of the new rows lies at self.length. index_select copies, so nothing is
        overwritten before it is read.""",
        lines=5, minutes=8,
        examples={
            "length 2, keys 0..7, values 10..17, commit [0, 2, 3]: length, keys and values after":
                (kept(0, 2, 3), (5, [[0, 1, 2, 4, 5], [10, 11, 12, 14, 15]])),
            "length 2, keys 0..7, values 10..17, commit [0]: length, keys and values after":
                (kept(0), (3, [[0, 1, 2], [10, 11, 12]])),
            "length 2, keys 0..7, values 10..17, commit [0, 1, 2]: length, keys and values after":
                (kept(0, 1, 2), (5, [[0, 1, 2, 3, 4], [10, 11, 12, 13, 14]])),
            "length 2, keys 0..7, values 10..17, commit [2, 0]: length, keys and values after":
                (kept(2, 0), (4, [[0, 1, 4, 2], [10, 11, 14, 12]])),
        }),
    Blank(
        "tree_attention:multi_round",
        """*** Children that were drawn without replacement: go down from the root, and give
        each child in turn chapter 01's coin; take the first accepted. After a rejection two
        things change before the next coin: the target still owes the residual only, and the
        next child was drawn from the drafter's distribution without the rejected token. If no
        child is accepted, or there is none, draw the next token; from what? Return path, token as
        walk does. You may call acceptance_probability(p, q, token) (the coin), residual(p, q),
        dice.flip(a) (True with probability a), dice.draw(probs) (a token), tree.children[0] (a
        list of rows), int(tree.tokens[1]), and tree.draft_probs[0], what row 0's children were
        drawn from, (V,): work on a copy, q.clone(). A root without children may have no
        draft_probs (None).""",
        "Normalise both before the next child; if none is accepted, draw from the last residual.",
        lines=14, minutes=15, promise=partial(same_text, "multi_round"),
        examples={
            "children 0 and 1 of the root, draft (.5 .25 .25), target (.25 .35 .4), then "
            "(.5 .5 0); the first passes: path, token, what the dice were asked":
                (judged(True), ([0, 1], 0, [0.5, [0.5, 0.5, 0.0]])),
            "the first child fails, the second passes":
                (judged(False, True), ([0, 2], 1, [0.5, 0.8, [0.0, 0.5, 0.5]])),
            "the same tree, both fail":
                (judged(False, False), ([0], 2, [0.5, 0.8, [0.0, 0.0, 1.0]])),
            "a root alone, without draft_probs":
                (judged(tree=Tree([0], [-1])), ([0], 2, [[0.25, 0.35, 0.4]])),
        }),
]
