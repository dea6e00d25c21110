"""The runner and the chapters' benches: numbers that can be checked on paper."""

import gc
import time
from itertools import chain, repeat
from types import SimpleNamespace

import pytest

from nanogpt import bench
from nanogpt import run as runner
from nanogpt.before import worth
from nanogpt.chapter import Loop, decoders, load
from nanogpt.decoding import Generation, Step, plain_decode, timed
from nanogpt.exact.toy_models import random_gpt
from nanogpt.model import KVCache
from nanogpt.sampling import Dice, Sampler
from tree_attention import Tree, speculate, walk


class FakeClock:
    """In place of time.perf_counter: it stands still but for what is told to take time."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)

    def takes(self, seconds, call):
        """-> call, but so many seconds later."""
        def slow(*args, **kwargs):
            self.now += seconds
            return call(*args, **kwargs)
        return slow


def text(brought, ms=0.0, **verbs):
    """A Generation whose steps brought so many tokens each; ms: of a step, by verb or in all."""
    steps = [Step([0] * n, 5, {verb: value / 1e3 for verb, value in verbs.items()})
             for n in brought]
    total = ms or sum(verbs.values())
    return Generation([0] * (1 + sum(brought)), steps, len(brought) * total / 1e3)


def table(out):
    """The cells of a printed table's lines, header and rule left out."""
    return [line.split() for line in out.splitlines()[2:]]


@pytest.mark.parametrize("turn", [1, 2, None])
def test_nobody_pays_for_the_turns_of_others(monkeypatch, turn):
    """Eight steps behind the prefill, of 1 s and of 16 s; nothing stays frozen afterwards."""
    clock = FakeClock(monkeypatch)

    def start(seconds):
        step = clock.takes(seconds, Step)
        return lambda prompt, seed: chain([Step([0])], map(step, repeat([1])))

    results = bench.compare({"fast": start(1.0), "slow": start(16.0)}, [[1]], 9, turn)
    assert [text.seconds for texts in results.values() for text in texts] == [8.0, 8 * 16.0]
    assert gc.get_freeze_count() == 0


def test_prompt_i_has_seed_i_for_everybody_and_the_order_rotates():
    seen = []

    def start(name):
        return lambda prompt, seed: seen.append((name, prompt[0], seed)) or iter([Step([0, 0, 0])])

    bench.compare({name: start(name) for name in "ab"}, [[7], [8]], 3)
    assert seen[2:] == [("a", 7, 0), ("b", 7, 0), ("b", 8, 1), ("a", 8, 1)]  # behind the warm-up


def test_a_line_of_the_table_by_hand(capsys):
    """Rounds of 3, 1 and 2 tokens, 4 ms each, beside plain steps of 2 ms; c(1) = 2, c(6) = 3.

    tau 2 (texts of 4 and 2 tokens, 2 rounds and 1: none is off); 6 tokens in 12 ms; the prompts'
    speed-ups are 4 / 8 * 2 = 1 both; predicted 2 * 2 / (3 + 1).
    """
    ours = [text([3, 1], draft=1, verify=2.5, accept=0.5), text([2], draft=1, verify=2, commit=1)]
    plain = [text([1] * 4, verify=2), text([1] * 2, verify=2)]
    bench.print_account({"x": ours})
    assert table(capsys.readouterr().out) == [["x", "4.00", "1.00", "2.33", "0.33", "0.33"]]
    for g in (*ours, *plain):
        g.tokens = list(range(len(g.tokens)))
    plain[0].tokens[-1] = 99  # one text differs, and not before its last token
    bench.print_results({"plain": plain, "x": ours}, {1: 2.0, 6: 3.0}, greedy=True)
    plain_row, row = table(capsys.readouterr().out)
    assert row == ["x", "5.0", "2.00", "0.00", "33", "33", "33", "0", "0", "1.00x", "500", "1.00x",
                   "1/2"]
    assert plain_row[-3:] == ["500", "1.00x", "2/2"]


def test_two_texts_are_the_same_to_their_last_token(capsys):
    ours, plain = text([2] * 100, 1.0), text([1] * 200, 1.0)
    ours.tokens[-1] = 1
    bench.print_results({"plain": [plain], "x": [ours]}, {1: 1.0, 200: 1.0}, greedy=True)
    assert [row[-1] for row in table(capsys.readouterr().out)] == ["1/1", "0/1"]


def test_the_median_of_what_a_device_works(monkeypatch):
    """It works only while somebody waits for it, in milliseconds; two laps warm it up. c(N) takes N
    milliseconds a cached row, of which there are 16, and half of it in the first laps."""
    clock, queue, laps = FakeClock(monkeypatch), [50.0], iter([9.0, 9.0, 1.0, 2.0, 6.0])

    def wait(device):
        clock.now += sum(queue) / 1e3
        queue.clear()

    monkeypatch.setattr(bench, "synchronize", wait)
    assert bench.median_ms(lambda: queue.append(next(laps)), None, repeats=3, warmup=2,
                           before=lambda: queue.append(50.0)) == pytest.approx(2)
    target, calls = random_gpt(1), []

    def forward(tokens, cache):
        calls.append(tokens.shape[1])
        queue.append(cache.length * calls[-1] / (1 + (calls.count(calls[-1]) < 4)))

    target.forward = forward
    assert bench.cost_curve(target, (1, 2, 16, 17), repeats=5) == pytest.approx(
        {1: 16, 2: 32, 16: 256})


def test_a_scripts_tables_are_measured_in_turns(monkeypatch, capsys):
    """At temperature 0 beside plain decoding's texts."""
    turns = []
    monkeypatch.setattr(bench, "cost_curve", lambda *_, **__: {1: 2.0})
    monkeypatch.setattr(bench, "compare", lambda starts, prompts, n, turn: turns.append(turn) or {
        "plain": [text([1], 2.0)]})
    bench.print_tables(SimpleNamespace(size="baby", max_new_tokens=2), random_gpt(1), [[1]],
                       [Sampler(0), Sampler(1)], lambda sampler: {})
    assert turns == [bench.TURN] * 2 and capsys.readouterr().out.count("same") == 1


def test_what_is_drawn_has_no_row_at_temperature_0_unless_it_stands_for_a_pick():
    loops = load("01").loops + load("02").loops
    cold, warm = (decoders(loops, None, Sampler(T)).keys() for T in (0, 1))
    drawn = {name for name in warm if "drawn" in name or "side" in name}
    assert warm - cold == drawn and len(drawn) == 5 and len(cold) == 18


def test_what_a_chapters_script_runs(monkeypatch):
    """The text has the last temperature, as what stands below the tables; one chain is the rival.
    """
    streamed, rows, ends = [], [], []
    monkeypatch.setattr(runner, "trained_cast", lambda *_: SimpleNamespace(target=random_gpt(1)))
    monkeypatch.setattr(Loop, "steps", lambda *args: streamed.append(args[-2].temperature))
    monkeypatch.setattr(runner.cli, "print_stream", lambda *_: None)
    monkeypatch.setattr(runner, "print_tables", lambda args, target, prompts, samplers, starts_of: (
        rows.append(list(starts_of(samplers[0]))), {s.temperature: s for s in samplers})[1])
    runner.main(load("02").loops[3:4], "", ["--temperatures", "0", "0.5"], ends.append)
    assert streamed == [0.5] and [sampler.temperature for sampler in ends] == [0.5]
    assert rows == [["plain", "chain of 4, 57K GPT", "picked tree 2-2-1-1, bigram"]]


def test_speedups_and_spreads():
    ours, plain = [text([1] * 8, ms) for ms in (4.0, 3.0, 1.0)], [text([1] * 8, 8.0)] * 3
    assert bench.speedup(ours, plain) == pytest.approx(3)  # 24 over 8
    # texts differ much, the methods always by 1: the difference is known for certain
    assert [bench.verdict(more, 1) for more in (-2, -1, 1, 2)] == [
        "ahead", "level", "level", "behind"]
    assert bench.paired([5, 4, 2], [4, 3, 1]) == (1, 0)
    assert bench.paired([3, 1], [1, 1]) == (1, 2)
    assert [bench.interpolate({1: 2.0, 4: 5.0, 8: 5.0}, n) for n in (1, 2, 6, 12)] == [2, 3, 5, 5]
    # tau 2, and each text of two rounds is two tokens off; rounds of one text do not count apart
    assert bench.tau_uncertainty([text([3, 3]), text([1, 1])]) == 2
    assert bench.tau_uncertainty([text([3, 1]), text([2, 2])]) == 0


# seconds, on a fake clock: sums of powers of two say what they are made of
PROPOSE, FORWARD, SAMPLER, DICE, COMMIT, OBSERVE = 1.0, 2.0, 4.0, 8.0, 16.0, 32.0


@pytest.mark.parametrize("drafts", [True, False])
def test_every_verb_is_booked_once_and_under_the_same_name(monkeypatch, drafts):
    """In a round of speculation, and in a plain step."""
    clock, target, dice = FakeClock(monkeypatch), random_gpt(1, block_size=64), Dice(3)
    target.forward = clock.takes(FORWARD, target.forward)
    dice.draw = clock.takes(DICE, dice.draw)
    sampler = clock.takes(SAMPLER, Sampler(0.0))
    monkeypatch.setattr(KVCache, "commit", clock.takes(COMMIT, KVCache.commit))
    drafter = SimpleNamespace(
        reset=lambda: None, observe=clock.takes(OBSERVE, lambda *a: None),
        propose=clock.takes(PROPOSE, lambda root, room: Tree([root, 1, 2, 3], [-1, 0, 0, 1])))
    steps = timed(speculate(target, drafter, [1, 2], sampler, dice, walk) if drafts
                  else plain_decode(target, [1, 2], sampler, dice))
    next(steps)  # the prefill
    for _ in range(4):
        start = clock.now
        step = next(steps)
        assert step.seconds == {
            "draft": PROPOSE * drafts, "verify": FORWARD + SAMPLER,
            "accept": DICE * len(step.tokens), "commit": COMMIT + OBSERVE * drafts}
        assert sum(step.seconds.values()) == clock.now - start


def test_an_earlier_runs_worth_by_hand():
    """Two tokens in a round of 6 ms, where a plain step takes 8."""
    table = {"plain": {"tau": 1.0, "round_ms": 8.0}, "a": {"tau": 2.0, "round_ms": 6.0}}
    assert worth(table)["a"] == (2, 0.75, pytest.approx(8 / 3))
