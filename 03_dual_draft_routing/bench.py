"""Chapter 03 on the runner: its decoders, and what each head would have brought at every token.

The walk emits the target's own draws, so the text does not depend on who drafts. A tree accepts
exactly as many tokens as its deepest path agrees with that text. So one target forward over the
finished text is enough to know both heads' trees below every token of it, and to replay every
router on them, the oracle included, which in a real decoding would have to verify both trees.
"""

import statistics
from dataclasses import dataclass, replace

import torch

from dual_draft_routing import (
    BothHeads,
    HeadDrafter,
    RoutedDrafter,
    coin_flip,
    confidence,
    mean_confidence,
    route,
)
from nanogpt.bench import PLAIN, plain, two_standard_errors
from nanogpt.cli import print_table
from nanogpt.decoding import collect, plain_decode, tokens_on
from nanogpt.sampling import Dice
from tree_attention import speculate  # chapter 02


def registry(target, heads, sampler, budget):
    """{name: start(prompt, seed)} for every method that can really run."""
    def drafted_by(make):
        def start(prompt, seed):
            pair = [HeadDrafter(head, budget=budget) for head in heads]
            return speculate(target, make(pair, seed), prompt, sampler, Dice(seed))
        return start

    return {
        PLAIN: plain(target, sampler),
        "head 1 alone": drafted_by(lambda pair, seed: pair[0]),
        "head 2 alone": drafted_by(lambda pair, seed: pair[1]),
        # The coin has chance of its own.
        "coin flip": drafted_by(lambda pair, seed: RoutedDrafter(pair, coin_flip(Dice(seed + 1)))),
        "routed": drafted_by(lambda pair, seed: RoutedDrafter(pair)),
    }


# ---------------------------------------------------------------- both heads, at every token


@dataclass
class Proposal:
    """Both heads' trees below one token of the text, a list entry for each head.

    position: of the root in the text; lengths: accepted drafts (the bonus token not counted);
    means: mu; firsts: the mass of c at depth 1; nodes: drafts in the tree; chosen: the head that
    was kept, or None.
    """

    position: int
    lengths: list
    means: list
    firsts: list
    nodes: list
    chosen: int | None = None


def agreement(tree, future):
    """Accepted length of a tree without equal siblings if the text goes on with `future`."""
    row, length = 0, 0
    for token in future:
        below = [c for c in tree.children[row] if int(tree.tokens[c]) == token]
        if not below:
            break
        row, length = below[0], length + 1
    return length


def first_level_mass(tree, scores):
    """Another statistic: the sum of c at depth 1, the chance that at least one draft stays.

    scores: one per row, as for best_nodes.
    """
    below_root = zip(confidence(scores), tree.parents.tolist()[1:], strict=True)
    return sum(c for c, parent in below_root if parent == 0)


@torch.inference_mode()
def propose_everywhere(target, both, text, first):
    """Both heads' trees below every token from text[first] on -> {position: Proposal}.

    both: a BothHeads. The text must fit into the window.
    """
    _, hidden = target(tokens_on(target, text[:-1]))
    proposals = {}
    for root in range(first, len(text) - 1):
        both.observe(text[root - 1:root], hidden, [root - 1])  # what was read before the root
        trees, scores = both.propose_both(text[root], len(text) - 1 - root)
        proposals[root] = Proposal(
            root, [agreement(tree, text[root + 1:]) for tree in trees],
            [mean_confidence(s) for s in scores],
            [first_level_mass(*grown) for grown in zip(trees, scores, strict=True)],
            [len(tree) - 1 for tree in trees])
    return proposals


def replay(proposals, choose):
    """Decode a text again with a router -> list of Proposal, the steps that it takes.

    proposals: what propose_everywhere gave. choose(proposal) -> which head is kept; it may look at
    the accepted lengths, as an oracle does.
    """
    steps, root = [], min(proposals)
    while root in proposals:
        chosen = choose(proposals[root])
        steps.append(replace(proposals[root], chosen=chosen))
        root += 1 + steps[-1].lengths[chosen]
    return steps


def texts_of(target, prompts, sampler, length):
    """Plain continuations: a list of prompt + tokens; prompt i is drawn from Dice(i).

    length: new tokens, but never more than the window holds, nor fewer than a few steps need.
    """
    length = min(max(length, 16), target.block_size - len(prompts[0]))
    return [prompt + collect(plain_decode(target, prompt, sampler, Dice(i)), length).tokens
            for i, prompt in enumerate(prompts)]


PAPER, ORACLE = "routed (mean confidence)", "oracle (not achievable)"


def routers(seed=0):
    """{name: choose} for two heads: each alone, a coin, the paper's rule, another, the oracle."""
    dice = Dice(seed)
    return {
        "head 1 alone": lambda step: 0,
        "head 2 alone": lambda step: 1,
        "coin flip": lambda step: int(dice.flip(0.5)),
        PAPER: lambda step: route(step.means),
        "routed by the mass at depth 1": lambda step: route(step.firsts),
        ORACLE: lambda step: route(step.lengths),
    }


@dataclass
class Replayed:
    """Every router on the same texts. runs: {name: list of lists of Proposal, one per text};
    proposals: both heads' trees at every token of every text; known: {position: Proposal}, text by
    text."""

    runs: dict
    proposals: list
    known: list


def replay_all(target, heads, texts, first, budget, seed):
    """Every router on these known texts, whose drafting begins at text[first] -> Replayed."""
    both = BothHeads([HeadDrafter(head, budget=budget) for head in heads])
    known = [propose_everywhere(target, both, text, first) for text in texts]
    runs = {name: [replay(proposals, choose) for proposals in known]
            for name, choose in routers(seed).items()}
    return Replayed(runs, [step for proposals in known for step in proposals.values()], known)


def tau(runs):
    """Tokens per step, the bonus token included. runs: lists of Proposal, one per text."""
    steps = [step for run in runs for step in run]
    return sum(1 + step.lengths[step.chosen] for step in steps) / len(steps)


def coin_tau(known):
    """tau of a fair coin between the two heads, averaged over all its tosses at once.

    known: {position: Proposal} of each text.
    """
    tokens = rounds = 0.0
    for proposals in known:
        reached = {min(proposals): 1.0}  # the probability that a round begins at this place
        for root in sorted(proposals):
            for length in proposals[root].lengths:
                chance = 0.5 * reached.get(root, 0.0)  # that it begins here and takes this head
                end = root + 1 + length
                reached[end] = reached.get(end, 0.0) + chance
                rounds, tokens = rounds + chance, tokens + chance * (1 + length)
    return tokens / rounds


def gain(runs, others):
    """What one router brings more than another on the same texts -> tokens per round, and by how
    much that is uncertain (two standard errors). Both: a tau for each text.
    """
    more = [one - other for one, other in zip(runs, others, strict=True)]
    return statistics.mean(more), two_standard_errors(more)


def complementarity(steps):
    """-> dict of shares of the steps: head 1 longer, head 2 longer, and of those steps the share
    in which mu picks the longer one ("router right")."""
    differ = [s for s in steps if s.lengths[0] != s.lengths[1]]
    right = [route(s.means) == route(s.lengths) for s in differ]
    return {
        "head 1 longer": sum(s.lengths[0] > s.lengths[1] for s in steps) / len(steps),
        "head 2 longer": sum(s.lengths[1] > s.lengths[0] for s in steps) / len(steps),
        "router right": sum(right) / max(len(right), 1),
    }


def calibration(steps, head):
    """Does the confidence predict the accepted length? N mu is the length that a head expects.

    -> mean of the expected length, mean of the accepted one, their correlation over the steps.
    """
    expected = torch.tensor([s.means[head] * s.nodes[head] for s in steps])
    accepted = torch.tensor([float(s.lengths[head]) for s in steps])
    pair = torch.stack([expected, accepted])
    return float(expected.mean()), float(accepted.mean()), float(torch.corrcoef(pair)[0, 1])


def print_routers(replayed):
    """Every router's tau on the same known texts, and what the heads' confidence is worth."""
    runs, proposals = replayed.runs, replayed.proposals
    print_table([f"router, on {len(runs[PAPER])} known texts", "steps", "tau"], [
        [name, sum(map(len, run)), f"{tau(run):.2f}"] for name, run in runs.items()])
    shares = complementarity(proposals)
    print()
    print_table(["share of all tokens", "head 1 longer", "head 2 longer", "mu picks the longer"],
                [["", *(f"{share:.0%}" for share in shares.values())]])
    print()
    print_calibration(proposals)


def print_calibration(proposals):
    """A line for each head: how many accepted drafts it expects, and gets, on average."""
    rows = []
    for head in (0, 1):
        expected, accepted, correlation = calibration(proposals, head)
        rows.append([f"head {head + 1}", f"{expected:.2f}", f"{accepted:.2f}",
                     f"{correlation:.2f}"])
    print_table(["accepted drafts", "expected", "accepted", "correlation"], rows)
