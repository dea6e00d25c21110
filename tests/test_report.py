"""Tables and the sentence on the bottleneck: numbers that can be checked on paper."""

import pytest
import torch
from test_chain_specdec import random_gpt

from nanogpt.generate import Generation, Step
from nanogpt.report import histogram, print_bottlenecks, print_differences, why_not_faster


def test_the_histogram_counts_percent_of_the_steps_and_pools_the_long_ones():
    assert histogram([0, 0, 1, 4, 7]) == "40 20  0  0 40"
    assert histogram([]) == " 0  0  0  0  0"


@pytest.mark.parametrize("draft, verify, step, worst", [
    (3.0, 2.5, 6.0, "drafting"),
    (0.5, 4.0, 5.0, "verifying more than one row"),
    (0.5, 2.5, 6.0, "accepting, committing and Python"),
])
def test_the_largest_part_of_a_round_is_the_bottleneck(draft, verify, step, worst):
    assert f"bottleneck is {worst}." in why_not_faster("x", 3.0, 2.0, draft, verify, step, 1.2)


def test_the_predicted_speed_up_is_tau_times_c1_over_the_cost_of_a_round(capsys):
    """tau 3, c(1) = 2 ms, c(4) = 3 ms, drafting 1 ms: 3 * 2 / (3 + 1) = 1.5."""
    def generation(tokens, steps):
        return Generation([0] * (tokens * len(steps) + 1), steps,
                          sum(sum(s.seconds.values()) for s in steps))

    plain = generation(1, [Step([0], 0, {"verify": 0.002}) for _ in range(6)])
    fast = generation(3, [Step([0, 0, 0], 3, {"draft": 0.001, "verify": 0.003})] * 2)
    print_bottlenecks({"plain": [plain], "ours": [fast]}, "plain", {1: 2.0, 4: 3.0})
    out = capsys.readouterr().out
    assert out.count("1.50x") == 3  # predicted, measured, and once more in the sentence


def test_methods_that_part_at_one_place_share_a_line(capsys):
    target, prompts = random_gpt(1), [[1, 2], [3]]

    def texts(*tokens):
        return [Generation(list(t), [], 1.0) for t in tokens]

    print_differences({"plain": texts([4, 5, 6], [7, 8]), "same": texts([4, 5, 6], [7, 8]),
                       "a": texts([4, 5, 0], [7, 8]), "b": texts([4, 5, 1], [0, 8])},
                      "plain", prompts, target)
    best = [target(torch.tensor([text]))[0][0, -1].topk(2).values for text in ([1, 2, 4, 5], [3])]
    gaps = [f"{float(a - b):.4f}" for a, b in best]
    assert capsys.readouterr().out.splitlines() == [
        f"prompt 0 differs at token 2, where the two best logits are {gaps[0]} apart: a; b",
        f"prompt 1 differs at token 0, where the two best logits are {gaps[1]} apart: b",
    ]
