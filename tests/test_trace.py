"""The pictures that move tell the truth: dice, recording, traces, frames."""

import json
import re
import runpy

import pytest
import torch

from chain_specdec import acceptance_probability, speculate_chain
from exact import ToyDraft, ToyModel, ToyTarget
from experiments.coin_frames import tell_coins
from layer_verification import LayerVerification
from nanogpt.decoding import collect
from nanogpt.pictures import step_page
from nanogpt.pictures.recording import (
    Recorded,
    VisibleDice,
    guesses_of,
    instructive,
    remember,
    watch,
)
from nanogpt.pictures.story import Story, listed, several, short, unit_interval
from nanogpt.sampling import Sampler
from single_step_rules import KSEQ
from small_traces import CASES, CHAPTERS, all_traces
from tree_attention import TreeDrafter, multi_round, speculate, walk

# ---------------------------------------------------------------- the dice


def test_visible_dice_obeys_the_rules_of_dice():
    """On an even grid of u every value comes as often as its probability says."""
    grid = [(i + 0.5) / 1000 for i in range(1000)]
    probs = torch.tensor([0.0, 0.25, 0.0, 0.5, 0.25, 0.0])
    dice = VisibleDice(numbers=grid)
    counts = torch.bincount(torch.tensor([dice.draw(probs) for _ in grid]), minlength=6)
    assert counts.tolist() == [0, 250, 0, 500, 250, 0]
    dice = VisibleDice(numbers=grid)
    assert sum(dice.flip(0.3) for _ in grid) == 300


@pytest.mark.parametrize("u", [0.0, 0.5, 1 - 2**-53])
def test_visible_dice_at_the_ends(u):
    """Never a token of probability 0, never an index out of range, sure coins are sure."""
    dice = VisibleDice(numbers=[u] * 5)
    assert dice.draw(torch.tensor([0.0, 1.0, 0.0])) == 1
    assert dice.draw(torch.tensor([0.0, 0.1, 0.1, 0.1, 0.0])) in (1, 2, 3)
    assert dice.draw(torch.tensor([3.0])) == 0
    assert dice.flip(1.0) is True and dice.flip(0.0) is False


def test_visible_dice_is_seeded_and_takes_weights_that_sum_to_any_number():
    probs = torch.tensor([1.0, 2.0, 5.0])
    first, second, other = ([dice.draw(probs) for _ in range(400)] for dice in (
        VisibleDice(7), VisibleDice(7), VisibleDice(8)))
    assert first == second != other
    shares = torch.bincount(torch.tensor(first), minlength=3) / 400
    assert torch.allclose(shares, probs / 8, atol=0.08)


def test_rolls_show_what_decided():
    dice = VisibleDice(numbers=[0.69, 0.7, 0.2])
    assert [dice.draw(torch.tensor([0.2, 0.5, 0.3])) for _ in range(2)] == [1, 2]
    dice.flip(0.25)
    assert [roll.u for roll in dice.rolls] == [0.69, 0.7, 0.2]
    assert [roll.value for roll in dice.rolls] == [1, 2, True]
    assert dice.rolls[2].p == 0.25 and float(dice.rolls[0].probs[1]) == pytest.approx(0.5)


# ---------------------------------------------------------------- recording


PROMPT = [1, 0, 2]
RULES = {"chain": None, "multi-round": multi_round, "walk": walk,
         "layers": LayerVerification(KSEQ)}


def decoder(rule, dice, target=None):
    """A decoding loop on toy models -> start(target); see watch."""
    sampler, draft = Sampler(1.0), ToyDraft(ToyModel(2, scale=1.2))
    if rule == "chain":
        return lambda target: speculate_chain(target, draft, PROMPT, 3, sampler, dice)
    sampled = rule in ("multi-round", "layers")
    drafter = TreeDrafter(draft, (2, 2) if rule != "layers" else (1, 1),
                          sampler, dice if sampled else None)
    return lambda target: speculate(target, drafter, PROMPT, sampler, dice, RULES[rule])


def read_of(rule):
    if rule != "chain":
        return {}
    chapter = runpy.run_path(str(step_page.chapters()["01"] / "experiments" / "step_through.py"))
    return {"read": chapter["read_chain"]}


def recorded(rule, seed=3, count=12, numbers=()):
    dice = VisibleDice(seed, numbers)
    target = ToyTarget(ToyModel(1, scale=1.5), block_size=24)
    return watch(decoder(rule, dice), target, PROMPT, dice, count, **read_of(rule)), dice


@pytest.mark.parametrize("rule", RULES)
def test_a_watched_decoder_emits_what_an_unwatched_one_does(rule):
    steps, dice = recorded(rule)
    plain = decoder(rule, VisibleDice(3))(ToyTarget(ToyModel(1, scale=1.5), block_size=24))
    tokens = collect(plain, 200).tokens
    seen = [token for step in steps for token in step.emitted]
    assert tokens[1:1 + len(seen)] == seen  # token 0 came from the prefill
    assert len(seen) >= 12


@pytest.mark.parametrize("rule", RULES)
def test_a_recorded_run_replays_from_its_numbers(rule):
    steps, dice = recorded(rule)
    again, _ = recorded(rule, seed=99, numbers=[roll.u for roll in dice.rolls])
    for one, other in zip(steps, again, strict=True):
        assert (one.tokens, one.path, one.emitted) == (other.tokens, other.path, other.emitted)
        assert [r.value for r in one.rolls] == [r.value for r in other.rolls]
    assert sum(len(step.rolls) for step in steps) == len(dice.rolls) - 1  # but for the prefill's


@pytest.mark.parametrize("rule", RULES)
def test_kept_rows_are_the_caches(rule):
    """What a step says it kept is what the next step finds committed."""
    steps, _ = recorded(rule, count=40)
    for step, following in zip(steps, steps[1:], strict=False):
        read = [step.tokens[row] for row in step.kept]
        assert step.text + read == following.text
        assert step.kept == step.path
        slid = following.length < step.length
        assert slid or following.length == step.length + len(step.kept)
    assert any(later.length < step.length
               for step, later in zip(steps, steps[1:], strict=False)), "the window never slid"


def test_remember_changes_nothing_else():
    class Adder:
        def add(self, a, b=1):
            return a + b

    adder = Adder()
    results = remember(adder, "add")
    assert (adder.add(2), adder.add(2, b=5)) == (3, 7) and results == [3, 7]
    assert Adder().add(1) == 2 and len(results) == 2


def test_guesses_of_two_drafters_keep_the_larger():
    """Root -> a by both drafters, one of them with a child."""
    guesses = guesses_of([0, 1, 1, 2], [-1, 0, 0, 1],
                         torch.tensor([1.0, 0.5, 0.25, 0.1]).log().tolist(), 3)
    assert float(guesses[0, 1]) == pytest.approx(0.5)
    assert float(guesses[1, 2]) == pytest.approx(0.2)
    assert int(guesses.isnan().sum()) == 12 - 2


# ---------------------------------------------------------------- all six chapters


@pytest.fixture
def traces():
    return all_traces()


def test_every_chapter_has_a_step_through():
    assert CHAPTERS == ["01", "02", "03", "04", "05", "06"]


@pytest.mark.parametrize("chapter", CASES)
def test_a_trace_is_plain_data(traces, chapter):
    trace = traces[chapter]
    assert json.loads(json.dumps(trace, allow_nan=False)) == trace
    nodes, last = trace["nodes"], trace["frames"][-1]
    assert trace["frames"][0]["verb"] == "draft" and last["verb"] == "commit"
    assert last["kept"] == trace["kept"] == last["accepted"]
    assert sorted(trace["kept"] + last["rejected"]) == list(range(trace["verified"]))
    path = [nodes[row]["token"] for row in trace["kept"]]
    assert trace["emitted"][:-1] == path[1:]
    assert last["next"] == {"text": trace["emitted_text"][-1], "parent": trace["kept"][-1]}
    for row in range(trace["verified"]):
        parent = nodes[row]["parent"]
        above = trace["mask"][parent] if parent >= 0 else []
        assert trace["mask"][row] == [*above, row] and nodes[row]["depth"] == len(above)


@pytest.mark.parametrize("chapter", CASES)
def test_every_u_fell_where_the_frame_says(traces, chapter):
    lines = [line for frame in traces[chapter]["frames"] for line in frame["lines"]]
    assert lines
    for line in lines:
        assert sum(s["p"] for s in line["segments"]) == pytest.approx(1, abs=1e-5)
        assert sum(s["hit"] for s in line["segments"]) == 1
        before = 0.0
        for segment in line["segments"]:
            if segment["hit"]:
                assert before - 1e-5 <= line["u"] <= before + segment["p"] + 1e-5
            before += segment["p"]
    shown = [line["u"] for line in lines]
    assert shown == [draw["u"] for draw in traces[chapter]["draws"]], "a roll is left out"


@pytest.mark.parametrize("chapter", CASES)
def test_what_was_shown_stays_shown(traces, chapter):
    frames = traces[chapter]["frames"]
    for before, after in zip(frames, frames[1:], strict=False):
        assert after["shown"] >= before["shown"]
        assert set(after["rejected"]) >= set(before["rejected"])
    for frame in frames:
        assert not set(frame["kept"] or []) & set(frame["rejected"])
        assert frame["text"] and max(frame["focus"], default=0) < frame["shown"]


def test_the_coins_that_are_told_are_those_that_were_thrown(traces):
    """min(1, target / drafter) from the bars of a frame is the p of its line."""
    seen = 0
    for chapter in ("01", "02", "01 shipped", "02 shipped"):
        for frame in traces[chapter]["frames"]:
            for line in frame["lines"]:
                if line["segments"][0]["text"] == "keep":
                    row = next(r for r in frame["bars"][0]["rows"] if r["marked"])
                    ratio = min(1, row["target"] / row["draft"])
                    assert line["segments"][0]["p"] == pytest.approx(ratio, abs=1e-3)
                    seen += 1
    assert seen >= 8


@pytest.mark.parametrize("chapter", CASES)
def test_bars_are_distributions_and_agree_with_the_dice(traces, chapter):
    """None sums to more than 1, and a drawn token's bar is as long as its segment."""
    compared = 0
    for frame in traces[chapter]["frames"]:
        charts = [chart for chart in frame["bars"] if chart["target_name"]]
        for chart in charts:
            for key in ("target", "draft"):
                values = [row[key] for row in chart["rows"] if row[key] is not None]
                assert all(0 <= value <= 1 for value in values)
                if key == "target" or chart["guess_name"] != "the larger q":  # of two heads
                    assert sum(values) <= 1 + 1e-5, frame["text"]
        hits = [s for line in frame["lines"] for s in line["segments"]
                if s["hit"] and s["text"] not in ("keep", "reject")]
        marked = [row for chart in charts for row in chart["rows"] if row["marked"]]
        if hits and frame["verb"] == "draft":
            assert {row["text"] for row in marked} == {hit["text"] for hit in hits}
            first = charts[0]["rows"]  # the first draft is drawn from the first chart as it is
            assert any(row["marked"] and row["draft"] == pytest.approx(hits[0]["p"], abs=1e-5)
                       for row in first)
            compared += 1
        elif hits and charts:
            assert [row["text"] for row in marked] == [hits[0]["text"]]
            assert marked[0]["target"] == pytest.approx(hits[0]["p"], abs=1e-5)
            compared += 1
    assert compared


@pytest.mark.parametrize("chapter", CASES)
def test_drafting_takes_a_few_frames(traces, chapter):
    """A handful of nodes a frame, each node once, in order."""
    frames = [f for f in traces[chapter]["frames"] if f["verb"] == "draft"]
    assert [row for f in frames for row in f["focus"]] \
        == list(range(1, len(traces[chapter]["nodes"])))
    assert 2 <= len(frames) <= 4 and all(f["bars"] for f in frames)


@pytest.mark.parametrize("chapter", CASES)
def test_every_verdict_has_its_numbers(traces, chapter):
    """A frame that judges shows bars; the panels that it does not need are hidden."""
    for frame in traces[chapter]["frames"]:
        assert bool(frame["bars"]) == (frame["verb"] not in ("verify", "commit")), frame["text"]


@pytest.mark.parametrize("chapter", CASES)
def test_nodes_carry_their_probabilities(traces, chapter):
    trace = traces[chapter]
    for row, node in enumerate(trace["nodes"]):
        assert (node["p"] is None) == (row == 0 or row >= trace["verified"])
        assert (node["q"] is None) == (row == 0)
        assert all(0 <= node[key] <= 1 for key in "pq" if node[key] is not None)


@pytest.mark.parametrize("chapter", CASES)
def test_no_caption_gives_away_what_the_reader_is_asked_to_find(traces, chapter):
    trace = traces[chapter]
    said = [trace["idea"]] + [text for frame in trace["frames"]
                              for text in (frame["text"], frame["gif"] or "")]
    for text in said:
        assert not re.search(r"min\(|max\(|norm\(|p / q|p - q|\bphi\b|lambda|mean of", text), text


@pytest.mark.parametrize("chapter", CASES)
def test_what_a_step_brought(traces, chapter):
    """Accepted drafts and the target's own token are the step's tokens; the rest is forgotten."""
    trace, last = traces[chapter], traces[chapter]["frames"][-1]
    said = re.fullmatch(
        r"The cache keeps rows? ([\d, ]+?)(?: and forgets the other (\w+))?\. One forward brought "
        r"(\d+) tokens?: (.*)\. The last one is the next root\.", last["text"], re.S)
    assert [int(row) for row in said[1].split(",")] == trace["kept"]
    forgotten = {"one": 1, None: 0}.get(said[2]) if said[2] in ("one", None) else int(said[2])
    assert forgotten == trace["verified"] - len(trace["kept"])
    assert int(said[3]) == len(trace["emitted"]) == len(trace["kept"])
    assert said[4] == " ".join(f"'{text}'" for text in trace["emitted_text"])
    assert trace["nodes"][0]["parent"] == -1 and trace["kept"][0] == 0
    for above, row in zip(trace["kept"], trace["kept"][1:], strict=False):
        assert trace["nodes"][row]["parent"] == above


def test_multi_round_is_told_as_it_went():
    """Against the decoder's own coins, on every step of a run, not only on the chosen one."""
    steps, _ = recorded("multi-round", count=40)
    for step in steps:
        story = Story(step, lambda tokens: "abcd"[tokens[0]])
        tell_coins(story, story.draft(str, sampled=True))
        assert story.state["accepted"] == step.path
        for frame in story.frames:
            for line in frame["lines"]:
                if line["segments"][0]["text"] == "keep":
                    row = next(r for r in frame["bars"][0]["rows"] if r["marked"])
                    told = acceptance_probability([row["target"]], [row["draft"]], 0)
                    assert line["segments"][0]["p"] == pytest.approx(told, abs=1e-3)


@pytest.mark.parametrize("case", ["05", "05 shipped"])
def test_the_last_draw_shows_what_the_drafter_had_expected(case):
    last = next(frame for frame in all_traces()[case]["frames"] if frame["next"])
    rows = last["bars"][0]["rows"]
    assert all(row["target"] is not None and row["draft"] is not None for row in rows)


def test_an_instructive_step_was_accepted_and_refused():
    steps, _ = recorded("multi-round", count=40)
    step = instructive(steps, lambda tokens: "x" * len(tokens))
    assert len(step.path) > 1 and step.below(step.path[-1])


def test_of_two_such_steps_the_one_with_a_letter_at_its_root_is_shown():
    def step(root, path):
        return Recorded([root, *"abcd"], [-1, 0, 1, 2, 3], path, None, None, [], 0, [], [], ["e"])

    letter, quote = step("v", [0, 1, 2]), step("'", [0, 1, 2, 3])
    assert instructive([quote, letter], "".join) is letter
    assert instructive([quote, step("!", [0, 1, 2])], "".join) is quote


def test_small_helpers():
    assert [short(p) for p in (0, 1, 0.347, 0.998, 0.0004, 0.5, 0.0496, 1e-6, 0.999999)] \
        == ["0", "1", ".35", ".998", ".0004", ".50", ".050", "0", "1"]
    assert [listed(names) for names in ("a", "ab", (1, 2, 3))] == ["a", "a and b", "1, 2 and 3"]
    assert (several(1, "draft"), several(0, "draft")) == ("1 draft", "0 drafts")
    line = unit_interval(0.05, [("a", 0.01, False), ("b", 0.02, False), ("c", 0.03, True),
                                ("d", 0.94, False)])
    assert [s["text"] for s in line["segments"]] == ["", "c", "d"]
    assert line["segments"][0]["p"] == pytest.approx(0.03)
