"""Table 1 of the DDTree paper in one number: what a round costs, in plain steps.

    python 05_ddtree/experiments/paper_in_one_number.py    # -> 05_ddtree/figures/paper.png

A round emits tau tokens and costs r plain steps, so speed-up = tau / r. If r is the same for every
dataset and every tree, then all rows of a model lie on one line through the origin, and tau alone
decides. The paper gives tau and speed-up of 60 settings, each for DFlash's chain and for DDTree:
this script fits r for each model and says how far each row is from its line.

Source: Ringel, Romano, "Accelerating Speculative Decoding with Block Diffusion Draft Trees"
(arXiv 2604.12989), Table 1 (8 H200 GPUs; DDTree with the best of seven budgets in each row).
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[2]))  # so that a plain clone runs, too

import csv
from dataclasses import dataclass

from nanogpt import cli
from nanogpt.contest import speedup, summarize
from nanogpt.pictures import plots
from nanogpt.printing import print_table

TABLE = Path(__file__).with_name("paper_table1.csv")
CHATS = ("MT-Bench", "Alpaca")  # conversations; most rows below their lines are theirs


@dataclass(frozen=True)
class Row:
    """One entry of Table 1."""

    temperature: float
    dataset: str
    model: str
    method: str
    speedup: float
    tau: float


def paper_rows():
    """The 120 entries of Table 1: 60 settings, each with DFlash and with DDTree."""
    with open(TABLE, newline="", encoding="utf-8") as file:
        return [Row(float(r["temperature"]), r["dataset"], r["model"], r["method"],
                    float(r["speedup"]), float(r["tau"])) for r in csv.DictReader(file)]


def price_of_a_round(rows):
    """r, in plain steps: the least-squares fit of speed-up = tau / r through the origin."""
    return sum(row.tau ** 2 for row in rows) / sum(row.tau * row.speedup for row in rows)


def residuals(rows, price):
    """How far each row's speed-up is from tau / price, as a share of it."""
    return [row.speedup * price / row.tau - 1 for row in rows]


def by_model_and_method(rows):
    """{(model, method): its rows}, in the order of the table."""
    groups = {}
    for row in rows:
        groups.setdefault((row.model, row.method), []).append(row)
    return groups


def print_prices(rows):
    """One line per model and method: r, and how far its rows are from the line."""
    lines = []
    for (model, method), group in by_model_and_method(rows).items():
        price = price_of_a_round(group)
        off = residuals(group, price)
        rms = (sum(x * x for x in off) / len(off)) ** 0.5
        worst = max(range(len(off)), key=lambda i: abs(off[i]))
        lines.append([model, method, f"{price:.2f}", f"{rms:.1%}",
                      f"{off[worst]:+.0%} {group[worst].dataset}, T={group[worst].temperature:g}"])
    print_table(["model", "method", "a round, plain steps", "rms residual", "largest"], lines)


def own_points(results, plain, names):
    """What our own rows say -> {name: (tau, speed-up)}. results: of contest.compare."""
    return {name: (summarize(results[name])["tau"], speedup(results[name], results[plain]))
            for name in names}


def draw_paper(rows, ours=None, ax=None):
    """Speed-up against tau: the paper's DDTree rows, a line per model, and our own points.

    The rows of the two sets of conversations are hollow.
    ours: {name: (tau, speed-up)}, see own_points.
    """
    ax = ax or plots.new_axes(7.4, 4.6)
    trees = {model: group for (model, method), group in by_model_and_method(rows).items()
             if method == "DDTree"}
    for i, (model, group) in enumerate(trees.items()):
        price, color = price_of_a_round(group), plots.SERIES[2 + i]
        for chats in (False, True):
            part = [r for r in group if (r.dataset in CHATS) == chats]
            ax.scatter([r.tau for r in part], [r.speedup for r in part], s=20 if chats else 16,
                       edgecolor=color, facecolor="white" if chats else color, zorder=2.5,
                       label=None if chats else f"{model}: a round costs {price:.2f} steps")
        ax.plot([0, 11], [0, 11 / price], color=color,
                linewidth=1 if i else 3, alpha=1 if i else 0.5)  # the second may hide the first
    ax.plot([0, 8], [0, 8], color=plots.GREY, linestyle="--", linewidth=1)
    ax.text(7.9, 8.1, "a round costs 1", fontsize=8, color=plots.FAINT, ha="right")
    ax.text(6.8, 3.3, f"hollow dots: {', '.join(CHATS)}", fontsize=8, color=plots.FAINT)
    for i, (name, (tau, fast)) in enumerate((ours or {}).items()):
        ax.scatter(tau, fast, s=60, marker="*", edgecolor=plots.INK, zorder=3,
                   facecolor="white" if i % 2 else plots.INK,
                   label=f"{name}: a round costs {tau / fast:.2f} steps")
    ax.set_xlim(0, 11.2)
    ax.set_ylim(0, 9)
    ax.legend(frameon=False, fontsize=8, loc="lower right")
    return plots.plain_frame(ax, None, "tau, tokens per round", "speed-up over plain decoding")


def main(argv=None):
    p = cli.Parser(__doc__.splitlines()[0])
    p.add_argument("--out", type=Path, default=Path(__file__).resolve().parents[1] / "figures",
                   help="folder for paper.png")
    args = p.parse_args(argv)
    cli.make_folder(args.out)
    rows = paper_rows()
    print_prices(rows)
    print(plots.save(draw_paper(rows), args.out / "paper.png"))


if __name__ == "__main__":
    cli.run(main)
