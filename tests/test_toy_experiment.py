"""Chapter 06: the toy experiment computes what it says, and refuses bad flags."""

import csv

import numpy as np
import pytest

import toy_experiment
from nanogpt import cli
from exact import Tables, all_trees
from experiments import rule_cost
from experiments.all_rules import RULES, rules_for
from iid_trees import SHAPES, shape_parents
from toy_experiment import ManyDice, Setting, ToyPair, main, run_setting


def test_models_follow_their_parameters():
    """Equal at rho = 1, colder where the temperature is lower, the same noise in all settings."""
    equal = ToyPair(Setting(vocab=5, depth=3, similarity=1.0), 1)
    assert [t.shape for t in equal.draft] == [(1, 5), (5, 5), (25, 5)]
    for draft, target in zip(equal.draft, equal.target, strict=True):
        assert abs(draft - target).max() == 0 and draft.sum(-1) == pytest.approx(1)
    warm, cold = (ToyPair(Setting(draft_temperature=t, target_temperature=1.0), 1)
                  for t in (1.0, 0.5))
    squared = warm.draft[2] ** 2
    assert cold.draft[2] == pytest.approx(squared / squared.sum(-1, keepdims=True))
    assert abs(cold.target[2] - warm.target[2]).max() == 0
    # rho u + (1 - rho) eps: logits of two models correlate with rho^2 / (rho^2 + (1 - rho)^2).
    apart = ToyPair(Setting(depth=4, similarity=0.25), 2)
    logs = [np.log(side[3]) - np.log(side[3]).mean(-1, keepdims=True)
            for side in (apart.draft, apart.target)]
    assert np.corrcoef(logs[0].ravel(), logs[1].ravel())[0, 1] == pytest.approx(0.1, abs=0.02)


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


def test_standard_error_is_that_of_the_seeds():
    class NoBar:
        def update(self):
            pass

    setting = Setting(vocab=4, depth=2)
    results = run_setting(setting, ["complete"], range(3), 10, NoBar())
    each = [toy_experiment.mean_lengths(setting, "complete", seed, 10)["TRV"] for seed in range(3)]
    mean, error = results["complete", "TRV"]
    assert mean == pytest.approx(np.mean(each))
    assert error == pytest.approx(np.std(each, ddof=1) / 3 ** 0.5)


def test_the_script_prints_its_table_and_writes_figures_and_numbers(tmp_path, capsys):
    main(["--vocab", "4", "--depth", "2", "--trees", "5", "--sweep-trees", "3", "--seeds", "2",
          "--sweep", "depth", "branching", "--out", str(tmp_path / "new")])
    text = capsys.readouterr().out
    assert "LV + GR" in text and "branching 3" in text and "paper" not in text
    files = sorted(path.name for path in (tmp_path / "new").iterdir())
    assert files == ["toy_branching.png", "toy_depth.png", "toy_experiment.csv"]
    with open(tmp_path / "new" / "toy_experiment.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert {row["branching"] for row in rows} == {"1", "2", "3"}
    on_chain = [float(row["accepted"]) for row in rows
                if row["branching"] == "1" and row["depth"] == "2"
                and row["shape"] == "complete" and row["method"].startswith("LV")]
    assert len(on_chain) == 3 and max(on_chain) - min(on_chain) < 1e-9


def test_table_1_is_printed_beside_ours(capsys, tmp_path):
    main(["--trees", "2", "--seeds", "2", "--sweep", "--shapes", "multi-chain",
          "--out", str(tmp_path)])
    assert "2.66 (0.03)" in capsys.readouterr().out


def test_costs_are_printed_for_every_rule(capsys):
    rule_cost.print_costs(count=1, size="draft", device="cpu")
    text = capsys.readouterr().out
    for name in (*rule_cost.ON_TREES, *rule_cost.ON_CHAINS, "a quarter of it"):
        assert name in text


@pytest.mark.parametrize("flags, what", [
    (["--depth", "0"], "depth is 0"),
    (["--branching", "-1"], "branching is -1"),
    (["--similarity", "1.5"], "similarity is 1.5"),
    (["--draft-temperature", "0"], "draft_temperature is 0.0"),
    (["--target-temperature", "nan"], "target_temperature is nan"),
    (["--vocab", "100", "--depth", "9"], "at most 20000000"),
    (["--seeds", "0"], "seeds is 0"),
    (["--trees", "0"], "trees is 0"),
    (["--out", __file__], "cannot be made"),
])
def test_bad_flags_are_one_sentence_and_exit_status_2(flags, what, capsys, tmp_path):
    with pytest.raises(SystemExit) as stop:
        cli.run(lambda: main(["--out", str(tmp_path), *flags]))
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert what in error and error.count("\n") == 1
