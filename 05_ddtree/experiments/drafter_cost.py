"""What drafting costs by itself: one pass of the network, and building a tree."""

from functools import partial

import torch

from conditional_marginals import Children, ConditionalTreeDrafter
from ddtree import BlockDraft, best_first_tree, marginal_children
from nanogpt.clock import median_ms

NEW_ROWS = 3  # context rows that a pass reads: about what a round commits
TREE_ROWS = 8  # rows of the target forward that comes before it: a small tree's


@torch.inference_mode()
def pass_ms(network, prompt):
    """Median milliseconds of one drafter pass behind `prompt` (a list of token ids).

    subtle: each pass is timed just after a target forward, as it comes in a round. In a loop of
    its own it would find its weights in the processor's cache, and look a third cheaper.
    """
    target, draft = network.target, BlockDraft(network)
    tokens = torch.tensor([prompt], device=target.device)
    logits, hidden = target(tokens)
    root = int(logits[0, -1].argmax())
    rows = list(range(len(prompt)))[-NEW_ROWS:]

    def one_pass():
        draft.reset()
        draft.cache.length = len(prompt) - len(rows)
        draft.observe(prompt[-NEW_ROWS:], hidden, rows)
        draft.logits(root, network.config.length)

    return median_ms(one_pass, target.device, before=lambda: target(tokens[:, -TREE_ROWS:]))


@torch.inference_mode()
def build_ms(network, prompt, budgets):
    """Median milliseconds of building a tree from marginals, by budget: {B: ms}, on the CPU."""
    draft = BlockDraft(network)
    logits, hidden = network.target(torch.tensor([prompt], device=network.target.device))
    draft.observe(prompt, hidden, list(range(len(prompt))))
    marginals = draft.marginals(int(logits[0, -1].argmax()), network.config.length)

    def build(budget):
        best_first_tree(0, marginal_children(marginals, budget), budget)

    return {budget: median_ms(partial(build, budget), marginals.device) for budget in budgets}


@torch.inference_mode()
def conditional_build_ms(network, prompt, budgets):
    """Median milliseconds of building a tree from conditionals, by budget: {B: ms}."""
    draft = ConditionalTreeDrafter(network, max(budgets))
    logits, hidden = network.target(torch.tensor([prompt], device=network.target.device))
    draft.observe(prompt, hidden, list(range(len(prompt))))
    root = int(logits[0, -1].argmax())
    slots = draft.logits(root, network.config.length)  # (L, V)

    def build(budget):
        children = Children(slots.numpy(), draft.table, 1.0, budget)  # ranked anew each time
        best_first_tree(root, children, budget)

    return {budget: median_ms(partial(build, budget), slots.device) for budget in budgets}
