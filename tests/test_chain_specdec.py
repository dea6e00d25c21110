"""Chapter 01: what its loops must hold whatever drafts, and its formulas, by hand.

Exactness, greedy text and wrong variants of the table's loops: tests/test_loops.py.
"""

import re
from pathlib import Path

import pytest
import torch

import chain_pictures
import chain_room
from chain_specdec import (
    GPTDraft,
    accept,
    acceptance_probability,
    speculate_chain,
)
from nanogpt.decoding import collect
from nanogpt.does_it_pay import MEASURED, behind, load_contests, speedups, table_of
from nanogpt.exact.enumeration import outcomes
from nanogpt.exact.toy_models import random_gpt
from nanogpt.model import GPT
from nanogpt.sampling import Dice, Sampler
from nanogpt.sizes import SIZES
from nanogpt.three_numbers import chain_tokens
from text_table import NgramDraft, NgramLevels, TextTable


def drafts_accepted(rule, p, q, K):
    """How many of K drafts a rule with the arguments of `accept` accepts on average, exactly.
    p, q (V,): of target and drafter, at every position."""
    def run(dice):
        drafted = [dice.draw(q) for _ in range(K)]
        return rule(drafted, [q] * K, p.expand(K + 1, -1), dice)[0]

    return sum(n * chance for n, chance in outcomes(run))


def test_equation_1_against_enumeration():
    """With the same two distributions at every position, alpha and Equation 1 are exact."""
    target, probs = torch.tensor([[0.5, 0.3, 0.2], [0.6, 0.1, 0.3]]).double()
    alpha = 0.8  # .5 + .1 + .2, the smaller of the two each time
    for k in (1, 2, 3):
        drafts = drafts_accepted(accept, target, probs, k)
        assert drafts + 1 == pytest.approx(chain_tokens(alpha, k))


def test_chains_fill_the_window_to_its_last_row():
    """16 rows, all drafts stay: 2 + 5 + 5 + 4 rows; then from 8 on 5 + 3, again and again."""
    target = random_gpt(3, block_size=16)
    steps = speculate_chain(target, GPTDraft(target), [1, 2], 4, Sampler(0), Dice(0))
    drafted = [step.drafted for step in collect(steps, 30).steps]
    assert drafted[:7] == [4, 4, 3, 4, 2, 4, 2]


# ---------------------------------------------------------------- a table of what followed


def test_next_probs_by_hand():
    """After 1 2 3 1 2: behind '2' came 3 once, so 1/2; behind '1 2' too: 1/2 + 1/2 * 1/2."""
    table = TextTable(3)
    table.read([1, 2, 3, 1, 2])
    assert table.next_probs([9, 2]) == {3: 0.5} and table.next_probs([9]) == {}
    assert table.next_probs([5, 1, 2]) == {3: 0.75}  # a context holds two at most
    table.read([4])  # behind '2': 3 and 4, each 1 of 2 + 2; behind '1 2': 1/4 + 1/2 * 1/4
    assert table.next_probs([1, 2]) == {3: 0.375, 4: 0.375}


def test_an_ngram_looks_back_over_text_root_and_drafts():
    """Behind 1 2 came 3, behind 0 2 a 0; a round's root and drafts are forgotten behind it."""
    table = TextTable(3)
    table.read([1, 2, 3, 0, 2, 0])
    drafter = NgramDraft(table, vocab_size=4)
    drafter.observe([3, 1])
    # Behind a 2 came 0 and 3, once each: 1/4, and half of the rest to what came behind 1 2.
    assert drafter.logits(2).exp().tolist() == pytest.approx([1 / 8, 0, 0, 1 / 2 + 1 / 8])
    assert drafter.logits(3).exp().tolist() == pytest.approx([1 / 2 + 1 / 4, 0, 0, 0])
    drafter.observe([0])  # 2 was rejected
    assert drafter.logits(2).exp().tolist() == pytest.approx([1 / 2 + 1 / 8, 0, 0, 1 / 8])
    drafter.reset()
    assert drafter.logits(2).exp().tolist() == pytest.approx([1 / 4, 0, 0, 1 / 4])
    drafter = NgramDraft(TextTable(3), vocab_size=4)
    assert drafter.logits(2).softmax(-1).tolist() == [1 / 4] * 4  # never seen


def test_a_node_of_an_ngrams_tree_answers_as_the_end_of_its_path():
    """Two children and one below each; and a second tree forgets the first."""
    table = TextTable(3)
    table.read([1, 2, 3, 0, 2, 0, 1, 3, 2])
    drafter, alone = NgramLevels(table, vocab_size=4), NgramDraft(table, vocab_size=4)
    for text in ([3, 1], [0]):
        drafter.observe(text)
        alone.observe(text)
        levels = [((2,), [-1]), ((0, 1), [0, 0]), ((3, 2), [2, 1])]
        rows = torch.cat([drafter.level(*level) for level in levels])
        for row, path in zip(rows, [(2,), (2, 0), (2, 1), (2, 1, 3), (2, 0, 2)], strict=True):
            assert torch.equal(row, [alone.logits(token) for token in path][-1])
            alone.ahead = ()


# ---------------------------------------------------------------- the lesson's numbers, by hand


def test_round_in_steps_by_hand():
    """Three tokens for 7 ms, 1 of them drafting; a plain step takes 4 ms."""
    found = {"tokens": 3, "tables": {"1": {"methods": {
        "plain": {"family": "plain", "rounds": [3], "ms": [12]},
        "chain": {"family": "57K GPT", "verbs": [1, 5, 0.5, 0.5], "rounds": [1], "ms": [7]}}}}}
    assert chain_room.round_in_steps(found, "chain") == [3, 0.25, 1.75]


def test_the_lessons_pictures_say_what_was_measured():
    """The curve lies within every bar, without the cut at the texts' end not; and two steps."""
    found = load_contests(MEASURED / "one_loop")["lengths"]
    curve = chain_pictures.draw_foretold(found, {"57K GPT": 0.7487, "4-gram": 0.765})
    foretold = curve.lines[0].get_ydata()
    _, _, (bars,) = curve.containers[0]
    ends = [(low, high) for (_, low), (_, high) in bars.get_segments()]
    assert len(foretold) == len(ends) == 8
    assert all(low < tau < high for tau, (low, high) in zip(foretold, ends, strict=True))
    endless = [chain_tokens(0.7487, int(K)) for K in curve.lines[0].get_xdata()]
    assert not all(tau < high for tau, (_, high) in zip(endless, ends, strict=True))
    ax = chain_pictures.draw_lengths(load_contests(MEASURED / "one_loop")["loops_faster"])
    said = [text.get_text() for text in ax.texts]
    assert "2.7 > 1:\ntake it" in said and "1.1 < 1.73:\nstop" in said


def test_always_four_is_level_with_the_formula_in_nine_cases():
    """RESULTS say so; and what four drafts gain, from the slowest to the fastest run."""
    chapter, level = Path(chain_room.__file__).parent, 0
    files = {f"{folder}/{name}".strip("/"): found
             for folder in ("", "again", "one_loop", "precision", "trained")
             for name, found in load_contests(MEASURED / folder).items() if name != "longer"}
    table = (chapter / "RESULTS.md").read_text("utf-8")
    for name in ("one_loop/lengths", "epyc", "again/epyc", "xeon", "again/xeon"):
        found, alphas = files[name], {"57K GPT": 0.749, "4-gram": 0.765}
        ran = {family: alpha for family, alpha in alphas.items()
               if f"01 chain of 4, {family}" in table_of(found, 1)}
        for family, (chains, K, *_) in chain_room.chosen_lengths(found, ran).items():
            more, error = behind(found, 1, chains[4])[chains[K]]
            level += abs(more) <= error
            fast = speedups(found, 1)
            assert re.search(rf"`{name}` \| {family} .*{K}: {fast[chains[K]][2]:.2f}x "
                             rf"\| {fast[chains[4]][2]:.2f}x", table)
    assert level == 9
    page, quiet = (chapter / "walkthrough.ipynb").read_text("utf-8"), files["one_loop/loops_faster"]
    for family, name in (("GPT", "57K GPT"), ("count", "4-gram")):
        said, name = [], f"01 chain of 4, {name}"
        gains = [(found["machine"], fast[name][2]) for found in files.values()
                 for T in {"0.6", "1"} & found["tables"].keys()
                 for fast in [speedups(found, float(T))] if name in fast]
        for machine in ("EPYC", "Xeon", ""):
            some = [gain for where, gain in gains if machine in where]
            said.append(f"{min(some):.1f} to {max(some):.1f}")
        assert "| the {} | {} times | {} times |".format(family, *said) in table
        assert re.search(f"the {family} (has )?{said[2]}x", page)
        assert f"the {family} {speedups(quiet, 1)[name][2]:.2f}x" in page


def test_how_much_smaller_the_drafter_is():
    """README and lesson say it of the two models that come along."""
    chapter = Path(chain_room.__file__).parent
    large, small = (sum(p.numel() for p in GPT(SIZES[name].config(62)).parameters())
                    for name in ("baby", "draft"))
    for page in (chapter / "walkthrough.ipynb", chapter.parent / "README.md"):
        assert f"{large / small:.0f} times" in page.read_text("utf-8")


def test_a_text_that_stops_cuts_the_last_round():
    """Two tokens in chains of 1: one round with chance alpha, else two. An endless text: no cut."""
    assert chain_room.tau_of_text(0.5, 1, 2) == pytest.approx(2 / 1.5)
    assert chain_room.tau_of_text(0.75, 4, 1) == 1
    assert chain_room.tau_of_text(0.75, 4, 20000) == pytest.approx(chain_tokens(0.75, 4), 1e-3)


def test_the_lessons_five_changes():
    """At temperature 0 two of the wrong ones look right: the lesson says which."""
    right, *broken, useless_drafter = chain_room.broken_loops().values()
    assert max(right, useless_drafter) < 1e-12 and len(broken) == 4 and min(broken) > 0.05
    greedy = chain_room.broken_loops(0)
    found = {name for name, bias in greedy.items() if bias > 1e-12}
    assert found == {"accept everything", "keep a stale row"}


# ---------------------------------------------------------------- bad input, odd input


def test_two_commits_without_a_draft_between():
    """At the window's end a round may ask for none."""
    one, two = (GPTDraft(random_gpt(2)) for _ in range(2))
    for part in ([1, 2], [3]):
        one.observe(part)
    two.observe([1, 2, 3])
    assert one.logits(4).equal(two.logits(4))


def test_bad_input():
    target = random_gpt(0)
    with pytest.raises(ValueError, match="prompt is empty"):
        next(speculate_chain(target, GPTDraft(target), [], 2, Sampler(1), Dice(0)))
    with pytest.raises(ValueError, match="k is 0"):
        next(speculate_chain(target, GPTDraft(target), [1], 0, Sampler(1), Dice(0)))


def test_a_token_that_neither_gives_a_chance_counts_as_kept():
    nothing, something = torch.tensor([0.0, 1.0]), torch.tensor([0.5, 0.5])
    assert acceptance_probability(nothing, nothing, 0) == 1
    assert acceptance_probability(something, nothing, 0) == 1
    assert acceptance_probability(nothing, something, 0) == 0
