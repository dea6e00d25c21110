"""Run the chapters' notebooks in clean kernels: python tests/run_notebooks.py [--write] [01 ...]

Each runs in its own folder. A cell that fails ends the run with its source and its error.
--write saves the outputs into the notebooks. --quick puts a narrow model of as many layers, trained
for a minute, in the place of the 10.7M target: it shows that all cells run, on any machine.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import os
import time

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from nanogpt.cli import Parser, run

# Goes ahead of a notebook's own cells: whatever asks for the target then gets the quick one.
QUICK = f"""
import sys
from dataclasses import replace

sys.path.insert(0, {str(ROOT)!r})
from nanogpt.sizes import SIZES

SIZES["baby"] = replace(SIZES["baby"], n_embd=96, recipe=replace(SIZES["baby"].recipe, steps=250))
"""


def run_notebook(path, write=False, quick=False):
    """Execute one notebook -> seconds. Raises CellExecutionError if a cell fails."""
    os.environ.pop("MPLBACKEND", None)  # or the kernel draws on no page
    notebook = nbformat.read(path, as_version=4)
    if quick:
        notebook.cells.insert(0, nbformat.v4.new_code_cell(QUICK))
    start = time.perf_counter()
    NotebookClient(
        notebook, timeout=1200, resources={"metadata": {"path": str(path.parent)}}
    ).execute()
    seconds = time.perf_counter() - start
    if write:
        for cell in notebook.cells:
            cell.metadata.pop("execution", None)  # time stamps: noise in every diff
        notebook.metadata.get("language_info", {}).pop("version", None)
        nbformat.write(notebook, path)
    return seconds


def main(argv=None):
    parser = Parser(__doc__.splitlines()[0])
    parser.add_argument("chapters", nargs="*", help="chapter numbers, such as 01; default: all")
    parser.add_argument("--write", action="store_true", help="save the outputs")
    parser.add_argument("--quick", action="store_true",
                        help="with a narrow target, trained for a minute")
    args = parser.parse_args(argv)
    if args.write and args.quick:
        raise ValueError("--quick shows other numbers than the lesson's; it cannot go with --write")
    found = {p.parent.name[:2]: p for p in sorted(ROOT.glob("0?_*/walkthrough.ipynb"))}
    for number in args.chapters:
        if number not in found:
            raise ValueError(f"chapter is '{number}'; it must be one of {', '.join(found)}")
    for number in args.chapters or found:
        path = found[number]
        try:
            seconds = run_notebook(path, args.write, args.quick)
            print(f"{path.parent.name}: {seconds:.0f} s", flush=True)
        except CellExecutionError as error:
            print(f"{path.parent.name} failed:\n{error}", file=sys.stderr)
            raise SystemExit(1) from None


if __name__ == "__main__":
    run(main)
