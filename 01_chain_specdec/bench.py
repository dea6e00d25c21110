"""Chapter 01 on the runner: its decoders, and what the formulas predict for every K."""

import torch

from chain_specdec import acceptance_rate, draft, expected_speedup, expected_tokens, speculate_chain
from nanogpt.bench import PLAIN, plain
from nanogpt.cli import print_table
from nanogpt.clock import median_ms
from nanogpt.sampling import Dice


def registry(target, drafters, ks, sampler):
    """{"57K GPT, K=4": start(prompt, seed), ..}: plain decoding, every {name: drafter}, every K."""
    def chain(drafter, k):
        return lambda prompt, seed: speculate_chain(target, drafter, prompt, k, sampler, Dice(seed))

    return {PLAIN: plain(target, sampler)} | {
        f"{name}, K={k}": chain(drafter, k) for name, drafter in drafters.items() for k in ks}


def measured_alpha(generations):
    """Mean acceptance rate over every draft that was put to the test.

    It uses sum min(target, draft) instead of the coins that fell: the same mean, less noise.
    """
    rates = []
    for seen in (step.detail for g in generations for step in g.steps):
        tested = min(seen.accepted + 1, len(seen.drafted))  # behind a rejection nothing is tested
        if tested:
            rates.append(acceptance_rate(seen.target_probs[:tested],
                                         torch.stack(seen.draft_probs[:tested])))
    return float(torch.cat(rates).mean())


@torch.inference_mode()
def draft_cost(drafter, prompt, sampler, device, k=4):
    """Median milliseconds of one draft token: the drafter's forward, the sampler, the dice."""
    drafter.reset()
    drafter.observe(prompt[:-1])
    dice = Dice(0)

    def one_chain():
        draft(drafter, prompt[-1], k, sampler, dice)
        drafter.observe([])  # nothing was accepted: forget the chain

    return median_ms(one_chain, device) / k


def print_every_k(alpha, curve, draft_ms):
    """Print what the formulas predict for every K: here, and if further rows cost nothing.

    curve: {N: ms} with N = 1 and every K + 1; draft_ms: one draft token.
    """
    one, rows = curve[1], []
    for k in (n - 1 for n in curve if n > 1):
        tokens, price = expected_tokens(alpha, k), (k * draft_ms + curve[k + 1]) / one
        fast, free = (expected_speedup(tokens, k, one, draft_ms, ms) for ms in (curve[k + 1], one))
        rows.append([k, f"{tokens:.2f}", f"{price:.2f}", f"{fast:.2f}x", f"{free:.2f}x"])
    print_table(["K", "tokens", "price", "speed-up", "rows free"], rows)
