"""Chapter 02 on the runner: more depth against second guesses; and what one round emits, exactly.

Verifying N rows costs the same whether they form a line or a tree. So the number of drafts is held
equal, and only the shape differs.
"""

from functools import partial

import torch

from nanogpt.bench import PLAIN, ms_per_token, paired, plain, summarize
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
    (on drawn ones); shapes: branchings.
    """
    def start(model, branching, prompt, seed):
        dice = Dice(seed)
        drafter = TreeDrafter(model, branching, sampler, dice if accept is multi_round else None)
        return speculate(target, drafter, prompt, sampler, dice, accept)

    return {PLAIN: plain(target, sampler)} | {
        f"{name}, {shape_name(shape)}": partial(start, model, shape)
        for name, model in draft_models.items() for shape in shapes}


def print_differences(results, name, pairs):
    """What the first of each pair has more of: tokens a round, milliseconds a token.

    results: of compare; name: of a drafter; pairs: {label: (shape, shape)}. \u00b1 is two standard
    errors of the difference, text by text.
    """
    def tokens_a_round(runs):
        """Of each text by itself; their mean is that of all texts together."""
        tau, rounds = summarize(runs)["tau"], sum(len(run.steps) for run in runs) / len(runs)
        return [tau + (len(run.tokens) - 1 - tau * len(run.steps)) / rounds for run in runs]

    def more(values, pair):
        found = paired(*(values(results[f"{name}, {shape}"]) for shape in pair))
        return "{:+.2f} \u00b1 {:.2f}".format(*found)

    print_table([name, "tokens", "ms/token"], [
        [label, more(tokens_a_round, pair), more(ms_per_token, pair)]
        for label, pair in pairs.items()])


# ---------------------------------------------------------------- one round, exactly


def print_emitted(rules, p, q, tokens):
    """How often each token comes out of a round, and how often a draft is accepted.

    rules: {name: rule}; p, q (V,); tokens: V texts. The root has two children, drawn from q without
    replacement, or for the walk its top tokens.
    """
    rows = []
    for name, rule in rules.items():
        def run(dice, rule=rule):
            children = top(q, 2) if rule is walk else draw_without_replacement(q, 2, dice)
            tree = Tree([0, *children], [-1, 0, 0], q.repeat(3, 1))
            path, token = rule(tree, p.repeat(3, 1), dice)
            return [children[path[1] - 1], len(p)] if len(path) > 1 else [token]

        found = torch.zeros(len(p) + 1)
        for places, probability in outcomes(run):
            found[places] += probability
        rows.append([name, *(f"{value:.3f}".lstrip("0") for value in found.tolist())])
    print_table(["", *tokens, "accepted"], rows)
