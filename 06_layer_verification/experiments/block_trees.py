"""Independent chains from the small GPT and from chapter 05's block drafter, judged by LV + K-SEQ.

    python 06_layer_verification/experiments/block_trees.py

The small GPT drafts one token after the other, so its four levels cost four forwards. The block
drafter knows less of its own tokens, a table of transitions, but runs one pass whatever the tree.
Children are drawn independently here, as layer verification wants them; chapter 05 judges its
chains and its trees without replacement by the p/q rule and multi-round rejection.
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[2]))  # so that a plain clone runs, too

from functools import partial

from nanogpt import cli
from conditional_marginals import BlockLevels  # chapter 05
from experiments.rule_table import PLAIN, judged, plain
from iid_trees import SHAPES, shape_parents
from layer_verification import LayerVerification
from nanogpt.account import print_results, print_setting, why_not_faster
from nanogpt.contest import compare, speedup
from nanogpt.data import held_out_prompts
from nanogpt.packing import for_decoding
from nanogpt.sampling import Sampler
from nanogpt.train import get_gpt
from single_step_rules import KSEQ
from train_drafter import get_target_and_drafter  # chapter 05
from tree_attention import TreeGPT  # chapter 02

CHAINS = {1: 4, 2: 4, 4: 4}  # how many chains -> how deep; 1 + 4, 8 and 16 rows


def methods(target, drafters, sampler):
    """{name: start(prompt, seed)}: plain decoding; every drafter with every number of chains.

    drafters: {name: make() -> a model with `level`}, one for each method, for they take turns.
    """
    starts, rule = {PLAIN: partial(plain, target, sampler)}, LayerVerification(KSEQ)
    for name, make in drafters.items():
        for chains, depth in CHAINS.items():
            parents = shape_parents(SHAPES["multi-chain"], chains, depth)
            starts[f"{name}, {chains} x {depth}"] = partial(
                judged, target, make(), rule, parents, sampler, sampler)
    return starts


def main(argv=None):
    p = cli.parser(__doc__.splitlines()[0])
    cli.decoding_flags(p, Path(__file__).resolve().parents[1] / "figures")
    cli.sampler_flags(p, temperature=1.0)
    args = p.parse_args(argv)
    # As in this chapter's tables: both sides draw from the 20 most probable tokens at most.
    sampler = Sampler(args.temperature, args.top_k or 20, args.top_p)
    dataset, device = cli.setup(args)
    cli.check_decoding(args, dataset)
    target, block = get_target_and_drafter(args, dataset, device)
    small = for_decoding(get_gpt("draft", dataset, device, args.retrain), args.precision)
    drafters = {"57K GPT": partial(TreeGPT, small), "block drafter": partial(BlockLevels, block)}
    results = compare(methods(target, drafters, sampler), held_out_prompts(dataset, args.prompts),
                      args.max_new_tokens)
    print_setting(args, target, f"; chains from the root, drawn independently, LV + K-SEQ; "
                  f"temperature {sampler.temperature:g}, top-k {sampler.top_k}")
    print_results(results, PLAIN, greedy=False)
    rivals = [name for name in results if name != PLAIN]
    best = max(rivals, key=lambda name: speedup(results[name], results[PLAIN]))
    print("\n" + why_not_faster(best, results, PLAIN))


if __name__ == "__main__":
    cli.run(main)
