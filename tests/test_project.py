"""The house rules: names, imports, sizes, scripts that start from anywhere."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CHAPTERS = sorted(ROOT.glob("0?_*"))
SOURCES = [path for folder in [ROOT / "nanogpt", ROOT / "tests", *CHAPTERS]
           for path in sorted(folder.glob("*.py"))]
TAUGHT = [p for p in SOURCES if p.parent.name != "tests" and p.name != "exercise.py"]
SCRIPTS = [p for p in TAUGHT if p.parent in CHAPTERS
           and '__name__ == "__main__"' in p.read_text(encoding="utf-8")]
PATH_LINE = ("import sys; from pathlib import Path; sys.path[:0] = map(str, "
             '[(root := Path(__file__).resolve().parents[1]), *root.glob("0?_*")])  # noqa:')
# one per folder, never imported
ALONE = {"train_and_decode", "step_through", "exercise", "__init__"}


def imported(path):
    """The modules that a file imports, by their first name."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module.split(".")[0])
    return names


def test_module_names_are_unique():
    names = [p.stem for p in SOURCES if p.parent.name != "nanogpt" and p.stem not in ALONE]
    assert len(names) == len(set(names)), sorted(n for n in names if names.count(n) > 1)


def test_imports_run_one_way():
    """nanogpt imports no chapter; a chapter imports itself, earlier chapters and nanogpt."""
    chapter_of = {p.stem: p.parent.name for p in SOURCES if p.parent in CHAPTERS}
    for path in TAUGHT:
        for name in imported(path) & set(chapter_of) - ALONE:
            assert path.parent.name != "nanogpt", f"{path.name} imports {name}"
            assert chapter_of[name] <= path.parent.name, f"{path} imports the later {name}"


def test_only_scripts_find_the_project_by_themselves():
    for path in TAUGHT:
        text = path.read_text(encoding="utf-8")
        assert text.count("sys.path") == (path in SCRIPTS), path
        assert path not in SCRIPTS or text.count(PATH_LINE) == 1, path


def test_public_names_are_documented():
    for path in TAUGHT:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assert ast.get_docstring(tree), path
        for node in tree.body:
            if (isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name != "main"
                    and not node.name.startswith("_") and path not in SCRIPTS):
                documented = ast.get_docstring(node) or len(node.body) < 12
                assert documented, f"{path.name}: {node.name} has no docstring"


def test_no_file_is_too_long():
    for path in TAUGHT:
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 400, path


def test_sources_print_ascii():
    """A console may not know more; only tests may hold other characters."""
    for path in TAUGHT:
        assert path.read_text(encoding="utf-8").isascii(), path


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_scripts_start_from_any_folder_without_an_installation(script, tmp_path):
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    # -S -E would hide the dependencies as well; -P is not in Python 3.10
    answer = subprocess.run([sys.executable, str(script), "--help"], cwd=tmp_path,
                            env=environment, capture_output=True, text=True, timeout=120)
    assert answer.returncode == 0, answer.stderr
    assert "--help" in answer.stdout
