"""Chapter 01 on the runner: its decoders, and the sweep of K, predicted and measured.

Two predictions stand beside each measurement. One knows only alpha, the chance that a single
draft stays, and assumes that all positions are alike (Leviathan et al., Equation 1). The other
knows the measured tau. They differ through sampling noise and because acceptance varies by
position; the second and the clock differ by Python, the sampler and the clock's noise.
"""

from dataclasses import dataclass

import torch

from chain_specdec import acceptance_rate, draft, expected_speedup, expected_tokens, speculate_chain
from nanogpt.bench import PLAIN, plain, speedup, summarize
from nanogpt.cli import print_table
from nanogpt.clock import cost_curve, interpolate, median_ms
from nanogpt.sampling import Dice


def method_name(drafter, k):
    """'57K GPT, K=4': how tables and figures call a chain of k drafts."""
    return f"{drafter}, K={k}"


def registry(target, drafters, ks, sampler):
    """{name: start(prompt, seed)}: plain decoding and every one of {name: drafter} with every K."""
    def chain(drafter, k):
        return lambda prompt, seed: speculate_chain(target, drafter, prompt, k, sampler, Dice(seed))

    return {PLAIN: plain(target, sampler)} | {
        method_name(name, k): chain(drafter, k) for name, drafter in drafters.items() for k in ks}


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


def acceptance_by_position(generations, k):
    """For i = 1..k the share of steps that kept draft i among those that tested it (nan: none)."""
    rounds = [step.detail for g in generations for step in g.steps]
    kept = [seen.accepted for seen in rounds if len(seen.drafted) == k]
    shares = []
    for i in range(1, k + 1):
        tested = sum(n >= i - 1 for n in kept)
        shares.append(sum(n >= i for n in kept) / tested if tested else float("nan"))
    return shares


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


@dataclass
class Line:
    """One method of the sweep, predicted and measured; times in milliseconds."""

    drafter: str
    k: int
    alpha: float
    tau: float
    plain_ms: float  # c(1)
    draft_ms: float  # one draft token
    verify_ms: float  # c(K + 1)
    measured: float  # speed-up

    def predicted(self, tokens):
        """The speed-up if a step brings so many tokens."""
        return expected_speedup(tokens, self.k, self.plain_ms, self.draft_ms, self.verify_ms)

    @property
    def from_alpha(self):
        return self.predicted(expected_tokens(self.alpha, self.k))

    @property
    def from_tau(self):
        return self.predicted(self.tau)


def sweep_lines(results, target, drafters, ks, sampler, prompt):
    """{name: Line}: the costs are measured here, the rest is read off compare's results."""
    curve = cost_curve(target, rows=sorted({1, *(k + 1 for k in ks)}))
    lines = {}
    for drafter, model in drafters.items():
        draft_ms = draft_cost(model, prompt, sampler, target.device)
        for k in ks:
            runs = results[method_name(drafter, k)]
            lines[method_name(drafter, k)] = Line(
                drafter, k, measured_alpha(runs), summarize(runs)["tau"], curve[1], draft_ms,
                interpolate(curve, k + 1), speedup(runs, results[PLAIN]))
    return lines


def print_sweep(lines):
    """Print what was predicted, from alpha and from tau, beside what was measured."""
    print("\npredicted and measured (draft: K tokens; verify: K + 1 rows)")
    print_table(["method", "alpha", "tau", "from alpha", "draft ms", "verify ms",
                 "predicted (alpha)", "predicted (tau)", "measured"], [
        [name, f"{x.alpha:.2f}", f"{x.tau:.2f}", f"{expected_tokens(x.alpha, x.k):.2f}",
         f"{x.k * x.draft_ms:.2f}", f"{x.verify_ms:.2f}", f"{x.from_alpha:.2f}x",
         f"{x.from_tau:.2f}x", f"{x.measured:.2f}x"] for name, x in lines.items()])
