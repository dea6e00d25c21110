"""Train a target and its block-diffusion drafter, decode with DDTree, print what it brings.

    python 05_ddtree/train_and_decode.py            # minutes; the second run takes seconds
    python 05_ddtree/train_and_decode.py --quick    # a smaller target
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))  # so that a plain clone runs, too

from nanogpt import cli
from conditional_marginals import decode_conditional
from ddtree import decode_ddtree
from experiments.ddtree_table import (
    PLAIN,
    Models,
    contest,
    get_rivals,
    print_conclusions,
    print_repetition,
    print_time_table,
    save_figures,
)
from nanogpt.account import print_differences, print_results, print_setting
from nanogpt.data import held_out_prompts
from nanogpt.printing import print_stream
from nanogpt.sampling import Dice, Sampler
from train_drafter import get_target_and_drafter, longest_block

BUDGET = 15  # B of the text that is streamed


def read_flags(argv):
    """-> args, and args.samplers, one per table. Raises ValueError for a bad value."""
    p = cli.parser(__doc__.splitlines()[0])
    cli.decoding_flags(p, Path(__file__).resolve().parent / "figures")
    p.add_argument("--block-size", type=int, default=5, help="L, masked positions of a block")
    p.add_argument("--budgets", type=int, nargs="+", default=[7, 15, 63],
                   help="draft nodes of the DDTrees")
    cli.temperatures_flag(p)
    p.add_argument("--own-texts", action="store_true",
                   help="train the drafter on the target's own greedy texts as well")
    p.add_argument("--no-transition", action="store_true",
                   help="the paper's drafter: marginals alone, no table of transitions")
    p.add_argument("--quick", action="store_true",
                   help="a first look: --size small and --prompts 3")
    args = p.parse_args(argv)
    if args.quick:
        args.size, args.prompts = "small", 3
    args.samplers = [Sampler(t) for t in args.temperatures]
    longest = longest_block(args.size)
    if min(args.budgets) < 1 or not 1 <= args.block_size <= longest:
        raise ValueError(f"budgets are {args.budgets} and block-size is {args.block_size}; each "
                         f"must be at least 1, and block-size at most {longest}")
    return args


def load_models(args, dataset, device):
    """Train or load the target, its drafter and the rivals -> Models, copies for decoding."""
    target, block = get_target_and_drafter(
        args, dataset, device, args.block_size, args.own_texts, not args.no_transition)
    return Models(target, block, *get_rivals(args, dataset, device))


def main(argv=None):
    args = read_flags(argv)
    dataset, device = cli.setup(args)
    prompt = cli.check_decoding(args, dataset)
    models = load_models(args, dataset, device)

    # One text, as it is decoded.
    decode = decode_ddtree if args.no_transition else decode_conditional
    steps = decode(models.target, models.block, BUDGET, prompt, args.samplers[-1], Dice(args.seed))
    print_stream(steps, args.prompt, args.max_new_tokens, dataset.tokenizer)

    # A table each temperature: DDTree, its chain and the rivals, in turn on the same prompts.
    prompts = held_out_prompts(dataset, args.prompts)
    print_setting(args, models.target)
    tables = {}
    for sampler in args.samplers:
        results, prices = contest(models, sampler, args.budgets, prompts, args.max_new_tokens)
        tables[sampler.temperature] = results
        greedy = sampler.temperature == 0
        print(f"\ntemperature {sampler.temperature:g}")
        print_results(results, PLAIN, greedy)
        print_time_table(results, prices)
        if greedy:
            print_differences(results, PLAIN, prompts, models.target)
            print_repetition(results)
    print_conclusions(tables)
    save_figures(args, tables, models, prompt, dataset.tokenizer)


if __name__ == "__main__":
    cli.run(main)
