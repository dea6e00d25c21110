"""A lesson asks for a blank before it shows its code; the Python snippets of the READMEs run."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from grading import chapters

ROOT = Path(__file__).resolve().parent.parent
LESSONS = sorted(ROOT.glob("0?_*/walkthrough.ipynb"))
READMES = [ROOT / "README.md", *sorted(ROOT.glob("0?_*/README.md"))]


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


@pytest.mark.parametrize("path", LESSONS, ids=lambda p: p.parent.name)
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
