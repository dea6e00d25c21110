"""Train a GPT on Shakespeare, let a cheap model draft for it, print what that brings.

    python 01_chain_specdec/train_and_decode.py --prompt "JULIET:" --temperature 0.8
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))  # so that a plain clone runs, too

from nanogpt import cli
from bench import method_name, registry
from chain_specdec import BigramDraft, GPTDraft, speculate_chain
from nanogpt.bench import PLAIN, print_tables, speedup, summarize
from nanogpt.data import held_out_prompts
from nanogpt.packing import for_decoding
from nanogpt.pictures import plots
from nanogpt.sampling import Dice
from nanogpt.train import get_gpt

DRAFTERS = {"bigram": "bigram", "gpt": "57K GPT"}  # how a flag and how a table calls them
SWEEP = (1, 2, 4, 8)  # the table's K


def read_flags(argv):
    """-> the flags. Raises ValueError for a bad one."""
    p = cli.parser(__doc__.splitlines()[0])
    cli.decoding_flags(p, Path(__file__).resolve().parent / "figures")
    cli.sampler_flags(p)
    p.add_argument("--draft", choices=DRAFTERS, default="gpt",
                   help="who drafts for --prompt; the table shows both")
    p.add_argument("--k", type=int, default=4, help="drafted tokens per round for --prompt")
    p.add_argument("--stop", type=cli.text, help="end the text of --prompt after this string")
    args = p.parse_args(argv)
    if args.k < 1:
        raise ValueError(f"k is {args.k}; a chain holds at least 1 draft token")
    if args.stop == "":
        raise ValueError("stop is empty; it must hold at least one character")
    return args


def load_models(args, dataset, device):
    """-> the target, {name: drafter}; all trained or loaded, as decoding copies."""
    bigram = BigramDraft(dataset.train, dataset.vocab_size)  # may refuse: before any training
    target = for_decoding(get_gpt(args.size, dataset, device, args.retrain), args.precision)
    small = for_decoding(get_gpt("draft", dataset, device, args.retrain), args.precision)
    return target, {"bigram": bigram, "57K GPT": GPTDraft(small)}


def main(argv=None):
    args = read_flags(argv)
    sampler = cli.make_sampler(args)
    dataset, device = cli.setup(args)
    prompt = cli.check_decoding(args, dataset)
    target, drafters = load_models(args, dataset, device)

    # One text, as it is decoded.
    drafter = drafters[DRAFTERS[args.draft]]
    steps = speculate_chain(target, drafter, prompt, args.k, sampler, Dice(args.seed))
    cli.print_stream(steps, args.prompt, args.max_new_tokens, dataset.tokenizer, args.stop)

    # The table: plain decoding, and both drafters with every K, on texts that were held out.
    prompts = held_out_prompts(dataset, args.prompts)
    results, = print_tables(  # a text at a turn, for every K has the same drafter
        args, target, prompts, [sampler], lambda sampler: registry(
            target, drafters, SWEEP, sampler), turn=None).values()
    curves = {name: (SWEEP, *zip(*(
        (summarize(runs)["tau"], speedup(runs, results[PLAIN]))
        for runs in (results[method_name(name, k)] for k in SWEEP)), strict=True))
        for name in drafters}
    plots.save(plots.draw_sweep(curves, "drafted tokens K", log2=True)[0], args.out / "sweep.png")
    print(f"\nfigure: {args.out / 'sweep.png'}")


if __name__ == "__main__":
    cli.run(main)
