"""Tables and the sentence on the bottleneck: numbers that can be checked on paper."""

import pytest
import torch

from nanogpt.account import (
    distinct_share,
    histogram,
    logits_before,
    print_bottlenecks,
    print_differences,
    why_not_faster,
)
from nanogpt.decoding import Generation, Step, collect, plain_decode
from nanogpt.sampling import Dice, Sampler
from test_chain_specdec import random_gpt


def test_the_histogram_counts_percent_of_the_steps_and_pools_the_long_ones():
    assert histogram([0, 0, 1, 4, 7]) == "40 20  0  0 40"
    assert histogram([]) == " 0  0  0  0  0"


def generation(tokens, rounds, **ms):
    """A text of `rounds` steps, `tokens` each, that took so many milliseconds by verb."""
    steps = [Step([0] * tokens, tokens, {verb: value / 1e3 for verb, value in ms.items()})
             for _ in range(rounds)]
    return Generation([0] * (tokens * rounds + 1), steps, rounds * sum(ms.values()) / 1e3)


@pytest.mark.parametrize("draft, verify, accept, worst", [
    (3.0, 2.5, 0.5, "drafting"),
    (0.5, 4.0, 0.5, "verifying more than one row"),
    (0.5, 2.5, 3.0, "accepting, committing and Python"),
])
def test_the_largest_part_of_a_round_is_the_bottleneck(draft, verify, accept, worst):
    results = {"plain": [generation(1, 6, verify=1.5, accept=0.5)],
               "x": [generation(3, 2, draft=draft, verify=verify, accept=accept)]}
    sentence, step = why_not_faster("x", results, "plain"), draft + verify + accept
    assert f"bottleneck is {worst}." in sentence
    assert f"3.00 tokens a forward, {6 / step:.2f}x" in sentence
    assert f"A round takes {step:.2f} ms, a plain step 2.00" in sentence
    assert f"drafting {draft:.2f}, verifying more than one row {verify - 2:.2f}" in sentence


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
        assert torch.equal(logits_before(target, [1, 2], tokens[:place]), seen[place])


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
