"""The house: which way imports run, how large each part may be, links that lead somewhere; lessons
are stored as they run and ask before they show; the READMEs' Python snippets run."""

import ast
import io
import json
import re
import subprocess
import sys
import tokenize
from pathlib import Path

import pytest

from grading import chapters

ROOT = Path(__file__).resolve().parent.parent
CHAPTERS = sorted(ROOT.glob("0?_*"))
SOURCES = [path for folder in [ROOT / "nanogpt", ROOT / "tests", ROOT / ".github", *CHAPTERS]
           for path in sorted(folder.rglob("*.py")) if path.name != "exercise.py"]
TAUGHT = [path for path in SOURCES if path.parent.name != "tests"]
# What every chapter has; from the outside importlib finds them, by the name of the folder.
ROOMS = {"train_and_decode", "bench", "pictures", "wrong"}
# Whose ideas a chapter may build on.
TRUNK = {"01": "", "02": "01", "03": "01 02", "04": "01 02 03", "05": "01 02", "06": "01 02"}


def parse(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def is_idea(path):
    """A concept file: in a chapter's folder, no room, no script."""
    return (path.parent in CHAPTERS and path.stem not in ROOMS
            and "__main__" not in path.read_text(encoding="utf-8"))


def module_name(path):
    """How a file is imported: nanogpt.clock, tree_attention."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts if parts[0] == "nanogpt" else parts[1:]
    return ".".join(part for part in parts if part != "__init__")


def imports_of(path):
    """The files of this repository that a file imports."""
    known = MODULES | {room: path.parent / f"{room}.py" for room in ROOMS}
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):  # `from nanogpt import cli` imports nanogpt.cli
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        yield from (known[name] for name in names if name in known)


NAMED = [path for path in SOURCES if path.stem not in ROOMS or "nanogpt" in path.parts]
MODULES = {module_name(path): path for path in NAMED}


def test_module_names_are_unique():
    names = [module_name(path) for path in NAMED]
    assert sorted(MODULES) == sorted(names)


def test_imports_run_one_way():
    """The stage imports no chapter, and nothing above the studio imports it. A chapter imports the
    stage, its own folder, and concept files of the trunk; a concept file no room."""
    for path in TAUGHT:
        home = path.relative_to(ROOT).parts[0]
        # import_module("05_ddtree.bench") is for the closing lesson
        named = re.search(rf'"(?!{home})0\d_\w+\.', path.read_text(encoding="utf-8"))
        assert home == "nanogpt" or not named, path
        for other in imports_of(path):
            there = other.relative_to(ROOT).parts[0]
            studio = "pictures" in other.parts
            if home == "nanogpt":
                allowed = there == home and ("pictures" in path.parts or not studio)
            elif there == home:
                allowed = is_idea(other) or not is_idea(path)
            elif there == "nanogpt":
                allowed = not (studio and is_idea(path))
            else:
                allowed = there[:2] in TRUNK[home[:2]].split() and is_idea(other)
            assert allowed, f"{path} imports {other}"


def test_no_function_is_too_long():
    """40 lines, docstring and signature not counted."""
    for path in TAUGHT:
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.FunctionDef):
                first = node.body[1] if ast.get_docstring(node) and node.body[1:] else node.body[0]
                assert node.end_lineno - first.lineno < 40, f"{path}: {node.name}"


def test_sources_print_ascii():
    """A console may not know more; only tests may hold other characters."""
    for path in TAUGHT:
        assert path.read_text(encoding="utf-8").isascii(), path


# ---------------------------------------------------------------- how large the house may be


def code_tokens(path):
    """Python's tokens, without comments, docstrings and layout: golf gains nothing."""
    docs = {line for node in ast.walk(parse(path))
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
            for line in range(node.lineno, node.end_lineno + 1)}
    layout = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
              tokenize.ENDMARKER}
    text = io.StringIO(path.read_text(encoding="utf-8"))
    return sum(token.type not in layout and token.start[0] not in docs
               for token in tokenize.generate_tokens(text.readline))


# To be lowered to: tests 58,000, ideas 19,000, rooms 20,000, nanogpt 21,000; 120,000 in 100 files.
BUDGETS = {"tests": 52_600, "ideas": 17_900, "rooms": 20_300, "nanogpt": 22_900, "graphs": 4_700,
           ".github": 2_000}
FILES = 101


def test_the_house_does_not_grow():
    assert len(SOURCES) <= FILES
    used = dict.fromkeys(BUDGETS, 0)
    for path in SOURCES:
        folder = path.relative_to(ROOT).parts[0]
        part = ("graphs" if path.stem.endswith(("_graph", "graphs")) else  # a GPU's own way
                folder if folder in used else "ideas" if is_idea(path) else "rooms")
        used[part] += code_tokens(path)
    assert all(used[part] <= budget for part, budget in BUDGETS.items()), (used, BUDGETS)


def test_links_lead_somewhere():
    for path in [ROOT / "README.md", *sorted(ROOT.glob("*/*.md"))]:
        text = re.sub(r"`[^`\n]*`", "", path.read_text(encoding="utf-8"))  # an example is no link
        for link in re.findall(r"\]\(([^)#:]+)\)", text):
            assert (path.parent / link).exists(), f"{path}: {link}"


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
