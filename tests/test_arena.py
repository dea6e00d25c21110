"""The arena: right decoders are exact, wrong ones are named, the rest is told why it is not judged;
the hunt: every slip is on the level that it says; and grade.py --run: who decodes with what."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import arena
import arena_file
import grade_run
import hunt
from nanogpt.chapter import load
from nanogpt.decoding import Generation, Step, collect
from nanogpt.does_it_pay import load_contests, speedups
from nanogpt.exact import proofs
from nanogpt.exact.enumeration import total_variation
from nanogpt.sampling import Dice, Sampler

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
HIDDEN = """
from tree_attention import multi_round, speculate

def decode(target, drafter, prompt, sampler, dice, rule):
    text, number = len(prompt), 0
    def mine(tree, p, dice):
        path, token = rule(tree, p, dice)
        p = p[path[-1]]
        return path, int(p.argmax()) if {when} else token
    for number, step in enumerate(speculate(target, drafter, prompt, sampler, dice, mine), 1):
        text += len(step.tokens)
        yield step
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


@pytest.mark.parametrize("name", [
    "qx_is_one", pytest.param("one_coin_then_look", marks=pytest.mark.slow)])
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


@pytest.mark.parametrize("old, new, slip", [
    ("range(n + 1)), [root", "range(k + 1)), [root", "rows of rejected drafts stay in the cache"),
    ("sampler(drafter.logits(token)).cpu())", "(q := drafter.logits(token)).softmax(-1))",
     "the kept distribution ignores the sampler"),
])
def test_a_chain_s_slips_are_named(entry, old, new, slip):
    """One shows in the second round, the other where the temperature is not 1."""
    source = Path(sys.modules["chain_specdec"].__file__).read_text(encoding="utf-8")
    source = source.replace("dice.draw(draft_probs[-1])", "dice.draw(sampler(q))"
                            if "q :=" in new else "dice.draw(draft_probs[-1])")
    assert old in source
    loop, own = entry(source.replace(old, new) + """
BUDGET, drafter = 2, lambda m, *_: GPTDraft(m.small)
def decode(target, drafter, prompt, k, sampler, dice, rule):
    return speculate_chain(target, drafter, prompt, k, sampler, dice)
""")
    assert slip in arena_file.known_slip(loop, own)


@pytest.mark.parametrize("when", [
    "number == 2", "len(path) == 5", "len(path) == 5 and (p == 0).any()", "len(p) == 4",
    "len(set(p.tolist())) < len(p) and (p > 0).all()", "text > target.block_size"])
def test_what_hides_from_the_first_cases_is_seen_in_others(entry, when):
    loop, _ = entry(HIDDEN.format(when=when))
    laws = (arena_file.laws(loop, budget, sampler, **facts)[:2]
            for budget, sampler, facts in reversed(arena_file.cases(loop)))
    assert any(total_variation(*both) > 1e-3 for both in laws)


def real_texts(warm, cold=lambda p, dice: int(p.argmax()), nearer=0):
    """on_real_texts of 24 texts of 64 letters, of a target that looks at the position alone.

    nearer: by so much the second of 40 letters is behind the first one; 0: as it comes.
    """
    logits = 2 * torch.randn(70, 40, generator=torch.Generator().manual_seed(1))
    if nearer:
        first, second = logits.topk(2).indices.T[..., None]
        logits.scatter_(1, second, logits.gather(1, first) - nearer)
    probs, texts = torch.softmax(logits, -1)[2:66], []
    for choose in (warm, cold):
        dice = Dice(1)
        texts.append([Generation([choose(p, dice) for p in probs], [], 1) for _ in range(24)])
    m = SimpleNamespace(target=lambda tokens: (logits[None, :tokens.shape[1]], None),
                        dataset=SimpleNamespace(tokenizer=SimpleNamespace(decode=str)))
    return arena_file.on_real_texts(m, [[1, 2, 3]] * 24, *texts)


def test_a_decoder_that_is_wrong_on_many_letters_only_is_not_exact():
    right, said = real_texts(lambda p, dice: dice.draw(p))
    assert right is True and "of 1,536 letters" in said and "T = 0, 0 are not plain" in said
    for warm, what in (
            (lambda p, _: int(p.argmax()), "the target's favourite is off the most, by +"),
            (lambda p, dice: dice.draw(torch.where(p < p.sort().values[-12], 0, p)),
             "outside the 12 likeliest is off the most, by -"),
            (lambda p, dice: dice.draw(p ** 0.7), "the log-probability is off the most, by -")):
        right, said = real_texts(warm)
        assert right is False and what in said, said


def test_a_real_text_at_temperature_0_is_plain_decoding_s_but_for_near_ties():
    for nearer, right in ((0.9 * arena_file.NEAR, True), (1.1 * arena_file.NEAR, False)):
        found, said = real_texts(lambda p, dice: dice.draw(p), nearer=nearer,
                                 cold=lambda p, _: int(p.topk(2).indices[1]))
        assert found is right and ("T = 0, 0 are not plain decoding's" in said) is right


def test_a_rare_letter_is_no_proof():
    """One that is due once in 10,000 tokens and comes is 10 standard deviations off."""
    p = torch.tensor([0.5, 0.4999, 0.0001], dtype=torch.float64)
    off = arena_file.deviations([(p, 0, i % 2) for i in range(99)] + [(p, 0, 2)])
    assert off[2] == 0 and 0 < off.abs().max() < 1


@pytest.mark.slow
@pytest.mark.parametrize("when", ["len(tree) > 9", "type(dice).__name__ == 'Dice'"])
def test_what_hides_from_the_enumeration_is_seen_in_a_sample(entry, when):
    right, _ = entry("BUDGET = (2, 2, 1, 1)")
    wrong, _ = entry(HIDDEN.format(when=when))
    (fine, count), (off, _) = (arena_file.sample(loop, lambda: None) for loop in (right, wrong))
    assert fine < 4 and count > 1000 and off > arena_file.FAR
    said = []
    assert not arena_file.looks_right(wrong, said.append, lambda: None, 0.0, [], 0)
    assert "NOT EXACT" in said[0] and "standard deviations" in said[0]


def test_all_budgets_are_visited_and_named(entry, monkeypatch):
    monkeypatch.setattr(arena_file, "sample", lambda *_: (0.0, 0))
    loop, _ = entry("BUDGET, PROOF = (1, 1), ((1,), (2,), (1, 1))")
    assert {budget for budget, *_ in arena_file.cases(loop)} == set(loop.proof)
    said = verdict(loop)[1]
    for part in (*map(str, loop.proof), "of 2, 3, 4;", "1, 2, 3 rounds", "T = 0, 0.7, 0.9, 1;"):
        assert part in said


def test_a_small_bias_is_one(entry):
    loop, _ = entry("PROOF = ((1,),)\ndef rule(tree, p, dice):\n"
                    "    return [0], dice.draw(p[0] + 1e-9)")
    worst, said = verdict(loop)
    assert 1e-12 < worst < 1e-6 and "NOT EXACT" in said and "rounding" in said


def test_a_decoder_that_changes_is_found_out(entry):
    loop, _ = entry("""
calls = []
def rule(tree, p, dice):
    calls.append(1)
    return [0], int(p[0].argmax()) if len(calls) > 500 else dice.draw(p[0])
""")
    texts = arena_file.check_chance(loop)
    collect(loop.steps(proofs.random_cast(), (1,), [1], Sampler(1), Dice(0)), 40)
    with pytest.raises(arena_file.Failed, match="two texts"):
        arena_file.check_chance(loop, texts)


def test_tokens_are_counted_with_the_target_s_own(entry):
    loop, _ = entry("def rule(tree, p, dice):\n    return [0], dice.draw(p[0])")
    *_, watched = arena_file.laws(loop, (2,), Sampler(1), rounds=2)
    assert watched.tokens() == pytest.approx(3)  # the prefill's, and one of each round


def test_the_shortest_wrong_text_and_its_shares():
    written = {(0, 0): .25, (0, 1): .25, (1, 0): .5}
    wanted = {(0, 0): .125, (0, 1): .375, (1, 0): .5}
    assert arena_file.shortest(written, wanted) == ("aa", .25, .125)
    assert arena_file.shortest({(0, 1): 1.0}, {(1, 1): 1.0})[0] == "a"
    some = {(0,): .5, (1,): .2, (2,): .3}, {(0,): .4, (1,): .4, (2,): .2}
    assert arena_file.shortest(*some) == ("b", .2, .4)


def test_the_shortest_wrong_text_of_all_cases_is_told(entry, monkeypatch):
    loop, _ = entry("BUDGET = (1,)")
    found = iter([({(0, 0): 1.0}, {(0, 1): 1.0}), ({(1, 0): 1.0}, {(2, 0): 1.0}),
                  ({(0, 0): 1.0}, {(0, 1): 1.0})])
    monkeypatch.setattr(arena_file, "cases", lambda loop: [((1,), Sampler(1), {})] * 3)
    monkeypatch.setattr(arena_file, "laws", lambda *_, **__: (*next(found), Seen()))
    assert "the shortest wrong text: 'b' comes out with 1.000, the target has 0" in verdict(loop)[1]


class Seen:
    seen = ()


@pytest.mark.slow
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


def test_a_file_may_have_the_name_of_a_module_and_braces(tmp_path):
    for name in ("tree_attention", "x{0}"):
        path = tmp_path / f"{name}.py"
        path.write_text("BUDGET = (1,)", encoding="utf-8")
        loop, _ = arena_file.read(path)
        assert loop.title((2, 1)) == f"{name} 2-1"
        assert getattr(sys.modules.get(name), "__file__", None) != str(path)


@pytest.mark.parametrize("what", ["shares(1)", "generator.random()"])
def test_chance_that_cannot_be_enumerated_is_said(entry, what):
    loop, _ = entry(f"def rule(tree, p, dice):\n    dice.{what}\n    return [0], dice.draw(p[0])")
    with pytest.raises(arena_file.Failed, match=rf"asks dice.{what.split('(')[0][:6]}.*only dice"):
        verdict(loop)


def test_a_step_is_one_forward(entry):
    loop, _ = entry("""
from nanogpt.decoding import Step
from tree_attention import speculate

def decode(*args):
    steps = speculate(*args)
    yield next(steps)
    while True:
        yield Step(next(steps).tokens + next(steps).tokens)
""")
    with pytest.raises(arena_file.Failed, match="must yield a Step for each forward"):
        arena_file.check_chance(loop)
    alone, _ = entry("""
from nanogpt.decoding import Step

def decode(target, drafter, prompt, sampler, dice, rule):
    while True:
        yield Step([dice.draw(sampler(target.lm_head.weight[:, 0].detach()))])
""")
    with pytest.raises(arena_file.Failed, match="asked Context.verify 0 times"):
        arena_file.check_chance(alone)


@pytest.mark.parametrize("source, why", [
    ("def rule(:", "SyntaxError"), ("1 / 0", "ZeroDivisionError.*\n    line 1"),
    ("x = 1", "none of"),
    ("rule = 3", "must be a function"), ("BUDGET = 0", "1..63"), ("BUDGET = 4", "takes a tuple"),
    ("raise SystemExit", "SystemExit"), ("PROOF = 3", "PROOF is 3; it must hold"),
    ("PROOF = (2, 1)", r"PROOF is \(2, 1\); it must hold budgets of BUDGET's kind"),
])
def test_what_is_no_entry_is_refused(entry, source, why):
    with pytest.raises(arena_file.Refused, match=why):
        entry(source)


@pytest.mark.parametrize("end, why", [
    ("[1], 0", "must start with row 0"), ("[0, 2], 0", "from a parent to its child"),
    ("[0], 11", "token 11"), ("", "the rule gave None; it must give a path and a token"),
    ("[0]", r"the rule gave \[0\]; it must"),
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
    found = load_contests()["epyc"]
    tokens, price, quotient = speedups(found, 1)["01 chain of 4, 57K GPT"]
    prices = {"epyc": arena_file.chain_price(found["tables"]["1"]["curve"], price)}
    line = {"tau": tokens, "passes": 4, "drafts": 4}
    assert arena_file.foretold(line, prices) == [pytest.approx(quotient)]
    best = arena_file.taught_ones(prices)
    assert len(best) > 10 and any(name.startswith("01 chain of") for name in best)
    for price, k in ((0.0, 16), (9.0, 1)):  # where all is free, and where a pass is dear
        assert f"01 chain of {k}, 57K GPT" in arena_file.taught_ones(
            {"epyc": (price, lambda rows: 1.0)})


def test_a_round_is_priced_by_the_drafter_s_passes_and_one_forward(monkeypatch):
    line = {"tau": 3.0, "passes": 2, "drafts": 4}
    assert arena_file.foretold(line, {"": (0.25, lambda rows: rows)}) == [3 / 5.5]
    curves = {"target": {1: 2.0, 5: 4.0}, "small": {1: 0.5}}
    monkeypatch.setattr(arena_file, "cost_curve", lambda model, repeats: curves[model])
    price, c = arena_file.machines(SimpleNamespace(target="target", small="small"))["here"]
    assert (price, c(1), c(5)) == (0.25, 1, 2)


def test_passes_are_counted_or_measured_in_time():
    m = SimpleNamespace(small=torch.nn.Identity(), dataset=SimpleNamespace(val=torch.ones(99)))

    known = {"asks": (6, 0.002, 0.0), "alone": (0, 0.002, 0.0),  # passes in two rounds, seconds
             "a dummy": (2, 0.04, 0.0), "in observe": (0, 0.002, 0.04)}

    def decode(loop, _):
        passes, draft, commit = known[loop] if isinstance(loop, str) else (0, 0.004, 0.0)
        [m.small(1) for _ in range(passes)]
        verbs = dict(draft=draft, verify=1.0, accept=0.0, commit=commit)
        return Generation([1] * 5, [Step([1, 1], seconds=verbs) for _ in range(2)], 1.0)

    assert arena_file.passes_of(m, "asks", decode) == 3
    assert arena_file.passes_of(m, "alone", decode) == pytest.approx(4 * 0.002 / 0.004)
    assert arena_file.passes_of(m, "a dummy", decode) == pytest.approx(4 * 0.04 / 0.004 - 1)
    assert arena_file.passes_of(m, "in observe", decode) == pytest.approx(4 * 0.042 / 0.004)


def test_the_table_is_ranked_and_for_exact_ones_only(monkeypatch, tmp_path):
    lines = {name: {"tau": tau, "cold": None, "drafts": 2, "passes": 2}
             for name, tau in (("slow", 1.1), ("fast", 3.0), ("mine", 2.0))}
    mine, prices = lines.pop("mine"), dict.fromkeys(("here", "there"), (0.1, lambda rows: 1))
    monkeypatch.setattr(arena_file, "taught_ones", lambda _: lines)
    monkeypatch.setattr(arena_file, "known_slip", lambda *_: "")
    (tmp_path / "mine.py").write_text("BUDGET = (1,)")
    sent = []
    post = SimpleNamespace(send=lambda *message: sent.append(message[-1]))
    watch = SimpleNamespace(doing=lambda _: None)
    for worst, right, places in ((1e-9, True, []), (1e-15, False, []),
                                 (1e-15, True, ["fast", ">", "slow"])):
        sent.clear()
        monkeypatch.setattr(arena_file, "examine", lambda _, say, __, worst=worst:
                            say("EXACT") or worst)
        monkeypatch.setattr(arena_file, "on_real_models",
                            lambda *_, right=right: (mine, prices, (right, "it is far off")))
        assert arena_file.judge(tmp_path / "mine.py", post, watch) == (worst < 1e-12 and right)
        assert right or "EXACT" not in sent and any(
            line.startswith("NOT EXACT") and "it is far off" in line for line in sent[1:])
        table = [line for line in sent if line[:5] in ("fast ", "slow ", "> min")]
        assert [line.split()[0] for line in table] == places


def test_each_step_has_its_time(monkeypatch):
    monkeypatch.setattr(arena.time, "monotonic", lambda: 1000)
    judge, deadlines = object.__new__(arena.Judge), []
    said = iter([("doing", "a"), ("stage",), ("doing", "b"), ("say", "c")])

    def message(deadline):
        deadlines.append(deadline - 1000)
        try:
            return next(said)
        except StopIteration:
            raise TimeoutError from None

    judge.message = message
    assert list(judge.events())[-1] == (
        "failed", f"no answer after {arena.SECONDS} seconds; an endless loop?\n    b")
    assert deadlines == [arena.START] * 2 + [arena.SECONDS] * 3


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
    for args in ((), ("nothing.py",), ("mine.py", "--hunt", "1"), ("--hunt", "4"),
                 ("--hunt", "1", "--seed", "-5"), ("--hunt", "1", "--seed", 9**30)):
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


# ---------------------------------------------------------------- grade.py --run


def test_a_loop_is_taken_for_what_no_loop_before_it_calls(monkeypatch):
    called = {"x": "b", "y": "ab", "z": "bc"}
    functions = {name: lambda: None for name in "abcd"}
    names = {function: name for name, function in functions.items()}
    monkeypatch.setattr(grade_run, "load", lambda _: SimpleNamespace(loops=list(called)))
    monkeypatch.setattr(grade_run.proofs, "stands_in", lambda f, loop: names[f] in called[loop])
    assert grade_run.covering("01", functions) == [("y", {"a", "b"}), ("z", {"c"})]
    monkeypatch.undo()
    [(loop, _)] = grade_run.covering("06", {"score": sys.modules["block_rules"].score})
    assert loop.name == "chain of {}, block verification"  # whose rule is the lesson's


def test_each_row_is_of_its_own_functions(monkeypatch, capsys):
    """A draft that drafts nothing: a token a round, and only in the reader's row."""
    monkeypatch.setattr(grade_run, "TOKENS", 12)
    monkeypatch.setattr(grade_run, "held_out_prompts", lambda *_: [[1, 2, 3]])
    monkeypatch.setattr(grade_run, "collect", lambda *_: Generation(
        [1, 2, 3, 4], [Step([2, 3]), Step([4])], 1.0))
    dataset = SimpleNamespace(tokenizer=SimpleNamespace(encode=lambda _: [1], decode=str))
    pair = vars(sys.modules["chain_specdec"])["draft"], lambda *_: ([], [])
    grade_run.show(load("01").loops[0], ["draft"], {"draft": pair}, proofs.random_cast(), dataset)
    out = capsys.readouterr().out
    plain, taught, own = (float(line.split()[-2]) for line in out.splitlines()[-3:])
    assert plain == own == 1 < taught
    assert "25% of the tokens are the drafter's" in out


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


def suspect(name, text, tokens):
    """A Suspect that writes one text."""
    one = hunt.Suspect(hunt.CHAIN)
    one.name, one.law = name, lambda _, seed: ({text: 1.0}, {"right": 1.0}, tokens * seed)
    return one


def test_levels_and_answers(capsys):
    def law(text, tokens):
        return {text: 1.0}, {"right": 1.0}, tokens

    right = [law("right", 2)] * 2
    for found, level in (([law("a", 2), law("a", 2)], 1), ([law("a", 2), law("right", 2)], 3),
                         ([law("right", 1), law("right", 2)], 2), (right, None)):
        assert hunt.level_of(found, right) == level
    played = object.__new__(hunt.Hunt)
    played.options = [suspect("one", "a", 1.5), suspect("two", "right", 2.5)]
    played.found, played.networks = played.options[1], 2  # whose own seed it is
    assert played.judge(2) and not played.judge(1)
    right, wrong = capsys.readouterr().out.splitlines()
    assert right == "2 is right: two"
    assert wrong.startswith("1 is wrong: with this one, total variation would be 1.000, and 3.000")
    assert wrong.endswith("the hunted one has 0.000 and 5.000")
    for number in (0, 3):
        with pytest.raises(ValueError, match="1..2"):
            played.judge(number)


def test_an_answer_decodes_nothing(monkeypatch):
    """So it loads no models."""
    monkeypatch.setattr(hunt, "read_flags", lambda: SimpleNamespace(
        hunt=1, seed=1, ask=[], answer=3))
    monkeypatch.setattr(hunt, "Hunt", lambda *_: SimpleNamespace(
        budget=4, found=hunt.Suspect(hunt.CHAIN), judge=lambda number: number == 3))
    with pytest.raises(SystemExit, match="0"):
        hunt.main()


@pytest.mark.slow
@pytest.mark.parametrize("level", [1, 2, 3])
def test_every_test_of_a_hunt_can_be_asked(level):
    done = run("--hunt", level, "--seed", 1, "--ask", *arena.ASK)
    assert done.returncode == 0, done.stderr
    assert all(f"\n{what}:\n" in done.stdout for what in arena.ASK)
    assert "overlap says" in done.stdout or "chains only" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("level", [1, 2, 3])
def test_a_hunt_is_won_by_number(level):
    played = hunt.Hunt(level, 1)
    for one, status in (played.found, 0), (played.right, 1):
        done = run("--hunt", level, "--seed", 1, "--answer", played.options.index(one) + 1)
        assert done.returncode == status, done.stderr
        assert ("is right" in done.stdout.splitlines()[-1]) == (status == 0)
    assert run("--hunt", level, "--answer", 99).returncode == 2
