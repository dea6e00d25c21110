"""Merged trees for real: the union of two heads' trees against routing and single heads.

    python 04_merged_trees/train_and_decode.py
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = map(str, [ROOT, *ROOT.glob("0?_*")])  # so that a plain clone runs, too

from draft_heads import get_heads, heads_for_decoding
from dual_draft_routing import HeadDrafter
from experiments.merge_budgets import conclude, decoders
from merged_trees import MergedDrafter, accept_paths, block_mask, merge
from nanogpt import cli
from nanogpt.account import print_bottlenecks, print_differences, print_results
from nanogpt.clock import cost_curve
from nanogpt.contest import compare
from nanogpt.data import held_out_prompts
from nanogpt.decoding import collect
from nanogpt.device import device_name
from nanogpt.packing import for_decoding, precision_of
from nanogpt.pictures import plots
from nanogpt.printing import print_text
from nanogpt.sampling import Dice, Sampler
from nanogpt.train import get_gpt
from tree_attention import Tree, speculate


def draw_example(out):
    """The paper's worked example, n1 = 3: tree and mask of the union, a colour for each head."""
    first = Tree([0, 1, 2, 3], [-1, 0, 1, 1])
    union = merge(first, Tree([0, 1, 4, 5], [-1, 0, 1, 0]))
    names = ["s", "a", "b", "c", "d", "e"]
    colors = [plots.INK] + [plots.HEADS[row > 3] for row in range(1, 7)]
    plots.save(plots.draw_tree(union, names.__getitem__, colors=colors), out / "example.png")
    mask = block_mask(first, Tree([0, 1, 4, 5], [-1, 0, 1, 0]))
    plots.save(plots.draw_mask(mask, [f"{row}:{names[int(t)]}" for row, t in
                                      enumerate(union.tokens)], title="M of the union"),
               out / "mask.png")


def draw_real_step(target, heads, prompt, tokenizer, out):
    """The step of a real decoding that accepted most, one colour a head."""
    pair = [HeadDrafter(head, budget=6) for head in heads]
    steps = collect(speculate(target, MergedDrafter(pair), prompt, Sampler(), Dice(1),
                              accept_paths), 60).steps
    step = max(steps[:-1], key=lambda step: len(step.tokens))
    tree, path, target_probs = step.detail.tree, step.detail.path, step.detail.target_probs
    # The heads' trees hold equally many nodes, so the second starts behind the half.
    colors = [plots.INK] + [plots.HEADS[row > (len(tree) - 1) // 2] for row in range(1, len(tree))]
    plots.save(plots.draw_tree(tree, lambda t: tokenizer.decode([t]), path, target_probs,
                               colors=colors, next_token=step.tokens[-1]), out / "tree.png")


def main(argv=None):
    p = cli.parser(__doc__.splitlines()[0])
    cli.decoding_flags(p, Path(__file__).resolve().parent / "figures")
    p.add_argument("--budget", type=int, default=8, help="draft nodes of one head's tree")
    cli.temperatures_flag(p)
    args = p.parse_args(argv)
    samplers = [Sampler(t) for t in args.temperatures]
    HeadDrafter(None, budget=args.budget)  # refuses a bad budget before anything is trained
    if args.budget % 2:
        raise ValueError(f"budget is {args.budget}; it must be even, for two trees to share it")
    dataset, device = cli.setup(args)
    prompt = cli.check_decoding(args, dataset)
    trained = get_gpt(args.size, dataset, device, args.retrain)
    heads = get_heads(trained, dataset, device, args.retrain)
    target = for_decoding(trained, args.precision)
    heads = heads_for_decoding(heads, target)
    draw_example(args.out)
    draw_real_step(target, heads, prompt, dataset.tokenizer, args.out)

    print_text(f"\n{args.prompt}")
    pair = [HeadDrafter(head, budget=args.budget) for head in heads]
    collect(speculate(target, MergedDrafter(pair), prompt, samplers[-1], Dice(args.seed),
                      accept_paths), args.max_new_tokens,
            on_tokens=lambda tokens: print_text(dataset.tokenizer.decode(tokens)))
    curve = cost_curve(target, rows=sorted({1, 4, 16, 1 + args.budget, 1 + 2 * args.budget}))
    print(f"\n\n{args.size} target in {precision_of(target)} on {device_name(device)}; one "
          "forward of N rows, ms: " + ", ".join(f"{n}: {ms:.2f}" for n, ms in curve.items()))
    prompts = held_out_prompts(dataset, args.prompts)
    for sampler in samplers:
        print(f"\ntemperature {sampler.temperature:g}\n")
        results = compare(decoders(target, heads, sampler, args.budget), prompts,
                          args.max_new_tokens)
        print_results(results, "plain", greedy=sampler.temperature == 0)
        if sampler.temperature == 0:
            print_differences(results, "plain", prompts, target)
        print()
        print_bottlenecks(results, "plain", curve)
        print()
        conclude(results, args.budget)
    print(f"\nfigures: {args.out}")


if __name__ == "__main__":
    cli.run(main)
