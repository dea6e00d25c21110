"""The sweep of K: what chains of 1, 2, 4, 8 drafts bring, predicted and measured.

Two predictions stand beside each measurement. One knows only alpha, the chance that a single
draft stays, and assumes that all positions are alike (Leviathan et al., Equation 1). The other
knows the measured tau. They differ through sampling noise and because acceptance varies by
position; the second and the clock differ by Python, the sampler and the clock's noise.
"""

from dataclasses import dataclass
from functools import partial

import torch

from chain_specdec import acceptance_rate, draft, expected_speedup, expected_tokens, speculate_chain
from experiments.chain_pictures import draw_k_sweep
from nanogpt.account import why_not_faster
from nanogpt.clock import cost_curve, interpolate, median_ms
from nanogpt.contest import speedup, summarize
from nanogpt.decoding import plain_decode
from nanogpt.pictures import plots
from nanogpt.printing import print_table
from nanogpt.sampling import Dice

PLAIN = "plain"


def method_name(drafter, k):
    """'57K GPT, K=4': how tables and figures call a chain of k drafts."""
    return f"{drafter}, K={k}"


def make_decoders(target, drafters, ks, sampler):
    """{name: start(prompt, seed)} for plain decoding and every drafter with every K.

    drafters: {name: drafter}; see nanogpt.contest.compare.
    """
    def plain(prompt, seed):
        return plain_decode(target, prompt, sampler, Dice(seed))

    def chain(drafter, k, prompt, seed):
        return speculate_chain(target, drafter, prompt, k, sampler, Dice(seed))

    decoders = {PLAIN: plain}
    for name, drafter in drafters.items():
        decoders |= {method_name(name, k): partial(chain, drafter, k) for k in ks}
    return decoders


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
            name = method_name(drafter, k)
            lines[name] = Line(
                drafter, k, measured_alpha(results[name]), summarize(results[name])["tau"],
                curve[1], draft_ms, interpolate(curve, k + 1),
                speedup(results[name], results[PLAIN]))
    return lines


def sweep_rows(lines):
    """-> header and rows of the table 'predicted against measured'."""
    header = ["method", "alpha", "tau", "from alpha", "draft ms", "verify ms",
              "predicted (alpha)", "predicted (tau)", "measured"]
    return header, [
        [name, f"{x.alpha:.2f}", f"{x.tau:.2f}", f"{expected_tokens(x.alpha, x.k):.2f}",
         f"{x.k * x.draft_ms:.2f}", f"{x.verify_ms:.2f}", f"{x.from_alpha:.2f}x",
         f"{x.from_tau:.2f}x", f"{x.measured:.2f}x"]
        for name, x in lines.items()
    ]


def print_sweep(lines, results):
    """Print what was predicted beside what was measured, and what slows the fastest method."""
    print("\npredicted and measured (draft: K tokens; verify: K + 1 rows)")
    print_table(*sweep_rows(lines))
    best = max(lines, key=lambda name: lines[name].measured)
    print("\n" + why_not_faster(best, results, PLAIN))


def save_figures(lines, results, out):
    """tau and speed-up over K; predicted against measured; acceptance by draft position."""
    shares = {}
    for drafter in dict.fromkeys(line.drafter for line in lines.values()):
        own = [line for line in lines.values() if line.drafter == drafter]
        k = own[-1].k
        shares[drafter] = acceptance_by_position(results[method_name(drafter, k)], k)
    plots.save(draw_k_sweep(lines, results, PLAIN)[0], out / "sweep.png")
    points = {name: (line.from_tau, line.measured) for name, line in lines.items()}
    plots.save(plots.draw_predicted(points), out / "predicted.png")
    plots.save(plots.draw_positions(shares), out / "positions.png")
    print(f"\nfigures: {out}")
