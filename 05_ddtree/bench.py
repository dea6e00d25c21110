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
from nanogpt.bench import (
    PLAIN,
    cost_curve,
    median_ms,
    ms_per_token,
    paired,
    plain,
    print_tables,
    speedup,
    summarize,
)
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


def by_block(target, drafter, sampler):
    """-> f(decode, *what): a decoder, decode(target, drafter, *what, prompt, sampler, dice)."""
    def bound(decode, *what):
        return lambda prompt, seed: decode(target, drafter, *what, prompt, sampler, Dice(seed))

    return bound


def by_chain(target, draft, sampler):
    """Chapter 01: four drafts in a row, judged by the p/q rule."""
    return lambda prompt, seed: speculate_chain(target, draft, prompt, 4, sampler, Dice(seed))


def registry(target, block, sampler, budgets, conditional_budgets=(), price=None, small=None):
    """{name: start(prompt, seed)}: plain decoding, the block's chain, DDTree on marginals and on
    conditionals; above temperature 0 also three drafts that are drawn. price: see measured_price;
    with it, as many nodes and drawn drafts as pay; small: with it, chapter 01's chain."""
    bound = by_block(target, block, sampler)
    starts = {PLAIN: plain(target, sampler),
              CHAIN: by_block(target, BlockChainDrafter(block), sampler)(speculate)}
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
            "block top-W tree, 2x2x2": by_block(
                target, TreeDrafter(BlockLevels(block), (2, 2, 2)), sampler)(speculate)}


# ---------------------------------------------------------------- sweeps: drawing and the heap

# branching -> 1 + its drafts are the rows that the target reads: up to 8, up to 16
SHAPES = ["1-1-1", "1-1-1-1", "1-1-1-1-1", "2-1-1", "2-1-1-1", "2-2-1", "3-1-1-1", "2-2-1-1"]
TEMPERATURES = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2]


def drawn(target, block, sampler, budgets, shapes):
    """{name: start(prompt, seed)}: plain decoding, the heap on conditionals, drafts that are drawn.

    At low temperatures the most probable tree wins, because the target nearly always takes one of
    the few most probable continuations. At high ones drawn drafts win: they come about as often as
    the target draws them, and the p/q rule uses that.
    """
    bound = by_block(target, block, sampler)
    starts = {PLAIN: plain(target, sampler)}
    starts |= {conditional_name(b): bound(decode_conditional, b) for b in budgets}
    return starts | {f"drawn {shape}": bound(decode_sampled, tuple(map(int, shape.split("-"))))
                     for shape in shapes}


# ---------------------------------------------------------------- what drafting costs by itself

NEW_ROWS = 3  # context rows that a pass reads: about what a round commits
TREE_ROWS = 8  # rows of the target forward that comes before it: a small tree's


@torch.inference_mode()
def pass_ms(network, prompt):
    """Median milliseconds of one drafter pass behind `prompt` (a list of token ids)."""
    target, drafter = network.target, BlockChainDrafter(network)
    tokens = torch.tensor([prompt], device=target.device)
    rows = list(range(len(prompt)))[-NEW_ROWS:]
    _, hidden = target(tokens)

    def one_pass():
        drafter.reset()
        drafter.cache.length = len(prompt) - len(rows)
        drafter.observe(prompt[-NEW_ROWS:], hidden, rows)
        drafter.logits(prompt[-1], network.config.length)

    # subtle: each pass is timed just after a target forward, as it comes in a round. In a loop of
    # its own it would find its weights in the processor's cache, and look a third cheaper.
    return median_ms(one_pass, target.device, before=lambda: target(tokens[:, -TREE_ROWS:]))


def build_ms(drafter):
    """Median milliseconds in which a DDTreeDrafter builds its tree from one pass, on the CPU."""
    length = drafter.network.config.length
    slots = torch.randn(length, drafter.network.target.config.vocab_size)
    drafter.logits = lambda *_: slots  # of this drafter alone: its pass is done
    return median_ms(lambda: drafter.propose(0, length), slots.device)


def measured_price(target, block, prompt, cap=63, make=None):
    """-> what a round costs on this machine, for priced_trees: [ms for 0..cap nodes], draft_ms.

    make: the class of the drafter that builds the trees.
    """
    make = make or (DDTreeDrafter if block.transition is None else ConditionalTreeDrafter)
    curve = cost_curve(target, rows=(1, 2, 4, 8, 16, 32, 64), repeats=10)
    # A node is popped before it is verified. Where rows are nearly free, on a GPU, that is dearer.
    pop_ms = build_ms(make(block, cap)) / cap
    price = [ms + n * pop_ms for n, ms in enumerate(prices(curve, cap))]
    return price, pass_ms(block, prompt)


def against(ours, theirs):
    """-> the tokens and the time of a round, ours divided by theirs; their quotient; who is faster,
    text by text. Both: lists of Generation, of nanogpt.bench.compare."""
    more, error = paired(ms_per_token(ours), ms_per_token(theirs))
    fast, tokens = speedup(ours, theirs), summarize(ours)["tau"] / summarize(theirs)["tau"]
    return [f"{tokens:.2f}", f"{tokens / fast:.2f}", f"{fast:.2f}",
            "level" if abs(more) <= error else "ahead" if more < 0 else "behind"]


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


def print_modelled(target, block, prompts, max_new_tokens):
    """tau, speed-up and drafts of trees and drawn chains, of fixed sizes and by price, on each of
    the MACHINES."""
    for temperature in (0, 0.6, 1):
        bound, rows = by_block(target, block, Sampler(temperature)), []

        def run(*what, bound=bound):
            return [collect(bound(*what)(prompt, i), max_new_tokens)
                    for i, prompt in enumerate(prompts)]

        runs = {f"B={budget}": run(decode_conditional, budget) for budget in (3, 7, 15, 31, 63)}
        if temperature:  # at 0 only one child can be drawn
            runs |= {f"drawn {k}": run(decode_sampled, (1,) * k) for k in (3, 4, 5)}
        for machine, (curve, draft_ms) in MACHINES.items():
            price = prices(curve, 63), draft_ms
            runs["by price"] = run(decode_priced, *price)
            if temperature:
                runs["drawn, by price"] = run(decode_priced_chain, *price)
            rows.append([machine, *("{:.2f} {:.2f} {:.0f}".format(*modelled(found, *price))
                                    for found in runs.values())])
        print_table([f"T={temperature:g}", *runs], rows)


# ---------------------------------------------------------------- the paper in one number

def price_of_a_round(rows):
    """r, in plain steps: the least-squares fit of speed-up = tau / r through the origin.

    rows: (tau, speed-up) each. If r is the same for every dataset and every tree, all rows of a
    model lie on one line, and tau alone decides.
    """
    return sum(tau ** 2 for tau, _ in rows) / sum(tau * speedup for tau, speedup in rows)


def print_prices():
    """r of each model, for its chains and for its trees, from Table 1 of Ringel and Romano (arXiv
    2604.12989): 8 H200 GPUs; DDTree with the best of seven budgets in each row."""
    groups = {}
    with open(Path(__file__).with_name("paper_table1.csv"), newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            groups.setdefault((row["model"], row["method"]), []).append(
                (float(row["tau"]), float(row["speedup"])))
    print_table(["model", "method", "a round, plain steps"], [
        [*names, f"{price_of_a_round(rows):.2f}"] for names, rows in groups.items()])


# ---------------------------------------------------------------- the command line


def main(argv=None):
    p = cli.parser(__doc__.splitlines()[0])
    p.add_argument("what", choices=["shapes", "temperatures", "prices", "paper"],
                   help="see above")
    cli.decoding_flags(p)
    args = p.parse_args(argv)
    if args.what == "paper":
        print_prices()
        return
    dataset, device = cli.setup(args)
    cli.check_decoding(args, dataset)
    target, block = get_target_and_drafter(args, dataset, device)
    prompts, temperatures = held_out_prompts(dataset, args.prompts), TEMPERATURES
    budgets, shapes = [7, 15], ["1-1-1-1", "2-2-1-1"]
    if args.what == "prices":
        print_modelled(target, block, prompts, args.max_new_tokens)
        return
    if args.what == "shapes":  # a choice is made on prompts that no table is measured on
        prompts, temperatures = choosing_prompts(dataset, args.prompts), [1.0]
        budgets, shapes = [7], SHAPES
    print_tables(args, target, prompts, map(Sampler, temperatures),
                 lambda sampler: drawn(target, block, sampler, budgets, shapes))


if __name__ == "__main__":
    cli.run(main)
