"""Train a GPT on Shakespeare, let a cheap model draft for it, print what that brings.

    python 01_chain_specdec/train_and_decode.py --prompt "JULIET:" --temperature 0.8
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))  # so that a plain clone runs, too

from nanogpt import cli
from bench import registry
from chain_specdec import BigramDraft, GPTDraft, speculate_chain
from nanogpt.bench import print_tables
from nanogpt.data import held_out_prompts
from nanogpt.sampling import Dice
from nanogpt.train import get_pair


def read_flags(argv):
    """-> the flags. Raises ValueError for a bad one."""
    p = cli.parser(__doc__.splitlines()[0])
    cli.decoding_flags(p)
    cli.sampler_flags(p)
    p.add_argument("--draft", choices=("bigram", "gpt"), default="gpt",
                   help="who drafts for --prompt; the table shows both")
    p.add_argument("--k", type=int, default=4, help="drafted tokens per round for --prompt")
    args = p.parse_args(argv)
    if args.k < 1:
        raise ValueError(f"k is {args.k}; a chain holds at least 1 draft token")
    return args


def main(argv=None):
    args = read_flags(argv)
    sampler = cli.make_sampler(args)
    dataset, device = cli.setup(args)
    prompt = cli.check_decoding(args, dataset)
    bigram = BigramDraft(dataset.train, dataset.vocab_size)  # may refuse: before any training
    target, small = get_pair(args, dataset, device)
    gpt = GPTDraft(small)

    # One text, as it is decoded.
    drafter = bigram if args.draft == "bigram" else gpt
    steps = speculate_chain(target, drafter, prompt, args.k, sampler, Dice(args.seed))
    cli.print_stream(steps, args.prompt, args.max_new_tokens, dataset.tokenizer)

    # The table: plain decoding, and both drafters with every K, on texts that were held out.
    prompts = held_out_prompts(dataset, args.prompts)
    print_tables(args, target, prompts, [sampler],  # a text at a turn: K's share a drafter
                 lambda sampler: registry(target, {"bigram": bigram, "57K GPT": gpt}, (1, 2, 4, 8),
                                          sampler), turn=None)


if __name__ == "__main__":
    cli.run(main)
