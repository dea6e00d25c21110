"""Train a GPT on Shakespeare, let a cheap model draft for it, print what that brings.

    python 01_chain_specdec/train_and_decode.py --prompt "JULIET:" --temperature 0.8
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = map(str, [ROOT, *ROOT.glob("0?_*")])  # so that a plain clone runs, too

from chain_specdec import BigramDraft, GPTDraft, speculate_chain
from experiments.k_sweep import (
    PLAIN,
    acceptance_by_position,
    make_decoders,
    method_name,
    sweep_lines,
    sweep_rows,
)
from nanogpt import cli
from nanogpt.account import print_differences, print_results, why_not_faster
from nanogpt.contest import compare
from nanogpt.data import held_out_prompts
from nanogpt.decoding import collect
from nanogpt.device import device_name
from nanogpt.packing import for_decoding, precision_of
from nanogpt.pictures import plots
from nanogpt.printing import print_table, print_text
from nanogpt.sampling import Dice
from nanogpt.train import get_gpt

SWEEP = (1, 2, 4, 8)


def load_models(args, dataset, device):
    """-> the target, {name: draft model}; all trained or loaded, as decoding copies."""
    bigram = BigramDraft(dataset.train, dataset.vocab_size)  # may refuse: before any training
    target = for_decoding(get_gpt(args.size, dataset, device, args.retrain), args.precision)
    small = for_decoding(get_gpt("draft", dataset, device, args.retrain), args.precision)
    return target, {"bigram": bigram, "small GPT": GPTDraft(small)}


def save_figures(args, results, lines, drafters):
    """tau and speed-up over K; predicted against measured; acceptance by draft position."""
    curves = {}
    for drafter in drafters:
        own = [line for line in lines.values() if line.drafter == drafter]
        curves[drafter] = ([x.k for x in own], [x.tau for x in own], [x.measured for x in own])
    plots.save(plots.draw_sweep(curves, "drafted tokens K", log2=True)[0], args.out / "sweep.png")
    points = {name: (line.from_tau, line.measured) for name, line in lines.items()}
    plots.save(plots.draw_predicted(points), args.out / "predicted.png")
    plots.save(draw_positions(results, drafters, SWEEP[-1]), args.out / "positions.png")
    print(f"figures: {args.out}")


def draw_positions(results, drafters, k):
    """The share of drafts that stay, position by position."""
    ax = plots.new_axes(6, 3.4)
    for drafter in drafters:
        shares = acceptance_by_position(results[method_name(drafter, k)], k)
        ax.plot(range(1, k + 1), shares, marker="o", label=drafter)
    ax.set_ylim(0, 1)
    ax.legend(frameon=False)
    return plots.plain_frame(ax, None, "draft position", "share accepted, if it was judged")


def main(argv=None):
    p = cli.parser(__doc__.splitlines()[0])
    cli.decoding_flags(p, Path(__file__).resolve().parent / "figures")
    cli.sampler_flags(p)
    p.add_argument("--draft", choices=("bigram", "gpt"), default="gpt",
                   help="who drafts for --prompt; the table shows both")
    p.add_argument("--k", type=int, default=4, help="drafted tokens a round for --prompt")
    p.add_argument("--stop", help="end the text of --prompt after this string")
    args = p.parse_args(argv)
    sampler = cli.make_sampler(args)
    if args.k < 1:
        raise ValueError(f"k is {args.k}; a chain holds at least 1 draft token")
    if args.stop == "":
        raise ValueError("stop is empty; it must hold at least one character")
    dataset, device = cli.setup(args)
    prompt = cli.check_decoding(args, dataset)
    target, drafters = load_models(args, dataset, device)

    print_text(f"\n{args.prompt}")
    steps = speculate_chain(target, drafters["bigram" if args.draft == "bigram" else "small GPT"],
                            prompt, args.k, sampler, Dice(args.seed))
    text = collect(steps, args.max_new_tokens, args.stop, dataset.tokenizer.decode,
                   lambda tokens: print_text(dataset.tokenizer.decode(tokens)))
    print(f"\n\n{len(text.tokens)} tokens, {text.tau:.2f} per target forward")

    prompts = held_out_prompts(dataset, args.prompts)
    results = compare(make_decoders(target, drafters, SWEEP, sampler), prompts,
                      args.max_new_tokens)
    lines = sweep_lines(results, target, drafters, SWEEP, sampler, prompts[0])

    print(f"\n{args.size} target in {precision_of(target)} on {device_name(device)}; "
          f"{args.prompts} held-out prompts of 64 tokens, {args.max_new_tokens} new tokens each, "
          f"temperature {sampler.temperature:g}; tau counts the bonus token\n")
    print_results(results, PLAIN, greedy=sampler.temperature == 0)
    if sampler.temperature == 0:
        print_differences(results, PLAIN, prompts, target)
    print("\npredicted and measured (draft: K tokens; verify: K + 1 rows)")
    print_table(*sweep_rows(lines))
    best = max(lines, key=lambda name: lines[name].measured)
    print("\n" + why_not_faster(best, results, PLAIN))
    save_figures(args, results, lines, drafters)


if __name__ == "__main__":
    cli.run(main)
