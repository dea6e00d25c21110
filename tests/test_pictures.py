"""What a picture must not get wrong: drawn values are given values, a trace is its round."""

import json

import pytest
import torch

import ddtree_pictures
import layers_pictures
import routing_pictures
import tree_pictures
from chain_specdec import speculate_chain
from nanogpt.decoding import collect
from nanogpt.exact.toy_models import ToyDraft, ToyModel, ToyTarget
from nanogpt.pictures import plots, step
from nanogpt.sampling import Dice, Sampler
from test_devices import trained_in_no_time  # noqa: F401 (a fixture)
from tree_attention import Tree, TreeDrafter, multi_round, speculate, walk

PROMPT, LETTERS = [1, 0, 2], ["</script>", "\n", "\u2028", "a"]
CHAPTERS = [path.parent.name for path in sorted(step.ROOT.glob("0?_*/*_pictures.py"))]


def decode(tokens):
    return "".join(LETTERS[token] for token in tokens)


def steps_of(rule, dice):
    """A decoder on toy models whose only chance is `dice`."""
    target, sampler = ToyTarget(ToyModel(1, scale=1.5), block_size=24), Sampler(1.0)
    draft = ToyDraft(ToyModel(2, scale=1.2))
    if rule is None:
        return speculate_chain(target, draft, PROMPT, 3, sampler, dice)
    drafter = TreeDrafter(draft, (2, 2), sampler, dice if rule is multi_round else None)
    return speculate(target, drafter, PROMPT, sampler, dice, rule)


def rounds_of(rule, seed=3):
    dice = step.VisibleDice(seed)
    return step.watch(steps_of(rule, dice), dice, PROMPT, 8, window=24)


# ---------------------------------------------------------------- the recorder


def test_visible_dice_draw_what_dice_draw_and_note_the_number_that_decided():
    seen, plain, probs = step.VisibleDice(7), Dice(7), torch.tensor([0.0, 1.0, 2.0, 5.0, 0.0])
    assert [seen.draw(probs) for _ in range(50)] == [plain.draw(probs) for _ in range(50)]
    assert seen.flip(0.3) == plain.flip(0.3) and seen.draws[-1]["coin"] == 0.3
    edges = (probs / probs.sum()).cumsum(0).tolist()
    for draw in seen.draws[:-1]:
        assert draw["value"] == next(i for i, edge in enumerate(edges) if draw["u"] < edge)


@pytest.mark.parametrize("rule", [None, multi_round, walk])
def test_a_watched_round_is_the_round_that_happened(rule):
    rounds = rounds_of(rule)
    tokens = collect(steps_of(rule, Dice(3)), 60).tokens
    assert sum((r["emitted"] for r in rounds), tokens[:1]) == tokens[:1 + sum(
        len(r["emitted"]) for r in rounds)]
    for r, following in zip(rounds, rounds[1:], strict=False):
        assert [r["tokens"][row] for row in r["kept"]][1:] == r["emitted"][:-1]
        assert r["text"] + r["tokens"][:1] + r["emitted"][:-1] == following["text"]
        assert following["tokens"][0] == r["emitted"][-1]
        # A draw a draft, if drafts are drawn; the rule's own coins and draws behind them.
        coins = r["draws"][0 if rule is walk else len(r["tokens"]) - 1:]
        assert coins[-1]["value"] == r["emitted"][-1] and "coin" not in coins[-1]
        if rule is walk:
            assert [draw["value"] for draw in coins] == r["emitted"]
        else:
            assert sum(draw["value"] for draw in coins[:-1]) == len(r["kept"]) - 1


# ---------------------------------------------------------------- the page


def trace_in(data):
    """The round in the script that a page loads."""
    return json.loads(data.removeprefix("recorded(").removesuffix(");\n"))


def test_no_token_ends_the_script():
    one = step.instructive(rounds_of(multi_round), decode)
    found = step.trace(one, decode, len(LETTERS))
    assert "</script>" in found["letters"]
    data = step.script(found)
    html = step.page(data)
    assert html.count("</script>") == step.page("").count("</script>")
    assert data in html and trace_in(data) == found and "e-" not in data
    for file in ("round.js", "round.css"):
        assert (step.HERE / file).read_text(encoding="utf-8") in html and f'"{file}"' not in html


def check_round(folder, path):
    """Can a chapter's step.jsonp have happened?"""
    data = path.read_text(encoding="utf-8")
    found = trace_in(data)
    assert data == step.script(found)
    tokens, parents, kept = found["tokens"], found["parents"], found["kept"]
    assert kept[0] == 0 and all(parents[b] == a for a, b in zip(kept, kept[1:], strict=False))
    assert [tokens[row] for row in kept[1:]] == found["emitted"][:-1]
    assert found["draws"][-1]["value"] == found["emitted"][-1]
    assert all(sum(row) == pytest.approx(1, abs=1e-4) for row in found["p"])
    for row in range(1, len(tokens)):
        guess = found["q"][parents[row]][tokens[row]] if found["q"] else found["guesses"][row]
        assert 0 < guess <= 1
    if found["rule"] == "walk":  # each draw fell where its u says, in the target's own row
        for row, draw in zip(kept, found["draws"], strict=True):
            below = sum(found["p"][row][:draw["value"]])
            assert below - 1e-4 <= draw["u"] <= below + found["p"][row][draw["value"]] + 1e-4
    if folder[:2] == "06":
        assert sum(found["ends"]) == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("folder", CHAPTERS)
def test_a_shipped_round_can_have_happened(folder):
    check_round(folder, step.ROOT / folder / "pictures" / "step.jsonp")


# 02 loads and watches what 01 does, and 03 what 04 does.
@pytest.mark.usefixtures("trained_in_no_time")
@pytest.mark.parametrize("folder", [pytest.param(folder, marks=[pytest.mark.slow] * (
    folder[:2] in ("02", "03"))) for folder in CHAPTERS])
def test_the_command_makes_a_round_that_can_have_happened(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(step, "save_gif", lambda *_: "no GIF")
    step.main([folder, "--steps", "6", "--out", str(tmp_path)])
    check_round(folder, tmp_path / "step.jsonp")


# ---------------------------------------------------------------- drawn values are given values


def texts(ax):
    return [text.get_text() for text in ax.texts]


def test_a_mask_is_red_where_it_leaks_and_the_cache_keeps_the_path_in_order():
    _, causal = plots.draw_mask_beside_causal(
        Tree(range(3), [-1, 0, 0]).mask, ["0:a", "1:b", "2:c"], 2)
    assert causal.get_xlabel().endswith("a b c")
    picture = torch.as_tensor(causal.images[0].get_array())
    red = (picture - torch.tensor(plots.to_rgb(plots.RED))).abs().sum(-1) < 1e-3
    assert red.nonzero().tolist() == [[2, 1]]
    ax = plots.draw_cache(["-"], list("abcd"), [0, 2, 3])
    assert [text for text in texts(ax) if text in tuple("abcd")] == list("abcdacd")


def test_four_picked_are_the_four_best():
    """The drafter ranks as the target does."""
    p = torch.tensor([[.5, .25, .125, .0625, .0625]]).log()
    ax = tree_pictures.draw_by_temperature(p, p)
    ends = dict(zip(texts(ax), (float(line.get_ydata()[-1]) for line in ax.lines), strict=False))
    assert [ends[f"{n} picked"] for n in ("one", "two", "four")] == pytest.approx([.5, .75, .9375])


def test_gains_are_drawn_over_the_router_that_the_axis_names(monkeypatch):
    """Luck is what the oracle, the last one, has more than the one before it."""
    gains, asked = {"a": .1, "b": .2, "c": .5}, []
    monkeypatch.setattr(routing_pictures, "gain_on", lambda found, name, other, part: (
        asked.append(other) or gains.get(name, 0), .01))
    luck = routing_pictures.draw_wager("", None, dict.fromkeys(gains, "red")).patches[-1]
    assert (luck.get_x(), luck.get_width()) == pytest.approx((20, 30))
    assert {*asked} == {"code head"}
    asked.clear()
    routing_pictures.draw_found("", None)
    assert {*asked} == {"knows the kind"}


def test_a_letter_has_the_colour_of_the_head_that_is_asked_for_it():
    ax = routing_pictures.draw_choices("", ["ab"], {"one": [[0, 1]], "other": [[1, 1]]})
    assert texts(ax) == ["one", "a", "b", "other", "a", "b"]
    assert [patch.get_edgecolor() for patch in ax.patches] == [
        (*plots.to_rgb(plots.HEADS[head]), 1) for head in (0, 1, 1, 1)]


def test_a_row_is_lost_where_the_target_gives_it_next_to_nothing():
    ax, _ = ddtree_pictures.draw_lost(
        ["ab", "cd"], [[.6, .4], [.9, .1]], [(0,), (0, 0), (1,)], [.6, .004, .3])
    assert ax.get_title(loc="left").startswith("Of 3 rows 1") and texts(ax).count("lost") == 1


def test_the_price_of_a_row_by_hand():
    """Two nodes of .5 and .1, a pass for .5 steps: 1 / 1.5, 1.5 / 2 and 1.6 / 2.5 tokens a step.
    Then prices on two lines: 1.5 steps, and a 20th or a 40th for each node."""
    assert ddtree_pictures.price_of_a_row([0.5, 0.1], 2, 1.5) == pytest.approx((0.375, 1, 0.75))
    methods = {"plain": {"family": "plain", "rounds": [10], "ms": [10]}}
    for loop, bend in ("DDTree, {} nodes", 20), ("fixed tree of the same pass, {} nodes", 40):
        methods |= {f"{loop} {n}": {
            "family": "block drafter", "chapter": "05", "loop": loop, "budget": n, "rounds": [10],
            "ms": [15 + 10 * n / bend]} for n in (3, 7, 15)}
    found = {"tokens": 63, "tables": {"1": {"methods": methods}}}
    fits = [*ddtree_pictures.measured_rows(found, 1)]
    assert fits == [pytest.approx((20, 1.5)), pytest.approx((40, 1.5))]
    masses = [0.6, 0.3, 0.2, 0.09, 0.07, 0.05, 0.03, 0.02] + [0.01] * 22
    ax = ddtree_pictures.draw_stop(masses, {"here": found})
    assert texts(ax)[0].endswith("stop after 5 to 6")


def test_the_fastest_tree_and_the_fastest_chain_of_a_loop():
    loop = "picked tree {}, 57K GPT"
    methods = {"plain": {"family": "plain", "rounds": [63], "ms": [63]}} | {str(shape): {
        "family": "57K GPT", "chapter": "02", "loop": loop, "rounds": [10], "budget": shape,
        "ms": [ms]} for shape, ms in (([1, 1, 1], 30), ([2, 1], 20), ([2, 2], 90))}
    found = {"tokens": 63, "tables": {"0": {"methods": methods}}}
    assert [ddtree_pictures.fastest(found, loop, trees) for trees in (True, False)] == [
        pytest.approx((3.15, 4)), pytest.approx((2.1, 3))]


def test_one_round_under_two_rules_by_hand():
    """Its first no ends a chain from the root; from the end the last yes does, here the second."""
    ax = layers_pictures.draw_round("abc", (.5, .1, .9), {
        "root": ("p", (.4, 1, 1), False), "end": ("h", (0, .2, .3), True)}, "")
    said = texts(ax)
    assert said.count("no") == 2 and said.count("yes") == 1
    assert [x for x in said if x in ("0", "2", "root", "end")].count("2") == 1
    colors = [t.get_bbox_patch().get_facecolor()[:3] for t in ax.texts if t.get_bbox_patch()]
    assert colors[3] == colors[4] != colors[5] == colors[0] != colors[1] == colors[2]


def test_a_layer_as_a_pipe_by_hand():
    """Of .5 for one node .3 flows, for .1 is all that is wanted of its t; .5 is used by nobody."""
    ax = plots.new_axes()
    layers_pictures.draw_layer(ax, {"1": .5}, {"1": ((.4, .6), (.3, .1))}, "")
    assert {"e: .20", "t: .10", "not wanted", "used by nobody: .50"} < set(texts(ax))
    assert texts(ax)[-1] == ".30"
