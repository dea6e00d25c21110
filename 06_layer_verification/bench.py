"""Chapter 06 on the runner: its decoders, every rule on the same trees, and the paper's Table 1.

    python 06_layer_verification/bench.py                               # Table 1
    python 06_layer_verification/bench.py --depth 5 --similarity 0.25   # Appendix G

Rules that differ by one percent drown in the noise of a decoded text: whether a step accepts one
token or five is mostly chance. Every step has recorded its tree and the target's probabilities,
though, and with both the rule's coins can be averaged out (`expected_length`). So all rules judge
the very same trees, and are compared tree by tree.

Table 1 needs no network. Draft and target are random: for every prefix, logits rho u + (1 - rho)
eps with a shared normal u and an eps of its own for each of the two, then softmax. One seed is one
such pair of models. From each pair trees are drawn, and every rule judges the same trees, again
without coins. The paper runs 10^6 trials a seed instead. What remains is the spread over the
models, which is what its standard errors over 20 seeds measure, and a small one over the trees.

Source: "Layer Verification ..." (2026), Section 5.1, Table 1, Appendix G.
"""

import sys
from importlib import import_module
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))  # so that a plain clone runs, too

import numpy as np
import torch

from nanogpt import cli
from block_rules import BlockVerification, GreedyBlockVerification, TraversalVerification
from global_resolution import GR
from iid_trees import SHAPES, as_arrays, shape_of, shape_parents
from layer_verification import LayerVerification, TokenVerification, decode_layered
from nanogpt.bench import PLAIN, plain, summarize
from nanogpt.does_it_pay import small_gpt
from nanogpt.exact.enumeration import outcomes
from nanogpt.exact.slips import replaced
from nanogpt.exact.trees import Tables, bias_and_length, tables
from nanogpt.sampling import Dice, Sampler
from single_step_rules import KSEQ, RRS
from tree_attention import TreeGPT  # chapter 02

VOCAB, BRANCHING = 15, 2  # of Table 1, as
SEEDS, TREES = 20, 1000  # pairs of models, trees drawn from each

# ---------------------------------------------------------------- the rules that are compared

STEPS = {"K-SEQ": KSEQ, "RRS": RRS, "GR": GR}
RULES = {f"{lift} + {name}": lifted(step) for name, step in STEPS.items()
         for lift, lifted in (("TV", TokenVerification), ("LV", LayerVerification))}
RULES |= {"TRV": TraversalVerification(), "GBV": GreedyBlockVerification(),
          "BV": BlockVerification()}


def rules_for(shape_name, branching):
    """{name: rule}, those that can judge such trees: GBV wants chains that part at the root, BV
    one chain."""
    fits = {"BV": branching == 1, "GBV": branching == 1 or shape_name == "multi-chain"}
    return {name: rule for name, rule in RULES.items() if fits.get(name, True)}


# ---------------------------------------------------------------- the decoders


def registry(target, model, sampler, draft_sampler, shape_name, branching, depth):
    """{name: start(prompt, seed)}: plain decoding, and every rule that can judge such trees.

    model: TreeBigram or TreeGPT, the drafter's; draft_sampler: of the draft distribution.
    """
    parents = shape_parents(SHAPES[shape_name], branching, depth)
    return {PLAIN: plain(target, sampler)} | {
        name: lambda prompt, seed, rule=rule: decode_layered(
            target, model, rule, parents, prompt, sampler, Dice(seed), draft_sampler)
        for name, rule in rules_for(shape_name, branching).items()}


def beside_the_best(target, small):
    """The lesson's contest: plain decoding, chapter 01's chain, BV on it, TV and LV on two chains.
    target, small: GPTs; the small one drafts for all."""
    one, two = (registry(target, TreeGPT(small), Sampler(1), sampler, "multi-chain", b, 4)
                for b, sampler in ((1, Sampler(1)), (2, Sampler(1, top_k=20))))
    return small_gpt(target, small, Sampler(1)) | {"06 chain of 4, BV": one["BV"]} | {
        f"06 two chains of 4, {name}": two[name] for name in ("TV + K-SEQ", "LV + K-SEQ")}


# ---------------------------------------------------------------- the same trees, without coins


def recorded_trees(generations):
    """At most 400 of the trees that a decoder met, evenly spread -> a list of as_arrays."""
    details = [step.detail for g in generations for step in g.steps
               if step.detail is not None and len(step.detail.tree) > 1]
    return [as_arrays(d.tree, d.target_probs) for d in details[::len(details) // 400 + 1]]


def tau_by_tree(rules, trees):
    """{name: rule}, a list of as_arrays -> {name: (n,)}: expected tokens of a step on each tree.

    The next token is counted, as tau counts it.
    """
    return {name: np.array([1 + rule.expected_length(*tree)[0] for tree in trees])
            for name, rule in rules.items()}


def gain(tau, step):
    """TV's mean, LV's, by how many percent LV's is larger, and the standard error of that.

    tau: of tau_by_tree; step: one of STEPS.
    """
    tv, lv = (tau[f"{lift} + {step}"] for lift in ("TV", "LV"))
    differences = 100 * (lv - tv) / tv.mean()
    return (tv.mean(), lv.mean(), differences.mean(),
            differences.std() / max(len(differences) - 1, 1) ** 0.5)


def gains(results):
    """{name: see gain}, on the trees that our decoders have met. results: of beside_the_best's."""
    one, two = (tau_by_tree(rules_for("multi-chain", b), recorded_trees(results[f"06 {name}"]))
                for b, name in ((1, "chain of 4, BV"), (2, "two chains of 4, LV + K-SEQ")))
    # With one candidate every rule for one node is chapter 01's, and LV is BV.
    return {"1 chain, p/q": gain(one, "RRS")} | {
        f"2 chains, {step}": gain(two, step) for step in STEPS}


def print_same_trees(results):
    """Print what each rule expects on the trees that all of them met, and LV over TV in percent,
    with its standard error. results: {name: list of Generation}"""
    names = [name for name in results if name != PLAIN]
    trees = recorded_trees([g for name in names for g in results[name]])
    tau = tau_by_tree({name: RULES[name] for name in names}, trees)
    more = {f"LV + {step}": "{2:+.2f}% ({3:.2f})".format(*gain(tau, step)) for step in STEPS}
    cli.print_table([f"the same {len(trees)} trees", "expected tau", "LV over TV"],
                    [[name, f"{x.mean():.3f}", more.get(name, "")] for name, x in tau.items()])


def print_prices(results, gained):
    """Print whether their tokens pay: LV's against TV's, BV's against chapter 01's, two chains'.

    results: of beside_the_best's decoders; gained: of gains, whose tokens are without coins.
    """
    lines = {name: summarize(runs) for name, runs in results.items()}
    step, *others = lines.values()
    judges = [round(line["verb_ms"]["accept"] / step["ms_per_step"], 3) for line in others]
    chain, block, tree, layers = (line["ms_per_step"] / step["ms_per_step"] for line in others)
    print("the judge alone, in plain steps: p/q {:.3f}, BV {:.3f}, TV {:.3f}, LV {:.3f}".format(
        *judges))
    bv_adds, _, lv_adds = np.diff(judges)
    p_q, bv, *_ = gained["1 chain, p/q"]
    tv, lv, *_ = gained["2 chains, K-SEQ"]
    for name, tokens, time in (
            ("LV against TV, two chains", lv / tv, 1 + lv_adds / tree),
            ("BV against chapter 01, one chain", bv / p_q, block / chain),
            ("the same in chapter 01's loop (estimate)", bv / p_q, 1 + bv_adds / chain),
            ("two chains (LV) against one (BV)", lv / bv, layers / block)):
        print(f"{name}: {100 * tokens - 100:+.1f} % tokens, {100 * time - 100:+.1f} % time, "
              f"{tokens / time:.2f} times as fast: {'pays' if tokens > time else 'does not pay'}")
    print("fastest in the picture:", max(lines, key=lambda name: lines[name]["tokens_per_second"]))


# ---------------------------------------------------------------- a pair of random models


def random_pair(vocab, depth, similarity, seed):
    """A random drafter and target -> Tables, for every prefix of fewer than `depth` tokens.

    similarity: rho, the shared part of the logits.
    """
    generator, sides = torch.Generator().manual_seed(seed), ([], [])
    for t in range(depth):
        # In the same order whatever rho is: neighbouring points of a sweep differ by rho alone.
        shared, *own = torch.randn(vocab ** t, 3, vocab, generator=generator,
                                   dtype=torch.float64).unbind(1)  # (V^t, V) each
        for side, noise in zip(sides, own, strict=True):
            logits = similarity * shared + (1 - similarity) * noise
            side.append(torch.softmax(logits, -1).numpy())
    return Tables(*sides)


def draw_trees(models, shape, B, seed):
    """B trees of one shape -> tokens (B, N), draft_probs, target_probs (B, N, V), as rules judge
    them. The rows of nodes without children stay 0: no expectation depends on them."""
    N, generator = len(shape.parents), np.random.default_rng(seed)
    # prefix: the number, in base V, that the path to a node spells; its row in the tables.
    tokens, prefix = np.zeros((2, B, N), dtype=np.int64)
    draft_probs, target_probs = np.zeros((2, B, N, models.V))
    for t, layer in enumerate(shape.layers[:-1]):
        for parents, kids in layer.families:
            here = prefix[:, parents]  # (B, n), rows of this depth's tables
            draft_probs[:, parents] = models.draft[t][here]
            target_probs[:, parents] = models.target[t][here]
            sums = draft_probs[:, parents].cumsum(-1)[:, :, None]  # (B, n, 1, V)
            shares = generator.random((B, *kids.shape, 1)) * sums[..., -1:]  # (B, n, k, 1)
            tokens[:, kids] = (shares >= sums).sum(-1)  # the first whose sum is beyond
            prefix[:, kids] = here[:, :, None] * models.V + tokens[:, kids]
    return tokens, draft_probs, target_probs


def lengths(shape_name, depth, similarity):
    """{rule: accepted tokens on each pair of models (SEEDS,)}, expected over the coins."""
    shape = shape_of(tuple(shape_parents(SHAPES[shape_name], BRANCHING, depth)))
    rules = rules_for(shape_name, BRANCHING)
    found = {name: [] for name in rules}
    for seed in range(1, SEEDS + 1):
        trees = draw_trees(random_pair(VOCAB, depth, similarity, seed), shape, TREES, seed)
        for name, rule in rules.items():
            found[name].append(rule.expected_length(shape, *trees).mean())
    return found


def main(argv=None):
    p = cli.Parser("The paper's toy experiment: expected accepted tokens of every rule.")
    p.add_argument("--similarity", type=float, default=0.5, help="rho, from 0 to 1")
    p.add_argument("--depth", type=int, default=4, help="of the trees")
    args = p.parse_args(argv)
    if not 0 <= args.similarity <= 1:
        raise ValueError(f"similarity is {args.similarity}; it must be in [0, 1]")
    if args.depth > 6:  # 7 layers would be 170 million logits a model
        raise ValueError(f"depth is {args.depth}; it must be at most 6")
    print(f"Accepted tokens per tree (standard error over {SEEDS} pairs of models): "
          f"depth {args.depth}, similarity {args.similarity:g}")
    columns = [lengths(shape, args.depth, args.similarity) for shape in SHAPES]

    def mean(values):  # the error over the models, which differ more than their trees
        return f"{np.mean(values):.3f} ({np.std(values, ddof=1) / len(values) ** 0.5:.3f})"

    cli.print_table(["method", *SHAPES], [
        [name, *(mean(found[name]) if name in found else "-" for found in columns)]
        for name in rules_for("multi-chain", BRANCHING)])


# ---------------------------------------------------------------- the lesson's checks, exactly


def check(rule, p, q):
    """Print what a rule for a chain of two tokens, e and t, writes and accepts.

    rule(dice) -> the drafts, the text, how many drafts were accepted; p, q (2,): at both positions.
    """
    found = list(outcomes(rule))
    for text in ([0, 0], [0, 1], [1, 0], [1, 1]):
        share = sum(chance for (_, written, _), chance in found if written == text)
        print("".join("et"[x] for x in text), f"is written with {share:.2f}, "
              f"plain: {p[text].prod():.2f}")
    both = sum(chance for (drafts, _, n), chance in found if drafts[0] and n == 2)
    print(f"if t is first, both are accepted with {both / q[1]:.2f}")
    print(f"drafts accepted on average: {sum(chance * n for (_, _, n), chance in found):.2f}")


def print_changes(shape, changes):
    """Print how far TV, LV and LV with each change are from the target, and what they accept.

    changes: dictionaries {function of layer_verification.py: what stands in its place}.
    """
    models, rows = tables("related", V=3, H=2), []
    for name, lift, change in (("TV", TokenVerification, {}), ("LV", LayerVerification, {}), *(
            (f"change {i}", LayerVerification, change) for i, change in enumerate(changes, 1))):
        with replaced(import_module("layer_verification"), **change):
            bias, length = bias_and_length(lift(RRS), shape, models)
        rows.append([name, "0" if bias < 1e-12 else f"{bias:.3f}", f"{length:.3f}"])
    cli.print_table(["RRS with", "total variation", "drafts accepted"], rows)


if __name__ == "__main__":
    cli.run(main)
