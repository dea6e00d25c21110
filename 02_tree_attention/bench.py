"""Chapter 02 on the runner: more depth against second guesses, and the bias of a natural rule.

Verifying N rows costs the same whether they form a line or a tree. So the budget, the number of
drafts, is held equal, and only the shape differs. The biases are exact: they are counted on small
random models.
"""

from functools import partial

import torch

import tree_attention
from cautionary_rule import independent_coins
from nanogpt.bench import PLAIN, plain, speedup, summarize
from nanogpt.cli import print_table
from nanogpt.exact.enumeration import (
    loop_distribution,
    outcomes,
    target_distribution,
    total_variation,
)
from nanogpt.exact.slips import replaced
from nanogpt.exact.toy_models import ToyDraft, ToyModel, ToyTarget
from nanogpt.sampling import Dice, Sampler
from tree_attention import Tree, TreeDrafter, multi_round, speculate, walk

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


def registry(target, draft_model, sampler, accept=walk, shapes=SHAPES):
    """{name: start(prompt, seed)}: plain decoding and one decoder per shape.

    draft_model: TreeBigram or TreeGPT; accept: walk (on the top tokens) or multi_round (on drawn
    ones); shapes: a branching for each.
    """
    def start(branching, prompt, seed):
        dice = Dice(seed)
        drafter = TreeDrafter(draft_model, branching, sampler,
                              dice if accept is multi_round else None)
        return speculate(target, drafter, prompt, sampler, dice, accept)

    return {PLAIN: plain(target, sampler)} | {shape_name(s): partial(start, s) for s in shapes}


def fork(results):
    """The chain of 4, and then either more depth or second guesses.

    results: of a registry with all shapes -> {way: {drafts: list of Generation}}.
    """
    return {way: {drafts: results[shape_name(shape)] for drafts, shape in shapes.items()}
            for way, shapes in (("more depth", CHAINS), ("second guesses", TREES))}


def print_forks(tables):
    """tau and speed-up of every way.

    tables: {what drafts and judges: results of a registry with all shapes}.
    """
    print_table(["tau, speed-up", "more of", *(f"{drafts} drafts" for drafts in CHAINS)], [
        [name, way, *(f"{summarize(one)['tau']:.2f}, {speedup(one, results[PLAIN]):.2f}x"
                      for one in texts.values())]
        for name, results in tables.items() for way, texts in fork(results).items()])


# ---------------------------------------------------------------- how far a rule is off, exactly


def bias(rule, branching, drawn, length, pair=5, **broken):
    """Total variation, 0..1, between plain decoding and a round of the loop, over `length` tokens.

    drawn: children are drawn without replacement (else they are the top tokens); pair: which two
    random models of 3 tokens; broken: functions of tree_attention to replace. Temperature 1.
    """
    model, draft_model = ToyModel(pair, vocab=3), ToyDraft(ToyModel(100 + pair, vocab=3))
    prompt, sampler = (0, 1), Sampler(1)

    def run(dice):
        drafter = TreeDrafter(draft_model, branching, sampler, dice if drawn else None)
        return speculate(ToyTarget(model), drafter, prompt, sampler, dice, rule)

    with replaced(tree_attention, **broken):
        texts = loop_distribution(run, model, sampler, prompt, rounds=1, length=length)
    return total_variation(texts, target_distribution(model, sampler, prompt, length))


def emitted(rule, children, p, q):
    """(2, V): how often each token comes out, as an accepted draft, as the target's own.

    children: dice -> the tokens below a root with target p (V,) and drafter q (V,).
    """
    found = torch.zeros(2, len(p))

    def run(dice):
        drafted = children(dice)
        rows = len(drafted) + 1
        tree = Tree([0, *drafted], [-1] + [0] * len(drafted), q.repeat(rows, 1))
        path, token = rule(tree, p.repeat(rows, 1), dice)
        return (0, int(tree.tokens[path[1]])) if len(path) > 1 else (1, token)

    for place, probability in outcomes(run):
        found[place] += probability
    return found


def mean_bias(*case, pairs=30):
    """The mean of `bias` over so many pairs of models."""
    return sum(bias(*case, pair=pair) for pair in range(pairs)) / pairs


BREAKS = {  # rule, branching, are the children drawn, how many tokens: the root's, then the round's
    "0. chain of 1, drawn: this is chapter 01": (independent_coins, (1,), True, 2),
    "1. chain of 1, the top token instead of a draw": (independent_coins, (1,), False, 2),
    "2. two drawn children, the old coin for the second": (independent_coins, (2,), True, 2),
    "3. chain of 2, drawn, no residual at its end": (independent_coins, (1, 1), True, 3),
    "all three: a tree 2-2 of top tokens": (independent_coins, (2, 2), False, 3),
}


def print_breaks():
    print_table(["total variation of one coin a node", "mean of 30 pairs of models"],
                [[name, f"{mean_bias(*case):.2f}"] for name, case in BREAKS.items()])


def changed_loops():
    """The loop as it is, and with one change at a time -> {change: total variation}."""
    picked, drawn = (walk, (2, 1), False, 4), (multi_round, (2, 1), True, 4)
    return {
        "walk, as it is": bias(*picked),
        "multi-round, as it is": bias(*drawn),
        "worst guesses": bias(*picked, top=lambda probs, n: probs.argsort()[:n].tolist()),
        "causal mask": bias(*picked, ancestor_mask=lambda parents: torch.ones(
            len(parents), len(parents)).tril().bool()),
        "top tokens": bias(multi_round, (2, 1), False, 4),
        "with replacement": bias(*drawn, draw_without_replacement=lambda probs, n, dice: [
            dice.draw(probs) for _ in range(n)]),
        "no residual": bias(*drawn, residual=lambda p, q: p),
    }
