"""Tree speculation for real: what a wrong rule does, and what more drafts are worth.

    python 02_tree_attention/train_and_decode.py

trains (or loads) the target and the small drafter, prints every table of this chapter.
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))  # so that a plain clone runs, too

from nanogpt import cli
from bench import registry
from nanogpt.bench import print_tables
from nanogpt.data import held_out_prompts
from nanogpt.sampling import Dice, Sampler
from nanogpt.train import get_pair
from tree_attention import TreeBigram, TreeDrafter, TreeGPT, multi_round, speculate, walk
from wrong import BREAKS, mean_bias


def main(argv=None):
    p = cli.parser(__doc__.splitlines()[0])
    cli.decoding_flags(p)
    cli.temperatures_flag(p)
    args = p.parse_args(argv)
    samplers = [Sampler(t) for t in args.temperatures]
    dataset, device = cli.setup(args)
    prompt = cli.check_decoding(args, dataset)
    bigram = TreeBigram(dataset.train, dataset.vocab_size)  # may refuse: before any training
    target, small = get_pair(args, dataset, device)
    models = {"bigram": bigram, "57K GPT": TreeGPT(small)}

    # One text: 2 + 4 + 4 + 4 drafts in a round, judged by the walk.
    drafter = TreeDrafter(models["57K GPT"], (2, 2, 1, 1))
    steps = speculate(target, drafter, prompt, Sampler(0), Dice(args.seed))
    cli.print_stream(steps, args.prompt, args.max_new_tokens, dataset.tokenizer)
    cli.print_table(["total variation of one coin a node", "mean of 30 pairs of models"],
                    [[name, f"{mean_bias(*case):.2f}"] for name, case in BREAKS.items()])

    # At temperature 0 only one child can be drawn: there the walk judges top tokens.
    print_tables(args, target, held_out_prompts(dataset, args.prompts), samplers,
                 lambda sampler: registry(target, models, sampler,
                                          multi_round if sampler.temperature else walk),
                 "; the walk at temperature 0, multi-round rejection above", turn=None)


if __name__ == "__main__":
    cli.run(main)
