"""Chapter 06 on the runner: its decoders, every rule on the same trees, and the paper's Table 1.

    python 06_layer_verification/layers_room.py                               # Table 1
    python 06_layer_verification/layers_room.py --depth 5 --similarity 0.25   # Appendix G
    python 06_layer_verification/layers_room.py --save FILE    # chains by length: load_gains

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
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))  # so that a plain clone runs, too

import json
from importlib import import_module
from itertools import accumulate, product

import numpy as np
import torch

from nanogpt import cli
from block_grow import grow_drawn  # chapter 05
from block_rules import (
    BlockVerification,
    GreedyBlockVerification,
    TraversalVerification,
    block_verification,
    block_verify,
    score,
)
from chain_grow import grow_chain  # chapter 01
from chain_specdec import (
    BigramDraft,
    GPTDraft,
    acceptance_probability,
    residual,
    speculate_chain,
)
from conditional_marginals import BlockLevels  # chapter 05
from dual_draft_routing import HeadDraft, HeadLevels, RoutedLevels  # chapter 03
from global_resolution import GR, CappedGR, DistinctGR
from heads_grow import grow_drawn_head  # chapter 03
from iid_grow import grow_sampled, grow_sampled_head
from iid_trees import SHAPES, SampledTreeDrafter, as_arrays, shape_of, shape_parents
from layer_verification import (
    LayerVerification,
    TokenVerification,
    end_probabilities,
    inclusion_scores,
    score_children,
    still_owed,
    stop_probabilities,
)
from nanogpt.chapter import Loop
from nanogpt.data import held_out_prompts, load_dataset
from nanogpt.decoding import collect
from nanogpt.device import pick_device
from nanogpt.does_it_pay import MEASURED, machine, save
from nanogpt.exact.enumeration import outcomes
from nanogpt.exact.slips import replaced, slips
from nanogpt.exact.toy_models import ToyDraft, ToyModel, loop_bias
from nanogpt.exact.trees import Tables, bias_and_length, tables
from nanogpt.run import a_cast
from nanogpt.sampling import Dice, Sampler
from single_step_rules import KSEQ, RRS, rejection_rounds, smallest_rho
from text_table import NgramDraft, NgramLevels  # chapter 01
from tree_attention import TreeDrafter, TreeGPT, speculate  # chapter 02

VOCAB, BRANCHING = 15, 2  # of Table 1, as
SEEDS, TREES = 20, 1000  # pairs of models, trees drawn from each
TEXTS = 200  # of --save, 96 tokens each

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


def gpt_levels(m):
    return TreeGPT(m.small)


def head_levels(m):
    return HeadLevels(m.head)


def sampled(shape, branching, top_k=None, levels=gpt_levels):
    """The drafter of a Loop: trees of this shape, as deep as the budget, their tokens drawn.

    top_k: of the draft distribution; GR needs a small set of possible drafts; levels(m): the model
    that is asked for each level.
    """
    def drafter(m, depth, sampler, dice):
        parents = shape_parents(SHAPES[shape], branching, depth)
        cut = Sampler(sampler.temperature, top_k or sampler.top_k, sampler.top_p)
        return SampledTreeDrafter(levels(m), parents, cut, dice)

    return drafter


# Each rule on the trees that it can judge; the contest takes the best of each kind.
def two_chains(name, contest=(4,)):
    return Loop(f"two chains of {{}}, {name}", sampled("multi-chain", 2, 20), speculate,
                RULES[name], budgets=(4,), contest=contest, family="57K GPT", drawn=True,
                proof=(1,) if "GR" in name else (1, 2), grow=grow_sampled)


def distinct(name, lift):
    """Two chains of the same drafter, as chapter 02 draws them: their first drafts differ."""
    return Loop(f"two chains of {{}}, never repeating, {name} + GR", lambda m, k, sampler, dice:
                TreeDrafter(gpt_levels(m), (2,) + (1,) * (k - 1), Sampler(
                    sampler.temperature, 20, sampler.top_p), dice), speculate,
                lift(DistinctGR), budgets=(4,), contest=(4,), family="57K GPT", drawn=True)


def one_chain(name, contest=(4,)):
    return Loop(f"chain of {{}}, {name}", sampled("multi-chain", 1), speculate, RULES[name],
                budgets=(4,), contest=contest, family="57K GPT", drawn=True,
                grow=grow_sampled)


def judged_as_a_block(who, levels, contest, grow=None, family=None):
    """The chain that a drafter of an earlier chapter draws, under BV. levels(m): its model."""
    return Loop(f"{who}, chain of {{}}, BV", lambda m, k, sampler, dice:
                TreeDrafter(levels(m), (1,) * k, sampler, dice), speculate, RULES["BV"],
                budgets=(4,), contest=contest, family=family or who, drawn=True, grow=grow)


LOOPS = [two_chains("LV + K-SEQ", (2, 3, 4, 6)), *map(two_chains, (
    "TV + K-SEQ", "LV + RRS", "TV + RRS", "LV + GR", "TV + GR", "TRV", "GBV")),
    distinct("LV", LayerVerification), distinct("TV", TokenVerification),
    # One rule in two loops: chapter 01's, which pays for nothing else, and chapter 02's.
    Loop("chain of {}, block verification", lambda m, k, sampler, dice: GPTDraft(m.small),
         speculate_chain, block_verification, budgets=(4, 8), contest=(4, 6, 8, 12),
         family="57K GPT", drawn=True, grow=grow_chain),
    one_chain("BV", (4, 8)), one_chain("TV + RRS"),
    *(two_chains(name, contest).but(
        name=f"one head, two chains of {{}}, {name}", family="one head",
        drafter=sampled("multi-chain", 2, 20, head_levels), grow=grow_sampled_head)
      for name, contest in (("LV + K-SEQ", (2, 3, 4, 6)), ("GBV", (4,)), ("TRV", (4,)))),
    # Each drafter under the better rule of a chain: in chapter 01's loop, and then in 02's.
    Loop("chain of {}, bigram, block verification",
         lambda m, k, sampler, dice: BigramDraft(m.pairs, m.target.config.vocab_size),
         speculate_chain, block_verification, budgets=(4,), contest=(2, 3, 4, 6), family="bigram",
         drawn=True, grow=grow_chain),
    Loop("chain of {}, 4-gram, block verification",
         lambda m, k, sampler, dice: NgramDraft(m.table, m.target.config.vocab_size),
         speculate_chain, block_verification, budgets=(4,), contest=(4, 6, 8, 12, 16),
         family="4-gram", drawn=True),
    Loop("one head, chain of {}, block verification", lambda m, k, sampler, dice: HeadDraft(m.head),
         speculate_chain, block_verification, budgets=(4,), contest=(4, 8, 12), family="one head",
         drawn=True),
    judged_as_a_block("57K GPT", gpt_levels, (4, 6, 8, 12)),
    judged_as_a_block("4-gram", lambda m: NgramLevels(m.table, m.target.config.vocab_size),
                      (4, 6, 8, 12)),
    judged_as_a_block("one head", head_levels, (4, 6, 8, 12, 16), grow_drawn_head),
    judged_as_a_block("routed heads", lambda m: RoutedLevels(m.heads), (4, 6, 8, 12, 16),
                      family="two heads"),
    judged_as_a_block("block", lambda m: BlockLevels(m.block), (2, 3, 4, 5), grow_drawn,
                      family="block drafter")]


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


def gain_by_tree(before, after):
    """Tokens of a step on the same trees, by two rules, (n,) each -> both means, by how many
    percent the second is larger, and the standard error of that."""
    differences = 100 * (after - before) / before.mean()
    return (before.mean(), after.mean(), differences.mean(),
            differences.std() / max(len(differences) - 1, 1) ** 0.5)


def error_by_text(texts, values):
    """The standard error of a mean over all rounds: texts are independent, a text's rounds are not.

    texts: a list of rounds each; values (n, ..): a row for each round of all texts in turn.
    """
    ends = np.cumsum([len(text) for text in texts])[:-1]
    off = [part.sum(0) for part in np.split(values - values.mean(0), ends)]
    return (np.square(off).sum(0) * len(off) / (len(off) - 1)) ** 0.5 / len(values)


def tokens_by_length(chain):
    """Tokens a round of one drawn chain, cut after 0, 1, .. drafts, token by token and as a block:
    the target's own, and for each draft the chance that the path goes through it, given the drafts
    down to it. chain: a ChainRound -> (2, K + 1)."""
    pairs = [(float(p[x]), float(q[x])) for x, p, q in zip(
        chain.drafted, chain.target_probs, chain.draft_probs, strict=False)]
    return np.cumsum([[*accumulate(pairs, step, initial=1)] for step in (
        lambda a, pair: a * score(1, *pair), lambda a, pair: score(a, *pair))], axis=1)


def gains_by_length(m, prompts, drafts=12, new_tokens=96):
    """Both rules on the same chains, without coins: those that each drafter draws at T = 1 while
    block verification decodes; chains that the window cuts are left out.

    -> {drafter: {"chains": how many, rule: tokens a round for 0, 1, .. drafts, "gain": in percent,
    "error": its standard error}}.
    """
    found = {}
    for loop in (loop for loop in LOOPS if loop.rule is block_verification):
        texts = [[tokens_by_length(step.detail) for step in collect(
            loop.steps(m, drafts, prompt, Sampler(1), Dice(seed)), new_tokens).steps
            if step.drafted == drafts] for seed, prompt in enumerate(prompts)]
        one, block = np.swapaxes(sum(texts, []), 0, 1)  # (n, drafts + 1) each
        before, after = one.mean(0), block.mean(0)
        error = error_by_text(texts, block - one * after / before) / before
        found[loop.family] = {"chains": len(one)} | {what: numbers.round(4).tolist() for
            what, numbers in (("token by token", before), ("as a block", after),
                              ("gain", 100 * (after / before - 1)), ("error", 100 * error))}
    return found


def load_gains():
    """What `--save` has stored: on which machine, how many "texts", the "drafters" of
    gains_by_length."""
    return json.loads((MEASURED / "chains" / "gains.json").read_text(encoding="utf-8"))


def tokens_of_text(tokens, K, length):
    """Tokens a round of K drafts, if the text stops at `length`: its last round is cut there.

    tokens: those of a text without an end, of 0, 1, .. drafts. Draft j is accepted in tokens[j] -
    tokens[j - 1] of the rounds: under both rules no matter how many drafts lie behind it. Example:
    tokens (1, 1.5), K 1, length 2: 4 / 3.
    """
    reached = [1.0, *np.diff(tokens[:K + 1]), 0.0]  # a round writes at least 1, 2, .. tokens
    chances, rounds = -np.diff(reached), [0.0]  # rounds: of a text of 0, 1, .. tokens, on average
    for left in range(1, length + 1):
        rounds.append(1 + sum(chance * rounds[max(left - j, 0)]
                              for j, chance in enumerate(chances, 1)))
    return length / rounds[length]


HEADS = ("03 one head, chain of {}, chapter 01's loop",
         "06 one head, chain of {}, block verification")


def forecast(fast, length=63):
    """What chains of 4 to 12 drafts promise at T = 1, in texts of `length` tokens behind the
    prefill's: the tokens of load_gains, which no coin and few texts decide, cut at the text's end;
    the prices of one hour in chapter 01's loop, its `speedups`.
    -> {(drafter, rule): {drafts: (tokens, price)}}.
    """
    found, points = load_gains()["drafters"], {}
    for who, *names in (
            ("57K GPT", "01 chain of {}, 57K GPT", "06 chain of {}, block verification"),
            ("4-gram", "01 chain of {}, 4-gram", "06 chain of {}, 4-gram, block verification"),
            ("one head", *HEADS)):
        for rule, name in zip(("token by token", "as a block"), names, strict=True):
            points[who, rule] = {K: (tokens_of_text(found[who][rule], K, length), fast[line][1])
                                 for K in (4, 8, 12) if (line := name.format(K)) in fast}
    return points


def saved_as_a_block(found, K, length=63):
    """How much less time a token of K drafts of the head takes as a block, at T = 1, in percent,
    and two standard errors: tokens as in `forecast`, times of one hour's rounds, each text of it
    left out in turn."""
    lines, gains = found["tables"]["1"]["methods"], load_gains()["drafters"]["one head"]
    before, after = (tokens_of_text(gains[rule], K, length)
                     for rule in ("token by token", "as a block"))
    ms, rounds = (np.array([lines[name.format(K)][what] for name in HEADS])
                  for what in ("ms", "rounds"))

    def saved(texts):
        one, block = ms[:, texts].sum(1) / rounds[:, texts].sum(1)
        return 100 - 100 * block / one * before / after

    n = ms.shape[1]
    others = [saved(np.arange(n) != i) for i in range(n)]
    return saved(slice(n)), 2 * (n - 1) ** 0.5 * np.std(others)


def cut_paths(trees, first, second):
    """Two chains, cut after so many drafts on the first and on the second -> trees of that shape.

    trees: of recorded_trees, all of two chains; those that are shorter than others are left out.
    """
    whole = max(len(shape.parents) for shape, *_ in trees)
    # Node v > 0 has depth (v + 1) // 2, and node v - 2 above it: the chains take turns.
    rows = [v for v in range(whole) if (v + 1) // 2 <= (second, first)[v % 2]]
    cut = shape_of((-1, *(rows.index(max(v - 2, 0)) for v in rows[1:])))
    return [(cut, *(x[:, rows] for x in arrays))
            for shape, *arrays in trees if len(shape.parents) == whole]


def print_same_trees(results):
    """Print what each rule expects on the trees that all of them met, and LV over TV in percent,
    with its standard error. results: {name: list of Generation}"""
    rules = rules_for("multi-chain", 2)
    trees = recorded_trees([text for name in rules for text in results[two_chains(name).title(4)]])
    tau = tau_by_tree(rules, trees)
    more = {f"LV + {step}": "{2:+.2f}% ({3:.2f})".format(
        *gain_by_tree(tau[f"TV + {step}"], tau[f"LV + {step}"])) for step in STEPS}
    cli.print_table([f"the same {len(trees)} trees", "expected tau", "LV over TV"],
                    [[name, f"{x.mean():.3f}", more.get(name, "")] for name, x in tau.items()])


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
    p.add_argument("--save", type=Path, help=f"decode {TEXTS} texts instead, and write into this "
                   "JSON file what block verification gains on chains of each length")
    args = p.parse_args(argv)
    if not 0 <= args.similarity <= 1:
        raise ValueError(f"similarity is {args.similarity}; it must be in [0, 1]")
    if args.depth > 6:  # 7 layers would be 170 million logits a model
        raise ValueError(f"depth is {args.depth}; it must be at most 6")
    if args.save:
        cli.writable(args.save)
        dataset, device = load_dataset(), pick_device()
        gains = gains_by_length(a_cast(dataset, device), held_out_prompts(dataset, TEXTS))
        return save(args.save, {"machine": machine(device), "texts": TEXTS, "drafters": gains})
    print(f"Accepted tokens per tree (standard error over {SEEDS} pairs of models): "
          f"depth {args.depth}, similarity {args.similarity:g}")
    columns = [lengths(shape, args.depth, args.similarity) for shape in SHAPES]

    def mean(values):  # the error over the models, which differ more than their trees
        return f"{np.mean(values):.3f} ({np.std(values, ddof=1) / len(values) ** 0.5:.3f})"

    cli.print_table(["method", *SHAPES], [
        [name, *(mean(found[name]) if name in found else "-" for found in columns)]
        for name in rules_for("multi-chain", BRANCHING)])


# ---------------------------------------------------------------- the lesson's checks, exactly


def on_two_drafts(rule, p, q):
    """A rule with the arguments of chapter 01's `accept` on every chain of two drafts
    -> [((drafts, the text's first two tokens, how many drafts are accepted), its probability)].

    p, q (V,): of target and drafter, at both positions.
    """
    def run(dice):
        drafts = [dice.draw(q), dice.draw(q)]
        n, token = rule(drafts, [q, q], [p, p, p], dice)
        text = [*drafts[:n], token]
        return drafts, (text + [dice.draw(p)] * (n == 0))[:2], n

    return list(outcomes(run))


def written(found, p):
    """{text of two tokens: (how often it is written, how often by plain decoding)}; found: of
    on_two_drafts."""
    return {text: (sum(chance for (_, tokens, _), chance in found if tokens == [*text]),
                   float(p[[*text]].prod())) for text in product(range(len(p)), repeat=2)}


def bias_in_the_loop(rule):
    """How far chapter 01's loop with this rule is from plain decoding, on two pairs of random
    models."""
    biases = []
    # Two rounds; and three tokens, since a residual of two has only one of them.
    for V, rounds, tokens in ((2, 2, 5), (3, 1, 4)):
        drafter = ToyDraft(ToyModel(99, V, scale=2.0))
        biases.append(loop_bias(lambda target, dice, drafter=drafter: speculate_chain(
            target, drafter, [0, 1], 2, Sampler(1), dice, rule), Sampler(1), rounds, tokens,
            ToyModel(5, V)))
    return max(biases)


def both_accepted(found, q):
    """In what share of the rounds whose first draft is t, both are accepted; found: of
    on_two_drafts."""
    return sum(chance for (drafts, _, n), chance in found if drafts[0] and n == 2) / float(q[1])


def drafts_accepted(found):
    """How many, on average; found: of on_two_drafts."""
    return sum(chance * n for (*_, n), chance in found)


def check(rule, p, q):
    """Print what a rule writes and accepts, see on_two_drafts, of the tokens e and t; and its
    bias_in_the_loop."""
    found = on_two_drafts(rule, p, q)
    for text, (share, plain) in written(found, p).items():
        print("".join("et"[x] for x in text), f"is written with {share:.2f}, plain: {plain:.2f}")
    print(f"if t is first, both are accepted with {both_accepted(found, q):.2f}")
    print(f"drafts accepted on average: {drafts_accepted(found):.2f}")
    print("the loop, vocabularies of 2 and 3 tokens, total variation: "
          + exactly(bias_in_the_loop(rule)))


def compare(rules, p, q):
    """Print the last three lines of `check` for each rule, as a table. rules: {name: rule}"""
    found = {name: on_two_drafts(rule, p, q) for name, rule in rules.items()}
    cli.print_table(["", "both, if t is first", "drafts accepted", "total variation"], [
        [name, f"{both_accepted(found[name], q):.2f}", f"{drafts_accepted(found[name]):.2f}",
         exactly(bias_in_the_loop(rule))] for name, rule in rules.items()])


def exactly(bias):
    """A total variation in words: rounding is 0."""
    return "0" if bias < 1e-12 else f"{bias:.3f}"


def print_wrong(rules, p, q):
    """Print how far the text of each rule is from the target's, and what it accepts.

    rules: {name: rule}, see on_two_drafts.
    """
    rows = []
    for name, rule in rules.items():
        found = on_two_drafts(rule, p, q)
        rows.append([name, exactly(sum(abs(a - b) for a, b in written(found, p).values()) / 2),
                     f"{drafts_accepted(found):.2f}"])
    cli.print_table(["", "total variation, two tokens", "drafts accepted"], rows)


def reached_by_rule(p, q, K):
    """How often drafts 0, 1, .. K are accepted, exactly: token by token, powers of the overlap; as
    a block, average scores. p, q (V,): of target and drafter, at every position. -> (2, K + 1)"""
    scores, chances, block = np.ones(1), np.ones(1), [1.0]
    for _ in range(K):
        # Every token behind every chain; chains of one score are counted together.
        scores, same = np.unique(score(scores[:, None], p, q).round(13), return_inverse=True)
        chances = np.bincount(same.ravel(), np.outer(chances, q).ravel())
        block.append(scores @ chances)
    return np.array([np.minimum(p, q).sum() ** np.arange(K + 1), block])


def debtor(p, q, K, rounds):
    """Block verification without its cap: a text of any length is accepted as often as it is drawn
    and wanted, min(P, Q); the next round's target is what is then missing, and it may be in debt,
    too. -> in so many rounds, sampled: drafts accepted, and how often a round begins in debt.

    p, q (V,): of target and drafter, at every position.
    """
    rng, V, found = np.random.default_rng(0), len(p), []
    owed = plain = [np.tile(p, (V ** t, 1)) for t in range(K)]  # the target behind every text
    for _ in range(rounds):
        weights = [*accumulate(owed, lambda a, rows: (a[:, None] * rows / q).ravel(),
                               initial=np.ones(1))]  # P / Q of every text of 0, 1, .. tokens
        missing = [np.maximum(a[:, None] * rows - q, 0) for a, rows in zip(
            weights, owed, strict=False)]
        texts = [*accumulate(rng.choice(V, K, p=q), lambda row, x: V * row + x, initial=0)]
        for n in reversed(range(K + 1)):
            a = weights[n][texts[n]]
            ends = missing[n][texts[n]].sum() if n < K else a
            if not n or rng.random() * (1 - a + ends) < min(1, a) - a + ends:
                break
        found.append((n, owed is not plain))
        owed = plain
        if n < K - 1:
            y = V * texts[n] + rng.choice(V, p=missing[n][texts[n]] / ends)
            behind = [rows[y * V ** t:(y + 1) * V ** t] for t, rows in enumerate(missing[n + 1:])]
            owed = [rows / np.maximum(rows.sum(1, keepdims=True), 1e-300) for rows in behind]
            owed += plain[len(owed):]
    return np.mean(found, axis=0)


def print_changes(shape, changes):
    """Print how far TV, LV and LV with each change are from the target, and what they accept.

    changes: dictionaries {function of layer_verification.py: what stands in its place}.
    """
    models, rows = tables("related", V=3, H=2), []
    for name, lift, change in (("TV", TokenVerification, {}), ("LV", LayerVerification, {}), *(
            (f"change {i}", LayerVerification, change) for i, change in enumerate(changes, 1))):
        with replaced(import_module("layer_verification"), **change):
            bias, length = bias_and_length(lift(RRS), shape, models)
        rows.append([name, exactly(bias), f"{length:.3f}"])
    cli.print_table(["RRS with", "total variation", "drafts accepted"], rows)


# ---------------------------------------------------------------- what goes wrong

ALIVE = "np.maximum(alive - taken.sum(-1, keepdims=True), 0)"
TAKE = f"left, alive = left - taken, {ALIVE}"
OWED = "scores[:, :, None] * target_probs"
MASS = "A[:, None, None] * target_probs"
SHARE = "(scores / np.maximum(A, TINY)[:, None])[:, :, None]"
TOP, BELOW = "np.maximum(scores - sent, 0)", "np.maximum(1 - sent.sum(-1, keepdims=True), TINY)"
END, CHOSEN = "low + width", "pick(self.keep, slots) * chosen(self.weight, slots)"


def each_copy_whole(rule, A, scores, tokens, draft_probs, target_probs):
    """Equal children each get the whole probability of their token."""
    below, flow = score_children(rule, A, scores, tokens, draft_probs, target_probs)
    same = tokens[:, :, :, None] == tokens[:, :, None]  # (B, n, k, k)
    return (below[:, :, None] * same).sum(-1), flow


def first_no(drafted, draft_probs, target_probs, dice):
    """Block verification's coins, asked from the root down; the first no ends the path."""
    a = [1.0]
    for i, token in enumerate(drafted):
        a.append(acceptance_probability(a[i] * target_probs[i], draft_probs[i], token))
    for n in range(1, len(drafted) + 1):
        sent = float(torch.minimum(a[n] * target_probs[n], draft_probs[n]).sum()) if n < len(
            drafted) else 0.0
        if sent == 1 or not dice.flip(max(a[n] - sent, 0.0) / (1 - sent)):
            return n - 1, dice.draw(residual(a[n - 1] * target_probs[n - 1], draft_probs[n - 1]))
    return len(drafted), dice.draw(target_probs[len(drafted)])


def settled_on_each_tree(shape, scores, flow):
    """What a node sends on is what its children on this tree score, not its flow."""
    sent = np.stack([scores[:, [*kids]].sum(-1) for kids in shape.children], axis=1)
    return end_probabilities(shape, scores, sent[:, :, None])


def root_by_equation_1(shape, scores, flow):
    """The root's end, too, by Equation 1: 0 / 0 where everything goes on."""
    ends, sent = end_probabilities(shape, scores, flow), flow[:, :1].sum(-1)
    ends[:, :1] *= (scores[:, :1] - sent) / (1 - sent)
    return ends


FLOWS = "np.minimum(draft, weight * target)"
WRONG = {
    "score": slips(score, {
        "the score is not carried along: chapter 01's coin": (FLOWS, "np.minimum(draft, target)"),
        "chapter 01's coin is multiplied in: token verification": (
            FLOWS, "weight * np.minimum(draft, target)"),
        "the score is not capped at 1": (FLOWS, "weight * target"),
        "the draft's probability is left out": ("np.maximum(draft, TINY)", "1.0"),
    }),
    "rejection_rounds": slips(rejection_rounds, {
        "alive starts at the target's mass, so the dummy is forgotten": (
            "np.ones((len(target_mass), 1))", "target_mass.sum(-1, keepdims=True)"),
        "alive never shrinks: the residual is not renormalised": (
            TAKE, "left = left - taken"),
        "alive is 1 minus the last round's take, not what is left of alive": (
            "alive - taken.sum(-1, keepdims=True)", "1 - taken.sum(-1, keepdims=True)"),
        "the target is not reduced by what was taken": (
            TAKE, f"alive = {ALIVE}", "target_mass - left",
            "sum(coin * draft_probs for coin in coins)"),
        "a coin is taken / draft instead of taken / offered": (
            "np.maximum(offered, TINY)", "np.maximum(draft_probs, TINY)"),
    }),
    "still_owed": slips(still_owed, {
        "the target is not scaled by a_v": (OWED, "target_probs"),
        "the flow is not subtracted": (f"{OWED} - flow", OWED),
        "rounding may leave a negative probability": (
            f"np.maximum({OWED} - flow, 0)", f"{OWED} - flow"),
    }),
    "score_children": slips(score_children, {
        "the target is not scaled by A (or is normalised again)": (MASS, "target_probs"),
        "the target is scaled by a_v and nothing by lambda_v": (MASS, OWED, SHARE, "1"),
        "the target is scaled by a_v instead of A: lossless, but shorter": (MASS, OWED),
        "the flow is not scaled by lambda_v": (
            "share * local.out.reshape(B, n, -1)", "local.out.reshape(B, n, -1)"),
        "equal children each get the whole probability of their token": each_copy_whole,
    }),
    "stop_probabilities": slips(stop_probabilities, {
        "the denominator is left out": (f"{TOP} / {BELOW}", TOP),
        "the denominator knows of the node's own flow only": (BELOW, "np.maximum(1 - sent, TINY)"),
        "what v sends on stays in its score": ("scores - sent", "scores"),
        "0 is divided by 0 where everything goes on": (BELOW, "(1 - sent.sum(-1, keepdims=True))"),
    }),
    # ---- what is no blank
    "smallest_rho": slips(smallest_rho, {
        "rho is always k: lossless, but far too careful": (END, "0 * low + k"),
        "rho is left at 1": (END, "0 * low + 1"),
        "the infeasible end of the bisection is returned": (
            "rounds if k > 1 else 0", "min(1, k - 1)", END, "low"),
    }),
    "KSEQ": slips(KSEQ, {
        "the coins belong to another rho than the flow": (
            "share / np.maximum(draft_probs, TINY)",
            "np.minimum(draft_probs, target_mass / k) / np.maximum(draft_probs, TINY)"),
    }),
    "CappedGR": slips(CappedGR, {
        "equal children each get the whole probability of their token": (
            CHOSEN, f"(slots[:, :, None] == slots[:, None]).sum(-1) * {CHOSEN}"),
        "nothing is repaired: a token may get more than the target gives": (
            "iterations = 8", "iterations = 1", "np.minimum(flow, self.target)", "flow"),
        "the flow is repaired, and what is accepted is not": (
            "iterations = 8", "iterations = 1", CHOSEN, "chosen(self.weight, slots)"),
    }),
    "DistinctGR": slips(DistinctGR, {
        "a set's probability is that of draws that may repeat": (
            "np.maximum(self.draft @ left.T, TINY)", "1"),
    }),
    "inclusion_scores": slips(inclusion_scores, {
        "leaves have a part in A: lossless, but shorter": ("layer.inner", "layer.rows"),
    }),
    "end_probabilities": slips(end_probabilities, {
        "each tree settles its own accounts": settled_on_each_tree,
        "0 is divided by 0 at the root": root_by_equation_1,
    }),
    "block_verification": slips(block_verification, {
        "each score knows of its own draft only": ("score(a[i], p, q)", "score(1, p, q)"),
        "a score may exceed 1": ("score(a[i], p, q)", "a[i] * p / q"),
        "the coins are asked from the root, up to the first that fails": first_no,
        "a draft that is asked says yes with its whole score": (
            "max(a[n] - sent, 0.0) / (1 - sent)", "a[n]"),
        "the denominator is left out": (
            "max(a[n] - sent, 0.0) / (1 - sent)", "max(a[n] - sent, 0.0)"),
        "the residual is not scaled by the score": (
            "residual(wanted, q)", "residual(target_probs[n], q)"),
    }),
    "block_verify": slips(block_verify, {
        "the path stops at the first failure, not behind the last success": (
            "h * np.concatenate([missed, np.ones((B, 1))], axis=1)",
            "-np.diff(np.cumprod(h, axis=1), append=0)"),
        "each weight knows of its own token only": ("weight[:, i - 1]", "1"),
        "the residual is not scaled by the weight": (
            "weight[:, :, None] * target_probs", "1 * target_probs"),
    }),
    "GreedyBlockVerification": slips(GreedyBlockVerification, {
        "tokens of equal ratio share a rank, and the first chain wins": (
            "rank[every[:, None], drawn]",
            "np.round((target / np.maximum(draft, TINY))[every[:, None], drawn], 9)"),
        "the best chain is judged as if it were a plain draw": (
            "probs / np.maximum(probs.sum(-1, keepdims=True), TINY)", "draft"),
    }),
    "TraversalVerification": slips(TraversalVerification, {
        "a node keeps its first weight when a child was rejected": (
            "weight = owed / np.maximum(owed + (1 - weight), TINY)", "pass"),
    }),
}
HARMLESS = {  # the proofs cannot see them, and here is why
    "the residual is not scaled by the score":
        "the proofs' chains have two tokens, and a residual of two has only one of them",
    "alive is 1 minus the last round's take, not what is left of alive":
        "it shows from a third child on, and the table's trees have two",
    "rounding may leave a negative probability": "it is of rounding's size, and so is its effect",
    "the target is scaled by a_v instead of A: lossless, but shorter": "it is lossless",
    "0 is divided by 0 where everything goes on":
        "no two random networks agree on a whole distribution",
    "rho is always k: lossless, but far too careful": "it is lossless",
    "leaves have a part in A: lossless, but shorter": "it is lossless",
    "tokens of equal ratio share a rank, and the first chain wins": "random networks make no ties",
}


if __name__ == "__main__":
    cli.run(main)
