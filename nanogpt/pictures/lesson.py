"""What a chapter's notebook needs before its first line: `%run ../nanogpt/pictures/lesson.py`.

It puts the repository on the path, so that a plain clone works without an installation, and leaves
the names of the stage in the notebook: torch, plt, Sampler, Dice, plain_decode, ... . The chapter's
own functions are imported where the lesson comes to them.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(1, str(ROOT))  # so that a plain clone runs, too

import inspect
import runpy
import subprocess
from functools import cache

import matplotlib.pyplot as plt
import torch
from IPython.display import Markdown, display
from matplotlib_inline.backend_inline import set_matplotlib_formats

from nanogpt import does_it_pay
from nanogpt.cli import print_table
from nanogpt.data import held_out_prompts, load_dataset, untouched_prompts
from nanogpt.decoding import collect, plain_decode
from nanogpt.device import pick_device
from nanogpt.exact.enumeration import outcomes
from nanogpt.exact.slips import replaced
from nanogpt.packing import for_decoding
from nanogpt.pictures import maps, plots
from nanogpt.run import a_cast
from nanogpt.sampling import Dice, Sampler
from nanogpt.train import get_gpt

set_matplotlib_formats("retina")  # two pixels for one: sharp on a phone


def show(*things, folded=False):
    """Display functions or classes as they stand in their module.

    folded: behind a line to click on, as the "Solution" of a question that was just asked, or as
    what `folded` says.
    """
    for thing in things:
        thing = inspect.unwrap(thing)
        code = f"```python\n{inspect.getsource(thing)}```"
        if folded:
            label = "Solution" if folded is True else folded
            code = (f"<details><summary>{label}: <b>{thing.__name__}</b>, as it stands in the "
                    f"module</summary>\n\n{code}\n\n</details>")
        display(Markdown(code))


def show_table(head, rows):
    """A table whose cells may be long: the page breaks their lines."""
    lines = [head, ["---"] * len(head), *rows]
    display(Markdown("\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)))


def grade(name):
    """Grade one blank of this chapter's exercise.py; prints what the terminal would. Where the
    answer is right, the rest of the lesson uses it.

    name: "residual", or the function.
    """
    if not (Path.cwd() / "exercise.py").exists():
        print(f"{Path.cwd()} is no chapter's folder with an exercise.py: open the lesson there.")
        return
    command = [sys.executable, "-X", "utf8", str(ROOT / "tests" / "grade.py"), Path.cwd().name[:2],
               "--blank", getattr(name, "__name__", name)]
    graded = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    print((graded.stdout + graded.stderr).strip())
    use = runpy.run_path(str(ROOT / "tests" / "grade_run.py"))["use"]
    use(Path.cwd().name[:2], Path("exercise.py"), getattr(name, "__name__", name),
        right=graded.returncode == 0)
    if graded.returncode not in (0, 1, 2):  # done, not yet, a name that does not exist
        print(f"The grader broke off with exit status {graded.returncode}.")


@cache
def setting():
    """-> the data set and the device of the lesson."""
    return load_dataset(), pick_device()


def load_gpt(size):
    """A trained GPT of a named size as its decoding copy; trained first if it never was."""
    dataset, device = setting()
    return for_decoding(get_gpt(size, dataset, device))


# ---------------------------------------------------------------- how a lesson ends


@cache
def contest():
    """The stored contest on the EPYC."""
    return does_it_pay.load_contest(does_it_pay.MEASURED / "epyc.json")


@cache
def one_loop(name="epyc"):
    """A stored contest on 72 texts: all drafters in chapter 02's loop; "loops": chapter 01's loop
    beside it, and a few shapes; "loops_faster": again, in a faster hour; "chapters": what chapters
    03 to 05 end on; "xeon": the same on a second machine, without what is drawn from bare slots."""
    return does_it_pay.load_contest(does_it_pay.MEASURED / "one_loop" / f"{name}.json")
