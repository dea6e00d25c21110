"""The contest of all methods: who takes part, on which prompts, what is kept, what it says."""

import doctest
import json
import math
from itertools import chain, repeat
from types import SimpleNamespace

import pytest
import torch

import merging_room
import routing_room
from nanogpt import does_it_pay, three_numbers
from chain_room import foretold
from dual_draft_routing import ColderHead, RoutedLevels, colder
from nanogpt.before import in_short
from nanogpt.bench import in_pieces
from nanogpt.chapter import Loop, chapters
from nanogpt.data import Dataset, held_out_prompts, load_dataset, untouched_prompts
from nanogpt.decoding import Generation, Step, collect, plain_decode
from nanogpt.does_it_pay import (
    MEASURED,
    best_of_all,
    contestants,
    decide,
    groups,
    leaders,
    load_contest,
    load_contests,
    main,
    span,
    speedups,
    to_store,
    together,
)
from nanogpt.exact.toy_models import random_gpt
from nanogpt.packing import for_decoding
from nanogpt.pictures import maps
from nanogpt.pictures.plots import GREY
from nanogpt.sampling import Dice, Sampler
from nanogpt.three_numbers import alpha_of, best, chain_tokens, gpu, tree_tokens, yours
from nanogpt.train import get_gpt
from test_bench import FakeClock
from train_heads import random_heads
from tree_attention import Tree

# ---------------------------------------------------------------- who takes part


def test_no_method_of_any_chapters_table_is_missing():
    found = contestants()
    for chapter in chapters():
        for loop in chapter.loops:
            missing = set(loop.budgets) - set(loop.contest)
            assert not missing, f"{loop.name} has {missing} in its table, and not in the contest"
            assert loop.family != Loop.family, f"{loop.name} says no family"
            assert {f"{chapter.number} {loop.title(b)}" for b in loop.contest} <= found.keys()
    assert len(found) == sum(len(loop.contest) for c in chapters() for loop in c.loops)


YOUNGER = {("06", name + rule) for name, rules in (
    ("one head, two chains of {}, ", ("GBV", "TRV")),
    ("two chains of {}, never repeating, ", ("TV + GR", "LV + GR"))) for rule in rules}
# loops that no stored contest holds yet, in chapters of which it holds others


def test_every_loop_stands_in_a_stored_contest_or_is_younger():
    stored = {(line["chapter"], line["loop"])
              for folder in (MEASURED, MEASURED / "one_loop")
              for found in load_contests(folder).values()
              for table in found["tables"].values() for line in table["methods"].values()
              if "loop" in line}
    measured = {number for number, _ in stored}
    everybody = {(chapter.number, loop.name) for chapter in chapters()
                 if chapter.number in measured for loop in chapter.loops}
    assert everybody - stored == YOUNGER


def test_a_pattern_chooses_some():
    assert {entry[2]["family"] for entry in contestants("one head").values()} == {"one head"}
    with pytest.raises(ValueError, match="only is .nobody., which matches no method; there are"):
        contestants("nobody")
    with pytest.raises(ValueError, match="only is '.*'; it must be a regular expression"):
        contestants("(")


def test_nothing_was_chosen_on_a_prompt_of_the_contest():
    """Each token of this text is its own place, so a prompt shows where it was taken from."""
    dataset = Dataset("char", None, torch.arange(9), torch.arange(5000), "")
    prompts = untouched_prompts(dataset, 24, length=10)
    assert prompts == untouched_prompts(dataset, 48, length=10)[::2]  # the fixed tree has the rest
    assert prompts == untouched_prompts(dataset, 72, length=10)[::3]
    places = [place for prompt in prompts for place in prompt]
    assert len(set(places)) == 240 and max(places) - min(places) > 4500
    for n in range(1, 25):
        for prompt in held_out_prompts(dataset, n, length=10):
            assert not set(prompt) & set(places), n
    # Of two chosen prompts the second begins at 464.
    dataset.val = torch.arange(500)
    assert untouched_prompts(dataset, 9, length=35, but=2)[-1][-1] < 454
    with pytest.raises(ValueError, match="prompts is 400; the validation text has"):
        untouched_prompts(dataset, 400, length=10)


def test_no_prompt_of_the_contest_stands_in_the_training_text():
    dataset = load_dataset()
    train = dataset.tokenizer.decode(dataset.train.tolist())
    for prompt in untouched_prompts(dataset, 72):
        assert dataset.tokenizer.decode(prompt)[:40] not in train


@pytest.mark.slow
def test_the_greedy_texts_of_the_contest_run_into_one_phrase():
    """Why no table has T = 0: 24 texts that are nearly one."""
    dataset = load_dataset()
    target = for_decoding(get_gpt("baby", dataset, torch.device("cpu")))
    for prompt in untouched_prompts(dataset, 24):
        run = collect(plain_decode(target, prompt, Sampler(0), Dice(0)), 64)
        assert "the stand" in dataset.tokenizer.decode(run.tokens)


# ---------------------------------------------------------------- what is kept


def test_what_is_kept_of_a_method():
    def step(tokens, form="one launch"):
        seconds = {"draft": 0.001, "verify": 0.002, "commit": 0.004}
        return Step([0] * tokens, tokens + 1, seconds, form=form)

    runs = [Generation([0] * 6, [step(3), step(2)], 0.016), Generation([0] * 6, [step(5)], 0.01)]
    assert to_store(runs) == {"rounds": [2, 1], "ms": [16.0, 10.0], "drafts": 4.33,
                            "verbs": [1.0, 2.0, 0.0, 4.0], "form": "one launch"}
    runs[1].steps[0].form = "eager"
    assert to_store(runs)["form"] == "eager, one launch"


def test_a_text_that_was_held_up_is_written_again_from_its_seed(monkeypatch):
    """The second of three waits for something else, for as long again as half a step, each step."""
    clock, seen = FakeClock(monkeypatch), []

    def start(prompt, seed):
        seen.append((prompt[0], seed))
        step = clock.takes(1.5 if seen.count((8, 1)) == 1 == seed else 1.0, Step)
        return chain([Step([0])], map(step, repeat([1])))

    monkeypatch.setattr(does_it_pay, "plains", lambda target, sampler, name: {name: start})
    monkeypatch.setattr(does_it_pay, "cost_curve", lambda *_, **__: {1: 1.0})
    found = does_it_pay.measure(
        SimpleNamespace(target=None), {"plain": None}, {}, [[7], [8], [9]], 4, 1.0)
    assert found["methods"]["plain"]["ms"] == [3000.0] * 3 and seen[-1] == (8, 1)


def test_records_of_rounds_are_not_kept():
    steps = [Step([1], detail=object()), Step([2, 3], 4, detail=object())]
    assert list(does_it_pay.forgetful(steps)) == [Step([1]), Step([2, 3], 4)]


@pytest.mark.parametrize("slow, stands", [(0.7, True), (2.9, True), (3.1, False)])
def test_plain_decoding_runs_in_each_precision_that_can_win(monkeypatch, slow, stands):
    ms = {"plain, float32": 2.0, "plain, bfloat16": 2.0 * slow}
    monkeypatch.setattr(does_it_pay, "for_decoding", lambda model, precision: precision)
    monkeypatch.setattr(does_it_pay, "precision_of", lambda model: "float32")

    def compare(starts, prompts, tokens, turn):
        assert len(prompts) == 2 and tokens > turn  # more than the prefill's
        return {name: [Generation([0, 0], [Step([0])], ms[name] / 1e3)] for name in starts}

    monkeypatch.setattr(does_it_pay, "compare", compare)
    targets, found = does_it_pay.plain_targets(
        SimpleNamespace(target="mine", trained="trained"), [[1]] * 3)
    assert found == pytest.approx(ms) and targets["plain, float32"] == "mine"
    assert targets.get("plain, bfloat16") == ("bfloat16" if stands else None)


FLAGS = ["--size", "small", "--prompts", "2", "--max-new-tokens", "6"]


def test_a_contest_in_pieces(tmp_path, capsys):
    """Temperatures come into one file; what draws has no line at 0; the file is shown again."""
    path = tmp_path / "here.json"
    cold, warm = "one head, 8 nodes|drawn chain of 2", "chain of 3, bigram|drawn chain of 2"
    main([*FLAGS, "--temperatures", "0", "--only", cold, "--save", str(path)])
    main([*FLAGS, "--temperatures", "1", "--only", warm, "--save", str(path)])
    with pytest.raises(ValueError, match="which this run would drop; save it in another file"):
        main([*FLAGS, "--temperatures", "1", "--only", "of 3, bigram", "--save", str(path)])
    found = load_contest(path)
    assert list(found["tables"]) == ["0", "1"] and found["tokens"] == 5
    for T, entries in (("0", contestants(cold)), ("1", contestants(warm))):
        methods = found["tables"][T]["methods"]
        expected = {name for name, (loop, *_) in entries.items() if loop.runs_at(float(T))}
        assert methods.keys() - expected == {
            name for name in methods if name.startswith("plain, ")} != set()
        for line in methods.values():
            assert len(line["ms"]) == len(line["rounds"]) == 2 and line["form"] == "eager"
            assert sum(line["ms"]) >= sum(line["rounds"]) * sum(line["verbs"]) - 0.02
    capsys.readouterr()
    main(["--show", str(path)])
    shown = capsys.readouterr().out
    assert all(name in shown for T in found["tables"] for name in found["tables"][T]["methods"])


def test_another_setting_goes_into_another_file(tmp_path):
    path = tmp_path / "here.json"
    setting = {"machine": "here", "tokens": 5}
    does_it_pay.save(path, does_it_pay.begin(path, setting))
    assert does_it_pay.begin(path, setting) == setting | {"tables": {}}
    with pytest.raises(ValueError, match="measured with tokens 5, this run has 6; save it in anot"):
        does_it_pay.begin(path, setting | {"tokens": 6})
    path.write_text("[]")
    with pytest.raises(ValueError, match="here.json' cannot be read as a contest"):
        load_contest(path)


# ---------------------------------------------------------------- what it says

# Two texts of 8 tokens each. The bfloat16 step is the faster one: 2 ms.
LINES = {
    "plain, float32": ("plain", None, [8, 8], [24, 20]),
    "plain, bfloat16": ("plain", None, [8, 8], [18, 14]),
    "01 chain of 2, 57K GPT": ("57K GPT", True, [4, 4], [12, 8]),  # 2 tokens at a price of 1.25
    "01 chain of 4, 57K GPT": ("57K GPT", True, [2, 2], [12.2, 8.3]),  # always a bit slower
    "03 one head, 8 nodes": ("one head", False, [2, 6], [8, 13]),  # now faster, now slower
}


def contest(scale=1.0, T="1", lines=LINES):
    """A file as `main` saves it, made by hand; scale: of the milliseconds of all but plain ones."""
    methods = {name: {"family": family, "rounds": rounds, "form": "eager",
                      "ms": [x * (scale if drawn is not None else 1) for x in ms]}
               | ({} if drawn is None else {
                   "chapter": name[:2], "drawn": drawn, "budget": int(name.split()[3].strip(",")),
                   "loop": "chain of {}, 57K GPT" if drawn else "one head, {} nodes"})
               for name, (family, drawn, rounds, ms) in lines.items()}
    return {"machine": "here", "size": "small", "precision": "bfloat16", "prompts": 2, "tokens": 8,
            "tables": {T: {"curve": [[1, 2.0]], "methods": methods}}}


def test_speedup_is_tokens_over_price_over_the_fastest_plain_decoding():
    found = speedups(contest(), 1)
    assert found["plain, bfloat16"] == (1, 1, 1)
    assert found["plain, float32"] == pytest.approx((1, 44 / 32, 32 / 44))
    assert found["01 chain of 2, 57K GPT"] == pytest.approx((2, 1.25, 1.6))
    assert found["03 one head, 8 nodes"] == pytest.approx((2, 21 / 16, 32 / 21))
    with pytest.raises(ValueError, match="temperature is 0; measured were 1"):
        speedups(contest(), 0)


def test_level_is_what_the_same_texts_cannot_tell_apart():
    """The chain of 4 is slower on every text by about the same; the head now faster, now slower."""
    best, level = leaders(contest(), 1, list(LINES))
    assert (best, level) == ("01 chain of 2, 57K GPT", ["03 one head, 8 nodes"])
    more, error = does_it_pay.behind(contest(), 1, best)["01 chain of 4, 57K GPT"]
    assert (more, error) == pytest.approx((0.5 / 16, 0.1 / 8))  # of two, 2 se: their distance


def test_who_was_chosen_on_some_texts_is_judged_on_the_others():
    """The first text alone, and the second: rounds and milliseconds, of plain decoding, too."""
    one, other = does_it_pay.divided(contest(), [0])
    for part, text in (one, 0), (other, 1):
        for name, (_, _, rounds, ms) in LINES.items():
            line = part["tables"]["1"]["methods"][name]
            assert (line["rounds"], line["ms"]) == ([rounds[text]], [ms[text]])
    assert speedups(one, 1)["plain, bfloat16"][2] == speedups(other, 1)["plain, bfloat16"][2] == 1
    head = [speedups(part, 1)["03 one head, 8 nodes"][2] for part in (one, other)]
    assert head[0] != head[1]


def test_a_third_of_the_texts_judges():
    """Three texts: two choose, one judges; in 40 divisions each of them has judged."""
    found = contest() | {"prompts": 3, "tables": {"1": {"methods": {
        "plain": {"family": "plain", "rounds": [1, 2, 3], "ms": [1, 2, 3]}}}}}
    parts = [[part["tables"]["1"]["methods"]["plain"]["rounds"] for part in pair]
             for pair in does_it_pay.divisions(found, 40)]
    assert all(sorted(choose + judge) == [1, 2, 3] for choose, judge in parts)
    assert {tuple(judge) for _, judge in parts} == {(1,), (2,), (3,)}
    assert parts[:5] == [[part["tables"]["1"]["methods"]["plain"]["rounds"] for part in pair]
                         for pair in does_it_pay.divisions(found, 5)]


def test_the_lengths_of_a_chain():
    fast = speedups(contest(), 1)
    assert does_it_pay.lengths(contest(), 1, "01 chain of {}, 57K GPT") == {
        k: fast[f"01 chain of {k}, 57K GPT"] for k in (2, 4)}


def test_a_gap_is_counted_in_plain_steps():
    """behind() in milliseconds, of a plain step's: see LINES."""
    pair = "01 chain of 4, 57K GPT", "01 chain of 2, 57K GPT"
    step = does_it_pay.plain_step(contest(), 1)
    assert does_it_pay.gap(contest(), 1, *pair) == pytest.approx(
        [100 * ms / step for ms in (0.5 / 16, 0.1 / 8)])


def test_a_cell_of_the_closing_table():
    which = maps.kind_of(contest()["tables"]["1"]["methods"]["01 chain of 2, 57K GPT"])
    found = contest()
    assert maps.cell(found, *which) == "**2: 1.60**"
    assert maps.cell(found, 2, "nobody's") == ""


def test_everybody_stands_in_a_group():
    assert groups(contest(), 1) == {
        "all": list(LINES), "picked": ["03 one head, 8 nodes"],
        "drawn": ["01 chain of 2, 57K GPT", "01 chain of 4, 57K GPT"],
        "57K GPT": ["01 chain of 2, 57K GPT", "01 chain of 4, 57K GPT"],
        "one head": ["03 one head, 8 nodes"]}
    assert not {"picked", "drawn"} & groups(contest(T="0"), 0).keys()


def test_two_machines_and_the_range_of_both():
    """On the second one all rounds cost twice as much, and plain decoding wins."""
    files = {"fast": contest(), "slow": contest(2.0), "cold": contest(T="0")}
    decided = decide(files, 1)
    assert decided["all"]["fast"] == (
        "01 chain of 2, 57K GPT", ["03 one head, 8 nodes"], pytest.approx((0.8, 1.6)))
    assert decided["all"]["slow"][0] == "plain, bfloat16"
    assert decided["one head"].keys() == {"fast", "slow"}
    assert span(files, 1, "03 one head, 8 nodes") == pytest.approx((16 / 21, 32 / 21))


def test_the_best_of_a_kind_over_several_machines():
    """On the second one plain decoding wins, so nobody is in front on both."""
    files = {"fast": contest(), "slow": contest(3.0), "cold": contest(T="0")}
    name, fast, front = best_of_all(files, 1)["57K GPT"]
    assert (name, front) == ("01 chain of 2, 57K GPT", False)
    assert fast == pytest.approx({"fast": 1.6, "slow": 1.6 / 3})
    assert best_of_all({"fast": contest()}, 1)["one head"][2]  # level with the fastest
    # Who ran on the good one only is no better for it: 1.56x there, not 1.60x and 1.33x.
    files = {"fast": contest(), "slow": contest(1.2)}
    del files["slow"]["tables"]["1"]["methods"]["01 chain of 4, 57K GPT"]
    assert best_of_all(files, 1)["57K GPT"][0] == "01 chain of 2, 57K GPT"
    assert best_of_all(files, 1).get("lookup") is None
    # A little ahead on the good one and far behind on the slow one is behind on average.
    four = "01 chain of 4, 57K GPT"
    files = {file: contest(scale, lines=LINES | {four: ("57K GPT", True, [2, 2], ms)})
             for file, scale, ms in (("good", 1, [11, 8]), ("slow", 3, [30, 20]))}
    assert speedups(files["good"], 1)[four] > speedups(files["good"], 1)[name]
    assert best_of_all(files, 1)["57K GPT"][0] == name


def test_few_words_for_many_methods():
    methods = contest()["tables"]["1"]["methods"]
    assert together(list(LINES), methods) == [
        "plain, float32", "plain, bfloat16", "01 chain of 2 / 4, 57K GPT", "03 one head, 8 nodes"]
    shape = {"02 picked tree 2-1": {"chapter": "02", "loop": "picked tree {}", "budget": [2, 1]}}
    assert together(shape, shape) == ["02 picked tree 2-1"]
    name = "06 chain of 4, bigram, block verification"
    assert does_it_pay.briefly(name, "bigram") == "bigram: chain of 4, BV"


def test_an_earlier_run_in_short():
    table = {"plain": {"tau": 1, "round_ms": 2}, "it": {"tau": 3, "round_ms": 4}}
    run = {"tables": {"T = 1": table}, "curve": [[1, 2], [8, 3]]}
    assert in_short(run, "it") == (2, 4, 1.5, 1.5)


def test_all_is_printed(capsys):
    does_it_pay.show({"fast": contest(), "slow": contest(2.0)})
    out = capsys.readouterr().out
    assert "the baseline is plain, bfloat16; c(N), ms: 1: 2.00" in out
    assert "all, fast: 01 chain of 2, 57K GPT, 1.60x, 0.80x to 1.60x over the files\n" in out
    assert "      level: 03 one head, 8 nodes\n" in out
    row = [line.split() for line in out.splitlines() if line.startswith("03 one head")][0]
    assert row[5:] == ["2.00", "2.00", "1.31", "1.52x", "0.06", "1.12"]
    json.dumps(decide({"fast": contest()}, 1))  # ready for a page


def test_what_is_measured_is_shown_although_it_cannot_be_kept(monkeypatch, capsys, tmp_path):
    """The disk is full: the file stays as it was."""
    path = tmp_path / "here.json"
    for name, value in {"trained_cast": SimpleNamespace(target=random_gpt(1, vocab=9)),
                        "machine": "here", "plain_targets": ({}, {}),
                        "measure": contest()["tables"]["1"]}.items():
        monkeypatch.setattr(does_it_pay, name, lambda *_, value=value: value)
    flags = ["--temperatures", "1", "--prompts", "2", "--max-new-tokens", "9", "--save", str(path)]
    main(flags)
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space")

    monkeypatch.setattr("os.replace", full)
    capsys.readouterr()
    with pytest.raises(ValueError, match="here.json cannot be written: No space"):
        main(flags)
    assert "01 chain of 2" in capsys.readouterr().out
    assert path.read_bytes() == before and len(list(tmp_path.iterdir())) == 1


# ---------------------------------------------------------------- the map


def test_a_loop_is_a_curve_over_its_budgets():
    assert maps.curves(contest(), 1) == {
        ("01", "chain of {}, 57K GPT"): {
            "01 chain of 2, 57K GPT": pytest.approx((2, 1.25)),
            "01 chain of 4, 57K GPT": pytest.approx((4, 20.5 / 8))},
        ("03", "one head, {} nodes"): {"03 one head, 8 nodes": pytest.approx((2, 21 / 16))}}


def test_the_map_has_a_curve_for_the_best_loop_of_each_family_and_a_point_for_all():
    another = LINES | {"05 chain of 9, 57K GPT": ("57K GPT", True, [2, 2], [4, 4])}
    assert maps.fastest(contest(lines=another), 1) == {
        "57K GPT": ("05 chain of 9, 57K GPT", ("05", "chain of {}, 57K GPT")),
        "one head": ("03 one head, 8 nodes", ("03", "one head, {} nodes"))}
    ax = maps.draw_map(contest(), 1, "title", {"01 chain of 4, 57K GPT": ("this", (9, 0))})
    at = {text.get_text(): text.xy for text in ax.texts if hasattr(text, "xy")}
    assert at["this: 1.56x"] == at["57K GPT"] == pytest.approx((20.5 / 8, 4))
    assert at["the fastest:\n57K GPT,\nchain of 2"] == (1.25, 2) and "one head" in at
    grey, = (line for line in ax.lines if line.get_color() == GREY and line.get_marker() == "o")
    assert grey.get_xdata() == pytest.approx([1.25, 20.5 / 8, 21 / 16])  # price across
    assert grey.get_ydata() == pytest.approx([2, 4, 2])
    curve, = (line for line in ax.lines if line.get_color() == maps.FAMILIES["57K GPT"]
              and line.get_linewidth() == 2)
    assert list(curve.get_ydata()) == pytest.approx([2, 4])


def test_a_bar_ends_where_its_speed_up_does():
    ax = maps.draw_left("title", [("head", []), ("one", [2.5]), ("between", [2, 2.25])])
    assert [bar.get_width() for bar in ax.patches] == [2.5, 0, 2, 0.25]


def test_a_curve_of_a_map_stands_where_its_points_are():
    ax = maps.draw_lines("title", {"chains": ("C0", "o-", 1, {"1": (2, 1.25), "2": (3, 1.5)})},
                         (0, 4, 0, 5), rays=(1,), dashed=[2])
    at = {text.get_text(): text.xy for text in ax.texts if hasattr(text, "xy")}
    assert at == {"1": (1.25, 2), "2": (1.5, 3), "chains": (1.5, 3), "plain": (1, 1)}
    assert [line.get_xydata().tolist() for line in ax.lines[:3]] == [
        [[1.25, 2], [1.5, 3]], [[0, 0], [4, 4]], [[0, 0], [2.5, 5]]]


# ---------------------------------------------------------------- three numbers


def test_the_worked_examples():
    assert doctest.testmod(three_numbers) == (0, 3)
    assert tree_tokens(0.6, 3) == pytest.approx((1 + 0.6 + 0.36 + 0.216, 3))
    assert tree_tokens(0.6, 5) == pytest.approx((1 + 0.6 + 0.36 + 0.216 + 0.1296 + 0.12, 4))
    assert tree_tokens(0, 4) == (1, 0) and tree_tokens(1, 4) == (5, 4)


def test_a_tree_of_one_guess_a_position_is_a_chain(monkeypatch):
    monkeypatch.setattr(three_numbers, "SECOND", 0)
    for alpha, n in ((0.3, 2), (0.8, 7)):
        assert tree_tokens(alpha, n) == pytest.approx((chain_tokens(alpha, n), n))


def test_alpha_is_found_again():
    for alpha, k in ((0.0, 3), (0.31, 1), (0.744, 4), (1.0, 16)):
        assert alpha_of(chain_tokens(alpha, k), k) == pytest.approx(alpha, abs=1e-9)
    with pytest.raises(ValueError, match=r"tau is 5.1; with 4 drafts it must be in \[1, 5\]"):
        alpha_of(5.1, 4)


def test_the_price_of_a_round():
    """Forwards of the drafter, the target's first row, and what the other rows add."""
    found = yours(draft=0.25, rows=40, alpha=0.5)
    assert found["chain of {}"][4] == (1.9375, 4 * 0.25 + 1 + 4 / 40)
    two = tree_tokens(0.5, 8, 2)  # a third level would write .17 tokens more, and cost .25 steps
    assert found["tree of {} nodes"][8] == (two[0], two[1] * 0.25 + 1 + 8 / 40)
    passed = yours(draft=0.25, rows=40, alpha=0.5, one_pass=True)
    assert passed["chain of {}"][4] == (1.9375, 0.25 + 1 + 4 / 40)
    assert best({"chain of {}": {1: (1.5, 1.25), 2: (2.0, 1.25)}}) == ("chain of 2", 1.6)
    assert best(yours(draft=2, rows=1, alpha=0.1)) == ("plain decoding", 1)
    for bad in ((-1, 1, 0), (0, 0, 0), (0, 1, 1.1)):
        with pytest.raises(ValueError, match="they must be at least 0, above 0, and in"):
            yours(*bad)


def test_a_large_model_has_free_rows_up_to_the_bend():
    """32 users with 9 rows each bring 288, and 300 are free; of 600 users each row costs."""
    assert [gpu(32)(n) for n in (1, 9, 18)] == pytest.approx([1, 1, 32 * 18 / 300])
    assert gpu(600)(2) == pytest.approx(2)
    assert gpu(100, 200)(4) == pytest.approx(2)
    assert yours(0.1, gpu(32), 0.5)["chain of {}"][4] == pytest.approx((1.9375, 1.4))
    assert best(yours(0.1, gpu(600), 0.7)) == ("plain decoding", 1)


def test_a_tree_is_as_deep_as_it_pays():
    """Eight nodes in at most three levels: .7, .49, .343; the root's second guess, .3 * .35; two of
    .0735 and two of .05145. Where a pass costs half a step, more levels do not pay."""
    assert tree_tokens(0.7, 8, 3) == pytest.approx((1 + 1.533 + 0.105 + 0.147 + 0.1029, 3))
    tokens, price = yours(0.5, gpu(), 0.7)["tree of {} nodes"][8]
    assert price < 1 + 0.5 * tree_tokens(0.7, 8)[1]
    assert tokens / price > tree_tokens(0.7, 8)[0] / (1 + 0.5 * tree_tokens(0.7, 8)[1])


def test_two_timed_chains_foretell_the_others():
    """Of alpha .8, a draft of .1 and a rest of 1.2, as two chains show them."""
    points = {k: (k, chain_tokens(0.8, k), 1.2 + 0.1 * k) for k in (1, 3, 4, 12)}
    assert three_numbers.timed(points[3], points[12]) == pytest.approx((0.1, 1.2, 0.8))
    said = three_numbers.foretold(*three_numbers.timed(points[3], points[4]))
    assert [said[k] for k in points] == pytest.approx(
        [tokens / price for _, tokens, price in points.values()])


def test_one_alpha_foretells_all_lengths():
    """Two texts of 8 tokens: chains of 2 write 2 tokens a round, those of 4 write 4."""
    found = does_it_pay.taus(contest(), 1, "01", "chain of {}, 57K GPT")
    assert found == {2: 2, 4: 4}
    alpha = alpha_of(4, 4)
    assert foretold(found, alpha, 9999) == {
        2: pytest.approx((1 + alpha + alpha ** 2, 2), 1e-3), 4: pytest.approx((4, 4), 1e-3)}


# ---------------------------------------------------------------- verse and code


KINDS = {"verse": SimpleNamespace(val=torch.arange(9000) * 7 % 11),
         "code": SimpleNamespace(val=torch.arange(9000) * 3 % 11)}


@pytest.fixture(scope="module")
def readers():
    """A random target with a window of 256, and three random heads on it."""
    target = random_gpt(2, block_size=256)
    return target, dict(zip(("verse", "code", "both"), [
        *random_heads(target, 1), random_heads(target, 2)[1]], strict=True))


def test_decoding_a_text_again_is_decoding_it(readers, monkeypatch):
    """Greedy, row for row: every method of the replay accepts what its real decoder accepts."""
    target, heads = readers
    monkeypatch.setattr(merging_room, "WIDTH", 3)  # the decoders' own
    found = merging_room.row_for_row(target, KINDS, heads, Sampler(0), (6,), 1)["The kind stays"][6]
    m = SimpleNamespace(target=target, heads=list(heads.values())[:2])
    loops = {loop.name: loop for chapter in chapters() for loop in chapter.loops}
    head = ["head 1 alone, {} nodes", "head 2 alone, {} nodes"]
    names = {"code head": head[1], "the surer head": "routed heads, {} nodes",
             "trie": "trie of both heads, {} nodes",
             "side by side": "both heads side by side, {} nodes"}

    def real(name, prompt):  # the last round is cut
        steps = loops[name].steps(m, 6, prompt, Sampler(0), Dice(0))
        return collect(steps, 60).accepted[:-1]

    for kind, text in enumerate(KINDS):
        prompt, = held_out_prompts(KINDS[text], 1)
        for method, name in {**names, "prompt's own head": head[kind]}.items():
            expected = real(name, prompt)
            assert found[method][kind][:len(expected)] == expected, method
    assert len(set(map(str, found.values()))) > 6  # they differ


def test_methods_by_hand():
    """Behind the root come 1, 2, 3. Verse is surer of 1 then 2, code of 5, then 1; the head for
    both has all three."""
    trees = [Tree([0, 1, 2], [-1, 0, 1]), Tree([0, 5, 1], [-1, 0, 0]),
             Tree([0, 1, 2, 3], [-1, 0, 1, 2])]
    scores = [[0, -1, -1.5], [0, -0.5, -2], [0, -1, -1, -1]]

    def lengths(kind, n):
        found = merging_room.accepted(trees, scores, [1, 2, 3], kind, n)
        return {method: length for method, (length, _) in found.items()}

    assert lengths(0, 2) == {
        "verse head": 2, "code head": 1, "prompt's own head": 2, "one head for both": 2,
        "side by side": 1, "surest of both": 1, "the surer head": 1, "trie in turns": 1, "trie": 1,
        "the oracle": 2}
    assert lengths(1, 4) == {
        "verse head": 2, "code head": 1, "prompt's own head": 1, "one head for both": 3,
        "side by side": 2, "surest of both": 2, "the surer head": 1, "trie in turns": 2, "trie": 2,
        "the oracle": 2}


def test_a_record_by_hand():
    """The code head is surer everywhere. It fails at 0 and at 1; there the verse head had 3 and 1
    right, but at 1 only one token of the 3 is known, and at 2 two and one."""
    steps = {root: routing_room.Proposal(lengths, [.1, .2])
             for root, lengths in enumerate([[3, 0], [1, 0], [0, 5], [2, 0], [0, 0], [0, 0]])}
    assert routing_room.by_record(steps) == [0, 1, 2]
    # Equal records: the surer one.
    steps[0].lengths = steps[1].lengths = [0, 0]
    assert routing_room.by_record(steps) == [0, 0, 5]
    # Behind the second token verse is known to have 2 right and code 1, though code will have 9.
    steps = {root: routing_room.Proposal(lengths, [.1, .2])
             for root, lengths in enumerate([[5, 0], [0, 9], [1, 7]])}
    assert routing_room.by_record(steps) == [0, 0, 1]


def test_promises_that_are_remembered_by_hand():
    """Promised together: code .3, .4 and .4, verse .1, .3 and .5."""
    steps = {root: routing_room.Proposal([0, 0] if root < 2 else [2, 1], means)
             for root, means in enumerate([[.1, .3], [.2, .1], [.2, 0]])}
    assert routing_room.rounds_by(steps, "the surest so far") == [0, 0, 2]


def test_a_text_of_two_kinds_by_hand():
    """Two of verse, two of code, then the third of each; no draft reaches into another piece."""
    texts = [{7 + i: routing_room.Proposal([9, i], [], kind, future=[8 + i, 9 + i])
              for i in range(3)} for kind in (0, 1)]
    pieces = in_pieces(texts, 2).items()
    assert {root: (step.kind, step.lengths, step.future) for root, step in pieces} == {
        0: (0, [1, 0], [8]), 1: (0, [0, 0], []), 2: (1, [1, 0], [8]), 3: (1, [0, 0], []),
        4: (0, [0, 0], []), 5: (1, [0, 0], [])}


def test_a_trie_by_letters_by_hand():
    """A row for one guess: verse says .4 for 1, code .5 for 2, which is wrong. If verse is twice as
    probable, .4 times 2 / 3 is more than .5 times 1 / 3. A guess of both has the mean, .45."""
    trees = [Tree([0, 1], [-1, 0]), Tree([0, 2], [-1, 0])]
    scores = [[0, math.log(.4)], [0, math.log(.5)]]
    steps = {root: merging_room.Drafted([1, 0], [], future=[1], trees=trees, scores=scores)
             for root in range(3)}
    told = {0: 0, 1: math.log(2), 2: 0}
    assert merging_room.by_weight(steps, 1, told) == [0, 1]
    assert merging_room.by_weight(steps, 1, dict.fromkeys(told, 0)) == [0, 0, 0]
    mixed = merging_room.weigh([trees[0]] * 2, scores, [.5, .5])
    assert mixed == [[0, pytest.approx(math.log(.45))]] * 2


def test_every_router_of_the_lesson_has_its_row(capsys):
    step = routing_room.Proposal([1, 0, 2], [.2, .1, .3])
    known = {"verse": [{0: step}] * 2, "code": [{0: step}] * 2}
    routing_room.print_taus(routing_room.replayed(known, routing_room.ROUTERS),
                            routing_room.GAINS)
    rows = {line.split("  ")[0]: line.split()[-3:]
            for line in capsys.readouterr().out.splitlines()}
    for router, tokens in (
            ("code head", 1), ("the surer head", 2), ("its record", 2), ("the prompt", 2),
            ("one head for both", 3), ("the oracle", 2)):
        assert rows[router] == [f"{tokens:.2f}"] * 3, router
    assert rows["the oracle, over code head:"][0] == "+100.0%"


def test_what_a_head_says_and_gets(capsys):
    """In verse the surer head reaches further, in code the other one. Eight nodes of .25 are 2."""
    known = {kind: [{0: routing_room.Proposal(lengths, [.25, .125, 0])}]
             for kind, lengths in (("verse", [2, 1, 0]), ("code", [0, 3, 0]))}
    routing_room.print_opinions(known)
    assert [line.split() for line in capsys.readouterr().out.splitlines()[2:]] == [
        ["verse/verse", "2.00", "2.00", "1.00", "100%", "0%"],
        ["code/verse", "1.00", "1.00", "1.00", "0%", "0%"],
        ["verse/code", "2.00", "0.00", "0.00", "0%", "100%"],
        ["code/code", "1.00", "3.00", "3.00", "0%", "0%"]]


def test_how_far_each_method_is_ahead(capsys):
    """Rounds of two tokens, where the trie has three."""
    names = ["trie", *merging_room.RIVALS]
    merging_room.print_rows(
        {"stays": {8: {name: [[1 + (name == "trie")]] * 2 for name in names}}}, [8])
    row, = (line for line in capsys.readouterr().out.splitlines() if line.startswith("side by"))
    assert row.split()[3] == "+50.0%"


@pytest.mark.slow  # the lesson prints both tables, too
def test_the_room_prints_every_method(readers, monkeypatch, capsys):
    target, heads = readers
    monkeypatch.setattr(merging_room, "get_kinds", lambda *_: (KINDS, target, heads))
    merging_room.main(["--budgets", "2", "4", "--prompts", "2"])
    out = capsys.readouterr().out
    for name in ("the oracle", *merging_room.RIVALS):
        assert out.count(f"\n{name}  ") >= 4, name
    with pytest.raises(ValueError, match="at least 2"):
        merging_room.main(["--prompts", "1"])


def test_the_head_with_the_likelier_favourite_drafts_the_round():
    levels, asked = RoutedLevels([]), []

    def head(name, row):
        def level(tokens, parents):
            asked.append((name, tokens))
            return torch.tensor([row]).log()
        return SimpleNamespace(level=level)

    levels.drafters = [head("a", [0.5, 0.3, 0.2]), head("b", [0.1, 0.6, 0.3])]
    assert levels.level([7], [-1]).exp().tolist()[0] == pytest.approx([0.1, 0.6, 0.3])
    levels.level([1], [0])
    assert asked == [("a", [7]), ("b", [7]), ("b", [1])]
    levels.drafters = [head("c", [0.9, 0.1, 0.0]), *levels.drafters]  # chosen anew
    levels.level([7], [-1])
    assert levels.chosen is levels.drafters[0]


def test_a_colder_head_is_as_sure_as_its_temperature_says(readers):
    """Half the temperature: probabilities squared, and normalised again. Its text is its own."""
    target, heads = readers
    head, hidden = heads["verse"], target(torch.tensor([[1, 2, 3]]))[1]
    cold = ColderHead(head, 0.5)
    for one in (head, cold):
        one.observe([1, 2, 3], hidden, [0, 1, 2])
    usual, mine = (one.read(one.state, [4])[0].exp() for one in (head, cold))
    torch.testing.assert_close(mine, usual ** 2 / (usual ** 2).sum(-1, keepdim=True))
    cold.reset()
    assert cold.state is None and head.state is not None
    assert colder(head, 0).temperature == 0.25
    assert colder(head, 1).temperature == 1
