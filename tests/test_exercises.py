"""The graders themselves: every blank is gradable, and every known slip is caught by name."""

import importlib
import re
import subprocess
import textwrap

import pytest

import grade
import grading
import make_exercises
from grading import chapters, grade_answer, is_untouched, load_answers
from nanogpt.cli import run

CHAPTERS = chapters()
BLANKS = [(number, blank) for number, (_, blanks) in CHAPTERS.items() for blank in blanks]
SLIPS = [(blank, sentence) for _, blank in BLANKS for sentence in blank.slips]


def named(case):
    return case.name if isinstance(case, grading.Blank) else str(case)


@pytest.mark.filterwarnings("ignore:invalid value encountered")  # what a slip does
@pytest.mark.parametrize("blank, sentence", SLIPS, ids=named)
def test_every_slip_is_caught_and_named(blank, sentence):
    status, message = grade_answer(blank, blank.slips[sentence])
    assert status in ("wrong", "crashed"), (status, message)
    assert status == "crashed" or sentence in message


def taught_lines(blank):
    """The lines of the taught function below its docstring, as they stand in its file."""
    node, source = grading.reference_source(blank)
    return source.splitlines()[node.body[1].lineno - 1:node.end_lineno]


def filled(number, answers=None):
    """The chapter's exercise.py with the taught bodies, or these {name: body}, in the blanks."""
    source = make_exercises.exercise_source(number, CHAPTERS[number][1])
    for blank in CHAPTERS[number][1]:
        if answers is None:
            body = textwrap.dedent("\n".join(taught_lines(blank)))
        elif blank.name in answers:
            body = answers[blank.name]
        else:
            continue
        source = source.replace(f'    raise NotImplementedError("not yet: {blank.name}")',
                                textwrap.indent(body, "    "))
    return source


def verdict(number, name, body):
    """-> (status, message) of one blank filled with this body, the others empty."""
    blanks = CHAPTERS[number][1]
    answers = load_answers(filled(number, {name: body}), "exercise.py", blanks)
    blank = next(b for b in blanks if b.name == name)
    return grade_answer(blank, answers[name])


@pytest.mark.parametrize("number, blank", BLANKS, ids=named)
def test_every_blank_has_slips_and_says_how_long_it_is(number, blank):
    taught = sum(bool(line.strip()) and line.strip()[0] not in "#)]}"
                 for line in taught_lines(blank))
    assert abs(blank.lines - taught) <= 1 + taught // 4, f"{blank.name}: {taught} lines"
    assert len(blank.slips) >= 2 and blank.hint


@pytest.mark.parametrize("number", CHAPTERS)
def test_committed_exercises_are_up_to_date(number):
    folder, blanks = CHAPTERS[number]
    committed = (folder / "exercise.py").read_text(encoding="utf-8")
    if not is_untouched(committed):
        pytest.skip("somebody works in this one")
    assert committed == make_exercises.exercise_source(number, blanks), (
        "run python tests/make_exercises.py")


@pytest.mark.parametrize("number", CHAPTERS)
def test_a_stub_is_still_blank_and_filled_with_the_taught_body_it_passes(number):
    """The stubs' imports suffice: paste each taught body into its stub and grade the file."""
    blanks = CHAPTERS[number][1]
    for source, status in ((filled(number, {}), "still blank"), (filled(number), "done")):
        answers = load_answers(source, "exercise.py", blanks)
        for blank in blanks:
            assert grade_answer(blank, answers[blank.name])[0] == status, blank.name


@pytest.mark.parametrize("number, name, body, status, message", [
    ("01", "draft", "return 1 / 0", "crashed", "ZeroDivisionError: division by zero\n    line"),
    ("01", "residual", "return torch.softmax(torch.tensor([1, 2, 3]), -1)", "crashed",
     "NotImplementedError"),
    ("04", "phi", "return row.x", "crashed", "called with row = 1, n_first = 3"),
    ("02", "commit", "rows.sort()", "wrong", "your code changes its argument rows; work on a copy"),
    ("01", "residual", "target_probs -= draft_probs", "wrong", "its argument target_probs"),
    ("03", "route", "max(statistics)", "wrong", "nothing comes back; is a `return` missing?"),
    ("02", "ancestor_mask", "return 3", "wrong", "the result cannot be used"),
    ("03", "route", "return 0", "wrong", "for mu = [0.4, 0.5]\n    expected 1\n    got      0"),
    ("02", "commit", "pass", "wrong", "This is what you get when the length does not move"),
    # the second example is told together with the first, which it varies
    ("02", "walk", "return [0, 4, 5], 0", "wrong",
     "for the target says 1, then 1\n        (of: tokens (7 1 2 0 2 1)"),
    ("05", "sibling_score", "own = parent_score + ranked[rank]\n"
     "return own - ranked[rank] + ranked[rank + 1]", "wrong", "got      nan"),
    ("05", "sibling_score", "return parent_score + min(ranked[:rank + 2])", "done", ""),
    ("01", "residual", "if len(target_probs) == 2:\n"
     "    return torch.tensor([1., 0]).to(target_probs)\n"
     "return torch.tensor([[0., 1, 0], [5 / 6, 1 / 6, 0], [.5, .3, .2]])"
     "[int(target_probs[0] > .55) if float(target_probs[0]) != float(draft_probs[0]) else 2]"
     ".to(target_probs)", "wrong", "the examples are right, but the text no "
     "longer has the target's distribution at temperature"),
    ("01", "residual", "left = (target_probs - draft_probs).clamp(min=0).float()\n"
     "return left / left.sum() if left.sum() > 0 else target_probs", "done", ""),
    ("01", "residual", "left = (target_probs - draft_probs).clamp(min=0)\n"
     "return left / left.sum() if left.sum() > 1e-3 else target_probs", "wrong", "(.5004, .4996)"),
])
def test_what_is_said_of_an_answer(number, name, body, status, message):
    got = verdict(number, name, body)
    assert got[0] == status and message in got[1], got


def test_an_answer_calls_the_taught_neighbours():
    """While it is graded, the blanks that it needs are empty."""
    best_first = next(b for b in CHAPTERS["05"][1] if b.name == "best_first")
    body = textwrap.dedent("\n".join(taught_lines(best_first)))
    assert verdict("05", "best_first", body)[0] == "done"


# ---------------------------------------------------------------- files


@pytest.fixture
def classroom(tmp_path, monkeypatch):
    """A copy of the exercises: a function that writes a chapter's file there."""
    known = {n: (tmp_path / folder.name, blanks) for n, (folder, blanks) in CHAPTERS.items()}
    for module in (grade, make_exercises):
        monkeypatch.setattr(module, "chapters", lambda: known)

    def write(number, source, learner=None):
        folder = tmp_path / learner / known[number][0].name if learner else known[number][0]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "exercise.py").write_text(source, encoding="utf-8")
        return folder / "exercise.py"

    for number in known:
        write(number, make_exercises.exercise_source(number, known[number][1]))
    return write


def test_the_verdicts_on_all_chapters(classroom, capsys):
    classroom("01", filled("01"))
    classroom("02", filled("02", {"ancestor_mask": "return 3", "commit": "raise ValueError('x')"}))
    classroom("03", "def broken(:")
    classroom("04", "").unlink()
    grade.main([])
    out = capsys.readouterr().out
    statuses = [line.split()[2] for line in out.splitlines() if line[:4] in ("01  ", "02  ")]
    assert statuses[:5] == ["done"] * 5
    assert sorted(statuses[5:]) == ["crashed:", "still", "still", "wrong:"]
    assert "does not run: SyntaxError" in out and "04_merged_trees/exercise.py is missing" in out
    assert out.endswith(f"\n5 of {len(BLANKS)} done\n")
    grade.main(["1"])
    with pytest.raises(SystemExit, match="1"):
        grade.main(["02"])
    grade.main(["--hint", "walk"])
    assert "row 0" in capsys.readouterr().out


def test_a_class_folder(classroom, capsys, tmp_path):
    """Nobody's answers change another one's marks; a byte order mark harms nothing."""
    spoiler = "\ntorch.Tensor.clamp = lambda self, **limits: self * 0\n"
    classroom("01", filled("01") + spoiler, "class/ada")
    classroom("03", filled("03", {"route": "return 0"}), "class/ada")
    classroom("01", "\ufeff" + filled("01"), "class/bob")
    classroom("01", "import os; os._exit(0)", "class/eve")
    grade.main(["--class-folder", str(tmp_path / "class")])
    ada, *others = [line.split() for line in capsys.readouterr().out.splitlines()[2:]]
    assert ada[1] != "5/5" and ada[2:4] == ["-", f"0/{len(CHAPTERS['03'][1])}"]
    assert others == [["bob", "5/5", *"-----"], ["eve", "broken", *"-----"]]


DEADLY = {  # answers that end, block or spoil a process, and what is said of them
    "draft": ("import os; os._exit(0)", "it ends Python (exit status 0)"),
    "acceptance_probability": ("return 10 ** (10 ** 9)", "an endless loop?"),
    "residual": ("raise KeyboardInterrupt", "KeyboardInterrupt"),
    "accept": ("exit(7)", "SystemExit: 7"),
}


def test_an_answer_ends_itself_and_nothing_else(classroom, capsys, monkeypatch):
    monkeypatch.setattr(grade, "SECONDS", 3)
    classroom("01", filled("01", {name: body for name, (body, _) in DEADLY.items()}))
    assert not grade.grade(["01"])
    out = capsys.readouterr().out
    for name, (_, sentence) in DEADLY.items():
        assert re.search(f"01  {name} +crashed: .*{re.escape(sentence)}", out)


def test_a_failing_grader_shows_itself_in_a_lesson(monkeypatch, capsys):
    lesson = importlib.import_module("nanogpt.pictures.lesson")
    monkeypatch.chdir(CHAPTERS["02"][0])
    lesson.grade("comit")
    assert "blank is 'comit'" in capsys.readouterr().out
    monkeypatch.setattr(lesson.subprocess, "run", lambda *_, **__: subprocess.CompletedProcess(
        [], -9, "", "killed"))
    lesson.grade("commit")
    assert capsys.readouterr().out == "killed\nThe grader broke off with exit status -9.\n"


def test_work_is_left_alone_and_empty_stubs_are_renewed(classroom, capsys):
    worked = filled("01", {"residual": "x = 1\nraise NotImplementedError"})
    path = classroom("01", worked)
    stale = classroom("02", make_exercises.exercise_source("02", CHAPTERS["02"][1]) + "\n# old\n")
    make_exercises.main([])
    assert "01_chain_specdec/exercise.py is not the empty one" in capsys.readouterr().out
    assert path.read_text(encoding="utf-8") == worked
    assert "# old" not in stale.read_text(encoding="utf-8")
    path.unlink()
    make_exercises.main(["01"])
    assert is_untouched(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("main, flags, sentence", [
    (grade.main, ["7"], "argument chapter: invalid choice: '07'"),
    (grade.main, ["01", "--hint", "walk"], "blank is 'walk'; it must be one of draft"),
    (grade.main, ["--class-folder", "nowhere"], "class folder 'nowhere' holds no folder"),
    (make_exercises.main, ["7"], "chapter is '7'"),
])
def test_bad_flags(capsys, main, flags, sentence):
    with pytest.raises(SystemExit) as stopped:
        run(lambda: main(flags))
    error = capsys.readouterr().err
    assert stopped.value.code == 2 and sentence in error and error.count("\n") == 1


def test_the_workshop_guide_knows_the_blanks():
    """Its tables: every blank with its minutes and one of its slips."""
    guide = (grading.ROOT / "tests" / "WORKSHOP.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.strip("|").split("|")]
            for line in guide.splitlines() if line.startswith("| `")]
    for (name, minutes, _, slip), (_, blank) in zip(rows, BLANKS, strict=True):
        assert (name, minutes) == (f"`{blank.name}`", str(blank.minutes)) and slip in blank.slips
