"""Tree speculation for real: the worked example, the bias, and chain against trees.

    python 02_tree_attention/train_and_decode.py

trains (or loads) the target and the small drafter, prints every table of this chapter and saves
its pictures.
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))  # so that a plain clone runs, too

from nanogpt import cli
from experiments import equal_budget as budgets
from experiments.bias_of_the_rules import print_bias_of_the_rules
from experiments.worked_example import print_worked_example, save_real_step
from nanogpt.account import print_results, print_setting
from nanogpt.clock import cost_curve
from nanogpt.contest import compare
from nanogpt.data import held_out_prompts
from nanogpt.packing import for_decoding
from nanogpt.printing import print_stream
from nanogpt.sampling import Dice, Sampler
from nanogpt.train import get_gpt
from tree_attention import TreeBigram, TreeDrafter, TreeGPT, speculate, walk


def read_flags(argv):
    """-> the flags. Raises ValueError for a bad one."""
    p = cli.parser(__doc__.splitlines()[0])
    cli.decoding_flags(p, Path(__file__).resolve().parent / "figures")
    cli.temperatures_flag(p)
    args = p.parse_args(argv)
    for temperature in args.temperatures:
        Sampler(temperature)  # refuses a bad one
    return args


def load_models(args, dataset, device):
    """-> the target, {name: draft model}; all trained or loaded, as decoding copies."""
    bigram = TreeBigram(dataset.train, dataset.vocab_size)  # may refuse: before any training
    target = for_decoding(get_gpt(args.size, dataset, device, args.retrain), args.precision)
    small = for_decoding(get_gpt("draft", dataset, device, args.retrain), args.precision)
    return target, {"bigram": bigram, "57K GPT": TreeGPT(small)}


def main(argv=None):
    args = read_flags(argv)
    dataset, device = cli.setup(args)
    prompt = cli.check_decoding(args, dataset)
    target, models = load_models(args, dataset, device)

    # One text: 2 + 4 + 4 + 4 drafts in a round, judged by the walk.
    drafter = TreeDrafter(models["57K GPT"], (2, 2, 1, 1))
    steps = speculate(target, drafter, prompt, Sampler(0), Dice(args.seed))
    print_stream(steps, args.prompt, args.max_new_tokens, dataset.tokenizer)

    # What the chapter shows by hand: the article's tree, and what its accept rule gets wrong.
    print_worked_example(args.out)
    print_bias_of_the_rules(args.out)
    save_real_step(target, models["57K GPT"], prompt, dataset.tokenizer, args.out)

    # Chains and trees with the same number of nodes cost the target the same, c(N) milliseconds.
    prompts = held_out_prompts(dataset, args.prompts)
    print_setting(args, target)
    curve = cost_curve(target, rows=(1, 2, 5, 9, 15, 31))
    print("one forward of N rows, ms: " + ", ".join(f"{n}: {ms:.2f}" for n, ms in curve.items()))
    for temperature in args.temperatures:
        all_results = {}
        for name, rule in budgets.contests(models, temperature):
            budgets.print_heading(temperature, name, rule)
            decoders = budgets.make_decoders(target, models[name], Sampler(temperature), rule)
            results = compare(decoders, prompts, args.max_new_tokens)
            print_results(results, budgets.PLAIN, greedy=rule is walk)
            if temperature == 0:
                budgets.print_greedy_texts(results, prompts, target)
            budgets.print_chain_against_trees(results, curve)
            all_results[name, rule] = results
        budgets.save_figure(all_results, curve, args.out / f"budget_T{temperature:g}.png")
    budgets.print_conclusion(curve)
    print(f"\nfigures: {args.out}")


if __name__ == "__main__":
    cli.run(main)
