"""Chapter 05 on the runner: its decoders, and what is measured beside the main table.

    python 05_ddtree/bench.py shapes          # chains and trees drawn from a pass: which is best?
    python 05_ddtree/bench.py temperatures    # the heap against drawing, from 0 to 1.2
    python 05_ddtree/bench.py prices          # fixed budgets against the price, on four machines
    python 05_ddtree/bench.py paper           # Table 1 of the paper in one number
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))  # so that a plain clone runs, too

import csv
from dataclasses import dataclass

import torch

from nanogpt import cli
from chain_specdec import GPTDraft, speculate_chain  # chapter 01
from conditional_marginals import (
    BlockLevels,
    ConditionalTreeDrafter,
    decode_conditional,
    decode_sampled,
)
from ddtree import BlockChainDrafter, DDTreeDrafter, decode_ddtree
from nanogpt.bench import PLAIN, TURN, compare, cost_curve, median_ms, plain, speedup, summarize
from nanogpt.cli import print_table
from nanogpt.data import choosing_prompts, held_out_prompts
from nanogpt.decoding import collect
from nanogpt.sampling import Dice, Sampler
from priced_trees import decode_priced, decode_priced_chain, prices
from train_drafter import get_target_and_drafter
from tree_attention import TreeDrafter, speculate  # chapter 02

CHAIN, DRAWN = "block chain, argmax", "drawn chain of 3, p/q"
GPT_CHAIN = "57K GPT chain, K=4"  # of chapter 01
PRICED, PRICED_CHAIN = "DDTree, by price", "drawn chain, by price"


def ddtree_name(budget):
    """How the tables call the paper's DDTree with this budget."""
    return f"DDTree, B={budget}"


def conditional_name(budget):
    """How the tables call DDTree on conditionals."""
    return f"conditional DDTree, B={budget}"


# ---------------------------------------------------------------- the decoders


def by_block(target, block, sampler):
    """-> f(decode, *what): a decoder, decode(target, block, *what, prompt, sampler, dice)."""
    def bound(decode, *what):
        return lambda prompt, seed: decode(target, block, *what, prompt, sampler, Dice(seed))

    return bound


def by_tree(target, drafter, sampler):
    """Chapter 02's loop around any drafter of trees, judged by the walk."""
    return lambda prompt, seed: speculate(target, drafter, prompt, sampler, Dice(seed))


def by_chain(target, draft, sampler):
    """Chapter 01: four drafts in a row, judged by the p/q rule."""
    return lambda prompt, seed: speculate_chain(target, draft, prompt, 4, sampler, Dice(seed))


def registry(target, block, sampler, budgets, conditional_budgets=(), price=None, small=None):
    """{name: start(prompt, seed)}: plain decoding, the block's chain, DDTree on marginals and on
    conditionals; above temperature 0 also three drafts that are drawn. price: see measured_price;
    with it, as many nodes and drawn drafts as pay; small: with it, chapter 01's chain."""
    bound = by_block(target, block, sampler)
    starts = {PLAIN: plain(target, sampler),
              CHAIN: by_tree(target, BlockChainDrafter(block), sampler)}
    starts |= {ddtree_name(b): bound(decode_ddtree, b) for b in budgets}
    if block.transition is not None:
        starts |= {conditional_name(b): bound(decode_conditional, b) for b in conditional_budgets}
        if sampler.temperature > 0:  # at temperature 0 only one child can be drawn
            starts[DRAWN] = bound(decode_sampled, (1, 1, 1))
    if small is not None:
        starts[GPT_CHAIN] = by_chain(target, GPTDraft(small), sampler)
    if price is not None:
        starts[PRICED] = bound(decode_priced, *price)
        if sampler.temperature > 0:
            starts[PRICED_CHAIN] = bound(decode_priced_chain, *price)
    return starts


def rivals(target, block, ngram, sampler):
    """Who else drafts: a 7-gram, and chapter 02's shape on the block's logits."""
    return {"7-gram chain, K=4": by_chain(target, ngram, sampler),
            "block top-W tree, 2x2x2": by_tree(
                target, TreeDrafter(BlockLevels(block), (2, 2, 2)), sampler)}


# ---------------------------------------------------------------- sweeps: drawing and the heap

# branching -> 1 + its drafts are the rows that the target reads: up to 8, up to 16
SHAPES = ["1-1-1", "1-1-1-1", "1-1-1-1-1", "2-1-1", "2-1-1-1", "2-2-1", "3-1-1-1", "2-2-1-1"]
TEMPERATURES = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2]


def print_drawn(target, block, prompts, max_new_tokens, temperatures, budgets, shapes):
    """tau and speed-up of the heap on conditionals and of drawn shapes, a line a temperature.

    At low temperatures the most probable tree wins, because the target nearly always takes one of
    the few most probable continuations. At high ones drawn drafts win: they come about as often as
    the target draws them, and the p/q rule uses that.
    """
    lines = []
    for temperature in temperatures:
        sampler = Sampler(temperature)
        bound = by_block(target, block, sampler)
        starts = {PLAIN: plain(target, sampler)}
        starts |= {conditional_name(b): bound(decode_conditional, b) for b in budgets}
        starts |= {f"drawn {shape}": bound(decode_sampled, tuple(map(int, shape.split("-"))))
                   for shape in shapes}
        results = compare(starts, prompts, max_new_tokens, TURN)
        base = results.pop(PLAIN)
        lines.append([f"{temperature:g}", *(
            f"{summarize(runs)['tau']:.2f}, {speedup(runs, base):.2f}x"
            for runs in results.values())])
    print_table(["T", *results], lines)


# ---------------------------------------------------------------- what drafting costs by itself

NEW_ROWS = 3  # context rows that a pass reads: about what a round commits
TREE_ROWS = 8  # rows of the target forward that comes before it: a small tree's


@torch.inference_mode()
def pass_ms(network, prompt):
    """Median milliseconds of one drafter pass behind `prompt` (a list of token ids)."""
    target, drafter = network.target, BlockChainDrafter(network)
    tokens = torch.tensor([prompt], device=target.device)
    logits, hidden = target(tokens)
    root, rows = int(logits[0, -1].argmax()), list(range(len(prompt)))[-NEW_ROWS:]

    def one_pass():
        drafter.reset()
        drafter.cache.length = len(prompt) - len(rows)
        drafter.observe(prompt[-NEW_ROWS:], hidden, rows)
        drafter.logits(root, network.config.length)

    # subtle: each pass is timed just after a target forward, as it comes in a round. In a loop of
    # its own it would find its weights in the processor's cache, and look a third cheaper.
    return median_ms(one_pass, target.device, before=lambda: target(tokens[:, -TREE_ROWS:]))


@torch.inference_mode()
def build_ms(network, prompt, budget):
    """Median milliseconds of building a tree of `budget` nodes from one pass, on the CPU."""
    make = DDTreeDrafter if network.transition is None else ConditionalTreeDrafter
    logits, hidden = network.target(torch.tensor([prompt], device=network.target.device))
    root, length = int(logits[0, -1].argmax()), network.config.length
    drafter = make(network, budget)
    drafter.observe(prompt, hidden, list(range(len(prompt))))
    slots = drafter.logits(root, length)
    drafter.logits = lambda *_: slots  # of this drafter alone: its pass is done
    return median_ms(lambda: drafter.propose(root, length), slots.device)


def measured_price(target, block, prompt, cap=63):
    """-> what a round costs on this machine, for priced_trees: [ms for 0..cap nodes], draft_ms."""
    curve = cost_curve(target, rows=(1, 2, 4, 8, 16, 32, 64), repeats=10)
    # A node is popped before it is verified. Where rows are nearly free, on a GPU, that is dearer.
    pop_ms = build_ms(block, prompt, cap) / cap
    price = [ms + n * pop_ms for n, ms in enumerate(prices(curve, cap))]
    return price, pass_ms(block, prompt)


# ---------------------------------------------------------------- other machines, by their prices

# ({N: ms}, ms of one drafter pass). The fourth in units of a plain step; the last one is measured
# on a target of 0.8M parameters and a drafter as wide: there no draft can pay.
MACHINES = {
    "Xeon, c(2)/c(1) 1.46": ({1: 3.65, 2: 5.33, 4: 5.2, 8: 5.9, 16: 6.3, 32: 9.9, 64: 10.8}, 1.4),
    "EPYC, AVX2": ({1: 6.82, 2: 7.01, 4: 7.35, 8: 7.99, 16: 10.78, 32: 13.91, 64: 20.5}, 1.88),
    "bfloat16 CPU": ({1: 3.91, 2: 4.36, 4: 4.36, 8: 4.41, 16: 5.29, 32: 7.28, 64: 10.75}, 1.55),
    "gpu, flat": ({1: 1.0, 64: 1.1}, 0.23),
    "drafts too dear": ({1: 0.22, 4: 0.46, 8: 0.43, 16: 0.57, 32: 0.93, 64: 1.67}, 0.34),
}


def modelled(generations, price, draft_ms):
    """-> (tau, speed-up, drafts a round) where only forwards and the drafter's pass took time.

    price: milliseconds with 0, 1, .. drafts. A round without a draft counts as one without a pass.
    """
    steps = [step for g in generations for step in g.steps]
    tokens = sum(len(step.tokens) for step in steps)
    drafts = [step.drafted for step in steps]
    ms = sum(price[n] + draft_ms * (n > 0) for n in drafts)
    return tokens / len(steps), tokens * price[0] / ms, sum(drafts) / len(steps)


def print_modelled(target, block, prompts, max_new_tokens, budgets=(3, 7, 15, 31, 63)):
    """tau, speed-up and drafts of trees and drawn chains, of fixed sizes and by price, on each of
    the MACHINES."""
    for temperature in (0, 0.6, 1):
        bound, runs, rows = by_block(target, block, Sampler(temperature)), {}, []

        def note(name, *what, bound=bound, runs=runs):
            runs[name] = [collect(bound(*what)(prompt, i), max_new_tokens)
                          for i, prompt in enumerate(prompts)]

        for budget in budgets:
            note(f"B={budget}", decode_conditional, budget)
        for k in (3, 4, 5) if temperature else ():  # at 0 only one child can be drawn
            note(f"drawn {k}", decode_sampled, (1,) * k)
        for machine, (curve, draft_ms) in MACHINES.items():
            price = prices(curve, max(budgets)), draft_ms
            note("by price", decode_priced, *price)
            if temperature:
                note("drawn, by price", decode_priced_chain, *price)
            rows.append([machine, *("{:.2f} {:.2f} {:.0f}".format(*modelled(run, *price))
                                    for run in runs.values())])
        print_table([f"T={temperature:g}", *runs], rows)


# ---------------------------------------------------------------- the paper in one number

TABLE = Path(__file__).with_name("paper_table1.csv")


@dataclass(frozen=True)
class Row:
    """One entry of Table 1 of Ringel and Romano (arXiv 2604.12989): 8 H200 GPUs; DDTree with the
    best of seven budgets in each row."""

    temperature: float
    dataset: str
    model: str
    method: str
    speedup: float
    tau: float


def paper_rows():
    """The 120 entries: 60 settings, each with DFlash's chain and with DDTree."""
    with open(TABLE, newline="", encoding="utf-8") as file:
        return [Row(float(r["temperature"]), r["dataset"], r["model"], r["method"],
                    float(r["speedup"]), float(r["tau"])) for r in csv.DictReader(file)]


def price_of_a_round(rows):
    """r, in plain steps: the least-squares fit of speed-up = tau / r through the origin.

    If r is the same for every dataset and every tree, all rows of a model lie on one line, and tau
    alone decides.
    """
    return sum(row.tau ** 2 for row in rows) / sum(row.tau * row.speedup for row in rows)


def print_prices(rows):
    """r of each model, for its chains and for its trees."""
    groups = {}
    for row in rows:
        groups.setdefault((row.model, row.method), []).append(row)
    print_table(["model", "method", "a round, plain steps"], [
        [*names, f"{price_of_a_round(group):.2f}"] for names, group in groups.items()])


# ---------------------------------------------------------------- the command line


def main(argv=None):
    p = cli.parser(__doc__.splitlines()[0])
    p.add_argument("what", choices=["shapes", "temperatures", "prices", "paper"],
                   help="see above")
    cli.decoding_flags(p, Path(__file__).resolve().parent / "figures")
    args = p.parse_args(argv)
    if args.what == "paper":
        print_prices(paper_rows())
        return
    dataset, device = cli.setup(args)
    cli.check_decoding(args, dataset)
    models = get_target_and_drafter(args, dataset, device)
    # A choice is made on prompts that no table is measured on.
    pick = choosing_prompts if args.what == "shapes" else held_out_prompts
    measure = *models, pick(dataset, args.prompts), args.max_new_tokens
    if args.what == "prices":
        print_modelled(*measure)
    elif args.what == "shapes":
        print_drawn(*measure, [1.0], [7], SHAPES)
    else:
        print_drawn(*measure, TEMPERATURES, [7, 15], ["1-1-1-1", "2-2-1-1"])


if __name__ == "__main__":
    cli.run(main)
