"""Which shape of sampled draft is best for how many rows? And where does drawing beat the heap?

    python 05_ddtree/experiments/sampled_shapes.py

First table: chains and trees drawn from one pass of the block drafter at temperature 1, under 8 and
under 16 rows, with tau and speed-up measured. Second table and figure: the best of them beside
DDTree while the temperature rises from 0 to 1.2. At low temperatures the most probable tree wins,
because the target nearly always takes one of the few most probable continuations. At high ones the
sampled draft wins: its tokens come about as often as the target draws them, and the p/q rule uses
that.
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[2]))  # so that a plain clone runs, too

from functools import partial

from nanogpt import cli
from experiments.ddtree_table import PLAIN, conditional, conditional_name, plain, sampled
from nanogpt.account import print_results, print_setting
from nanogpt.contest import compare, speedup, summarize
from nanogpt.data import held_out_prompts
from nanogpt.pictures import plots
from nanogpt.printing import print_table
from nanogpt.sampling import Sampler
from train_drafter import get_target_and_drafter

# branching -> 1 + its drafts are the rows that the target reads
SHAPES = {8: [(1, 1, 1), (1, 1, 1, 1), (1, 1, 1, 1, 1), (2, 1, 1), (3, 1)],
          16: [(2, 1, 1, 1), (2, 2, 1), (2, 2, 1, 1), (3, 1, 1, 1), (3, 2), (4, 1, 1)]}
TEMPERATURES = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2]
BUDGET = 15
CHAIN, TREE = (1, 1, 1), (2, 1, 1)


def shape_name(branching):
    """(2, 2, 1) -> 'sampled 2-2-1'."""
    return "sampled " + "-".join(map(str, branching))


def print_shapes(target, block, prompts, max_new_tokens):
    """Every shape at temperature 1, plain decoding and DDTree beside them."""
    sampler = Sampler(1.0)
    starts = {PLAIN: partial(plain, target, sampler),
              conditional_name(7): partial(conditional, target, block, 7, sampler)}
    for branching in dict.fromkeys(shape for shapes in SHAPES.values() for shape in shapes):
        starts[shape_name(branching)] = partial(sampled, target, block, branching, sampler)
    print_results(compare(starts, prompts, max_new_tokens, 16), PLAIN, greedy=False)


def sweep(target, block, prompts, max_new_tokens):
    """{temperature: {method: (tau, speed-up)}}: the heap against drawing, at each temperature."""
    found = {}
    for temperature in TEMPERATURES:
        sampler = Sampler(temperature)
        starts = {PLAIN: partial(plain, target, sampler),
                  conditional_name(7): partial(conditional, target, block, 7, sampler),
                  conditional_name(BUDGET): partial(conditional, target, block, BUDGET, sampler),
                  shape_name(CHAIN): partial(sampled, target, block, CHAIN, sampler),
                  shape_name(TREE): partial(sampled, target, block, TREE, sampler)}
        results = compare(starts, prompts, max_new_tokens, 16)
        found[temperature] = {
            name: (summarize(run)["tau"], speedup(run, results[PLAIN]))
            for name, run in results.items() if name != PLAIN}
    return found


def print_sweep(found):
    """A line a temperature: tau and speed-up of each method."""
    names = list(next(iter(found.values())))
    print_table(["temperature", *names], [
        [f"{temperature:g}", *(f"{tau:.2f}, {fast:.2f}x" for tau, fast in row.values())]
        for temperature, row in found.items()])


def draw_temperatures(found, axes=None):
    """tau and speed-up over the temperature, a line per method. found: see sweep."""
    names = list(next(iter(found.values())))
    curves = {name: (list(found), [row[name][0] for row in found.values()],
                     [row[name][1] for row in found.values()]) for name in names}
    return plots.draw_sweep(curves, "temperature", axes)


def main(argv=None):
    p = cli.parser(__doc__.splitlines()[0])
    cli.decoding_flags(p, Path(__file__).resolve().parents[1] / "figures")
    args = p.parse_args(argv)
    dataset, device = cli.setup(args)
    cli.check_decoding(args, dataset)
    target, block = get_target_and_drafter(args, dataset, device)
    prompts = held_out_prompts(dataset, args.prompts)
    print_setting(args, target)
    print_shapes(target, block, prompts, args.max_new_tokens)
    found = sweep(target, block, prompts, args.max_new_tokens)
    print()
    print_sweep(found)
    print(plots.save(draw_temperatures(found)[0], args.out / "temperature.png"))


if __name__ == "__main__":
    cli.run(main)
