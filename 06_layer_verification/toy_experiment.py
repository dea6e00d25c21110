"""The paper's toy experiment: how many tokens does each rule accept, on average?

    python 06_layer_verification/toy_experiment.py                     # Table 1 and all sweeps
    python 06_layer_verification/toy_experiment.py --sweep             # Table 1 alone
    python 06_layer_verification/toy_experiment.py --depth 5 --similarity 0.25 --sweep

Draft and target are random: for every prefix, logits rho u + (1 - rho) eps with a shared normal u
and an eps of its own for each of the two, then softmax at a temperature. One seed is one such pair
of models. From each pair trees are drawn, and every rule judges the same trees.

No coin is flipped over a tree: its accepted tokens are depth times P[the path ends there], or for
TV and LV the sum of the inclusion scores, which has the same mean over drawn trees and varies
less. The paper runs 10^6 trials a seed instead. What remains is the spread over the models, which
is what its standard errors over 20 seeds measure, and a small one over the trees.

Source: "Layer Verification ..." (2026), Section 5.1, Table 1, Appendix G.
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))  # so that a plain clone runs, too

import csv
import time
from dataclasses import asdict, dataclass, fields, replace

import numpy as np
import torch
from tqdm import tqdm

from nanogpt import cli
from all_rules import RULES, STEPS, rules_for
from iid_trees import SHAPES, shape_of, shape_parents
from nanogpt.cli import print_table
from nanogpt.pictures import plots
from nanogpt.sampling import Dice

LARGEST_MODEL = 20_000_000  # logits of one model
# What Appendix G varies, one at a time.
SWEEPS = {
    "depth": (2, 3, 4, 5),
    "branching": (1, 2, 3),
    "temperature": (0.5, 0.75, 1.0, 1.5),
    "similarity": (0.0, 0.25, 0.5),
}


@dataclass(frozen=True)
class Setting:
    """One row of the paper's ablations; the defaults are those of Table 1."""

    vocab: int = 15
    depth: int = 4
    branching: int = 2
    similarity: float = 0.5
    draft_temperature: float = 1.0
    target_temperature: float = 1.0

    def __post_init__(self):
        for name in ("vocab", "depth", "branching"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        for name in ("draft_temperature", "target_temperature"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ValueError(f"{name} is {getattr(self, name)}; it must be above 0")
        if not 0 <= self.similarity <= 1:
            raise ValueError(f"similarity is {self.similarity}; it must be in [0, 1]")
        if self.vocab ** self.depth > LARGEST_MODEL:
            raise ValueError(
                f"vocab {self.vocab} and depth {self.depth} make {self.vocab ** self.depth} "
                f"logits a model; at most {LARGEST_MODEL} are allowed"
            )

    def at(self, sweep, value):
        """This setting with one value of a sweep."""
        if sweep == "temperature":  # of both models
            return replace(self, draft_temperature=value, target_temperature=value)
        return replace(self, **{sweep: value})


# ---------------------------------------------------------------- a pair of random models


class ManyDice(Dice):
    """The Dice for a whole layer of many trees."""

    def draw_rows(self, probs, k):
        """probs (n, V) -> (n, k): k independent draws from every row."""
        sums = probs.cumsum(-1)[:, None]  # (n, 1, V)
        places = self.generator.random((len(probs), k, 1)) * sums[:, :, -1:]  # (n, k, 1)
        return (places >= sums).sum(-1)  # the first token whose sum is beyond the place


class ToyPair:
    """A random draft and target model: for each depth t, tables of (V^t, V) probabilities."""

    def __init__(self, setting, seed):
        generator = torch.Generator().manual_seed(seed)
        rho, self.vocab = setting.similarity, setting.vocab
        self.draft, self.target = [], []
        for t in range(setting.depth):
            # In the same order whatever the setting: neighbouring points of a sweep then differ by
            # the setting alone.
            shared, own_draft, own_target = torch.randn(
                setting.vocab ** t, 3, setting.vocab, generator=generator, dtype=torch.float64
            ).unbind(1)  # (V^t, V) each
            for tables, own, temperature in (
                (self.draft, own_draft, setting.draft_temperature),
                (self.target, own_target, setting.target_temperature),
            ):
                logits = rho * shared + (1 - rho) * own
                tables.append(torch.softmax(logits / temperature, -1).numpy())

    def draw_trees(self, shape, B, dice):
        """B trees of one shape -> tokens (B, N), draft_probs, target_probs (B, N, V), as rules
        judge them. The rows of the deepest layer stay 0: no expectation depends on them."""
        N = len(shape.parents)
        # prefix: the number, in base V, that the path to a node spells; its row in the tables.
        tokens, prefix = np.zeros((2, B, N), dtype=np.int64)
        draft_probs, target_probs = np.zeros((2, B, N, self.vocab))
        for t, layer in enumerate(shape.layers[:-1]):
            for parents, kids in layer.families:
                n, k = kids.shape
                here = prefix[:, parents]  # (B, n), rows of this depth's tables
                draft_probs[:, parents] = self.draft[t][here]
                target_probs[:, parents] = self.target[t][here]
                drawn = dice.draw_rows(draft_probs[:, parents].reshape(B * n, -1), k)
                tokens[:, kids] = drawn.reshape(B, n, k)
                prefix[:, kids] = here[:, :, None] * self.vocab + tokens[:, kids]
        return tokens, draft_probs, target_probs


# ---------------------------------------------------------------- mean lengths


def mean_lengths(setting, shape_name, seed, trees):
    """{rule: accepted tokens, expected over the coins and averaged over the trees of one seed}."""
    shape = shape_of(tuple(shape_parents(SHAPES[shape_name], setting.branching, setting.depth)))
    batch = (shape, *ToyPair(setting, seed).draw_trees(shape, trees, ManyDice(seed)))
    return {name: float(rule.expected_length(*batch).mean())
            for name, rule in rules_for(shape_name, setting.branching).items()}


def run_setting(setting, shape_names, seeds, trees, progress):
    """-> {(shape, rule): (mean over the seeds, its standard error)}."""
    results = {}
    for shape_name in shape_names:
        by_seed = []
        # The models differ more than their trees do, so the error is that of a mean over seeds.
        for seed in seeds:
            by_seed.append(mean_lengths(setting, shape_name, seed, trees))
            progress.update()
        for name in by_seed[0]:
            values = np.array([lengths[name] for lengths in by_seed])
            error = values.std(ddof=1) / len(values) ** 0.5 if len(values) > 1 else float("nan")
            results[shape_name, name] = (values.mean(), error)
    return results


def run_all(args, base, points):
    """Every setting of the sweeps {sweep: {value: Setting}}, each once -> {Setting: results}."""
    settings = dict.fromkeys([base, *(s for p in points.values() for s in p.values())])
    with tqdm(total=len(settings) * len(args.shapes) * len(args.all_seeds), unit="model") as bar:
        for setting in settings:  # the base belongs to every sweep, and is run once
            bar.set_description(f"H={setting.depth} b={setting.branching}")
            trees = args.trees if setting == base else args.sweep_trees
            settings[setting] = run_setting(setting, args.shapes, args.all_seeds, trees, bar)
    return settings


# ---------------------------------------------------------------- the report

# Table 1: accepted length and its standard error, multi-chain, tapered, complete.
PAPER = {
    "TV + K-SEQ": ((2.26, 0.04), (2.50, 0.04), (2.66, 0.04)),
    "LV + K-SEQ": ((2.51, 0.03), (2.73, 0.04), (2.88, 0.04)),
    "TV + RRS": ((2.18, 0.04), (2.42, 0.04), (2.47, 0.04)),
    "LV + RRS": ((2.41, 0.03), (2.61, 0.04), (2.65, 0.04)),
    "TV + GR": ((2.44, 0.04), (2.70, 0.05), (3.18, 0.05)),
    "LV + GR": ((2.66, 0.03), (2.88, 0.04), (3.28, 0.05)),
    "TRV": ((2.45, 0.03), (2.67, 0.04), (2.71, 0.04)),
    "GBV": ((2.60, 0.03), None, None),
}
COLORS = dict(zip([*STEPS, "TRV", "GBV", "BV"], plots.SERIES, strict=False))


def print_lengths(results, shape_names, with_paper):
    """One row a rule; with the paper's figures beside ours where they are known.

    results: {(shape, rule): (mean, standard error)}.
    """
    header, rows = ["method"], []
    for shape_name in shape_names:
        header += [shape_name] + (["paper", "diff/SE"] if with_paper else [])
    for name in RULES:
        row = [name]
        for shape_name in shape_names:
            row += cells(results.get((shape_name, name)), shape_name, name, with_paper)
        if set(row[1:]) != {"-"}:
            rows.append(row)
    print_table(header, rows)


def cells(result, shape_name, name, with_paper):
    """The table's cells of one result (mean, standard error), or of none: ours, paper, diff/SE."""
    if result is None:
        return ["-"] * (3 if with_paper else 1)
    mean, error = result
    ours = [f"{mean:.3f} ({error:.3f})"]
    if not with_paper:
        return ours
    paper = PAPER.get(name, (None,) * 3)[list(SHAPES).index(shape_name)]
    if paper is None:
        return [*ours, "-", "-"]
    return [*ours, f"{paper[0]:.2f} ({paper[1]:.2f})", f"{(mean - paper[0]) / paper[1]:+.2f}"]


def print_sweep(sweep, points, base, shape_names, folder):
    """A table for every point but the base, and one figure over all. points: {value: results}."""
    for value, results in points.items():
        if results is not base:
            print(f"\n{sweep} {value}")
            print_lengths(results, shape_names, with_paper=False)
    print(f"figure: {draw_sweep(sweep, points, shape_names, folder / f'toy_{sweep}.png')}")


def draw_sweep(sweep, points, shape_names, path):
    """points: {value: results} -> a figure with one panel a shape, LV solid and TV dashed."""
    axes = plots.new_axes(4.2 * len(shape_names) + 1.4, 3.8, len(shape_names))
    axes = axes if len(shape_names) > 1 else [axes]
    for ax, shape_name in zip(axes, shape_names, strict=True):
        for name in RULES:
            known = [(v, r[shape_name, name]) for v, r in points.items() if (shape_name, name) in r]
            if not known:
                continue
            values, results = zip(*known, strict=True)
            lift, _, step = name.rpartition(" + ")
            ax.errorbar(values, [m for m, _ in results], [e for _, e in results], label=name,
                        color=COLORS[step], marker="o", markersize=4,
                        linestyle="--" if lift == "TV" else "-" if lift else ":")
        ax.set_xticks(list(points))
        plots.plain_frame(ax, shape_name, sweep, "accepted tokens")
    axes[0].figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right center")
    return plots.save(axes[0], path)


def save_numbers(tables, path):
    """Every number as CSV: the setting, the shape, the rule, mean, standard error.

    tables: {Setting: results}.
    """
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*asdict(next(iter(tables))), "shape", "method", "accepted",
                         "standard_error"])
        for setting, results in tables.items():
            for (shape_name, name), (mean, error) in results.items():
                writer.writerow([*asdict(setting).values(), shape_name, name, f"{mean:.6f}",
                                 f"{error:.6f}"])
    return path


# ---------------------------------------------------------------- the script


def read_flags(argv):
    """-> args, with all seeds as a range. Raises ValueError for a bad value or folder."""
    p = cli.Parser("The toy experiment of layer verification: expected accepted tokens per rule.")
    base = Setting()
    p.add_argument("--vocab", type=int, default=base.vocab, help="vocabulary size")
    p.add_argument("--depth", type=int, default=base.depth, help="depth H of the trees")
    p.add_argument("--branching", type=int, default=base.branching, help="branching budget b")
    p.add_argument("--similarity", type=float, default=base.similarity,
                   help="rho: the shared part of the logits, 0 (unrelated models) to 1 (equal)")
    for model in ("draft", "target"):
        p.add_argument(f"--{model}-temperature", type=float, help="of its distributions",
                       default=getattr(base, f"{model}_temperature"))
    p.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES), help="of the trees")
    p.add_argument("--seeds", type=int, default=20, help="number of model pairs")
    p.add_argument("--first-seed", type=int, default=1, help="of the first pair")
    p.add_argument("--trees", type=int, default=1000, help="trees drawn from each model pair")
    p.add_argument("--sweep-trees", type=int, default=200, help="the same in the sweeps")
    p.add_argument("--sweep", nargs="*", choices=SWEEPS, default=list(SWEEPS),
                   help="what to vary around the setting above; no name: nothing")
    p.add_argument("--out", type=Path, default=Path(__file__).resolve().parent / "figures",
                   help="folder of figures and CSV")
    args = p.parse_args(argv)
    for name in ("seeds", "trees", "sweep_trees"):
        if getattr(args, name) < 1:
            raise ValueError(f"{name} is {getattr(args, name)}; it must be at least 1")
    if args.first_seed < 0:
        raise ValueError(f"first_seed is {args.first_seed}; it must be at least 0")
    args.all_seeds = range(args.first_seed, args.first_seed + args.seeds)
    cli.make_folder(args.out)
    return args


def main(argv=None):
    args = read_flags(argv)
    base = Setting(**{field.name: getattr(args, field.name) for field in fields(Setting)})
    points = {sweep: {value: base.at(sweep, value) for value in SWEEPS[sweep]}
              for sweep in args.sweep}
    start = time.perf_counter()
    tables = run_all(args, base, points)

    print(f"\nAccepted tokens per tree (standard error over {args.seeds} model pairs), {base}")
    print_lengths(tables[base], args.shapes, with_paper=base == Setting())
    for sweep, by_value in points.items():
        results = {value: tables[setting] for value, setting in by_value.items()}
        print_sweep(sweep, results, tables[base], args.shapes, args.out)
    print(f"numbers: {save_numbers(tables, args.out / 'toy_experiment.csv')}; "
          f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    cli.run(main)
