"""Tree speculation for real: the worked example, the bias, and chain against trees.

    python 02_tree_attention/train_and_decode.py

trains (or loads) the target and the small draft model, prints every table of this chapter and
saves its pictures.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = map(str, [ROOT, *ROOT.glob("0?_*")])  # so that a plain clone runs, too

import statistics

import torch

from cautionary_rule import BREAKS, bias_table, mean_bias
from experiments.equal_budget import chain_and_best_tree, make_decoders, print_verdict
from nanogpt.account import distinct_share, print_bottlenecks, print_differences, print_results
from nanogpt.cli import check_decoding, decoding_flags, parser, run, setup, temperatures_flag
from nanogpt.clock import cost_curve
from nanogpt.contest import compare
from nanogpt.data import held_out_prompts
from nanogpt.decoding import collect
from nanogpt.device import device_name
from nanogpt.packing import for_decoding, precision_of
from nanogpt.pictures import plots
from nanogpt.printing import print_table, print_text
from nanogpt.sampling import Dice, Sampler
from nanogpt.train import get_gpt
from tree_attention import Tree, TreeBigram, TreeDrafter, TreeGPT, multi_round, speculate, walk

NAMES = ["cur", "c0", "c2", "c3", "c1", "c4", "c5"]  # the article's tree, depth first
EXAMPLE = Tree(range(7), [-1, 0, 1, 1, 0, 4, 4])


def worked_example(out):
    """The article's tree: its mask, its positions, and the rows kept for the path c1, c4."""
    print("\nThe worked example: cur -> c0 -> c2, c3 and cur -> c1 -> c4, c5\n")
    mask = EXAMPLE.mask.int().tolist()
    print_table(["row", "node", "parent", "position", *NAMES], [
        [row, NAMES[row], int(EXAMPLE.parents[row]), f"L+{EXAMPLE.depths[row]}", *mask[row]]
        for row in range(7)
    ])
    wants = torch.eye(7)[[4, 0, 0, 0, 5, 6, 0]]  # a target that follows cur by c1, c1 by c4
    path, _ = walk(EXAMPLE, wants, Dice(0))
    print(f"\naccepted: {' '.join(NAMES[row] for row in path)}; cache rows kept: {path}")
    plots.save(plots.draw_mask_beside_causal(EXAMPLE.mask, NAMES)[0], out / "mask.png")
    plots.save(plots.draw_cache(["..."] * 3, NAMES, path), out / "cache.png")


def bias_of_the_rules(out):
    """The cautionary rule in exact numbers: the three breaks one by one, then all together."""
    print("\nTotal variation between output and target (exact; 0 = lossless), random models of 4 "
          "tokens\n")
    print_table(["one break at a time", "bias"], [
        [name, f"{mean_bias(*case)[-1]:.4f}"] for name, case in BREAKS.items()
    ])
    tables = {"random drafter": bias_table(),
              "drafter = target": bias_table(drafter_is_target=True)}
    print()
    print_table(["branching 2-2", *(f"{who}, {n}" for who in tables for n in (1, 2))], [
        [rule, *(f"{bias:.4f}" for table in tables.values() for bias in table[rule])]
        for rule in tables["random drafter"]
    ])
    groups = {f"{text}\n{who}": {rule: biases[n] for rule, biases in table.items()}
              for who, table in tables.items()
              for n, text in enumerate(("first token", "first two tokens"))}
    plots.save(plots.draw_bars(groups, "distance from the target's law"), out / "bias.png")


def one_real_step(target, draft_model, prompt, tokenizer, out):
    """A step of real decoding with a fair number of accepted tokens, as pictures."""
    sampler, dice = Sampler(1), Dice(3)
    drafter = TreeDrafter(draft_model, (3, 2, 1), sampler, dice)
    steps = collect(speculate(target, drafter, prompt, sampler, dice, multi_round), 100).steps
    step = max(steps, key=lambda step: len(step.tokens))
    tree, path, target_probs = step.detail.tree, step.detail.path, step.detail.target_probs

    def text(token):
        return tokenizer.decode([token])

    plots.save(plots.draw_tree(tree, text, path, target_probs, next_token=step.tokens[-1]),
               out / "tree.png")
    plots.save(plots.draw_cache(["..."] * 2, [text(int(t)) for t in tree.tokens], path),
               out / "cache_of_the_step.png")


def compare_shapes(target, models, prompts, args, curve):
    """The equal-budget comparison, for each temperature, drafter and rule; its tables."""
    for temperature in args.temperatures:
        sampler, pictures = Sampler(temperature), {}
        # At temperature 0 only one child can be drawn: the sampled tree is a chain.
        rules = [walk] if temperature == 0 else [walk, multi_round]
        for rule in rules:
            for drafter, model in models.items():
                print(f"\nT = {temperature:g}, {drafter} drafter, {rule.__name__} on "
                      f"{'drawn children' if rule is multi_round else 'the top tokens'}\n")
                decoders = make_decoders(target, model, sampler, rule)
                results = compare(decoders, prompts, args.max_new_tokens)
                print_results(results, "plain", greedy=rule is walk)
                if temperature == 0:
                    print_differences(results, "plain", prompts, target)
                    distinct = [distinct_share(g.tokens) for g in results["plain"]]
                    print("share of distinct 6-grams in the plain texts: "
                          f"{statistics.mean(distinct):.2f} (repetition flatters tau)")
                table = chain_and_best_tree(results, curve)
                print()
                print_verdict(table, curve)
                print()
                print_bottlenecks(results, "plain", curve)
                if rule is walk:
                    for kind in ("chain", "tree"):
                        name = f"{drafter}, {'best tree' if kind == 'tree' else kind}"
                        lines = [pair[kind] for pair in table.values()]
                        pictures[name] = (list(table), [line["tau"] for line in lines],
                                          [line["speedup"] for line in lines])
        axes = plots.draw_sweep(pictures, "draft tokens", log2=True)
        plots.save(axes[0], args.out / f"budget_T{temperature:g}.png")


def main(argv=None):
    p = parser(__doc__.splitlines()[0])
    decoding_flags(p, Path(__file__).resolve().parent / "figures")
    temperatures_flag(p)
    args = p.parse_args(argv)
    dataset, device = setup(args)
    prompt = check_decoding(args, dataset)
    for temperature in args.temperatures:
        Sampler(temperature)  # refuses a bad one before anything is trained
    bigram = TreeBigram(dataset.train, dataset.vocab_size)  # may refuse, too
    worked_example(args.out)
    bias_of_the_rules(args.out)

    trained = get_gpt(args.size, dataset, device, args.retrain)
    small = get_gpt("draft", dataset, device, args.retrain)
    target = for_decoding(trained, args.precision)
    models = {"bigram": bigram, "small GPT": TreeGPT(for_decoding(small, args.precision))}
    one_real_step(target, models["small GPT"], prompt, dataset.tokenizer, args.out)

    print(f"\nGreedy text with a tree 2-2-1-1 of the small GPT, after {args.prompt!r}:\n")
    drafter = TreeDrafter(models["small GPT"], (2, 2, 1, 1))
    generation = collect(speculate(target, drafter, prompt, Sampler(0), Dice(args.seed)),
                         args.max_new_tokens,
                         on_tokens=lambda tokens: print_text(dataset.tokenizer.decode(tokens)))
    print(f"\n\n{len(generation.tokens)} tokens, tau {generation.tau:.2f}")

    curve = cost_curve(target, rows=(1, 2, 5, 9, 15, 31), cached=min(128, target.block_size // 2))
    print(f"\n'{args.size}' target in {precision_of(target)} on {device_name(device)}; one forward "
          "of N rows, milliseconds: " + ", ".join(f"{n}: {ms:.2f}" for n, ms in curve.items()))
    prompts = held_out_prompts(dataset, args.prompts)
    compare_shapes(target, models, prompts, args, curve)
    rows = max(curve)
    print(f"\nAt equal budget both shapes verify equally many rows. A tree asks its drafter once "
          "a level, a chain once a token, so the tree drafts for less; it wins wherever its second "
          "guesses also keep tau up. A chain wins where the first guess is kept so often that "
          f"depth is worth more than width. And {rows} rows cost {curve[rows] / curve[1]:.2f} "
          "plain steps here: once tau grows more slowly than that curve, any shape loses.")
    print(f"\npictures: {args.out}")


if __name__ == "__main__":
    run(main)
