"""Timing: decoders that take turns decode what they decode alone, and pay for nobody else."""

import time

import pytest
import torch

from nanogpt.clock import interpolate, median_ms
from nanogpt.contest import compare, summarize, take_turns
from nanogpt.decoding import Generation, Step, collect, collecting


def decoder(name, per_step, log, seconds=0.0):
    """A prefill of one token, then `per_step` tokens a step; each step is noted and takes time."""
    def start(prompt, seed):
        yield Step([0])
        count = 1
        while True:
            time.sleep(seconds)
            log.append(name)
            yield Step(list(range(count, count + per_step)), drafted=per_step - 1)
            count += per_step
    return start


@pytest.mark.parametrize("turn", [1, 4, 5, 100])
def test_turns_change_no_text(turn):
    starts = {name: decoder(name, n, []) for name, n in (("one", 1), ("three", 3))}
    runs = {name: collecting(start([1], 0), 20) for name, start in starts.items()}
    for name, generation in take_turns(runs, turn).items():
        alone = collect(starts[name]([1], 0), 20)
        assert generation.tokens == alone.tokens == list(range(20))
        assert [s.tokens for s in generation.steps] == [s.tokens for s in alone.steps]


def test_a_turn_ends_after_its_tokens():
    log = []
    runs = {name: collecting(decoder(name, n, log)([1], 0), 9) for name, n in (("a", 1), ("b", 2))}
    take_turns(runs, 5)
    assert "".join(log) == "aaaa" "bb" "aaaa" "bb"


def test_nobody_pays_for_the_turns_of_others():
    starts = {"fast": decoder("fast", 1, []), "slow": decoder("slow", 1, [], seconds=0.02)}
    results = compare(starts, [[1]], 9, turn=2)
    (fast,), (slow,) = results["fast"], results["slow"]
    assert slow.seconds > 8 * 0.02 > 5 * fast.seconds


def test_by_default_a_whole_text_is_a_turn():
    log = []
    compare({name: decoder(name, 1, log) for name in "ab"}, [[1], [1]], 9)
    assert "".join(log) == "a" * 7 + "b" * 7 + "a" * 8 + "b" * 8 + "b" * 8 + "a" * 8


def test_interpolate_is_linear_between_and_beyond():
    curve = {1: 2.0, 4: 5.0, 8: 5.0}
    assert [interpolate(curve, n) for n in (1, 2, 4, 6, 8, 12)] == [2, 3, 5, 5, 5, 5]


def test_what_comes_before_a_call_is_not_timed():
    log = []
    ms = median_ms(lambda: log.append("call"), torch.device("cpu"), repeats=3, warmup=1,
                   before=lambda: (log.append("before"), time.sleep(0.02)))
    assert log == ["before", "call"] * 4 and ms < 10


def test_verbs_are_pooled_over_all_steps():
    """By hand: a text of three steps that draft 1, 2 and 3 s, and one of a step that drafts 6 s."""
    texts = [Generation([0] * (1 + len(laps)),
                        [Step([0], seconds={"draft": lap, "verify": 1}) for lap in laps], 9.0)
             for laps in ((1, 2, 3), (6,))]
    assert summarize(texts)["verb_ms"] == {"draft": 3000, "verify": 1000, "accept": 0, "commit": 0}
