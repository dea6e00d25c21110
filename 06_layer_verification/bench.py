"""Chapter 06 on the runner: its decoders, every rule on the same trees, and the lesson's checks.

Rules that differ by one percent drown in the noise of a decoded text: whether a step accepts one
token or five is mostly chance. Every step has recorded its tree and the target's probabilities,
though, and with both the rule's coins can be averaged out (`expected_length`). So all rules judge
the very same trees, and are compared tree by tree.
"""

import numpy as np

import layer_verification
import single_step_rules
from iid_trees import SHAPES, as_arrays, shape_parents
from layer_verification import LayerVerification, TokenVerification, decode_layered
from nanogpt.bench import PLAIN, plain, summarize
from nanogpt.cli import print_table
from nanogpt.does_it_pay import small_gpt
from nanogpt.exact.enumeration import outcomes
from nanogpt.exact.slips import replaced
from nanogpt.exact.trees import bias_and_length, tables
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
    """The lesson's contest: plain decoding, chapter 01's chain, BV on it, TV and LV on two chains.
    target, small: GPTs; the small one drafts for all."""
    one, two = (registry(target, TreeGPT(small), Sampler(1), sampler, "multi-chain", b, 4)
                for b, sampler in ((1, Sampler(1)), (2, Sampler(1, top_k=20))))
    return small_gpt(target, small, Sampler(1), []) | {"06 chain of 4, BV": one["BV"]} | {
        f"06 two chains of 4, {name}": two[name] for name in ("TV + K-SEQ", "LV + K-SEQ")}


def print_prices(results):
    """Print what the second chain adds to a round, and what each judge takes. results: of these."""
    one, two = (summarize(results[f"06 {name}"])
                for name in ("chain of 4, BV", "two chains of 4, LV + K-SEQ"))
    tokens, time = (100 * (two[key] / one[key] - 1) for key in ("tau", "ms_per_step"))
    print(f"a second chain (LV + K-SEQ against BV): {tokens:+.0f} % tokens, {time:+.0f} % time")
    step = summarize(results[PLAIN])["ms_per_step"]
    print("the judge alone, in plain steps:", ", ".join(
        f"{name.split(', ')[1]} {summarize(texts)['verb_ms']['accept'] / step:.2f}"
        for name, texts in results.items() if name != PLAIN))


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


def panels(results):
    """{title: see as_panel}: pairs of random tables, and the trees that our decoders have met.

    results: of beside_the_best's decoders.
    """
    drawn, met = [], []
    for b, name in ((1, "06 chain of 4, BV"), (2, "06 two chains of 4, LV + K-SEQ")):
        drafts = lengths(Setting(branching=b), "multi-chain", seeds=range(1, 21), trees=60)
        drawn.append(as_panel({rule: 1 + n for rule, n in drafts.items()}))
        met.append(as_panel(tau_by_tree(
            rules_for("multi-chain", b), recorded_trees(results[name]))))
    # With one candidate every rule for one node is chapter 01's, and LV is BV.
    return {title: {"1 chain, p/q": one["RRS"]} | {f"2 chains, {step}": two[step] for step in two}
            for title, (one, two) in (("Random tables", drawn), ("NanoGPT", met))}


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


# ---------------------------------------------------------------- the lesson's checks, exactly


def check(rule, p, q):
    """Print what a rule for a chain of two tokens, e and t, writes and accepts.

    rule(dice) -> the drafts, the text, how many drafts were accepted; p, q (2,): at both positions.
    """
    found = list(outcomes(rule))
    for text in ([0, 0], [0, 1], [1, 0], [1, 1]):
        share = sum(chance for (_, written, _), chance in found if written == text)
        print("".join("et"[x] for x in text), f"is written with {share:.2f},",
              f"plain: {p[text].prod():.2f}")
    both = sum(chance for (drafts, _, n), chance in found if drafts[0] == 1 and n == 2)
    print(f"if t is first, both are accepted with {both / q[1]:.2f}")
    print(f"drafts accepted on average: {sum(chance * n for (_, _, n), chance in found):.2f}")


def same_coin(draft_probs, target_mass, k):
    """Chapter 01's coin for every candidate, K-SEQ with rho = 1: its pipes overflow."""
    with replaced(single_step_rules, smallest_rho=lambda *problem: 1):
        return single_step_rules.KSEQ(draft_probs, target_mass, k)


def print_changes(shape, changes):
    """Print how far TV, LV and LV with each change are from the target, and what they accept.

    changes: dictionaries {function of layer_verification.py: what stands in its place}.
    """
    models, rows = tables("related", V=3, H=2), []
    for name, lift, change in (("TV", TokenVerification, {}), ("LV", LayerVerification, {}), *(
            (f"change {i}", LayerVerification, change) for i, change in enumerate(changes, 1))):
        with replaced(layer_verification, **change):
            bias, length = bias_and_length(lift(single_step_rules.RRS), shape, models)
        rows.append([name, "0" if bias < 1e-12 else f"{bias:.3f}", f"{length:.3f}"])
    print_table(["RRS with", "total variation", "drafts accepted"], rows)
