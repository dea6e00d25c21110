"""Run the chapters' notebooks in clean kernels: python tests/run_notebooks.py [--write] [01 ...]

Each runs in its own folder. A cell that fails ends the run with its source and its error.
--write saves the outputs into the notebooks.
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


def run_notebook(path, write=False):
    """Execute one notebook -> seconds. Raises CellExecutionError if a cell fails."""
    os.environ.pop("MPLBACKEND", None)  # or the kernel draws on no page
    notebook = nbformat.read(path, as_version=4)
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
    args = parser.parse_args(argv)
    found = {p.parent.name[:2]: p for p in sorted(ROOT.glob("0?_*/walkthrough.ipynb"))}
    for number in args.chapters:
        if number not in found:
            raise ValueError(f"chapter is '{number}'; it must be one of {', '.join(found)}")
    for number in args.chapters or found:
        path = found[number]
        try:
            seconds = run_notebook(path, args.write)
            print(f"{path.parent.name}: {seconds:.0f} s", flush=True)
        except CellExecutionError as error:
            print(f"{path.parent.name} failed:\n{error}", file=sys.stderr)
            raise SystemExit(1) from None


if __name__ == "__main__":
    run(main)
