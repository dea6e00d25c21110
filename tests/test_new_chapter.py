"""The recipe of .github/CONTRIBUTING.md, followed: a chapter is three files and its README.

The four files of tests/07_echo become a chapter of a copy of the repository, and README gets one
line. Nothing else is changed there.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LINE = "| [07 echo](07_echo/walkthrough.ipynb) | what followed the last time, once more |\n"


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
    shutil.copytree(copy / "tests" / "07_echo", copy / "07_echo")
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

    return run


def test_its_script(run):
    out = run("-m", "nanogpt.run", "07", "--quick", "--max-new-tokens", "16")
    assert out.count("\necho of 4 ") > 1  # a table for each temperature
    assert "\nchain of 4, 57K GPT " in out  # its rival


def test_its_grader(run):
    assert run("tests/make_exercises.py", "07") == "wrote 07_echo/exercise.py\n"
    assert "still blank" in run("tests/grade.py", "07", status=1)
    assert "from the last to the first" in run("tests/grade.py", "07", "--hint", "echo")


def test_its_proofs(run):
    """Four of its loop, three of its wrong variants."""
    proved = run("-m", "pytest", "-n", "0", "tests/test_loops.py", "-k", "07", "-v",
                 "-m", "slow or not slow")
    assert "7 passed" in proved


def test_its_place_in_the_contest(run):
    names = "from nanogpt.does_it_pay import contestants; print(*contestants('echo'), sep=', ')"
    assert run("-c", names) == "07 echo of 1, 07 echo of 2, 07 echo of 4, 07 echo of 8\n"


def test_the_house_stands(run):
    run("-m", "pytest", "-n", "0", "tests/test_project.py", "-k",
        "imports or links or 07_echo")


@pytest.mark.slow
def test_its_page_in_the_book(run):
    pytest.importorskip("sphinx")
    run("tests/make_exercises.py", "07")  # its lesson links to it
    run(".github/book/build.py")
    page = "print('Chapter 07: Echo' in open('.github/book/_build/html/index.html').read())"
    assert run("-X", "utf8", "-c", page) == "True\n"
