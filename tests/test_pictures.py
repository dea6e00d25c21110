"""What a picture must not get wrong: drawn values are given values, a trace is its round."""

import importlib
import json
import re
import sys

import pytest
import torch

from nanogpt import cli
from chain_specdec import speculate_chain
from nanogpt.decoding import Generation, Step, collect
from nanogpt.exact.toy_models import ToyDraft, ToyModel, ToyTarget
from nanogpt.pictures import plots, step
from nanogpt.sampling import Dice, Sampler
from tree_attention import Tree, TreeDrafter, multi_round, speculate, walk

PROMPT, LETTERS = [1, 0, 2], ["</script>", "\n", "\u2028", "a"]
CHAPTERS = [path.parent.name for path in sorted(step.ROOT.glob("0?_*/pictures.py"))]


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


def test_an_instructive_round_was_accepted_and_refused():
    one = step.instructive(rounds_of(multi_round), decode)
    assert len(one["kept"]) > 1


# ---------------------------------------------------------------- the page


def trace_of(rule):
    one = step.instructive(rounds_of(rule), decode)
    return step.trace(one, decode, len(LETTERS), chapter="00", title="Toy", subtitle="",
                      rule="walk" if rule is walk else "coins",
                      drafted="best" if rule is walk else "drawn")


def shipped(folder):
    html = (step.ROOT / folder / "pictures" / "step.html").read_text(encoding="utf-8")
    return json.JSONDecoder().raw_decode(html.split("const recorded = ")[1])[0]


def test_no_token_ends_the_script():
    found = trace_of(multi_round)
    assert "</script>" in found["letters"]
    html = step.page(found)
    assert html.count("</script>") == step.page({}).count("</script>") == 1
    assert json.JSONDecoder().raw_decode(html.split("const recorded = ")[1])[0] == found


@pytest.mark.parametrize("folder", CHAPTERS)
def test_a_shipped_trace_tells_a_round_that_can_have_happened(folder):
    found = shipped(folder)
    tokens, parents, kept = found["tokens"], found["parents"], found["kept"]
    assert kept[0] == 0 and all(parents[b] == a for a, b in zip(kept, kept[1:], strict=False))
    assert [tokens[row] for row in kept[1:]] == found["emitted"][:-1]
    assert found["draws"][-1]["value"] == found["emitted"][-1]
    assert all(sum(row) == pytest.approx(1, abs=1e-4) for row in found["p"])
    for row, guess in enumerate(found["guesses"][1:], start=1):
        assert 0 <= guess <= 1 and (not found["q"]
                                    or guess == found["q"][parents[row]][tokens[row]])
    if found["rule"] == "walk":  # each draw fell where its u says, in the target's own row
        for row, draw in zip(kept, found["draws"], strict=True):
            below = sum(found["p"][row][:draw["value"]])
            assert below - 1e-4 <= draw["u"] <= below + found["p"][row][draw["value"]] + 1e-4
    if folder[:2] == "06":
        assert sum(found["ends"]) == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("folder", CHAPTERS)
def test_the_shipped_page_is_the_template_with_its_trace(folder):
    html = (step.ROOT / folder / "pictures" / "step.html").read_text(encoding="utf-8")
    assert re.sub(r"const recorded = .*", "", html) == re.sub(
        r"const recorded = .*", "", step.page(shipped(folder)))


def test_a_bad_number_of_rounds_is_refused(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["step", "01_chain_specdec", "--steps", "0"])
    with pytest.raises(SystemExit) as stopped:
        cli.run(step.main)
    assert stopped.value.code == 2 and "steps is 0" in capsys.readouterr().err


# ---------------------------------------------------------------- drawn values are given values


def texts(ax):
    return [text.get_text() for text in ax.texts]


def test_a_tree_shows_its_tokens_its_path_and_its_probabilities():
    probs = torch.tensor([[0.0, 0.25, 0.75], [0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])
    ax = plots.draw_tree(Tree([0, 1, 2], [-1, 0, 0], probs), "xyz".__getitem__, [0, 2], probs,
                         next_token=0)
    assert {".25 / .25", ".75 / .75", "x", "y", "z"} <= set(texts(ax))
    assert sum(line.get_color() == plots.BLUE for line in ax.lines) == 1
    assert sum(line.get_color() == plots.ORANGE for line in ax.lines) == 1


def test_a_mask_is_dark_where_a_row_sees_and_red_where_it_leaks():
    mask = Tree(range(3), [-1, 0, 0]).mask
    _, causal = plots.draw_mask_beside_causal(mask, list("abc"))
    picture = torch.as_tensor(causal.images[0].get_array())
    red = (picture - torch.tensor(plots.to_rgb(plots.RED))).abs().sum(-1) < 1e-3
    assert red.nonzero().tolist() == [[2, 1]]


def test_the_cache_keeps_the_paths_rows_in_order():
    ax = plots.draw_cache(["-"], list("abcd"), [0, 2, 3])
    assert [text for text in texts(ax) if text in tuple("abcd")] == list("abcdacd")


def test_lines_and_histograms_show_their_numbers():
    left, right = plots.draw_sweep({"m": ([1, 2], [1.5, 2.5], [0.5, 0.75])}, "K")
    assert left.lines[0].get_ydata().tolist() == [1.5, 2.5]
    assert right.lines[0].get_ydata().tolist() == [0.5, 0.75]
    ax = plots.draw_acceptance({"m": [0, 2, 2, 1]})
    assert [patch.get_height() for patch in ax.patches] == [0.25, 0.25, 0.5]


def test_the_lessons_own_pictures_draw_what_they_are_given():
    room = {folder[:2]: importlib.import_module(f"{folder}.pictures") for folder in CHAPTERS}
    p, q = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.2, 0.3, 0.5])
    ax = room["01"].draw_repair(p, q, torch.tensor([1.0, 0.0, 0.0]))
    heights = [patch.get_height() for patch in ax.patches]
    assert [a + b for a, b in zip(heights[:3], heights[3:], strict=True)] == pytest.approx(
        p.tolist())  # what is kept and what is drawn make the target
    rejected = torch.stack([p / 2, p / 2])
    ax, = room["02"].draw_emitted({"half": rejected}, p)
    assert [patch.get_height() for patch in ax.patches] == pytest.approx(
        [0.25, 0.15, 0.1] * 2)
    texts = [Generation([0] * 7, [Step([0] * n)] * (6 // n), 1.0) for n in (2, 3)]
    ways = {"more depth": {4: texts, 8: texts}, "second guesses": {4: texts, 8: texts}}
    ax = room["02"].draw_fork({"m": ways, "n": ways})
    assert [t.get_text() for t in ax.get_legend().get_texts()] == [
        f"{who}, {way}" for who in "mn" for way in ways]
    ax = room["04"].draw_same_rounds({"a": 1.0, "b": 2.0, "c": 2.5, "d": 3.0})
    assert [patch.get_width() for patch in ax.patches] == [1, 2, 2.5, 3]
    trie, _ = room["04"].trie_merge(room["04"].TREES, room["04"].SCORES, 6)
    green, pink = plots.HEADS  # a by both; then ad, ab, e, ac, ag, best first
    assert room["04"].by_head(trie, room["04"].TREES) == [
        plots.INK, plots.INK, pink, green, pink, green, pink]
    frames = room["05"].replay([[0.6, 0.3], [0.7, 0.2]], 3)
    assert [mass for mass, _ in frames[-1][0]] == pytest.approx([0.6, 0.42, 0.3])
    flows = room["06"].tuple_flows(room["06"].SpS, p.double().numpy()[::-1].copy(),
                                   p.double().numpy(), 1)
    sent = sum(sum(shares.values()) for _, shares in flows.values())
    assert sent == pytest.approx(0.7)  # sum of min(p, q)
