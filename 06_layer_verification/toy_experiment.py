"""The paper's toy experiment: how many tokens does each rule accept, on average?

    python 06_layer_verification/toy_experiment.py                               # Table 1
    python 06_layer_verification/toy_experiment.py --depth 5 --similarity 0.25   # Appendix G

Draft and target are random: for every prefix, logits rho u + (1 - rho) eps with a shared normal u
and an eps of its own for each of the two, then softmax at a temperature. One seed is one such pair
of models. From each pair trees are drawn, and every rule judges the same trees.

No coin is flipped over a tree: its accepted tokens are depth times P[the path ends there], or for
TV and LV the sum of the scores a_v, which has the same mean over drawn trees and varies
less. The paper runs 10^6 trials a seed instead. What remains is the spread over the models, which
is what its standard errors over 20 seeds measure, and a small one over the trees.

Source: "Layer Verification ..." (2026), Section 5.1, Table 1, Appendix G.
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))  # so that a plain clone runs, too

from dataclasses import dataclass, fields

import numpy as np
import torch

from nanogpt import cli
from block_rules import BlockVerification, GreedyBlockVerification, TraversalVerification
from global_resolution import GR
from iid_trees import SHAPES, shape_of, shape_parents
from layer_verification import LayerVerification, TokenVerification
from nanogpt.cli import print_table
from single_step_rules import KSEQ, RRS

LARGEST_MODEL = 20_000_000  # logits of one model

# ---------------------------------------------------------------- the rules that are compared

STEPS = {"K-SEQ": KSEQ, "RRS": RRS, "GR": GR}
RULES = {f"{lift} + {name}": lifted(step) for name, step in STEPS.items()
         for lift, lifted in (("TV", TokenVerification), ("LV", LayerVerification))}
RULES |= {"TRV": TraversalVerification(), "GBV": GreedyBlockVerification(),
          "BV": BlockVerification()}


def rules_for(shape_name, branching):
    """{name: rule}, those that can judge such trees: GBV wants chains that part at the root, BV
    one chain."""
    fits = {"BV": branching == 1, "GBV": branching == 1 or shape_name == "multi-chain"}
    return {name: rule for name, rule in RULES.items() if fits.get(name, True)}


# ---------------------------------------------------------------- a pair of random models


@dataclass(frozen=True)
class Setting:
    """One row of the paper's ablations; the defaults are those of Table 1.

    depth, branching: of the trees; similarity: rho, the shared part of the logits.
    """

    vocab: int = 15
    depth: int = 4
    branching: int = 2
    similarity: float = 0.5
    draft_temperature: float = 1.0
    target_temperature: float = 1.0

    def __post_init__(self):
        for name in ("vocab", "draft_temperature", "target_temperature"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ValueError(f"{name} is {getattr(self, name)}; it must be above 0")
        if not 0 <= self.similarity <= 1:
            raise ValueError(f"similarity is {self.similarity}; it must be in [0, 1]")
        if (logits := self.vocab ** self.depth) > LARGEST_MODEL:
            raise ValueError(f"vocab {self.vocab} and depth {self.depth} make {logits} logits a "
                             f"model; at most {LARGEST_MODEL} are allowed")


class ToyPair:
    """A random draft and target model: for each depth t, tables of (V^t, V) probabilities."""

    def __init__(self, setting, seed):
        generator = torch.Generator().manual_seed(seed)
        rho, V = setting.similarity, setting.vocab
        self.vocab, self.draft, self.target = V, [], []
        for t in range(setting.depth):
            # In the same order whatever the setting: neighbouring points of a sweep then differ by
            # the setting alone.
            shared, *own = torch.randn(V ** t, 3, V, generator=generator,
                                       dtype=torch.float64).unbind(1)  # (V^t, V) each
            cold = (setting.draft_temperature, setting.target_temperature)
            for tables, noise, T in zip((self.draft, self.target), own, cold, strict=True):
                logits = rho * shared + (1 - rho) * noise
                tables.append(torch.softmax(logits / T, -1).numpy())

    def draw_trees(self, shape, B, seed):
        """B trees of one shape -> tokens (B, N), draft_probs, target_probs (B, N, V), as rules
        judge them. The rows of the deepest layer stay 0: no expectation depends on them."""
        N, generator = len(shape.parents), np.random.default_rng(seed)
        # prefix: the number, in base V, that the path to a node spells; its row in the tables.
        tokens, prefix = np.zeros((2, B, N), dtype=np.int64)
        draft_probs, target_probs = np.zeros((2, B, N, self.vocab))
        for t, layer in enumerate(shape.layers[:-1]):
            for parents, kids in layer.families:
                here = prefix[:, parents]  # (B, n), rows of this depth's tables
                draft_probs[:, parents] = self.draft[t][here]
                target_probs[:, parents] = self.target[t][here]
                sums = draft_probs[:, parents].cumsum(-1)[:, :, None]  # (B, n, 1, V)
                shares = generator.random((B, *kids.shape, 1)) * sums[..., -1:]  # (B, n, k, 1)
                tokens[:, kids] = (shares >= sums).sum(-1)  # the first whose sum is beyond
                prefix[:, kids] = here[:, :, None] * self.vocab + tokens[:, kids]
        return tokens, draft_probs, target_probs


# ---------------------------------------------------------------- mean lengths


def lengths(setting, shape_name, seeds, trees):
    """{rule: accepted tokens on that many trees of each pair of models (len(seeds),)}, expected
    over the coins."""
    shape = shape_of(tuple(shape_parents(SHAPES[shape_name], setting.branching, setting.depth)))
    rules = rules_for(shape_name, setting.branching)
    found = {name: [] for name in rules}
    for seed in seeds:
        batch = (shape, *ToyPair(setting, seed).draw_trees(shape, trees, seed))
        for name, rule in rules.items():
            found[name].append(float(rule.expected_length(*batch).mean()))
    return {name: np.array(values) for name, values in found.items()}


# ---------------------------------------------------------------- the report


def print_lengths(results):
    """One row a rule, with the standard error over the models, which differ more than their trees.

    results: {shape: what `lengths` gives}.
    """
    rows = []
    for name in RULES:
        row = ["-" if name not in found else f"{found[name].mean():.3f} "
               f"({found[name].std(ddof=1) / len(found[name]) ** 0.5:.3f})"
               for found in results.values()]
        if set(row) != {"-"}:
            rows.append([name, *row])
    print_table(["method", *results], rows)


def main(argv=None):
    p = cli.Parser("The toy experiment of layer verification: expected accepted tokens per rule.")
    for field in fields(Setting):
        p.add_argument(f"--{field.name.replace('_', '-')}", type=field.type, default=field.default,
                       help="see the class Setting")
    p.add_argument("--seeds", type=int, default=20, help="number of model pairs")
    p.add_argument("--trees", type=int, default=1000, help="trees drawn from each model pair")
    args = p.parse_args(argv)
    if args.seeds < 2 or args.trees < 1:
        raise ValueError(f"seeds is {args.seeds} and trees is {args.trees}; there must be at least "
                         "2 seeds, for the error, and 1 tree")
    setting = Setting(**{field.name: getattr(args, field.name) for field in fields(Setting)})
    seeds = range(1, args.seeds + 1)
    print(f"Accepted tokens per tree (standard error over {args.seeds} model pairs), {setting}")
    print_lengths({shape: lengths(setting, shape, seeds, args.trees) for shape in SHAPES})


if __name__ == "__main__":
    cli.run(main)
