"""Chapter 01 on the runner: its decoders, the price of a round, broken loops."""

from importlib import import_module

import chain_specdec
from chain_graph import loop_for
from nanogpt.bench import PLAIN, plain, summarize
from nanogpt.exact.enumeration import loop_distribution, target_distribution, total_variation
from nanogpt.exact.slips import changed, replaced
from nanogpt.exact.toy_models import ToyDraft, ToyModel, ToyTarget
from nanogpt.sampling import Dice, Sampler

CHAIN = "57K GPT, K=4"  # the lesson's example
WRONG = import_module("01_chain_specdec.wrong").WRONG


def registry(target, drafters, ks, sampler):
    """{"57K GPT, K=4": start(prompt, seed), ..}: plain decoding, every {name: drafter}, every K."""
    def chain(drafter, k):
        decode = loop_for(drafter)
        return lambda prompt, seed: decode(target, drafter, prompt, k, sampler, Dice(seed))

    return {PLAIN: plain(target, sampler)} | {
        f"{name}, K={k}": chain(drafter, k) for name, drafter in drafters.items() for k in ks}


def round_in_steps(results, name):
    """-> tau, and the prices of drafting, of verifying and of the whole round in plain steps.

    results: {name: list of Generation} of a `registry`. The rest of a round: coins, commit, the
    loop. All are rounded as they are shown, so that every sum and quotient on the page comes out.
    """
    line, step = summarize(results[name]), summarize(results[PLAIN])["ms_per_step"]
    draft, verify = (line["verb_ms"][verb] / step for verb in ("draft", "verify"))
    return [round(number, 2) for number in (
        line["tau"], draft, verify, line["ms_per_step"] / step)]


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
            chain_specdec.speculate_chain, "context.commit(rows,",
            "context.commit([*rows, n + 1][:len(drafted) + 1],")),
        "another drafter": bias(scale=0.0),
    }
