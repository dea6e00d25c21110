"""Chapter 01 on the runner: its decoders, every K beside the formula, broken loops."""

from importlib import import_module

import torch

import chain_specdec
from chain_specdec import acceptance_rate, draft, expected_tokens, speculate_chain
from nanogpt.bench import PLAIN, median_ms, median_round, plain, summarize
from nanogpt.cli import print_table
from nanogpt.exact.enumeration import loop_distribution, target_distribution, total_variation
from nanogpt.exact.slips import changed, replaced
from nanogpt.exact.toy_models import ToyDraft, ToyModel, ToyTarget
from nanogpt.sampling import Dice, Sampler

WRONG = import_module("01_chain_specdec.wrong").WRONG


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


def print_every_k(results):
    """Print for every drafter and K: tokens a round, as measured and by the formula; its price in
    plain steps, their quotient, and the quotient if further rows cost nothing.

    results: {name: list of Generation} of a `registry`, on the same prompts; medians of the times.
    """
    (step, verbs), rows = median_round(results[PLAIN]), []
    for name, generations in results.items():
        if name != PLAIN:
            tau, (ms, parts) = summarize(generations)["tau"], median_round(generations)
            formula = expected_tokens(measured_alpha(generations), int(name.split("K=")[1]))
            free = ms - parts["verify"] + verbs["verify"]
            rows.append([name, f"{tau:.2f}", f"{formula:.2f}", f"{ms / step:.2f}",
                         f"{tau * step / ms:.2f}x", f"{tau * step / free:.2f}x"])
    print_table(["drafter", "tokens", "formula", "price", "speed-up", "rows free"], rows)


def broken_loops():
    """The loop as it is, and with one change at a time -> {change: total variation}.

    The first five tokens of toy models with two tokens: two rounds, then plain decoding.
    """
    model, prompt, sampler = ToyModel(seed=5, vocab=2), [0, 1], Sampler(1)
    target = target_distribution(model, sampler, prompt, 5)

    def bias(scale=1.0, **broken):
        drafter = ToyDraft(ToyModel(seed=99, vocab=2, scale=scale))
        with replaced(chain_specdec, **broken):  # these stand in the place of the module's own
            emitted = loop_distribution(lambda dice: chain_specdec.speculate_chain(
                ToyTarget(model), drafter, prompt, 2, sampler, dice), model, sampler, prompt, 2, 5)
        return total_variation(emitted, target)

    return {
        "as it is": bias(),
        "redraw from p": bias(residual=WRONG["residual"]["the residual is the target itself"]),
        "accept everything": bias(acceptance_probability=lambda *_: 1.0),
        "draft the favourite": bias(
            draft=WRONG["draft"]["the tokens are argmaxes instead of draws"]),
        "keep a stale row": bias(speculate_chain=changed(
            speculate_chain, "context.commit(rows,",
            "context.commit([*rows, n + 1][:len(drafted) + 1],")),
        "another drafter": bias(scale=0.0),
    }
