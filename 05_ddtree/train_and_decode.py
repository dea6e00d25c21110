"""Train a target and its block-diffusion drafter, decode with DDTree, print what it brings.

    python 05_ddtree/train_and_decode.py            # minutes; the second run takes seconds
    python 05_ddtree/train_and_decode.py --quick    # a smaller target
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))  # so that a plain clone runs, too

from nanogpt import cli
from bench import measured_price, registry
from nanogpt.bench import print_tables
from nanogpt.data import held_out_prompts
from nanogpt.packing import for_decoding
from nanogpt.sampling import Dice, Sampler
from nanogpt.sizes import SIZES
from nanogpt.train import get_gpt
from priced_trees import decode_priced
from train_drafter import get_target_and_drafter


def read_flags(argv):
    """-> args, and args.samplers, one per table. Raises ValueError for a bad value."""
    p = cli.parser(__doc__.splitlines()[0])
    cli.decoding_flags(p)
    p.add_argument("--budgets", type=int, nargs="+", default=[7, 15],
                   help="draft nodes of the DDTrees")
    cli.temperatures_flag(p)
    p.add_argument("--no-transition", action="store_true",
                   help="the paper's drafter: marginals alone, no table of transitions")
    p.add_argument("--quick", action="store_true",
                   help="a first look: --size small and --prompts 3")
    args = p.parse_args(argv)
    if args.quick:
        args.size, args.prompts = "small", 3
    args.samplers = [Sampler(t) for t in args.temperatures]
    most = SIZES[args.size].block_size - 1
    if not all(1 <= b <= most for b in args.budgets):
        raise ValueError(f"budgets are {args.budgets}; each must be in [1, {most}], the rows that "
                         "one forward has beside the root")
    return args


def main(argv=None):
    args = read_flags(argv)
    dataset, device = cli.setup(args)
    prompt = cli.check_decoding(args, dataset)
    target, block = get_target_and_drafter(args, dataset, device, not args.no_transition)
    small = for_decoding(get_gpt("draft", dataset, device, args.retrain), args.precision)

    # One text, as it is decoded, with trees as large as pay on this machine.
    prompts = held_out_prompts(dataset, args.prompts)
    price = measured_price(target, block, prompts[0])
    steps = decode_priced(target, block, *price, prompt, args.samplers[-1], Dice(args.seed))
    cli.print_stream(steps, args.prompt, args.max_new_tokens, dataset.tokenizer)

    # A table each temperature: DDTree, its chain and the rivals, in turn on the same prompts.
    print_tables(args, target, prompts, args.samplers, lambda sampler: registry(
        target, block, sampler, args.budgets, args.budgets, price, small))


if __name__ == "__main__":
    cli.run(main)
