"""Decode Shakespeare with DDTree: one pass guesses a block, a heap makes the best tree of it.

    python 05_ddtree/train_and_decode.py            # two minutes, at temperature 0 and 1
    python 05_ddtree/train_and_decode.py --quick    # a smaller target
"""

import sys
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))  # so that a plain clone runs, too

from nanogpt import cli, run
from ddtree_room import LOOPS

# draft    DDTreeDrafter: one pass of the block-diffusion drafter, then the best-first heap
# verify   as in chapter 02                                       ddtree.py, block_diffusion.py
# accept   the walk
# commit   as in chapter 02; the drafter takes the target's features; the loop is speculate

if __name__ == "__main__":
    cli.run(lambda: run.main(LOOPS, __doc__))
