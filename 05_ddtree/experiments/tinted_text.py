"""One text, three prices: plain decoding, a chain and DDTree, tinted by target forward.

    python 05_ddtree/experiments/tinted_text.py       # -> 05_ddtree/figures/tinted.png

The walk draws once per emitted token, as plain decoding does. With dice of one seed all three write
the same text, at any temperature; only the number of forwards differs.
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[2]))  # so that a plain clone runs, too

from nanogpt import cli
from block_diffusion import BlockConfig
from ddtree import BlockChainDrafter, DDTreeDrafter, draft_temperature
from nanogpt.bench import first_difference
from nanogpt.decoding import collect, plain_decode
from nanogpt.packing import for_decoding
from nanogpt.pictures import plots
from nanogpt.pictures.tint import draw_tints
from nanogpt.sampling import Dice
from nanogpt.train import get_gpt
from train_drafter import drafter_for_decoding, get_drafter
from tree_attention import speculate  # chapter 02


def texts(target, block, prompt, sampler, seed, count, budget):
    """{name: Generation} of `count` tokens: the same dice for all three."""
    def generate(drafter):
        return collect(speculate(target, drafter, prompt, sampler, Dice(seed)), count)

    return {"plain": collect(plain_decode(target, prompt, sampler, Dice(seed)), count),
            f"chain of {block.config.length}": generate(BlockChainDrafter(block)),
            f"DDTree, B = {budget}": generate(DDTreeDrafter(
                block, budget, draft_temperature(sampler.temperature)))}


def main(argv=None):
    p = cli.parser(__doc__.splitlines()[0])
    cli.target_flags(p)
    p.add_argument("--prompt", type=cli.text, default="ROMEO:\n", help="text to continue")
    p.add_argument("--max-new-tokens", type=int, default=200, help="length of the text")
    p.add_argument("--budget", type=int, default=31, help="B, draft nodes of DDTree")
    p.add_argument("--out", type=Path, default=Path(__file__).resolve().parents[1] / "figures",
                   help="folder for tinted.png")
    cli.sampler_flags(p, temperature=1.0)
    args = p.parse_args(argv)
    if args.budget < 1:
        raise ValueError(f"budget is {args.budget}; a tree needs at least 1 draft node")
    sampler = cli.make_sampler(args)
    dataset, device = cli.setup(args)
    prompt = cli.check_decoding(args, dataset)
    trained = get_gpt(args.size, dataset, device, args.retrain)
    block = get_drafter(trained, dataset, BlockConfig.reading(trained), device, args.retrain)
    target = for_decoding(trained, args.precision)
    generations = texts(target, drafter_for_decoding(block, target), prompt, sampler, args.seed,
                        args.max_new_tokens, args.budget)
    plain = generations["plain"].tokens
    for name, generation in generations.items():
        place = first_difference(generation.tokens, plain)
        same = len(plain) if place is None else place
        print(f"{name}: {len(generation.steps)} forwards, {generation.tau:.2f} tokens each; "
              f"the first {same} of {len(plain)} tokens are plain decoding's")
    print(plots.save(draw_tints(generations, dataset.tokenizer.decode)[0], args.out / "tinted.png"))


if __name__ == "__main__":
    cli.run(main)
