"""Chapter 06 on the runner: its decoders, and every rule on the same trees.

Rules that differ by one percent drown in the noise of a decoded text: whether a step accepts one
token or five is mostly chance. Every step has recorded its tree and the target's probabilities,
though, and with both the rule's coins can be averaged out (`expected_length`). So all rules judge
the very same trees, and are compared tree by tree.
"""

import numpy as np

from iid_trees import SHAPES, as_arrays, shape_parents
from layer_verification import decode_layered
from nanogpt.bench import PLAIN, plain
from nanogpt.cli import print_table
from nanogpt.does_it_pay import small_gpt
from nanogpt.sampling import Dice, Sampler
from toy_experiment import RULES, STEPS, Setting, lengths, rules_for
from tree_attention import TreeGPT  # chapter 02

# ---------------------------------------------------------------- the decoders


def registry(target, model, sampler, draft_sampler, shape_name, branching, depth):
    """{name: start(prompt, seed)}: plain decoding, and every rule that can judge such trees.

    model: TreeBigram or TreeGPT, the drafter's; draft_sampler: of the draft distribution.
    """
    parents = shape_parents(SHAPES[shape_name], branching, depth)

    def judged(rule):
        return lambda prompt, seed: decode_layered(
            target, model, rule, parents, prompt, sampler, Dice(seed), draft_sampler)

    return {PLAIN: plain(target, sampler)} | {
        name: judged(rule) for name, rule in rules_for(shape_name, branching).items()}


def beside_the_best(target, small):
    """The lesson's contest: plain decoding, chapter 01's chain, TV and LV on two chains.
    target, small: GPTs; the small one drafts for all."""
    two = registry(target, TreeGPT(small), Sampler(1), Sampler(1, top_k=20), "multi-chain", 2, 4)
    return small_gpt(target, small, Sampler(1), []) | {
        f"06 two chains of 4, {name}": two[name] for name in ("TV + K-SEQ", "LV + K-SEQ")}


# ---------------------------------------------------------------- the same trees, without coins


def recorded_trees(generations, most=400):
    """At most that many of the trees that a decoder met, evenly spread -> a list of as_arrays."""
    details = [step.detail for g in generations for step in g.steps
               if step.detail is not None and len(step.detail.tree) > 1]
    return [as_arrays(d.tree, d.target_probs) for d in details[::len(details) // most + 1]]


def tau_by_tree(rules, trees):
    """{name: rule}, a list of as_arrays -> {name: (n,)}: expected tokens of a step on each tree.

    The next token is counted, as tau counts it.
    """
    return {name: np.array([1 + rule.expected_length(*tree)[0] for tree in trees])
            for name, rule in rules.items()}


def gain(lifted, base):
    """Percent by which one rule's mean exceeds another's on the same trees; its standard error."""
    differences = 100 * (lifted - base) / base.mean()
    return differences.mean(), differences.std() / max(len(differences) - 1, 1) ** 0.5


def as_panel(tau):
    """{rule: (n,)} -> {step: (TV's mean, LV's, the gain in percent, its standard error)}."""
    pairs = {step: [tau[f"{lift} + {step}"] for lift in ("TV", "LV")] for step in STEPS}
    return {step: (tv.mean(), lv.mean(), *gain(lv, tv)) for step, (tv, lv) in pairs.items()}


def panels(generations):
    """{title: see as_panel}: pairs of random tables, and the trees that a decoder has met."""
    found = {f"Random tables, {title}": {
        name: 1 + drafts for name, drafts in lengths(
            Setting(), shape_name, seeds=range(1, 21), trees=60).items()}
        for title, shape_name in (("two chains", "multi-chain"), ("complete trees", "complete"))}
    found["NanoGPT, two chains"] = tau_by_tree(
        rules_for("multi-chain", 2), recorded_trees(generations))
    return {title: as_panel(tau) for title, tau in found.items()}


def print_same_trees(results):
    """Print what each rule expects on the trees that all of them met, and LV over TV in percent,
    with its standard error. results: {name: list of Generation}"""
    names = [name for name in results if name != PLAIN]
    trees = recorded_trees([g for name in names for g in results[name]])
    tau = tau_by_tree({name: RULES[name] for name in names}, trees)
    gains = {f"LV + {step}": "{2:+.2f}% ({3:.2f})".format(*found)
             for step, found in as_panel(tau).items()}
    print_table([f"the same {len(trees)} trees", "expected tau", "LV over TV"],
                [[name, f"{x.mean():.3f}", gains.get(name, "")] for name, x in tau.items()])
