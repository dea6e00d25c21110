"""The pictures of lesson 01: their bars add up to what they speak of."""

from importlib import import_module

import matplotlib
import pytest
import torch

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402

from chain_specdec import residual  # noqa: E402
from experiments.chain_pictures import (  # noqa: E402
    draw_cost_and_timeline,
    draw_cut,
    draw_k_sweep,
    draw_repair,
    draw_round,
    speedup_uncertainty,
)
from nanogpt.decoding import Generation, Step  # noqa: E402

Line = import_module("01_chain_specdec.bench").Line  # the chapter's room
P, Q = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.6, 0.1, 0.3])


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def test_the_timeline_is_as_long_as_what_it_shows():
    curve = {1: 10.0, 4: 11.0, 5: 12.0}
    cost, timeline = draw_cost_and_timeline(curve, draft_ms=0.5)
    assert list(cost.lines[1].get_ydata()) == [1.0, 1.1, 1.2]
    ends = {y: max(bar.get_x() + bar.get_width() for bar in timeline.patches
                   if abs(bar.get_y() + bar.get_height() / 2 - y) < 1e-9) for y in (0, 1)}
    assert ends == pytest.approx({0: 4 * 0.5 + 12, 1: 5 * 10})


@pytest.mark.parametrize("drawn, total", [
    (residual(P, Q), P), (P, torch.tensor([0.6, 0.16, 0.24]))], ids=["residual", "target"])
def test_kept_and_redrawn_bars_stack_to_what_is_emitted(drawn, total):
    _, emitted = draw_repair(P, Q, drawn)
    tops = [emitted.patches[3 + t].get_y() + emitted.patches[3 + t].get_height() for t in range(3)]
    assert tops == pytest.approx(total.tolist(), abs=1e-6)


def test_the_drafters_panel_stacks_to_q():
    (proposed,) = draw_repair(P, Q)
    tops = [bar.get_y() + bar.get_height() for bar in proposed.patches[3:6]]
    assert tops == pytest.approx(Q.tolist(), abs=1e-6)


def test_a_round_is_compared_with_the_steps_that_bring_as_many_tokens():
    def text(step_tokens, seconds):
        steps = [Step(tokens=[1] * step_tokens, seconds=seconds) for _ in range(4)]
        return Generation([0] + [1] * (4 * step_tokens), steps, 1.0)

    fast = text(3, {"draft": 0.002, "verify": 0.007, "accept": 0.0005, "commit": 0.0005})
    plain = text(1, {"verify": 0.005})
    ax, quotient = draw_round({"chain": [fast], "plain": [plain]}, "chain", "plain")
    assert quotient == pytest.approx(3 * 5 / 10)
    assert max(bar.get_x() + bar.get_width() for bar in ax.patches) == pytest.approx(15)


def test_a_cut_moves_the_length_and_no_cell():
    ax = draw_cut(["a", "b"], ["root", "c", "d"], keep=2)
    cells = {y: [bar.get_x() for bar in ax.patches if bar.get_y() == y] for y in (1.9, 0)}
    assert cells[1.9] == cells[0] == [0, 1, 2, 3, 4]
    told = [text.get_text() for text in ax.texts]
    assert "length 2" in told and "length 4" in told and "overwritten by the next forward" in told


def test_a_sweep_shows_its_points_and_how_uncertain_they_are():
    def texts(seconds):  # two rounds each, of 2 tokens and of 4: see tau_uncertainty
        return [Generation([0] + [1] * 2 * n, [Step([1] * n)] * 2, each)
                for n, each in zip((2, 4), seconds, strict=False)]

    results = {"plain": texts([1, 1]), "bigram, K=2": texts([1 / 2, 1 / 4]),
               "57K GPT, K=2": texts([1, 1])}
    lines = {name: Line(name.split(",")[0], 2, 0.5, 3, 1, 1, 1, 2.5) for name in results
             if name != "plain"}
    for ax, point, errors in zip(draw_k_sweep(lines, results, "plain"), (3, 2.5),
                                 ((2, 2), (2, 0)), strict=True):
        assert [list(curve[0].get_ydata()) for curve in ax.containers] == [[point], [point]]
        bars = [curve[2][0].get_segments()[0][:, 1] for curve in ax.containers]
        assert [(top - low) / 2 for low, top in bars] == pytest.approx(errors)
        left, right = (curve[0].get_xdata()[0] for curve in ax.containers)
        assert 1.9 < left < 2 < right < 2.1  # side by side
        assert [tick.get_text() for tick in ax.get_xticklabels()] == ["2"]
    one = {name: runs[:1] for name, runs in results.items()}
    assert speedup_uncertainty(one["bigram, K=2"], one["plain"]) == 0  # one prompt has no spread
    for runs in one.values():
        runs[0].steps.pop()
    draw_k_sweep(lines, one, "plain")  # nor has one round


def test_a_repair_has_one_legend_without_repeats():
    figure = draw_repair(P, Q, residual(P, Q))[0].figure
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        "target p", "kept, min(p, q)", "rejected", "drawn after a rejection"]
