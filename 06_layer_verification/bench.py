"""Chapter 06 on the runner: its decoders, LV beside TV on the same trees, and two sweeps.

    python 06_layer_verification/bench.py blocks    # chains from the small GPT and from a block
    python 06_layer_verification/bench.py costs     # microseconds per rule

Rules that differ by one percent drown in the noise of a decoded text: whether a step accepts one
token or five is mostly chance. Every step has recorded its tree and the target's probabilities,
though, and with both the rule's coins can be averaged out (`expected_length`). So
`print_same_trees` lets all rules judge the very same trees, and compares tree by tree.
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))  # so that a plain clone runs, too

import math
import statistics
import time
from functools import partial

import numpy as np
import torch

from nanogpt import cli
from all_rules import RULES, STEPS, rules_for
from block_rules import BlockVerification, GreedyBlockVerification
from conditional_marginals import BlockLevels  # chapter 05
from global_resolution import CappedGR
from iid_trees import SHAPES, as_arrays, complete, sample_tree, shape_parents
from layer_verification import LayerVerification, TokenVerification, decode_layered
from nanogpt.bench import PLAIN, plain, print_tables, speedup, summarize
from nanogpt.cli import print_table
from nanogpt.clock import cost_curve
from nanogpt.data import held_out_prompts
from nanogpt.device import device_name, pick_device
from nanogpt.model import GPT
from nanogpt.packing import for_decoding, precision_of
from nanogpt.sampling import Dice, Sampler
from nanogpt.sizes import SIZES
from nanogpt.train import get_gpt
from single_step_rules import KSEQ, SpS
from toy_experiment import Setting, mean_lengths
from train_drafter import get_target_and_drafter  # chapter 05
from tree_attention import TreeGPT  # chapter 02

TITLES = {"multi-chain": "two chains", "tapered": "tapered trees", "complete": "complete trees"}

# ---------------------------------------------------------------- the decoders


def judged(target, model, rule, parents, sampler, draft_sampler):
    """Trees of independent draws, judged by a rule; see decode_layered."""
    return lambda prompt, seed: decode_layered(
        target, model, rule, parents, prompt, sampler, Dice(seed), draft_sampler)


def registry(target, model, sampler, draft_sampler, shape_name, branching, depth):
    """{name: start(prompt, seed)}: plain decoding, and every rule that can judge such trees.

    model: TreeBigram or TreeGPT, the drafter's; draft_sampler: of the draft distribution.
    """
    parents = shape_parents(SHAPES[shape_name], branching, depth)
    return {PLAIN: plain(target, sampler)} | {
        name: judged(target, model, rule, parents, sampler, draft_sampler)
        for name, rule in rules_for(shape_name, branching).items()}


# ---------------------------------------------------------------- what was decoded


@torch.inference_mode()
def surprise(target, prompt, tokens, sampler):
    """Minus the log-probability of every token that was decoded after a prompt (n,), in nats."""
    text = (prompt + tokens)[:target.block_size]  # what the window holds
    logits, _ = target(torch.tensor([text], device=target.device))
    probs = sampler(logits[0, len(prompt) - 1:-1])  # (n, V)
    own = probs.gather(-1, torch.tensor(text[len(prompt):], device=target.device)[:, None])
    # A token that was drawn has a probability; here, with other rounding, a cut may exclude it.
    return -own[:, 0].clamp(min=1e-9).log().cpu()


def perplexity(target, prompts, generations, sampler):
    """exp of the mean surprise of all tokens -> the perplexity, its standard error.

    The error is that of a mean over texts, for tokens of one text are not independent.
    """
    each = [surprise(target, prompt, generation.tokens, sampler)
            for prompt, generation in zip(prompts, generations, strict=True)]
    total, n = float(sum(x.sum() for x in each)), sum(len(x) for x in each)
    mean, texts = total / n, len(each)
    spread = sum(float(x.sum() - mean * len(x)) ** 2 for x in each)
    error = (spread * texts / (texts - 1)) ** 0.5 / n if texts > 1 else math.nan
    return math.exp(mean), math.exp(mean) * error


def print_rules(results, prompts, target, sampler):
    """One line a rule: LV over TV in tau, the rule's cost per step, and the target's perplexity of
    the texts that came out, with its standard error. results: {name: list of Generation}."""
    rows = []
    for name, generations in results.items():
        line, over = summarize(generations), ""
        if name.startswith("LV"):
            below = summarize(results[name.replace("LV", "TV")])["tau"]
            over = f"{100 * (line['tau'] / below - 1):+.1f}%"
        value, error = perplexity(target, prompts, generations, sampler)
        rows.append([name, f"{line['tau']:.2f}", over, f"{1e3 * line['verb_ms']['accept']:.0f}",
                     f"{value:.2f}", f"{error:.2f}"])
    print_table(["rule", "tau", "LV over TV", "rule, us", "perplexity", "SE"], rows)


# ---------------------------------------------------------------- the same trees, without coins


def recorded_trees(results, most):
    """At most that many of the trees that all decoders met, evenly spread -> a list of as_arrays.

    results: {name: list of Generation}; the steps of a decoder without trees have no detail.
    """
    details = [step.detail for generations in results.values() for g in generations
               for step in g.steps if step.detail is not None and len(step.detail.tree) > 1]
    spacing = max(-(-len(details) // most), 1)
    return [as_arrays(d.tree, d.target_probs) for d in details[::spacing]]


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


def print_same_trees(results, most=400):
    """Print each rule's expected tau on recorded trees, and LV over TV in percent, with its
    standard error. -> {name: tau}"""
    trees, rows = recorded_trees(results, most), []
    tau = tau_by_tree({name: RULES[name] for name in results if name != PLAIN}, trees)
    for name, values in tau.items():
        over = ""
        if name.startswith("LV"):
            over = "{:+.2f}% ({:.2f})".format(*gain(values, tau[name.replace("LV", "TV")]))
        rows.append([name, f"{values.mean():.3f}", over])
    print_table([f"the same {len(trees)} trees", "expected tau", "LV over TV"], rows)
    return {name: values.mean() for name, values in tau.items()}


# ---------------------------------------------------------------- LV beside TV


def toy_lengths(seeds, trees, depth=4):
    """Kept drafts on random tables, that many trees a seed -> {shape: {rule: array, by seed}}."""
    setting = Setting(depth=depth)
    found = {s: [mean_lengths(setting, s, seed, trees) for seed in seeds] for s in SHAPES}
    return {s: {rule: np.array([one[rule] for one in by_seed]) for rule in by_seed[0]}
            for s, by_seed in found.items()}


def as_panels(lengths):
    """toy_lengths' answer -> means, as draw_lengths wants them."""
    panels = {}
    for s, found in lengths.items():
        panels[TITLES[s]] = {step: {lift: found[f"{lift} + {step}"].mean() for lift in ("TV", "LV")}
                             for step in STEPS}
        panels[TITLES[s]] |= {rule: {"": found[rule].mean()} for rule in ("TRV", "GBV")
                              if rule in found}
    return panels


def percent_more(lengths):
    """{(shape, step): tokens a round that LV writes more than TV, in percent}."""
    return {(s, step): 100 * (found[f"LV + {step}"] - found[f"TV + {step}"]).mean()
            / (1 + found[f"TV + {step}"].mean()) for s, found in lengths.items() for step in STEPS}


def print_toy_gains(lengths):
    """LV beside TV on random tables: drafts kept, the difference with its standard error, and how
    many percent more tokens a round has, the target's own included."""
    percent, rows = percent_more(lengths), []
    for s, found in lengths.items():
        for step in STEPS:
            tv, lv = found[f"TV + {step}"], found[f"LV + {step}"]
            error = (lv - tv).std(ddof=1) / len(tv) ** 0.5
            rows.append([f"{TITLES[s]}, {step}", f"{tv.mean():.3f}", f"{lv.mean():.3f}",
                         f"{(lv - tv).mean():+.3f}", f"{error:.3f}", f"{percent[s, step]:+.1f}%"])
    print_table(["drafts kept", "TV", "LV", "LV - TV", "SE", "tokens"], rows)


def print_lifts(tau, title):
    """TV and LV of each single-step rule on the same trees, and the rules without a lift.

    tau: {rule: (n,)}, expected tokens of a step on each of n trees.
    """
    rows = []
    for step in STEPS:
        tv, lv = tau[f"TV + {step}"], tau[f"LV + {step}"]
        rows.append([step, f"{tv.mean():.3f}", f"{lv.mean():.3f}",
                     "{:+.1f}% ({:.1f})".format(*gain(lv, tv))])
    rows += [[name, "", f"{tau[name].mean():.3f}", ""] for name in ("TRV", "GBV") if name in tau]
    count = len(next(iter(tau.values())))
    print_table([f"{count} trees, {title}", "tau, TV", "tau, LV", "LV over TV"], rows)


def print_price(runs, tau, rules):
    """The tokens that LV adds to TV beside the time that it adds, in percent of a round.

    runs: {shape: {name: list of Generation}}, one decoder each, whose rounds count; tau: {shape:
    {rule: (n,)}}; rules: {name: rule}.
    """
    rows = []
    for s, results in runs.items():
        generations, = results.values()
        details = [step.detail for g in generations for step in g.steps if step.detail]
        trees = [(d.tree, d.target_probs) for d in details[:40]]
        round_us = 1000 * summarize(generations)["ms_per_step"]
        for step in STEPS:
            tv, lv = (microseconds(rules[f"{lift} + {step}"], trees) for lift in ("TV", "LV"))
            tokens = 100 * (tau[s][f"LV + {step}"].mean() / tau[s][f"TV + {step}"].mean() - 1)
            rows.append([f"{TITLES[s]}, {step}", f"{tokens:+.1f}%", f"{tv:.0f}", f"{lv:.0f}",
                         f"{100 * (lv - tv) / round_us:+.1f}%"])
    print_table(["LV instead of TV", "tokens", "TV, us", "LV, us", "time of a round"], rows)


def print_worth(results, tau):
    """What each rule's tau is worth on this machine, in plain steps: drafting and the forward are
    the same work for every rule, so one mean counts for all of them.

    results: {name: list of Generation}, all but plain decoding with the same drafter, shape and
    target; tau {rule: (n,)}: on the same trees, so free of luck.
    """
    plain_ms = summarize(results[PLAIN])["ms_per_step"]
    lines = {name: summarize(runs) for name, runs in results.items() if name != PLAIN}
    shared = statistics.mean(line["ms_per_step"] - line["verb_ms"]["accept"]
                             for line in lines.values()) / plain_ms
    rows = []
    for name, line in lines.items():
        rule = line["verb_ms"]["accept"] / plain_ms
        rows.append([name, f"{tau[name].mean():.3f}", f"{shared:.2f} + {rule:.2f}",
                     f"{tau[name].mean() / (shared + rule):.2f}x",
                     f"{speedup(results[name], results[PLAIN]):.2f}x"])
    print_table(["rule", "tau", "a round, in plain steps", "speed-up", "measured"], rows)


# ---------------------------------------------------------------- what a rule costs

ON_TREES = {name: rule for name, rule in RULES.items() if name not in ("BV", "GBV")} | {
    "TV + CappedGR": TokenVerification(CappedGR), "LV + CappedGR": LayerVerification(CappedGR)}
ON_CHAINS = {"TV + SpS": TokenVerification(SpS), "LV + SpS": LayerVerification(SpS),
             "BV": BlockVerification(), "GBV": GreedyBlockVerification()}
DRAFTS = {"V = 65": (65, None), "V = 65, top-20": (65, 20), "V = 1000, top-20": (1000, 20)}


def random_trees(V, top_k, branching, depth, count):
    """Trees with target_probs (N, V), from models about as far apart as a small and a large GPT."""
    generator, dice = torch.Generator().manual_seed(1), Dice(1)
    parents, trees = shape_parents(complete, branching, depth), []
    for _ in range(count):
        logits = 2.5 * torch.randn(len(parents), V, generator=generator)
        drafted = logits + 0.7 * torch.randn(len(parents), V, generator=generator)
        rows = iter(Sampler(1, top_k=top_k)(drafted))
        tree = sample_tree(0, parents, lambda tokens, _, rows=rows: [next(rows) for _ in tokens],
                           dice)
        trees.append((tree, Sampler(1)(logits)))
    return trees


def microseconds(rule, trees):
    """Median time of a call, in microseconds, after one warm-up call per tree."""
    laps = []
    for turn in range(3):
        for tree, target_probs in trees:
            start = time.perf_counter()
            rule(tree, target_probs, Dice(0))
            laps += [time.perf_counter() - start] if turn else []
    return 1e6 * statistics.median(laps)


def print_costs(count=20, size="baby", device="auto"):
    """Time every rule on `count` trees of each kind, and a target of SIZES[size] on the device.

    Full binary trees of depth 4 (31 nodes) and, for the rules of chains, a chain of 30. The weights
    of the target do not matter for its time, so nothing is trained.
    """
    columns = []
    for V, top_k in DRAFTS.values():
        cells = {}
        for rules, branching, depth in ((ON_TREES, 2, 4), (ON_CHAINS, 1, 30)):
            trees = random_trees(V, top_k, branching, depth, count)
            cells |= {name: microseconds(rule, trees) for name, rule in rules.items()}
        columns.append(cells)
    device = pick_device(device)
    target = for_decoding(GPT(SIZES[size].config(65)).to(device))
    forward = 1e3 * cost_curve(target, rows=(31,))[31]
    print(f"microseconds per tree of 31 nodes ({', '.join(ON_CHAINS)}: a chain), median of "
          f"{2 * count} calls; rules run on the CPU")
    print_table(["rule", *DRAFTS], [[name, *(f"{cells[name]:.0f}" for cells in columns)]
                                    for name in columns[0]])
    print(f"\none forward of 31 nodes, '{size}' target, {precision_of(target)}, "
          f"{device_name(device)}: {forward:.0f} us; a quarter of it: {forward / 4:.0f} us")


# ---------------------------------------------------------------- chains from a block drafter

CHAINS = {1: 4, 2: 4, 4: 4}  # how many chains -> how deep; 1 + 4, 8 and 16 rows


def chains_registry(target, drafters, sampler):
    """{name: start(prompt, seed)}: plain decoding; every drafter with every number of chains,
    drawn independently, as layer verification wants them, and judged by LV + K-SEQ.

    drafters: {name: make() -> a model with `level`}, one for each method, for they take turns.
    """
    starts = {PLAIN: plain(target, sampler)}
    for name, make in drafters.items():
        for chains, depth in CHAINS.items():
            parents = shape_parents(SHAPES["multi-chain"], chains, depth)
            starts[f"{name}, {chains} x {depth}"] = judged(
                target, make(), LayerVerification(KSEQ), parents, sampler, sampler)
    return starts


def main(argv=None):
    p = cli.parser(__doc__.splitlines()[0])
    p.add_argument("what", choices=["blocks", "costs"], help="see above")
    cli.decoding_flags(p, Path(__file__).resolve().parent / "figures")
    cli.sampler_flags(p, temperature=1.0)
    args = p.parse_args(argv)
    if args.what == "costs":
        return print_costs(size=args.size, device=args.device)
    # As in this chapter's tables: both sides draw from the 20 most probable tokens at most.
    sampler = Sampler(args.temperature, args.top_k or 20, args.top_p)
    dataset, device = cli.setup(args)
    cli.check_decoding(args, dataset)
    # The small GPT drafts one token after the other, so its four levels cost four forwards. The
    # block drafter knows less of its own tokens, a table of transitions, but runs one pass.
    target, block = get_target_and_drafter(args, dataset, device)
    small = for_decoding(get_gpt("draft", dataset, device, args.retrain), args.precision)
    drafters = {"57K GPT": partial(TreeGPT, small), "block drafter": partial(BlockLevels, block)}
    print_tables(args, target, held_out_prompts(dataset, args.prompts), [sampler],
                 lambda sampler: chains_registry(target, drafters, sampler),
                 f"; independent chains, LV + K-SEQ, top-k {sampler.top_k}")


if __name__ == "__main__":
    cli.run(main)
