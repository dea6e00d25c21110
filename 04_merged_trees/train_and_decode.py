"""Merged trees: two heads' trees in one beside routing and single heads.

    python 04_merged_trees/train_and_decode.py
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))  # so that a plain clone runs, too

from nanogpt import cli
from bench import registry
from dual_draft_routing import check_counts  # chapter 03
from nanogpt.bench import print_tables
from nanogpt.data import held_out_prompts
from nanogpt.sampling import Sampler
from train_heads import get_target_and_heads  # chapter 03


def read_flags(argv):
    """-> args. Raises ValueError for a bad budget before anything is trained."""
    p = cli.parser(__doc__.splitlines()[0])
    cli.decoding_flags(p)
    p.add_argument("--budget", type=int, default=8, help="draft nodes of one head's tree")
    cli.temperatures_flag(p)
    args = p.parse_args(argv)
    check_counts(budget=args.budget)
    if args.budget % 2:
        raise ValueError(f"budget is {args.budget}; it must be even, for two trees to share it")
    return args


def main(argv=None):
    args = read_flags(argv)
    samplers = [Sampler(t) for t in args.temperatures]
    dataset, device = cli.setup(args)
    prompt = cli.check_decoding(args, dataset)
    target, heads = get_target_and_heads(args, dataset, device)

    trie = registry(target, heads, samplers[-1], args.budget)[f"trie-merged, {args.budget}"]
    cli.print_stream(trie(prompt, args.seed), args.prompt, args.max_new_tokens, dataset.tokenizer)
    print_tables(args, target, held_out_prompts(dataset, args.prompts), samplers,
                 lambda sampler: registry(target, heads, sampler, args.budget))


if __name__ == "__main__":
    cli.run(main)
