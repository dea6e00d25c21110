"""The arena: right decoders are exact, wrong ones are named, the rest is told why it is not judged;
and the hunt: every slip is on the level that it says."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import arena
import arena_file
import hunt
from nanogpt.chapter import load
from nanogpt.decoding import Generation, Step
from nanogpt.does_it_pay import load_all, speedups
from nanogpt.exact import proofs
from nanogpt.sampling import Sampler

ROOT = Path(__file__).resolve().parents[1]
ENTRIES = {path.stem: path for path in (ROOT / "06_layer_verification/entries").glob("*.py")}
PAST_THE_DICE = {
    "torch": "import torch\nflip = lambda p: torch.rand(()) < p",
    "random": "import random\nflip = lambda p: random.random() < p",
    "two texts": "import numpy as np\nmine = np.random.default_rng()\n"
                 "flip = lambda p: mine.random() < p",
}
COIN = """
def rule(tree, target_probs, dice):
    for child in tree.children[0]:
        if flip(float(target_probs[0, tree.tokens[child]])):
            return [0, child], dice.draw(target_probs[child])
    return [0], dice.draw(target_probs[0])
"""


@pytest.fixture
def entry(tmp_path):
    """entry(source) -> what `read` makes of it."""
    def made(source):
        path = tmp_path / "mine.py"
        path.write_text(source, encoding="utf-8")
        return arena_file.read(path)

    return made


def verdict(loop):
    said = []
    worst = arena_file.exactness(loop, said.append, lambda: None)
    return worst, " ".join(said)


@pytest.mark.parametrize("name", ["qx_is_one", "one_coin_then_look"])
def test_exact_entries_are_exact(name):
    loop, _ = arena_file.read(ENTRIES[name])
    arena_file.check_chance(loop)
    worst, said = verdict(loop)
    assert worst < 1e-12 and said.startswith("EXACT")


@pytest.mark.parametrize("name, slip", [
    ("one_coin_a_node", "each node gets a coin of its own"),
    ("top_k_told_q", "on chains, in draft: the tokens are argmaxes instead of draws"),
])
def test_wrong_entries_are_wrong_and_named(name, slip):
    loop, own = arena_file.read(ENTRIES[name])
    worst, said = verdict(loop)
    assert worst > 0.1 and "NOT EXACT" in said and "comes out with" in said
    assert slip in arena_file.known_slip(loop, own)


def test_every_entry_is_one_of_these_and_short():
    assert set(ENTRIES) == {"qx_is_one", "one_coin_then_look", "one_coin_a_node", "top_k_told_q"}
    for path in ENTRIES.values():
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 30, path


def test_a_reader_s_slip_is_named(entry):
    """Written in other words than the taught rule: the coin is right, and the end forgets what is
    owed."""
    loop, own = entry("""
def rule(tree, p, dice, path=(0,)):
    left, q = p[path[-1]], tree.draft_probs[path[-1]].clone()
    for child in tree.children[path[-1]]:
        x = tree.tokens[child]
        if dice.flip(min(1.0, float(left[x] / q[x]))):
            return rule(tree, p, dice, (*path, child))
        left = (left - q).clamp(min=0)
        left, q[x] = left / left.sum(), 0
        q = q / q.sum()
    return list(path), dice.draw(p[path[-1]])
""")
    assert ("the end draws from the target instead of the residual"
            in arena_file.known_slip(loop, own))


def test_the_shortest_wrong_text_and_its_shares():
    written = {(0, 0): .25, (0, 1): .25, (1, 0): .5}
    wanted = {(0, 0): .125, (0, 1): .375, (1, 0): .5}
    assert arena_file.shortest(written, wanted) == ("aa", .25, .125)
    assert arena_file.shortest({(0, 1): 1.0}, {(1, 1): 1.0})[0] == "a"


def test_of_all_wrong_texts_the_shortest_is_told(monkeypatch):
    right = {(0, 0): .5, (0, 1): .25, (1, 1): .25}
    wrong = [{(0, 0): .25, (0, 1): .25, (1, 1): .5}, {(0, 0): .25, (0, 1): .5, (1, 1): .25}]
    monkeypatch.setattr(proofs, "cases", lambda loop: [
        (1, Sampler(1), {"number": number}) for number in (0, 1)])
    monkeypatch.setattr(arena_file, "laws", lambda *_, number: (
        wrong[number], right, SimpleNamespace(seen=[])))
    assert "'a' comes out with 0.500, the target has 0.750" in verdict(hunt.CHAIN)[1]


def test_what_is_wrong_later_shows_at_temperature_0(entry):
    loop, _ = entry("""
from tree_attention import speculate

def decode(*args):
    for number, step in enumerate(speculate(*args)):
        step.tokens[:] = step.tokens if number < 9 else [0]
        yield step
""")
    worst, said = verdict(loop)
    assert worst == 1 and "over two windows" in said


@pytest.mark.parametrize("how", PAST_THE_DICE)
def test_chance_past_the_dice_is_found_out(entry, how):
    loop, _ = entry(PAST_THE_DICE[how] + COIN)
    with pytest.raises(arena_file.Failed, match=f"past the Dice.*{how}"):
        arena_file.check_chance(loop)


@pytest.mark.parametrize("source, why", [
    ("def rule(:", "SyntaxError"), ("1 / 0", "ZeroDivisionError.*\n    line 1"),
    ("x = 1", "none of"),
    ("rule = 3", "must be a function"), ("BUDGET = 0", "1..63"), ("BUDGET = 4", "takes a tuple"),
    ("raise SystemExit", "SystemExit"),
])
def test_what_is_no_entry_is_refused(entry, source, why):
    with pytest.raises(arena_file.Refused, match=why):
        entry(source)


@pytest.mark.parametrize("end, why", [
    ("[1], 0", "must start with row 0"), ("[0, 2], 0", "from a parent to its child"),
    ("[0], 11", "token 11"),
])
def test_a_rule_s_answer_is_looked_at(entry, end, why):
    loop, _ = entry(f"BUDGET = (1, 1)\ndef rule(*_):\n    return {end}")
    with pytest.raises(arena_file.Failed, match=why):
        arena_file.check_chance(loop)


def test_a_coin_above_1_and_too_many_draws_are_said(entry):
    wild, _ = entry("def rule(tree, p, dice):\n    dice.flip(1.5)\n    return [0], dice.draw(p[0])")
    with pytest.raises(arena_file.Failed, match="1.500 of probability"):
        verdict(wild)
    many, _ = entry("def rule(tree, p, dice):\n    [dice.flip(.5) for _ in range(20)]\n"
                    "    return [0], dice.draw(p[0])")
    with pytest.MonkeyPatch.context() as patch, pytest.raises(arena_file.Failed, match="PROOF"):
        patch.setattr(arena_file, "MOST", 50)
        verdict(many)


def test_the_recorded_chain_costs_what_it_did():
    found = load_all()["epyc"]
    tokens, price, quotient = speedups(found, 1)["01 chain of 4, 57K GPT"]
    prices = {"epyc": arena_file.chain_price(found["tables"]["1"]["curve"], price)}
    line = {"tau": tokens, "passes": 4, "drafts": 4}
    assert arena_file.foretold(line, prices) == [pytest.approx(quotient)]
    best = arena_file.taught_ones(prices)
    assert len(best) > 10 and any(name.startswith("01 chain of") for name in best)
    for price, k in ((0.0, 16), (9.0, 1)):  # where all is free, and where a pass is dear
        assert f"01 chain of {k}, 57K GPT" in arena_file.taught_ones(
            {"epyc": (price, lambda rows: 1.0)})


def test_a_text_in_colours_and_without():
    text = Generation([0, 1, 2, 3, 4], [Step([1, 2, 3]), Step([4])], 1)
    pieces = arena_file.pieces(SimpleNamespace(decode=lambda tokens: "Romeo"[
        tokens[0]:tokens[-1] + 1] if tokens else ""), text)
    assert pieces == [["R", False], ["om", True], ["e", False], ["", True], ["o", False]]
    pieces = [("R", False), ("ome", True), ("o", False)]
    assert arena.coloured(pieces, False) == "Rome[o]"
    assert arena.coloured(pieces, True) == "R\x1b[34;1mome\x1b[0mo"


def run(*args):
    return subprocess.run([sys.executable, str(ROOT / "tests" / "arena.py"), *map(str, args)],
                          capture_output=True, encoding="utf-8", timeout=300)


def test_a_bad_command_is_a_sentence():
    for args in ((), ("nothing.py",), ("mine.py", "--hunt", "1"), ("--hunt", "4")):
        done = run(*args)
        assert done.returncode == 2 and done.stderr.startswith("error: "), args
        assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("source, status, why", [
    ("def rule(tree, p, dice):\n    while True:\n        pass", 1, "an endless loop"),
    ("def rule(tree, p, dice):\n    return [0], bytearray(9 << 30)", 1, "GB of memory"),
    ("import os\ndef rule(tree, p, dice):\n    os._exit(0)", 1, "it ends Python"),
    ("def rule(tree, p, dice):\n    raise KeyError('x')", 1, "KeyError: 'x'\n    line 2"),
    ("def rule(:", 2, "SyntaxError"),
])
def test_what_ends_badly_is_one_sentence(tmp_path, source, status, why):
    path = tmp_path / "mine.py"
    path.write_text(source, encoding="utf-8")
    done = run(path)
    assert done.returncode == status and why in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.slow
def test_a_whole_judgement(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("print('hello')\nBUDGET = (3, 1)\n", encoding="utf-8")
    done = run(path)
    assert done.returncode == 0 and "    | hello" in done.stdout
    assert "> mine 3-1" in done.stdout and "EXACT" in done.stdout and "[" in done.stdout
    wrong = run(ENTRIES["top_k_told_q"])
    assert wrong.returncode == 1 and "not ranked" in wrong.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", load("06").room.RULES)
def test_the_repository_s_rules_are_exact_in_the_arena(entry, name):
    depth, chain = (1, "1") if "GR" in name else (2, "1" if name == "BV" else "2")
    loop, _ = entry("from layers_room import RULES, sampled\n"
                    f"rule, drafter = RULES[{name!r}], sampled('multi-chain', {chain})\n"
                    f"BUDGET, PROOF = 4, (1, {depth})")
    arena_file.check_chance(loop)
    assert verdict(loop)[0] < 1e-12


# ---------------------------------------------------------------- the hunt


def test_a_slip_is_on_the_level_that_it_says():
    """The right decoder is no slip; what loses nothing but length is on level 2."""
    levels = {one.name: level for one, level in hunt.suspects(hunt.PICKED).items()}
    assert levels.pop(hunt.RIGHT) == 0 and {1, 2} <= set(levels.values())
    harmless = {f"walk: {sentence}" for sentence in load("02").harmless}
    assert {name for name, level in levels.items() if level == 2} == harmless & set(levels)


def test_level_3_is_plain_decoding_at_temperature_0():
    chain, two = hunt.CHAIN, "draft: the tokens are argmaxes instead of draws"
    levels = {one.name: level for one, level in hunt.suspects(chain).items()}
    assert levels[two] == levels["residual: the residual is the target itself"] == 3
    assert levels["accept: the bonus token comes from the row before the last"] == 1
    assert "acceptance_probability: the ratio is not capped at 1" not in levels
    slips = load("01").wrong["draft"]
    with slips.standing(two.partition(": ")[2]):
        mine, plain = proofs.greedy_texts(chain, 4)
    assert mine == plain


def test_an_answer_is_the_number_in_the_list(capsys):
    game = object.__new__(hunt.Hunt)
    game.options = [SimpleNamespace(name=name) for name in "abc"]
    game.found, game.would_be = game.options[0], "with {.name}".format
    assert game.judge(1) and not game.judge(3)
    assert capsys.readouterr().out == (
        "1 is right: a\n3 is wrong: with this one, with c\n")
    for number in (0, 4):
        with pytest.raises(ValueError, match=f"answer is {number}; it must be in 1..3"):
            game.judge(number)


@pytest.mark.slow
@pytest.mark.parametrize("level", [1, 2, 3])
def test_a_hunt_is_won_by_number(level):
    number, first = 0, ""
    while "is right" not in first:
        number += 1
        done = run("--hunt", level, "--seed", 1, "--answer", number)
        first = done.stdout.splitlines()[-1]
        assert done.returncode == (0 if "is right" in first else 1), done.stderr
    assert run("--hunt", level, "--answer", 99).returncode == 2
