"""Judge the same kind of sampled draft trees by every rule, on a real target.

    python 06_layer_verification/train_and_decode.py --shape complete --depth 5
    python 06_layer_verification/train_and_decode.py --temperature 0.6 --top-p 0.9   # the paper's
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))  # so that a plain clone runs, too

from nanogpt import cli
from bench import print_rules, print_same_trees, registry
from iid_trees import SHAPES, shape_parents
from nanogpt.bench import print_tables, summarize
from nanogpt.data import held_out_prompts
from nanogpt.packing import for_decoding
from nanogpt.pictures import plots
from nanogpt.sampling import Sampler
from nanogpt.train import get_gpt
from tree_attention import TreeGPT  # chapter 02

STREAMED = "LV + K-SEQ"  # the rule of the text that is printed as it is decoded


def read_flags(argv):
    """-> args, with the target's and the drafter's Sampler and the trees' number of nodes.

    Raises ValueError for a bad value.
    """
    p = cli.parser(__doc__.splitlines()[0])
    cli.decoding_flags(p, Path(__file__).resolve().parent / "figures")
    cli.sampler_flags(p, temperature=1.0)
    p.add_argument("--shape", choices=SHAPES, default="multi-chain", help="of the trees")
    p.add_argument("--branching", type=int, default=2, help="branching budget b")
    p.add_argument("--depth", type=int, default=4, help="of the trees")
    args = p.parse_args(argv)
    args.sampler = cli.make_sampler(args)
    # The paper's truncation: GR needs a small set of possible drafts.
    args.draft_sampler = Sampler(args.temperature, top_k=20, top_p=args.top_p)
    args.nodes = len(shape_parents(SHAPES[args.shape], args.branching, args.depth))
    return args


def load_models(args, dataset, device):
    """-> the target, the small GPT that drafts trees; trained or loaded, as decoding copies."""
    target = for_decoding(get_gpt(args.size, dataset, device, args.retrain), args.precision)
    small = for_decoding(get_gpt("draft", dataset, device, args.retrain), args.precision)
    return target, TreeGPT(small)


def main(argv=None):
    args = read_flags(argv)
    dataset, device = cli.setup(args)
    prompt = cli.check_decoding(args, dataset)
    target, small = load_models(args, dataset, device)

    def take_part(sampler):
        return registry(target, small, sampler, args.draft_sampler, args.shape, args.branching,
                        args.depth)

    cli.print_stream(take_part(args.sampler)[STREAMED](prompt, args.seed), args.prompt,
                     args.max_new_tokens, dataset.tokenizer)

    prompts = held_out_prompts(dataset, args.prompts)
    results, = print_tables(
        args, target, prompts, [args.sampler], take_part,
        f"; {args.shape} trees, b = {args.branching}, depth {args.depth}, {args.nodes} nodes, "
        f"drafted by the 57K GPT (top 20); top-p {args.top_p:g}", turn=None).values()
    print()
    print_rules(results, prompts, target, args.sampler)
    print("\nWithout coins: what every rule expects\n")
    expected = print_same_trees(results)
    bars = {name: {"decoded": summarize(results[name])["tau"], "expected, same trees": tau}
            for name, tau in expected.items()}
    figure = plots.save(plots.draw_bars(bars, "tokens per target forward"), args.out / "rules.png")
    print(f"\nfigure: {figure}")


if __name__ == "__main__":
    cli.run(main)
