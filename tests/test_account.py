"""Tables and the sentence on the bottleneck: numbers that can be checked on paper."""

import copy
from types import SimpleNamespace

import pytest
import torch

import chain_specdec
import tree_attention
from chain_specdec import GPTDraft, speculate_chain
from fake_clock import FakeClock
from nanogpt.account import (
    distinct_share,
    extra_ms,
    histogram,
    logits_before,
    print_bottlenecks,
    print_differences,
    why_not_faster,
)
from nanogpt.contest import summarize
from nanogpt.decoding import Generation, Step, collect, plain_decode, timed
from nanogpt.model import KVCache
from nanogpt.printing import print_table
from nanogpt.sampling import Dice, Sampler
from test_chain_specdec import random_gpt
from tree_attention import Tree, speculate, walk


def test_the_histogram_counts_percent_of_the_steps_and_pools_the_long_ones():
    assert histogram([0, 0, 1, 4, 7]) == "40 20  0  0 40"
    assert histogram([]) == " 0  0  0  0  0"


def generation(tokens, rounds, **ms):
    """A text of `rounds` steps, `tokens` each, that took so many milliseconds by verb."""
    steps = [Step([0] * tokens, tokens, {verb: value / 1e3 for verb, value in ms.items()})
             for _ in range(rounds)]
    return Generation([0] * (tokens * rounds + 1), steps, rounds * sum(ms.values()) / 1e3)


@pytest.mark.parametrize("draft, verify, accept, loop, worst", [
    (3.0, 2.5, 0.75, 0.25, "drafting"),
    (0.5, 4.0, 0.75, 0.25, "verifying more than one row"),
    (0.5, 2.5, 3.0, 0.25, "accepting and committing"),
    (0.5, 2.5, 0.75, 3.0, "the loop"),
])
def test_the_largest_part_of_a_round_is_the_bottleneck(draft, verify, accept, loop, worst):
    results = {"plain": [generation(1, 6, verify=1.5, accept=0.25, commit=0.25)],
               "x": [generation(3, 2, draft=draft, verify=verify, accept=accept, other=loop)]}
    sentence, step = why_not_faster("x", results, "plain"), draft + verify + accept + loop
    assert sentence.endswith(
        f"That is why the speed-up is not 3.00x. The largest part is {worst}.")
    assert f"3.00 tokens per forward, {6 / step:.2f}x" in sentence
    assert f"A round takes {step:.2f} ms, a plain step 2.00" in sentence
    assert (f"drafting {draft:.2f}, verifying more than one row {verify - 1.5:.2f}, accepting and "
            f"committing {accept - 0.5:.2f}, the loop {loop:.2f}.") in sentence


@pytest.mark.parametrize("curve_ms, said", [(1.0, True), (1.3, False), (1.75, False), (2.0, True)])
def test_a_machine_that_changed_its_pace_is_named(curve_ms, said, capsys):
    results = {"plain": [generation(1, 6, verify=1.5)], "x": [generation(3, 2, verify=3.0)]}
    print_bottlenecks(results, "plain", {1: curve_ms, 4: 2 * curve_ms})
    told = capsys.readouterr().out
    assert ("the load of this machine changed" in told) == said
    assert not said or f"1.50 ms in the contest and {curve_ms:.2f} ms" in told


def test_a_wide_table_breaks_its_first_column(capsys):
    name = "a tree of independent draws, " * 4
    print_table(["method", "tau"], [["plain", 1], [name, 2]])
    narrow = capsys.readouterr().out.splitlines()
    assert max(map(len, narrow)) <= 100 and len(narrow) == 5
    assert narrow[3].endswith("  2") and narrow[4].startswith("  ")
    print_table(["method", "tau"], [["plain", 1]])
    assert capsys.readouterr().out.splitlines() == ["method  tau", "------  ---", "plain     1"]


def test_the_parts_add_up_to_the_whole_difference():
    """By hand: a plain step of 2 ms; rounds of 6 ms on average, in two texts of unlike rounds."""
    plain = [generation(1, 6, verify=1.75, accept=0.125, commit=0.125)]
    rounds = [generation(3, 2, draft=1, verify=3, accept=1, commit=0.5, other=0.5),
              generation(2, 2, draft=2, verify=2, accept=1, commit=0.5, other=0.5)]
    parts = extra_ms(rounds, plain)
    assert parts == pytest.approx({"drafting": 1.5, "verifying more than one row": 0.75,
                                   "accepting and committing": 1.25, "the loop": 0.5})
    assert sum(parts.values()) == pytest.approx(6 - 2)


@pytest.mark.parametrize("rounds, verdict", [
    # 1.9 ms per round, 2.0 a plain step: more than tau
    ([generation(3, 2, verify=1.9)], "A round costs no more than a plain step, so nothing of tau"),
    ([generation(3, 2, verify=2.0)], "A round costs no more than a plain step, so nothing of tau"),
    ([generation(3, 2, verify=2.001)], "A round costs no more than a plain step, so nothing of"),
    ([generation(3, 2, verify=2.02)], "That is why the speed-up is not 3.00x"),
    # two texts of one round with 3 tokens, one with a hundred rounds of 2: tau 2.02, median 2.86x
    ([generation(3, 1, verify=2.1)] * 2 + [generation(2, 100, verify=2.1)],
     "Tau pools the prompts and the speed-up is their median"),
])
def test_a_speed_up_above_tau_is_told_in_another_way(rounds, verdict):
    results = {"plain": [generation(1, 6, verify=2.0)] * len(rounds), "x": rounds}
    sentence = why_not_faster("x", results, "plain")
    assert verdict in sentence
    assert ("That is why" in sentence) == ("That is why" in verdict)


# ---------------------------------------------------------------- what is booked under which verb


# seconds, on a fake clock: sums of powers of two say what they are made of
PROPOSE, MASK, FORWARD, SAMPLER, DICE, COMMIT, OBSERVE = 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0


class SlowDice(Dice):
    """Dice on a fake clock."""

    def __init__(self, clock):
        super().__init__(3)
        self.draw = clock.takes(DICE, super().draw)


def slow_decoders(clock, monkeypatch):
    """{name: a decoding loop whose parts take so many seconds}."""
    target = random_gpt(1, block_size=64)
    slow_target = copy.copy(target)
    slow_target.forward = clock.takes(FORWARD, target.forward)
    sampler = clock.takes(SAMPLER, Sampler(0.0))
    monkeypatch.setattr(KVCache, "commit", clock.takes(COMMIT, KVCache.commit))
    monkeypatch.setattr(tree_attention, "ancestor_mask",
                        clock.takes(MASK, tree_attention.ancestor_mask))
    chain, tree = GPTDraft(random_gpt(1, block_size=64)), fixed_drafter(clock)
    monkeypatch.setattr(chain_specdec, "draft", clock.takes(PROPOSE, lambda *a: (
        [1, 2, 3], [torch.full((11,), 1 / 11)] * 3)))
    chain.observe = clock.takes(OBSERVE, lambda *a: None)
    return {
        "plain": timed(plain_decode(slow_target, [1, 2], sampler, SlowDice(clock))),
        "chain": timed(speculate_chain(slow_target, chain, [1, 2], 3, sampler, SlowDice(clock))),
        "tree": timed(speculate(slow_target, tree, [1, 2], sampler, SlowDice(clock), walk)),
    }


def fixed_drafter(clock):
    """A drafter that always proposes the root, two children and a grandchild."""
    def propose(root, room):
        return Tree([root, 1, 2, 3], [-1, 0, 0, 1])

    return SimpleNamespace(reset=lambda: None, observe=clock.takes(OBSERVE, lambda *a: None),
                           propose=clock.takes(PROPOSE, propose))


def test_every_loop_books_the_same_thing_under_the_same_verb(monkeypatch):
    clock = FakeClock(monkeypatch)
    for name, steps in slow_decoders(clock, monkeypatch).items():
        next(steps)  # the prefill
        for _ in range(4):
            start = clock.now
            step = next(steps)
            drawn = step.seconds["accept"] / DICE  # coins and draws: as many as the rule asks for
            expected = {"draft": 0, "verify": FORWARD + SAMPLER, "accept": drawn * DICE,
                        "commit": COMMIT}
            if name != "plain":
                expected["draft"] = PROPOSE + (MASK if name == "tree" else 0)
                expected["commit"] += OBSERVE
            assert step.seconds == expected, name
            assert drawn == int(drawn) >= 1
            assert sum(step.seconds.values()) == clock.now - start  # no second is booked twice


def test_the_account_of_decoders_on_a_fake_clock(monkeypatch):
    """Their parts add up, and nothing is left for the loop: the clock stands still there."""
    clock = FakeClock(monkeypatch)
    texts = {name: [collect(steps, 20)]
             for name, steps in slow_decoders(clock, monkeypatch).items()}
    plain = summarize(texts["plain"])
    assert plain["ms_per_step"] == pytest.approx(1e3 * (FORWARD + SAMPLER + DICE + COMMIT))
    for name in ("chain", "tree"):
        parts, line = extra_ms(texts[name], texts["plain"]), summarize(texts[name])
        assert sum(parts.values()) == pytest.approx(line["ms_per_step"] - plain["ms_per_step"])
        assert parts["the loop"] == pytest.approx(0, abs=1e-6)
        assert parts["drafting"] == pytest.approx(1e3 * (PROPOSE + MASK * (name == "tree")))
        assert parts["verifying more than one row"] == pytest.approx(0)


def test_the_predicted_speed_up_is_tau_times_c1_over_the_cost_of_a_round(capsys):
    """tau 3, c(1) = 2 ms, c(4) = 3 ms, drafting 1 ms: 3 * 2 / (3 + 1) = 1.5."""
    results = {"plain": [generation(1, 6, verify=2)], "ours": [generation(3, 2, draft=1, verify=3)]}
    print_bottlenecks(results, "plain", {1: 2.0, 4: 3.0})
    out = capsys.readouterr().out
    assert out.count("1.50x") == 3  # predicted, measured, and once more in the sentence


def test_the_gap_is_the_one_that_plain_decoding_saw():
    """Behind the place where the window slid, a prefill of the whole text sees something else."""
    target, seen = random_gpt(1, block_size=16), []
    sampler = Sampler(0)
    steps = plain_decode(target, [1, 2], lambda logits: seen.append(logits) or sampler(logits),
                         Dice(0))
    tokens = collect(steps, 40).tokens
    for place in (0, 5, 14, 15, 22, 23, 39):
        assert torch.equal(logits_before(target, [1, 2], tokens[:place]), seen[place].flatten())


def test_short_texts_repeat_nothing():
    assert distinct_share([1, 2]) == distinct_share(range(9)) == 1
    assert distinct_share([1] * 9) == 1 / 4


def test_methods_that_part_at_one_place_share_a_line(capsys):
    target, prompts = random_gpt(1), [[1, 2], [3]]

    def texts(*tokens):
        return [Generation(list(t), [], 1.0) for t in tokens]

    print_differences({"plain": texts([4, 5, 6], [7, 8]), "same": texts([4, 5, 6], [7, 8]),
                       "a": texts([4, 5, 0], [7, 8]), "b": texts([4, 5, 1], [0, 8])},
                      "plain", prompts, target)
    best = [target(torch.tensor([text]))[0][0, -1].topk(2).values for text in ([1, 2, 4, 5], [3])]
    gaps = [f"{(a - b).item():.4f}" for a, b in best]
    assert capsys.readouterr().out.splitlines() == [
        f"prompt 0 differs at token 2, where the two best logits are {gaps[0]} apart: a; b",
        f"prompt 1 differs at token 0, where the two best logits are {gaps[1]} apart: b",
    ]
