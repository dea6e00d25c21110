"""The house rules: names, imports, sizes, scripts that start from anywhere."""

import argparse
import ast
import json
import os
import re
import runpy
import shlex
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
NOTEBOOKS = sorted(ROOT.glob("0?_*/*.ipynb"))
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


def definitions(node, prefix=""):
    """(dotted name, node) of every public function, class and method below a syntax tree node."""
    for child in node.body:
        if isinstance(child, (ast.FunctionDef, ast.ClassDef)) and not child.name.startswith("_"):
            yield prefix + child.name, child
            if isinstance(child, ast.ClassDef):
                yield from definitions(child, f"{prefix}{child.name}.")


def parse(path):
    return ast.parse(path.read_text(encoding="utf-8"))


# A method of one of these names keeps a contract that is written down where it begins: the
# drafters' in `speculate`, the rules' in tree_rule.py, torch's own, the Dice's.
CONTRACTS = {"reset", "observe", "propose", "level", "logits", "draw", "flip", "judge", "accept",
             "forward", "state_dict", "load_state_dict", "commit", "new_cache", "encode", "decode"}
TENSORS = re.compile(
    r"(x|logits|log_probs|hidden|mask|anchors|scores|flow|weight|target_mass|marginals|"
    r"(target_|draft_)?probs)$")
# (N, V), (N - 1,), (..., C_in); or a list; or a docstring that sends the reader to another
SHAPE = re.compile(r"\((\.\.\.|[A-Z0-9a-z_*+\- ]+),[^()]*\)|\b[Ss]ee |\bas (`|for )|a row\b")


@pytest.mark.parametrize("path", TAUGHT, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_public_names_are_documented(path):
    assert ast.get_docstring(parse(path))
    for name, node in definitions(parse(path)):
        short = name.split(".")[-1]
        obvious = "." in name and (short in CONTRACTS or len(node.body) == 1)
        assert ast.get_docstring(node) or short == "main" or obvious, f"{name} has no docstring"


@pytest.mark.parametrize("path", TAUGHT, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_tensors_come_with_their_shapes(path):
    for name, node in definitions(parse(path)):
        text = ast.get_docstring(node)
        if isinstance(node, ast.FunctionDef) and text and name.split(".")[-1] not in CONTRACTS:
            tensors = [a.arg for a in node.args.args if TENSORS.match(a.arg)]
            assert not tensors or SHAPE.search(text), f"{name}: which shape have {tensors}?"


def test_no_file_is_too_long():
    for path in SOURCES:
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


def cells(path):
    """The cells of a stored notebook."""
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


def outputs(path):
    """The stored text/markdown outputs of a notebook: what `show` displayed when it was run."""
    for cell in cells(path):
        for output in cell.get("outputs", []):
            yield "".join(output.get("data", {}).get("text/markdown", ""))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.parent.name)
def test_notebooks_are_stored_with_their_pictures_and_without_progress_bars(path):
    for cell in cells(path):
        source, results = "".join(cell["source"]), cell.get("outputs", [])
        if "plots.draw_" in source or "plt.show()" in source:
            assert any("image/png" in result.get("data", {}) for result in results), source
        assert all(result.get("name") != "stderr" for result in results), source


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.parent.name)
def test_notebooks_show_the_code_as_it_stands(path):
    """Else run it again: python tests/run_notebooks.py --write and the chapter's number."""
    code = "\n".join(source.read_text(encoding="utf-8") for source in SOURCES)
    for text in outputs(path):
        if text.startswith("```python\n"):
            shown = text.removeprefix("```python\n").removesuffix("```")
            assert shown in code, f"no longer the code: {shown.splitlines()[0]}"


def test_links_lead_somewhere():
    for path in [ROOT / "README.md", *sorted(ROOT.glob("*/*.md"))]:
        for link in re.findall(r"\]\(([^)#:]+)\)", path.read_text(encoding="utf-8")):
            assert (path.parent / link).exists(), f"{path}: {link}"


# ---------------------------------------------------------------- the commands that we print


def prose():
    """(where, text) of everything a reader takes commands from."""
    for path in [ROOT / "README.md", *sorted(ROOT.glob("*/*.md"))]:
        yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
    for path in NOTEBOOKS:
        yield path.relative_to(ROOT).as_posix(), "\n".join(
            "".join(cell["source"]) for cell in cells(path) if cell["cell_type"] == "markdown")
    for path in SOURCES:
        yield path.relative_to(ROOT).as_posix(), ast.get_docstring(parse(path)) or ""


def commands():
    """(where, words) of every command in a code block, or between backticks, or in a docstring."""
    for where, text in prose():
        lines = re.findall(r"^ {4}(?:\$ )?((?:python|pip|torchrun) .*)$", text, re.M)
        lines += re.findall(r"`((?:python|pip|torchrun) [^`]*)`", text)
        for line in lines:
            for command in line.split("&&"):
                yield where, shlex.split(command, comments=True)


COMMANDS = sorted({(where, tuple(words)) for where, words in commands()})
PLACEHOLDERS = {"NAME", "FOLDER", "[01]", "[--hint", "NAME]", "..."}


class Parsed(Exception):
    """The flags were understood."""


@pytest.mark.filterwarnings("ignore:.*found in sys.modules after import of package")
@pytest.mark.parametrize("where, words", COMMANDS, ids=lambda v: v if isinstance(v, str) else None)
def test_every_command_that_we_print_exists_and_its_flags_parse(where, words, monkeypatch):
    """Each script is started as the command says, and stopped as soon as it has read its flags."""
    program, *words = words
    if program == "torchrun":
        words = words[words.index("-m"):]
    if program == "pip":
        project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
        assert words[:3] == ["install", "-c", "constraints.txt"] and (ROOT / words[2]).exists()
        extra = re.search(r"\[(.*)\]", words[-1])
        assert not extra or f"\n{extra[1]} = [" in project
        return
    if PLACEHOLDERS & set(words):
        return
    words = [word for word in words if word != "--help"]
    original = argparse.ArgumentParser.parse_args

    def parse_and_stop(self, *args, **kwargs):
        original(self, *args, **kwargs)
        raise Parsed

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_and_stop)
    monkeypatch.setattr(sys, "path", list(sys.path))
    try:
        if words[:2] == ["-m", "pytest"]:
            assert all((ROOT / word).exists() for word in words[2:])
        elif words[:2] == ["-m", "venv"]:
            pass
        elif words[0] == "-m":
            monkeypatch.setattr(sys, "argv", words[1:])
            with pytest.raises(Parsed):
                runpy.run_module(words[1], run_name="__main__")
        else:
            monkeypatch.setattr(sys, "argv", words)
            with pytest.raises(Parsed):
                runpy.run_path(str(ROOT / words[0]), run_name="__main__")
    except SystemExit as stopped:
        pytest.fail(f"{where}: {' '.join(words)} exits with {stopped.code}")


def test_there_are_commands_to_check():
    """Else the test above would pass on nothing."""
    assert len(COMMANDS) > 40
    assert {where for where, _ in COMMANDS} >= {"README.md", "tests/WORKSHOP.md"}
