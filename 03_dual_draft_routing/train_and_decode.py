"""Dual draft routing for real: train two heads, decode with each, with a coin, with the router.

    python 03_dual_draft_routing/train_and_decode.py
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))  # so that a plain clone runs, too

from nanogpt import cli
from bench import drafters, print_routers, propose_everywhere, registry, texts_of
from dual_draft_routing import RoutedDrafter, check_counts
from nanogpt.bench import print_tables
from nanogpt.data import held_out_prompts
from nanogpt.pictures import plots
from nanogpt.sampling import Dice, Sampler
from pictures import draw_further
from train_heads import GENERALISTS, SPECIALISTS, get_target_and_heads
from tree_attention import speculate  # chapter 02


def read_flags(argv):
    """-> args. Raises ValueError for a bad count before anything is trained."""
    p = cli.parser(__doc__.splitlines()[0])
    cli.decoding_flags(p, Path(__file__).resolve().parent / "figures")
    p.add_argument("--budget", type=int, default=8, help="draft nodes of a tree")
    p.add_argument("--replayed", type=int, default=12, help="held-out texts behind the routers")
    p.add_argument("--generalists", action="store_true",
                   help="two heads that are on duty everywhere and differ only by chance")
    cli.temperatures_flag(p)
    args = p.parse_args(argv)
    check_counts(budget=args.budget, replayed=args.replayed)
    return args


def load_models(args, dataset, device):
    """-> the target and its two heads, trained or loaded, as decoding copies."""
    duties = GENERALISTS if args.generalists else SPECIALISTS
    return get_target_and_heads(args, dataset, device, duties)


def main(argv=None):
    args = read_flags(argv)
    samplers = [Sampler(t) for t in args.temperatures]
    dataset, device = cli.setup(args)
    prompt = cli.check_decoding(args, dataset)
    target, heads = load_models(args, dataset, device)

    routed = RoutedDrafter(drafters(heads, args.budget))
    cli.print_stream(speculate(target, routed, prompt, samplers[-1], Dice(args.seed)),
                     args.prompt, args.max_new_tokens, dataset.tokenizer)
    prompts, many = (held_out_prompts(dataset, n) for n in (args.prompts, args.replayed))
    duties = ", ".join(f"head {h} {head.config.duty}" for h, head in enumerate(heads, 1))
    print_tables(args, target, prompts, samplers,
                 lambda sampler: registry(target, heads, sampler, args.budget),
                 f"; duties: {duties}; {args.budget} draft nodes")
    columns = {}
    for sampler in samplers:
        texts = texts_of(target, many, sampler, args.max_new_tokens)
        known = columns[f"T = {sampler.temperature:g}"] = [
            propose_everywhere(target, drafters(heads, args.budget), text, len(many[0]))
            for text in texts]
        letters = [dataset.tokenizer.decode([token]) for token in texts[0]]
        plots.save(draw_further(letters, known[0]),
                   args.out / f"further_T{sampler.temperature:g}.png")
    print(f"\nevery router on the same {args.replayed} texts\n")
    print_routers(columns)
    print(f"\nfigures: {args.out}")


if __name__ == "__main__":
    cli.run(main)
