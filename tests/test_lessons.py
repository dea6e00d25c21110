"""Every notebook is a lesson: short enough, with questions, and silent about what it asks.

And the Python snippets of the READMEs run as they stand.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from grading import chapters
from nanogpt.printing import print_table

ROOT = Path(__file__).resolve().parent.parent
LESSONS = sorted(ROOT.glob("0?_*/walkthrough.ipynb"))
READMES = [ROOT / "README.md", *sorted(ROOT.glob("0?_*/README.md"))]
MINUTES = {"06_layer_verification": 45}  # all others: 30
every_lesson = pytest.mark.parametrize("path", LESSONS, ids=lambda p: p.parent.name)


def visible(text):
    """The text without what is folded."""
    return re.sub(r"<details>.*?</details>", "", text, flags=re.S)


def read_lesson(path):
    """-> [(kind, text)] in reading order, without what is folded; kind: prose, code or printed."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(("prose", visible(source)))
            continue
        if not cell["metadata"].get("jupyter", {}).get("source_hidden"):
            parts.append(("code", source))
        for output in cell["outputs"]:
            shown = "".join(output.get("data", {}).get("text/markdown", ""))
            code = re.fullmatch(r"```python\n(.*)```", shown, re.S)
            parts.append(("code", code[1]) if code else ("prose", visible(shown)))
            parts.append(("printed", "".join(output.get("text", ""))))
    return parts


def longest_table(text):
    """Rows of the longest table in it, the head left out: Markdown's pipes or print_table's."""
    longest, rows = 0, None  # None: outside of any table
    for line in text.splitlines():
        piped = line.lstrip().startswith("|")
        if re.fullmatch(r"\s*\|[ |:-]*-[ |:-]*|-+(  -+)+", line):  # the line below the head
            rows = 0
        elif rows is not None and line.startswith("  ") and not piped:
            continue  # a long first cell goes on
        elif rows is not None and (piped or re.search(r"\S  +\S", line)):
            rows += 1
        else:
            rows = None
        longest = max(longest, rows or 0)
    return longest


def test_tables_are_counted_by_their_rows(capsys):
    print_table(["method", "tau"], [["a tree of independent draws, " * 4, 1], ["plain", 2]] * 3)
    printed = capsys.readouterr().out
    assert longest_table(f"before\n{printed}the fastest is plain\n") == 6
    assert longest_table(f"{printed}\n| a | b |\n|---|---|\n| 1 | 2 |\n\nno  table\n") == 6
    assert longest_table("| a | b |\n|---|:-:|\n| 1 | 2 |\n| 3 | 4 |\n") == 2
    assert longest_table("a line  with two blanks\n") == 0


@every_lesson
def test_a_lesson_takes_half_an_hour(path):
    parts = read_lesson(path)
    words = sum(len(text.split()) for kind, text in parts if kind == "prose")
    lines = sum(bool(line.strip()) for kind, text in parts if kind == "code"
                for line in text.splitlines())
    assert words / 200 + lines / 20 <= MINUTES.get(path.parent.name, 30), (words, lines)


@every_lesson
def test_no_table_of_a_lesson_is_long(path):
    for kind, text in read_lesson(path):
        if kind != "code":
            assert longest_table(text) <= 8, text


@every_lesson
def test_a_lesson_asks_shows_and_sums_up(path):
    source = ["".join(cell["source"]) for cell in json.loads(path.read_text("utf-8"))["cells"]]
    predictions = "".join(source).split("**Predict.**")[1:]
    assert len(predictions) >= 2 and all("<details>" in text for text in predictions)
    recap = next(text for text in source if re.search(r"^## .*Recap", text, re.M))
    assert recap.count("<details>") >= 3
    assert "](pictures/step.gif)" in source[0] and "](pictures/step.html)" in source[0]
    assert "By the end you can" in source[0]


@every_lesson
def test_a_lesson_asks_before_it_shows(path):
    """At least one blank is graded, and no blank's code is seen before its question."""
    parts = read_lesson(path)
    blanks = [blank.name for blank in chapters()[path.parent.name[:2]][1]]
    graded = {name: at for at, (kind, text) in enumerate(parts) for name in blanks
              if kind == "code" and f'grade("{name}")' in text}
    assert graded
    for name in blanks:
        seen = [at for at, (kind, text) in enumerate(parts)
                if kind == "code" and re.search(rf"def {name}\(", text)]
        asked = graded.get(name, len(parts))
        assert all(at > asked for at in seen), f"{name} is shown before it is asked"


def test_the_front_page_is_short():
    text = re.sub(r"\]\([^)]*\)", "]", (ROOT / "README.md").read_text(encoding="utf-8"))
    words = [word for word in text.split() if re.search(r"\w", word)]  # a table's bars are none
    assert len(words) <= 750


SNIPPETS = [
    pytest.param(code, id=f"{path.parent.name}-{number}")
    for path in READMES
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", path.read_text("utf-8"), re.S))
]


@pytest.mark.parametrize("code", SNIPPETS)
def test_snippets_run(code):
    """From the repository's root, as after the README's installation."""
    subprocess.run([sys.executable, "-W", "error::DeprecationWarning", "-c", code], cwd=ROOT,
                   check=True, timeout=120, capture_output=True)


def test_every_chapter_has_a_snippet():
    for path in READMES[1:]:
        assert "```python" in path.read_text(encoding="utf-8"), path
