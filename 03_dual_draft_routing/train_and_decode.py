"""Dual draft routing for real: train two heads, decode with each, with a coin, with the router.

    python 03_dual_draft_routing/train_and_decode.py
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = map(str, [ROOT, *ROOT.glob("0?_*")])  # so that a plain clone runs, too

from draft_heads import default_configs, get_heads, heads_for_decoding
from dual_draft_routing import HeadDrafter, RoutedDrafter, coin_flip
from experiments.replay import PAPER, texts_of
from experiments.router_report import draw_calibration, draw_choices, explain, replay_table
from nanogpt import cli
from nanogpt.account import print_bottlenecks, print_differences, print_results
from nanogpt.clock import cost_curve
from nanogpt.contest import compare
from nanogpt.data import held_out_prompts
from nanogpt.decoding import collect, plain_decode
from nanogpt.device import device_name
from nanogpt.packing import for_decoding, precision_of
from nanogpt.pictures import plots
from nanogpt.printing import print_text
from nanogpt.sampling import Dice, Sampler
from nanogpt.train import get_gpt
from tree_attention import speculate


def decoders(target, heads, sampler, budget):
    """{name: start(prompt, seed)} for every method that can really run."""
    def decoder(make):
        return lambda prompt, seed: speculate(
            target, make([HeadDrafter(head, budget=budget) for head in heads], Dice(seed + 1)),
            prompt, sampler, Dice(seed))

    return {
        "plain": lambda prompt, seed: plain_decode(target, prompt, sampler, Dice(seed)),
        "head 1 alone": decoder(lambda pair, dice: pair[0]),
        "head 2 alone": decoder(lambda pair, dice: pair[1]),
        "coin flip": decoder(lambda pair, dice: RoutedDrafter(pair, coin_flip(dice))),
        "routed": decoder(lambda pair, dice: RoutedDrafter(pair)),
    }


def main(argv=None):
    p = cli.parser(__doc__.splitlines()[0])
    cli.decoding_flags(p, Path(__file__).resolve().parent / "figures")
    p.add_argument("--budget", type=int, default=8, help="draft nodes of a tree")
    p.add_argument("--replayed", type=int, default=12, help="held-out texts behind the routers")
    p.add_argument("--generalists", action="store_true",
                   help="two heads that are on duty everywhere and differ only by chance")
    cli.temperatures_flag(p)
    args = p.parse_args(argv)
    samplers = [Sampler(t) for t in args.temperatures]
    HeadDrafter(None, budget=args.budget)  # refuses a bad budget before anything is trained
    if args.replayed < 1:
        raise ValueError(f"replayed is {args.replayed}; it must be at least 1")
    dataset, device = cli.setup(args)
    prompt = cli.check_decoding(args, dataset)
    trained = get_gpt(args.size, dataset, device, args.retrain)
    duties = {"duties": ("everywhere",) * 2} if args.generalists else {}
    heads = get_heads(trained, dataset, device, args.retrain,
                      default_configs(trained.config.n_layer, **duties))
    target = for_decoding(trained, args.precision)
    fast = heads_for_decoding(heads, target)

    print_text(f"\n{args.prompt}")
    collect(speculate(target, RoutedDrafter([HeadDrafter(head, budget=args.budget)
                                             for head in fast]),
                      prompt, samplers[-1], Dice(args.seed)), args.max_new_tokens,
            on_tokens=lambda tokens: print_text(dataset.tokenizer.decode(tokens)))
    prompts, many = (held_out_prompts(dataset, n) for n in (args.prompts, args.replayed))
    curve = cost_curve(target, rows=[1, 2, 4, 8, 16, 32])
    print(f"\n\n{args.size} target in {precision_of(target)} on {device_name(device)}; duties: "
          + ", ".join(f"head {h} {head.config.duty}" for h, head in enumerate(heads, 1))
          + f"; {args.budget} draft nodes; {args.prompts} held-out prompts of {len(prompts[0])} "
          f"tokens, {args.max_new_tokens} new tokens each; tau counts the bonus token")
    for sampler in samplers:
        print(f"\ntemperature {sampler.temperature:g}\n")
        results = compare(decoders(target, fast, sampler, args.budget), prompts,
                          args.max_new_tokens)
        print_results(results, "plain", greedy=sampler.temperature == 0)
        if sampler.temperature == 0:
            print_differences(results, "plain", prompts, target)
        print()
        print_bottlenecks(results, "plain", curve)
        # Replayed texts must fit into the window, and hold a few steps.
        length = min(max(args.max_new_tokens, 16), target.block_size - len(prompts[0]))
        texts = texts_of(target, many, sampler, length)
        print()
        runs, proposals = replay_table(target, fast, texts, len(prompts[0]), args.budget, args.seed)
        explain(runs, proposals)
        plots.save(draw_calibration(proposals),
                   args.out / f"calibration_T{sampler.temperature:g}.png")
        plots.save(draw_choices(runs[PAPER][0][:40], lambda t: dataset.tokenizer.decode([t]),
                                texts[0]), args.out / f"choices_T{sampler.temperature:g}.png")
    print(f"\nfigures: {args.out}")


if __name__ == "__main__":
    cli.run(main)
