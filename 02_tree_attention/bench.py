"""Chapter 02 on the runner: more depth against second guesses, and the bias of a natural rule.

Verifying N rows costs the same whether they form a line or a tree. So the budget, the number of
drafts, is held equal, and only the shape differs. The biases are exact: they are counted on small
random models.
"""

import itertools
import operator

import torch

import tree_attention
from cautionary_rule import independent_coins
from nanogpt.bench import PLAIN, plain, speedup, summarize
from nanogpt.cli import print_table
from nanogpt.decoding import tokens_on
from nanogpt.exact.enumeration import (
    loop_distribution,
    output_distribution,
    target_distribution,
    total_variation,
)
from nanogpt.exact.slips import replaced
from nanogpt.exact.toy_models import ToyDraft, ToyModel, ToyTarget
from nanogpt.sampling import Dice, Sampler
from tree_attention import TreeDrafter, multi_round, speculate, walk

# Both begin with the chain of 4. It lies inside every tree: the first child's first child ...
CHAINS = [(1,) * 4, (1,) * 8, (1,) * 14, (1,) * 30]
TREES = [(1,) * 4, (2, 1, 1, 1), (2, 2, 1, 1), (2, 2, 2, 2)]

# ---------------------------------------------------------------- the decoders


def draft_tokens(branching):
    """How many draft tokens a full tree of this shape holds: (2, 2, 1) -> 2 + 4 + 4 = 10."""
    return sum(itertools.accumulate(branching, operator.mul))


def shape_name(branching):
    """(1, 1, 1, 1) -> 'chain of 4'; (2, 2, 1, 1) -> 'tree 2-2-1-1'."""
    if set(branching) == {1}:
        return f"chain of {len(branching)}"
    return "tree " + "-".join(map(str, branching))


def registry(target, draft_model, sampler, accept=walk, shapes=(*CHAINS, *TREES)):
    """{name: start(prompt, seed)}: plain decoding and one decoder per shape.

    draft_model: TreeBigram or TreeGPT; accept: walk (on the top tokens) or multi_round (on drawn
    ones); shapes: a branching for each.
    """
    def tree(branching):
        def start(prompt, seed):
            dice = Dice(seed)
            drafter = TreeDrafter(draft_model, branching, sampler,
                                  dice if accept is multi_round else None)
            return speculate(target, drafter, prompt, sampler, dice, accept)
        return start

    return {PLAIN: plain(target, sampler)} | {shape_name(s): tree(s) for s in shapes}


def fork(results):
    """The chain of 4, and then either more depth or second guesses.

    results: of a registry with all shapes -> {way: {drafts: list of Generation}}.
    """
    return {way: {draft_tokens(shape): results[shape_name(shape)] for shape in shapes}
            for way, shapes in (("more depth", CHAINS), ("second guesses", TREES))}


def print_forks(tables):
    """tau and speed-up of every way.

    tables: {what drafts and judges: results of a registry with all shapes}.
    """
    print_table(["tau, speed-up", "more of", *(f"{draft_tokens(s)} drafts" for s in CHAINS)], [
        [name, way, *(f"{summarize(one)['tau']:.2f}, {speedup(one, results[PLAIN]):.2f}x"
                      for one in texts.values())]
        for name, results in tables.items() for way, texts in fork(results).items()])


# ---------------------------------------------------------------- one forward, or one for each path


@torch.inference_mode()
def largest_difference(model, text, tree, mask=None, depths=None):
    """Between the logits of one forward over a tree and those of a forward for each of its paths.

    text: the tokens up to the root; mask, depths: others than the tree's own.
    """
    mask, depths = tree.mask if mask is None else mask, tree.depths if depths is None else depths
    cache = model.new_cache()
    model(tokens_on(model, text[:-1]), cache=cache)
    cache.commit(list(range(len(text) - 1)))
    logits, _ = model(tree.tokens[None], cache.length + depths, mask, cache)  # (1, N, V)
    paths = [tree.tokens[own].tolist() for own in tree.mask]
    alone = [model(tokens_on(model, text[:-1] + path))[0][0, -1] for path in paths]
    return float((logits[0] - torch.stack(alone)).abs().max())


# ---------------------------------------------------------------- the bias of a rule

PROMPT, SAMPLER = (0, 1), Sampler(1)


def round_distribution(accept, model, draft_model, branching, drawn, length):
    """The exact distribution of the first `length` tokens that a round of tree speculation emits.

    model, draft_model: nanogpt.exact.toy_models.ToyModel; drawn: children are drawn without
    replacement (else they are the top tokens). What the round leaves short, plain decoding adds.
    -> {tokens: probability}
    """
    *context, root = PROMPT
    target, cache = ToyTarget(model), ToyTarget(model).new_cache()
    cache.text = list(context)
    toy_draft = ToyDraft(draft_model)
    toy_draft.observe(context)
    verified = {}  # a tree's tokens: the tree and target_probs; most runs meet a known tree

    def emit(dice):
        drafter = TreeDrafter(toy_draft, branching, SAMPLER, dice if drawn else None)
        tree = drafter.propose(root, room=length)
        known = tuple(tree.tokens.tolist())
        if known not in verified:
            logits, _ = target(tree.tokens[None], cache.length + tree.depths, tree.mask, cache)
            verified[known] = tree, SAMPLER(logits[0])
        tree, target_probs = verified[known]
        path, token = accept(tree, target_probs, dice)
        return [*tree.tokens[path[1:]].tolist(), token]

    return output_distribution(model, SAMPLER, PROMPT, length, emit)


def mean_bias(accept, branching, drawn, length, vocab=4, pairs=30):
    """Total variation, 0..1, between the first `length` tokens that a round emits and the target's,
    at temperature 1: the mean over so many pairs of random models."""
    return sum(
        total_variation(round_distribution(accept, ToyModel(seed, vocab),
                                           ToyModel(100 + seed, vocab), branching, drawn, length),
                        target_distribution(ToyModel(seed, vocab), SAMPLER, PROMPT, length))
        for seed in range(pairs)) / pairs


BREAKS = {  # what is looked at: rule, branching, are the children drawn, how many tokens
    "0. chain of 1, drawn: this is chapter 01": (independent_coins, (1,), True, 1),
    "1. chain of 1, the top token instead of a draw": (independent_coins, (1,), False, 1),
    "2. two drawn children, the old coin for the second": (independent_coins, (2,), True, 1),
    "3. chain of 2, drawn, no residual at its end": (independent_coins, (1, 1), True, 2),
    "all three: a tree 2-2 of top tokens": (independent_coins, (2, 2), False, 2),
}


def breaks():
    """{what breaks: the mean bias}."""
    return {name: mean_bias(*case) for name, case in BREAKS.items()}


def loop_bias(rule, drawn=False, **broken):
    """Total variation between plain decoding and the loop with functions of it replaced."""
    model, draft = ToyModel(5, vocab=3), ToyDraft(ToyModel(99, vocab=3))

    def run(dice):
        drafter = TreeDrafter(draft, (2, 1), SAMPLER, dice if drawn else None)
        return speculate(ToyTarget(model), drafter, PROMPT, SAMPLER, dice, rule)

    with replaced(tree_attention, **broken):
        texts = loop_distribution(run, model, SAMPLER, PROMPT, rounds=1, length=4)
    return total_variation(texts, target_distribution(model, SAMPLER, PROMPT, 4))


def changed_loops():
    """The loop as it is, and with one change at a time -> {change: total variation}."""
    return {
        "walk, as it is": loop_bias(walk),
        "multi-round, as it is": loop_bias(multi_round, True),
        "worst guesses": loop_bias(walk, top=lambda probs, n: probs.argsort()[:n].tolist()),
        "causal mask": loop_bias(walk, ancestor_mask=lambda parents: torch.ones(
            len(parents), len(parents)).tril().bool()),
        "top tokens": loop_bias(multi_round),
        "with replacement": loop_bias(multi_round, True, draw_without_replacement=lambda probs, n,
                                      dice: [dice.draw(probs) for _ in range(n)]),
        "no residual": loop_bias(multi_round, True, residual=lambda p, q: p),
    }
