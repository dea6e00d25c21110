"""Chapter 06: the toy experiment computes what it says, and refuses bad flags."""

import numpy as np
import pytest

from all_rules import RULES, rules_for
from exact import Tables, all_trees
from iid_trees import SHAPES, shape_parents
from toy_experiment import ManyDice, Setting, ToyPair, main


@pytest.mark.parametrize("shape_name", SHAPES)
def test_means_over_drawn_trees_agree_with_the_mean_over_all_trees(shape_name):
    setting = Setting(vocab=3, depth=2)
    pair, parents = ToyPair(setting, 4), shape_parents(SHAPES[shape_name], 2, 2)
    leaves = np.zeros((9, 3))  # as the experiment has it: no expectation reads them
    models = Tables([*pair.draft, leaves], [*pair.target, leaves])
    shape, arrays, _, probability = all_trees(parents, models)
    drawn = pair.draw_trees(shape, 20_000, ManyDice(0))
    for name in rules_for(shape_name, 2):
        expected = probability @ RULES[name].expected_length(shape, *arrays)
        lengths = RULES[name].expected_length(shape, *drawn)
        error = lengths.std() / len(lengths) ** 0.5
        # 6 standard errors: a false alarm in about one of 5e8 comparisons.
        assert abs(lengths.mean() - expected) < 6 * error + 1e-6, name


def test_models_follow_their_parameters():
    """Equal at rho = 1, colder where the temperature is lower, the same noise in all settings."""
    equal = ToyPair(Setting(vocab=5, depth=3, similarity=1.0), 1)
    assert all(abs(d - t).max() == 0 for d, t in zip(equal.draft, equal.target, strict=True))
    warm, cold = (ToyPair(Setting(draft_temperature=t, target_temperature=1.0), 1)
                  for t in (1.0, 0.5))
    squared = warm.draft[2] ** 2
    assert cold.draft[2] == pytest.approx(squared / squared.sum(-1, keepdims=True))
    assert abs(cold.target[2] - warm.target[2]).max() == 0


def test_the_table_by_rule_and_shape(capsys):
    flags = ["--vocab", "4", "--depth", "2", "--trees", "5", "--seeds", "2"]
    main(flags)
    out = capsys.readouterr().out
    assert "paper" not in out and "GBV" in out and "BV  " not in out.replace("GBV", "")
    main([*flags, "--branching", "1"])  # on a chain every lift is block verification
    rows = [line.split()[2:] for line in capsys.readouterr().out.splitlines() if "LV" in line]
    rows = [row[1:] for row in rows]
    assert len(rows) == 3 and rows[0] == rows[1] == rows[2]


