"""All rules on a real target: who takes part, what each rule brings and costs, who accepts more.

Two tables. `print_rules` says what was decoded. But rules that differ by one percent drown in the
noise of a decoded text: whether a step accepts one token or five is mostly chance. Every step has
recorded its tree and the target's probabilities, though, and with both the rule's coins can be
averaged out (`expected_length`). So `print_same_trees` lets all rules judge the very same trees,
and compares tree by tree.
"""

import math
from functools import partial

import numpy as np
import torch

from experiments.all_rules import RULES, rules_for
from iid_trees import SHAPES, as_arrays, shape_parents
from layer_verification import decode_layered
from nanogpt.account import print_bottlenecks
from nanogpt.clock import cost_curve
from nanogpt.contest import speedup, summarize
from nanogpt.decoding import plain_decode
from nanogpt.pictures import plots
from nanogpt.printing import print_table
from nanogpt.sampling import Dice

PLAIN = "plain"

# ---------------------------------------------------------------- who takes part


def plain(target, sampler, prompt, seed):
    """Plain decoding: one forward, one token."""
    return plain_decode(target, prompt, sampler, Dice(seed))


def judged(target, model, rule, parents, sampler, draft_sampler, prompt, seed):
    """Trees of independent draws, judged by a rule."""
    return decode_layered(target, model, rule, parents, prompt, sampler, Dice(seed), draft_sampler)


def methods(target, model, sampler, draft_sampler, shape_name, branching, depth):
    """{name: start(prompt, seed)}: plain decoding, and every rule that can judge such trees.

    model: TreeBigram or TreeGPT, the drafter's; draft_sampler: of the draft distribution.
    """
    parents = shape_parents(SHAPES[shape_name], branching, depth)
    return {PLAIN: partial(plain, target, sampler)} | {
        name: partial(judged, target, model, rule, parents, sampler, draft_sampler)
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
    """One line a rule: block efficiency tau, LV over TV in percent of it, speed, the rule's cost.

    results: {name: list of Generation}, of contest.compare. The rule's microseconds are the means
    of the verb "accept" per step; the perplexity is the target's, of the texts that came out, with
    its standard error.
    """
    rows = []
    for name, generations in results.items():
        line = summarize(generations)
        over = ""
        if name.startswith("LV"):
            below = summarize(results[name.replace("LV", "TV")])["tau"]
            over = f"{100 * (line['tau'] / below - 1):+.1f}%"
        value, error = perplexity(target, prompts, generations, sampler)
        rows.append([
            name, f"{line['tau']:.2f}", over, f"{line['tokens_per_second']:.0f}",
            f"{speedup(generations, results[PLAIN]):.2f}x",
            f"{1e3 * line['verb_ms']['accept']:.0f}",
            f"{value:.2f}" + (f" ({error:.2f})" if len(prompts) > 1 else ""),
        ])
    print_table(["rule", "tau", "LV over TV", "tokens/s", "speed-up", "rule, us", "perplexity"],
                rows)


def print_why(results, target, nodes):
    """What stands between tau and the speed-up, on trees of that many nodes; see account.py."""
    rows = sorted({1, 2, 4, 8, 16, 32, nodes})
    print_bottlenecks(results, PLAIN, cost_curve(target, rows=rows))


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


def save_figure(results, expected, path):
    """Bars of tau for every rule: as decoded, and as expected on the same trees {name: tau}."""
    bars = {name: {"decoded": summarize(results[name])["tau"], "expected, same trees": tau}
            for name, tau in expected.items()}
    plots.save(plots.draw_bars(bars, "tokens per target forward"), path)
    print(f"\nfigure: {path}")
