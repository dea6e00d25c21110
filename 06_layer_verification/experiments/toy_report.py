"""What the toy experiment prints and saves: the paper's table beside ours, figures, numbers."""

import csv
from dataclasses import asdict

from experiments.all_rules import RULES, STEPS
from iid_trees import SHAPES
from nanogpt.pictures import plots
from nanogpt.printing import print_table

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
