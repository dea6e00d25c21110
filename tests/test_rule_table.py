"""Chapter 06: the tables of rules on a real target, in numbers that can be checked on paper."""

import re

import numpy as np
import pytest
import torch

from experiments.all_rules import RULES, rules_for
from experiments.rule_table import (
    PLAIN,
    gain,
    methods,
    perplexity,
    print_rules,
    print_same_trees,
    recorded_trees,
    tau_by_tree,
)
from nanogpt.decoding import Generation, Step, collect
from nanogpt.sampling import Sampler
from test_chain_specdec import random_gpt
from test_cli import load_script
from tree_attention import TreeGPT


class FixedTarget:
    """Says (1/2, 1/4, 1/4) whatever it reads, or (1/4, 1/4, 1/2) after token 2."""

    device, block_size = torch.device("cpu"), 6

    def __call__(self, tokens):
        table = torch.tensor([[0.5, 0.25, 0.25]] * 2 + [[0.25, 0.25, 0.5]])
        return table[tokens].log(), None


def test_perplexity_is_that_of_the_emitted_tokens_alone():
    """After the prompt (0, 2): token 2 has 1/2, then 0 has 1/4, then 0 has 1/2: 16 ^ (1/3)."""
    texts = [Generation([2, 0, 0], [], 1.0)]
    value, error = perplexity(FixedTarget(), [[0, 2]], texts, Sampler(1))
    assert value == pytest.approx(16 ** (1 / 3)) and np.isnan(error)  # of one text: not known
    # At temperature 1/2 the distributions are (4, 1, 1) / 6 and (1, 1, 4) / 6: 2/3, 1/6, 2/3.
    cold, _ = perplexity(FixedTarget(), [[0, 2]], texts, Sampler(0.5))
    assert cold == pytest.approx((3 / 2 * 6 * 3 / 2) ** (1 / 3))
    long = [Generation([2, 0, 0, 0, 0, 0, 0], [], 1.0)]  # only what the window holds is scored
    value, _ = perplexity(FixedTarget(), [[0, 2]], long, Sampler(1))
    assert value == pytest.approx(32 ** (1 / 4))


def test_the_perplexity_comes_with_the_standard_error_of_a_mean_over_texts():
    """In units of ln 2: (1, 2, 1) and (2, 2, 2), so 10 over 6 tokens, and texts off by -1 and 1."""
    texts = [Generation([2, 0, 0], [], 1.0), Generation([1, 1, 1], [], 1.0)]
    value, error = perplexity(FixedTarget(), [[0, 2]] * 2, texts, Sampler(1))
    assert value == pytest.approx(2 ** (5 / 3))
    # of the total: sqrt(2 (1 + 1)) = 2; of a token's mean: 2 / 6 = 1/3
    assert error == pytest.approx(2 ** (5 / 3) * np.log(2) / 3)
    assert perplexity(FixedTarget(), [[0, 2]] * 3, texts[:1] * 3, Sampler(1))[1] < 1e-6


def generation(tokens_a_step, steps=4):
    each = [Step([0] * tokens_a_step, 3, {"draft": 0.001, "accept": 0.0005})] * steps
    return Generation([0] * (tokens_a_step * steps + 1), each, 0.002 * steps)


def test_one_line_a_rule_with_lv_over_tv_and_microseconds(capsys):
    results = {PLAIN: [generation(1)], "TV + RRS": [generation(2)], "LV + RRS": [generation(3)]}
    print_rules(results, [[0, 2]], FixedTarget(), Sampler(1))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[-1][:8] == ["LV", "+", "RRS", "3.00", "+50.0%", "1500", "3.00x", "500"]
    assert lines[-2][:7] == ["TV", "+", "RRS", "2.00", "1000", "2.00x", "500"]


def test_gain_is_a_paired_comparison():
    """Differences 1, 0, 2 on a mean of 2: 50 percent; their deviation is 50 percent of it."""
    percent, error = gain(np.array([2.0, 3.0, 4.0]), np.array([1.0, 3.0, 2.0]))
    assert percent == pytest.approx(50)
    assert error == pytest.approx(50 / 3 ** 0.5)


@pytest.fixture(scope="module")
def results():
    target, small = random_gpt(3), TreeGPT(random_gpt(103))
    starts = methods(target, small, Sampler(1), Sampler(1, top_k=5), "multi-chain", 2, 3)
    return {name: [collect(start([1, 2, 3], seed), 40) for seed in range(2)]
            for name, start in starts.items()}


def test_every_rule_decodes_and_drafts_the_shape_that_it_was_given(results):
    assert list(results) == [PLAIN, *rules_for("multi-chain", 2)] and "BV" not in results
    for name, generations in results.items():
        drafted = {step.drafted for g in generations for step in g.steps}
        assert max(drafted) == (0 if name == PLAIN else 6), name


def test_recorded_trees_are_spread_over_all_decoders(results):
    everything = recorded_trees(results, 10 ** 6)
    assert len(everything) == sum(len(step.detail.tree) > 1 for generations in results.values()
                                  for g in generations for step in g.steps if step.detail)
    few = recorded_trees(results, 20)
    assert 10 < len(few) <= 20
    assert all((a[1] == b[1]).all()
               for a, b in zip(few, everything[::-(-len(everything) // 20)], strict=True))


def test_tau_on_the_same_trees_counts_the_accepted_and_the_next_token(results, capsys):
    trees = recorded_trees(results, 30)
    tau = tau_by_tree({"TRV": RULES["TRV"]}, trees)["TRV"]
    for value, tree in zip(tau, trees, strict=True):
        ends, _ = RULES["TRV"].judge(*tree)
        assert value == pytest.approx(1 + float(ends[0] @ tree[0].depths))
    means = print_same_trees(results, 30)
    assert means["TRV"] == pytest.approx(tau.mean())
    line = next(x for x in capsys.readouterr().out.splitlines() if x.startswith("LV + GR"))
    percent = 100 * (means["LV + GR"] / means["TV + GR"] - 1)
    assert float(re.search(r"([+-][\d.]+)%", line)[1]) == pytest.approx(percent, abs=0.006)


def test_the_script_prints_all_tables(monkeypatch, capsys, tmp_path):
    script = load_script("06")
    models = {"draft": random_gpt(1, 62, 64), "baby": random_gpt(2, 62, 64)}
    monkeypatch.setattr(script, "get_gpt", lambda size, *a: models[size].float())
    monkeypatch.setattr(script, "held_out_prompts", lambda *a: [[1, 2, 3]])
    script.main(["--shape", "complete", "--depth", "2", "--temperature", "0.6", "--top-p", "0.9",
                 "--max-new-tokens", "6", "--prompts", "1", "--precision", "float32",
                 "--out", str(tmp_path)])
    text = capsys.readouterr().out
    assert script.STREAMED in RULES and "ROMEO:" in text
    for part in ("7 nodes", "temperature 0.6, top-p 0.9", "rule, us", "perplexity", "expected tau",
                 "LV over TV", "c(N) ms", "predicted", "The largest part is"):
        assert part in text, part
    assert "GBV" not in text and (tmp_path / "rules.png").exists()
