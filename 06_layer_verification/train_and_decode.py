"""Judge the same kind of sampled draft trees by every rule, on a real target.

    python 06_layer_verification/train_and_decode.py --shape complete --depth 5
"""

import sys; from pathlib import Path; sys.path[:0] = map(str, [(root := Path(__file__).resolve().parents[1]), *root.glob("0?_*")])  # noqa: E401, E501, E702, I001

import math

import torch
from block_rules import GreedyBlockVerification, TraversalVerification
from global_resolution import GR
from iid_trees import SHAPES, SampledTreeDrafter, shape_parents
from single_step_rules import KSEQ, RRS

from layer_verification import LayerVerification, TokenVerification
from nanogpt import cli, plots
from nanogpt.data import held_out_prompts
from nanogpt.device import device_name
from nanogpt.generate import plain_decode
from nanogpt.precision import for_decoding, precision_of
from nanogpt.report import print_table
from nanogpt.sampling import Dice, Sampler
from nanogpt.timing import compare, speedup, summarize
from nanogpt.train import get_gpt
from tree_attention import TreeGPT, speculate

PLAIN = "plain"


def rules_for(shape):
    """{name: rule}: the three single-step rules under both lifts, and the direct rules."""
    lifts = {"TV": TokenVerification, "LV": LayerVerification}
    rules = {f"{name} + {rule.__name__}": lift(rule)
             for rule in (KSEQ, RRS, GR) for name, lift in lifts.items()}
    rules["TRV"] = TraversalVerification()
    if shape == "multi-chain":
        rules["GBV"] = GreedyBlockVerification()
    return rules


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


def report(results, prompts, target, sampler):
    """Print one line a rule; LV over TV in percent of block efficiency."""
    rows = []
    for name, generations in results.items():
        line = summarize(generations)
        gain = ""
        if name.startswith("LV"):
            below = summarize(results[name.replace("LV", "TV")])["tau"]
            gain = f"{100 * (line['tau'] / below - 1):+.1f}%"
        steps = [step for g in generations for step in g.steps]
        rule_ms = 1e3 * sum(step.seconds["accept"] for step in steps) / len(steps)
        rows.append([
            name, f"{line['tau']:.2f}", gain, f"{line['tokens_per_second']:.0f}",
            f"{speedup(generations, results[PLAIN]):.2f}x", f"{rule_ms:.2f}",
            f"{perplexity(target, prompts, generations, sampler):.2f}",
        ])
    print_table(["rule", "tau", "LV over TV", "tokens/s", "speed-up", "rule, ms", "perplexity"],
                rows)


def main(argv=None):
    p = cli.parser(__doc__.splitlines()[0])
    cli.decoding_flags(p, Path(__file__).resolve().parent / "figures")
    cli.sampler_flags(p, temperature=1.0)
    p.add_argument("--shape", choices=SHAPES, default="multi-chain")
    p.add_argument("--branching", type=int, default=2)
    p.add_argument("--depth", type=int, default=4)
    args = p.parse_args(argv)
    sampler = cli.make_sampler(args)
    draft_sampler = Sampler(args.temperature, top_k=20)
    dataset, device = cli.setup(args)
    cli.check_decoding(args, dataset)
    shape_parents(SHAPES[args.shape], args.branching, args.depth)  # refuses a bad shape at once
    target = for_decoding(get_gpt(args.size, dataset, device, args.retrain), args.precision)
    small = TreeGPT(for_decoding(get_gpt("draft", dataset, device, args.retrain), args.precision))

    def decoder(rule):
        def start(prompt, seed):
            dice = Dice(seed)
            drafter = SampledTreeDrafter(
                small, SHAPES[args.shape], args.branching, args.depth, draft_sampler, dice)
            return speculate(target, drafter, prompt, sampler, dice, rule)

        return start

    decoders = {PLAIN: lambda prompt, seed: plain_decode(target, prompt, sampler, Dice(seed))}
    decoders |= {name: decoder(rule) for name, rule in rules_for(args.shape).items()}
    prompts = held_out_prompts(dataset, args.prompts)
    results = compare(decoders, prompts, args.max_new_tokens)
    print(f"\n{args.size} target in {precision_of(target)} on {device_name(device)}; {args.shape} "
          f"trees, b = {args.branching}, depth {args.depth}, drafted by the small GPT (top 20); "
          f"temperature {sampler.temperature:g}, top-p {sampler.top_p:g}; {args.prompts} held-out "
          f"prompts, {args.max_new_tokens} new tokens each\n"
          "tau: tokens a target forward (block efficiency); rule: milliseconds a tree\n")
    report(results, prompts, target, sampler)
    bars = {name: {"tau": summarize(g)["tau"]} for name, g in results.items() if name != PLAIN}
    plots.save(plots.draw_bars(bars, "tokens per target forward"), args.out / "rules.png")
    print(f"\nfigure: {args.out / 'rules.png'}")


if __name__ == "__main__":
    cli.run(main)
