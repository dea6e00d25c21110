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
import tempfile
from pathlib import Path

import pytest
import torch

from nanogpt import cli, train
from nanogpt.device import pick_device

ROOT = Path(__file__).resolve().parent.parent
CHAPTERS = sorted(path.name for path in ROOT.glob("0?_*"))
SCRIPTS = [path.relative_to(ROOT).as_posix() for path in sorted(ROOT.glob("0?_*/**/*.py"))
           if '__name__ == "__main__"' in path.read_text(encoding="utf-8")]
TEMPORARY = Path(tempfile.gettempdir()).as_posix()
ONE_SENTENCE = r"error: [^\n]+\n"


def script_of(chapter):
    """(program, first flags) of what decodes for a chapter: its own script, or the stage's."""
    own = f"{chapter}/train_and_decode.py"
    return (own,) if own in SCRIPTS else ("nanogpt.run", chapter[:2])


def start(program, *flags):
    """Run a script, or a module of nanogpt, in this process as the command line would."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [program, *flags])
        if not program.endswith(".py"):
            runpy.run_module(program, run_name="__main__")
            return
        patch.setattr(sys, "path", [str((ROOT / program).parent), *sys.path])
        runpy.run_path(str(ROOT / program), run_name="__main__")


# ---------------------------------------------------------------- bad input


# One script; the others are slow, and find the stage by the same line.
@pytest.mark.parametrize("script", [pytest.param(script, marks=[pytest.mark.slow] * (
    script != SCRIPTS[0])) for script in SCRIPTS])
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


def test_every_script_looks_for_the_stage_before_it_imports():
    line = "\n\nsys.path.insert(1, str(Path(__file__).resolve().parents["
    for script in SCRIPTS:
        before, *_ = (ROOT / script).read_text(encoding="utf-8").split("from nanogpt")
        assert line in before, script


SLIPS = [
    *((program, shlex.join([*flags, "--prompt", ""]), "the prompt is empty")
      for program, *flags in map(script_of, CHAPTERS)),
    *(("01_chain_specdec/train_and_decode.py", flags, sentence) for flags, sentence in (
        ("--prompt \u00e9", "character '\u00e9' at position 0 is not in the vocabulary"),
        ("--max-new-tokens 1", "max_new_tokens is 1; it must be at least 2"),
        ("--threads 0", "threads is 0"),
        ("--threads 100000", "threads is 100000; it must be at least 1, and at most"),
        ("--prompt \udcff", "argument --prompt: '\\udcff' is no text in UTF-8"),
        ("--seed -1", "seed is -1"),
        ("--device abacus", "device 'abacus' is not available"),
        ("--corpus none.txt", "corpus 'none.txt' cannot be read"),
        ("--temperatures 0 -1", "temperature is -1.0"),
        ("--top-p 0", "top_p is 0.0"),
        ("--top-k 0", "top_k is 0"),
        ("--loop 'chain of 7'", "loop is 'chain of 7'; it must be one of: chain of 1, 57K GPT; "),
        ("--budgets 0", "a budget is 0; it must be in [1, 255]"),
        ("--budgets many", "invalid a_budget value: 'many'"))),
    ("05_ddtree/train_and_decode.py", "--temperatures nan", "temperature is nan"),
    ("05_ddtree/train_and_decode.py", "--budgets 7 256", "a budget is 256"),
    ("nanogpt.run", "99", "chapter is '99'; it must be one of 01, 02, 03, 04, 05, 06"),
    ("nanogpt.run", "04 --budgets 2-0", "a budget is (2, 0)"),
    *(("05_ddtree/real/real_model.py", flags, sentence) for flags, sentence in (
        ("--budgets 0", "budgets are [0]; they must be at least 2 and 1"),
        ("--prompts 13", "argument --prompts: invalid choice: 13"),
        ("--max-new-tokens 1", "max_new_tokens is 1 and"))),
    ("06_layer_verification/layers_room.py", "--depth 0", "depth is 0"),
    ("06_layer_verification/layers_room.py", "--depth 7", "depth is 7; it must be at most 6"),
    ("06_layer_verification/layers_room.py", "--similarity 2", "similarity is 2.0"),
    ("nanogpt.train", "--steps 0", "steps is 0"),
    *(("nanogpt.does_it_pay", flags, sentence) for flags, sentence in (
        ("--prompts 1", "prompts is 1"),
        ("--prompts 5000", "prompts is 5000; the validation text has"),
        ("--temperatures -1", "temperature is -1.0"),
        ("--only nobody", "only is 'nobody', which matches no method"),
        ("--show none.json", "'none.json' cannot be read as a contest"),
        (f"--show '{(ROOT / 'nanogpt/measured/before/cpu.json').as_posix()}'",
         "cpu.json' cannot be read as a contest"))),
    ("nanogpt.pictures.step", f"03_dual_draft_routing --size small --out '{TEMPORARY}'",
     "size is 'small'; the target of this chapter's round is its lesson's own"),
    ("04_merged_trees/merging_room.py", "--corpus x.txt", "unrecognized arguments: --corpus x.txt"),
    ("nanogpt.engine_room", "--retrain", "unrecognized arguments: --retrain"),
    ("nanogpt.pictures.step", "01_chain_specdec --steps 0", "steps is 0"),
    ("nanogpt.pictures.step", f"01_chain_specdec --out '{Path(__file__).as_posix()}'",
     "cannot be made"),
]


@pytest.mark.filterwarnings("ignore:.*found in sys.modules after import of package")
@pytest.mark.parametrize("program, flags, sentence", SLIPS)
def test_a_slip_is_one_sentence_and_nothing_is_trained(
        program, flags, sentence, capsys, monkeypatch):
    monkeypatch.setattr(train, "tqdm", lambda *a, **k: pytest.fail("trained before checking"))
    with pytest.raises(SystemExit) as stopped:
        start(program, *shlex.split(flags))
    error = capsys.readouterr().err
    assert stopped.value.code == 2 and sentence in error
    assert re.fullmatch(ONE_SENTENCE, error)


@pytest.mark.filterwarnings("ignore:.*found in sys.modules after import of package")
def test_help_without_a_chapter(capsys):
    with pytest.raises(SystemExit, match="0"):
        start("nanogpt.run", "--help")
    assert "nanogpt.run NUMBER [flags]" in capsys.readouterr().out


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


@pytest.mark.parametrize("words, said", [
    (["-m", "nanogpt.run", "01"], "stopped"), ([str(ROOT / SCRIPTS[0])], "stopped"),
    (["-c", "import sys; sys.excepthook = print; import nanogpt.run"], "")])
def test_ctrl_c_while_a_script_still_imports(words, said, tmp_path):
    """It comes with torch. Who only imports from here keeps his own hook."""
    (tmp_path / "torch.py").write_text("raise KeyboardInterrupt")
    paths = os.pathsep.join([str(tmp_path), str(ROOT)])
    ended = subprocess.run([sys.executable, *words], env=os.environ | {"PYTHONPATH": paths},
                           capture_output=True, text=True, check=False)
    assert ended.stderr.strip() == said and ended.stdout.startswith("<class" * (not said))


def test_output_that_nobody_takes(capsys, monkeypatch):
    """Behind `| head` a script ends without a word, a full disk is a sentence, `>&-` no error."""
    def status(stdout):
        with monkeypatch.context() as patch, pytest.raises(SystemExit) as stopped:
            patch.setattr(sys, "stdout", stdout)
            cli.run(lambda: print("text"))
        stdout.close()  # as Python does at its end: nothing is left to write
        return stopped.value.code, capsys.readouterr().err

    if os.name == "posix":  # Windows knows no such pipe
        reader, writer = os.pipe()
        os.close(reader)
        assert status(os.fdopen(writer, "w")) == (1, "")
    if Path("/dev/full").exists():
        assert status(os.fdopen(os.open("/dev/full", os.O_WRONLY), "w")) == (
            2, "error: the output cannot be written: No space left on device\n")
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    cli.run(lambda: sys.stdout.write("text") + sys.stderr.write("a bar"))


def test_a_file_is_tried_before_the_work(tmp_path, capsys):
    cli.writable(tmp_path / "new" / "a.json")
    assert not list((tmp_path / "new").iterdir())
    (tmp_path / "kept").write_text("kept")
    cli.writable(tmp_path / "kept")
    assert (tmp_path / "kept").read_text() == "kept"
    with pytest.raises(ValueError, match="new' cannot be written: (Is a dir|Perm)"):
        cli.writable(tmp_path / "new")
    if Path("/dev/null").exists():
        with pytest.raises(ValueError, match="'/dev/null' cannot be written: it is no file"):
            cli.writable(Path("/dev/null"))
    with pytest.raises(SystemExit):  # and where nobody has tried
        cli.run(lambda: (tmp_path / "none").read_text())
    assert "none cannot be read or written: No such file" in capsys.readouterr().err


# ---------------------------------------------------------------- the commands that we print


def prose():
    """(where, text) of everything a reader takes commands from."""
    for path in [ROOT / "README.md", *ROOT.glob("*/*.md"), *ROOT.glob("0?_*/real/*.md")]:
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
        if words[0] != "install" or "-c" not in words:
            return  # the guide's help with proxies and with rooms that have no network
        assert words[words.index("-c") + 1] == "constraints.txt"
        extra = re.search(r"\[(.*)\]", words[-1])
        assert not extra or f"\n{extra[1]} = [" in project
        return
    bare = {"pytest", "venv", "http.server", ".github/book/build.py", "tests/grade_file.py",
            "tests/grade_run.py"}
    if bare & set(words[:2]):
        assert all((ROOT / word).exists() for word in words if word.endswith(".py"))
        return
    original = argparse.ArgumentParser.parse_args

    def parse_and_stop(self, *args, **kwargs):
        original(self, *args, **kwargs)
        raise Parsed

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_and_stop)
    with pytest.raises(Parsed):
        start(*words[words[0] == "-m":])
