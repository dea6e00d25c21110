"""Chapter 02 on the runner: more depth against second guesses; and what one round emits, exactly.

Verifying N rows costs the same whether they form a line or a tree. So the number of drafts is held
equal, and only the shape differs.
"""

from functools import partial

import torch

from nanogpt.bench import PLAIN, plain, speedup, summarize
from nanogpt.cli import print_table
from nanogpt.exact.enumeration import outcomes
from nanogpt.sampling import Dice
from tree_attention import (
    Tree,
    TreeDrafter,
    draw_without_replacement,
    multi_round,
    speculate,
    top,
    walk,
)

# {drafts: branching}. Both begin with the chain of 4, which lies inside every tree.
CHAINS = {drafts: (1,) * drafts for drafts in (4, 8, 14, 30)}
TREES = {4: CHAINS[4], 8: (2, 1, 1, 1), 14: (2, 2, 1, 1), 30: (2, 2, 2, 2)}
SHAPES = (*CHAINS.values(), *TREES.values())

# ---------------------------------------------------------------- the decoders


def shape_name(branching):
    """(1, 1, 1, 1) -> 'chain of 4'; (2, 2, 1, 1) -> 'tree 2-2-1-1'."""
    if set(branching) == {1}:
        return f"chain of {len(branching)}"
    return "tree " + "-".join(map(str, branching))


def registry(target, draft_models, sampler, accept=walk, shapes=SHAPES):
    """{'drafter, shape': start(prompt, seed)}, plain decoding first.

    draft_models: {drafter: TreeBigram or TreeGPT}; accept: walk (on the top tokens) or multi_round
    (on drawn ones); shapes: a branching for each.
    """
    def start(model, branching, prompt, seed):
        dice = Dice(seed)
        drafter = TreeDrafter(model, branching, sampler, dice if accept is multi_round else None)
        return speculate(target, drafter, prompt, sampler, dice, accept)

    return {PLAIN: plain(target, sampler)} | {
        f"{name}, {shape_name(shape)}": partial(start, model, shape)
        for name, model in draft_models.items() for shape in shapes}


def print_forks(results, names):
    """tau and speed-up of the chain of 4, and of more drafts: more depth, or second guesses.

    results: of a registry with all shapes; names: of its drafters.
    """
    def cell(one):
        return f"{summarize(one)['tau']:.2f}, {speedup(one, results[PLAIN]):.2f}x"

    print_table(["tau, speed-up", "more of", *(f"{drafts} drafts" for drafts in CHAINS)], [
        [name, way, *(cell(results[f"{name}, {shape_name(shape)}"]) for shape in shapes.values())]
        for name in names for way, shapes in (("depth", CHAINS), ("second guesses", TREES))])


# ---------------------------------------------------------------- one round, exactly


def emitted(rule, drawn, p, q):
    """(2, V): how often each token comes out, as an accepted draft, as the target's own.

    The root has two children, drawn from q (V,) without replacement or its top tokens; p (V,) is
    the target's.
    """
    found = torch.zeros(2, len(p))

    def run(dice):
        tree = Tree([0, *(draw_without_replacement(q, 2, dice) if drawn else top(q, 2))],
                    [-1, 0, 0], q.repeat(3, 1))
        path, token = rule(tree, p.repeat(3, 1), dice)
        return (0, int(tree.tokens[path[1]])) if len(path) > 1 else (1, token)

    for place, probability in outcomes(run):
        found[place] += probability
    return found
