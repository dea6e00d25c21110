"""What a rule costs: microseconds per tree, beside one target forward over the same tree.

Printed by `python 06_layer_verification/toy_experiment.py --cost`. Full binary trees of depth 4
(31 nodes) and, for the rules of chains, a chain of 30. The weights of the target do not matter for
its time, so nothing is trained.
"""

import statistics
import time

import torch

from block_rules import BlockVerification, GreedyBlockVerification, TraversalVerification
from global_resolution import GR, CappedGR
from iid_trees import complete, sample_tree, shape_parents
from layer_verification import LayerVerification, TokenVerification
from nanogpt.clock import cost_curve
from nanogpt.device import device_name, pick_device
from nanogpt.model import GPT
from nanogpt.packing import for_decoding, precision_of
from nanogpt.printing import print_table
from nanogpt.sampling import Dice, Sampler
from nanogpt.sizes import SIZES
from single_step_rules import KSEQ, RRS, SpS

ON_TREES = {f"{lift} + {name}": lifted(step)
            for name, step in (("K-SEQ", KSEQ), ("RRS", RRS), ("CappedGR", CappedGR), ("GR", GR))
            for lift, lifted in (("TV", TokenVerification), ("LV", LayerVerification))}
ON_TREES["TRV"] = TraversalVerification()
ON_CHAINS = {"TV + SpS": TokenVerification(SpS), "LV + SpS": LayerVerification(SpS),
             "BV": BlockVerification(), "GBV": GreedyBlockVerification()}
DRAFTS = {"V = 65": (65, None), "V = 65, top-20": (65, 20), "V = 1000, top-20": (1000, 20)}


def random_trees(V, top_k, branching, depth, count):
    """Trees with target_probs (N, V), from models about as far apart as a small and a large GPT."""
    generator, dice = torch.Generator().manual_seed(1), Dice(1)
    parents, trees = shape_parents(complete, branching, depth), []
    for _ in range(count):
        logits = 2.5 * torch.randn(len(parents), V, generator=generator)
        drafted = logits + 0.7 * torch.randn(len(parents), V, generator=generator)
        rows = iter(Sampler(1, top_k=top_k)(drafted))
        tree = sample_tree(0, parents, lambda tokens, _, rows=rows: [next(rows) for _ in tokens],
                           dice)
        trees.append((tree, Sampler(1)(logits)))
    return trees


def microseconds(rule, trees):
    """Median time of a call, in microseconds, after one warm-up call per tree."""
    laps = []
    for turn in range(3):
        for tree, target_probs in trees:
            start = time.perf_counter()
            rule(tree, target_probs, Dice(0))
            laps += [time.perf_counter() - start] if turn else []
    return 1e6 * statistics.median(laps)


def print_costs(count=20, size="baby", device="auto"):
    """Time every rule on `count` trees of each kind, and a target of SIZES[size] on the device."""
    columns = []
    for V, top_k in DRAFTS.values():
        cells = {}
        for rules, branching, depth in ((ON_TREES, 2, 4), (ON_CHAINS, 1, 30)):
            trees = random_trees(V, top_k, branching, depth, count)
            cells |= {name: microseconds(rule, trees) for name, rule in rules.items()}
        columns.append(cells)
    device = pick_device(device)
    target = for_decoding(GPT(SIZES[size].config(65)).to(device))
    forward = 1e3 * cost_curve(target, rows=(31,))[31]
    print(f"microseconds per tree of 31 nodes ({', '.join(ON_CHAINS)}: a chain), median of "
          f"{2 * count} calls; rules run on the CPU")
    print_table(["rule", *DRAFTS], [[name, *(f"{cells[name]:.0f}" for cells in columns)]
                                    for name in columns[0]])
    print(f"\none forward of 31 nodes, '{size}' target, {precision_of(target)}, "
          f"{device_name(device)}: {forward:.0f} us; a quarter of it: {forward / 4:.0f} us")
