"""The house: which way imports run, links that lead somewhere; lessons are stored as they run and
ask before they show; the READMEs' Python snippets run."""

import ast
import json
import re
from functools import cache
from pathlib import Path

import pytest

from grading import blanks_of, chapters

ROOT = Path(__file__).resolve().parent.parent
CHAPTERS = sorted(ROOT.glob("0?_*"))
SOURCES = [path for folder in [ROOT / "nanogpt", ROOT / "tests", ROOT / ".github", *CHAPTERS]
           for path in sorted(folder.rglob("*.py")) if path.name != "exercise.py"]
TAUGHT = [path for path in SOURCES if path.parent.name != "tests"]
SCRIPT = "train_and_decode"  # each chapter has one, under the same name
ROOMS = SCRIPT, "_room", "_pictures"  # how the files of a chapter end that hold no idea


def parse(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def is_idea(path):
    """A concept file: in a chapter's folder, no room, no script."""
    return (path.parent in CHAPTERS and not path.stem.endswith(ROOMS)
            and "__main__" not in path.read_text(encoding="utf-8"))


def module_name(path):
    """How a file is imported: nanogpt.model, tree_attention."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts if parts[0] == "nanogpt" else parts[1:]
    return ".".join(part for part in parts if part not in ("__init__", "real"))


def imports_of(path):
    """The files of this repository that a file imports."""
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):  # `from nanogpt import cli` imports nanogpt.cli
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            names = [getattr(node.args[0], "value", None)]
            door = path.name == "chapter.py"  # the one that may import what it computes
            assert names[0] or door, f"{path}: {ast.unparse(node)}"
        else:
            continue
        yield from (MODULES[name] for name in names if name in MODULES)


NAMED = [path for path in SOURCES if path.stem != SCRIPT]
MODULES = {module_name(path): path for path in NAMED}


def test_module_names_are_unique():
    names = [module_name(path) for path in NAMED]
    assert sorted(MODULES) == sorted(names)


def test_imports_run_one_way():
    """The stage imports no chapter, but for chapter.py, and nothing above the studio imports it. A
    chapter imports the stage, its own folder, and concept files of earlier chapters; a concept
    file no room."""
    for path in TAUGHT:
        home = path.relative_to(ROOT).parts[0]
        for other in imports_of(path):
            there = other.relative_to(ROOT).parts[0]
            studio = "pictures" in other.parts
            if home == ".github":  # the book shows everything
                continue
            if home == "nanogpt":
                allowed = there == home and ("pictures" in path.parts or not studio)
            elif there == home:
                allowed = is_idea(other) or not is_idea(path)
            elif there == "nanogpt":
                allowed = not (studio and is_idea(path))
            else:
                allowed = there < home and is_idea(other)  # of any earlier chapter
            assert allowed, f"{path} imports {other}"


def test_links_lead_somewhere():
    for path in [ROOT / "README.md", *ROOT.glob("*/*.md"), *ROOT.glob("0?_*/real/*.md")]:
        text = re.sub(r"`[^`\n]*`", "", path.read_text(encoding="utf-8"))  # an example is no link
        for link in re.findall(r"\]\(([^)#:]+)\)", text):
            assert (path.parent / link).exists(), f"{path}: {link}"


def test_text_is_read_and_written_with_an_encoding():
    """Where nothing is said, Windows takes another encoding."""
    for path in TAUGHT:
        for node in ast.walk(parse(path)):
            if getattr(getattr(node, "func", None), "attr", "") in ("read_text", "write_text"):
                assert re.search("utf-8|ascii", ast.unparse(node)), f"{path}: {ast.unparse(node)}"
    for path in ROOT.glob("*/*.ipynb"):
        assert "read_text()" not in path.read_text(encoding="utf-8"), path


def test_the_version_is_said_once_everywhere():
    version = re.search(r'^version = "(.*)"', (ROOT / "pyproject.toml").read_text("utf-8"), re.M)[1]
    assert f'\nversion: "{version}"\n' in (ROOT / "CITATION.cff").read_text("utf-8")
    changes = (ROOT / ".github" / "CHANGELOG.md").read_text("utf-8")
    assert re.search(r"^## (\S+)", changes, re.M)[1] == version


# ---------------------------------------------------------------- the lessons

LESSONS = [pytest.param(path, id=path.parent.name) for path in sorted(ROOT.glob("*/*.ipynb"))]


def cells(path):
    """[(cell, its source, its texts in Markdown)] of a stored notebook."""
    return [(cell, "".join(cell["source"]),
             ["".join(output.get("data", {}).get("text/markdown", ""))
              for output in cell.get("outputs", [])])
            for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]]


def test_every_word_of_the_glossary_is_in_a_lesson():
    text = " ".join(source for path in ROOT.glob("*/*.ipynb") for cell, source, _ in cells(path)
                    if cell["cell_type"] == "markdown").lower()
    for title in re.findall(r"^### (.*)", (ROOT / ".github/book/glossary.md").read_text("utf-8"),
                            re.M):
        for word in re.split(r", | \(", title.rstrip(")")):
            assert word.lower() in text, f"{word} is in no lesson"


@cache
def code():
    """Every function and class that a lesson may show, as its lines stand in the source."""
    found = set()
    for path in TAUGHT:
        lines = path.read_text(encoding="utf-8").splitlines()
        for node in ast.walk(parse(path)):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                first = min(part.lineno for part in [node, *node.decorator_list])
                found.add("\n".join(lines[first - 1:node.end_lineno]))
    return found


@pytest.mark.parametrize("path", LESSONS)
def test_a_lesson_is_stored_with_its_pictures_and_the_code_as_it_stands(path):
    for cell, source, texts in cells(path):
        results = cell.get("outputs", [])
        if "plt.show()" in source:
            assert any("image/png" in result.get("data", {}) for result in results), source
        assert all(result.get("name") != "stderr" for result in results), source
        shown = re.findall(r"```python\n(.*?)```", "\n".join(texts), re.S)
        old = [text.splitlines()[0] for text in shown if text.rstrip() not in code()]
        assert not old, "no longer the code; run the lesson again"


@pytest.mark.parametrize("path", LESSONS)
def test_a_lesson_asks_before_it_shows(path):
    """A blank of the chapter is graded, and no blank's code is seen before its question."""
    number = path.parent.name[:2]
    if number not in chapters():
        pytest.skip("a lesson without blanks")
    seen = []  # what a reader sees, cell by cell: code, and what is displayed unfolded
    for cell, source, texts in cells(path):
        hidden = cell["metadata"].get("jupyter", {}).get("source_hidden")
        assert not (texts and source.startswith("grade(")), "clear what the grader said to you"
        seen.append(re.sub(r"<details>.*?</details>", "", "\n".join(
            texts if hidden else [source, *texts]), flags=re.S))
    names = [blank.name for blank in blanks_of(number)]
    asked = {name: next((i for i, text in enumerate(seen) if f'grade("{name}")' in text), len(seen))
             for name in names}
    parts = "".join(other.read_text(encoding="utf-8") for other in path.parent.glob("*.ipynb"))
    assert any(f'grade(\\"{name}\\")' in parts for name in names)
    for name in names:
        early = [text for text in seen[:asked[name] + 1] if f"def {name}(" in text]
        assert not early, f"{name} is shown before it is asked"


SNIPPETS = [
    pytest.param(code, id=f"{path.parent.name}-{number}")
    for path in [ROOT / "README.md", *sorted(ROOT.glob("0?_*/README.md"))]
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", path.read_text("utf-8"), re.S))
]


@pytest.mark.filterwarnings("error::DeprecationWarning")
@pytest.mark.parametrize("code", SNIPPETS)
def test_snippets_run(code, monkeypatch):
    """From the repository's root, as after the README's installation."""
    monkeypatch.chdir(ROOT)
    exec(compile(code, "snippet", "exec"), {"__name__": "__main__"})
