"""Bad input: one sentence that names it, exit status 2, and nothing is trained before."""

import argparse
import importlib
import importlib.util
import os
import re
import runpy
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from nanogpt import cli, clock, data, train
from nanogpt.device import pick_device

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = {path.parent.name[:2]: path for path in sorted(ROOT.glob("0?_*/train_and_decode.py"))}
SCRIPTS["toy"] = ROOT / "06_layer_verification" / "toy_experiment.py"


def load_script(name):
    """A script as a module; scripts share one file name, so they cannot be imported by it."""
    spec = importlib.util.spec_from_file_location(f"script_{name}", SCRIPTS[name])
    script = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        as_a_script(patch, SCRIPTS[name])
        spec.loader.exec_module(script)
    return script


def as_a_script(patch, path):
    """`import bench` and `import pictures` then find the rooms in the script's own folder."""
    folder = path.parent if path.parent.parent == ROOT else path.parent.parent
    for room in ("bench", "pictures"):
        if (folder / f"{room}.py").exists():
            patch.setitem(sys.modules, room, importlib.import_module(f"{folder.name}.{room}"))


def sentence_of(main, capsys, *flags):
    """Run main(flags) as a script would -> what it says on stderr."""
    with pytest.raises(SystemExit) as stopped:
        cli.run(lambda: main(list(flags)))
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert "Traceback" not in error
    return error


@pytest.fixture
def nothing_is_trained(monkeypatch):
    monkeypatch.setattr(train, "fit", lambda *a, **k: pytest.fail("trained before checking"))


SHARED = [
    (["--prompt", ""], "the prompt is empty"),
    (["--prompt", "\u00e9"], "character '\u00e9' at position 0 is not in the vocabulary"),
    (["--max-new-tokens", "1"], "max_new_tokens is 1; it must be at least 2"),
    (["--prompts", "0"], "prompts is 0"),
    (["--threads", "0"], "threads is 0"),
    (["--seed", "-1"], "seed is -1"),
    (["--device", "abacus"], "device is 'abacus'"),
    (["--device", "cpu:x"], "device is 'cpu:x'"),
    (["--corpus", "none.txt"], "corpus 'none.txt' cannot be read"),
    (["--out", __file__], "cannot be made"),
    (["--size", "huge"], "invalid choice: 'huge'"),
]
OWN = [
    ("01", ["--temperature", "-1"], "temperature is -1.0"),
    ("01", ["--top-p", "0"], "top_p is 0.0"),
    ("01", ["--top-k", "0"], "top_k is 0"),
    ("01", ["--k", "0"], "k is 0"),
    ("01", ["--k", "many"], "invalid int value: 'many'"),
    ("01", ["--stop", ""], "stop is empty"),
    ("02", ["--temperatures", "0", "-1"], "temperature is -1.0"),
    ("01", ["--temperature", "1e-39"], "temperature is 1e-39"),
    ("05", ["--temperatures", "nan"], "temperature is nan"),
    ("04", ["--budget", "7"], "budget is 7; it must be even"),
    ("05", ["--budgets", "7", "0"], "budgets are [7, 0]"),
    ("05", ["--budgets", "100000"], "budgets are [100000]; each must be in [1, 255]"),
    ("05", ["--block-size", "0"], "block-size is 0"),
    ("05", ["--block-size", "300"], "block-size is 300; it must be in [1, 207]"),
    ("06", ["--depth", "0"], "depth is 0"),
    ("06", ["--branching", "0"], "branching is 0"),
    ("06", ["--depth", "99", "--shape", "complete"], "depth 99 make a tree of more than 4096"),
    ("06", ["--top-p", "1.5"], "top_p is 1.5"),
    ("toy", ["--depth", "0"], "depth is 0"),
    ("toy", ["--similarity", "2"], "similarity is 2.0"),
    ("toy", ["--seeds", "0"], "seeds is 0"),
]


@pytest.mark.parametrize("flags, sentence", SHARED)
def test_shared_flags(nothing_is_trained, capsys, flags, sentence):
    assert sentence in sentence_of(load_script("01").main, capsys, *flags)


@pytest.mark.parametrize("script, flags, sentence", OWN)
def test_flags_of_the_chapters(nothing_is_trained, capsys, tmp_path, script, flags, sentence):
    assert sentence in sentence_of(
        load_script(script).main, capsys, *flags, "--out", str(tmp_path))


@pytest.mark.parametrize("script", [name for name in SCRIPTS if name != "toy"])
def test_every_script_checks_the_prompt_first(nothing_is_trained, capsys, script):
    assert "the prompt is empty" in sentence_of(load_script(script).main, capsys, "--prompt", "")


# ---------------------------------------------------------------- every flag of every script

MODULES = {f"nanogpt.{p.stem}": importlib.import_module(f"nanogpt.{p.stem}").main
           for p in sorted((ROOT / "nanogpt").glob("*.py"))
           if '__name__ == "__main__"' in p.read_text(encoding="utf-8")}
PROGRAMS = [p.relative_to(ROOT).as_posix() for p in sorted(ROOT.glob("0?_*/**/*.py"))
            if "__main__" in p.read_text(encoding="utf-8")]
BAD = {int: ["-1", "many"], float: ["-1", "nan", "much"], Path: [f"{__file__}/below"]}
BAD_TEXTS = {"--corpus": ["none.txt", str(ROOT)], "--device": ["abacus"], "--stop": [""],
             "--prompt": [""]}


class Parsed(Exception):
    """Carries the parser, as soon as its flags were read."""


def start(program, *flags):
    """Run a script, or a module's main, with these flags, as from the command line."""
    sys.argv = [program, *flags]
    if program in MODULES:
        cli.run(lambda: MODULES[program](list(flags)))
    else:
        with pytest.MonkeyPatch.context() as patch:
            as_a_script(patch, ROOT / program)
            runpy.run_path(str(ROOT / program), run_name="__main__")


def bad_flags(parser):
    """Every flag of a parser that takes a value, with values that it must refuse."""
    for action in parser._actions:
        if action.option_strings and action.nargs != 0:
            values = ["nonsense"] if action.choices else BAD.get(action.type, [])
            for value in values + BAD_TEXTS.get(action.option_strings[-1], []):
                yield action.option_strings[-1], value
    if {"--corpus", "--prompt"} <= parser._option_string_actions.keys():
        # A model that is trained here knows the characters of its corpus only.
        yield "--prompt", "\u00e9"


@pytest.mark.parametrize("program", [*PROGRAMS, *MODULES])
def test_a_slip_in_any_flag_is_one_sentence(nothing_is_trained, capsys, monkeypatch, program):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", [])
    dataset = data.load_dataset()  # once: loading it a hundred times would be slow
    monkeypatch.setattr(cli, "load_dataset", lambda corpus, tokenizer: (
        dataset if corpus == "shakespeare" else data.load_dataset(corpus, tokenizer)))
    with monkeypatch.context() as patch, pytest.raises(Parsed) as stopped:
        def give_parser(self, argv=None):
            raise Parsed(self)

        patch.setattr(argparse.ArgumentParser, "parse_args", give_parser)
        start(program)
    silent = [a.option_strings for a in stopped.value.args[0]._actions if not a.help]
    assert not silent, f"no help for {silent}"
    for flag, value in bad_flags(stopped.value.args[0]):
        with pytest.raises(SystemExit) as code:
            start(program, flag, value)
        error = capsys.readouterr().err
        assert code.value.code == 2, (flag, value, error)
        assert re.fullmatch(r"error: [^\n]+\n", error), (flag, value, error)


@pytest.mark.parametrize("program", [*PROGRAMS, *MODULES, "tests/grade.py",
                                     "tests/make_exercises.py", "tests/run_notebooks.py"])
def test_help_tells_every_flag(capsys, monkeypatch, program):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", [])
    with pytest.raises(SystemExit) as stopped:
        start(program, "--help")
    said = capsys.readouterr()
    assert stopped.value.code == 0 and not said.err and "usage:" in said.out
    assert "(default: None)" not in said.out and "==SUPPRESS==" not in said.out


@pytest.mark.slow
def test_ctrl_c_in_the_middle_of_training(tmp_path):
    """One sentence, status 130, and the next run goes on where it stopped.

    What becomes of the weights is tested in test_train.py, in one process.
    """
    if os.name == "nt":
        pytest.skip("Ctrl-C cannot be sent to a child alone")
    program = """
import signal, sys
from pathlib import Path
from nanogpt import checkpoint, cli, train
signal.signal(signal.SIGINT, signal.default_int_handler)  # a test in the background ignores it
checkpoint.CHECKPOINTS = Path(sys.argv.pop(1))
cli.run(train.main)
"""
    command = [sys.executable, "-c", program, str(tmp_path), "--size", "draft",
               "--steps", "100000", "--threads", "1"]
    where = r"stopped at step (\d+) of 100000; the next run goes on there\n"
    stops = [0]
    for _ in range(2):
        child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                 text=True)
        try:
            seen = ""
            # the progress bar: a step was made in this run
            while max(map(int, re.findall(r"(\d+)/100000", seen)), default=0) <= stops[-1]:
                seen += child.stderr.read(1)
                assert child.poll() is None, seen
            child.send_signal(signal.SIGINT)
            out, error = child.communicate(timeout=60)
        finally:
            child.kill()
        assert child.returncode == 130 and "Traceback" not in error
        stops.append(int(re.fullmatch(where, out.lstrip("\n"))[1]))
    assert 0 < stops[1] < stops[2]


@pytest.mark.parametrize("module, flags, sentence", [
    (train, ["--steps", "0"], "steps is 0"), (train, ["--batch-size", "-1"], "batch_size is -1"),
    (clock, ["--cached", "0"], "cached is 0"), (clock, ["--cached", "500"], "cached is 500"),
])
def test_flags_of_training_and_timing(nothing_is_trained, capsys, module, flags, sentence):
    assert sentence in sentence_of(module.main, capsys, *flags)


def test_a_figure_folder_that_cannot_be_written(nothing_is_trained, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(cli.os, "access", lambda *a: False)  # root may write everywhere
    error = sentence_of(load_script("01").main, capsys, "--out", str(tmp_path))
    assert f"folder '{tmp_path}' cannot be written" in error


def test_a_device_that_is_not_there():
    assert pick_device("auto").type in ("cpu", "cuda", "mps")
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="not available here; this machine has"):
            pick_device("cuda")


def test_the_real_script_says_one_sentence(tmp_path):
    """As a user runs it: another folder, no PYTHONPATH; stdout stays empty."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    answer = subprocess.run([sys.executable, str(SCRIPTS["01"]), "--temperature", "-1"],
                            cwd=tmp_path, env=environment, capture_output=True, text=True,
                            timeout=120)
    assert answer.returncode == 2 and answer.stdout == ""
    assert answer.stderr == "error: temperature is -1.0; it must be 0 (greedy) or at least 1e-06\n"
