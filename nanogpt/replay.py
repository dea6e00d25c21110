"""Decode a finished text again: what other drafters would have brought.

The walk emits the target's own draws, so the text does not depend on who drafts. A tree accepts
exactly as many tokens as its deepest path agrees with that text.
"""

from statistics import stdev

import torch

from nanogpt.decoding import tokens_on


@torch.inference_mode()
def trees_everywhere(target, drafter, text, first):
    """What a drafter of chapter 03 or 04 would have proposed below every token from text[first] on:
    yields its position, the trees, their scores. The text must fit into the window.
    """
    _, hidden = target(tokens_on(target, text[:-1]))
    for root in range(first, len(text) - 1):
        drafter.observe(text[root - 1:root], hidden, [root - 1])  # what was read before the root
        yield root, *drafter.propose_both(text[root], len(text) - 1 - root)


def agreement(tree, future):
    """Accepted length of a tree without equal siblings if the text goes on with `future`."""
    row, length = 0, 0
    for token in future:
        below = [c for c in tree.children[row] if int(tree.tokens[c]) == token]
        if not below:
            break
        row, length = below[0], length + 1
    return length


def rounds_of(lengths):
    """Decode a text again -> the accepted drafts of every round, a list.

    lengths: {position: the drafts that would be accepted below it}.
    """
    accepted, root = [], min(lengths)
    while root in lengths:
        accepted.append(lengths[root])
        root += 1 + accepted[-1]
    return accepted


def tau(rounds):
    """Tokens per round of some texts' replays, the target's own token included."""
    return 1 + sum(map(sum, rounds)) / sum(map(len, rounds))


def gain(rounds, others):
    """By how much tau is larger than another router's on the same texts -> share, two standard
    errors (the jackknife's: every text is left out once)."""
    n = len(rounds)
    without = [tau(rounds[:i] + rounds[i + 1:]) / tau(others[:i] + others[i + 1:])
               for i in range(n)]
    return tau(rounds) / tau(others) - 1, 2 * stdev(without) * (n - 1) / n ** 0.5


def print_gains(rounds, other, *routers):
    """By how much these routers beat another. rounds: {router: replays of the same texts}."""
    print(f"tokens per forward, over {other}:")
    for router in routers:
        more, error = gain(rounds[router], rounds[other])
        print(f"  {router}: {more:+.1%} \u00b1 {error:.1%}")
