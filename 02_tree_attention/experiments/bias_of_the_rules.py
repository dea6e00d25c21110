"""The bias of every accept rule of the chapter, counted exactly on small random models.

BREAKS shows the three breaks of the cautionary rule one at a time, on trees so small that only one
of them can have an effect. `bias_table` compares all rules on one tree.
"""

from cautionary_rule import independent_coins
from nanogpt.exact.enumeration import output_distribution, target_distribution, total_variation
from nanogpt.exact.toy_models import ToyDraft, ToyModel, ToyTarget
from nanogpt.pictures import plots
from nanogpt.printing import print_table
from nanogpt.sampling import Sampler
from tree_attention import TreeDrafter, multi_round, walk

PROMPT, SAMPLER = (0, 1), Sampler(1)


def round_distribution(accept, model, draft_model, branching, drawn, length, sampler=SAMPLER):
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
        drafter = TreeDrafter(toy_draft, branching, sampler, dice if drawn else None)
        tree = drafter.propose(root, room=length)
        known = tuple(tree.tokens.tolist())
        if known not in verified:
            logits, _ = target(tree.tokens[None], cache.length + tree.depths, tree.mask, cache)
            verified[known] = tree, sampler(logits[0])
        tree, target_probs = verified[known]
        path, token = accept(tree, target_probs, dice)
        return [*tree.tokens[path[1:]].tolist(), token]

    return output_distribution(model, sampler, PROMPT, length, emit)


def first_tokens(distribution, n):
    """The distribution of the first n tokens, from that of more. {tokens: probability}, both."""
    shorter = {}
    for tokens, probability in distribution.items():
        shorter[tokens[:n]] = shorter.get(tokens[:n], 0.0) + probability
    return shorter


def mean_bias(accept, branching, drawn, length, vocab=4, pairs=30, drafter_is_target=False):
    """Total variation, 0..1, between what a round emits and the target, at temperature 1.

    -> a list: for the first token, the first two, ... the first `length`; each the mean over
    so many pairs of random models.
    """
    biases = []
    for seed in range(pairs):
        model = ToyModel(seed, vocab)
        draft_model = model if drafter_is_target else ToyModel(100 + seed, vocab)
        emitted = round_distribution(accept, model, draft_model, branching, drawn, length)
        biases.append([
            total_variation(first_tokens(emitted, n),
                            target_distribution(model, SAMPLER, PROMPT, n))
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


def print_bias_of_the_rules(out):
    """Print the three breaks one by one, then all rules on one tree; draw them into bias.png."""
    print("\nTotal variation between output and target (exact; 0 = lossless), random models of 4 "
          "tokens\n")
    print_table(["one break at a time", "bias"], [
        [name, f"{mean_bias(*case)[-1]:.4f}"] for name, case in BREAKS.items()
    ])
    tables = {"random drafter": bias_table(),
              "drafter = target": bias_table(drafter_is_target=True)}
    print()
    print_table(["branching 2-2", *(f"{who}, {n}" for who in tables for n in (1, 2))], [
        [rule, *(f"{bias:.4f}" for table in tables.values() for bias in table[rule])]
        for rule in RULES
    ])
    groups = {f"{text}\n{who}": {rule: biases[n] for rule, biases in table.items()}
              for who, table in tables.items()
              for n, text in enumerate(("first token", "first two tokens"))}
    plots.save(plots.draw_bars(groups, "distance from the target's distribution"),
               out / "bias.png")
