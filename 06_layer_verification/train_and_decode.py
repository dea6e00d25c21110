"""Judge the same kind of sampled draft trees by every rule, on a real target.

    python 06_layer_verification/train_and_decode.py --shape complete --depth 5
    python 06_layer_verification/train_and_decode.py --temperature 0.6 --top-p 0.9   # the paper's
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = map(str, [ROOT, *ROOT.glob("0?_*")])  # so that a plain clone runs, too

from experiments.all_rules import rules_for
from experiments.rule_table import PLAIN, decoders, print_rules
from experiments.same_trees import print_same_trees
from iid_trees import SHAPES, shape_parents
from nanogpt import cli
from nanogpt.account import print_bottlenecks
from nanogpt.clock import cost_curve
from nanogpt.contest import compare, summarize
from nanogpt.data import held_out_prompts
from nanogpt.device import device_name
from nanogpt.packing import for_decoding, precision_of
from nanogpt.pictures import plots
from nanogpt.sampling import Sampler
from nanogpt.train import get_gpt
from tree_attention import TreeGPT


def main(argv=None):
    p = cli.parser(__doc__.splitlines()[0])
    cli.decoding_flags(p, Path(__file__).resolve().parent / "figures")
    cli.sampler_flags(p, temperature=1.0)
    p.add_argument("--shape", choices=SHAPES, default="multi-chain", help="of the trees")
    p.add_argument("--branching", type=int, default=2, help="branching budget b")
    p.add_argument("--depth", type=int, default=4, help="of the trees")
    args = p.parse_args(argv)
    sampler = cli.make_sampler(args)
    draft_sampler = Sampler(args.temperature, top_k=20, top_p=args.top_p)
    dataset, device = cli.setup(args)
    cli.check_decoding(args, dataset)
    nodes = len(shape_parents(SHAPES[args.shape], args.branching, args.depth))  # or ValueError
    target = for_decoding(get_gpt(args.size, dataset, device, args.retrain), args.precision)
    small = TreeGPT(for_decoding(get_gpt("draft", dataset, device, args.retrain), args.precision))

    starts = decoders(target, small, sampler, draft_sampler, args.shape, args.branching, args.depth)
    prompts = held_out_prompts(dataset, args.prompts)
    results = compare(starts, prompts, args.max_new_tokens)
    print(f"\n{args.size} target in {precision_of(target)} on {device_name(device)}; {args.shape} "
          f"trees, b = {args.branching}, depth {args.depth}, {nodes} nodes, drafted by the small "
          f"GPT (top 20); temperature {sampler.temperature:g}, top-p {sampler.top_p:g}; "
          f"{args.prompts} held-out prompts, {args.max_new_tokens} new tokens each\n"
          "tau: tokens a target forward (block efficiency); rule: microseconds a step\n")
    print_rules(results, prompts, target, sampler)
    print("\nWithout coins: what every rule expects (standard error in brackets)\n")
    rules = rules_for(args.shape, args.branching)
    expected = print_same_trees(rules, results)
    print()
    print_bottlenecks(results, PLAIN, cost_curve(target, rows=sorted({1, 2, 4, 8, 16, 32, nodes})))
    bars = {name: {"decoded": summarize(results[name])["tau"], "expected, same trees": tau}
            for name, tau in expected.items()}
    plots.save(plots.draw_bars(bars, "tokens per target forward"), args.out / "rules.png")
    print(f"\nfigure: {args.out / 'rules.png'}")


if __name__ == "__main__":
    cli.run(main)
