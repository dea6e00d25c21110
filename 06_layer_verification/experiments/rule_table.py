"""All rules on a real target: who decodes, and the table of what each rule brings and costs."""

import math

import torch

from experiments.all_rules import rules_for
from iid_trees import SHAPES, SampledTreeDrafter
from nanogpt.contest import speedup, summarize
from nanogpt.decoding import plain_decode
from nanogpt.printing import print_table
from nanogpt.sampling import Dice
from tree_attention import speculate

PLAIN = "plain"


def decoders(target, model, sampler, draft_sampler, shape_name, branching, depth):
    """{name: start} for timing.compare: plain decoding, and every rule that judges such trees.

    model: TreeBigram or TreeGPT, the drafter's; each rule drafts its own trees with its own dice.
    """
    def with_rule(rule):
        def start(prompt, seed):
            dice = Dice(seed)
            drafter = SampledTreeDrafter(model, SHAPES[shape_name], branching, depth,
                                         draft_sampler, dice)
            return speculate(target, drafter, prompt, sampler, dice, rule)

        return start

    plain = {PLAIN: lambda prompt, seed: plain_decode(target, prompt, sampler, Dice(seed))}
    return plain | {name: with_rule(rule)
                    for name, rule in rules_for(shape_name, branching).items()}


@torch.inference_mode()
def perplexity(target, prompts, generations, sampler):
    """exp of the mean negative log-probability of the emitted texts under the decoding law."""
    total, count = 0.0, 0
    for prompt, generation in zip(prompts, generations, strict=True):
        text = (prompt + generation.tokens)[:target.block_size]
        logits, _ = target(torch.tensor([text], device=target.device))
        probs = sampler(logits[0, len(prompt) - 1:-1])
        own = torch.tensor(text[len(prompt):], device=target.device)
        total -= float(probs[torch.arange(len(own)), own].clamp(min=1e-9).log().sum())
        count += len(own)
    return math.exp(total / count)


def print_rules(results, prompts, target, sampler):
    """One line a rule: block efficiency tau, LV over TV in percent of it, speed, the rule's cost.

    results: {name: list of Generation}, of timing.compare. The rule's microseconds are the means
    of the verb "accept" per step; the perplexity is the target's, of the texts that came out.
    """
    rows = []
    for name, generations in results.items():
        line = summarize(generations)
        gain = ""
        if name.startswith("LV"):
            below = summarize(results[name.replace("LV", "TV")])["tau"]
            gain = f"{100 * (line['tau'] / below - 1):+.1f}%"
        steps = [step for g in generations for step in g.steps]
        rule_us = 1e6 * sum(step.seconds["accept"] for step in steps) / len(steps)
        rows.append([
            name, f"{line['tau']:.2f}", gain, f"{line['tokens_per_second']:.0f}",
            f"{speedup(generations, results[PLAIN]):.2f}x", f"{rule_us:.0f}",
            f"{perplexity(target, prompts, generations, sampler):.2f}",
        ])
    print_table(["rule", "tau", "LV over TV", "tokens/s", "speed-up", "rule, us", "perplexity"],
                rows)
