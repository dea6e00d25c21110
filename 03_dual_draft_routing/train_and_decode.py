"""Dual draft routing for real: train two heads, decode with each and with the router.

    python 03_dual_draft_routing/train_and_decode.py
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))  # so that a plain clone runs, too

from nanogpt import cli
from bench import drafters, registry
from dual_draft_routing import RoutedDrafter, check_counts
from nanogpt.bench import print_tables
from nanogpt.data import held_out_prompts
from nanogpt.sampling import Dice, Sampler
from train_heads import get_target_and_heads
from tree_attention import speculate  # chapter 02


def main(argv=None):
    p = cli.parser(__doc__.splitlines()[0])
    cli.decoding_flags(p)
    p.add_argument("--budget", type=int, default=8, help="draft nodes of a tree")
    cli.temperatures_flag(p)
    args = p.parse_args(argv)
    check_counts(budget=args.budget)  # before anything is trained
    samplers = [Sampler(t) for t in args.temperatures]
    dataset, device = cli.setup(args)
    prompt = cli.check_decoding(args, dataset)
    target, heads = get_target_and_heads(args, dataset, device)

    routed = RoutedDrafter(drafters(heads, args.budget))
    cli.print_stream(speculate(target, routed, prompt, samplers[-1], Dice(args.seed)),
                     args.prompt, args.max_new_tokens, dataset.tokenizer)
    print_tables(args, target, held_out_prompts(dataset, args.prompts), samplers,
                 lambda sampler: registry(target, heads, sampler, args.budget))


if __name__ == "__main__":
    cli.run(main)
