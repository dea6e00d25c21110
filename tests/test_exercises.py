"""The graders themselves: every blank is gradable, every known slip is caught by name, no work is
lost, and no answer spoils another one's marks."""

import ast
import dataclasses
import importlib
import inspect
import re
import subprocess
import sys
import textwrap
import threading
from types import SimpleNamespace

import pytest

import engine_blanks
import grade
import grade_run
import grading
import make_exercises
from grading import ExerciseFile, blanks_of, chapters
from nanogpt.chapter import load
from nanogpt.decoding import Generation, Step, collect
from nanogpt.exact.proofs import random_cast
from nanogpt.exact.slips import Lost, changed
from nanogpt.sampling import Dice, Sampler
from nanogpt.terminal import run

CHAPTERS = chapters()
BLANKS = [(number, blank) for number in CHAPTERS for blank in blanks_of(number)]
WORKSHOP = [(number, blank) for number, blank in BLANKS if grading.in_workshop(number)]
SLIPS = [(number, blank, sentence) for number, blank in BLANKS for sentence in blank.slips]


def named(case):
    return case.name if isinstance(case, grading.Blank) else str(case)


def taught_lines(blank):
    """The lines of the taught function below its docstring, as they stand in its file."""
    node, source = grading.reference_source(blank)
    return source.splitlines()[node.body[1].lineno - 1:node.end_lineno]


def filled(number, answers=None):
    """The chapter's exercise.py with the taught bodies, or these {name: body}, in the blanks."""
    source = make_exercises.exercise_source(number)
    for blank in blanks_of(number):
        if answers is None:
            body = textwrap.dedent("\n".join(taught_lines(blank)))
        elif blank.name in answers:
            body = answers[blank.name]
        else:
            continue
        source = source.replace(f'    raise NotImplementedError("not yet: {blank.name}")',
                                textwrap.indent(body, "    "))
    return source


@pytest.fixture
def graded(tmp_path):
    """graded(number, name, source of the file) -> (status, message), through a real file."""
    def grade_one(number, name, source):
        path = tmp_path / "exercise.py"
        path.write_text(source, encoding="utf-8")
        file = ExerciseFile(path, blanks_of(number))
        assert not file.troubles
        return file.grade(next(b for b in blanks_of(number) if b.name == name))

    return grade_one


# ---------------------------------------------------------------- slips


@pytest.mark.filterwarnings("ignore:invalid value encountered")  # what a slip does
@pytest.mark.parametrize("number, blank, sentence", SLIPS, ids=named)
def test_every_slip_is_caught_and_named(number, blank, sentence, graded):
    """Written into a file, as a learner would: its crashes are the learner's own lines."""
    slip = blank.slips[sentence]
    if isinstance(slip, Lost):
        pytest.skip(slip.why)  # the next test fails for it
    source = textwrap.dedent(inspect.getsource(slip))
    if slip.__name__ != blank.name:  # it may call the taught function
        source = re.sub(rf"\b{blank.name}\(", "taught(", source)
    status, message = graded(number, blank.name, "\n".join([
        "import importlib",
        f"theirs = vars(importlib.import_module({slip.__module__!r}))",
        "globals().update({name: theirs[name] for name in theirs if name[:2] != '__'})",
        f"taught = theirs.get({blank.name!r})",
        *(f"{name} = {value!r}" for name, value in
          inspect.getclosurevars(inspect.unwrap(slip)).nonlocals.items()),
        source, f"{blank.name} = {slip.__name__}"]))
    assert status in ("wrong", "crashed"), message
    assert f"This is what you get when {sentence}." in message


@pytest.mark.parametrize("number", CHAPTERS)
def test_every_slip_can_be_made_from_the_code_as_it_stands(number):
    made = grading.wrong_variants(CHAPTERS[number])
    assert not [slip.why for table in made.values() for slip in table.values()
                if isinstance(slip, Lost)]


def test_a_rewritten_taught_line_costs_its_own_slips_and_no_more(tmp_path):
    """A copy of the checkout, in which somebody tinkers with chapter 01."""
    root = tmp_path / "copy"
    for part in ("nanogpt", "tests", *(folder.name for folder in CHAPTERS.values())):
        (root / part).mkdir(parents=True)
        for source in (grading.ROOT / part).rglob("*.py"):
            there = root / source.relative_to(grading.ROOT)
            there.parent.mkdir(parents=True, exist_ok=True)
            there.write_bytes(source.read_bytes())
    taught = root / CHAPTERS["01"].name / "chain_specdec.py"
    node, source = grading.reference_source(
        next(blank for blank in blanks_of("01") if blank.name == "residual"))
    doc, *body = node.body
    doc.value = ast.Constant("Another docstring; and comments are lost.")
    lines = [line for line in body if ast.unparse(line).startswith("missing = ")]
    assert len(lines) == 1, "residual has no line `missing = ..`; let this test rewrite another"
    same = "(target_probs - draft_probs) * (target_probs > draft_probs)"
    lines[0].value = ast.parse(same).body[0].value
    lines = source.splitlines()
    lines[node.lineno - 1:node.end_lineno] = [ast.unparse(node)]
    taught.write_text("\n".join(lines), encoding="utf-8")
    (root / "mine.py").write_text(filled("01", {"residual": "return target_probs"}), "utf-8")
    (root / "two.py").write_text(filled("02", {"walk": "return [0], 0"}), "utf-8")
    said = {}
    for number, name, blank in (("01", "mine.py", "residual"), ("02", "two.py", "walk")):
        said[number] = subprocess.run(
            [sys.executable, "tests/grade.py", number, "--file", name, "--blank", blank], cwd=root,
            capture_output=True, text=True, check=False).stdout
    assert "This is what you get when the residual is the target itself." in said["01"]
    assert ("(Not compared, for the taught residual was rewritten: the absolute difference is "
            "taken.)") in said["01"]
    assert "expected [[0, 4, 5], 0]" in said["02"] and "rewritten" not in said["02"]


# ---------------------------------------------------------------- stubs


@pytest.mark.parametrize("number, blank", BLANKS, ids=named)
def test_every_blank_has_slips_and_says_how_long_it_is(number, blank):
    taught = sum(bool(line.strip()) and line.strip()[0] not in "#)]}"
                 for line in taught_lines(blank))
    assert abs(blank.lines - taught) <= 1 + taught // 4, f"{blank.name}: {taught} lines"
    assert len(blank.slips) >= 2 and blank.hint


@pytest.mark.parametrize("number", CHAPTERS)
def test_committed_exercises_are_up_to_date(number):
    path = CHAPTERS[number] / "exercise.py"
    source = path.read_text(encoding="utf-8", errors="replace")
    if not make_exercises.is_untouched(path):
        assert not all(f'"not yet: {blank.name}"' in source for blank in blanks_of(number)), (
            f"{path} was changed by hand, and no blank is filled. If the change is no note of "
            "yours, delete the file and run python tests/make_exercises.py")
        pytest.skip("somebody works in this one")
    assert source == make_exercises.exercise_source(number), "run python tests/make_exercises.py"


def test_a_wrong_checksum_is_no_work(classroom, monkeypatch):
    """Or a file that was mended by hand once would never be compared again."""
    empty = make_exercises.exercise_source("01")
    path = classroom("01", empty.replace("Draft k tokens", "Draft some tokens"))
    monkeypatch.setitem(CHAPTERS, "01", path.parent)
    with pytest.raises(AssertionError, match="was changed by hand, and no blank is filled"):
        test_committed_exercises_are_up_to_date("01")
    classroom("01", filled("01", {"draft": "return [], []"}))
    with pytest.raises(pytest.skip.Exception, match="somebody works"):
        test_committed_exercises_are_up_to_date("01")


@pytest.mark.parametrize("number", CHAPTERS)
def test_a_stub_is_still_blank_and_filled_with_the_taught_body_it_passes(number, graded):
    """The stubs' imports suffice: paste each taught body into its stub and grade the file. While
    one is graded, the blanks that it needs may be empty."""
    for blank in blanks_of(number):
        body = textwrap.dedent("\n".join(taught_lines(blank)))
        for source, status in ((filled(number, {}), "still blank"), (filled(number), "done"),
                               (filled(number, {blank.name: body}), "done")):
            assert graded(number, blank.name, source)[0] == status, blank.name


def test_the_command_line_knows_the_tables():
    """grade.py reads them as text, so as not to load torch."""
    assert {number: (folder, list(hints)) for number, (folder, hints) in grade.tables().items()} \
        == {number: (folder, [b.name for b in blanks_of(number)])
            for number, folder in CHAPTERS.items()}


# ---------------------------------------------------------------- what is said of an answer


@pytest.mark.parametrize("number, name, body, status, message", [
    ("01", "draft", "return 1 / 0", "crashed", "ZeroDivisionError: division by zero\n    line"),
    ("01", "residual", "return torch.nn.Module()(target_probs)", "crashed", "NotImplementedError"),
    ("01", "acceptance_probability", ("return ", "return 0.999 * "), "wrong", "got      0.8325"),
    ("05", "best_size", "return masses.x", "crashed", "called with masses = [0.3, 0.2, 0.1], ms ="),
    ("02", "commit", "rows.sort()", "wrong", "your code changes its argument rows; work on a copy"),
    ("01", "residual", "target_probs -= draft_probs", "wrong", "its argument target_probs"),
    ("02", "verify", "tree.depths += context.cache.length\nreturn context.verify("
     "tree.tokens.tolist(), sampler, tree.depths, tree.mask)", "wrong", "its argument tree"),
    ("02", "multi_round", ("path = [0]", "tree.children[0].reverse()\npath = [0]"), "wrong",
     "its argument tree"),
    ("03", "rounds_of", ("lengths[root]", "lengths.pop(root)"), "wrong", "its argument lengths"),
    ("04", "trie_merge", "trees[0].tokens[0] = 3\nreturn trees[0], scores[0]", "wrong",
     "its argument trees"),
    ("05", "node_masses", ("return", "tree.mask = ~tree.mask\nreturn"), "wrong",
     "its argument tree"),
    ("01", "speculate_chain", ("root = token", "root = token\n    prompt += tokens"), "wrong",
     "its argument prompt"),
    # chance: from whom, and by what
    ("01", "draft", ("dice.draw(draft_probs[-1])", "dice.draw(draft_probs[-1].numpy())"), "wrong",
     "dice.draw gets a ndarray; it takes a tensor (V,)"),
    ("02", "draw_without_replacement", "return [dice.draw(probs.numpy())]", "wrong",
     "dice.draw gets a ndarray"),
    ("01", "draft", ("dice.draw(draft_probs[-1])", "int(draft_probs[-1].multinomial(1))"), "wrong",
     "your code asks torch for chance; ask the dice, and nobody else"),
    ("02", "walk", "return [0], np.random.choice(6)", "wrong", "your code asks numpy for chance"),
    # one name for the rows, as one would write it
    ("01", "speculate_chain", ("list(range(n + 1))", "list(range(len(drafted) + 1))"), "wrong",
     "This is what you get when the rows of rejected drafts stay in the cache, and the drafter"),
    ("03", "best_nodes", "max(scores)", "wrong", "nothing comes back; is a `return` missing?"),
    ("05", "best_first", "children((root,))", "wrong", "is a `yield` missing?"),
    ("02", "ancestor_mask", "return 3", "wrong", "expected"),
    ("05", "best_size", "return 2", "wrong", "4, 4, rate .4\n    expected 3\n    got      2"),
    ("05", "best_size", "return '2'", "wrong", "expected 2\n    got      '2'"),
    ("02", "commit", "pass", "wrong", "This is what you get when the length does not move"),
    ("02", "walk", ("return path, token", "return torch.tensor(path), token"), "wrong",
     "path and token hold 0 as a Tensor; rows and tokens are ints: int(...)"),
    ("02", "walk", "return [0]", "wrong", "[0] comes back; it must be two things: path, token"),
    # the second example is told together with the first, which it varies
    ("02", "walk", "return [0, 4, 5], 0", "wrong",
     "for the target says 1, then 1\n        (of: tokens (7 1 2 0 2 1)"),
    # a mask is drawn
    ("02", "ancestor_mask", "return torch.eye(len(parents)).bool()", "wrong",
     "row   expected      got\n      0   1 . . . . .   1 . . . . .\n"
     "      1   1 1 . . . .   . 1 . . . .   <-"),
    # crashes are compared with the slips, too
    ("04", "accept_paths", "paths, depth = path_matrix(tree), 0\nwhile True:\n"
     "    token = dice.draw(target_probs[paths[0, depth]])\n    depth += 1\n"
     "    alive = paths[:, depth]", "crashed", "IndexError: index 3 is out of bounds"),
    ("01", "accept", "n = 0\nfor i, token in enumerate(drafted):\n"
     "    n += dice.flip(acceptance_probability(target_probs[i], draft_probs[i], token))\n"
     "return n, dice.draw(target_probs[len(drafted)])", "wrong",
     "This is what you get when a rejection does not end the round: all drafts are judged"),
    # like a slip in the case that is shown, and not in another
    ("05", "best_size", "return next((n for n, mass in enumerate(masses) "
     "if mass <= rate * (ms[n + 1] - ms[n])), len(masses))", "wrong",
     "This is what you get when the first node that loses ends it"),
    # 04: the trees are written down with their scores
    ("04", "trie_merge", "best = {}\nfor tree, values in zip(trees, scores):\n"
     "    for path, score in zip(prefixes(tree), values):\n"
     "        best[path] = min(score, best.get(path, 0.0))\n"
     "kept = sorted(best, key=lambda p: (-best[p], len(p)))[:1 + budget]\n"
     "row = {path: i for i, path in enumerate(kept)}\n"
     "return Tree([0, *(p[-1] for p in kept[1:])], [-1, *(row[p[:-1]] for p in kept[1:])]), "
     "[best[p] for p in kept]", "wrong",
     "    (1,): expected 0.8, got 0.6"),
    # a pair: what of the taught body is replaced by what
    ("06", "score_children", ("B, n, k = tokens.shape", "B, n, k = tokens.shape\n"
                              "A = scores.sum(-1)"), "wrong",
     "for the same with A = 1: scores of the children"),
    ("06", "rejection_rounds", ("taken.sum(-1, keepdims=True)", "taken.sum()"), "wrong",
     "for two problems at once, the whole target and half of it, k = 2\n"),
    ("06", "stop_probabilities", ("h / np.maximum(h.sum(-1, keepdims=True), 1)", "h"), "wrong",
     "a sum above 1\n    expected [False, False]\n    got      [False, True]"),
    # too much work
    ("01", "draft", ("return drafted", "drafter.logits(token)\nreturn drafted"), "wrong",
     "how many forwards of the drafter"),
    ("02", "multi_round", ("path.append(child)",
                           "return [0, child], dice.draw(target_probs[child])"), "wrong",
     "got      [[0, 1], 0, [0.5, [0.5, 0.5, 0]]]"),
    ("05", "best_first", "waiting, row = [((root,), 0.0, 0)], 0\nnodes = []\n"
     "for prefix, score, parent in waiting:\n"
     "    for log_prob, token in zip(*children(prefix)):\n"
     "        nodes.append((score + log_prob, prefix + (token,)))\n"
     "        waiting.append((nodes[-1][1], nodes[-1][0], 0))\n"
     "rows = {(root,): 0}\nfor score, prefix in sorted(nodes, reverse=True):\n"
     "    rows[prefix] = len(rows)\n"
     "    yield prefix[-1], rows[prefix[:-1]], math.exp(score)", "wrong",
     "asks for the children of 51 prefixes before it yields node 1; whoever asks decides"),
    ("05", "best_first", "heap, rows = [], [((root,), 0.0)]\nwhile rows[0] or heap:\n"
     "    prefix, score = rows[-1]\n    for log_prob, token in zip(*children(prefix)):\n"
     "        heapq.heappush(heap, (-score - log_prob, len(rows) - 1, token))\n"
     "    if not heap:\n        return\n    minus, parent, token = heapq.heappop(heap)\n"
     "    rows.append((rows[parent][0] + (token,), -minus))\n"
     "    yield token, parent, math.exp(-minus)", "wrong",
     "for 5 nodes your code scores 50 prefixes"),
    ("02", "draw_without_replacement", "out = []\nwhile len(out) < n:\n    x = dice.draw(probs)\n"
     "    out += [x] * (x not in out)\nreturn out", "crashed", "too many draws: more than 100"),
    ("02", "draw_without_replacement", "[dice.flip(.5) for _ in range(12)]\n"
     "return [dice.draw(probs)]", "crashed", "too many sequences of draws, more than 3,000"),
    ("05", "best_first", ("yield tokens[rank]", "yield rank"), "wrong", "q_1 (.4, .6)"),
    ("05", "best_first", ("below.append(children(prefixes[row]))",
                          "children(prefixes[row])\n    below.append(children(prefixes[row]))"),
     "wrong", "asks for the children of 9 prefixes: 5 are enough"),
    ("01", "residual", "if len(target_probs) == 2:\n"
     "    return torch.tensor([1., 0]).to(target_probs)\n"
     "return torch.tensor([[0., 1, 0], [5 / 6, 1 / 6, 0], [.5, .3, .2]])"
     "[int(target_probs[0] > .55) if float(target_probs[0]) != float(draft_probs[0]) else 2]"
     ".to(target_probs)", "wrong", "the examples are right, but the text no "
     "longer has the target's distribution at temperature"),
])
def test_what_is_said_of_an_answer(number, name, body, status, message, graded):
    if isinstance(body, tuple):
        blank = next(b for b in blanks_of(number) if b.name == name)
        taught = textwrap.dedent("\n".join(taught_lines(blank)))
        assert body[0] in taught
        body = taught.replace(*body)
    source = "import heapq, math\nimport numpy as np\n" + filled(number, {name: body})
    got = graded(number, name, source)
    assert got[0] == status and message in got[1], got


def test_a_message_says_once_what_the_call_was(graded):
    _, message = graded("01", "residual", filled("01", {"residual": (
        "missing = (target_probs - draft_probs).clamp(min=0).numpy()\n"
        "return missing / missing.sum() if missing.sum() > 0 else target_probs")}))
    assert "AttributeError" in message and message.count("called with") == 1


@pytest.mark.parametrize("name, but, of", [
    ("ragged_commit", "the stop is the last token that it may write", False),
    ("speculate_chain", "the target counts", False),
    ("speculate_chain", "the same with k = 2", True),
    ("accept", "the first coin fails", True)])
def test_a_case_names_another_one_only_if_it_varies_it(name, but, of):
    """Right answers, but for one case."""
    blank = next(b for b in [*engine_blanks.BLANKS, *blanks_of("01")] if b.name == name)
    case = next(case for case in blank.examples if case.startswith(but))
    blank = dataclasses.replace(blank, examples={
        **blank.examples, case: (blank.examples[case][0], "another result")})
    blank.slips = {}
    _, message = grading.grade_answer(blank, changed(blank.taught()))
    assert f"for {case}\n" in message and ("(of: " in message) is of


def test_taught_code_that_was_changed_is_named_before_the_verdict(graded, monkeypatch):
    """Right answers; then chapter 02, whose own taught code leans on it."""
    chain_specdec = sys.modules["chain_specdec"]
    right, own = filled("01"), filled("02")
    monkeypatch.setattr(chain_specdec, "residual", changed(
        chain_specdec.residual, "(target_probs - draft_probs).clamp(min=0)",
        "(target_probs - draft_probs).abs()"))
    said = ("This verdict may be wrong, for taught code was changed and fails its own examples: "
            "residual in chain_specdec.py, accept in chain_specdec.py")
    status, message = graded("01", "accept", right)
    assert status == "wrong" and message.startswith(said)
    assert "`git diff` shows the change.\n    for the first coin fails" in message
    assert graded("02", "commit", own) == ("done", "")
    assert graded("02", "walk", filled("02", {"walk": "return 3"}))[1].startswith(said)


def test_an_endless_loop_in_a_lesson_ends(monkeypatch, capsys):
    def share_drafts(alphas, most, price, draft_ms):
        while True:
            most = [n + 1 for n in most]

    monkeypatch.setattr(grading, "SECONDS", 0)
    monkeypatch.setattr(grading, "LIFE", 0.2)
    engine_blanks.grade_here(share_drafts)
    out = capsys.readouterr().out
    assert "(at work for " in out and "share_drafts: crashed\n    no answer after 30 sec" in out
    assert re.search(r"endless loop\?\n    for alphas .8, .5, .*\n    line \d+: ", out)


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited on Linux only")
@pytest.mark.parametrize("more", ["held.append(bytearray(1 << 27))",
                                  "held.append(torch.zeros(1 << 25))"])
def test_an_answer_has_as_much_memory_as_in_the_arena(classroom, capsys, more):
    loop = f"held = []\nwhile len(held) < 99:\n    {more}\nreturn 3"
    classroom("03", filled("03", {"best_nodes": loop}))
    with pytest.raises(SystemExit):
        grade.main(["03"])
    out = capsys.readouterr().out
    assert re.search(r"best_nodes +crashed: for scores .*: \w+Error: more than 2 GB of memory\n"
                     r"    line \d+: held.append", out)


def test_what_is_at_hand_is_explained_at_the_top():
    assert "\n* verify(context, root, drafted, sampler): One causal" in (
        make_exercises.exercise_source("01"))
    assert "\n* in d a - S r, the bias: d is how much" in make_exercises.exercise_source("05")


# ---------------------------------------------------------------- what is right is used

def noting(name, number, tmp_path):
    """A chapter's file with the taught body for one blank, which notes every call -> the file."""
    body = textwrap.dedent("\n".join(taught_lines(
        next(b for b in blanks_of(number) if b.name == name))))
    path = tmp_path / "exercise.py"
    path.write_text(filled(number, {name: f"noted.append({name!r})\n{body}"}) + "\nnoted = []\n",
                    encoding="utf-8")
    return path


@pytest.mark.parametrize("number, name", [
    ("01", "residual"), ("01", "speculate_chain"), ("02", "commit"), ("02", "walk"),
    ("03", "best_nodes"), ("05", "best_first"), ("06", "score_children")])
def test_a_loop_decodes_with_the_files_functions(number, name, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(grade_run, "TOKENS", 12)
    monkeypatch.setattr(grade_run, "PROMPTS", 1)
    monkeypatch.setattr(grade_run, "held_out_prompts", lambda *_: [[1, 2, 3]])
    letters = SimpleNamespace(encode=lambda _: [1, 2, 3],
                              decode=lambda tokens: "".join("abcdefghijk"[t] for t in tokens))
    blank = next(b for b in blanks_of(number) if b.name == name)
    file = ExerciseFile(noting(name, number, tmp_path), blanks_of(number))
    taught, own = blank.taught(), file.answers([name])[name]
    (loop, called), = grade_run.covering(number, {name: taught})
    grade_run.show(loop, called, {name: (taught, own)}, random_cast(),
                   SimpleNamespace(tokenizer=letters))
    out = capsys.readouterr().out
    assert f"with your {name};" in out and len(file.space["noted"]) > 2
    _, text, share, *_ = (part for part in out.split("\n\n") if part.strip())
    mine = len(re.sub(r"\[.\]", "", text))
    assert share.startswith(f"{mine / (mine + text.count('[')):.0%} of the tokens are the drafter")
    rows = [line.split()[-2:] for line in out.splitlines()[-3:]]
    assert rows[0][0] == "1.00" and rows[1][0] == rows[2][0]  # the same text
    assert blank.taught() is taught  # as if nothing had been


def test_a_text_has_the_colours_of_its_authors():
    text = Generation([1, 2, 3, 4], [Step([2, 3]), Step([4])], 1.0)

    def decode(tokens):
        return "".join("?ab\nd"[token] for token in tokens)

    assert grade_run.colored(text, decode, terminal=False) == "[a]b[\n][d]"
    blue, orange, end = grade_run.GUESSED, grade_run.WRITTEN, grade_run.END
    assert grade_run.colored(text, decode, terminal=True) == (
        f"{orange}a{end}{blue}b{end}{orange}{end}\n{orange}{end}{orange}d{end}")


def test_run_decodes_with_what_is_right_and_says_what_is_not(classroom, capsys, monkeypatch):
    started = []
    monkeypatch.setattr(grade.subprocess, "run", lambda command, **_: started.append(
        command) or subprocess.CompletedProcess(command, 0))
    classroom("04", filled("04", {"trie_merge": "return 3"}))
    with pytest.raises(SystemExit):
        classroom("03", filled("03")) and grade.main(["--run", "3"])
    grade.main(["--run", "04"])
    assert [command[-2:] for command in started] == [["best_nodes", "rounds_of"]]
    assert "04  trie_merge               wrong: the taught one decodes" in capsys.readouterr().out


@pytest.mark.parametrize("number, name", [("01", "residual"), ("01", "accept"), ("02", "commit")])
def test_a_lesson_goes_on_with_a_right_answer(number, name, tmp_path, capsys):
    blank = next(b for b in blanks_of(number) if b.name == name)
    taught, loops, path = blank.taught(), load(number).loops[:], noting(name, number, tmp_path)
    for _ in range(2):  # a cell may be run again
        grade_run.use(number, path, name, right=True)
    assert f"uses your {name}" in capsys.readouterr().out
    own = blank.taught()
    assert own is not taught and inspect.unwrap(own) is inspect.unwrap(taught)
    if name == "residual":  # chapter 02 holds it as well
        assert vars(sys.modules["tree_attention"])[name] is own
    loop = load(number).loops[0]
    collect(loop.steps(random_cast(), loop.budgets[0], [1, 2, 3], Sampler(1), Dice(0)), 9)
    assert own.__globals__["noted"]
    grade_run.use(number, path, name, right=False)
    assert blank.taught() is taught and load(number).loops == loops


# ---------------------------------------------------------------- files


@pytest.fixture
def classroom(tmp_path, monkeypatch):
    """A copy of the exercises: a function that writes a chapter's file there."""
    known = {n: tmp_path / folder.name for n, folder in CHAPTERS.items()}
    hints = {n: hints for n, (_, hints) in grade.tables().items()}
    monkeypatch.setattr(grade, "tables", lambda: {n: (known[n], hints[n]) for n in known})
    monkeypatch.setattr(make_exercises, "chapters", lambda: known)

    def write(number, source, learner=None):
        folder = tmp_path / learner / known[number].name if learner else known[number]
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "exercise.py"
        path.write_bytes(source if isinstance(source, bytes) else source.encode())
        return path

    for number in known:
        write(number, make_exercises.exercise_source(number))
    return write


def test_the_verdicts_on_all_chapters(classroom, capsys):
    tries = "\nprint('\u2192', residual)\nresidual_of(3)\nprint('\x1b[2J01  accept  done')\n"
    classroom("01", b"# -*- coding: latin-1 -*-\n\n# \xe9\n" + filled("01").encode() + tries.encode(
        "latin-1", "replace"))
    classroom("02", filled("02", {"ancestor_mask": "return 3", "commit": "raise ValueError('x')"}))
    classroom("03", "def broken(:")
    classroom("04", "").unlink()
    for number in ("05", "06"):
        classroom(number, filled(number, {}) + "\nprint(rejection_rounds(1, 1, 1))\n")
    grade.main([])
    out = capsys.readouterr().out
    statuses = [line.split()[2] for line in out.splitlines()
                if line[:4] in ("01  ", "02  ") and "line" not in line]
    assert statuses[:5] == ["done"] * 5
    assert sorted(statuses[5:]) == ["crashed:", *["still"] * 4, "wrong:"]
    assert "does not run: SyntaxError" in out and "is missing; python tests/make" in out
    assert re.search(r"01  line \d+: NameError: name 'residual_of' .*\(the rest of the file", out)
    assert out.count("    | ? <function") == 1 and "    | \\x1b[2J01  accept  done" in out
    assert re.search(r"06  line \d+: NotImplementedError: not yet: rejection_rounds \(the re", out)
    assert out.endswith(f"\n5 of {len(BLANKS)} done\n")
    for more, said in ([], "AFTER node i.\n(One more:"), (["--more"], "asks for one draw"):
        grade.main(["--hint", "walk", *more])
        assert said in capsys.readouterr().out


DEADLY = {  # answers that end, block or spoil a process, and what is said of them
    "acceptance_probability": ("while True:\n        pass",
                               r"an endless loop\?\n    for target .*\n    line \d+: (while|pass)"
                               r".*\n    called with target_probs = "),
    "residual": ("import sys, os\nsys.stdout = None\ngetattr(os, 'fork', int)()\n"
                 "raise KeyboardInterrupt", "KeyboardInterrupt"),
    "draft": ("import os; os._exit(0)", r"it ends Python \(exit status 0\)\n    for drafter t"),
    "accept": ("class Odd(Exception):\n    def __str__(self):\n        1 / 0\nraise Odd",
               r"Odd: \(its text cannot be made\)"),
    "speculate_chain": ("print('x' * 10**7)\nyield Step(range(10**6))", r"'1000000 entries'"),
}


def test_an_answer_ends_itself_and_nothing_else(classroom, capsys, monkeypatch):
    """The clock stands still until the endless loop is seen at work."""
    now, wait = [0.0], grade.Judge.message

    def message(judge, deadline):
        found = wait(judge, deadline)
        now[0] += 999 * bool(re.search(r": (while True|pass)", str(found)))
        return found

    monkeypatch.setattr(grade, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(grade, "SECONDS", 0)  # of the processor
    monkeypatch.setattr(grade.Judge, "message", message)
    classroom("01", filled("01", {name: body for name, (body, _) in DEADLY.items()})
              + "\nprint('once')\n")
    with pytest.raises(SystemExit, match="1"):
        grade.main(["1"])
    out = capsys.readouterr().out
    for name, (_, said) in DEADLY.items():
        assert re.search(f"01  {name} +(crashed|wrong): (.*\n)*?.*{said}", out), (name, out)
    assert out.count("| once") == 1 and len(out) < 6000
    assert [line.split()[1] for line in out.splitlines() if line[:4] == "01  "] == list(DEADLY)


def test_a_class_folder(classroom, capsys, tmp_path):
    """A row a learner; nobody's answers change another one's marks, nor end the table."""
    spoiler = "\ntorch.Tensor.clamp = lambda self, **limits: self * 0\n"
    classroom("01", filled("01") + spoiler, "class/ada")
    classroom("03", filled("03", {"rounds_of": "return 0"}), "class/ada")
    classroom("01", "\ufeff" + filled("01"), "class/bob")
    classroom("01", "import os\nos._exit(0)", "class/eve")
    killer = "import os\nos.kill(parent.pop(), 9)"  # once: its next parent is none of ours
    classroom("03", filled("03", {"rounds_of": killer}) + "\nimport os\nparent = [os.getppid()]\n",
              "class/mal")
    for nobody in (".git", "__MACOSX"):
        classroom("01", "", f"class/{nobody}")
    grade.main(["--class-folder", str(tmp_path / "class")])
    out = capsys.readouterr().out
    header = len(CHAPTERS) + 3  # lines: whose columns these are
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines()[header:]
            if line[0] != " "}
    assert list(rows) == ["ada", "bob", "eve", "mal"]
    nothing = ["-"] * (len(BLANKS) - 5)
    assert rows["bob"] == ["+"] * 5 + nothing + ["5"]
    assert rows["eve"] == ["x"] * 5 + nothing + ["0"] and "line 2: it ends Python" in out
    assert rows["ada"][1] == "w" and rows["ada"][11:13] == [".", "w"]
    assert rows["mal"][11:13] == [".", "!"]
    grade.main(["03", "--blank", "rounds_of", "--class-folder", str(tmp_path / "class")])
    out = capsys.readouterr().out
    assert re.search(r"ada +w +0\n    wrong: ", out)
    assert re.search(r"mal +! +0\n    crashed: it ends its grader\n", out)


def test_after_ctrl_c_no_more_of_a_class_is_graded(tmp_path, monkeypatch, capsys):
    """The first row is printed while two more are graded; nobody behind them is begun."""
    pool, begun, pressed = grade.ThreadPoolExecutor, [], threading.Event()

    class Pool(pool):
        def shutdown(self, wait=True, **how):
            super().shutdown(wait=False, **how)
            pressed.set()
            super().shutdown()

    def slow(number, path, names):
        begun.append(path)
        pressed.wait() if len(begun) > 1 else None
        return None, ""

    def press(*_):
        raise KeyboardInterrupt

    for name, value in {"ThreadPoolExecutor": Pool, "graded_apart": slow,
                        "print_learner": press}.items():
        monkeypatch.setattr(grade, name, value)
    for i in range(9):
        (tmp_path / f"learner {i}").mkdir()
    with pytest.raises(KeyboardInterrupt):
        grade.main(["01", "--class-folder", str(tmp_path)])
    assert len(begun) <= 1 + grade.AT_ONCE


def test_a_failing_grader_shows_itself_in_a_lesson(monkeypatch, capsys):
    lesson = importlib.import_module("nanogpt.pictures.lesson")
    monkeypatch.chdir(CHAPTERS["02"])
    for wrong in ("comit", ""):
        lesson.grade(wrong)
        assert f"blank is '{wrong}'; it must be one of ancestor_mask" in capsys.readouterr().out
    monkeypatch.setattr(lesson.subprocess, "run", lambda command, **_: subprocess.CompletedProcess(
        [], -9, "", command[-1]))
    lesson.grade(grade.grade)  # the function, not its name
    assert capsys.readouterr().out == "grade\nThe grader broke off with exit status -9.\n"
    monkeypatch.chdir(grading.ROOT)
    lesson.grade("walk")
    assert "no chapter's folder" in capsys.readouterr().out


def test_a_promise_is_no_assert():
    """python -OO removes asserts and docstrings."""
    said = subprocess.run([sys.executable, "-OO", "-c", "\n".join([
        f"import sys; sys.path[:0] = [{str(grading.ROOT)!r}, {str(grading.ROOT / 'tests')!r}]",
        "import nanogpt, grading",
        "blank = grading.blanks_of('01')[0]",
        "rows, taught = {(.5, .6): 5 / 6, (.3, .1): 1.0, (.2, .3): 2 / 3}, blank.taught()",
        "def learned(p, q, t):",
        "    return rows.get((round(float(p[t]), 3), round(float(q[t]), 3)), 1.0)",
        "print(grading.grade_answer(blank, learned))",
        "print(grading.grade_answer(blank, lambda p, q, t: taught(p, q, t)))"])],
        capture_output=True, text=True, check=False)
    assert "the examples are right, but the text no longer" in said.stdout, said
    assert said.stdout.endswith("('done', '')\n")


@pytest.mark.parametrize("add", [
    "\n# MY NOTES\n", "\nimport math\n", "\nresidual = lambda p, q: p\n", "\nprint(residual)\n",
    "\nclass Try:\n    pass\n"])
def test_work_is_left_alone_and_empty_stubs_are_renewed(classroom, capsys, add):
    empty = make_exercises.exercise_source("01")
    for worked in (empty + add, add + empty, empty.replace("\n\n\n", f"\n\n\n{add}\n\n", 1),
                   (empty + add).replace("\n", "\r\n")):
        path = classroom("01", worked)
        make_exercises.main(["01"])
        assert "01_chain_specdec/exercise.py is not the empty one" in capsys.readouterr().out
        assert path.read_bytes() == worked.encode()
    old = empty.replace("Draft k tokens", "Draft some tokens").rpartition(make_exercises.MARK)[0]
    stale = f"{old}{make_exercises.MARK}{make_exercises.checksum(old)}\n"
    for ends in ("\n", "\r\n"):
        path = classroom("01", stale.replace("\n", ends))
        make_exercises.main(["01"])
        assert path.read_text(encoding="utf-8") == empty


@pytest.mark.parametrize("main, flags, sentence", [
    (grade.main, ["99"], "argument chapter: invalid choice: '99'"),
    (grade.main, ["01", "--hint", "walk"], "blank is 'walk'; it must be one of accept"),
    (grade.main, ["01", "--blank", ""], "blank is ''; it must be one of accept"),
    (grade.main, ["--class-folder", "nowhere"], "class folder 'nowhere' is no folder"),
    (grade.main, ["--class-folder", ""], "class folder is ''"),
    (grade.main, ["--class-folder", str(grading.ROOT)], "holds 01_chain_specdec itself"),
    (grade.main, ["--file", "x.py"], "its chapter must be given"),
    (make_exercises.main, ["99"], "chapter is '99'"),
])
def test_bad_flags(capsys, main, flags, sentence):
    with pytest.raises(SystemExit) as stopped:
        run(lambda: main(flags))
    error = capsys.readouterr().err
    assert stopped.value.code == 2 and sentence in error and error.count("\n") == 1


def test_the_workshop_guide_knows_the_blanks():
    """Its tables: every blank of its chapters with its minutes and one of its slips; what the
    lessons ask for."""
    guide = (grading.ROOT / "tests" / "WORKSHOP.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.strip("|").split("|")]
            for line in guide.splitlines() if line.startswith("| `")]
    for (name, minutes, _, slip), (_, blank) in zip(rows, WORKSHOP, strict=True):
        assert (name, minutes) == (f"`{blank.name}`", str(blank.minutes)) and slip in blank.slips
    numbers = {number for number, _ in WORKSHOP}
    asked = {number: [name for lesson in sorted(CHAPTERS[number].glob("*.ipynb"), reverse=True)
                      for name in re.findall(r'grade\(\\"(\w+)\\"\)', lesson.read_text("utf-8"))]
             for number in numbers}
    # One stands with its two-copy form in chapter 04's RESULTS.
    assert asked == {number: [b.name for b in blanks_of(number) if b.name != "accept_paths"]
                     for number in numbers}
    assert "`accept_paths` is asked for in no lesson" in guide
    assert f"{len(WORKSHOP) + len(engine_blanks.BLANKS)} blanks" in guide
    for number in numbers:
        minutes = sum(blank.minutes for blank in blanks_of(number))
        assert f"| {number} | {len(blanks_of(number))} | {minutes} |" in guide


@pytest.mark.parametrize("blank", [*(blank for _, blank in WORKSHOP), *engine_blanks.BLANKS],
                         ids=named)
def test_a_blank_has_two_hints_and_its_question_lists_no_calls(blank):
    first, second = grade.rungs(blank.hint)
    assert first != second and "You may call" not in blank.question
