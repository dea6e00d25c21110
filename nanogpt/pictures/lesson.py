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
import subprocess
from functools import cache

import matplotlib.pyplot as plt
import torch
from IPython.display import Markdown, display
from matplotlib_inline.backend_inline import set_matplotlib_formats

from nanogpt.bench import compare, cost_curve, summarize
from nanogpt.cli import print_table
from nanogpt.data import held_out_prompts, load_dataset
from nanogpt.decoding import collect, plain_decode
from nanogpt.device import device_name, pick_device
from nanogpt.exact.enumeration import outcomes
from nanogpt.exact.slips import replaced
from nanogpt.packing import for_decoding
from nanogpt.pictures import plots
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


def grade(name):
    """Grade one blank of this chapter's exercise.py; prints what the terminal would."""
    command = [sys.executable, str(ROOT / "tests" / "grade.py"), Path.cwd().name[:2],
               "--blank", name]
    graded = subprocess.run(command, capture_output=True, text=True, check=False)
    print((graded.stdout + graded.stderr).strip())
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
