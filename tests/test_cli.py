"""What a user types: printed commands exist, a slip is one sentence, scripts start anywhere."""

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
import torch

from nanogpt import cli, train
from nanogpt.device import pick_device

ROOT = Path(__file__).resolve().parent.parent
CHAPTERS = sorted(path.name for path in ROOT.glob("0?_*"))
SCRIPTS = [path.relative_to(ROOT).as_posix() for path in sorted(ROOT.glob("0?_*/**/*.py"))
           if '__name__ == "__main__"' in path.read_text(encoding="utf-8")]
ONE_SENTENCE = r"error: [^\n]+\n"


def start(program, *flags):
    """Run a script, or a module of nanogpt, in this process as the command line would."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [program, *flags])
        if not program.endswith(".py"):
            runpy.run_module(program, run_name="__main__")
            return
        patch.setattr(sys, "path", [str((ROOT / program).parent), *sys.path])
        for room in ("bench", "pictures", "wrong"):  # not those of the script before
            patch.delitem(sys.modules, room, raising=False)
        runpy.run_path(str(ROOT / program), run_name="__main__")


# ---------------------------------------------------------------- bad input


# one script of each chapter; the others are slow
@pytest.mark.parametrize("script", [pytest.param(script, marks=[pytest.mark.slow] * (
    "train_and_decode" not in script)) for script in SCRIPTS])
def test_a_script_starts_in_another_folder_without_an_installation(script, tmp_path):
    child = ("import os, runpy, sys; sys.path = [p for p in sys.path if p not in sys.argv[2:]]; "
             "script = sys.argv[1]; sys.path[0] = os.path.dirname(script); "
             "sys.argv = [script, '--nonsense']; runpy.run_path(script, run_name='__main__')")
    ours = [str(ROOT / folder) for folder in ("", *CHAPTERS)]  # an installation would add them
    kept = {"SYSTEMROOT": os.environ.get("SYSTEMROOT", "")}  # Windows asks for it
    answer = subprocess.run([sys.executable, "-c", child, str(ROOT / script), *ours], cwd=tmp_path,
                            env=kept, capture_output=True, text=True, timeout=120)
    assert answer.returncode == 2 and answer.stdout == "", answer.stderr
    assert re.fullmatch(ONE_SENTENCE, answer.stderr) and "lists the flags" in answer.stderr


SLIPS = [
    *((f"{chapter}/train_and_decode.py", "--prompt ''", "the prompt is empty")
      for chapter in CHAPTERS),
    *(("01_chain_specdec/train_and_decode.py", flags, sentence) for flags, sentence in (
        ("--prompt \u00e9", "character '\u00e9' at position 0 is not in the vocabulary"),
        ("--max-new-tokens 1", "max_new_tokens is 1; it must be at least 2"),
        ("--threads 0", "threads is 0"),
        ("--seed -1", "seed is -1"),
        ("--device abacus", "device 'abacus' is not available"),
        ("--corpus none.txt", "corpus 'none.txt' cannot be read"),
        ("--temperature -1", "temperature is -1.0"),
        ("--top-p 0", "top_p is 0.0"),
        ("--top-k 0", "top_k is 0"),
        ("--k 0", "k is 0"),
        ("--k many", "invalid int value: 'many'"))),
    ("02_tree_attention/train_and_decode.py", "--temperatures 0 -1", "temperature is -1.0"),
    ("03_dual_draft_routing/train_and_decode.py", "--budget 0", "budget is 0"),
    ("04_merged_trees/train_and_decode.py", "--budget 7", "budget is 7; it must be even"),
    ("05_ddtree/train_and_decode.py", "--temperatures nan", "temperature is nan"),
    ("05_ddtree/train_and_decode.py", "--budgets 0 256", "budgets are [0, 256]; each must be in"),
    *(("05_ddtree/real_model.py", flags, sentence) for flags, sentence in (
        ("--budgets 0", "budgets are [0]; they must be at least 2 and 1"),
        ("--prompts 13", "argument --prompts: invalid choice: 13"),
        ("--max-new-tokens 1", "max_new_tokens is 1 and"))),
    ("06_layer_verification/train_and_decode.py", "--branching 0", "branching is 0"),
    ("06_layer_verification/train_and_decode.py", "--depth 99 --shape complete",
     "depth 99 make a tree of more than 4096"),
    ("06_layer_verification/bench.py", "--depth 0", "depth is 0"),
    ("06_layer_verification/bench.py", "--depth 7", "depth is 7; it must be at most 6"),
    ("06_layer_verification/bench.py", "--similarity 2", "similarity is 2.0"),
    ("nanogpt.train", "--steps 0", "steps is 0"),
    ("nanogpt.does_it_pay", "--prompts 1", "prompts is 1"),
    ("nanogpt.pictures.step", "01_chain_specdec --steps 0", "steps is 0"),
    ("nanogpt.pictures.step", f"01_chain_specdec --out '{Path(__file__).as_posix()}'",
     "cannot be made"),
]


@pytest.mark.filterwarnings("ignore:.*found in sys.modules after import of package")
@pytest.mark.parametrize("program, flags, sentence", SLIPS)
def test_a_slip_is_one_sentence_and_nothing_is_trained(
        program, flags, sentence, capsys, monkeypatch):
    monkeypatch.setattr(train, "fit", lambda *a, **k: pytest.fail("trained before checking"))
    with pytest.raises(SystemExit) as stopped:
        start(program, *shlex.split(flags))
    error = capsys.readouterr().err
    assert stopped.value.code == 2 and sentence in error
    assert re.fullmatch(ONE_SENTENCE, error)


def test_a_device_that_is_not_there(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert pick_device("auto").type in ("cpu", "mps")
    with pytest.raises(ValueError, match="not available here; this machine has: cpu"):
        pick_device("cuda")


def test_ctrl_c_outside_of_training(capsys):
    def pressed():
        raise KeyboardInterrupt

    with pytest.raises(SystemExit) as stopped:
        cli.run(pressed)
    assert stopped.value.code == 130 and capsys.readouterr().err == "\nstopped\n"


# ---------------------------------------------------------------- the commands that we print


def prose():
    """(where, text) of everything a reader takes commands from."""
    for path in [ROOT / "README.md", *sorted(ROOT.glob("*/*.md"))]:
        yield path, path.read_text(encoding="utf-8")
    for path in sorted(ROOT.glob("*/*.ipynb")):
        yield path, "\n".join("".join(cell["source"]) for cell in json.loads(
            path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "markdown")
    for folder in ("nanogpt", "tests", *CHAPTERS):
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path, ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


def commands():
    """(where, words) of every command in a code block, or between backticks, or in a docstring."""
    for path, text in prose():
        lines = re.findall(r"^ {4}(?:\$ )?((?:python|pip) .*)$", text, re.M)
        lines += re.findall(r"`((?:python|pip) [^`]*)`", text)
        for line in lines:
            for command in line.split("&&"):
                yield path.relative_to(ROOT).as_posix(), *shlex.split(command, comments=True)


COMMANDS = sorted({tuple(words) for where, *words in commands()})


class Parsed(Exception):
    """The flags were understood."""


@pytest.mark.filterwarnings("ignore:.*found in sys.modules after import of package")
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_printed_command_exists_and_its_flags_parse(words, monkeypatch):
    """Each script is started as the command says, and stopped as soon as it has read its flags."""
    program, *words = [word for word in words if word != "--help"]
    if program == "pip":
        project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
        assert words[:3] == ["install", "-c", "constraints.txt"]
        extra = re.search(r"\[(.*)\]", words[-1])
        assert not extra or f"\n{extra[1]} = [" in project
        return
    if {"pytest", "venv", "http.server", ".github/book/build.py"} & set(words[:2]):
        assert all((ROOT / word).exists() for word in words if word.endswith(".py"))
        return
    original = argparse.ArgumentParser.parse_args

    def parse_and_stop(self, *args, **kwargs):
        original(self, *args, **kwargs)
        raise Parsed

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_and_stop)
    with pytest.raises(Parsed):
        start(*words[words[0] == "-m":])
