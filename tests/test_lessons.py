"""Lessons are stored as they run and ask before they show; the READMEs' Python snippets run."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from grading import chapters

ROOT = Path(__file__).resolve().parent.parent
LESSONS = [pytest.param(path, id=path.parent.name) for path in sorted(ROOT.glob("*/*.ipynb"))]


def cells(path):
    """[(cell, its source, its texts in Markdown)] of a stored notebook."""
    return [(cell, "".join(cell["source"]),
             ["".join(output.get("data", {}).get("text/markdown", ""))
              for output in cell.get("outputs", [])])
            for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]]


@pytest.mark.parametrize("path", LESSONS)
def test_a_lesson_is_stored_with_its_pictures_and_the_code_as_it_stands(path):
    code = "\n".join(source.read_text(encoding="utf-8") for source in ROOT.glob("[0n]*/**/*.py"))
    for cell, source, texts in cells(path):
        results = cell.get("outputs", [])
        if "plt.show()" in source:
            assert any("image/png" in result.get("data", {}) for result in results), source
        assert all(result.get("name") != "stderr" for result in results), source
        shown = re.findall(r"```python\n(.*?)```", "\n".join(texts), re.S)
        old = [text.splitlines()[0] for text in shown if text.strip() not in code]
        assert not old, "no longer the code; run the lesson again"


@pytest.mark.parametrize("path", LESSONS)
def test_a_lesson_asks_before_it_shows(path):
    """At least one blank is graded, and no blank's code is seen before its question."""
    number = path.parent.name[:2]
    if number not in chapters():
        pytest.skip("a lesson without blanks")
    seen = []  # what a reader sees, cell by cell: code, and what is displayed unfolded
    for cell, source, texts in cells(path):
        hidden = cell["metadata"].get("jupyter", {}).get("source_hidden")
        seen.append(re.sub(r"<details>.*?</details>", "", "\n".join(
            texts if hidden else [source, *texts]), flags=re.S))
    names = [blank.name for blank in chapters()[number][1]]
    asked = {name: next((i for i, text in enumerate(seen) if f'grade("{name}")' in text), len(seen))
             for name in names}
    assert min(asked.values()) < len(seen)
    for name in names:
        early = [text for text in seen[:asked[name] + 1] if f"def {name}(" in text]
        assert not early, f"{name} is shown before it is asked"


@pytest.mark.parametrize("path", LESSONS)
def test_a_lesson_takes_the_minutes_that_it_says(path):
    """180 words or 12 visible lines of code a minute, and a minute for each picture and table."""
    prose, code, shown, folded = "", [], 0, 0
    for cell, source, _ in cells(path):
        lines = [line for line in source.splitlines() if line]
        if cell["cell_type"] == "markdown":
            text = re.sub(r"<details>.*?</details>", "", source, flags=re.S)
            shown += len(re.findall(r"^(?:!\[|\|[-: |]+$)", text, re.M))
            text = re.sub(r"\]\([^)]*\)|^\|.*", "", text, flags=re.M)  # a formula is a word
            prose += re.sub(r"\$\$?[^$]+\$\$?", " x ", text)
        elif cell["metadata"].get("jupyter", {}).get("source_hidden"):
            folded += len(lines)
        else:
            code += lines
        shown += sum("---" in "".join(output.get("text", ""))
                     or "image/png" in output.get("data", {}) for output in cell.get("outputs", []))
    minutes = len(prose.split()) / 180 + len(code) / 12 + shown
    said = int(re.search(r"Reading takes (?:about )?(\d+) minutes", prose)[1])
    assert abs(said - minutes) <= 2, f"{minutes:.1f} minutes"
    assert folded <= 60 and sum(line.startswith(("import ", "from ")) for line in code) <= 6


SNIPPETS = [
    pytest.param(code, id=f"{path.parent.name}-{number}")
    for path in [ROOT / "README.md", *sorted(ROOT.glob("0?_*/README.md"))]
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", path.read_text("utf-8"), re.S))
]


@pytest.mark.parametrize("code", SNIPPETS)
def test_snippets_run(code):
    """From the repository's root, as after the README's installation."""
    subprocess.run([sys.executable, "-W", "error::DeprecationWarning", "-c", code], cwd=ROOT,
                   check=True, timeout=120, capture_output=True)


def test_every_chapter_has_a_snippet():
    assert len(SNIPPETS) >= len(list(ROOT.glob("0?_*")))
