"""Chapter 05 on the runner: its decoders, and what drafting costs by itself."""

import torch

from chain_graph import loop_for  # chapter 01
from chain_specdec import GPTDraft
from conditional_marginals import (
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
    speedup,
    summarize,
)
from nanogpt.graphs import SIZES, captured
from nanogpt.sampling import Dice
from priced_trees import decode_priced, decode_priced_chain, prices
from tree_attention import speculate  # chapter 02
from tree_graph import tree_in_one_graph

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
    decode = loop_for(draft)
    return lambda prompt, seed: decode(target, draft, prompt, 4, sampler, Dice(seed))


def registry(target, block, sampler, budgets, conditional_budgets=(), price=None, small=None):
    """{name: start(prompt, seed)}: plain decoding, the block's chain, DDTree on marginals and on
    conditionals; above temperature 0 also three drafts that are drawn. price: see measured_price;
    with it, as many nodes and drawn drafts as pay; small: with it, chapter 01's chain."""
    bound = by_block(target, block, sampler)
    starts = {PLAIN: plain(target, sampler),
              CHAIN: by_block(target, BlockChainDrafter(block), sampler)(speculate)}
    starts |= {ddtree_name(b): bound(decode_ddtree, b) for b in budgets}
    if block.transition is not None:
        starts |= {conditional_name(b): bound(
            tree_in_one_graph if captured(block) and b < SIZES[-1] else decode_conditional, b)
            for b in conditional_budgets}
        if sampler.temperature > 0:  # at temperature 0 only one child can be drawn
            starts[DRAWN] = bound(decode_sampled, (1, 1, 1))
    if small is not None:
        starts[GPT_CHAIN] = by_chain(target, GPTDraft(small), sampler)
    if price is not None:
        starts[PRICED] = bound(decode_priced, *price)
        if sampler.temperature > 0:
            starts[PRICED_CHAIN] = bound(decode_priced_chain, *price)
    return starts


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
