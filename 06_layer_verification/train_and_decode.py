"""Judge the same kind of sampled draft trees by every rule, on a real target.

    python 06_layer_verification/train_and_decode.py --shape complete --depth 5
    python 06_layer_verification/train_and_decode.py --temperature 0.6 --top-p 0.9   # the paper's
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))  # so that a plain clone runs, too

from nanogpt import cli
from bench import print_same_trees, registry
from iid_trees import SHAPES, shape_parents
from nanogpt.bench import print_tables
from nanogpt.data import held_out_prompts
from nanogpt.sampling import Sampler
from nanogpt.train import get_pair
from tree_attention import TreeGPT  # chapter 02

STREAMED = "LV + K-SEQ"  # the rule of the text that is printed as it is decoded


def main(argv=None):
    p = cli.parser(__doc__.splitlines()[0])
    cli.decoding_flags(p)
    cli.sampler_flags(p, temperature=1.0)
    p.add_argument("--shape", choices=SHAPES, default="multi-chain", help="of the trees")
    p.add_argument("--branching", type=int, default=2, help="branching budget b")
    p.add_argument("--depth", type=int, default=4, help="of the trees")
    args = p.parse_args(argv)
    sampler = cli.make_sampler(args)
    # The paper's truncation: GR needs a small set of possible drafts.
    draft_sampler = Sampler(args.temperature, top_k=20, top_p=args.top_p)
    nodes = len(shape_parents(SHAPES[args.shape], args.branching, args.depth))
    dataset, device = cli.setup(args)
    prompt = cli.check_decoding(args, dataset)
    target, small = get_pair(args, dataset, device)

    def take_part(sampler):
        return registry(target, TreeGPT(small), sampler, draft_sampler, args.shape, args.branching,
                        args.depth)

    cli.print_stream(take_part(sampler)[STREAMED](prompt, args.seed), args.prompt,
                     args.max_new_tokens, dataset.tokenizer)
    results, = print_tables(
        args, target, held_out_prompts(dataset, args.prompts), [sampler], take_part,
        f"; {args.shape} trees, b = {args.branching}, depth {args.depth}, {nodes} nodes, "
        f"of the drafter's 20 most probable tokens; top-p {args.top_p:g}", turn=None).values()
    print("\nWithout coins: what every rule expects\n")
    print_same_trees(results)


if __name__ == "__main__":
    cli.run(main)
