"""Chapter 06: the lesson's tables of LV beside TV, in numbers that can be checked on paper."""

import numpy as np

from experiments.lift_tables import (
    as_panels,
    print_deeper,
    print_lifts,
    print_toy_gains,
    print_worth,
    toy_lengths,
)
from nanogpt.decoding import Generation, Step

NAMES = [f"{lift} + {step}" for step in ("K-SEQ", "RRS", "GR") for lift in ("TV", "LV")]


def test_the_toy_lengths_become_panels_and_sentences(capsys):
    lengths = toy_lengths((1, 2), 5)
    assert list(lengths) == ["multi-chain", "tapered", "complete"]
    panels = as_panels(lengths)
    assert panels["two chains"]["RRS"]["LV"] == lengths["multi-chain"]["LV + RRS"].mean()
    assert "GBV" in panels["two chains"] and "GBV" not in panels["complete trees"]
    print_toy_gains(lengths)
    assert "of 9 pairs" in capsys.readouterr().out


def test_a_rule_that_is_behind_is_counted_and_its_distance_said(capsys):
    lengths = {"complete": {name: np.array([1.0, 1.2]) for name in NAMES}}
    lengths["complete"]["LV + GR"] = np.array([1.4, 1.8])  # .5 (.1) ahead
    lengths["complete"]["LV + RRS"] = np.array([0.7, 0.9])  # .3 behind, on each tree
    lengths["complete"]["LV + K-SEQ"] = np.array([0.6, 1.0])  # .3 (.1) behind
    lengths["complete"]["LV + RRS"][0] += 0.05
    print_toy_gains(lengths)
    told = capsys.readouterr().out
    assert "in 1 of 3 pairs" in told and "smallest difference is -11 standard errors" in told


def test_deeper_trees_are_compared_pair_by_pair(capsys):
    """LV writes 3.3 tokens for TV's 3, 10 percent, and 2.1 for 2 in flat trees, 5; GR there 20."""
    def lengths(tv, lv):
        return {"complete": {name: np.array([lv if "LV" in name else tv]) for name in NAMES}}

    flat = lengths(1.0, 1.1)
    flat["complete"]["LV + GR"] = np.array([1.4])
    print_deeper(lengths(2.0, 2.3), flat, 2)
    told = capsys.readouterr().out
    assert "of depth 2 LV writes 5.0 to 20.0 percent more" in told and "in 2 of 3 pairs" in told


def test_the_best_rule_is_named_with_its_distance(capsys):
    tau = {name: np.array([2.0, 2.2]) for name in NAMES} | {"TRV": np.array([2.1, 2.1])}
    tau["LV + GR"] = np.array([3.0, 3.2])  # 1 more than 2.1, on each of the trees
    print_lifts(tau, "chains")
    told = capsys.readouterr().out
    assert "2 trees, chains" in told and "+47.6% (0.0)" in told
    assert "without a lift: TRV 2.100; most: LV + GR 3.100, ahead of" in told


def generation(seconds, tokens, steps, **verbs):
    step = Step(tokens=[0], drafted=8, seconds=verbs)
    return Generation([0] * (1 + tokens), [step] * steps, seconds)


def test_the_columns_come_from_the_same_times(capsys):
    """Rounds of 5 and 7 ms with rules of 1 and 3; plain steps of 2. Both: 2 and .5, 1.5 steps."""
    results = {
        "plain": [generation(0.02, 10, 10, verify=0.002)],
        "LV + RRS": [generation(0.05, 30, 10, draft=0.002, verify=0.002, accept=0.001)],
        "LV + GR": [generation(0.07, 30, 10, draft=0.002, verify=0.002, accept=0.003)],
    }
    print_worth(results, "plain", {"LV + RRS": np.array([3.0, 4.5]), "LV + GR": np.array([4.2])})
    told = capsys.readouterr().out
    assert "costs 2.00 plain steps: drafting 1.00, the target's forward 1.00, the rest 0.00" in told
    assert "2.00 + 0.50" in told and "1.50x" in told  # 3.75 / 2.5
    assert "2.00 + 1.50" in told and "1.20x" in told  # 4.2 / 3.5
    assert "fastest on this machine: LV + RRS, 1.50 times" in told
