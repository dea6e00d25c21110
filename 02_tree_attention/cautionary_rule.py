"""A rule that looks right and is not: one coin a node, and the longest path wins.

This is how the article "Tree-Based Speculative Decoding" accepts a tree. Every node gets the coin
of chapter 01, min(1, target / draft); of the paths whose nodes all passed, the longest is taken,
and its end emits a token of the target. Nothing crashes and the text reads well, but its
distribution is no longer the target's. How far off it is, `mean_bias` counts exactly.

The proof of chapter 01 says that token x comes out with probability

    draft(x) * min(1, target(x) / draft(x))  +  P(rejected) * residual(x)  =  target(x)

and the rule breaks each of its parts:

    draft(x)         the chance that x was proposed. The top-W children are always proposed, so the
                     factor is 1 and not draft(x). Even if the drafter equals the target: then every
                     coin passes, and the output is always the most probable token.
    min(1, ...)      right for the first child. The second is only looked at after the first was
                     rejected, when what the target still owes is the residual. Here it keeps the
                     old coin, and which of the two wins is settled by what grew below them.
    residual(x)      spoken only if all children of the root fail. If a path ends because the
                     children of its last node were rejected, the rule draws from the target itself,
                     as if they had never been offered.

`walk` and `multi_round` (tree_attention.py) are the two repairs. `bias_table` takes the three
breaks apart: trees so small that only one of them can show.
"""

from chain_specdec import acceptance_probability, residual
from nanogpt.exact.enumeration import output_law, target_law, total_variation
from nanogpt.exact.toy_models import ToyDraft, ToyModel, ToyTarget
from nanogpt.sampling import Sampler
from tree_attention import TreeDrafter, multi_round, verify, walk

PROMPT, SAMPLER = (0, 1), Sampler(1)


def independent_coins(tree, target_probs, dice):
    """NOT LOSSLESS. Arguments and result as `tree_attention.walk`; the tree carries draft_probs."""
    paths = {0: [0]}  # for each node that is reached by accepted nodes alone, the way to it
    for row in range(1, len(tree)):
        parent, token = int(tree.parents[row]), int(tree.tokens[row])
        coin = acceptance_probability(target_probs[parent], tree.draft_probs[parent], token)
        if dice.flip(coin) and parent in paths:
            paths[row] = paths[parent] + [row]
    best = max(paths.values(), key=len)  # the first of the longest
    if best == [0] and len(tree) > 1:
        return best, dice.draw(residual(target_probs[0], tree.draft_probs[0]))
    return best, dice.draw(target_probs[best[-1]])


def one_round_law(accept, model, draft_model, branching, drawn, length, sampler=SAMPLER):
    """The exact law of the first `length` tokens that one round of tree speculation emits.

    model, draft_model: nanogpt.enumeration.ToyModel; drawn: children are drawn without
    replacement (else they are the top tokens). What the round leaves short, plain decoding adds.
    -> {tokens: probability}
    """
    *context, root = PROMPT

    def emit(dice):
        target, cache = ToyTarget(model), ToyTarget(model).new_cache()
        cache.text = list(context)
        drafter = TreeDrafter(ToyDraft(draft_model), branching, sampler, dice if drawn else None)
        drafter.observe(context)
        tree = drafter.propose(root, room=length)
        logits, _ = verify(target, cache, tree)
        path, token = accept(tree, sampler(logits), dice)
        return [*tree.tokens[path[1:]].tolist(), token]

    return output_law(model, sampler, PROMPT, length, emit)


def first_tokens(law, n):
    """The law of the first n tokens, from the law of more. {tokens: probability}, both."""
    shorter = {}
    for tokens, probability in law.items():
        shorter[tokens[:n]] = shorter.get(tokens[:n], 0.0) + probability
    return shorter


def mean_bias(accept, branching, drawn, length, vocab=4, pairs=30, drafter_is_target=False):
    """Total variation, 0..1, between the round's law and the target's, at temperature 1.

    -> a list: for the first token, the first two, ... the first `length`; each the mean over
    so many pairs of random models.
    """
    biases = []
    for seed in range(pairs):
        model = ToyModel(seed, vocab)
        draft_model = model if drafter_is_target else ToyModel(100 + seed, vocab)
        law = one_round_law(accept, model, draft_model, branching, drawn, length)
        biases.append([
            total_variation(first_tokens(law, n), target_law(model, SAMPLER, PROMPT, n))
            for n in range(1, length + 1)
        ])
    return [sum(column) / pairs for column in zip(*biases, strict=True)]


BREAKS = {  # what is looked at: rule, branching, are the children drawn, how many tokens
    "chain of 1, drawn: this is chapter 01": (independent_coins, (1,), True, 1),
    "chain of 1, the top token instead of a draw": (independent_coins, (1,), False, 1),
    "two drawn children, the old coin for the second": (independent_coins, (2,), True, 1),
    "chain of 2, drawn, no residual at its end": (independent_coins, (1, 1), True, 2),
}
RULES = {  # rule, are the children drawn, pairs of models (drawn trees take seconds a pair)
    "independent coins": (independent_coins, False, 30),
    "walk": (walk, False, 30),
    "multi-round": (multi_round, True, 2),
}


def bias_table(branching=(2, 2), drafter_is_target=False, vocab=4):
    """The bias of every rule of the chapter on one shape -> {rule: list as of `mean_bias`}."""
    return {
        name: mean_bias(accept, branching, drawn, len(branching), vocab, pairs, drafter_is_target)
        for name, (accept, drawn, pairs) in RULES.items()
    }
