"""The blanks of chapter 02."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import torch

import tree_attention
from grading import Blank, Misuse, Script, chances, check_lossless, judgement, plain
from nanogpt.exact.enumeration import outcomes
from nanogpt.exact.toy_models import ToyDraft, ToyModel, random_nodes
from nanogpt.model import GPTConfig, KVCache
from nanogpt.sampling import Dice, Sampler
from tree_attention import Tree, TreeDrafter, speculate

PARENTS = torch.tensor([-1, 0, 1, 1, 0, 4])  # root -> 1 -> 2, 3 and root -> 4 -> 5
TREE = Tree([7, 1, 2, 0, 2, 1], PARENTS)
TWINS = Tree([0, 0, 1], [-1, 0, 0], torch.tensor([[0.5, 0.25, 0.25], [0.0] * 3, [0.0] * 3]))
# root -> 0, 1 and below 0 again 0, 1
DEEP = Tree([0, 0, 1, 0, 1], [-1, 0, 0, 1, 1], torch.tensor(
    [[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.0] * 3, [0.0] * 3, [0.0] * 3]))


class Sure(Script):
    """A Script for distributions that leave nothing to chance, whether by draws or by coins."""

    def flip(self, p):
        return float(p) > 0.5


def same_text(rule="walk"):
    """The whole loop with a tree must have the target's distribution."""
    draft, drawn = ToyDraft(ToyModel(99, 3)), rule == "multi_round"
    for branching in ((2,), (1, 1)) if drawn else ((2, 1),):
        check_lossless(lambda target, sampler, dice, branching=branching: speculate(
            target, TreeDrafter(draft, branching, sampler, dice if drawn else None),
            [0, 1], sampler, dice, getattr(tree_attention, rule)))


def walked(*tokens, tree=TREE):
    """The walk where the target is sure of these tokens, one for each row."""
    return lambda f: judgement(f(tree, torch.eye(len(tokens))[list(tokens)], Sure()))


def chance_of_acceptance(f):
    """How often f accepts a child of the root, over every result of its draws or coins."""
    probs = torch.tensor([0.5, 0.3, 0.2]).repeat(3, 1)
    runs = outcomes(lambda dice: f(TWINS, probs, dice))
    return round(sum(probability for (path, _), probability in runs if len(path) > 1), 3)


def judged(*coins, tree=TWINS):
    def call(f):
        dice = Script([], coins)
        target = torch.tensor([[0.25, 0.35, 0.4], [0.5, 0.5, 0.0], [0.0, 0.5, 0.5],
                               [0.1, 0.2, 0.7], [0.7, 0.2, 0.1]])
        return *judgement(f(tree, target[:len(tree)], dice)), dice.asked

    return call


def every_judgement(seed, branching, drawn):
    """All that may come of a toy drafter's tree, with its probability."""
    V = 4 if branching == (3,) else 3
    drafter = TreeDrafter(ToyDraft(ToyModel(seed, V)), branching, Sampler(1),
                          Dice(seed) if drawn else None)
    tree = drafter.propose(0, len(branching))
    target = torch.stack([ToyModel(seed + 50, V).logits((row,)).softmax(-1)
                          for row in range(len(tree))])
    return lambda f: chances(lambda dice: f(tree, target, dice))


def every_shape(drawn):
    return {f"all that may come of a tree {'-'.join(map(str, branching))}, and how often":
            every_judgement(seed, branching, drawn)
            for seed, branching in (
                (0, (2,)), (1, (1, 1)), (2, (2, 1)), (3, (2, 2)), (4, (1, 2, 1)),
                (38, (3,)))}  # here the third child's coin matters, as it seldom does


def kept(*rows, length=2, layers=1):
    """commit on a cache whose new rows are numbered on from the committed ones; values are keys
    + 10, and a second layer, sequence or head adds 100."""
    def call(f):
        cache = KVCache(GPTConfig(3, 12, layers, layers, 2 * layers), layers, 12, "cpu",
                        torch.float32)
        cache.kv[:] = torch.arange(12.0)[:, None]
        cache.kv[:, 1] += 10
        cache.kv[1:] += 100
        cache.kv[:, :, 1:] += 100
        cache.kv[:, :, :, 1:] += 100
        cache.length = length
        f(cache, list(rows))
        kv = cache.kv[..., :cache.length, 0]
        if layers == 1:
            return cache.length, kv[0, :, 0, 0]
        return {f"layer {i}, {('keys', 'values')[v]}, sequence {b}, head {h}": kv[i, v, b, h]
                for i, v, b, h in np.ndindex(*kv.shape[:4])}

    return call


def random_parents(seed):
    return random_nodes(seed, size=1 + seed)[1] if seed % 3 else list(range(-1, seed))


class Reads:
    """A context that says what each row would read: its position, and the rows that it sees."""

    room = 9

    def __init__(self, length):
        self.cache = SimpleNamespace(length=length)

    def verify(self, tokens, sampler, positions=None, mask=None):
        for name, given, kinds in (("mask", mask, ["torch.bool"]),
                                   ("positions", positions, ["torch.int64", "torch.int32"])):
            kind = str(getattr(given, "dtype", type(given).__name__))
            if given is not None and kind not in kinds:
                raise Misuse(f"{name} is of the type {kind}; it must be {kinds[0]}")
        rows = range(len(tokens))
        mask = plain(torch.ones(len(tokens), len(tokens)).tril() if mask is None else mask)
        positions = [self.cache.length + row for row in rows] if positions is None else positions
        return {row: [token, int(positions[row]), [column for column in rows if mask[row][column]]]
                for row, token in enumerate(map(int, tokens))}, "hidden"


def read(tree, length=20):
    """-> {row: its token, its position, what it sees}, and the hidden states."""
    return lambda f: f(Reads(length), tree, Sampler(1))


def handed_on(f):
    """-> the temperature of the sampler that the context is given."""
    context = Reads(3)
    context.verify = lambda tokens, sampler, positions, mask: (sampler.temperature, "hidden")
    return f(context, TREE, Sampler(0.5))


def every_draw(probs, n):
    """All lists of tokens that may come, with their probability."""
    probs = torch.tensor(probs).double()
    return lambda f: chances(lambda dice: [int(token) for token in f(probs, n, dice)])


BLANKS = [
    Blank(
        "tree_attention:ancestor_mask",
        """** Row i may attend to column j if j is i itself or an ancestor of i. Build the mask
        from the parents: a torch tensor (N, N) of booleans. parents, (N,) in torch, stands with
        parents before their children; parents[0] is -1.""",
        ("What does a row see that its parent does not see?",
         "A row sees what its parent sees, and itself; the parent's row is complete when its "
         "children come. The root has no parent: -1 is not a row."),
        lines=5, minutes=8, promise=same_text,
        examples={
            "parents (-1, 0, 1, 1, 0, 4)": ((PARENTS,), [
                [1, 0, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0], [1, 1, 0, 1, 0, 0],
                [1, 0, 0, 0, 1, 0], [1, 0, 0, 0, 1, 1]]),
            "the chain (-1, 0, 1, 2)": (
                (torch.arange(-1, 3),), torch.ones(4, 4).tril().int()),
            "the mask's dtype": (lambda f: str(f(PARENTS).dtype), "torch.bool"),
        },
        more=lambda: {f"parents {random_parents(seed)}": (torch.tensor(random_parents(seed)),)
                      for seed in range(10)} | {
            "a chain of 40 rows": (torch.arange(-1, 39),),
            "the mask's dtype": lambda f: str(f(torch.tensor([-1, 0])).dtype)}),
    Blank(
        "tree_attention:verify",
        """** One forward over the root and all drafts of a tree. What is the position of a row,
        and what may it see? context.verify(tokens, sampler, positions, mask) reads the N tokens,
        a list, behind the context.cache.length rows of the text, to which no column of the mask
        belongs; positions (N,) and mask (N, N) are tensors. It returns target_probs and hidden:
        hand them on. Positions count from 0. (That the tree fits the window is not asked.)""",
        ("Two siblings are candidates for the same place in the text.",
         "The root stands right behind the text. A row's text is the path to it, so that path's "
         "length says where it stands."),
        lines=5, minutes=6, promise=same_text,
        examples={
            "20 rows of text, tokens (7 1 2 0 2 1), parents (-1 0 1 1 0 4): of each row its token, "
            "its position, and the rows of the tree that it sees": (read(TREE), ({
                0: [7, 20, [0]], 1: [1, 21, [0, 1]], 2: [2, 22, [0, 1, 2]], 3: [0, 22, [0, 1, 3]],
                4: [2, 21, [0, 4]], 5: [1, 22, [0, 4, 5]]}, "hidden")),
            "the root alone, behind 3 rows": (
                read(Tree([5], [-1]), 3), ({0: [5, 3, [0]]}, "hidden")),
        },
        more=lambda: {f"tokens {tree.tokens.tolist()}, parents {tree.parents.tolist()}, behind "
                      f"{seed} rows": read(tree, seed) for seed, tree in enumerate(
                          Tree(*random_nodes(seed, size=2 + seed)) for seed in range(8))} | {
            "the temperature of the sampler that context.verify gets": handed_on}),
    Blank(
        "nanogpt.model:KVCache.commit",
        """** Keep these new rows of the KV cache, in this order, right behind the committed
        ones. self.kv is (layers, 2, batch, heads, rows, head width); its last axis but one
        counts the rows. self.length says how many are committed: new row 0 lies at index
        self.length, and at the end the kept rows count, too. Any order may be asked for.
        Nothing is returned.""",
        ("Row 0 of the new rows lies at self.length. Keys and values move alike, in all layers.",
         "Where [2, 0] is asked for, row 0 is overwritten before it is read, unless the rows are "
         "copied first."),
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
        },
        more=lambda: {
            f"{layers} layer{'s, sequences and heads' * (layers > 1)}, length {length}, "
            f"commit {list(rows)}: keys and values after":
                kept(*rows, length=length, layers=layers)
            for layers in (1, 2) for length in (0, 1, 5)
            for rows in ((0,), (0, 1), (0, 2, 5), (3, 1, 0, 2), (0, 1, 2, 4))}),
    Blank(
        "tree_attention:walk",
        """** Judge a tree whose nodes were chosen in any way. Stand at the root and draw the
        target's own token, as plain decoding would, before you look at the children. What if a
        child has it? What if none does? Return the path, a list of rows that starts with 0,
        and the token that the target adds behind it.""",
        ("Row i of target_probs is the target's distribution of the token AFTER node i.",
         "A node asks for one draw, however many children it has. Where nobody guessed the token, "
         "it is written all the same, and the round is over."),
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
        },
        more=partial(every_shape, drawn=False)),
    Blank(
        "tree_attention:draw_without_replacement",
        """** Draw n different tokens from probs (V,), one after the other: each from what the
        tokens before it leave. Return them in the order in which they came, a list. There may be
        fewer than n tokens that can come.""",
        ("What is left after a draw is a distribution with one token less.",
         "A token that came gets the probability 0, in a copy: the judge asks for the whole "
         "distribution later. Where nothing is left, nothing can be drawn."),
        lines=5, minutes=5, promise=partial(same_text, "multi_round"),
        examples={
            # .5 * .3 / .5 = .3, ..
            "probs (.5, .3, .2), n = 2: every list that may come, and how often": (
                every_draw([0.5, 0.3, 0.2], 2),
                {"[0, 1]": 0.3, "[0, 2]": 0.2, "[1, 0]": 0.3 * 0.5 / 0.7, "[1, 2]": 0.3 * 0.2 / 0.7,
                 "[2, 0]": 0.2 * 0.5 / 0.8, "[2, 1]": 0.2 * 0.3 / 0.8}),
            "the same with n = 1": (
                every_draw([0.5, 0.3, 0.2], 1), {"[0]": 0.5, "[1]": 0.3, "[2]": 0.2}),
            "probs (.5, .5, 0), n = 3": (
                every_draw([0.5, 0.5, 0.0], 3), {"[0, 1]": 0.5, "[1, 0]": 0.5}),
        },
        more=lambda: {f"toy model {seed} with {V} tokens, {n} draws: every list, and how often":
                      every_draw(ToyModel(seed, V).logits(()).softmax(-1).tolist(), n)
                      for seed, (V, n) in enumerate(((4, 3), (4, 4), (5, 2), (2, 5)))} | {
            "probs (.9, .099999, .000001), n = 3: every list that may come, and how often":
                every_draw([0.9, 0.099999, 1e-6], 3),
            # 1 - .7 - .2 - .1 is not 0, but a little less or more
            "probs (.1, .2, .7), n = 4: every list that may come, and how often":
                every_draw([0.1, 0.2, 0.7], 4)}),
    Blank(
        "tree_attention:multi_round",
        """*** Children that were drawn without replacement: go down from the root, and give
        each child in turn chapter 01's coin; take the first accepted. After a rejection two
        things change before the next coin: what does the target still owe, and what was the
        next child drawn from? If no child is accepted, or there is none, draw the next token;
        from what? Return path, token as walk does. `acceptance_probability` and `residual` of
        chapter 01 are at hand. tree.draft_probs[i] is what the children of row i were drawn
        from; a root without children may have no draft_probs (None).""",
        ("After a rejection the residual is the new p, whichever token was rejected; and the next "
         "child could not be the rejected token.",
         "Both are distributions again before the next coin, and both begin anew at the next node. "
         "The end draws from the p of its turn."),
        lines=14, minutes=15, promise=partial(same_text, "multi_round"),
        examples={
            "children 0 and 1 of the root, draft (.5 .25 .25), target (.25 .35 .4), then "
            "(.5 .5 0); the first passes: path, token, what the dice were asked":
                (judged(True), ([0, 1], 0, [0.5, [0.5, 0.5, 0.0]])),
            "the first child fails, the second passes":
                (judged(False, True), ([0, 2], 1, [0.5, 0.8, [0.0, 0.5, 0.5]])),
            "the same tree, both fail":
                (judged(False, False), ([0], 2, [0.5, 0.8, [0.0, 0.0, 1.0]])),
            # Below row 1: coins min(1, .5 / .25), and, if that could fail, none.
            "children 0 and 1 of the root, and again below the first; draft (.5 .25 .25), then "
            "(.25 .5 .25); target (.25 .35 .4), then (.5 .5 0); row 3: (.1 .2 .7); all coins pass":
                (judged(tree=DEEP), ([0, 1, 3], 2, [0.5, 1.0, [0.1, 0.2, 0.7]])),
            "a root alone, without draft_probs":
                (judged(tree=Tree([0], [-1])), ([0], 2, [[0.25, 0.35, 0.4]])),
        },
        more=partial(every_shape, drawn=True)),
]
