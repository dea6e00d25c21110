"""The blanks of chapter 04."""

import math
from itertools import chain, pairwise

import torch

import merged_trees
from dual_draft_routing import HeadDrafter
from grading import Blank, Script, chances, check_lossless, judgement, require, same
from merged_trees import MergedDrafter, merge, prefixes
from nanogpt.exact.toy_models import ToyHead, ToyModel, random_nodes
from tree_attention import Tree, speculate

HEADS = Tree([9, 1, 2, 3], [-1, 0, 1, 1]), Tree([9, 1, 4, 5], [-1, 0, 1, 0])
ROOT = {"the root's token": 9, (): 1}
UNION = Tree([9, 1, 2, 3, 1, 4, 5], [-1, 0, 1, 1, 0, 4, 0])


def written(nodes):
    """Token paths with their scores, one after another."""
    return ", ".join(f"{'-'.join(map(str, path)) or 'root'} {score:.3g}" for path, score in nodes)


def tied_scores(tree, certain):
    """Log-scores in thirds: many are equal; certain: some children score as their parent does."""
    scores = [0.0]
    for row, parent in enumerate(tree.parents.tolist()[1:], 1):
        scores.append(scores[parent] - (row % 3 + (not certain)) / 3)
    return scores


def each_prefix_once():
    """The trie holds the best prefixes, each in one row with the better of its scores. Of equal
    scores it may hold any; a row's parent is in the trie, or it would be no Tree."""
    for seed in range(12):
        trees = [Tree(*random_nodes(seed + i)) for i in (0, 100, 200)[:1 + seed % 3]]
        for tree in trees:
            tree.tokens[0] = 9
        scores = [tied_scores(tree, certain=seed > 7) for tree in trees]
        drafted = [list(zip(prefixes(tree), values, strict=True))
                   for tree, values in zip(trees, scores, strict=True)]
        best = {}
        for path, score in chain(*drafted):
            best[path] = max(score, best.get(path, score))
        for budget in (1, 3, 6, 99):
            trie, found = merged_trees.trie_merge(trees, scores, budget)
            made = list(zip(prefixes(trie), found, strict=True))
            lines = "\n    ".join(map(written, [*drafted, made]))
            where = (f"with budget {budget}, it makes the last of these trees of the others\n    "
                     f"{lines}\n    in which ")
            root = int(trie.tokens[0])
            require(root == 9, f"{where}the root's token is {root}; in all others it is 9")
            require(len(dict(made)) == len(made), f"{where}a prefix stands in two rows")
            for path, score in made:
                require(path in best, f"{where}{written([(path, score)])} was never drafted")
                require(abs(score - best[path]) < 1e-6,
                        f"{where}{written([(path, score)])} should have the score {best[path]:.6g}")
            wanted = sorted(best.values(), reverse=True)[:1 + budget]
            require(same(sorted(found, reverse=True), wanted),
                    f"{where}the scores should be {', '.join(f'{score:.3g}' for score in wanted)}")


def every_judgement(seed):
    """All that may come of a union of two toy heads' trees, by tokens, with its probability."""
    trees = []
    for number in (seed, seed + seed % 2):  # every other pair is one tree twice
        drafter = HeadDrafter(ToyHead(number), 3, 2, 5)
        drafter.reset()
        trees.append(drafter.propose(0, 3))
    union = merge(*trees)
    target = ToyModel(seed, 3)
    probs = torch.stack([target.logits(path).softmax(-1) for path in prefixes(union)])

    def run(f, dice):
        path, token = f(union, probs, dice)
        chain = all(int(union.parents[b]) == a for a, b in pairwise(path)) and path[0] == 0
        return chain, union.tokens[list(path)], token

    return lambda f: chances(lambda dice: run(f, dice), 200)


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
        return *judgement(f(UNION, torch.eye(10)[list(tokens)], dice)), len(dice.asked)

    return call


def best_of(budget, *heads):
    """{prefix: probability} of the trie of these heads' trees: head 0 drafts s -> a -> b, c; head 1
    s -> a -> d, s -> e."""
    def call(f):
        logs = [[math.log(value) for value in values]
                for values in ((1, 0.6, 0.4, 0.1), (1, 0.8, 0.5, 0.3))]
        trie, scores = f([HEADS[head] for head in heads], [logs[head] for head in heads], budget)
        return {"the root's token": trie.tokens[0]} | {
            prefix: round(math.exp(score), 3)
            for prefix, score in zip(prefixes(trie), scores, strict=True)}

    return call


BLANKS = [
    Blank(
        "merged_trees:trie_merge",
        """*** Several heads, or one, drafted a tree each below the same root. Make one tree of
        their best `budget` prefixes, each prefix in one row; the root costs no budget. A prefix
        that several heads guessed has the best of its scores; of equal scores any may stay, but
        none without its parent. prefixes(tree) gives the token path of every row, in order: [(),
        (1,), (1, 2)]; the root's is the empty one. Tree(tokens, parents) takes two lists, an
        entry for each row, a parent before its children, -1 as the root's parent. Return the Tree
        and a list with the score of each of its rows.""",
        ("What is the same in both trees: a row, a token, or a prefix?",
         "Each prefix once, with a score: sort and cut. What is left must find its parent's row: "
         "the parent of a prefix is the prefix without its last token."),
        lines=9, minutes=15, promise=each_prefix_once,
        examples={
            "s-a-b, s-a-c and s-a-d, s-e with the probabilities a .6, b .4, c .1 and a .8, d .5, "
            "e .3; budget 3": (best_of(3, 0, 1), ROOT | {(1,): 0.8, (1, 4): 0.5, (1, 2): 0.4}),
            "the other head first, budget 3":
                (best_of(3, 1, 0), ROOT | {(1,): 0.8, (1, 4): 0.5, (1, 2): 0.4}),
            "the same, budget 4":
                (best_of(4, 0, 1), ROOT | {(1,): 0.8, (1, 4): 0.5, (1, 2): 0.4, (5,): 0.3}),
            "the first head alone, budget 2": (best_of(2, 0), ROOT | {(1,): 0.6, (1, 2): 0.4}),
        }),
    Blank(
        "merged_trees:accept_paths",
        """** Go down all paths of the union at once. In each step the target draws one token
        for the tokens that the remaining paths share so far, and only the paths that carry it
        next remain. If none does, the path ends here and the drawn token is the next token.
        path_matrix(tree) gives the paths from the root to each leaf, for instance [[0, 1, 2],
        [0, 4, -1]]; -1 is no row. Return the accepted path, a list of rows that starts with 0,
        and the next token. Where both trees hold the accepted path, either one will do.""",
        ("Nodes with equal prefixes have equal distributions: draw in the row of any path that is "
         "left, but only once.",
         "When no path is left, the drawn token is the next root, and the path ends before it. A "
         "path that has ended holds -1, which as an index means the last row."),
        lines=10, minutes=10, promise=same_text,
        examples={
            "tokens (9 1 2 3 1 4 5), parents (-1 0 1 1 0 4 0), the target says 1, 4, 7: path, "
            "next token, how often the dice were asked":
                (accepted(1, 4, 0, 0, 4, 7, 0), ([0, 4, 5], 7, 3)),
            "the target says 1, 2, 7": (accepted(1, 2, 7, 0, 2, 0, 0), ([0, 1, 2], 7, 3)),
            "the target says 8 at once": (accepted(8, 0, 0, 0, 0, 0, 0), ([0], 8, 1)),
            "the target says 5, 5": (accepted(5, 0, 0, 0, 0, 0, 5), ([0, 6], 5, 2)),
        },
        more=lambda: {f"all that may come of two trees of toy heads {seed}: is it a path from the "
                      "root, its tokens, the next one, and how often": every_judgement(seed)
                      for seed in range(4)}),
]
