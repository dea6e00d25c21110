"""The graders themselves: every blank is gradable, and every known slip is caught by name."""

import make_exercises
import pytest

import grading
from grading import chapters, grade_answer, load_answers

CHAPTERS = chapters()
BLANKS = [(number, blank) for number, (_, blanks) in CHAPTERS.items() for blank in blanks]
SLIPS = [(blank, sentence) for _, blank in BLANKS for sentence in blank.slips]


def named(case):
    return case.name if isinstance(case, grading.Blank) else str(case)


@pytest.mark.parametrize("number, blank", BLANKS, ids=named)
def test_the_stub_is_still_blank_and_the_taught_code_passes(number, blank):
    folder, blanks = CHAPTERS[number]
    source = make_exercises.exercise_source(number, blanks)
    answers = load_answers(source, folder / "exercise.py", blanks)
    assert grade_answer(blank, answers[blank.name])[0] == "still blank"
    assert grade_answer(blank, blank.taught()) == ("done", "")


@pytest.mark.parametrize("blank, sentence", SLIPS, ids=named)
def test_every_slip_is_caught_and_named(blank, sentence):
    status, message = grade_answer(blank, blank.slips[sentence])
    assert status in ("wrong", "crashed"), (status, message)
    assert status == "crashed" or sentence in message


@pytest.mark.parametrize("number", CHAPTERS)
def test_committed_exercises_are_up_to_date(number):
    folder, blanks = CHAPTERS[number]
    committed = (folder / "exercise.py").read_text(encoding="utf-8")
    assert committed == make_exercises.exercise_source(number, blanks), (
        "run python tests/make_exercises.py --force")


@pytest.mark.parametrize("number", CHAPTERS)
def test_an_exercise_filled_with_the_taught_bodies_passes(number):
    """The stubs' imports suffice: paste each taught body into its stub and grade the file."""
    import textwrap

    folder, blanks = CHAPTERS[number]
    source = make_exercises.exercise_source(number, blanks)
    for blank in blanks:
        node, taught = grading.reference_source(blank)
        lines = taught.splitlines()[node.body[1].lineno - 1:node.end_lineno]
        body = textwrap.indent(textwrap.dedent("\n".join(lines)), "    ")
        source = source.replace(f'    raise NotImplementedError("not yet: {blank.name}")', body)
    answers = load_answers(source, "exercise.py", blanks)
    for blank in blanks:
        assert grade_answer(blank, answers[blank.name]) == ("done", ""), blank.name


def test_crashes_are_told_in_a_line():
    number, blank = BLANKS[0]
    answers = load_answers("def draft(*a):\n    return 1 / 0\n", "exercise.py", [blank])
    status, message = grade_answer(blank, answers["draft"], "exercise.py")
    assert status == "crashed" and "ZeroDivisionError" in message and "line 2" in message
    assert grade_answer(blank, None)[0] == "still blank"


def test_count(capsys):
    with capsys.disabled():
        print(f"\n{len(BLANKS)} blanks, {len(SLIPS)} known slips")
    assert len(BLANKS) >= 3 * len(CHAPTERS)
