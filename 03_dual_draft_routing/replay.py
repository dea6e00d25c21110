"""What each head would have brought, step by step, on a text that is already known.

The walk emits the target's own draws, so the text does not depend on who drafts. A tree accepts
exactly as many tokens as its deepest path agrees with that text. So one target forward over the
finished text is enough to replay every router on it, the oracle included, which in a real
decoding would have to verify both trees.
"""

from dataclasses import dataclass

import torch

from dual_draft_routing import expected_length, mean_confidence
from nanogpt.generate import collect, plain_decode, tokens_on
from nanogpt.sampling import Dice


@dataclass
class Proposal:
    """One step: where its root stands in the text, and per head the accepted length (the bonus
    token not counted), mu, and the sum of the confidences; chosen: the head that was kept."""

    position: int
    lengths: list
    means: list
    sums: list
    chosen: int


def agreement(tree, future):
    """Accepted length of a tree without equal siblings if the text goes on with `future`."""
    row, length = 0, 0
    for token in future:
        below = [c for c in tree.children[row] if int(tree.tokens[c]) == token]
        if not below:
            break
        row, length = below[0], length + 1
    return length


@torch.inference_mode()
def replay(target, drafters, text, first, choose):
    """Decode text[first:] again with a router. The text must fit into the window.

    choose(proposal) -> which head is kept; it may look at the accepted lengths, as an oracle does.
    -> list of Proposal, one a step.
    """
    _, hidden = target(tokens_on(target, text[:-1]))
    for drafter in drafters:
        drafter.reset()
    steps, read, root = [], 0, first
    while root + 1 < len(text):
        rows = list(range(read, root))  # the target has read all tokens before the root
        for drafter in drafters:
            drafter.observe(text[read:root], hidden, rows)
        grown = [drafter.propose_scored(text[root], len(text) - 1 - root) for drafter in drafters]
        step = Proposal(root, [agreement(tree, text[root + 1:]) for tree, _ in grown],
                        [mean_confidence(s) for _, s in grown],
                        [expected_length(s) for _, s in grown], 0)
        step.chosen = choose(step)
        steps.append(step)
        read, root = root, root + 1 + step.lengths[step.chosen]
    return steps


def texts_of(target, prompts, sampler, length):
    """Plain continuations: a list of prompt + tokens; prompt i is drawn from Dice(i)."""
    return [prompt + collect(plain_decode(target, prompt, sampler, Dice(i)), length).tokens
            for i, prompt in enumerate(prompts)]


def routers(seed=0):
    """{name: choose} for two heads: each alone, a coin, the paper's rule, the oracle."""
    dice = Dice(seed)
    return {
        "head 1 alone": lambda step: 0,
        "head 2 alone": lambda step: 1,
        "coin flip": lambda step: int(dice.flip(0.5)),
        "routed (mean confidence)": lambda step: int(step.means[1] > step.means[0]),
        "oracle (not achievable)": lambda step: int(step.lengths[1] > step.lengths[0]),
    }


def tau(runs):
    """Tokens a step, the bonus token included. runs: a list of lists of Proposal, one a text."""
    steps = [step for run in runs for step in run]
    return sum(1 + step.lengths[step.chosen] for step in steps) / len(steps)


def complementarity(runs):
    """-> dict of shares of the steps: head 1 longer, head 2 longer, and of those steps the share
    in which mu picks the longer one ("router right")."""
    steps = [step for run in runs for step in run]
    differ = [s for s in steps if s.lengths[0] != s.lengths[1]]
    right = [(s.means[1] > s.means[0]) == (s.lengths[1] > s.lengths[0]) for s in differ]
    return {
        "head 1 longer": sum(s.lengths[0] > s.lengths[1] for s in steps) / len(steps),
        "head 2 longer": sum(s.lengths[1] > s.lengths[0] for s in steps) / len(steps),
        "router right": sum(right) / max(len(right), 1),
    }
