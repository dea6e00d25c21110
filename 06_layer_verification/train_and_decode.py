"""Decode Shakespeare with trees that are drawn, and judge them by every rule of the chapter.

    python 06_layer_verification/train_and_decode.py --temperatures 0.6 --top-p 0.9    # the paper's
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))  # so that a plain clone runs, too

from nanogpt import cli, run
from layers_room import LOOPS, print_same_trees

# draft    SampledTreeDrafter: every child drawn by itself         iid_trees.py
# verify   as in chapter 02
# accept   LayerVerification, and its rivals                       layer_verification.py
# commit   as in chapter 02; the loop is speculate

if __name__ == "__main__":
    cli.run(lambda: run.main(LOOPS, __doc__, after=print_same_trees, temperatures=(1.0,)))
