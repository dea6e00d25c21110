"""Timing: decoders that take turns decode what they decode alone, and pay for nobody else."""

import pytest
import torch

from fake_clock import FakeClock
from nanogpt.clock import interpolate, median_ms
from nanogpt.contest import compare, predicted_speedup, speedup, summarize, take_turns
from nanogpt.decoding import Generation, Step, collect, collecting


def decoder(name, per_step, log):
    """A prefill of one token, then `per_step` tokens per step; each step is noted: log(name)."""
    def start(prompt, seed):
        yield Step([0])
        count = 1
        while True:
            log(name)
            yield Step(list(range(count, count + per_step)), drafted=per_step - 1)
            count += per_step
    return start


@pytest.mark.parametrize("turn", [1, 4, 5, 100])
def test_turns_change_no_text(turn):
    starts = {name: decoder(name, n, print) for name, n in (("one", 1), ("three", 3))}
    runs = {name: collecting(start([1], 0), 20) for name, start in starts.items()}
    for name, generation in take_turns(runs, turn).items():
        alone = collect(starts[name]([1], 0), 20)
        assert generation.tokens == alone.tokens == list(range(20))
        assert [s.tokens for s in generation.steps] == [s.tokens for s in alone.steps]


def test_a_turn_ends_after_its_tokens():
    log = []
    runs = {name: collecting(decoder(name, n, log.append)([1], 0), 9)
            for name, n in (("a", 1), ("b", 2))}
    take_turns(runs, 5)
    assert "".join(log) == "aaaa" "bb" "aaaa" "bb"


@pytest.mark.parametrize("turn", [1, 2, None])
def test_nobody_pays_for_the_turns_of_others(monkeypatch, turn):
    """Eight steps behind the prefill, of 1 s and of 16 s."""
    clock = FakeClock(monkeypatch)
    starts = {name: decoder(name, 1, clock.takes(seconds, str))
              for name, seconds in (("fast", 1.0), ("slow", 16.0))}
    results = compare(starts, [[1]], 9, turn)
    assert [text.seconds for texts in results.values() for text in texts] == [8.0, 8 * 16.0]
    assert speedup(results["fast"], results["slow"]) == 16


def test_by_default_a_whole_text_is_a_turn():
    log = []
    compare({name: decoder(name, 1, log.append) for name in "ab"}, [[1], [1]], 9)
    assert "".join(log) == "a" * 7 + "b" * 7 + "a" * 8 + "b" * 8 + "b" * 8 + "a" * 8


def test_interpolate_is_linear_between_and_beyond():
    curve = {1: 2.0, 4: 5.0, 8: 5.0}
    assert [interpolate(curve, n) for n in (1, 2, 4, 6, 8, 12)] == [2, 3, 5, 5, 5, 5]


def test_what_comes_before_a_call_is_not_timed(monkeypatch):
    log, clock = [], FakeClock(monkeypatch)
    ms = median_ms(clock.takes(0.25, lambda: log.append("call")), torch.device("cpu"), repeats=3,
                   warmup=1, before=clock.takes(4.0, lambda: log.append("before")))
    assert log == ["before", "call"] * 4 and ms == 250


def test_the_first_calls_warm_up_and_the_median_counts(monkeypatch):
    clock = FakeClock(monkeypatch)
    laps = iter([64.0, 32.0, 1.0, 16.0, 2.0])

    def call():
        clock.now += next(laps)

    assert median_ms(call, torch.device("cpu"), repeats=3, warmup=2) == 2000


def test_a_speed_up_is_the_median_over_the_prompts():
    """8 tokens in 4, 2 and 1 s against 8 s each: 2, 4 and 8 times as fast."""
    ours = [Generation([0] * 9, [], seconds) for seconds in (4.0, 2.0, 1.0)]
    assert speedup(ours, [Generation([0] * 9, [], 8.0)] * 3) == 4


def test_the_prediction_knows_drafting_and_the_forward_alone():
    """tau 3, c(1) = 2 ms, c(4) = 3 ms, drafting 1 ms: 3 * 2 / (3 + 1)."""
    assert predicted_speedup(3, {1: 2.0, 4: 3.0}, 4, 1.0) == 1.5


def test_a_line_of_the_table_by_hand():
    """Two texts: steps of 3 and 1 tokens in 3 s, one of 2 tokens in 1 s; 5, 5 and 2 drafts."""
    texts = [Generation([0] * 5, [Step([0] * 3, 5), Step([0], 5)], 3.0),
             Generation([0] * 3, [Step([0] * 2, 2)], 1.0)]
    line = summarize(texts)
    assert (line["tau"], line["tokens_per_second"], line["drafted"]) == (2, 1.5, 4)
    assert line["ms_per_step"] == pytest.approx(4000 / 3) and line["accepted"] == [2, 0, 1]


def test_verbs_are_pooled_over_all_steps():
    """By hand: a text of three steps that draft 1, 2 and 3 s, and one of a step that drafts 6 s."""
    texts = [Generation([0] * (1 + len(laps)),
                        [Step([0], seconds={"draft": lap, "verify": 1}) for lap in laps], 9.0)
             for laps in ((1, 2, 3), (6,))]
    assert summarize(texts)["verb_ms"] == {"draft": 3000, "verify": 1000, "accept": 0, "commit": 0}
