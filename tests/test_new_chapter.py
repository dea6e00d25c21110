"""The recipe of .github/CONTRIBUTING.md, followed: a chapter is three files and its README.

The four files of tests/07_echo become the next chapter of a copy of the repository, and README gets
one line. Nothing else is changed there, and every test that looks at chapters stays green.
"""

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
OLDER = sorted(path.name[:2] for path in ROOT.glob("0?_*"))
NUMBER = f"{int(OLDER[-1]) + 1:02}"
LINE = f"| [{NUMBER} echo]({NUMBER}_echo/walkthrough.ipynb) | what followed the last | level |\n"
FILES = [f"tests/test_{name}.py" for name in (
    "loops", "project", "exercises", "answers", "cli", "contest", "devices", "numbers")]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """run(words of a command, its exit status) -> what it prints; in the copy."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode:
        pytest.skip("no git, or no clone: which files belong to the project?")
    copy = tmp_path_factory.mktemp("chapters") / "copy"
    for name in listed.stdout.decode().rstrip("\0").split("\0"):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy / name)
    chapter = copy / f"{NUMBER}_echo"
    chapter.mkdir()
    for path in (copy / "tests" / "07_echo").iterdir():
        text = path.read_text(encoding="utf-8").replace("07", NUMBER)
        (chapter / path.name).write_text(text, encoding="utf-8")
    readme = (copy / "README.md").read_text(encoding="utf-8")
    last = readme.index("| [does it pay?]")
    (copy / "README.md").write_text(readme[:last] + LINE + readme[last:], encoding="utf-8")

    # Before an installation's paths, which lead to the repository itself.
    paths = os.pathsep.join(map(str, [copy, *sorted(copy.glob("0?_*"))]))

    def run(*words, status=0):
        found = subprocess.run(
            [sys.executable, *words], cwd=copy, capture_output=True, encoding="utf-8", check=False,
            env=os.environ | {"PYTHONPATH": paths})
        assert found.returncode == status, found.stdout + found.stderr
        return found.stdout

    made = run("tests/make_exercises.py", NUMBER)  # as the recipe says
    assert made == f"wrote {NUMBER}_echo/exercise.py\n"
    return run


def passing(run, files, chosen, marked="not slow"):
    """Run tests of the copy -> {file: how many passed}; chosen: for pytest's -k."""
    said = run("-m", "pytest", "-n", "0", "-rp", *files, "-k", chosen, "-m", marked)
    return Counter(re.findall(r"^PASSED (tests/\w+\.py)", said, re.M))


def test_its_script(run):
    out = run("-m", "nanogpt.run", NUMBER, "--quick", "--max-new-tokens", "16")
    assert out.count("\necho of 4 ") > 1  # a table for each temperature
    assert "\nchain of 4, 57K GPT " in out  # its rival


def test_its_grader(run):
    assert "still blank" in run("tests/grade.py", NUMBER, status=1)
    assert "from the last to the first" in run("tests/grade.py", NUMBER, "--hint", "echo")


def test_its_proofs_and_what_is_asked_of_every_chapter(run):
    """All tests that bear its number or its name, and those of the whole house that are quick."""
    house = "imports or links or tables or guide or missing or stored"
    passed = passing(run, FILES, f"{NUMBER} or echo or {house}")
    assert passed["tests/test_loops.py"] == 5  # four of its loop, one of a wrong variant
    # Answers are asked of the workshop's blanks alone.
    assert set(passed) == {*FILES} - {"tests/test_answers.py"}


@pytest.mark.slow
def test_nothing_in_the_house_minds_it(run):
    """All of these files, but for what is asked of one older chapter. Two of its wrong variants
    are harmless, which is proved slowly."""
    others = " and ".join(f"not {number}" for number in OLDER)
    heavy = "not test_an_answer_ends_itself and not test_a_rewritten_taught_line"  # of 01 and 02
    passed = passing(run, [*FILES, "tests/test_pictures.py"],
                     f"({others}) and {heavy} or {NUMBER}", "slow or not slow")
    assert passed["tests/test_loops.py"] >= 7


@pytest.mark.slow
def test_its_page_in_the_book(run):
    pytest.importorskip("sphinx")
    run(".github/book/build.py")
    page = (f"print('Chapter {NUMBER}: Echo' in "
            "open('.github/book/_build/html/index.html').read())")
    assert run("-X", "utf8", "-c", page) == "True\n"
